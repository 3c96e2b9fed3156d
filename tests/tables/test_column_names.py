"""Which column of a table is which feature: names with blanks, names that are there twice, models without names."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import xgboost as xgb

from pgbm_plugin import load, partial_moments, wrap

LGB = {"num_leaves": 8, "min_data_in_leaf": 5, "num_threads": 1, "verbose": -1}
XGB = {"max_depth": 3, "nthread": 1}


@pytest.fixture
def blanks(make_data):
    """Names that are the same once blanks are underscores."""
    X, y = make_data("numeric", n=300)
    return pd.DataFrame(X, columns=["a b", "a_b", "c", "d e"]), y


def test_xgboost_stores_blanks(blanks, tmp_path):
    X, y = blanks
    booster = xgb.train(XGB, xgb.DMatrix(X, y), 4)
    whole = wrap(booster, X, y)
    for columns in (list(X.columns), ["c", "a_b", "d e", "a b"]):
        path = tmp_path / "rows.parquet"
        X[columns].assign(y=y).to_parquet(path)
        model = wrap(booster, path, label="y")
        assert model.certificate.status == "certified"
        assert np.array_equal(next(model.predict_dist(path)).mean(), whole.predict(X))
        assert np.array_equal(next(model.predict_dist(iter([X[columns]]))).mean(), whole.predict(X))
    with pytest.raises(ValueError, match="in another order"):
        whole.predict(X[["a_b", "a b", "c", "d e"]])
    with pytest.raises(ValueError, match=r"missing.*'a b'"):
        whole.predict(X.rename(columns={"a b": "ab"}))


def test_lightgbm_stores_underscores(make_data, tmp_path):
    """A column of the stored name is meant before one that would be stored so."""
    X, y = make_data("numeric", n=300)
    plain, frame = pd.DataFrame(X, columns=["a_b", "b", "c", "d"]), pd.DataFrame(X, columns=["a b", "b", "c", "d"])
    model = wrap(lgb.train(LGB, lgb.Dataset(frame, y), 4), frame, y)
    want = model.predict(frame)
    assert np.array_equal(model.predict(plain), want)
    path = tmp_path / "rows.parquet"
    for table in (plain, frame, plain.assign(**{"a b": 0.0}), pd.DataFrame({"a b": 0.0, **plain})):
        table.to_parquet(path)
        assert np.array_equal(next(model.predict_dist(path)).mean(), want)


def test_columns_that_are_there_twice(make_data):
    X, y = make_data("numeric", n=300)
    twice = pd.DataFrame(X, columns=["a", "b", "b", "d"])
    unnamed = wrap(lgb.train(LGB, lgb.Dataset(X, y), 4), X, y)
    assert np.array_equal(next(unnamed.predict_dist(iter([twice]))).mean(), unnamed.predict(X))
    named = pd.DataFrame(X, columns=list("abcd"))
    model = wrap(lgb.train(LGB, lgb.Dataset(named, y), 4), named, y)
    both = pd.concat([named, named[["b"]]], axis=1)
    with pytest.raises(ValueError, match="batch 0: it has duplicate columns: 'b'"):
        next(model.predict_dist(iter([both])))


def test_columns_to_keep_are_no_features(make_data, tmp_path):
    """For a model without names, a table in memory gives what its file gives."""
    X, y = make_data("numeric", n=300)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(id=np.arange(300), start=0.5)
    model = wrap(lgb.train(LGB, lgb.Dataset(X, y), 4), X, y)
    frame.to_parquet(tmp_path / "rows.parquet")
    results = []
    for source in (frame, tmp_path / "rows.parquet"):
        model.predict_parquet(source, tmp_path / "out.parquet", keep=["id"], init_score="start")
        results.append(pq.read_table(tmp_path / "out.parquet"))
    assert results[0] == results[1]
    assert np.array_equal(results[0]["mean"].to_numpy(), model.predict(X, init_score=np.full(300, 0.5)))


@pytest.mark.parametrize("columns", [range(4), list("abcd")])
def test_lightgbm_told_other_names(columns, make_data, tmp_path):
    """LightGBM (feature_name=) then predicts by position; new frames are checked by the names of the wrapped one."""
    X, y = make_data("numeric", n=300)
    frame = pd.DataFrame(X, columns=columns)
    told = [f"f{j}" for j in range(4)]
    data = lgb.Dataset(frame, y, feature_name=told, free_raw_data=False)
    booster = lgb.train(LGB, data, 4, keep_training_booster=True)
    estimator = lgb.LGBMRegressor(n_estimators=4, **LGB).fit(frame, y, feature_name=told)
    for model in (wrap(booster, data), wrap(booster), wrap(booster, frame, y), wrap(estimator, frame, y)):
        assert model.certificate.status == "certified"
        model.save(tmp_path / "model.pgbm")
        for again in (model, load(tmp_path / "model.pgbm")):
            assert np.array_equal(again.predict(frame), booster.predict(frame))
            with pytest.raises(ValueError, match="in another order"):
                again.predict(frame[frame.columns[::-1]])
    assert np.array_equal(partial_moments(booster, frame, y).gg, partial_moments(booster, X, y).gg)
    with (
        pytest.warns(UserWarning, match="not certified"),
        pytest.warns(UserWarning, match="taken by position"),
    ):
        wrap(booster, frame[:200], y[:200])
    with pytest.raises(ValueError, match=r"missing \['f0'\], unknown \['e'\]"):  # one name alone is a mistake
        wrap(booster, pd.DataFrame(X, columns=["e", *told[1:]]), y)


def test_xgboost_goes_by_name(make_data):
    X, y = make_data("numeric", n=300)
    booster = xgb.train(XGB, xgb.DMatrix(X, y, feature_names=list("abcd")), 4)
    with pytest.raises(ValueError, match="X has other columns than the model"):
        wrap(booster, pd.DataFrame(X, columns=list("efgh")), y)
