"""The CRPS in the training loop: at every iteration that of the model so far, wrapped as a whole."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import torch_objective
from pgbm_plugin.boosters.lightgbm import LIGHTGBM
from pgbm_plugin.boosters.xgboost import XGBOOST
from pgbm_plugin.training.crps import crps_callback
from tests.training.validated import LGB, ROUNDS, RUN, XGB, assert_same_scores, brute, run_lightgbm, run_xgboost

not_certified = pytest.mark.filterwarnings("ignore:not certified:UserWarning")


@not_certified  # renewed leaves
@pytest.mark.parametrize("objective", LIGHTGBM.objectives)
def test_lightgbm_objectives(objective, mixed_sets):
    train, valid = mixed_sets
    params = {"objective": objective.split()[0], "reg_sqrt": "sqrt" in objective}
    booster, scores = run_lightgbm(params, crps_callback(*valid, X=train[0], y=train[1]), *train)
    assert_same_scores(scores, brute(booster, train, valid))


@not_certified
@pytest.mark.parametrize("objective", XGBOOST.objectives)
def test_xgboost_objectives(objective, mixed_sets):
    train, valid = mixed_sets
    params = {"objective": objective, "base_score": 1.5}  # XGBoost's own start for some lets training diverge
    booster, scores = run_xgboost(params, crps_callback(*valid, X=train[0], y=train[1]), *train)
    assert_same_scores(scores, brute(booster, train, valid))


def test_plain_callbacks_of_lightgbm_see_the_score(numeric_sets):
    """LightGBM puts a callback without an order before all that have one; loggers and pruners have none."""
    (X, y), valid = numeric_sets
    callback = crps_callback(*valid, X=X, y=y)
    for again in range(2):  # the second training finds what the first has left in the callback
        seen = []

        def log(env, seen=seen):
            seen.append([result[:2] for result in env.evaluation_result_list])

        callbacks = [log, callback, lgb.early_stopping(5, verbose=False)]
        lgb.train({**LGB, "metric": "None"}, lgb.Dataset(X, y), 3 + again, callbacks=callbacks)
        assert seen == [[("valid", "crps")]] * (3 + again)


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("lightgbm", {"learning_rate": 1.0}),
        ("lightgbm", {"boost_from_average": False}),
        ("lightgbm", {"lambda_l1": 2.5, "lambda_l2": 3.0, "max_delta_step": 0.15}),
        ("lightgbm", {"num_leaves": 2}),
        ("lightgbm", {"bagging_fraction": 0.6, "bagging_freq": 1}),
        ("xgboost", {"eta": 1.0}),
        ("xgboost", {"num_parallel_tree": 3, "colsample_bynode": 0.5}),
        ("xgboost", {"alpha": 2.5, "lambda": 3.0}),
        ("xgboost", {"tree_method": "exact"}),
        ("xgboost", {"max_depth": 1}),
        ("xgboost", {"subsample": 0.6}),
        ("xgboost", {"monotone_constraints": "(1,0,0,0)"}),
    ],
    ids=str,
)
@not_certified
def test_settings(kind, params, numeric_sets):
    train, valid = numeric_sets
    booster, scores = RUN[kind](params, crps_callback(*valid, X=train[0], y=train[1]), *train)
    assert_same_scores(scores, brute(booster, train, valid))


@pytest.mark.parametrize("kind", RUN)
@pytest.mark.parametrize(
    "options", [{"distribution": "studentt(df=5)", "rho": 0.3}, {"distribution": "gamma"}], ids=str
)
def test_family_and_rho(kind, options, numeric_sets):
    train, valid = numeric_sets
    objective = {"objective": "gamma" if kind == "lightgbm" else "reg:gamma"}
    booster, scores = RUN[kind](objective, crps_callback(*valid, X=train[0], y=train[1], **options), *train)
    assert_same_scores(scores, brute(booster, train, valid, **options))


@pytest.mark.parametrize("kind", RUN)
def test_weights_and_init_scores(kind, numeric_sets):
    train, valid = numeric_sets
    rng = np.random.default_rng(3)
    weight, weight_val = rng.uniform(0.5, 3.0, len(train[1])), rng.uniform(0.5, 3.0, len(valid[1]))
    score, score_val = rng.normal(1.0, 0.3, len(train[1])), rng.normal(1.0, 0.3, len(valid[1]))
    given = {"sample_weight": weight, "init_score": score}
    of_val = {"sample_weight_val": weight_val, "init_score_val": score_val}
    callback = crps_callback(*valid, X=train[0], y=train[1], **given, **of_val)
    start = "init_score" if kind == "lightgbm" else "base_margin"
    booster, scores = RUN[kind]({}, callback, *train, weight=weight, **{start: score})
    assert_same_scores(scores, brute(booster, train, valid, **given, **of_val))


@pytest.mark.parametrize("given", ["both", "held", "valid"])
def test_lightgbm_datasets(given, numeric_sets):
    """Datasets bring rows, labels, weights and init scores; that of training need not even be named."""
    train, valid = numeric_sets
    rng = np.random.default_rng(3)
    extra = [
        {"weight": rng.uniform(0.5, 3.0, len(y)), "init_score": rng.normal(1, 0.3, len(y))} for _, y in (train, valid)
    ]
    data = lgb.Dataset(*train, **extra[0], free_raw_data=False)
    held_out = lgb.Dataset(*valid, **extra[1], reference=data, free_raw_data=False)
    named = {"sample_weight": extra[0]["weight"], "init_score": extra[0]["init_score"]}
    of_train = {"both": {"X": data}, "held": {}, "valid": {"X": train[0], "y": train[1], **named}}[given]
    seen = {}
    callbacks = [crps_callback(held_out, **of_train), lgb.record_evaluation(seen)]
    booster = lgb.train(LGB, data, ROUNDS, [held_out], ["valid"], callbacks=callbacks)
    of_val = {"sample_weight_val": extra[1]["weight"], "init_score_val": extra[1]["init_score"]}
    # a Dataset holds weights in float32
    assert_same_scores(seen["valid"]["crps"], brute(booster, train, valid, **named, **of_val), rtol=1e-7)
    assert len(seen["valid"]["l2"]) == ROUNDS


def test_dmatrices(numeric_sets):
    train, valid = numeric_sets
    rng = np.random.default_rng(3)
    data, held_out = (
        xgb.DMatrix(X, y, weight=rng.uniform(0.5, 3.0, len(y)), base_margin=rng.normal(1, 0.3, len(y)))
        for X, y in (train, valid)
    )
    seen = {}
    callbacks = [crps_callback(held_out, X=data)]
    booster = xgb.train(XGB, data, ROUNDS, callbacks=callbacks, evals_result=seen, verbose_eval=False)
    options = {"sample_weight": data.get_weight(), "init_score": data.get_base_margin()}
    of_val = {"sample_weight_val": held_out.get_weight(), "init_score_val": held_out.get_base_margin()}
    assert_same_scores(seen["valid"]["crps"], brute(booster, train, valid, **options, **of_val), rtol=1e-7)


def coupled(margin, y):
    """Squared error of each row and of the total of its group of ten: a row's gradient depends on other rows."""
    group = np.arange(len(y)) // 10
    error = margin - y
    return error + 0.1 * np.bincount(group, error)[group], np.full(len(y), 1.1)


