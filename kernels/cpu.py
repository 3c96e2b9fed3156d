"""Kernels that walk rows through all trees, in blocks of rows, so that a tree's nodes stay in cache for many rows.

The trees are passed as the arrays ``routing`` of a Forest: root, nodes, category_start, category_bits.
"""

from __future__ import annotations

from typing import Any

from .accumulate import add_rows, gradients
from .jit import kernel
from .scalar import add_tree, leaf_of, margin_of, response

BLOCK = 512


@kernel
def route(X: Any, root: Any, nodes: Any, category_start: Any, category_bits: Any, out: Any) -> None:
    """Write the leaf of every row in one tree to ``out``."""
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
    """Add leaf values to margins, and update variances by the recursion (paper eq. 12), in one walk.

    ``leaf_step`` is added to ``log_scale``; both may be None, and numba then compiles no code for them.
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
    """Repeat the training: per tree, compute g and h at the current margins, sum them per leaf, then add its steps.

    If ``new_iteration[t]`` is false, tree t uses the gradients of the tree before. ``weight`` may be empty. ``margin``
    holds the initial scores in the booster's precision, and afterwards the margins after all trees. ``restarts`` sets
    it to 0 after the first gradients, if the values of the first tree hold the base score. ``leaf``, ``g`` and ``h``
    are buffers for a block; see `accumulate.gradients` for those that may be None.
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
            add_rows(leaf[: hi - lo], g, h, weight_, step, margin_, sums)


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
    """Update ``variance[k, i]`` by the recursion with ``rho[k]``, for several correlations in one walk."""
    n = X.shape[0]
    for lo in range(0, n, BLOCK):
        for t in range(root.shape[0]):
            for i in range(lo, min(lo + BLOCK, n)):
                sd = leaf_sd[leaf_of(X, i, root[t], nodes, category_start, category_bits)]
                for k in range(rho.shape[0]):
                    variance[k, i] = add_tree(variance[k, i], sd, rho[k])
