"""The oracle: the paper's equations in plain loops, from the boosters' own leaf ids and leaf values."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np


def f32(x: float) -> float:
    return float(np.float32(x))


def squared(s, y, p):
    return s - y, 1.0


def huber(s, y, p):
    return max(-p, min(p, s - y)), 1.0


def fair(s, y, p):
    x = s - y
    return p * x / (abs(x) + p), p**2 / (abs(x) + p) ** 2


def poisson(s, y, p):
    return math.exp(s) - y, math.exp(s) * math.exp(p)


def gamma(s, y, p):
    return 1 - y * math.exp(-s), y * math.exp(-s)


def tweedie(s, y, p):
    a, b = y * math.exp((1 - p) * s), math.exp((2 - p) * s)
    return -a + b, -(1 - p) * a + (2 - p) * b


def pseudohuber(s, y, p):
    z = s - y
    r = math.sqrt(1 + z**2 / p**2)
    return z / r, p**2 / ((p**2 + z**2) * r)


def squaredlog(s, y, p):
    s = max(s, f32(-1 + 1e-6))
    d = math.log1p(s) - math.log1p(y)
    return d / (s + 1), max((1 - d) / (s + 1) ** 2, 1e-6)


def cut_huber(s, y, p):
    return huber(s, y, p)[0], float(abs(s - y) < p)


def lq(s, y, p):
    return math.copysign(p * abs(s - y) ** (p - 1), s - y), p * (p - 1) * abs(s - y) ** (p - 2)


def logcosh(s, y, p):
    return math.tanh(s - y), 1 / math.cosh(s - y) ** 2


@dataclass
class Leaf:
    """One leaf: its stored value, the rows' weights w and their w g and w h, and what the paper makes of them."""

    value: float
    g: list[float] = field(default_factory=list)
    h: list[float] = field(default_factory=list)
    w: list[float] = field(default_factory=list)

    def unit(self, x: list[float]) -> list[float]:
        """g or h of a row of weight 1; rows of weight 0 are left out."""
        return [a / w for a, w in zip(x, self.w, strict=True) if w > 0]

    def mean(self, x: list[float], w: list[float]) -> float:
        return math.fsum(a * b for a, b in zip(x, w, strict=True)) / math.fsum(w)

    def cov(self, x: list[float], y: list[float], w: list[float]) -> float:
        if len(x) == 1:
            return 0.0
        mx, my, total = self.mean(x, w), self.mean(y, w), math.fsum(w)
        products = math.fsum(c * (a - mx) * (b - my) for a, b, c in zip(x, y, w, strict=True))
        return products / (total - math.fsum(c * c for c in w) / total)

    def moments(self) -> tuple[float, ...]:
        """The sum of weights (n if they are 1), mean g, mean h, var g, var h, cov gh (eq. 3-7)."""
        g, h, w = self.unit(self.g), self.unit(self.h), [w for w in self.w if w > 0]
        return math.fsum(w), self.mean(g, w), self.mean(h, w), self.cov(g, g, w), self.cov(h, h, w), self.cov(g, h, w)

    def newton(self, lambda_: float, l1: float = 0.0, max_step: float = math.inf) -> float:
        """The booster's leaf before its learning rate: what a certified leaf is compared with."""
        g, h = math.fsum(self.g), math.fsum(self.h)
        g = math.copysign(max(abs(g) - l1, 0.0), g)
        return max(-max_step, min(max_step, -g / (h + lambda_)))

    def weight(self, lambda_: float, l1: float = 0.0, max_step: float = math.inf) -> tuple[float, float]:
        """mu_j and V_j (eq. 8-9); L1 is taken from the mean gradient as from the sum, mu is bounded as leaves are."""
        n, g, h, vg, vh, cov = self.moments()
        g = math.copysign(max(abs(g) - l1 / n, 0.0), g)
        d = h + lambda_ / n
        mu = g / d - cov / d**2 + g * vh / d**3
        mu = max(-max_step, min(max_step, mu))
        return mu, max(vg / d**2 + g**2 * vh / d**4 - 2 * g * cov / d**3, 0.0)


Trees = list[dict[int, Leaf]]


def replay(
    ids: np.ndarray,
    values: list[dict[int, float]],
    gradients: Any,
    parameter: float,
    y: Any,
    start: Any,
    *,
    weight: Any = None,
    folded: float = 0.0,
    single: bool = False,
    parallel: int = 1,
    weigh_rounded: bool = True,
    held: Any = f32,
    held_gradients: Any = f32,
) -> Trees:
    """Boost again, row by row: g and h at the margins so far, into the leaf that the booster says, then its step.

    `start` is the margin before tree 0 (one, or one per row), `folded` what tree 0 holds of it, `single` whether
    margins are float32 (XGBoost), `parallel` the trees that share an iteration's gradients. `held` rounds labels and
    weights, `held_gradients` g and h, as the booster does; `weigh_rounded` says that g and h are rounded before they
    are weighted, too.
    """
    rounded = f32 if single else float
    n = len(y)
    margin = [rounded(s) for s in np.broadcast_to(start, n)]
    w = [1.0] * n if weight is None else [held(v) for v in weight]
    label = [held(v) for v in y]
    trees: Trees = []
    for t, leaves in enumerate(values):
        tree = {k: Leaf(v - (folded if t == 0 else 0.0)) for k, v in leaves.items()}
        if t % parallel == 0:
            gh = [gradients(margin[i], label[i], parameter) for i in range(n)]
            gh = [(held_gradients(g), held_gradients(h)) for g, h in gh] if weigh_rounded else gh
            gh = [(held_gradients(g * wi), held_gradients(h * wi)) for (g, h), wi in zip(gh, w, strict=True)]
        for i in range(n):
            leaf = tree[int(ids[i, t])]
            leaf.g.append(gh[i][0])
            leaf.h.append(gh[i][1])
            leaf.w.append(w[i])
            margin[i] = rounded(margin[i] + leaf.value)
        trees.append(tree)
    return trees


def variance(ids: np.ndarray, trees: Trees, alpha: Any, lambda_: float, rho: float, l1: float = 0.0) -> np.ndarray:
    """Eq. 12, row by row in the order of the trees."""
    spread = [{k: leaf.weight(lambda_, l1)[1] for k, leaf in tree.items() if leaf.w} for tree in trees]
    rates = np.broadcast_to(alpha, len(trees))
    out = []
    for row in ids:
        total = 0.0
        for t, k in enumerate(row):
            v = spread[t][int(k)]
            total = total + rates[t] ** 2 * v - 2 * rates[t] * rho * math.sqrt(total) * math.sqrt(v)
        out.append(total)
    return np.array(out)


def lightgbm_leaf_values(booster: Any) -> list[dict[int, float]]:
    counts = [info["num_leaves"] for info in booster.dump_model()["tree_info"]]
    return [{k: booster.get_leaf_output(t, k) for k in range(n)} for t, n in enumerate(counts)]


def xgboost_leaf_values(booster: Any) -> list[dict[int, float]]:
    def leaves(node):
        if "leaf" in node:
            return {node["nodeid"]: f32(node["leaf"])}
        return {k: v for child in node["children"] for k, v in leaves(child).items()}

    return [leaves(json.loads(tree)) for tree in booster.get_dump(dump_format="json")]


def xgboost_base_score(booster: Any) -> float:
    text = json.loads(booster.save_config())["learner"]["learner_model_param"]["base_score"]
    return f32(text.strip("[]"))
