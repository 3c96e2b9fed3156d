"""Four ways to keep intervals honest while time goes on: none, rolling, observed labels, updated moments.

python examples/drift.py [--quick] [--data DIR] [--batch 24] [--window 1000] [--step 0.02]

A model is trained on the past, tuned and conformalized on later rows, and then predicts batch after batch, whose labels
arrive before the next batch. Without DIR, the data are made up: the noise triples and falls again, or grows. With DIR,
they are hourly rentals of bikes, UCI's Bike Sharing and Seoul Bike Sharing Demand, in the order of time
(DIR/more/bike.parquet and seoul.parquet, label "target").
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import lightgbm as lgb
import numpy as np

from pgbm_plugin import ProbabilisticModel, wrap
from pgbm_plugin.scores import coverage, interval_score

COVERAGE, PARTS = 0.9, (0.4, 0.5, 0.6)  # rows up to here train, tune and calibrate


class Series(NamedTuple):
    """Rows in the order of time."""

    X: Any
    y: np.ndarray

    def part(self, start: int, stop: int | None = None) -> Series:
        return Series(self.X[start:stop], self.y[start:stop])


def noisy(noise: np.ndarray) -> Series:
    """Simulate rows with a smooth mean, and noise that also depends on the third feature."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(len(noise), 5))
    mean = np.sin(2 * X[:, 0]) + X[:, 1]
    return Series(X, mean + noise * np.exp(0.3 * X[:, 2]) * rng.normal(size=len(noise)))


def made_up(n: int) -> Iterator[tuple[str, Series]]:
    """Yield a series whose noise jumps, and one whose noise grows."""
    time = np.arange(n) / n
    yield "made up: noise triples at 70 %, falls at 85 %", noisy(np.where((time > 0.7) & (time < 0.85), 1.5, 0.5))
    yield "made up: noise triples from 60 % to 100 %", noisy(0.5 * 3 ** np.maximum(0, (time - 0.6) / 0.4))


def from_folder(folder: Path) -> Iterator[tuple[str, Series]]:
    """Yield two series of hourly rentals."""
    import pandas as pd

    for name in ("bike", "seoul"):
        table = pd.read_parquet(folder / "more" / f"{name}.parquet")
        yield name, Series(table.drop(columns="target"), table["target"].to_numpy(float))


def train(rows: Series, until: list[int]) -> ProbabilisticModel:
    """Return a tuned model; training stops early on the rows that `tune` gets."""
    fit, val = rows.part(0, until[0]), rows.part(*until[:2])
    params = {"learning_rate": 0.05, "num_leaves": 31, "num_threads": 1, "verbose": -1}
    dataset = lgb.Dataset(*fit)
    stop = lgb.early_stopping(30, verbose=False)
    booster = lgb.train(params, dataset, 400, [lgb.Dataset(*val, reference=dataset)], callbacks=[stop])
    model = wrap(booster, *fit, variance="auto")
    model.tune(*val)
    return model


Arrive = Callable[[Series, Series], Any]
"""Called with the rows whose labels have just arrived, and with those of the window."""


def compare(rows: Series, batch: int, window: int, step: float) -> None:
    """Print cover, the worst tenth of time, and the interval score over that of the static model."""
    until = [int(share * len(rows.y)) for share in PARTS]
    tuned, calibration, start = train(rows, until), rows.part(*until[1:]), until[2]
    decay = 0.5 ** (batch / window)  # rows count half as much after a window

    def fresh(conformal: bool = True) -> ProbabilisticModel:
        model = ProbabilisticModel(tuned.state)
        return model.conformalize(*calibration) if conformal else model

    def intervals(model: ProbabilisticModel, arrive: Arrive) -> np.ndarray:
        ends = []
        for first in range(start, len(rows.y), batch):
            last = min(first + batch, len(rows.y))
            new = rows.part(first, last)
            ends.append(model.predict_interval(new.X, COVERAGE))
            arrive(new, rows.part(max(last - window, until[1]), last))
        return np.concatenate(ends)

    static, rolling, adaptive, updated, both = fresh(), fresh(), fresh(), fresh(False), fresh()
    ways: list[tuple[str, ProbabilisticModel, Arrive]] = [
        ("static: conformalize once", static, lambda new, recent: None),
        (f"conformalize the last {window}", rolling, lambda new, recent: rolling.conformalize(*recent)),
        ("observe", adaptive, lambda new, recent: adaptive.observe(*new, window=window, step=step)),
        (f"update(decay={decay:.3f})", updated, lambda new, recent: updated.update(*new, decay=decay)),
        (
            "observe and update",
            both,
            lambda new, recent: both.observe(*new, window=window, step=step).update(*new, decay=decay),
        ),
    ]
    print(f"{'':26} {'cover':>6} {'worst tenth':>12} {'interval score / static':>24}")
    y, unit = rows.y[start:], 0.0
    for name, model, arrive in ways:
        ends = intervals(model, arrive)
        score = interval_score(y, ends, COVERAGE)
        unit = unit or score
        worst = min(coverage(*part) for part in zip(np.array_split(y, 10), np.array_split(ends, 10), strict=True))
        print(f"{name:26} {coverage(y, ends):6.3f} {worst:12.2f} {score / unit:24.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer made-up rows, in larger batches")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with more/bike.parquet and more/seoul.parquet")
    parser.add_argument("--batch", type=int, help="rows whose labels arrive together (24)")
    parser.add_argument("--window", type=int, default=1000, help="rows of the past that count (1000)")
    parser.add_argument("--step", type=float, default=0.02, help="step of observe (0.02)")
    options = parser.parse_args()
    batch = options.batch or (100 if options.quick else 24)
    series = from_folder(options.data) if options.data else made_up(4_000 if options.quick else 20_000)
    # what is compared here is a model that gets older, whose predictions are off in some weeks
    warnings.filterwarnings("ignore", "the .* outcomes that conformalize got differ from the predictions")
    for name, rows in series:
        print(f"\n{name}: {len(rows.y):,} rows, batches of {batch}")
        compare(rows, batch, options.window, options.step)


if __name__ == "__main__":
    main()
