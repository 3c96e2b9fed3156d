"""Learning rate and regularisation of an XGBoost model, from its trees alone.

XGBoost drops eta, lambda and alpha when it saves a model, and reports the defaults after loading it. The trees still
tell: an inner node keeps its weight before the learning rate, a leaf after it, and the gradients of two children sum
to their parent's. With w = -soft(G, l1) / (H + lambda), hence -G = w (H + lambda) + l1 sign(w), that reads

    w_p (H_p + lambda) + l1 sign(w_p) = sum over children of the same, with w = v / alpha for a leaf of value v,

one equation per inner node in three unknowns. No data is needed, so it also holds for subsampled rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .flat_trees import FlatTrees

# Residuals of the true rates are float32 noise, around 1e-7; wrong rates leave 1e-2.
_NOISE = 1e-7
_FITS = 30 * _NOISE

# Rates that the trees determine are at least this close, relative to them; and so are rates that the model states.
_CLOSE = 1e-5


@dataclass(frozen=True)
class Rates:
    """Learning rates and regularisation.

    Attributes
    ----------
    eta : (T,) float array
        Learning rate of each tree's iteration.
    lambda_, l1 : float
        L2 and L1 regularisation.
    max_step : float
        Bound on a weight before eta; inf for none.
    known : bool
        Whether the rates are stored, or well determined by the trees.
    eta_error : float
        Relative error that eta may have; inf if it is a guess. A single split under a root of weight 0 fits any.
    """

    eta: NDArray[np.float64]
    lambda_: float
    l1: float
    max_step: float
    known: bool = True
    eta_error: float = np.inf


@dataclass(frozen=True)
class _Equations:
    """One equation per inner node: eta (wh + lambda w + l1 s) = vh + lambda v, divided by the size of its terms.

    wh, w, s are w H, w and sign(w) of the parent less those of its inner children (for s: of all children), divided by
    the trees of an iteration, which share its eta; vh, v are the sums of v H and v over the leaf children.
    """

    tree: NDArray[np.int64]
    wh: NDArray[np.float64]
    w: NDArray[np.float64]
    s: NDArray[np.float64]
    vh: NDArray[np.float64]
    v: NDArray[np.float64]

    def residual(self, rates: Rates) -> NDArray[np.float64]:
        left = rates.eta[self.tree] * (self.wh + rates.lambda_ * self.w + rates.l1 * self.s)
        return left - self.vh - rates.lambda_ * self.v

    def error(self, rates: Rates) -> float:
        """Return the root mean squared residual, relative to the size of the terms."""
        return float(np.sqrt(np.mean(self.residual(rates) ** 2)))

    def slopes(self, rates: Rates) -> NDArray[np.float64]:
        """Return the (equations, 3) derivatives of the residual by eta, lambda and l1."""
        eta = rates.eta[self.tree]
        return np.stack([self.wh + rates.lambda_ * self.w + rates.l1 * self.s, eta * self.w - self.v, eta * self.s], 1)


def rates_from_trees(nodes: FlatTrees, nominal: Rates, leaves_are_renewed: bool) -> Rates:
    """Return the nominal rates if the trees agree with them, else the simplest ones that the trees imply.

    `nominal.known` says whether they are more than a guess.
    """
    if not leaves_are_renewed:
        nominal = _eta_of_untouched_weights(nodes, nominal)
    bounds = [nominal.max_step]
    if np.isinf(nominal.max_step):
        bounds.append(_tied_bound(np.abs(nodes.fields["base_weights"][nodes.inner])))
    best, smallest = nominal, np.inf
    for bound in dict.fromkeys(bounds):
        start = replace(nominal, max_step=bound)
        equations = _equations(nodes, bound, leaves_are_renewed)
        if len(equations.tree) == 0:
            inferred = bound != nominal.max_step
            return _eta_of_clipped_leaves(nodes, start, leaves_are_renewed) if inferred else _stated(nominal, np.inf)
        error = equations.error(start)
        if error <= _FITS:
            return _stated(start, _eta_error(equations, start))
        for candidate in _candidates(equations, start):
            candidate_error = equations.error(candidate)
            plausible = candidate.lambda_ >= -1e-3 and candidate.l1 >= -1e-3 and candidate.eta.min() > 0
            # three times is noise, not evidence against the nominal rates
            if plausible and candidate_error <= _FITS and 3.0 * candidate_error < error:
                off = _eta_error(equations, candidate)
                return replace(_round(candidate, equations), known=bool(np.isfinite(off)), eta_error=off)
            if plausible and candidate_error < min(smallest, 0.1 * error):
                best, smallest = candidate, candidate_error
        if error <= 100 * _FITS:
            return _stated(start, _eta_error(equations, start))
    return replace(best, known=False)


def _stated(rates: Rates, eta_error: float) -> Rates:
    """Return rates that the trees do not contradict; they are known if the model states them or the trees tell."""
    told = bool(np.isfinite(eta_error))
    return replace(rates, known=rates.known or told, eta_error=_CLOSE if rates.known and told else eta_error)


def _eta_of_untouched_weights(nodes: FlatTrees, nominal: Rates) -> Rates:
    """Read the learning rate off leaves that keep their weight before it: single leaves, and all of method "exact"."""
    weight = nodes.fields["base_weights"][nodes.leaves].astype(np.float64)
    value = nodes.fields["split_conditions"][nodes.leaves].astype(np.float64)
    tree = nodes.tree[nodes.leaves]
    alone = np.bincount(tree)[tree] == 1
    eta_determined = (weight != 0) & (alone | (value != weight))
    tree = tree[eta_determined]
    ratio = value[eta_determined] / weight[eta_determined] * nodes.trees_per_iteration[tree]
    if not np.all((ratio > 0) & (ratio < 100)):
        return nominal
    eta = nominal.eta.copy()
    for t, r in zip(tree, ratio, strict=True):
        if abs(r / eta[t] - 1.0) > 1e-5:
            eta[t] = float(np.float32(f"{r:.6g}"))
    return replace(nominal, eta=eta)


def _eta_of_clipped_leaves(nodes: FlatTrees, nominal: Rates, leaves_are_renewed: bool) -> Rates:
    """Read the learning rate off leaves at a known bound, where there is no equation to solve."""
    largest = _tied_bound(np.abs(_leaf_values(nodes, leaves_are_renewed)[nodes.leaves]))
    if np.isinf(largest):
        return replace(nominal, known=False)
    eta = float(np.float32(f"{largest / nominal.max_step * nodes.trees_per_iteration[0]:.6g}"))
    return replace(nominal, eta=np.full_like(nominal.eta, eta), known=False)


def _leaf_values(nodes: FlatTrees, leaves_are_renewed: bool) -> NDArray[np.float64]:
    """Return the (M,) values at leaves; a renewed leaf still holds, as its base weight, the value it had before."""
    return nodes.fields["base_weights" if leaves_are_renewed else "split_conditions"].astype(np.float64)


def _tied_bound(size: NDArray[np.floating[Any]]) -> float:
    """Return the bound at which sizes may have been clipped (several at exactly the largest); inf if there is none."""
    largest = size.max(initial=0.0)
    return float(largest) if largest > 0 and np.count_nonzero(size == largest) > 2 else np.inf


def _equations(nodes: FlatTrees, max_step: float, leaves_are_renewed: bool) -> _Equations:
    weight = nodes.fields["base_weights"].astype(np.float64)
    cover = nodes.fields["sum_hessian"].astype(np.float64)
    is_leaf = nodes.is_leaf
    w = np.where(is_leaf, 0.0, weight)
    v = np.where(is_leaf, _leaf_values(nodes, leaves_are_renewed), 0.0)
    sign = np.sign(np.where(is_leaf, v, w))
    parent = nodes.inner
    a, b = nodes.left[parent], nodes.right[parent]

    def parent_less_children(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return x[parent] - x[a] - x[b]

    def size(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.abs(x[parent]) + np.abs(x[a]) + np.abs(x[b])

    noise = size(w * cover) + size(v * cover)
    # a clipped weight has lost its gradient; if any leaf is clipped, the largest are
    clipped = np.abs(w) >= max_step * (1 - 1e-6)
    if np.isfinite(max_step):
        clipped |= (v != 0) & (np.abs(v) >= np.abs(v).max() * (1 - 1e-6))
    use = (noise > 0) & ~(clipped[parent] | clipped[a] | clipped[b]) & (sign[parent] * sign[a] * sign[b] != 0)
    columns = (w * cover, w, sign)
    shared = noise[use] * nodes.trees_per_iteration[nodes.tree[parent][use]]
    wh, w_, s = (parent_less_children(x)[use] / shared for x in columns)
    vh, v_ = ((x[a] + x[b])[use] / noise[use] for x in (v * cover, v))
    return _Equations(nodes.tree[parent][use], wh, w_, s, vh, v_)


def _candidates(e: _Equations, start: Rates) -> Iterator[Rates]:
    """Yield the rates that fit best, from the simplest assumption to the freest, while equations outnumber unknowns."""
    rates = replace(start, eta=np.full_like(start.eta, _one_eta(e, start)))
    for free in ([0], [0, 1], [0, 1, 2]):
        if len(e.tree) > len(free):
            rates = _gauss_newton(e, rates, free)
            yield rates
    if len(e.tree) >= 2 * len(start.eta):
        yield _eta_per_tree(e, start)


def _one_eta(e: _Equations, rates: Rates) -> float:
    x, y = e.wh + rates.lambda_ * e.w + rates.l1 * e.s, e.vh + rates.lambda_ * e.v
    return float(x @ y) / max(float(x @ x), float(np.finfo(float).tiny))


def _gauss_newton(e: _Equations, rates: Rates, free: list[int]) -> Rates:
    """Fit some of (eta, lambda, l1) by least squares, with one eta for all trees."""
    for _ in range(25):
        change = np.zeros(3)
        change[free] = np.linalg.lstsq(e.slopes(rates)[:, free], -e.residual(rates), rcond=None)[0]
        rates = replace(
            rates, eta=rates.eta + change[0], lambda_=float(rates.lambda_ + change[1]), l1=float(rates.l1 + change[2])
        )
        if np.all(np.abs(change) <= 1e-12 * (1.0 + np.abs([rates.eta[0], rates.lambda_, rates.l1]))):
            break
    return rates


def _eta_error(e: _Equations, rates: Rates) -> float:
    """Return the relative error that float32 noise leaves to eta, with lambda and l1 free; inf if above a percent."""
    slopes = e.slopes(rates)
    scale = np.abs(slopes).max(axis=0)
    slopes = slopes[:, scale > 0] / scale[scale > 0]
    _, singular, v = np.linalg.svd(slopes, full_matrices=False)
    if scale[0] == 0 or len(e.tree) < slopes.shape[1] or singular[-1] <= 0:
        return np.inf
    sd = _NOISE * np.sqrt(np.sum((v[:, 0] / singular) ** 2)) / scale[0]
    relative = float(sd / rates.eta.max())
    return max(10.0 * relative, _CLOSE) if relative <= 0.01 else np.inf


def _eta_per_tree(e: _Equations, nominal: Rates) -> Rates:
    """Fit a learning rate per tree and one L2 regularisation, by alternating least squares; L1 stays nominal."""
    lambda_, n_trees = nominal.lambda_, len(nominal.eta)
    eta = nominal.eta
    for _ in range(50):
        x, y = e.wh + lambda_ * e.w + nominal.l1 * e.s, e.vh + lambda_ * e.v
        xx = np.bincount(e.tree, x * x, n_trees)
        eta = np.where(xx > 0, np.bincount(e.tree, x * y, n_trees) / np.where(xx > 0, xx, 1.0), nominal.eta)
        slope = eta[e.tree] * e.w - e.v
        residual = e.residual(replace(nominal, eta=eta, lambda_=lambda_))
        change = -float(slope @ residual) / max(float(slope @ slope), float(np.finfo(float).tiny))
        lambda_ += change
        if abs(change) <= 1e-12 * (1.0 + abs(lambda_)):
            break
    return replace(nominal, eta=eta, lambda_=float(lambda_))


def _round(rates: Rates, e: _Equations) -> Rates:
    """Return the shortest decimals, as float32, that fit as well: what the user once wrote."""
    best = e.error(rates)

    def fits(candidate: Rates) -> bool:
        return e.error(candidate) <= 1.5 * best + 0.2 * _NOISE  # the best fit has fitted some of the noise

    def shortest(candidates: Iterable[Rates]) -> Rates:
        return next((candidate for candidate in candidates if fits(candidate)), rates)

    digits = range(8)
    rates = shortest(replace(rates, lambda_=float(np.float32(f"{rates.lambda_:.{d}f}"))) for d in digits)
    rates = shortest(replace(rates, l1=float(np.float32(f"{rates.l1:.{d}f}"))) for d in digits)
    return shortest(replace(rates, eta=np.array([float(np.float32(f"{a:.{d}g}")) for a in rates.eta])) for d in digits)
