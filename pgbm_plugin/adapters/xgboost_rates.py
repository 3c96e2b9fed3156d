"""Learning rate and regularisation of an XGBoost model, from its trees alone.

XGBoost drops eta, lambda and alpha when it saves a model, and reports the defaults after loading it. The trees still
tell: an inner node keeps its weight before the learning rate, a leaf after it, and the gradients of two children sum
to their parent's. With w = -soft(G, l1) / (H + lambda), hence -G = w (H + lambda) + l1 sign(w), that reads

    w_p (H_p + lambda) + l1 sign(w_p) = sum over children of the same, with w = v / alpha for a leaf of value v,

one equation per inner node in three unknowns. No data is needed, so it also holds for subsampled rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .xgboost_trees import FlatTrees

# Weighted residuals of the true rates are float32 noise, around 1e-7; wrong rates leave 1e-2.
_FITS = 3e-6


@dataclass(frozen=True)
class Rates:
    """What turns gradients into leaf values.

    eta : (T,) learning rate of each tree's iteration; lambda_ : L2; l1 : L1 regularisation;
    max_step : bound on a weight before eta, inf for none.
    """

    eta: NDArray[np.float64]
    lambda_: float
    l1: float
    max_step: float


@dataclass(frozen=True)
class _Equations:
    """Per inner node: eta (wh + lambda w + l1 s) = vh + lambda v, divided by the size of its terms.

    wh, w, s: w H, w and sign(w) of the parent less those of its inner children (for s: of all children), divided by
    the trees of an iteration, which share its eta; vh, v: the sums of v H and v over the leaf children.
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
        """Root of the mean squared residual, relative to the size of the terms."""
        return float(np.sqrt(np.mean(self.residual(rates) ** 2)))


def solve_rates(nodes: FlatTrees, nominal: Rates, leaves_are_renewed: bool) -> Rates:
    """The nominal rates if the trees agree with them, else the rates that the trees imply, else the nominal ones."""
    if np.isinf(nominal.max_step):
        nominal = replace(nominal, max_step=_tied_bound(np.abs(nodes.fields["base_weights"][nodes.left >= 0])))
    equations = _equations(nodes, nominal.max_step, leaves_are_renewed)
    if len(equations.tree) < 3:
        # nothing to solve, but leaves at the bound tell the learning rate
        bound = _tied_bound(np.abs(nodes.fields["split_conditions"][nodes.left < 0])) / nominal.max_step
        known = np.isfinite(bound) and bound > 0
        return replace(nominal, eta=np.full_like(nominal.eta, np.float32(f"{bound:.6g}"))) if known else nominal
    if equations.error(nominal) <= _FITS:
        return nominal
    for candidate in (
        _one_eta(equations, nominal, with_l1=False),
        _one_eta(equations, nominal, with_l1=True),
        _eta_per_tree(equations, nominal),
    ):
        if equations.error(candidate) <= _FITS:
            return _round(candidate, equations)
    return nominal


def _tied_bound(size: NDArray[np.floating[Any]]) -> float:
    """The bound at which sizes were clipped, seen as several of them at exactly the largest; inf if there are none."""
    largest = size.max(initial=0.0)
    return float(largest) if largest > 0 and np.count_nonzero(size == largest) > 2 else np.inf


