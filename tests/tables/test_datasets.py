"""The boosters' own data sets as tables: lgb.Dataset and xgb.DMatrix, which bring their labels."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

from pgbm_plugin import partial_moments, wrap
from tests.tables.whole_numbers import with_gaps

LGB = {"num_leaves": 8, "min_data_in_leaf": 10, "num_threads": 1, "verbose": -1}
XGB = {"max_depth": 3, "nthread": 1}


def test_lightgbm_dataset():
    X, y = with_gaps()
    weight = np.abs(y) + 1
    data = lgb.Dataset(X, y, weight=weight, free_raw_data=False)
    booster = lgb.train(LGB, data, 5, keep_training_booster=True)
    expected = wrap(booster, X, y, sample_weight=weight)
    for model in (wrap(booster, data), wrap(booster)):  # the booster still holds it
        assert model.certificate.status == "certified"
        assert np.array_equal(model.predict_var(data), expected.predict_var(X))


@pytest.mark.parametrize("matrix", [xgb.DMatrix, xgb.QuantileDMatrix])
def test_xgboost_dmatrix(matrix):
    """A QuantileDMatrix gives back the middle of each bin: other numbers, the same leaves."""
    X, y = with_gaps()
    data = matrix(X, y, weight=np.abs(y) + 1)
    booster = xgb.train(XGB, data, 5)
    expected = wrap(booster, X, y, sample_weight=np.abs(y) + 1)
    model = wrap(booster, data)
    assert model.certificate == expected.certificate
    assert np.array_equal(model.predict_var(data), expected.predict_var(X))
    assert np.array_equal(model.predict(data), booster.predict(data))


@pytest.mark.parametrize("max_bin", [4, 32, 256])
def test_quantiles_of_other_rows(max_bin):
    """Their bins are not those of training: XGBoost predicts for the ends of bins."""
    X, y = with_gaps()
    booster = xgb.train(XGB, xgb.DMatrix(X, y), 20)
    model = wrap(booster, X, y)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        new = (rng.normal(size=X.shape) * rng.choice([0.3, 1.0, 5.0])).astype(np.float32)
        new[rng.random(new.shape) < 0.1] = np.nan
        data = xgb.QuantileDMatrix(new, max_bin=max_bin)
        assert np.array_equal(model.predict(data), booster.predict(data))


def test_data_sets_of_continued_training():
    """LightGBM keeps the first model's predictions in them as an init_score, and the trees are in the model as well."""
    X, y = with_gaps()
    first = lgb.train(LGB, lgb.Dataset(X, y), 3)
    data = lgb.Dataset(X, y, free_raw_data=False)
    booster = lgb.train(LGB, data, 3, init_model=first)
    model = wrap(booster, data)
    assert model.certificate.status == "certified"
    assert np.array_equal(model.predict(data), booster.predict(X))


def test_a_data_set_that_is_not_constructed():
    X, y = with_gaps()
    booster = lgb.train(LGB, lgb.Dataset(X, y), 3)
    model = wrap(booster, lgb.Dataset(X, y))
    assert model.certificate.status == "certified"
    assert np.array_equal(model.predict(lgb.Dataset(X)), booster.predict(X))


CITIES = ["Lima", "Berlin", "Oslo", "Lagos"]


def cities(n, names=CITIES, seed=0):
    rng = np.random.default_rng(seed)
    code = rng.integers(0, len(names), n)
    X = pd.DataFrame({"x": rng.normal(size=n), "city": pd.Categorical.from_codes(code, names)})
    return X, np.array([CITIES.index(names[k]) for k in code]) + 0.1 * X["x"].to_numpy()


@pytest.fixture(scope="module")
def by_city():
    X, y = cities(300)
    booster = xgb.train(XGB, xgb.DMatrix(X, y, enable_categorical=True), 5)
    return booster, wrap(booster, xgb.DMatrix(X, y, enable_categorical=True))


@pytest.mark.parametrize("matrix", [xgb.DMatrix, xgb.QuantileDMatrix])
@pytest.mark.parametrize("names", [CITIES, CITIES[::-1], CITIES[1:], CITIES[2:3]], ids=" ".join)
def test_categories_of_a_dmatrix(names, matrix, by_city):
    """XGBoost translates them to the codes of training when it predicts."""
    booster, model = by_city
    X, y = cities(60, names, seed=1)
    data = matrix(X, y, enable_categorical=True)
    assert np.array_equal(model.predict(data), booster.predict(data))
    if matrix is xgb.DMatrix:
        assert np.array_equal(model.predict_var(data), model.predict_var(X))
        assert np.array_equal(partial_moments(booster, data).gg, partial_moments(booster, X, y).gg)


