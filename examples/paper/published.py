"""The paper's own figures, as printed in its tables 2 to 5 and 7."""

from __future__ import annotations

from benchmarks.accuracy.sets import SETS

_CRPS = """0.22 0.070 0.32 0.104
1.61 0.201 1.73 0.236
0.21 0.034 0.25 0.022
2.06 0.335 2.95 0.326
0.33 0.034 0.34 0.024
0.07 0.002 0.10 0.002
1.81 0.053 2.01 0.120
0.00 0.000 0.00 0.000
2.19 0.030 2.44 0.038"""
_RMSE = """0.63 0.213 0.75 0.297 0.64 0.281
3.05 0.507 3.31 0.661 3.11 0.675
0.35 0.062 0.49 0.055 0.29 0.075
3.97 0.759 5.50 0.642 3.80 0.762
0.60 0.054 0.62 0.043 0.60 0.050
0.13 0.005 0.17 0.003 0.11 0.003
3.35 0.153 3.70 0.222 3.20 0.140
0.00 0.000 0.00 0.000 0.00 0.000
3.98 0.056 4.50 0.059 3.82 0.058"""
_METHODS = ("PGBM", "NGBoost", "LightGBM")


def _pairs(line: str) -> dict[str, tuple[float, float]]:
    values = [float(text) for text in line.split()]
    return dict(zip(_METHODS, zip(values[::2], values[1::2], strict=True), strict=False))


TABLE_5 = {
    name: {"crps": _pairs(crps), "rmse": _pairs(rmse)}
    for name, crps, rmse in zip(SETS, _CRPS.splitlines(), _RMSE.splitlines(), strict=True)
}
"""set -> metric -> method -> mean and sd over 20 splits."""

_TABLE_2 = """0.37 0.37 0.37 0.37 0.44 0.38 0.37 0.75 9.7 0.18 0.19
1.41 1.4 1.39 1.39 1.4 1.42 1.39 1.58 12.27 2.08 2.06
0.62 0.61 0.62 0.61 0.62 0.62 0.63 1.25 16.15 0.64 0.64
2.21 2.21 2.21 2.19 2.23 2.26 2.22 2.38 3.59 2.69 2.64
0.32 0.33 0.32 0.32 0.32 0.32 0.32 0.59 0.64 0.35 0.34
0.08 0.08 0.08 0.08 1.04 0.08 0.08 0.26 0.26 0.08 0.08
1.86 1.86 1.86 1.86 1.86 1.87 1.88 5.22 454.34 1.81 1.80
0.00 0.00 0.00 0.00 0.02 0.00 0.00 0.22 0.22 0.00 0.00
2.18 2.18 2.18 2.18 45.3 2.17 2.54 2.15 2.15 2.14 2.12"""
FAMILIES = (
    "normal",
    "studentt",
    "logistic",
    "laplace",
    "lognormal",
    "gumbel",
    "weibull",
    "poisson",
    "negativebinomial",
)
"""In the order of the paper's table 2; Student's t has three degrees of freedom there."""
TABLE_2 = {
    name: dict(zip((*FAMILIES, "base", "optimal"), map(float, line.split()), strict=True))
    for name, line in zip(SETS, _TABLE_2.splitlines(), strict=True)
}
"""set -> least validation CRPS by family, and test CRPS of the base case and of the optimum; one split."""

TABLE_7 = {
    "wine-red": {"PGBM-gpu": 100, "PGBM-cpu": 41, "NGBoost": 20, "LightGBM": 1},
    "naval": {"PGBM-gpu": 103, "PGBM-cpu": 167, "NGBoost": 108, "LightGBM": 2},
    "protein": {"PGBM-gpu": 115, "PGBM-cpu": 355, "NGBoost": 389, "LightGBM": 2},
    "msd": {"PGBM-gpu": 136, "PGBM-cpu": 3645, "NGBoost": 6628, "LightGBM": 12},
    "higgs": {"PGBM-gpu": 316, "PGBM-cpu": 32200, "NGBoost": 46744, "LightGBM": 135},
}
"""set -> method -> seconds of 2,000 iterations on six cores, or on a GPU."""

_TABLE_4 = """2.00 2.00 2.00 2.01 0.77 0.93 0.78
67.9 67.6 70.0 77.4 72.6 40.4 82.0
108 101 111 129 160 59 184
213 190 225 276 472 136 560"""
_MODELS = ("PGBM, MSE", "PGBM, wMSE", "LightGBM, MSE", "NGBoost, MSE")
TABLE_4 = {
    level: {
        "rmse": dict(zip(_MODELS, line[:4], strict=True)),
        "crps": dict(zip(_MODELS[:2] + _MODELS[3:], line[4:], strict=True)),
    }
    for level, line in zip(
        ("item", "department", "category", "total"),
        ([float(text) for text in line.split()] for line in _TABLE_4.splitlines()),
        strict=True,
    )
}
"""level -> metric -> model -> value; samples are clamped at 0 for the CRPS.

The paper prints its row of n = 196 = 28 days x 7 departments as "Category", and that of n = 84 = 28 x 3 categories as
"Department": the names are put right here.
"""
