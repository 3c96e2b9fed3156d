"""The Tweedie distribution with a power between 1 and 2: a sum of gammas, with a mass at 0."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import gammainc, gammaincc, gammaincinv, gammaln, xlogy

from ..arrays import Array
from .base import Distribution, Positive
from .normal import LOG_SQRT_2PI, normal_where_narrow
from .poisson import poisson_samples

# Sums go over counts within so many standard deviations, and a few more: what is left out is below 1e-16.
_DEVIATIONS, _FEW = 9.0, 16.0
# Rows are summed in parts with about so many terms, which bounds the memory.
_TERMS = 1 << 20


class Tweedie(Distribution):
    """Tweedie distribution: the sum of N gammas of shape a, where N is Poisson distributed with mean lam.

    The mean m must be positive, and the variance is proportional to m^power. `from_moments` takes the ``power``, more
    than 1 and less than 2; the default is 1.5. The probability of 0 is exp(-lam), which is also what the density is
    there.

    All formulas are sums over N, to about 1e-8. The continuous ranked probability score (CRPS) is exact to about
    1e-7 of the standard deviation.
    """

    name = "tweedie"
    needs_positive_mean = True
    has_mass = True
    _needs = Positive._needs
    _fits = staticmethod(Positive._fits)

    @classmethod
    def check_options(cls, power: float = 1.5) -> None:
        if not 1.0 < power < 2.0:
            raise ValueError(f"power must be more than 1 and less than 2, not {power:g}")

    @staticmethod
    def _parameters(mean: Array, variance: Array, power: float = 1.5) -> dict[str, Array]:
        Tweedie.check_options(power)
        return {
            "lam": mean / variance * mean / (2.0 - power),
            "a": np.full_like(mean, (2.0 - power) / (power - 1.0)),
            "scale": variance / mean * (power - 1.0),
        }

    @staticmethod
    def _moments(lam: Array, a: Array, scale: Array) -> tuple[Array, Array]:
        mean = lam * a * scale
        return mean, mean * (a + 1.0) * scale

    @staticmethod
    def _logpdf(x: Array, lam: Array, a: Array, scale: Array) -> Array:
        x, lam, a, scale = np.broadcast_arrays(x, lam, a, scale)
        out = np.where(x == 0.0, -lam, np.where(x < 0.0, -np.inf, np.nan))
        inside = (x > 0.0) & np.isfinite(lam)
        t, lam, a, scale = (v[inside] for v in (x / scale, lam, a, scale))
        # the count of the largest term, and the deviation of the terms around it
        peak = np.exp((np.log(lam) + a * np.log(t / a)) / (1.0 + a))

        def term(n: Array, t: Array, lam: Array, a: Array) -> tuple[Array, ...]:
            return (_log_poisson(n, lam) + _log_poisson(n * a, t) + np.log(n * a / t),)

        bell = np.sqrt(peak / (1.0 + a))
        (log_sum,) = _sums(peak, bell, bell, term, t, lam, a, logarithms=True)
        out[inside] = log_sum - np.log(scale)
        return out

    @staticmethod
    def _cdf(x: Array, lam: Array, a: Array, scale: Array) -> Array:
        return np.where(x >= 0.0, _positive_part(gammainc, x, lam, a, scale)[0] + np.exp(-lam), 0.0)

    @staticmethod
    def _sf(x: Array, lam: Array, a: Array, scale: Array) -> Array:
        return np.where(x >= 0.0, _positive_part(gammaincc, x, lam, a, scale)[0], 1.0)

    @staticmethod
    def _ppf(q: Array, lam: Array, a: Array, scale: Array) -> Array:
        return _quantile(q - np.exp(-lam), 1.0 - q, lam, a, scale)

    @staticmethod
    def _isf(q: Array, lam: Array, a: Array, scale: Array) -> Array:
        return _quantile(-np.expm1(-lam) - q, q + 0.0 * lam, lam, a, scale)

    @staticmethod
    def _rvs(rng: np.random.Generator, shape: tuple[int, ...], lam: Array, a: Array, scale: Array) -> Array:
        return scale * rng.gamma(a * poisson_samples(rng, np.broadcast_to(lam, shape)))

    @staticmethod
    def _crps(y: Array, lam: Array, a: Array, scale: Array) -> Array:
        """Return E|Y - y| - E|Y - Y'| / 2; the first term is a sum over counts, the second an integral."""
        mean, variance = Tweedie._moments(lam, a, scale)
        x, rates, shapes, scales = np.broadcast_arrays(np.maximum(y, 0.0), lam, a, scale)
        cdf, share = np.full((2, *x.shape), np.nan)
        rows = np.isfinite(rates)

        def term(n: Array, t: Array, lam: Array, a: Array) -> tuple[Array, ...]:
            weight = np.exp(_log_poisson(n, lam))
            below = gammainc(n * a, t)
            return weight, weight * below, n * weight, n * weight * (below - np.exp(_log_poisson(n * a, t)))

        t, rates, shapes = (v[rows] for v in (x / scales, rates, shapes))
        bell = np.sqrt(rates / (1.0 + shapes))
        weights, below, counts, part = _sums(rates, np.sqrt(rates), bell, term, t, rates, shapes)
        cdf[rows] = np.exp(-rates) - np.expm1(-rates) * below / weights
        share[rows] = np.maximum(part / counts, 0.0)  # of the mean, from outcomes up to y
        distance = np.where(y < 0.0, mean - y, y * (2.0 * cdf - 1.0) - mean * (2.0 * share - 1.0))
        return normal_where_narrow(distance - _half_spread(lam, a, scale), y, mean, np.sqrt(variance))


