"""Draw the pictures of the documentation, each from a model that is trained here.

python docs/pictures.py [FOLDER]

Most pictures are about simulated hourly bike rentals, whose mean and noise depend on rush hours, weekends and rain.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import lightgbm as lgb
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pgbm_plugin import ProbabilisticModel, wrap
from pgbm_plugin.scores import coverage

Array = NDArray[np.float64]

# These colours are legible on white and on black: pictures are transparent, and pages have either background.
INK, BLUE, ORANGE, GREEN = "#7d8590", "#3f83f8", "#ef7d32", "#2da44e"
STYLE = {
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "savefig.transparent": True,
    "svg.hashsalt": "pgbm_plugin",  # makes the bytes of a picture the same every time
    **{f"{part}.color": INK for part in ("text", "xtick", "ytick")},
    **{f"axes.{part}color": INK for part in ("edge", "label", "title")},
}
FEATURES = ["hour", "weekday", "temperature", "rain"]
WEEK = 7 * 24  # hours


@dataclass(frozen=True)
class Rentals:
    """Bike rentals in n hours.

    Attributes
    ----------
    X : array of shape (n, 4)
        The columns of `FEATURES`.
    y : array of shape (n,)
        Rentals in each hour.
    """

    X: Array
    y: Array

    @classmethod
    def simulate(cls, weeks: int, seed: int) -> Rentals:
        rng = np.random.default_rng(seed)
        n = WEEK * weeks
        hour, weekday = np.arange(n) % 24, np.arange(n) // 24 % 7
        temperature = 12 - 9 * np.cos(2 * np.pi * np.arange(n) / (52 * WEEK)) + 4 * np.sin(2 * np.pi * (hour - 9) / 24)
        temperature += np.repeat(rng.normal(0, 3, n // 24), 24)
        rain = np.repeat(rng.random(n // 6) < 0.15, 6)
        rush = _bell(hour, 8, 1.3) + 1.2 * _bell(hour, 17.5, 1.8)
        leisure = 1.1 * _bell(hour, 14, 3.5)
        weekend = weekday >= 5
        mean = (15 + 330 * np.where(weekend, leisure, rush + 0.35 * leisure)) * (0.6 + 0.035 * temperature.clip(0, 25))
        mean *= np.where(rain, 0.55, 1.0)
        spread = np.where(weekend, 0.28, 0.13) + 0.2 * rain
        y = rng.gamma(spread**-2, mean * spread**2)
        return cls(np.column_stack([hour, weekday, temperature, rain]).astype(float), y)

    def week(self, number: int) -> Rentals:
        at = slice(WEEK * number, WEEK * (number + 1))
        return Rentals(self.X[at], self.y[at])

    def sample(self, n: int) -> Rentals:
        """Draw n random hours."""
        at = np.random.default_rng(0).choice(len(self.y), n, replace=False)
        return Rentals(self.X[at], self.y[at])


def _bell(x: Array, at: float, width: float) -> Array:
    return np.exp(-0.5 * ((x - at) / width) ** 2)


def train_booster(rows: Rentals, trees: int = 60) -> lgb.Booster:
    params = {"num_leaves": 63, "num_threads": 1, "verbose": -1}
    return lgb.train(params, lgb.Dataset(rows.X, rows.y, feature_name=FEATURES), trees)


def fan(model: ProbabilisticModel, week: Rentals) -> Figure:
    """Draw the quantiles of a week that the model has not seen."""
    figure, axes = plt.subplots(figsize=(8.4, 2.9))
    hours = np.arange(WEEK) / 24
    low, lower, median, upper, high = model.predict_quantiles(week.X, [0.05, 0.25, 0.5, 0.75, 0.95]).T
    axes.fill_between(hours, low, high, color=BLUE, alpha=0.22, lw=0, label="5 to 95 %")
    axes.fill_between(hours, lower, upper, color=BLUE, alpha=0.38, lw=0, label="25 to 75 %")
    axes.plot(hours, median, color=BLUE, lw=1.2, label="median")
    axes.plot(hours, week.y, ".", color=ORANGE, ms=4, label="what happened")
    axes.set(xlim=(0, 7), ylim=(0, None), ylabel="rentals an hour")
    axes.set_xticks(np.arange(7) + 0.5, ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"])
    axes.tick_params(axis="x", length=0)
    for day in range(1, 7):
        axes.axvline(day, color=INK, lw=0.5, alpha=0.4)
    axes.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.17))
    return figure


def leaves() -> Figure:
    """Draw mean and standard deviation over one feature: of one tree, and of a hundred trees."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 10, 300))
    y = 3 * np.sin(0.7 * x) + (0.2 + 0.13 * x) * rng.normal(size=len(x))
    figure, panels = plt.subplots(1, 2, figsize=(8.4, 2.9), sharey=True)
    X, shape = x[:, None], {"num_leaves": 6, "num_threads": 1, "verbose": -1}
    for axes, rate, trees in zip(panels, (1.0, 0.1), (1, 100), strict=True):
        booster = lgb.train({**shape, "learning_rate": rate}, lgb.Dataset(X, y), trees)
        mean, std = wrap(booster, X, y).predict(X, return_std=True)
        axes.plot(x, y, ".", color=ORANGE, ms=2.5, alpha=0.8, rasterized=True)
        axes.fill_between(x, mean - std, mean + std, color=BLUE, alpha=0.3, lw=0, label="one standard deviation")
        axes.plot(x, mean, color=BLUE, lw=1.4, label="mean")
        axes.set(xlabel="the feature")
    panels[0].set(ylabel="y", title="one tree: a mean and a spread in each leaf")
    panels[1].set(title="a hundred trees: they add up")
    panels[0].legend(loc="lower left")
    return figure