def test_categories_of_a_dmatrix_that_do_not_fit(by_city):
    _, model = by_city
    X, _ = cities(60)
    new = X.assign(city=X["city"].cat.rename_categories({"Oslo": "Rom"}))
    for frame, match in (
        (new, "'city' holds categories that training did not see: Rom"),
        (X.assign(x=X["city"]), "'x' is categorical in X but was not in training"),
        (X.assign(city=X["x"], x=X["city"]), "'city' was categorical in training but is not in X"),
    ):
        with pytest.raises(ValueError, match=match):
            model.predict(xgb.DMatrix(frame, enable_categorical=True))


def test_codes_in_a_dmatrix(by_city):
    """Numbers in place of categories are the codes of training, as XGBoost takes them."""
    booster, model = by_city
    X, _ = cities(60)
    data = xgb.DMatrix(X.assign(city=X["city"].cat.codes).to_numpy(), feature_names=["x", "city"])
    assert np.array_equal(model.predict(data), booster.predict(data, validate_features=False))


def test_categories_without_pyarrow(by_city, monkeypatch):
    X, _ = cities(60)
    data = xgb.DMatrix(X, enable_categorical=True)
    read = xgb.DMatrix.get_categories

    def without_pyarrow(self, export_to_arrow=False):
        if export_to_arrow:
            raise ImportError("`pyarrow` is required for exporting categories.")
        return read(self)

    monkeypatch.setattr(xgb.DMatrix, "get_categories", without_pyarrow)
    with pytest.raises(TypeError, match=r"PyArrow is needed.*give the frame"):
        by_city[1].predict(data)


def test_names_of_a_dmatrix():
    X, y = with_gaps()
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
    booster = xgb.train(XGB, xgb.DMatrix(frame, y), 5)
    model = wrap(booster, xgb.DMatrix(frame, y))
    turned, other = frame[frame.columns[::-1]], frame.rename(columns={"c0": "d0"})
    for table, match in ((turned, "in another order"), (other, r"missing \['c0'\], unknown \['d0'\]")):
        for use in (model.predict, lambda data: wrap(booster, data), model.update):
            with pytest.raises(ValueError, match=match):
                use(xgb.DMatrix(table, y))
    assert np.array_equal(model.predict(xgb.DMatrix(X)), model.predict(frame))  # it has no names, like an array


def test_data_sets_that_are_no_table(tmp_path):
    X, y = with_gaps()
    booster = lgb.train(LGB, lgb.Dataset(X, y), 3)
    for data in ([X[:50], X[50:]], [OneSequence(X)], OneSequence(X)):
        for constructed in (False, True):
            dataset = lgb.Dataset(data, y, free_raw_data=False)
            with pytest.raises(TypeError, match=r"list of arrays or of a Sequence.*wrap\(booster, zip\(arrays, labels"):
                wrap(booster, dataset.construct() if constructed else dataset)
    np.savetxt(tmp_path / "rows.csv", np.column_stack([y, X]), delimiter=",")
    with pytest.raises(TypeError, match=r"made of a file.*rows\.csv"):
        wrap(booster, lgb.Dataset(tmp_path / "rows.csv", params={"verbose": -1}))

    data = xgb.DMatrix(Parts(X, y, tmp_path / "cache"))
    with pytest.raises(TypeError, match=r"did not keep its rows.*wrap\(booster, batches\)"):
        wrap(xgb.train(XGB, data, 3), data)


class OneSequence(lgb.Sequence):
    batch_size = 100

    def __init__(self, X):
        self.X = X

    def __getitem__(self, index):
        return self.X[index]

    def __len__(self):
        return len(self.X)


class Parts(xgb.DataIter):
    def __init__(self, X, y, cache):
        self.parts, self.given = list(zip(np.array_split(X, 2), np.array_split(y, 2), strict=True)), 0
        super().__init__(cache_prefix=str(cache))

    def next(self, take):
        if self.given == len(self.parts):
            return 0
        X, y = self.parts[self.given]
        take(data=X, label=y)
        self.given += 1
        return 1

    def reset(self):
        self.given = 0
