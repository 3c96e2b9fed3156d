"""A fuzz of the certificate: random models of both boosters, wrapped with their rows and with others.

    python -m tests.fuzz_certificate --models 2000 --seed 0
    python -m tests.fuzz_certificate --quick

True rows must be certified. Rows with one other label, one other weight, one row less or another objective must not be,
unless no sum of g or h over a leaf differs, or the certificate itself says that leaves prove nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import xgboost as xgb

from pgbm_plugin import ProbabilisticModel, wrap

# Names in LightGBM and XGBoost, and whether labels must be positive.
OBJECTIVES = {
    "squared": ("regression", "reg:squarederror", False),
    "huber": ("huber", "reg:pseudohubererror", False),
    "poisson": ("poisson", "count:poisson", True),
    "gamma": ("gamma", "reg:gamma", True),
    "tweedie": ("tweedie", "reg:tweedie", True),
}


@dataclass(frozen=True)
class Case:
    """A training, and what `wrap` is given."""

    name: str
    model: Any  # a live model or the path of a file
    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None
    objective: Any = None
    positive: bool = False

    def wrap(self) -> ProbabilisticModel:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return wrap(self.model, self.X, self.y, sample_weight=self.weight, objective=self.objective, n_jobs=1)


def logcosh(margin: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    t = np.tanh(np.asarray(margin, float) - y)
    return t, np.maximum(1.0 - t * t, 1e-3)


def squared(margin: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(margin, float) - y, np.ones(len(y))


def random_weight(rng: np.random.Generator, n: int) -> np.ndarray | None:
    kind = rng.integers(6)
    if kind < 2:
        return None
    if kind == 2:
        return rng.uniform(0.1, 3.0, n)
    if kind == 3:
        return rng.integers(1, 4, n).astype(float)
    weight = rng.gamma(0.5, 2.0, n) if kind == 4 else rng.integers(0, 3, n).astype(float)
    return np.where(np.arange(n) < 5, 1.0, weight)


def random_case(rng: np.random.Generator, folder: Path) -> Case:
    n, features = int(rng.integers(30, 600)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, features))
    if rng.random() < 0.3:
        X = np.round(X)  # ties
    if rng.random() < 0.3:
        X[rng.random(X.shape) < 0.1] = np.nan
    name = "custom" if rng.random() < 0.1 else str(rng.choice(list(OBJECTIVES)))
    light, other, positive = OBJECTIVES.get(name, ("custom", "custom", False))
    signal = np.nan_to_num(X[:, 0]) * rng.uniform(0.1, 1.0)
    y = (
        rng.gamma(2.0, np.exp(signal) / 2.0) + 0.01
        if positive
        else 10.0 * signal + rng.normal(size=n) * rng.uniform(0.5, 5)
    )
    if name == "poisson":
        y = np.round(y * 3.0)
        y[0] = 1.0  # LightGBM does not start from log(0)
    weight = None if name == "custom" else random_weight(rng, n)
    eta, rounds = float(rng.choice([0.03, 0.1, 0.3, 1.0])), int(rng.integers(1, 13))
    lambda_, l1 = float(rng.choice([0.0, 0.1, 1.0, 10.0])), float(rng.choice([0.0, 0.0, 0.0, 0.5]))
    clip = float(rng.choice([0.0, 0.0, 0.0, 0.0, 1.0]))
    common = {"learning_rate": eta, "reg_lambda": lambda_, "reg_alpha": l1, "max_delta_step": clip, "seed": 0}
    if rng.random() < 0.5:
        params = {**common, "num_leaves": int(rng.integers(2, 20)), "min_data_in_leaf": int(rng.integers(1, 20))}
        params |= {"verbose": -1, "num_threads": 1, "min_sum_hessian_in_leaf": 0.0, "objective": light}
        params |= {"boost_from_average": bool(rng.random() < 0.8), "min_data_in_bin": 1, "feature_pre_filter": False}
        if name == "custom":
            params["objective"] = lambda margin, data: logcosh(margin, data.get_label())
        data = lgb.Dataset(X, y, weight=weight)
        model: Any = lgb.train(params, data, rounds)
        kind, path = "lightgbm", folder / "model.txt"
    else:
        params = {**common, "max_depth": int(rng.integers(1, 6)), "nthread": 1, "min_child_weight": 0.0}
        params |= {"tree_method": str(rng.choice(["hist", "exact", "approx"]))}
        params |= {"num_parallel_tree": int(rng.choice([1, 1, 1, 3]))}
        custom = (lambda margin, data: logcosh(margin, data.get_label())) if name == "custom" else None
        if custom is None:
            params["objective"] = other
        if name == "huber":
            # without regularisation its steps diverge, to margins that float32 does not hold
            params |= {"base_score": float(np.median(y)), "huber_slope": 2.0, "reg_lambda": max(lambda_, 1.0)}
        model = xgb.train(params, xgb.DMatrix(X, y, weight=weight), rounds, obj=custom)
        kind, path = "xgboost", folder / "model.ubj"
    if rng.random() < 0.3:
        model.save_model(path)
        model, kind = path, f"{kind} file"
    return Case(f"{kind} {name}", model, X, y, weight, logcosh if name == "custom" else None, positive)


def perturbed(case: Case, rng: np.random.Generator) -> list[tuple[str, Case]]:
    n = len(case.y)
    i = int(rng.integers(n))
    y = case.y.copy()
    y[i] += rng.uniform(0.5, 3.0) * (case.y.std() + 0.1) * (1.0 if case.positive else rng.choice([-1.0, 1.0]))
    kept = np.arange(n) != i
    weight = None if case.weight is None else case.weight[kept]
    cases = [
        ("one label", replace(case, y=y)),
        ("one row less", replace(case, X=case.X[kept], y=case.y[kept], weight=weight)),
    ]
    if case.objective is not None:
        cases.append(("objective", replace(case, objective=squared)))
    else:
        changed = np.ones(n) if case.weight is None else case.weight.copy()
        changed[i] = 1.7 * changed[i] + 0.3
        cases.append(("one weight", replace(case, weight=changed)))
        if case.weight is not None:
            cases.append(("no weights", replace(case, weight=None)))
    return cases


def same_sums(a: ProbabilisticModel, b: ProbabilisticModel) -> bool:
    """Tell whether no sum over a leaf differs by more than the certificate's tolerance."""
    tolerance, one, other = 10.0 * a.certificate.tolerance, a.moments, b.moments
    g = np.sqrt(one.mass * one.gg + one.g_sum**2)
    h = np.sqrt(one.mass * one.hh + one.h_sum**2)
    return bool(
        np.all(np.abs(one.g_sum - other.g_sum) <= tolerance * np.maximum(g, 1e-300))
        and np.all(np.abs(one.h_sum - other.h_sum) <= tolerance * np.maximum(h, 1e-300))
    )


