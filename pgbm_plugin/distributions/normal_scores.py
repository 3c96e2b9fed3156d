"""Normal scores: outcomes of any family as numbers of a standard normal, to join rows by a Gaussian copula.

If Z is standard normal, the outcome ``from_uniform(Phi(Z))`` has the distribution of the row. A continuous outcome
stands for one number Z. An outcome with a probability stands for an interval of Z.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import eval_hermitenorm, ndtr, ndtri

from ..arrays import Array
from .base import Distribution
from .clipped import Clipped, Derived
from .discrete import Discrete
from .empirical import Empirical
from .normal import Normal
from .snapped import Snapped

ORDERS = 4
"""Number of Hermite coefficients of an outcome. The rest matters only if rows have r near 1."""

# The trapezoid rule in Z. It is exact for smooth quantiles, and to a few percent of a jump where they have one.
_STEP = 0.125
_NODES: Array = np.arange(-64.0, 65.0) * _STEP
_WEIGHTS = _STEP * np.exp(-0.5 * _NODES**2) / math.sqrt(2.0 * math.pi)
# Scores beyond it cannot be told from infinite ones.
_LARGEST = 8.0
# Outcomes on a lattice are summed one by one up to this one.
_MOST_COUNTS = 300.0
_NO_MASS = 1e-12
_BLOCK = 1 << 13


def expected_scores(distribution: Distribution, y: Array) -> Array:
    """Return the (n,) expected Z of outcomes: the normal score of a continuous outcome, else the mean of its interval.

    At independence, it is the derivative of a copula's log likelihood by the correlation that counts, so that no random
    numbers are needed. Rows without spread have a score of 0.
    """
    return np.where(_without_spread(distribution), 0.0, _scores(distribution, y))


def score_variances(distribution: Distribution) -> Array:
    """Return the (n,) variances of the expected scores: 1 for continuous outcomes, less where outcomes have mass."""
    variance = np.ones(len(distribution))
    if distribution.has_mass or isinstance(distribution, Empirical):
        for rows, part in _blocks(distribution):
            on_lattice = _on_lattice(part)
            variance[rows[on_lattice]] = _lattice_score_variances(part[on_lattice])
            rest = part[~on_lattice]
            if len(rest):
                scores = _scores(rest, _at_nodes(rest))
                variance[rows[~on_lattice]] = scores**2 @ _WEIGHTS
    variance[_without_spread(distribution)] = 0.0
    return variance


def hermite(distribution: Distribution) -> Array:
    """Return (ORDERS, n) coefficients E[Y He_k(Z)] / sqrt(k!), k = 1, 2, ..., of rows as functions of Z.

    Two rows whose Z have the correlation r have the covariance sum over k of r^k times both coefficients (Mehler). The
    first is the standard deviation if the row is normal, and the others are then 0.
    """
    out = np.zeros((ORDERS, len(distribution)))
    if type(distribution) is Normal:
        out[0] = distribution.std()
        return out
    polynomials = np.stack([_polynomial(k, _NODES) for k in range(1, ORDERS + 1)])
    for rows, part in _blocks(distribution):
        on_lattice = _on_lattice(part)
        out[:, rows[on_lattice]] = _lattice_hermite(part[on_lattice])
        rest = part[~on_lattice]
        if len(rest):
            outcome = _at_nodes(rest)
            outcome -= outcome[:, len(_NODES) // 2, None]  # so that no digits cancel
            out[:, rows[~on_lattice]] = polynomials * _WEIGHTS @ outcome.T
    out[:, _without_spread(distribution)] = 0.0
    return out


def _polynomial(k: int, z: Array) -> Array:
    """Return the k-th Hermite polynomial, of variance 1 under a standard normal."""
    return eval_hermitenorm(k, z) / math.sqrt(math.factorial(k))


def _density(z: Array) -> Array:
    return np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)


def _without_spread(distribution: Distribution) -> NDArray[np.bool_]:
    point = distribution._point
    return np.zeros(len(distribution), bool) if point is None else ~np.isnan(point)


def _blocks(distribution: Distribution) -> Iterator[tuple[NDArray[np.intp], Distribution]]:
    """Yield parts of the rows that have a spread, with their numbers."""
    rows = np.flatnonzero(~_without_spread(distribution))
    for start in range(0, len(rows), _BLOCK):
        part = rows[start : start + _BLOCK]
        yield part, distribution[part]


def _at_nodes(distribution: Distribution) -> Array:
    """Return the (n, nodes) outcomes at the nodes of Z."""
    return distribution.from_uniform(np.broadcast_to(ndtr(_NODES), (len(distribution), len(_NODES))))


def _scores(distribution: Distribution, y: Array) -> Array:
    """Return the expected Z of outcomes, of shape (n,) or (n, k)."""
    below, above, share = distribution.cdf(y), distribution.sf(y), _resolution(distribution)
    before, after = below, above
    if distribution.has_mass or share is not None:
        just_before = np.nextafter(y, -np.inf)
        before, after = distribution.cdf(just_before), distribution.sf(just_before)
    lower, upper = (before, below), (above, after)
    if share is not None:
        share = share if y.ndim == 1 else share[:, None]
        # rounding may move an outcome across its residual, but not across a value of a lattice
        always = not isinstance(distribution, Snapped)
        lower, upper = _widened(*lower, share, always), _widened(*upper, share, always)
    scores = np.where(before + below < 1.0, _mean_between(*lower), -_mean_between(*upper))
    return np.clip(scores, -_LARGEST, _LARGEST)


def _widened(low: Array, high: Array, share: Array, always: bool) -> tuple[Array, Array]:
    """Return intervals of probabilities that are wider by `share`, those that are wider already only if `always`."""
    narrow = always | (high - low < share)
    return np.where(narrow, low * (1.0 - share), low), np.where(narrow, high * (1.0 - share) + share, high)


def _mean_between(low: Array, high: Array) -> Array:
    """Return E[Z | low < Phi(Z) <= high]."""
    width = high - low
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (_density(ndtri(low)) - _density(ndtri(high))) / width
    return np.where(width > 1e-7 * high, mean, ndtri(0.5 * (low + high)))


def _resolution(distribution: Distribution) -> Array | None:
    """Return (n,) shares 1 / (m + 1) for a family made of m residuals; None for other families.

    A new outcome falls between these residuals or beyond them, into one of m + 1 places that are equally likely.
    """
    inner = distribution._inner if isinstance(distribution, Derived) else distribution
    if not isinstance(inner, Empirical):
        return None
    place = distribution.params.get("bin", np.zeros(len(distribution)))
    return 1.0 / (np.diff(inner._residuals.start)[np.nan_to_num(place).astype(np.intp)] + 1.0)


def _on_lattice(distribution: Distribution) -> NDArray[np.bool_]:
    """Return (n,) flags of the rows whose outcomes are few enough to be summed one by one."""
    if isinstance(distribution, Snapped):
        return np.ones(len(distribution), bool)
    inner = distribution
    if isinstance(distribution, Clipped):
        bounds = np.array([distribution.lower, distribution.upper])
        if np.any(np.isfinite(bounds) & (bounds != np.floor(bounds))):
            return np.zeros(len(distribution), bool)
        inner = distribution._inner
    if not isinstance(inner, Discrete):
        return np.zeros(len(distribution), bool)
    mean, variance = distribution._moments(**distribution.params)
    return mean + 10.0 * np.sqrt(variance) <= _MOST_COUNTS


def _over_lattice(distribution: Distribution, visit: Callable[[NDArray[np.intp], float, Array, Array], None]) -> None:
    """Call ``visit(rows, gap to the next value, Z at the upper end of the value, P(Y <= value))`` from value to value.

    Rows whose distribution has ended are left out.
    """
    values = distribution.values if isinstance(distribution, Snapped) else np.arange(2.0 * _MOST_COUNTS)
    rows = np.arange(len(distribution))
    for value, gap in zip(values, np.append(np.diff(values), 0.0), strict=True):
        below, above = distribution.cdf(value), distribution.sf(value)
        visit(rows, gap, np.where(below < 0.5, ndtri(below), -ndtri(above)), below)
        going = above > _NO_MASS
        if not going.all():
            rows, distribution = rows[going], distribution[going]
        if not len(rows):
            return


def _lattice_score_variances(distribution: Distribution) -> Array:
    total, last = np.zeros((2, len(distribution)))
    mass = np.zeros(len(distribution))

    def visit(rows: NDArray[np.intp], gap: float, z: Array, below: Array) -> None:
        density, width = _density(z), below - mass[rows]
        seen = width > 0.0
        total[rows] += np.where(seen, (last[rows] - density) ** 2 / np.where(seen, width, 1.0), 0.0)
        last[rows], mass[rows] = density, below

    _over_lattice(distribution, visit)
    return total


def _lattice_hermite(distribution: Distribution) -> Array:
    out = np.zeros((ORDERS, len(distribution)))

    def visit(rows: NDArray[np.intp], gap: float, z: Array, below: Array) -> None:
        density, inside = gap * _density(z), np.clip(z, -40.0, 40.0)
        for k in range(ORDERS):
            # E[He_k(Z); Z > z] is He_(k-1)(z) times the density
            out[k, rows] += density * _polynomial(k, inside) / math.sqrt(k + 1.0)

    _over_lattice(distribution, visit)
    return out