@pytest.mark.parametrize("kind", RUN)
def test_custom_objective(kind, numeric_sets):
    train, valid = numeric_sets

    def native(margin, data):
        return coupled(margin, data.get_label())

    callback = crps_callback(*valid, X=train[0], y=train[1], objective=coupled)
    how = ({"objective": native}, {}) if kind == "lightgbm" else ({}, {"obj": native})
    booster, scores = RUN[kind](how[0], callback, *train, **how[1])
    assert_same_scores(scores, brute(booster, train, valid, objective=coupled))


def test_torch_objective(numeric_sets):
    """Stepped with row sums, scored with the diagonal; and found without being given."""
    pytest.importorskip("torch")
    train, valid = numeric_sets
    groups = np.arange(len(train[1])) // 10
    objective = torch_objective(lambda p, t: 0.5 * (p - t) ** 2, levels=[(None, 1.0), (groups, 0.1)], hessian="rowsum")
    callback = crps_callback(*valid, X=train[0], y=train[1])
    booster, scores = run_lightgbm({"objective": objective, "min_sum_hessian_in_leaf": 0}, callback, *train)
    assert_same_scores(scores, brute(booster, train, valid, objective=objective))


@pytest.mark.parametrize("kind", RUN)
@pytest.mark.parametrize("first", [True, False])
def test_learning_rate_schedule(kind, first, numeric_sets):
    """The rate of the tree that was grown, wherever the schedule is in the list; `wrap` has to solve it."""
    train, valid = numeric_sets
    rates = [0.5, 0.4, 0.3, 0.25, 0.2, 0.1]
    if kind == "lightgbm":
        schedule = lgb.reset_parameter(learning_rate=rates)
    else:
        schedule = xgb.callback.LearningRateScheduler(rates)
    pair = [schedule, crps_callback(*valid, X=train[0], y=train[1])]
    before, after = pair if first else pair[::-1]
    booster, scores = RUN[kind]({}, after, *train, callbacks=[before])
    # the first tree alone does not tell that its rate is not the stated one, which is the last
    assert_same_scores(scores[1:], brute(booster, train, valid, range(2, ROUNDS + 1)), rtol=1e-6)


