"""FirstTrees: what is kept of rows that are read once, until the base score is known."""

from __future__ import annotations

from dataclasses import replace

import lightgbm as lgb
import numpy as np

from pgbm_plugin import wrap
from pgbm_plugin.leaves.first_trees import FirstTrees
from pgbm_plugin.tables.labelled import LabelledRows
from pgbm_plugin.tables.rows import read_rows
from pgbm_plugin.trees.forest import NODE


def balanced_tree(forest, depth):
    """Return a forest of one tree, whose leaf k holds the rows with x = k."""
    leaves = 1 << depth
    k = np.arange(leaves - 1)
    level = np.floor(np.log2(k + 1)).astype(int)
    place = k + 1 - (1 << level)
    nodes = np.zeros(leaves - 1, NODE)
    nodes["threshold"] = (2 * place + 1) * (leaves >> (level + 1)) - 0.5
    nodes["category_set"] = -1
    for side, child in (("left", 2 * k + 1), ("right", 2 * k + 2)):
        nodes[side] = np.where(child < leaves - 1, child, ~(child - leaves + 1))
    return replace(
        forest,
        root=np.zeros(1, np.int32),
        nodes=nodes,
        leaf_start=np.array([0, leaves]),
        leaf_value=np.zeros(leaves),
        leaf_label=np.arange(leaves, dtype=np.int32),
    )


def test_leaf_numbers_beyond_16_bits():
    x, y = np.arange(40.0)[:, None], np.arange(40.0)
    small = wrap(lgb.train({"verbose": -1, "min_data_in_leaf": 5}, lgb.Dataset(x, y), 1), x, y)
    forest = balanced_tree(small.forest, depth=17)
    ones = np.ones(forest.n_leaves)
    spec = replace(small.spec, lambda_=0 * ones, leaf_count=ones.astype(np.int64), leaf_cover=ones, start=0.0)
    leaf = np.array([0, 1, 65_535, 65_536, 65_537, 131_071])
    rows = LabelledRows(read_rows(leaf[:, None].astype(float), forest.features), leaf.astype(float), None, None)
    with FirstTrees(forest, spec, weighted=False) as first:
        first.add(rows, n_jobs=1)
        moments = first.moments(first.spec)
    assert np.array_equal(np.flatnonzero(moments.count), leaf)
    assert np.array_equal(moments.g_mean[leaf], -leaf.astype(np.float32))
