"""A third booster, as its users would have it and as a plugin would add it: stumps, grown in NumPy, in float64."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

from pgbm_plugin.boosters.booster import Booster
from pgbm_plugin.trees.forest import NODE, Features, Forest
from pgbm_plugin.trees.objectives import SQUARED, Objective
from pgbm_plugin.trees.training_spec import TrainingSpec

MAGIC, RATE, RIDGE = b"toy stumps\n", 0.3, 1.0
OBJECTIVES = {"squares": Objective("squares", SQUARED)}


@dataclass
class ToyModel:
    columns: int
    base: float
    feature: list
    threshold: list
    leaf: list
    cover: list

    def predict(self, X):
        total = np.full(len(X), self.base)
        for j, cut, values in zip(self.feature, self.threshold, self.leaf, strict=True):
            total += np.where(X[:, j] <= cut, *values)
        return total

    def save(self, path):
        path.write_bytes(MAGIC + json.dumps(vars(self)).encode())


def train(X, y, weight=None, rounds=20):
    """Step through the features; each stump splits one at its median, a little further every time."""
    w = np.ones(len(y)) if weight is None else np.asarray(weight, float)
    model = ToyModel(X.shape[1], float(np.average(y, weights=w)), [], [], [], [])
    margin = np.full(len(y), model.base)
    for t in range(rounds):
        j, level = t % X.shape[1], 0.2 + 0.6 * (t * 0.37 % 1.0)
        cut = float(np.quantile(X[:, j], level))
        left, g = X[:, j] <= cut, (margin - y) * w
        cover = [float(w[side].sum()) for side in (left, ~left)]
        value = [-RATE * float(g[side].sum()) / (h + RIDGE) for side, h in zip((left, ~left), cover, strict=True)]
        model.feature.append(j), model.threshold.append(cut), model.leaf.append(value), model.cover.append(cover)
        margin += np.where(left, *value)
    return model


class ToyRegressor(RegressorMixin, BaseEstimator):
    def fit(self, X, y, sample_weight=None):
        self.model_ = train(X, y, sample_weight)
        return self


def read(model):
    """Translate stumps into the package's trees; this and the record below are all that a booster costs."""
    trees, f64 = len(model.feature), np.dtype(float)
    nodes = np.zeros(trees, NODE)
    nodes["feature"], nodes["threshold"], nodes["category_set"] = model.feature, model.threshold, -1
    nodes["left"], nodes["right"] = ~np.arange(0, 2 * trees, 2), ~np.arange(1, 2 * trees, 2)
    forest = Forest(
        root=np.arange(trees, dtype=np.int32),
        nodes=nodes,
        category_start=np.zeros(1, np.int64),
        category_bits=np.zeros(0, np.uint32),
        leaf_start=np.arange(0, 2 * trees + 1, 2),
        leaf_value=np.ravel(model.leaf),
        leaf_label=np.tile(np.arange(2, dtype=np.int32), trees),
        base_margin=model.base,
        divisor=1,
        link=0,
        features=Features(model.columns, None, f64, f64, absent=0.0, missing=np.nan),
        booster="Toy",
    )
    rates, ridge, no = np.full(trees, RATE), np.full(2 * trees, RIDGE), np.zeros(trees, bool)
    stored = (np.inf, np.arange(trees), model.base, no, False, None, np.ravel(model.cover), False, (), 1e-12)
    return forest, TrainingSpec(OBJECTIVES["squares"], rates, 0 * rates, no, ridge, 0.0, *stored)


TOY = Booster(
    name="Toy",
    models=("tests.ToyModel",),
    estimators=("tests.ToyRegressor",),
    accepts="ToyModel, ToyRegressor",
    file_format="a file of toy stumps",
    objectives=OBJECTIVES,
    is_file=lambda head: head.startswith(MAGIC[:8]),
    read_file=lambda raw: read(ToyModel(**json.loads(raw[len(MAGIC) :]))),
    read_model=read,
    live_model=lambda estimator: estimator.model_,
    refit=lambda model, spec: lambda X, y, weight, *_: train(X, y, weight, len(spec.alpha)),
    **dict.fromkeys(("label_dtype", "gradient_dtype"), np.dtype(float)),
)
