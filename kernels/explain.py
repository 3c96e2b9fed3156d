"""Kernels that explain variances: Shapley values of every tree, and their weights in the final variance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .jit import kernel
from .scalar import add_tree, goes_left, leaf_of


@kernel
def climb(
    left: Any, right: Any, root: Any, node_count: Any, node_parent: Any, leaf_count: Any, leaf_parent: Any, depth: Any
) -> Any:
    """Write the parents of all nodes and leaves and the rows below every node; return the summed depth of all leaves.

    A parent is coded as ``2 * node``, plus 1 for its left child; the parent of a root is -1. ``depth`` is a buffer of a
    number per node.
    """
    steps = 0
    for t in range(root.shape[0]):
        if root[t] >= 0:
            node_parent[root[t]], depth[root[t]] = -1, 0
        else:
            leaf_parent[~root[t]] = -1
    for k in range(left.shape[0]):  # parents come first
        for side in range(2):
            child = left[k] if side else right[k]
            if child >= 0:
                node_parent[child], depth[child] = 2 * k + side, depth[k] + 1
            else:
                leaf_parent[~child] = 2 * k + side
                steps += depth[k] + 1
    for j in range(leaf_parent.shape[0]):
        if leaf_parent[j] >= 0:
            node_count[leaf_parent[j] >> 1] += leaf_count[j]
    for k in range(left.shape[0] - 1, -1, -1):
        if node_parent[k] >= 0:
            node_count[node_parent[k] >> 1] += node_count[k]
    return steps


@kernel
def fill_paths(
    feature: Any,
    node_count: Any,
    node_parent: Any,
    leaf_count: Any,
    leaf_parent: Any,
    step_start: Any,
    step_node: Any,
    step_left: Any,
    step_slot: Any,
    slot_start: Any,
    slot_feature: Any,
    slot_share: Any,
) -> Any:
    """Write the path to every leaf, as `pgbm_plugin.predict.explain.Paths` holds it; return the number of slots."""
    step = slot = 0
    for j in range(leaf_parent.shape[0]):
        step_start[j], slot_start[j] = step, slot
        first, below, parent = slot, np.float64(leaf_count[j]), leaf_parent[j]
        while parent >= 0:
            k, is_left = parent >> 1, parent & 1
            # if no row reached the node, both sides are equally likely
            share = below / node_count[k] if node_count[k] > 0 else 0.5
            at = first
            while at < slot and slot_feature[at] != feature[k]:
                at += 1
            if at == slot:
                slot_feature[at], slot_share[at] = feature[k], 1.0
                slot += 1
            slot_share[at] *= share
            step_node[step], step_left[step], step_slot[step] = k, is_left, at - first
            step += 1
            below, parent = np.float64(node_count[k]), node_parent[k]
    step_start[leaf_parent.shape[0]], slot_start[leaf_parent.shape[0]] = step, slot
    return slot


@kernel
def secants(
    X: Any,
    root: Any,
    nodes: Any,
    category_start: Any,
    category_bits: Any,
    leaf_sd: Any,
    mean_sd: Any,
    mean_variance: Any,
    rho: Any,
    carried: Any,
    scale: Any,
    variance: Any,
) -> None:
    """Write to ``scale[i, t]`` the factor from tree t's difference from its mean to the final variance's difference.

    With v the variance of the row and v' that of mean leaves (``mean_variance[t]`` before tree t), s and s' the sds,
    and r = (sqrt v + sqrt v') / (s + s'), eq. 12 gives exactly

        v_t - v'_t = (1 - rho / r) (v_{t-1} - v'_{t-1}) + (1 - rho r) (s^2 - s'^2).

    ``carried`` is a buffer of a number per tree, for the factors (1 - rho / r).
    """
    for i in range(X.shape[0]):
        v = 0.0
        for t in range(root.shape[0]):
            sd = leaf_sd[leaf_of(X, i, root[t], nodes, category_start, category_bits)]
            sigma, sds = math.sqrt(v) + math.sqrt(mean_variance[t]), sd + mean_sd[t]
            scale[i, t] = 1.0 - rho * sigma / sds if sds > 0.0 else 0.0
            carried[t] = 1.0 - rho * sds / sigma if sigma > 0.0 else 0.0
            v = add_tree(v, sd, rho)
        variance[i] = v
        rest = 1.0
        for t in range(root.shape[0] - 1, -1, -1):
            scale[i, t] *= rest
            rest *= carried[t]


@kernel
def add_shapley(
    X: Any,
    nodes: Any,
    category_start: Any,
    category_bits: Any,
    leaf_start: Any,
    step_start: Any,
    step_node: Any,
    step_left: Any,
    step_slot: Any,
    slot_start: Any,
    slot_feature: Any,
    slot_share: Any,
    point_start: Any,
    point: Any,
    point_weight: Any,
    value: Any,
    scale: Any,
    addend: Any,
    goes: Any,
    follows: Any,
    out: Any,
) -> None:
    """Add to ``out[i, f]`` the sum over trees of feature f's Shapley values for ``value[j] * scale[i, t] + addend[j]``.

    Let a leaf's path have d features. The splits on feature k send the share z_k of the rows towards the leaf, and the
    row itself (o_k = 1) or not (o_k = 0). Then feature j gets

        (value scale + addend) (o_j - z_j) integral_0^1 prod_{k != j} (u o_k + (1 - u) z_k) du,

    because the Shapley weight s! (d - s - 1)! / d! is the integral of u^s (1 - u)^(d - s - 1). The integrand is a
    polynomial of degree d - 1, which Gauss-Legendre's rule of d / 2 points, rounded up, integrates exactly.
    ``goes`` and ``follows`` are buffers of a number per node, and per feature of a leaf.
    """
    for i in range(X.shape[0]):
        for k in range(nodes.shape[0]):
            node = nodes[k]
            goes[k] = goes_left(np.float64(X[i, node.feature]), node, category_start, category_bits)
        for t in range(leaf_start.shape[0] - 1):
            for j in range(leaf_start[t], leaf_start[t + 1]):
                first, d = slot_start[j], slot_start[j + 1] - slot_start[j]
                for k in range(d):
                    follows[k] = 1.0
                for step in range(step_start[j], step_start[j + 1]):
                    if goes[step_node[step]] != step_left[step]:
                        follows[step_slot[step]] = 0.0
                for p in range(point_start[d], point_start[d + 1]):
                    u = point[p]
                    product = point_weight[p] * (value[j] * scale[i, t] + addend[j])
                    for k in range(d):
                        product *= u * follows[k] + (1.0 - u) * slot_share[first + k]
                    if product == 0.0:  # neither this row nor any other reaches the leaf
                        continue
                    for k in range(d):
                        share = slot_share[first + k]
                        factor = u * follows[k] + (1.0 - u) * share
                        out[i, slot_feature[first + k]] += (follows[k] - share) * product / factor