@pytest.mark.parametrize("kind", RUN)
def test_continued_training(kind, numeric_sets):
    """The old trees are wrapped with the first new one; their rates are solved."""
    train, valid = numeric_sets
    callback = crps_callback(*valid, X=train[0], y=train[1])
    old, _ = RUN[kind]({}, callback, *train)
    model = {"init_model": old} if kind == "lightgbm" else {"xgb_model": old}
    booster, scores = RUN[kind]({"eta": 0.1}, callback, *train, **model)
    assert_same_scores(scores, brute(booster, train, valid, range(ROUNDS + 1, 2 * ROUNDS + 1)), rtol=1e-6)


def test_trees_without_a_split(numeric_sets):
    """A constant counts while it is all there is; LightGBM drops later ones, XGBoost keeps them."""
    train, valid = numeric_sets
    callback = crps_callback(*valid, X=train[0], y=train[1])
    booster, scores = run_lightgbm({"min_data_in_leaf": 1000}, callback, *train)
    assert booster.num_trees() == 1
    np.testing.assert_allclose(scores, ROUNDS * brute(booster, train, valid, [1]), rtol=1e-12)

    one = np.round(train[0][:, :1] > 0), np.round(valid[0][:, :1] > 0)
    of_one = (one[0], train[1]), (one[1], valid[1])
    callback = crps_callback(*of_one[1], X=one[0], y=train[1])
    booster, scores = run_lightgbm({"learning_rate": 1.0, "min_gain_to_split": 1e-6}, callback, *of_one[0])
    assert booster.num_trees() == 1
    np.testing.assert_allclose(scores, ROUNDS * brute(booster, *of_one, [1]), rtol=1e-12)


@pytest.mark.parametrize("stuck", ["first", "later"])
def test_xgboosts_empty_trees(stuck, numeric_sets):
    train, valid = numeric_sets

    class Stuck(xgb.callback.TrainingCallback):
        def before_iteration(self, model, epoch, evals_log):
            empty = epoch < 2 if stuck == "first" else epoch in (2, 3)
            model.set_param("min_child_weight", 1e6 if empty else 1.0)
            return False

    callback = crps_callback(*valid, X=train[0], y=train[1])
    booster, scores = run_xgboost({}, callback, *train, callbacks=[Stuck()])
    np.testing.assert_allclose(scores, brute(booster, train, valid), rtol=1e-12)
    # a tree without a split is a leaf of 0, and since XGBoost 3.4 a step; alone it is a constant in both
    steps = tuple(map(int, xgb.__version__.split(".")[:2])) >= (3, 4)
    assert len(set(scores)) == (5 if stuck == "first" else ROUNDS if steps else 4)


def test_trees_of_later_samples_are_told(numeric_sets):
    """GOSS begins to sample after 1 / learning_rate trees."""
    train, valid = numeric_sets
    callback = crps_callback(*valid, X=train[0], y=train[1])
    with pytest.warns(UserWarning, match="not certified after 3 iterations: subsampled") as told:
        booster, scores = run_lightgbm({"data_sample_strategy": "goss"}, callback, *train)
    assert len(told) == 1
    with pytest.warns(UserWarning, match="subsampled"):
        want = brute(booster, train, valid)
    assert_same_scores(scores, want)


@pytest.mark.parametrize("kind", RUN)
def test_other_rows_are_told(kind, numeric_sets):
    train, valid = numeric_sets
    with pytest.warns(UserWarning, match="not certified"):
        RUN[kind]({}, crps_callback(*valid, X=valid[0], y=valid[1]), *train)


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
def test_weights_with_a_plain_objective_are_refused(kind, numeric_sets):
    """Boosters do not weight what a function returns; as in wrap, weights that were given would be lost in silence."""
    (X, y), valid = numeric_sets

    def squares(margin, data):
        return margin - data.get_label(), np.ones(len(margin))

    score = crps_callback(
        *valid, X=X, y=y, sample_weight=np.ones(len(y)), objective=lambda margin, y: (margin - y, np.ones(len(y)))
    )
    trainings = {
        "lightgbm": lambda: lgb.train({**LGB, "objective": squares}, lgb.Dataset(X, y), 2, callbacks=[score]),
        "xgboost": lambda: xgb.train(XGB, xgb.DMatrix(X, y), 2, obj=squares, callbacks=[score]),
    }
    with pytest.raises(ValueError, match="sample_weight has no effect with a custom objective"):
        trainings[kind]()


def test_columns_of_categories_are_those_of_training(make_data):
    """LightGBM stores categories without their columns: another column must not take their place."""
    X, y = make_data("categorical", n=600)
    swapped = X.assign(few=X["few"].cat.codes.astype(float), other=X["a"])
    name = next(column for column in X.columns if column not in ("few", "many"))
    swapped[name] = X["few"]
    score = crps_callback(swapped[list(X.columns)], y, X=X, y=y)
    with pytest.raises(ValueError, match="column 'few' was categorical in training but is not in X"):
        lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(X, y), 2, callbacks=[score])
