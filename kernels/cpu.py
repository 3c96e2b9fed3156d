"""CPU kernels: each walks a range of rows through all trees, a block of rows at a time.

Blocks keep one tree's nodes in cache for many rows. The arguments that describe the trees are the arrays of
`pgbm_plugin.forest.Forest`, in the order (root, nodes, category_start, category_bits).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..objectives import HUBER, SQUARED
from .jit import kernel, scalar
from .scalar import add_tree, gradient_hessian, leaf_of, margin_of, response

BLOCK = 512

# Columns of the accumulator ``sums`` (leaves, 8), see `accumulate`.
COUNT, SHIFT_G, SHIFT_H, G, H, GG, HH, GH = range(8)


@kernel
def route(X: Any, root: Any, nodes: Any, category_start: Any, category_bits: Any, out: Any) -> None:
    """Leaf of every row in one tree: ``out[i] = leaf``."""
    for i in range(X.shape[0]):
        out[i] = leaf_of(X, i, root, nodes, category_start, category_bits)


@kernel
def add_margin(
    X: Any, root: Any, nodes: Any, category_start: Any, category_bits: Any, leaf_value: Any, margin: Any
) -> None:
    """``margin[i] += sum of leaf values``, tree after tree, in the precision of ``margin``."""
    n = X.shape[0]
    for lo in range(0, n, BLOCK):
        for t in range(root.shape[0]):
            for i in range(lo, min(lo + BLOCK, n)):
                margin[i] += leaf_value[leaf_of(X, i, root[t], nodes, category_start, category_bits)]


@kernel
def add_margin_variance(
    X: Any,
    root: Any,
    nodes: Any,
    category_start: Any,
    category_bits: Any,
    leaf_value: Any,
    leaf_sd: Any,
    rho: Any,
    margin: Any,
    variance: Any,
) -> None:
    """`add_margin`, and the variance recursion (paper eq. 12) in the same walk."""
    n = X.shape[0]
    for lo in range(0, n, BLOCK):
        for t in range(root.shape[0]):
            for i in range(lo, min(lo + BLOCK, n)):
                leaf = leaf_of(X, i, root[t], nodes, category_start, category_bits)
                margin[i] += leaf_value[leaf]
                variance[i] = add_tree(variance[i], leaf_sd[leaf], rho)


@kernel
def accumulate(leaf: Any, g: Any, h: Any, sums: Any) -> None:
    """Add rows to the accumulators of their leaves.

    Sums are of differences from the leaf's first row. That row is one of the sample, so n times its squared distance
    from the mean is at most n times the sum of squares wanted: the cancellation costs a factor n at the very worst
    and nothing as a rule, whatever the offset of the data.
    """
    for i in range(leaf.shape[0]):
        s = sums[leaf[i]]
        if s[COUNT] == 0.0:
            s[SHIFT_G] = g[i]
            s[SHIFT_H] = h[i]
        dg = g[i] - s[SHIFT_G]
        dh = h[i] - s[SHIFT_H]
        s[COUNT] += 1.0
        s[G] += dg
        s[H] += dh
        s[GG] += dg * dg
        s[HH] += dh * dh
        s[GH] += dg * dh


@kernel
def accumulate_unit(leaf: Any, g: Any, sums: Any) -> None:
    """`accumulate` for hessians that are all 1: the same bits, in half the time."""
    for i in range(leaf.shape[0]):
        s = sums[leaf[i]]
        if s[COUNT] == 0.0:
            s[SHIFT_G] = g[i]
            s[SHIFT_H] = 1.0
        dg = g[i] - s[SHIFT_G]
        s[COUNT] += 1.0
        s[G] += dg
        s[GG] += dg * dg


@scalar
def has_unit_hessian(objective: Any, weight: Any) -> Any:
    """Whether every row's hessian is 1."""
    return objective in (SQUARED, HUBER) and weight.shape[0] == 0


@scalar
def gradients(
    y: Any, weight: Any, margin: Any, lo: Any, m: Any, objective: Any, parameter: Any, rounds_first: Any, g: Any, h: Any
) -> None:
    """g and h of rows lo..lo+m, in the float32 in which both boosters hold them."""
    if objective == SQUARED and weight.shape[0] == 0:  # by far the most common; nobody reads its h
        for r in range(m):
            g[r] = np.float32(np.float64(margin[lo + r]) - y[lo + r])
        return
    for r in range(m):
        gi, hi = gradient_hessian(objective, parameter, np.float64(margin[lo + r]), y[lo + r])
        if rounds_first:
            gi, hi = np.float64(np.float32(gi)), np.float64(np.float32(hi))
        w = weight[lo + r] if weight.shape[0] else 1.0
        g[r] = np.float32(gi * w)
        h[r] = np.float32(hi * w)


@kernel
def gather_moments(
    X: Any,
    y: Any,
    weight: Any,
    root: Any,
    nodes: Any,
    category_start: Any,
    category_bits: Any,
    step: Any,
    new_iteration: Any,
    objective: Any,
    parameter: Any,
    rounds_first: Any,
    work: Any,
    margin: Any,
    sums: Any,
) -> None:
    """Replay training: per tree, g and h at the current margins, their sums per leaf, then the tree's step.

    ``new_iteration[t]`` says that tree t sees fresh gradients; trees grown side by side share those of the first.
    ``weight`` may be empty; ``rounds_first`` says whether g and h are rounded before they are weighted. ``margin``
    starts at the initial score, in the booster's precision, and is advanced. ``work`` is (leaf, g, h), one block each.
    """
    n = X.shape[0]
    leaf, g, h = work
    unit = has_unit_hessian(objective, weight)
    for lo in range(0, n, BLOCK):
        m = min(BLOCK, n - lo)
        for t in range(root.shape[0]):
            if new_iteration[t]:
                gradients(y, weight, margin, lo, m, objective, parameter, rounds_first, g, h)
            for r in range(m):
                leaf[r] = leaf_of(X, lo + r, root[t], nodes, category_start, category_bits)
            if unit:
                accumulate_unit(leaf[:m], g, sums)
            else:
                accumulate(leaf[:m], g, h, sums)
            for r in range(m):
                margin[lo + r] += step[leaf[r]]


@kernel
def to_response(link: Any, margin: Any) -> None:
    """Margins become predictions, in place."""
    for i in range(margin.shape[0]):
        margin[i] = response(link, margin[i])


@kernel
def to_margin(link: Any, value: Any) -> None:
    """Responses become margins, in place."""
    for i in range(value.shape[0]):
        value[i] = margin_of(link, value[i])


@kernel
def add_variances(
    X: Any, root: Any, nodes: Any, category_start: Any, category_bits: Any, leaf_sd: Any, rho: Any, variance: Any
) -> None:
    """The variance recursion for several correlations in one walk: ``variance[k, i]`` under ``rho[k]``."""
    n = X.shape[0]
    for lo in range(0, n, BLOCK):
        for t in range(root.shape[0]):
            for i in range(lo, min(lo + BLOCK, n)):
                sd = leaf_sd[leaf_of(X, i, root[t], nodes, category_start, category_bits)]
                for k in range(rho.shape[0]):
                    variance[k, i] = add_tree(variance[k, i], sd, rho[k])
