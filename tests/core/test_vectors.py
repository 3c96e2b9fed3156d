"""Replay in vectors against the walk, with equal bits: any number of rows, and forests that no booster would make."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgbm_plugin.kernels import vectors

from pgbm_plugin.routes.replay import Replay
from pgbm_plugin.routes.replay_program import replay_program
from pgbm_plugin.routes.walk import Walk
from pgbm_plugin.tables.rows import read_rows
from pgbm_plugin.trees.forest import CATEGORICAL, DEFAULT_LEFT, NODE, ZERO_BOUND, ZERO_IS_MISSING, Features, Forest
from pgbm_plugin.trees.objectives import IDENTITY

FEATURES = 5
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, ZERO_BOUND, -ZERO_BOUND, 1e-34, -0.5, -1.0, 31.9, 32.0, 40.0, 1e300]
# of vectors, packs of either kind of code, groups of packs, blocks
AROUND = sorted({n + d for n in (8, 32, 64, 128, 256, 512, 2048) for d in (-1, 0, 1)})


def grown(rng, leaves, cuts, categorical):
    """Nodes, category sets and leaf starts of trees with these numbers of leaves, each split where chance has it."""
    nodes = np.zeros(sum(leaves) - len(leaves), NODE)
    nodes["feature"] = rng.integers(0, FEATURES, len(nodes))
    nodes["threshold"] = rng.choice(cuts, len(nodes))
    nodes["flags"] = rng.choice([0, DEFAULT_LEFT, ZERO_IS_MISSING, DEFAULT_LEFT | ZERO_IS_MISSING], len(nodes))
    of_set = nodes["feature"] < categorical
    nodes["flags"][of_set] = CATEGORICAL | rng.choice([0, DEFAULT_LEFT], of_set.sum())
    # one bound a feature, as in every booster: the codes are made with it
    nodes["threshold"][of_set] = np.where(nodes["feature"][of_set] % 2, -1.0, -0.5)
    nodes["category_set"][of_set] = np.arange(of_set.sum())
    words = rng.integers(1, 3, of_set.sum() + 1)
    bits = rng.integers(0, 1 << 32, words.sum(), dtype=np.uint32)
    root, node, leaf = np.empty(len(leaves), np.int32), 0, 0
    for t, size in enumerate(leaves):
        first, root[t] = node, node if size > 1 else ~leaf
        waiting = []
        for k in range(first, first + size - 1):
            if waiting:  # the new node takes the place of any open child
                parent, side = waiting.pop(rng.integers(len(waiting)))
                nodes[side][parent] = k
            waiting += [(k, "left"), (k, "right")]
            node += 1
        for parent, side in waiting:
            nodes[side][parent] = ~leaf
            leaf += 1
        leaf += size == 1
    return root, nodes, np.concatenate([[0], np.cumsum(words)]), bits, np.concatenate([[0], np.cumsum(leaves)])


def made(seed, most_leaves, many_cuts, categorical, dtype):
    """A forest of up to six trees, and the values that its thresholds are."""
    rng = np.random.default_rng(seed)
    cuts = np.append(np.round(rng.normal(size=2000 if many_cuts else 9), 3 if many_cuts else 1), [0.0, 1e300, -1e300])
    leaves = [1 + int(rng.integers(most_leaves)) for _ in range(rng.integers(1, 7))]
    if sum(leaves) == len(leaves):
        leaves.append(2)
    root, nodes, start, bits, leaf_start = grown(rng, leaves, cuts, categorical)
    value = rng.normal(size=sum(leaves)).astype(dtype)
    label = np.arange(sum(leaves), dtype=np.int32)
    features = Features(FEATURES, None, np.dtype(float), np.dtype(float), absent=0.0, missing=np.nan)
    return Forest(root, nodes, start, bits, leaf_start, value, label, 0.5, 1, IDENTITY, features, "none"), cuts


def hostile(seed, n, cuts):
    """Rows of thresholds, special values and categories; in some columns only finite numbers."""
    rng = np.random.default_rng(seed)
    X = rng.choice(cuts, (n, FEATURES))
    for special in (SPECIAL, np.arange(-1.0, 70.0)):
        X = np.where(rng.random(X.shape) < 0.3 * (rng.random(FEATURES) < 0.7), rng.choice(special, X.shape), X)
    return X


def results(route, forest, sd, step):
    """All that a route computes, in the forest's order of leaves."""
    n = len(route.rows)
    margin, variance, log_scale = np.full(n, 0.5, forest.leaf_value.dtype), np.zeros(n), np.zeros(n)
    route.add_margin_variance(0, n, route.packed(forest.leaf_value, sd, step), 0.05, margin, variance, log_scale)
    plain, alone = np.full(n, 0.5, forest.leaf_value.dtype), np.zeros(n)
    route.add_margin_variance(0, n, route.packed(forest.leaf_value, sd, None), 0.05, plain, alone, None)
    np.testing.assert_array_equal(margin, plain)
    np.testing.assert_array_equal(variance, alone)
    mean, variances = np.full(n, 0.5, forest.leaf_value.dtype), np.zeros((3, n))
    route.add_margin(0, n, route.ordered(forest.leaf_value), mean)
    route.add_variances(0, n, route.ordered(sd), np.array([-0.9, 0.0, 1.0]), variances)
    number = route.ordered(np.arange(forest.n_leaves))
    leaves = [number[first + leaf] for first, leaf in zip(forest.leaf_start[:-1], route.leaves_by_tree(1), strict=True)]
    return margin, variance, log_scale, mean, variances, np.array(leaves)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.one_of(st.integers(1, 70), st.sampled_from(AROUND)),
    most_leaves=st.sampled_from([1, 4, 31, 256, 300]),
    many_cuts=st.booleans(),
    categorical=st.integers(0, 3),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_replay_has_the_bits_of_the_walk(seed, n, most_leaves, many_cuts, categorical, dtype):
    forest, cuts = made(seed, most_leaves, many_cuts, categorical, dtype)
    rng = np.random.default_rng(seed)
    sd, step = rng.gamma(0.5, size=forest.n_leaves), rng.normal(size=forest.n_leaves)
    rows = read_rows(hostile(seed, n, cuts), forest.features)
    walked = results(Walk(forest, rows), forest, sd, step)
    replayed = results(Replay(forest, rows, replay_program(forest)), forest, sd, step)
    for a, b in zip(walked, replayed, strict=True):
        np.testing.assert_array_equal(a, b)


def test_forests_of_all_kinds_are_made():
    """Check that the test above meets codes and regions of both sizes, with and without categories."""
    found = set()
    for seed in range(5):
        for most_leaves, many_cuts, categorical in ((31, False, 0), (31, False, 3), (300, True, 0), (300, True, 3)):
            program = replay_program(made(seed, most_leaves, many_cuts, categorical, np.float64)[0])
            found.add((str(program.code.dtype), str(program.region.dtype), len(program.table_start) > 0))
    assert found >= {(f"int{b}", f"uint{b}", any_set) for b in (8, 16) for any_set in (False, True)}


def test_vectors_take_no_array_with_gaps():
    """A vector is loaded from successive addresses, so that an array with gaps would give other numbers."""
    from numba import njit

    @njit
    def first(x):
        vectors.store(vectors.load(x, 0), x, 0)

    x = np.arange(16.0)
    first(x)
    with pytest.raises(AssertionError, match="no gaps"):
        first(x[::2])
