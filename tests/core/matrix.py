"""Objectives of the boosters with their slow derivatives, and the kinds of data to train on."""

from __future__ import annotations

from tests import naive

# name: the booster's own parameters, the naive derivatives and their parameter, the link
LIGHTGBM = {
    "regression": ({}, naive.squared, 0.0, "identity"),
    "reg_sqrt": ({"objective": "regression", "reg_sqrt": True}, naive.squared, 0.0, "sqrt"),
    "huber": ({"alpha": 0.6}, naive.huber, 0.6, "identity"),
    "fair": ({"fair_c": 0.8}, naive.fair, 0.8, "identity"),
    "poisson": ({"poisson_max_delta_step": 0.5}, naive.poisson, 0.5, "log"),
    "gamma": ({}, naive.gamma, 0.0, "log"),
    "tweedie": ({"tweedie_variance_power": 1.3}, naive.tweedie, 1.3, "log"),
    "regression_l1": ({}, naive.squared, 0.0, "identity"),
    "mape": ({}, naive.squared, 0.0, "identity"),
}
XGBOOST = {
    "reg:squarederror": ({}, naive.squared, 0.0, "identity"),
    # the estimated base_score of this one is a Newton step from 0, from which training diverges
    "reg:pseudohubererror": ({"huber_slope": 0.8, "base_score": 1.2}, naive.pseudohuber, 0.8, "identity"),
    "reg:squaredlogerror": ({}, naive.squaredlog, 0.0, "identity"),
    "count:poisson": ({"max_delta_step": 0.5}, naive.poisson, 0.5, "log"),
    "reg:gamma": ({}, naive.gamma, 0.0, "log"),
    "reg:tweedie": ({"tweedie_variance_power": 1.3}, naive.tweedie, 1.3, "log"),
    "reg:absoluteerror": ({}, naive.squared, 0.0, "identity"),
}
HISTGRADIENT = {
    "squared_error": ({}, naive.squared, 0.0, "identity"),
    "poisson": ({}, naive.poisson, 0.0, "log"),
    "gamma": ({}, naive.gamma, 0.0, "log"),
    "absolute_error": ({}, naive.squared, 0.0, "identity"),
}
CATBOOST = {
    "RMSE": ({}, naive.squared, 0.0, "identity"),
    "Expectile:alpha=0.5": ({}, naive.squared, 0.0, "identity"),
    "Huber:delta=0.8": ({}, naive.cut_huber, 0.8, "identity"),
    "Lq:q=2.5": ({}, naive.lq, 2.5, "identity"),
    "LogCosh": ({}, naive.logcosh, 0.0, "identity"),
    "Poisson": ({}, naive.poisson, 0.0, "log"),
    "Tweedie:variance_power=1.3": ({}, naive.tweedie, 1.3, "log"),
    "MAE": ({"leaf_estimation_method": "Exact"}, naive.squared, 0.0, "identity"),
}
KINDS = ("numeric", "nan", "categorical", "mixed")