def _equations(nodes: FlatTrees, max_step: float, leaves_are_renewed: bool) -> _Equations:
    weight = nodes.fields["base_weights"].astype(np.float64)
    cover = nodes.fields["sum_hessian"].astype(np.float64)
    is_leaf = nodes.is_leaf
    # a renewed leaf still holds, as its base weight, the value it had before
    value = weight if leaves_are_renewed else nodes.fields["split_conditions"].astype(np.float64)
    w = np.where(is_leaf, 0.0, weight)
    v = np.where(is_leaf, value, 0.0)
    sign = np.sign(np.where(is_leaf, v, w))
    parent = nodes.order[~is_leaf[nodes.order]]
    a, b = nodes.left[parent], nodes.right[parent]

    def parent_less_children(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return x[parent] - x[a] - x[b]

    def size(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.abs(x[parent]) + np.abs(x[a]) + np.abs(x[b])

    noise = size(w * cover) + size(v * cover)
    # a clipped weight has lost its gradient
    clipped = (np.abs(w) >= max_step * (1 - 1e-6)) | (np.abs(v) >= _tied_bound(np.abs(v)))
    use = (noise > 0) & ~(clipped[parent] | clipped[a] | clipped[b]) & (sign[parent] * sign[a] * sign[b] != 0)
    columns = (w * cover, w, sign)
    shared = noise[use] * nodes.trees_per_iteration[nodes.tree[parent][use]]
    wh, w_, s = (parent_less_children(x)[use] / shared for x in columns)
    vh, v_ = ((x[a] + x[b])[use] / noise[use] for x in (v * cover, v))
    return _Equations(nodes.tree[parent][use], wh, w_, s, vh, v_)


def _one_eta(e: _Equations, nominal: Rates, with_l1: bool) -> Rates:
    """One learning rate for all trees: linear in (eta, eta lambda, lambda, eta l1), then Gauss-Newton."""
    ones = np.ones(len(nominal.eta))
    columns = [e.wh, e.w, -e.v] + ([e.s] if with_l1 else [])
    first = np.linalg.lstsq(np.stack(columns, 1), e.vh, rcond=None)[0]
    eta, lambda_, l1 = first[0], first[2], (first[3] / first[0] if with_l1 and first[0] else 0.0)
    for _ in range(8):
        slopes = [e.wh + lambda_ * e.w + l1 * e.s, eta * e.w - e.v] + ([eta * e.s] if with_l1 else [])
        residual = e.residual(Rates(eta * ones, lambda_, l1, np.inf))
        change = np.linalg.lstsq(np.stack(slopes, 1), -residual, rcond=None)[0]
        eta, lambda_ = eta + change[0], lambda_ + change[1]
        l1 = l1 + (change[2] if with_l1 else 0.0)
    return replace(nominal, eta=eta * ones, lambda_=float(lambda_), l1=float(l1))


def _eta_per_tree(e: _Equations, nominal: Rates) -> Rates:
    """A learning rate per tree and one lambda: alternating least squares."""
    lambda_, n_trees = nominal.lambda_, len(nominal.eta)
    eta = nominal.eta
    for _ in range(50):
        x, y = e.wh + lambda_ * e.w, e.vh + lambda_ * e.v
        xx = np.bincount(e.tree, x * x, n_trees)
        eta = np.where(xx > 0, np.bincount(e.tree, x * y, n_trees) / np.where(xx > 0, xx, 1.0), nominal.eta)
        slope = eta[e.tree] * e.w - e.v
        residual = e.residual(Rates(eta, lambda_, 0.0, np.inf))
        change = -float(slope @ residual) / max(float(slope @ slope), float(np.finfo(float).tiny))
        lambda_ += change
        if abs(change) <= 1e-12 * (1.0 + abs(lambda_)):
            break
    return replace(nominal, eta=eta, lambda_=float(lambda_), l1=0.0)


def _round(rates: Rates, e: _Equations) -> Rates:
    """The shortest decimals that fit as well, as float32: what the user once wrote."""
    best = e.error(rates)

    def fits(candidate: Rates) -> bool:
        return e.error(candidate) <= 1.5 * best + 1e-9

    def shortest(candidates: Iterable[Rates]) -> Rates:
        return next((candidate for candidate in candidates if fits(candidate)), rates)

    digits = range(8)
    rates = shortest(replace(rates, lambda_=float(np.float32(f"{rates.lambda_:.{d}f}"))) for d in digits)
    rates = shortest(replace(rates, l1=float(np.float32(f"{rates.l1:.{d}f}"))) for d in digits)
    return shortest(replace(rates, eta=np.array([float(np.float32(f"{a:.{d}g}")) for a in rates.eta])) for d in digits)
