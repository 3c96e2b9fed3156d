"""Kernels that walk a range of rows through all trees, a block of rows at a time.

Blocks keep one tree's nodes in cache for many rows. The arguments that describe the trees are the arrays of
`pgbm_plugin.trees.forest.Forest`, in the order (root, nodes, category_start, category_bits).
"""

from __future__ import annotations

from typing import Any

from .accumulate import add_rows, gradients
from .jit import kernel
from .scalar import add_tree, leaf_of, margin_of, response

BLOCK = 512


@kernel
def route(X: Any, root: Any, nodes: Any, category_start: Any, category_bits: Any, out: Any) -> None:
    """Write the leaf of every row in one tree: ``out[i] = leaf``."""
    for i in range(X.shape[0]):
        out[i] = leaf_of(X, i, root, nodes, category_start, category_bits)


@kernel
def add_margin(
    X: Any, root: Any, nodes: Any, category_start: Any, category_bits: Any, leaf_value: Any, margin: Any
) -> None:
    """Add the leaf values of every row to ``margin[i]``, tree after tree, in the precision of ``margin``."""
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
    leaf_step: Any,
    rho: Any,
    margin: Any,
    variance: Any,
    log_scale: Any,
) -> None:
    """Add leaf values to margins, and follow the variance recursion (paper eq. 12) in the same walk.

    ``log_scale[i]`` sums up ``leaf_step``; both may be None, and numba then compiles no code for them.
    """
    n = X.shape[0]
    for lo in range(0, n, BLOCK):
        for t in range(root.shape[0]):
            for i in range(lo, min(lo + BLOCK, n)):
                leaf = leaf_of(X, i, root[t], nodes, category_start, category_bits)
                margin[i] += leaf_value[leaf]
                variance[i] = add_tree(variance[i], leaf_sd[leaf], rho)
                if leaf_step is not None:
                    log_scale[i] += leaf_step[leaf]


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
    rounding: Any,
    restarts: Any,
    leaf: Any,
    g: Any,
    h: Any,
    margin: Any,
    sums: Any,
) -> None:
    """Train once more: per tree, take g and h at the current margins, sum them per leaf, then add the tree's step.

    ``new_iteration[t]`` says that tree t sees fresh gradients; trees of one iteration share those of its first tree.
    ``weight`` may be empty. ``margin`` begins at the initial score, in the booster's precision, and is advanced.
    ``restarts`` sets it to 0 after the first gradients: the first tree then holds the base score in its values.
    ``leaf``, ``g`` and ``h`` are buffers for a block; `accumulate.gradients` says which may be None.
    """
    n = X.shape[0]
    for lo in range(0, n, BLOCK):
        hi = min(lo + BLOCK, n)
        y_, weight_, margin_ = y[lo:hi], weight[lo:hi], margin[lo:hi]
        for t in range(root.shape[0]):
            if new_iteration[t]:
                gradients(y_, weight_, margin_, objective, parameter, rounding, g, h)
            if restarts and t == 0:
                margin_[:] = 0.0
            for i in range(lo, hi):
                leaf[i - lo] = leaf_of(X, i, root[t], nodes, category_start, category_bits)
            add_rows(leaf[: hi - lo], g, h, step, margin_, sums)


@kernel
def to_response(link: Any, margin: Any) -> None:
    """Turn margins into predictions, in place."""
    for i in range(margin.shape[0]):
        margin[i] = response(link, margin[i])


@kernel
def to_margin(link: Any, value: Any) -> None:
    """Turn responses into margins, in place."""
    for i in range(value.shape[0]):
        value[i] = margin_of(link, value[i])


@kernel
def add_variances(
    X: Any, root: Any, nodes: Any, category_start: Any, category_bits: Any, leaf_sd: Any, rho: Any, variance: Any
) -> None:
    """Follow the variance recursion for several correlations in one walk: ``variance[k, i]`` under ``rho[k]``."""
    n = X.shape[0]
    for lo in range(0, n, BLOCK):
        for t in range(root.shape[0]):
            for i in range(lo, min(lo + BLOCK, n)):
                sd = leaf_sd[leaf_of(X, i, root[t], nodes, category_start, category_bits)]
                for k in range(rho.shape[0]):
                    variance[k, i] = add_tree(variance[k, i], sd, rho[k])
