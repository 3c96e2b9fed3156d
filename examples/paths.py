"""Forecast paths: many steps ahead from one wrapped model, and totals over series and days that hold their coverage.

pip install mlforecast
python examples/paths.py [--quick]

A model of one day ahead, which mlforecast trains, forecasts two weeks: every day is predicted from the days before it,
the forecast ones included. A path draws each day from the model's distribution, and goes on from the drawn number. So
what the model does not know grows from day to day, and the days of a path belong together. The example compares four
ways, on many origins:

* one step: the path of point predictions, with the spread of one day ahead on every day;
* marginals: the days of paths, but added up as if they were independent;
* paths: sums along paths, each series on its own;
* joint paths: the series of a path share a day's surprise, as `correlate` has measured it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor
from mlforecast import MLForecast

from pgbm_plugin import ProbabilisticModel, wrap
from pgbm_plugin.scores import coverage, crps_ensemble

HORIZON, LAGS, COVERAGE = 14, (1, 7), 0.9
STAYS, SHARED = 0.8, 0.25  # of a deviation from one day to the next; of a surprise's variance, among all series
SETTINGS = {
    "n_estimators": 150,
    "learning_rate": 0.1,
    "num_leaves": 15,
    "min_child_samples": 50,
    "n_jobs": 1,
    "verbose": -1,
}


def make_series(count: int, days: int, rng: np.random.Generator) -> pd.DataFrame:
    """Simulate series with a weekly pattern, deviations that last for days, and more noise at weekends."""
    day = np.arange(days)
    usual = 50 + 10 * np.sin(2 * np.pi * (day % 7) / 7)
    noise = np.where(day % 7 >= 5, 6.0, 3.0)
    surprise = math.sqrt(SHARED) * rng.normal(size=days) + math.sqrt(1 - SHARED) * rng.normal(size=(count, days))
    deviation = np.zeros((count, days))
    for today in range(1, days):
        deviation[:, today] = STAYS * deviation[:, today - 1] + noise[today] * surprise[:, today]
    return pd.DataFrame(
        {
            "unique_id": np.repeat(np.arange(count), days),
            "ds": np.tile(day, count),
            "y": (usual + deviation).ravel(),
        }
    )


def weekday(day: pd.Index) -> pd.Index:
    return day % 7


def fit(known: pd.DataFrame) -> tuple[MLForecast, ProbabilisticModel]:
    """Train on the first three quarters of the days; tune and correlate on the rest, one day ahead."""
    forecaster = MLForecast({"one day": LGBMRegressor(**SETTINGS)}, freq=1, lags=LAGS, date_features=[weekday])
    rows = forecaster.preprocess(known, static_features=[])
    early = rows["ds"] < known["ds"].max() * 3 // 4
    X, y = rows.drop(columns=["unique_id", "ds", "y"]), rows["y"]
    forecaster.fit_models(X[early], y[early])
    model = wrap(forecaster.models_["one day"], X[early], y[early])
    model.tune(X[~early], y[~early], distributions="normal")
    model.correlate(X[~early], y[~early], {"day": rows["ds"][~early]})
    forecaster.models_["one day"] = model  # predicts the same bits, and faster
    return forecaster, model


class Rows:
    """Keep the rows that mlforecast is about to predict, for the second callback."""

    def __init__(self) -> None:
        self.steps: list[pd.DataFrame] = []

    def before(self, X: pd.DataFrame) -> pd.DataFrame:
        self.steps.append(X)
        return X


def sample_paths(
    forecaster: MLForecast, model: ProbabilisticModel, past: pd.DataFrame, paths: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Yield (series, HORIZON, paths) samples: first of series that are independent, then of those that share days.

    Every pair of a path and a series is a series to mlforecast, so that one call predicts a day of all paths.
    """
    count = past["unique_id"].nunique()
    copies = pd.concat([past.assign(unique_id=past["unique_id"] + count * path) for path in range(paths)])
    path = np.repeat(np.arange(paths), count)  # of each row of a step

    def alone(X: pd.DataFrame) -> np.ndarray:
        return model.predict_dist(X).rvs(random_state=rng)

    def together(X: pd.DataFrame) -> np.ndarray:
        return model.sample(X, levels={"day": path}, random_state=rng)

    for draw in (alone, together):
        rows = Rows()
        forecast = forecaster.predict(
            HORIZON,
            new_df=copies,
            before_predict_callback=rows.before,
            after_predict_callback=lambda _, draw=draw, rows=rows: draw(rows.steps.pop()),
        )
        yield forecast["one day"].to_numpy().reshape(paths, count, HORIZON).transpose(1, 2, 0)


def sample_one_step(
    forecaster: MLForecast, model: ProbabilisticModel, past: pd.DataFrame, paths: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw (series, HORIZON, paths) samples around the path of point predictions, with the spread of one day ahead."""
    rows = Rows()
    forecaster.predict(HORIZON, new_df=past, before_predict_callback=rows.before)
    return np.stack([model.predict_dist(X).rvs(paths, random_state=rng) for X in rows.steps], axis=1)


def score(outcome: np.ndarray, samples: np.ndarray) -> tuple[float, float]:
    """Return how many 90 % intervals of (n, paths) samples contain their outcomes, and the mean CRPS."""
    tails = [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2]
    return coverage(outcome, np.quantile(samples, tails, axis=1).T), crps_ensemble(outcome, samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer series, paths and origins")
    count, known, origins, paths = (8, 400, 4, 60) if parser.parse_args().quick else (20, 1200, 60, 400)
    rng = np.random.default_rng(0)
    series = make_series(count, known + origins * HORIZON, rng)
    forecaster, model = fit(series[series["ds"] < known])
    print(model.chosen.correlation)

    outcomes, samples = [], {name: [] for name in ("one step", "marginals", "paths", "joint paths")}
    for start in range(known, known + origins * HORIZON, HORIZON):
        past = series[(series["ds"] < start) & (series["ds"] >= start - max(LAGS) - 1)]
        future = series[(series["ds"] >= start) & (series["ds"] < start + HORIZON)]
        outcomes.append(future["y"].to_numpy().reshape(count, HORIZON))
        alone, together = sample_paths(forecaster, model, past, paths, rng)
        samples["one step"].append(sample_one_step(forecaster, model, past, paths, rng))
        samples["marginals"].append(rng.permuted(alone, axis=2))
        samples["paths"].append(alone)
        samples["joint paths"].append(together)

    print(f"\ncoverage of 90 % intervals, and the CRPS of totals, over {origins} origins of {count} series")
    print(f"{'':12} {'day 1':>7} {f'day {HORIZON}':>7} {'two weeks of a series':>24} {'two weeks of all':>20}")
    y = np.stack(outcomes)  # (origins, series, HORIZON)
    for name, parts in samples.items():
        drawn = np.stack(parts)  # (origins, series, HORIZON, paths)
        days = [score(y[:, :, day].ravel(), drawn[:, :, day].reshape(-1, paths))[0] for day in (0, HORIZON - 1)]
        one = score(y.sum(axis=2).ravel(), drawn.sum(axis=2).reshape(-1, paths))
        every = score(y.sum(axis=(1, 2)), drawn.sum(axis=(1, 2)))
        print(
            f"{name:12} {days[0]:7.1%} {days[1]:7.1%} {one[0]:16.1%} ({one[1]:5.1f}) {every[0]:12.1%} ({every[1]:5.0f})"
        )


if __name__ == "__main__":
    main()
