"""`serve`: dicts and NumPy rows to plain floats, with the bits of `predict_frame`, and errors that name the column."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pgbm_plugin import load, wrap

QUANTILES, INTERVALS = (0.05, 0.5, 0.975), (0.5, 0.9)
COLUMNS = ["mean", "std", "q05", "q50", "q97.5", "lower50", "upper50", "lower90", "upper90"]


def catboost(**options):
    from catboost import CatBoostRegressor

    options |= {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    return CatBoostRegressor(iterations=12, cat_features=["city"], **options)


BOOSTERS = {
    "lightgbm": lambda: lgb.LGBMRegressor(n_estimators=12, n_jobs=1, verbose=-1),
    "xgboost": lambda: xgb.XGBRegressor(n_estimators=12, n_jobs=1, enable_categorical=True),
    "histgradient": lambda: HistGradientBoostingRegressor(max_iter=12, categorical_features="from_dtype"),
    "catboost": catboost,
    "catboost one-hot": lambda: catboost(one_hot_max_size=9),
}


def made_rows(booster="lightgbm"):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.normal(40.0, 10.0, 1000), "my sum": rng.integers(0, 9, 1000)})
    X = X.assign(flag=rng.random(1000) < 0.5, city=rng.choice(["Oslo", "Paris", "Rome"], 1000))
    y = 0.1 * X["age"] + X["city"].map({"Oslo": 0.0, "Paris": 1.0, "Rome": 2.0}) + rng.normal(size=1000)
    X.loc[3, "age"] = np.nan
    return X if "catboost" in booster else X.assign(city=X["city"].astype("category")), y.to_numpy()


def booster_of(model):
    return model.forest.booster.lower()


def records(X):
    """Return the rows of a frame as a service gets them, from JSON."""
    return json.loads(X.to_json(orient="records", double_precision=15))


@pytest.fixture(scope="module", params=BOOSTERS)
def served(request):
    """Return (model, frame of new rows, the same rows as dicts) of a booster with a column of text."""
    if "catboost" in request.param and not find_spec("catboost"):
        pytest.skip("catboost is not installed")
    X, y = made_rows(request.param)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "not certified")  # CatBoost's target statistics
        model = wrap(BOOSTERS[request.param]().fit(X[:300], y[:300]), X[:300], y[:300])
    model.tune(X[300:450], y[300:450], distributions=["normal", "empirical"])
    rows = records(X[450:500])
    # the digits of JSON are not all of them
    return model, X[450:500].assign(age=[row["age"] for row in rows]), rows


@pytest.fixture(scope="module")
def plain():
    X, y = made_rows()
    model = wrap(lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(X[:300], y[:300]), 10), X[:300], y[:300])
    model.tune(X[300:450], y[300:450], distributions="normal")
    return model.serve(), records(X[:2])


def same(predictions, frame):
    table = pd.DataFrame(predictions)
    return list(table.columns) == list(frame.columns) and np.array_equal(table.to_numpy(), frame.to_numpy())


@pytest.mark.parametrize("calibrated", ["tuned", "conformal", "groups", "observed", "bounds"])
def test_bits_of_predict_frame(served, calibrated):
    model, X, rows = served
    model, (others, y) = copy.copy(model), made_rows(booster_of(model))
    if calibrated == "bounds":
        model.tune(others[500:], y[500:], lower=-100.0, distributions="normal")
    elif calibrated != "tuned":
        model.conformalize(others[500:], y[500:], groups="mean" if calibrated == "groups" else None)
    if calibrated == "observed":
        model.observe(others[450:500], y[450:500] + 3.0)
    call = model.serve(QUANTILES, INTERVALS)
    expected = model.predict_frame(X, QUANTILES, INTERVALS)
    assert list(expected.columns) == COLUMNS
    assert same(call(rows), expected)
    assert same([call(row) for row in rows], expected)
    assert call([]) == []
    assert {type(value) for value in call(rows[0]).values()} == {float}
    assert repr(call) == f"<ServedModel of {', '.join(COLUMNS)}>"
    assert pickle.loads(pickle.dumps(call))(rows[0]) == call(rows[0])  # noqa: S301


@pytest.mark.parametrize("booster", ["lightgbm", "xgboost", "histgradient"])
def test_numpy_rows(booster):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)).astype(np.float32 if booster == "xgboost" else np.float64)
    model = wrap(BOOSTERS[booster]().fit(X, X[:, 0]), X, X[:, 0])
    model.rho = 0.1
    call = model.serve(QUANTILES, INTERVALS)
    expected = model.predict_frame(X[:5], QUANTILES, INTERVALS)
    assert same(call(X[:5]), expected)
    assert same([call(row) for row in X[:5]], expected)
    with pytest.raises(ValueError, match="trained on 3"):
        call(np.zeros(2))
    with pytest.raises(ValueError, match="without names of columns: give NumPy rows"):
        call({"a": 1.0})


def test_missing_and_unseen_values(served):
    model, X, rows = served
    call, booster, other = model.serve(), model.forest.booster, X[:1].copy()
    other["age"] = np.nan
    for missing in (None, np.nan, pd.NA):
        assert same([call({**rows[0], "age": missing})], model.predict_frame(other))
    unseen = {**rows[0], "city": "Lima"}
    other = X[:1].assign(city=pd.Series(["Lima"], X.index[:1], "object" if booster == "CatBoost" else "category"))
    if booster != "XGBoost":
        assert same([call(unseen)], model.predict_frame(other))
        return
    for predict, row in ((model.predict_frame, other), (call, unseen)):
        with pytest.raises(ValueError, match="column 'city' holds categories that training did not see: Lima"):
            predict(row)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"agee": 1.0}, ValueError, r"the row: 'agee' is no column of the model; did you mean 'age'\?"),
        ({"age": "12"}, TypeError, "the row: column 'age' must be a number, not '12'; for a missing value give None"),
        ({"age": [1.0]}, TypeError, "column 'age' must be a number"),
        ({"age": 10**400}, ValueError, "column 'age' is too large"),
        ({"age": 1j}, TypeError, "column 'age' must be a number"),
        ({"city": 7}, ValueError, "column 'city' held text in training, not 7"),
        ({"city": ["Rome"]}, TypeError, r"column 'city' holds categories, not \['Rome'\]"),
    ],
)
def test_bad_values_are_named(plain, change, kind, message):
    call, rows = plain
    with pytest.raises(kind, match=message):
        call({**rows[0], **change})


def test_bad_rows_are_named(plain):
    call, rows = plain
    without = {name: value for name, value in rows[1].items() if name != "age"}
    with pytest.raises(ValueError, match="row 1: it has no column 'age', only my_sum, flag, city; for a missing value"):
        call([rows[0], without])
    with pytest.raises(ValueError, match=r"the row: 'Age' is no column of the model; did you mean 'age'\?$"):
        call({**without, "Age": 40.0})
    with pytest.raises(ValueError, match="the row: it has the column 'my_sum' under two names"):
        call({**rows[0], "my_sum": 1})
    with pytest.raises(TypeError, match="row 1: a row must be a dict, not list"):
        call([rows[0], [1.0]])
    with pytest.raises(TypeError, match="not DataFrame; predict_frame takes frames"):
        call(made_rows()[0])
    assert call([rows[0], rows[1]])[1] == call(rows[1])


def test_bad_levels_and_models(plain):
    X, y = made_rows()
    model = wrap(lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(X, y), 5), X, y)
    with pytest.raises(ValueError, match="quantiles must lie strictly between 0 and 1"):
        model.serve(quantiles=[1.5])
    with pytest.raises(ValueError, match="intervals holds a level twice"):
        model.serve(intervals=[0.9, 0.9])
    with pytest.raises(ValueError, match="no groups"):
        model.serve(groups="shop")
    with pytest.warns(UserWarning, match="untuned"):
        model.serve()
    assert list(model.serve((), 0.9)(records(X[:1])[0])) == ["mean", "std", "lower90", "upper90"]


def test_groups_and_init_score_come_from_the_dicts(plain):
    rng = np.random.default_rng(0)
    X, y = made_rows()
    start, shop = rng.normal(5.0, size=1000), rng.choice(["a", "b"], 1000)
    data = lgb.Dataset(X[:300], y[:300], init_score=start[:300])
    model = wrap(lgb.train({"verbose": -1, "num_threads": 1}, data, 5), X[:300], y[:300], init_score=start[:300])
    model.conformalize(X[300:], y[300:], init_score=start[300:], groups=shop[300:])
    with pytest.raises(ValueError, match="give the group of each row"):
        model.serve()
    call = model.serve(init_score="start", groups="shop")
    rows = [{**row, "start": start[i], "shop": shop[i]} for i, row in enumerate(records(X[:9]))]
    X = X[:9].assign(age=[row["age"] for row in rows])
    assert same(call(rows), model.predict_frame(X, init_score=start[:9], groups=shop[:9]))
    with pytest.raises(TypeError, match="no columns for groups"):
        call(np.zeros(4))
    with pytest.raises(ValueError, match="no column 'shop'"):
        call({name: value for name, value in rows[0].items() if name != "shop"})
    with pytest.raises(ValueError, match=r"'shopp' is no column of the model; did you mean 'shop'\?"):
        call({("shopp" if name == "shop" else name): value for name, value in rows[0].items()})


def test_a_transformed_target_and_a_pipeline():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
    y = np.exp(0.3 * X["a"].to_numpy() + 0.1 * rng.normal(size=300))
    target = TransformedTargetRegressor(BOOSTERS["lightgbm"](), func=np.log, inverse_func=np.exp)
    model = wrap(target.fit(X[:200], y[:200]), X[:200], y[:200])
    model.tune(X[200:], y[200:], distributions="normal")
    assert same(model.serve()(X[:4].to_dict("records")), model.predict_frame(X[:4]))
    X = X.to_numpy()
    model = wrap(make_pipeline(StandardScaler(), BOOSTERS["lightgbm"]()).fit(X[:200], y[:200]), X[:200], y[:200])
    model.tune(X[200:], y[200:], distributions="normal")
    assert same(model.serve()(X[:4]), model.predict_frame(X[:4]))
    with pytest.raises(TypeError, match=r"cannot pass through 'standardscaler' \(StandardScaler\) of a pipeline"):
        model.serve()({"a": 1.0, "b": 1.0, "c": 1.0})


def test_threads_share_a_call(served):
    model, X, rows = served
    call = model.serve()
    expected = model.predict_frame(X)
    with ThreadPoolExecutor(8) as pool:
        assert same(list(pool.map(call, rows)), expected)


def test_a_call_keeps_the_model_as_it_was(served):
    model, (X, y) = copy.copy(served[0]), made_rows(booster_of(served[0]))
    call = model.serve()
    before = call(served[2][0])
    model.conformalize(X[500:], y[500:])
    assert call(served[2][0]) == before
    assert model.serve()(served[2][0]) != before


def test_no_frame_library_is_needed(served, tmp_path):
    model, X, rows = served
    model.save(tmp_path / "model.pgbm")
    expected = load(tmp_path / "model.pgbm").predict_frame(X).to_dict("records")
    code = (
        "import json, sys\n"
        "for name in ('pandas', 'polars', 'pyarrow', 'sklearn', 'lightgbm', 'xgboost', 'catboost'):\n"
        "    sys.modules[name] = None\n"
        "from pgbm_plugin import load\n"
        "served = load(sys.argv[1]).serve()\n"
        "print(json.dumps(served(json.load(sys.stdin))))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "model.pgbm")]
    done = subprocess.run(command, input=json.dumps(rows), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == expected


@pytest.mark.parametrize("booster", ["lightgbm", "xgboost", "histgradient"])
def test_whole_numbers_are_categories_by_their_values(booster):
    rng = np.random.default_rng(0)
    code = rng.integers(0, 3, 300)
    X = pd.DataFrame({"a": rng.normal(size=300), "c": pd.Categorical(np.array([30, 10, 77])[code])})
    y = X["a"].to_numpy() + code
    model = wrap(BOOSTERS[booster]().fit(X, y), X, y)
    model.rho = 0.1
    rows = [{"a": a, "c": kind(c)} for a, c, kind in zip(X["a"], X["c"], [int, float, np.int64] * 100, strict=True)]
    assert same(model.serve()(rows), model.predict_frame(X))
    with pytest.raises(ValueError, match="column 'c' held numbers in training, not 'x'"):
        model.serve()({"a": 1.0, "c": "x"})