def _log_poisson(n: Array, mean: Array) -> Array:
    """Return n log(mean) - mean - log(n!) for any n >= 0; for large n without cancellation."""
    large = np.maximum(n, 16.0)
    gap = large - mean
    with np.errstate(divide="ignore", invalid="ignore"):
        stirling = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / 1260.0 / large**2) / large**2) / large
        exact = gap - large * np.log(large / mean) - stirling - 0.5 * np.log(large) - LOG_SQRT_2PI
        near = gap - large * np.log1p(gap / mean) - stirling - 0.5 * np.log(large) - LOG_SQRT_2PI
        exact = np.where(np.abs(gap) < 0.5 * mean, near, exact)
    return np.where(n < 16.0, xlogy(n, mean) - mean - gammaln(n + 1.0), exact)


def _sums(
    peak: Array,
    reach: Array,
    bell: Array,
    term: Callable[..., tuple[Array, ...]],
    *arrays: Array,
    logarithms: bool = False,
) -> list[Array]:
    """Sum terms over the counts n = 1, 2, ... around a peak, for each of r rows.

    A sum of terms that form a bell equals the sum over every h-th of them, times h: to 1e-12, if the bell has a
    standard deviation of 1.5 h. So there are not many more terms for large counts than for small ones. A bell that is
    cut off at n = 1 is summed in full.

    Parameters
    ----------
    peak, reach : (r,) arrays
        Where the terms are largest, and the standard deviations after which they vanish.
    bell : (r,) array
        Standard deviation of the narrowest bell that terms form.
    term : callable
        Called as ``term(n, *arrays)``; returns the terms of each of the sums.
    *arrays : (r,) arrays
        Parameters of the rows.
    logarithms : bool
        Whether terms and results are logarithms.
    """
    low = np.maximum(np.floor(peak - _DEVIATIONS * reach), 1.0)
    step = np.where(low > 1.0, np.maximum(np.floor(bell / 1.5), 1.0), 1.0)
    length = np.ceil((peak + _DEVIATIONS * reach + _FEW - low) / step).astype(np.int64) + 1
    out: list[list[Array]] = []
    begin, ends = 0, np.cumsum(length)
    while begin < len(peak):
        done = ends[begin - 1] if begin else 0
        end = max(int(np.searchsorted(ends, done + _TERMS)), begin + 1)
        row = np.repeat(np.arange(begin, end), length[begin:end])
        starts = ends[begin:end] - length[begin:end] - done
        n = low[row] + step[row] * (np.arange(len(row)) - starts[row - begin])
        values = term(n, *(array[row] for array in arrays))
        if logarithms:
            largest = [np.maximum.reduceat(value, starts) for value in values]
            pairs = zip(values, largest, strict=True)
            sums = [np.add.reduceat(np.exp(value - top[row - begin]), starts) for value, top in pairs]
            out.append([np.log(s * step[begin:end]) + top for s, top in zip(sums, largest, strict=True)])
        else:
            out.append([np.add.reduceat(value, starts) * step[begin:end] for value in values])
        begin = end
    if not out:
        return [np.empty(0)] * len(term(np.ones(0), *arrays))
    return [np.concatenate(parts) for parts in zip(*out, strict=True)]


