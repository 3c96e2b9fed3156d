"""CPU kernels: each walks a range of rows through all trees, a block of rows at a time.

Blocks keep one tree's nodes in cache for many rows. The arguments that describe the trees are the arrays of
`pgbm_plugin.forest.Forest`, in the order (root, nodes, category_start, category_bits).
"""

from __future__ import annotations

from typing import Any

from .accumulate import add_rows, gradients
from .jit import kernel
from .scalar import add_tree, leaf_of, margin_of, response

BLOCK = 512


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
    leaf_step: Any,
    rho: Any,
    margin: Any,
    variance: Any,
    log_scale: Any,
) -> None:
    """`add_margin`, and the variance recursion (paper eq. 12) in the same walk.

    ``log_scale[i]`` is the sum of ``leaf_step``; both may be None, and numba compiles nothing for them.
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
    rounds_first: Any,
    leaf: Any,
    g: Any,
    h: Any,
    margin: Any,
    sums: Any,
) -> None:
    """Replay training: per tree, g and h at the current margins, their sums per leaf, then the tree's step.

    ``new_iteration[t]`` says that tree t sees fresh gradients; trees grown side by side share those of the first.
    ``weight`` may be empty; ``rounds_first`` says whether g and h are rounded before they are weighted. ``margin``
    starts at the initial score, in the booster's precision, and is advanced. ``leaf``, ``g``
    and ``h`` are room for a block; see `accumulate` for those that are None.
    """
    n = X.shape[0]
    for lo in range(0, n, BLOCK):
        hi = min(lo + BLOCK, n)
        y_, weight_, margin_ = y[lo:hi], weight[lo:hi], margin[lo:hi]
        for t in range(root.shape[0]):
            if new_iteration[t]:
                gradients(y_, weight_, margin_, objective, parameter, rounds_first, g, h)
            for i in range(lo, hi):
                leaf[i - lo] = leaf_of(X, i, root[t], nodes, category_start, category_bits)
            add_rows(leaf[: hi - lo], g, h, step, margin_, sums)


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
