"""Rows of HistGradientBoostingRegressor: held back, in batches, in folds, and with categories."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold

from pgbm_plugin import load, out_of_fold, wrap
from pgbm_plugin.sklearn import PGBMRegressor
from tests.boosters.histgradient import own_leaves
from tests.quiet import quiet_wrap

SMALL = {"max_iter": 8, "max_leaf_nodes": 8, "random_state": 0}
NAMES = ["fig", "date", "elder", "apple", "cherry"]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3))
    return X, X[:, 0] + 0.4 * rng.normal(size=900)


@pytest.fixture(scope="module")
def coded():
    """Numbers with gaps, below zero, with fractions and beyond 255 in columns 0 and 2, and labels that need them."""
    rng = np.random.default_rng(1)
    odd, whole = np.array([-2.0, 0.0, 1.5, 7.0, 70_000.0]), np.array([3.0, 5.0, 40.0])
    pick, other = rng.integers(0, 5, 900), rng.integers(0, 3, 900)
    X = np.column_stack([odd[pick], rng.normal(size=900), whole[other]])
    X[rng.random(900) < 0.1, 0] = np.nan
    return X, (pick % 3) + 0.5 * (other == 1) + X[:, 1] + 0.2 * rng.normal(size=900), pick


def fit(X, y, weight=None, **params):
    return HistGradientBoostingRegressor(**{**SMALL, **params}).fit(X, y, sample_weight=weight)


STOPPING = {"early_stopping": True, "n_iter_no_change": 3, "max_iter": 30}


@pytest.mark.parametrize("params", [{}, {"validation_fraction": 0.23}, {"validation_fraction": 50}, {"scoring": "r2"}])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_held_back_to_stop_early_are_found_again(rows, params, weighted):
    X, y = rows
    weight = np.linspace(0.5, 2.0, 900) if weighted else None
    model = fit(X, y, weight, **{**STOPPING, "random_state": None, **params})
    grown_on = int(model._predictors[0][0].nodes["count"][0])
    pm = wrap(model, X, y, sample_weight=weight, variance="auto")
    assert grown_on < 900
    assert pm.certificate.status == "certified"
    assert f"held {900 - grown_on} of the 900 rows back" in pm.certificate.sentence
    assert pm.moments.rows == grown_on
    # they are those of the trees, and not just as many
    one_off = y.copy()
    one_off[np.argmax(own_leaves(model, X)[:, 0])] += 1.0
    rolled = quiet_wrap(model, np.roll(X, 1, axis=0), np.roll(y, 1), sample_weight=weight)
    assert rolled.certificate.status != "certified"


def test_stopping_on_the_rows_of_training_holds_none_back(rows):
    pm = wrap(fit(*rows, **STOPPING, validation_fraction=None), *rows)
    assert pm.certificate.status == "certified"
    assert "held" not in pm.certificate.sentence
    assert pm.moments.rows == 900


def test_automatic_above_10000_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_001, 2))
    y = X[:, 0] + rng.normal(size=10_001)
    for n, trained in ((10_000, 10_000), (10_001, 9_000)):
        pm = wrap(HistGradientBoostingRegressor(max_iter=2, max_leaf_nodes=4).fit(X[:n], y[:n]), X[:n], y[:n])
        assert pm.certificate.status == "certified"
        assert pm.moments.rows == trained


def test_rows_of_training_alone_certify_too(rows):
    """Users who know the split, or gave X_val, pass what the trees were grown on."""
    from sklearn.model_selection import train_test_split

    X, y = rows
    model = fit(X, y, **STOPPING)
    train, _ = train_test_split(np.arange(900), test_size=0.1, random_state=model._random_seed)
    assert wrap(model, X[train], y[train]).certificate.status == "certified"
    certificate = quiet_wrap(model, X[:700], y[:700]).certificate
    assert certificate.status == "held-out"
    assert "held" not in certificate.sentence


def test_other_rows_than_those_of_a_validation_set_are_not_split(rows):
    X, y = rows
    model = HistGradientBoostingRegressor(**{**SMALL, **STOPPING})
    try:
        model.fit(X[:700], y[:700], X_val=X[700:], y_val=y[700:])
    except TypeError:
        pytest.skip("this scikit-learn takes no validation set")
    pm = wrap(model, X[:700], y[:700])
    assert pm.certificate.status == "certified"
    assert pm.moments.rows == 700


def test_cv_uses_all_rows_of_a_model_that_held_some_back(rows):
    X, y = rows
    model = fit(X, y, **STOPPING)
    folds = list(KFold(3, shuffle=True, random_state=1).split(X))
    pm = wrap(model, X, y, cv=folds)
    assert pm.chosen.tuned
    predicted = out_of_fold(model, X, y, cv=folds)
    for train, test in folds:
        alone = fit(X[train], y[train], max_iter=model.n_iter_)
        assert np.array_equal(alone.predict(X[test]), predicted[test])


def test_numbers_as_categories(coded, leaf_labels, tmp_path):
    """They are looked up by value; what training did not see is missing."""
    X, y, _ = coded
    Z = X.copy()
    Z[:7, 0] = [-1.0, 2.5, 1.0, np.nan, 254.0, 1e30, -0.0]
    Z[:4, 2] = [4.0, 41.0, -3.0, 5.5]
    frame = pd.DataFrame(Z, columns=["a", "b", "c"])
    for categorical in ([0, 2], [True, False, True]):
        model = fit(X, y, categorical_features=categorical)
        pm = wrap(model, X, y)
        assert pm.certificate.status == "certified"
        pm.save(tmp_path / "model.pgbm")
        for m in (pm, load(tmp_path / "model.pgbm")):
            assert np.array_equal(m.predict(Z), model.predict(Z))
            assert np.array_equal(m.predict(frame), model.predict(Z))
            assert np.array_equal(m.predict(Z.astype(np.float32)), model.predict(Z.astype(np.float32)))
    assert np.array_equal(leaf_labels(pm, X), own_leaves(model, X))
    named = fit(pd.DataFrame(X, columns=["a", "b", "c"]), y, categorical_features=["a", "c"])
    assert np.array_equal(wrap(named, pd.DataFrame(X, columns=["a", "b", "c"]), y).predict(frame), named.predict(frame))


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("gaps", [False, True])
def test_categories_of_frames(coded, library, gaps, leaf_labels):
    """Nulls of polars are a category of their own in scikit-learn, those of pandas are missing."""
    X, y, pick = coded
    text = np.array(NAMES, object)[pick]
    if gaps:
        text[::7] = None
    number = pd.Categorical(X[:, 2].astype(int), categories=[40, 5, 3, 99])

    def frame(text):
        table = pd.DataFrame({"x": X[:, 1], "text": pd.Categorical(text, categories=NAMES[::-1]), "n": number})
        if library == "pandas":
            return table.assign(flag=pd.Categorical(X[:, 1] > 0))
        columns = {"x": X[:, 1], "text": pl.Series(text.tolist(), dtype=pl.Enum([*NAMES, "grape"]))}
        return pl.DataFrame({**columns, "n": X[:, 2]})

    if library == "polars" and tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 8):
        pytest.skip("scikit-learn 1.7, the last for Python 3.10, does not read the categories of polars")
    model = fit(frame(text), y)
    pm = wrap(model, frame(text), y)
    assert pm.certificate.status == "certified"
    assert np.array_equal(leaf_labels(pm, frame(text)), own_leaves(model, frame(text)))
    assert np.array_equal(pm.predict(frame(text)), model.predict(frame(text)))


def test_categories_that_training_did_not_see_are_missing(coded):
    X, y, pick = coded
    for gaps in (0, 7):  # with missing values among the rows of training, and without
        text = np.array(NAMES, object)[pick]
        text[: 100 * gaps : 7] = None
        model = fit(pd.DataFrame({"x": X[:, 1], "text": pd.Categorical(text)}), y)
        pm = wrap(model, pd.DataFrame({"x": X[:, 1], "text": pd.Categorical(text)}), y)
        text[::3] = "grape"
        new = pd.DataFrame({"x": X[:, 1], "text": pd.Categorical(text)})
        assert np.array_equal(pm.predict(new), model.predict(new))


def test_numbers_where_training_had_text_are_refused(coded):
    X, y, pick = coded
    model = fit(pd.DataFrame({"x": X[:, 1], "text": pd.Categorical(np.array(NAMES)[pick])}), y)
    with pytest.raises(ValueError, match="'text' holds numbers, but in training it held categories such as 'apple'"):
        wrap(model, np.column_stack([X[:, 1], pick]), y)


def test_cv_with_categories(coded):
    """Folds are trained on codes, and give what training on the categories gives."""
    X, y, pick = coded
    frame = pd.DataFrame({"x": X[:, 1], "text": pd.Categorical(np.array(NAMES)[pick]), "n": X[:, 0]})
    params = {"categorical_features": ["text", "n"], "monotonic_cst": {"x": 1}, "max_leaf_nodes": 3}
    model = fit(frame, y, **params)
    folds = list(KFold(3, shuffle=True, random_state=0).split(X))
    predicted = out_of_fold(model, frame, y, cv=folds)
    for train, test in folds:
        alone = fit(frame.iloc[train], y[train], **params)
        assert np.array_equal(alone.predict(frame.iloc[test]), predicted[test])


def test_batches_parquet_and_dask(coded, tmp_path):
    import dask.array as da

    X, y, pick = coded
    model = fit(X, y, categorical_features=[0, 2])
    whole = wrap(model, X, y, variance="pgbm")
    batches = wrap(model, ((X[i : i + 200], y[i : i + 200]) for i in range(0, 900, 200)))
    dask = wrap(model, da.from_array(X, chunks=(300, 3)), da.from_array(y, chunks=300))
    frame = pd.DataFrame({"x": X[:, 1], "text": pd.Categorical(np.array(NAMES)[pick]), "n": X[:, 0]})
    frame.assign(label=y).to_parquet(tmp_path / "rows.parquet")
    named = fit(frame, y, categorical_features=["text", "n"])
    files = wrap(named, str(tmp_path / "*.parquet"), label="label")
    assert np.array_equal(files.predict(frame), named.predict(frame))
    for pm, other in ((batches, whole), (dask, whole), (files, wrap(named, frame, y))):
        assert pm.certificate.status == "certified"
        np.testing.assert_allclose(pm.moments.var_g, other.moments.var_g, rtol=1e-10)


def test_tune_and_the_regressor(rows):
    X, y = rows
    model = wrap(fit(X[:600], y[:600]), X[:600], y[:600])
    assert model.tune(X[600:], y[600:]).best.score < model.predict_dist(X[600:], "normal", 0.5).crps(y[600:]).mean()
    for params in ({"cv": 3}, {"tune_fraction": 0.3, "random_state": 0}):
        fitted = PGBMRegressor(HistGradientBoostingRegressor(**SMALL), **params).fit(X, y)
        assert fitted.model_.certificate.status == "certified"
        assert fitted.model_.chosen.tuned
        assert np.array_equal(fitted.predict(X), fitted.estimator_.predict(X))


def test_scores_to_start_from_are_refused_in_folds(rows):
    X, y = rows
    with pytest.raises(Exception, match="starts from no init_score"):
        out_of_fold(fit(X, y), X, y, init_score=np.zeros(900), cv=3)