def _positive_part(
    incomplete: Callable[[Array, Array], Array], x: Array, lam: Array, a: Array, scale: Array
) -> tuple[Array, Array]:
    """Return the probability of 0 < Y <= x (with gammaincc: of Y > x, for x >= 0), and the density at x > 0."""
    x, lam, a, scale = np.broadcast_arrays(np.maximum(x, 0.0), lam, a, scale)
    out = np.full((2, *x.shape), np.nan)
    rows = np.isfinite(lam)
    t, lam, a, scale = (v[rows] for v in (x / scale, lam, a, scale))

    def term(n: Array, t: Array, lam: Array, a: Array) -> tuple[Array, ...]:
        weight = np.exp(_log_poisson(n, lam))
        with np.errstate(divide="ignore", invalid="ignore"):
            density = np.exp(_log_poisson(n * a, t)) * n * a / t
        return weight, weight * incomplete(n * a, t), weight * density

    weights, mass, density = _sums(lam, np.sqrt(lam), np.sqrt(lam / (1.0 + a)), term, t, lam, a)
    share = -np.expm1(-lam) / weights  # corrects the weights, which sum to the probability of N > 0
    out[0, rows], out[1, rows] = mass * share, density * share / scale
    return out[0], out[1]


def _quantile(below: Array, above: Array, lam: Array, a: Array, scale: Array) -> Array:
    """Return the x with P(0 < Y <= x) = below and P(Y > x) = above; 0 where `below` is not positive.

    Newton's method in log x, on the logarithm of the smaller of both probabilities; bisection where it would leave
    the bracket. It starts from the gamma distribution with the moments of the positive outcomes.
    """
    below, above, lam, a, scale = np.broadcast_arrays(below, above, lam, a, scale)
    out = np.where(above <= 0.0, np.inf, np.where(below <= 0.0, 0.0, np.nan))
    out = np.where(np.isnan(lam), np.nan, out)
    at = np.flatnonzero((below > 0.0) & (above > 0.0) & np.isfinite(lam))
    below, above, lam, a, scale = (v.ravel()[at] for v in (below, above, lam, a, scale))
    positive = -np.expm1(-lam)
    first = lam * a / positive  # moments of the positive outcomes, in units of the scale
    second = first * (a + 1.0 + lam * a)
    shape = first / (second / first - first) if len(at) else first
    with np.errstate(divide="ignore", over="ignore"):
        u = np.log(gammaincinv(shape, below / positive) * first / shape)
    low, high = np.full(len(at), -745.0), np.full(len(at), 709.0)
    u = np.clip(np.where(np.isfinite(u), u, np.log(first)), low, high)
    upper, active = above < below, np.arange(len(at))
    for _ in range(200):
        x, rows = np.exp(u[active]), upper[active]
        mass, slope = np.empty((2, len(active)))
        for incomplete, part in ((gammaincc, rows), (gammainc, ~rows)):
            chosen = active[part]
            mass[part], slope[part] = _positive_part(incomplete, x[part], lam[chosen], a[chosen], np.ones(len(chosen)))
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(rows, np.log(above[active] / mass), np.log(mass / below[active]))
            step = error * mass / (slope * x)  # `error` rises with x on either side
        high[active] = np.where(error > 0.0, u[active], high[active])
        low[active] = np.where(error < 0.0, u[active], low[active])
        new = u[active] - step
        inside = (new > low[active]) & (new < high[active])
        moving = np.abs(error) > 1e-13
        new = np.where(moving, np.where(inside, new, 0.5 * (low[active] + high[active])), u[active])
        moving &= np.abs(new - u[active]) > 1e-13 * np.maximum(np.abs(new), 1.0)
        u[active] = new
        active = active[moving]
        if not len(active):
            break
    out.ravel()[at] = np.exp(u) * scale
    return out


def _half_spread(lam: Array, a: Array, scale: Array) -> Array:
    """Return E|Y - Y'| / 2, half the mean absolute difference of two independent draws.

    With c the real part of (1 - i t)^-a, the characteristic function of Y - Y' is exp(-2 lam (1 - c)), and

        E|Y - Y'| / 2 = scale / pi * integral over t > 0 of (1 - exp(-2 lam (1 - c))) / t^2.

    In log t, the integrand has one peak and exponential tails, as that of the negative binomial distribution. It
    oscillates if a is large, which takes more points.
    """
    lam, a, scale = np.broadcast_arrays(lam, a, scale)
    total = np.zeros(lam.shape)
    peak = -0.5 * np.log((1.0 + lam) * a * (1.0 + a))
    points = 65 + 32 * int(np.sqrt(np.nanmax(a, initial=0.0) / 4.0))
    x, h = np.linspace(-3.3, 3.3, points, retstep=True)
    for offset, weight in zip(2.5 * np.sinh(x), 2.5 * np.cosh(x) * h, strict=True):
        t = np.exp(peak + offset)
        angle = a * np.arctan(t)
        rest = 2.0 * np.sin(0.5 * angle) ** 2 - np.expm1(-0.5 * a * np.log1p(t * t)) * np.cos(angle)  # 1 - c
        total -= weight * np.expm1(-2.0 * lam * rest) / t
    return scale * total / np.pi