def fuzz(models: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Return how often each outcome was seen, and the faults."""
    seen: Counter[str] = Counter()
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(models):
            rng = np.random.default_rng([seed, number])
            try:
                case = random_case(rng, Path(folder))
            except lgb.basic.LightGBMError:  # a check of its own that failed
                seen["LightGBM did not train"] += 1
                continue
            try:
                true = case.wrap()
            except ValueError as error:
                if "not finite" not in str(error):
                    raise
                seen["true rows: refused, because training diverged"] += 1
                continue
            certificate = true.certificate
            seen[f"true rows: {certificate.status}"] += 1
            unproven = "prove nothing" in certificate.sentence
            undetermined = "file" in case.name and "learning rate" in certificate.sentence
            if certificate.status != "certified" and not (unproven or undetermined):
                faults.append(f"false alarm: model {number}, {case.name}: {certificate}")
            for what, wrong in perturbed(case, rng):
                try:
                    found = wrong.wrap()
                except ValueError:  # labels outside the objective's domain, weights that are all 0
                    continue
                if found.certificate.status != "certified":
                    seen[f"{what}: seen"] += 1
                elif same_sums(true, found):
                    seen[f"{what}: no sum differs"] += 1
                elif "prove nothing" in found.certificate.sentence:
                    seen[f"{what}: in leaves that prove nothing, and the sentence says so"] += 1
                else:
                    faults.append(f"false certificate: model {number}, {case.name}, {what}: {found.certificate}")
    return seen, faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="60 models")
    arguments = parser.parse_args()
    seen, faults = fuzz(60 if arguments.quick else arguments.models, arguments.seed)
    for outcome, count in sorted(seen.items()):
        print(f"{count:6d}  {outcome}")
    print(*faults, sep="\n")
    raise SystemExit(f"{len(faults)} faults" if faults else 0)


if __name__ == "__main__":
    main()