def recursion(booster: lgb.Booster, model: ProbabilisticModel, rows: Rentals) -> Figure:
    """Draw the standard deviation after each tree (paper eq. 12)."""
    figure, panels = plt.subplots(1, 2, figsize=(8.4, 2.7), sharey=True)
    std = model.predict_dist(rows.X, "normal").std()
    quiet, noisy = (int(np.argsort(std)[int(share * len(std))]) for share in (0.3, 0.95))
    for row, name, colour in ((quiet, "a quiet hour", GREEN), (noisy, "a busy hour", BLUE)):
        panels[0].plot(_std_by_tree(booster, model, rows.X[row], model.default_rho), color=colour, label=name)
    for rho, style in ((0.0, ":"), (0.02, "--"), (model.default_rho, "-"), (0.1, "-.")):
        curve = _std_by_tree(booster, model, rows.X[noisy], rho)
        panels[1].plot(curve, style, color=BLUE, label=f"rho = {rho:.2g}")
    panels[0].set(xlabel="trees", ylabel="standard deviation", title=f"two rows, rho = {model.default_rho:.2g}")
    panels[1].set(xlabel="trees", title="the busy hour under other correlations")
    for axes in panels:
        axes.set(ylim=(0, None))
        axes.legend()
    return figure


def _std_by_tree(booster: lgb.Booster, model: ProbabilisticModel, row: Array, rho: float) -> Array:
    """Return the (T + 1,) standard deviations before the first tree and after each tree."""
    start, label = model.forest.leaf_start, model.forest.leaf_label
    reached = booster.predict(row[None], pred_leaf=True)[0]
    std = [0.0]
    for t, leaf in enumerate(reached):
        sd = model.weights.sd[start[t] : start[t + 1]][label[start[t] : start[t + 1]] == leaf][0]
        std.append(np.sqrt(std[-1] ** 2 + sd**2 - 2 * rho * std[-1] * sd))
    return np.array(std)


def correlation(model: ProbabilisticModel, held_out: Rentals) -> Figure:
    """Draw the continuous ranked probability score (CRPS) over rho, without and with the power map."""
    figure, axes = plt.subplots(figsize=(5.2, 2.9))
    rho = np.linspace(-0.06, 0.1, 33)
    for calibrate, colour, name in ((False, ORANGE, "without the power map"), (True, BLUE, "with the power map")):
        result = model.tune(held_out.X, held_out.y, distributions="normal", rho=rho, calibrate=calibrate)
        axes.plot(rho, result.scores[0], color=colour, label=name)
    axes.axhline(result.constant.score, color=INK, ls=":", label="one spread for all rows")
    axes.axvline(model.default_rho, color=INK, lw=0.7)
    axes.annotate("default", (model.default_rho, axes.get_ylim()[0]), (3, 30), textcoords="offset points")
    axes.set(xlabel="rho", ylabel="mean CRPS on held-out rows")
    axes.legend()
    return figure


def calibration() -> Figure:
    """Draw coverage and probability integral transforms (PIT) of an over-fitted model, before and after tuning."""
    X, y = _sines(12_000)
    booster = lgb.train({"num_leaves": 15, "num_threads": 1, "verbose": -1}, lgb.Dataset(X[:800], y[:800]), 200)
    model = wrap(booster, X[:800], y[:800])
    levels, bins = np.linspace(0.02, 0.98, 25), np.linspace(0, 1, 21)
    figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.1))
    panels[0].plot([0, 1], [0, 1], color=INK, lw=0.8, ls=":")

    def draw(name: str, colour: str) -> None:
        d = model.predict_dist(X[3_000:])
        covered = [coverage(y[3_000:], d.interval(level)) for level in levels]
        panels[0].plot(levels, covered, color=colour, label=name)
        panels[1].hist(d.pit(y[3_000:]), bins, density=True, histtype="step", color=colour, lw=1.4)

    draw("untuned", ORANGE)
    model.tune(X[800:1_400], y[800:1_400])
    draw("tuned", GREEN)
    model.conformalize(X[1_400:3_000], y[1_400:3_000])
    draw("conformal", BLUE)
    panels[0].set(xlabel="coverage that intervals promise", ylabel="share of new outcomes inside", title="intervals")
    panels[1].set(xlabel="probability integral transform (PIT)", ylabel="density of rows")
    panels[1].set(title="PIT: flat if the distributions are right")
    panels[1].axhline(1, color=INK, lw=0.8, ls=":")
    panels[0].legend()
    return figure


def _sines(n: int) -> tuple[Array, Array]:
    """Simulate n rows of five features, one of which sets the size of the noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 5))
    return X, 5 * np.sin(2 * X[:, 0]) + 2 * X[:, 2] * X[:, 3] + np.exp(0.7 * X[:, 1]) * rng.normal(size=n)


def contributions(booster: lgb.Booster, model: ProbabilisticModel, rows: Rentals) -> Figure:
    """Draw how much each feature moves the mean, and how much the variance."""
    figure, panels = plt.subplots(1, 2, figsize=(8.4, 2.1), sharey=True)
    mean_parts, variance_parts = booster.predict(rows.X, pred_contrib=True), model.explain_variance(rows.X)
    for axes, parts, colour, title in (
        (panels[0], mean_parts, ORANGE, "pred_contrib: the mean"),
        (panels[1], variance_parts, BLUE, "explain_variance: the variance"),
    ):
        size = np.abs(parts[:, :-1]).mean(axis=0)
        axes.barh(FEATURES, size / size.sum(), color=colour, height=0.6)
        axes.set(title=title, xlabel="share of the mean absolute contribution")
    panels[0].invert_yaxis()
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write the figure as SVG, with coordinates rounded to 0.01 points, which halves its size."""
    text = StringIO()
    figure.savefig(text, format="svg", dpi=200, metadata={"Date": None})
    path.write_text(
        re.sub(r"(?<=[ \"])-?\d+\.\d{3,}(?=[ \"\n])", lambda match: f"{float(match[0]):.2f}", text.getvalue())
    )


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "assets"
    train, held_out, test = (Rentals.simulate(weeks, seed) for seed, weeks in enumerate((104, 52, 52)))
    booster = train_booster(train)
    model = wrap(booster, train.X, train.y)
    pictures = {
        "leaves": leaves(),
        "recursion": recursion(booster, model, test),
        "rho": correlation(model, held_out),
        "calibration": calibration(),
    }
    model.tune(held_out.X, held_out.y)
    pictures["contributions"] = contributions(booster, model, test.sample(500))
    pictures["fan"] = fan(model, test.week(20))
    for name, figure in pictures.items():
        save(figure, folder / f"{name}.svg")
    covered = coverage(test.y, model.predict_interval(test.X, coverage=0.9))
    print(f"90 % intervals, as in the picture `fan`, hold {covered:.1%} of the hours of a new year")


if __name__ == "__main__":
    with plt.rc_context(STYLE):
        main()
