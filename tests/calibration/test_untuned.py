"""UntunedWarning: a model that nothing has calibrated says so, once."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest

from pgbm_plugin import UntunedWarning, crps_callback, embed, load, wrap
from pgbm_plugin.predict.power_map import Calibration
from pgbm_plugin.saving import container
from pgbm_plugin.sklearn import PGBMRegressor

LGB = {"num_leaves": 6, "verbose": -1, "num_threads": 1}


@pytest.fixture(scope="module")
def trained():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = X[:, 0] + rng.normal(size=600)
    return lgb.train(LGB, lgb.Dataset(X[:400], y[:400]), 5), X, y


@pytest.fixture
def model(trained):
    booster, X, y = trained
    return wrap(booster, X[:400], y[:400])


def told(call):
    """How often `call` warns, whatever Python's own filters remember."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert all(issubclass(w.category, UntunedWarning) for w in caught)
    return len(caught)


def parquet(model, X, tmp_path):
    frame = pd.DataFrame(X, columns=["Column_0", "Column_1", "Column_2"])
    model.predict_parquet((frame[i : i + 100] for i in (0, 100, 200)), tmp_path / "out.parquet")


CALLS = {
    "std": lambda m, X, p: m.predict(X, return_std=True),
    "dist": lambda m, X, p: m.predict_dist(X),
    "family": lambda m, X, p: m.predict_dist(X, "laplace"),
    "batches": lambda m, X, p: list(m.predict_dist(iter([X[:10], X[10:20]]))),
    "var": lambda m, X, p: m.predict_var(X),
    "quantiles": lambda m, X, p: m.predict_quantiles(X, 0.5),
    "interval": lambda m, X, p: m.predict_interval(X),
    "columns": lambda m, X, p: m.predict_columns(X),
    "parquet": parquet,
}


@pytest.mark.parametrize("name", CALLS)
def test_once_whatever_is_called(name, model, trained, tmp_path):
    X = trained[1]
    assert told(lambda: CALLS[name](model, X, tmp_path)) == 1
    for call in CALLS.values():
        assert told(lambda call=call: call(model, X, tmp_path)) == 0


def test_a_stream_says_it_before_a_batch_is_read(model, trained):
    assert told(lambda: model.predict_dist(iter([trained[1]]))) == 1


def test_not_again_after_a_change_that_does_not_calibrate(model, trained):
    _, X, y = trained
    model.predict_var(X)
    assert told(lambda: model.update(X[400:], y[400:]).predict_var(X)) == 0
    model.distribution = "laplace"
    assert told(lambda: model.predict_var(X)) == 0
    assert told(lambda: copy.copy(model).predict_var(X)) == 0


def test_copies_and_pickles_that_have_not_said_it(model, trained):
    X = trained[1]
    for other in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301
        assert told(lambda other=other: other.predict_var(X)) == 1
        assert told(lambda other=other: other.predict_var(X)) == 0
    assert told(lambda: model.predict_var(X)) == 1


def test_the_words(model, trained):
    with pytest.warns(UntunedWarning) as caught:
        model.predict_interval(trained[1])
    assert caught[0].filename == __file__
    for way in ("wrap(booster, X, y, cv=5)", "model.tune(", "model.conformalize(", "set model.rho"):
        assert way in str(caught[0].message)


def test_threads(model, trained):
    """All of them start together, and one of them warns."""
    barrier = Barrier(4)

    def predict(_):
        barrier.wait()
        return model.predict_var(trained[1])

    with ThreadPoolExecutor(4) as pool:
        assert told(lambda: list(pool.map(predict, range(4)))) == 1


def test_an_error_filter_fails_every_time(model, trained):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(UntunedWarning):
                model.predict_var(trained[1])


@pytest.mark.parametrize(
    "calibrate",
    [
        lambda m, X, y: m.tune(X, y, distributions="normal"),
        lambda m, X, y: m.conformalize(X, y),
        lambda m, X, y: setattr(m, "rho", m.rho),
        lambda m, X, y: setattr(m, "calibration", Calibration()),
    ],
    ids=["tune", "conformalize", "rho", "calibration"],
)
def test_a_choice_is_silent_and_stays_so(calibrate, model, trained, tmp_path):
    _, X, y = trained
    calibrate(model, X[400:], y[400:])
    assert told(lambda: model.predict_interval(X)) == 0
    model.save(tmp_path / "m.pgbm")
    assert told(lambda: load(tmp_path / "m.pgbm").predict_interval(X)) == 0
    assert told(lambda: pickle.loads(pickle.dumps(model)).predict_interval(X)) == 0  # noqa: S301


def test_folds_calibrate(trained, tmp_path):
    booster, X, y = trained
    model = wrap(booster, X[:400], y[:400], cv=3)
    assert told(lambda: model.predict_interval(X)) == 0
    model.save(tmp_path / "m.pgbm")
    assert told(lambda: load(tmp_path / "m.pgbm").predict_interval(X)) == 0
    regressor = PGBMRegressor(lgb.LGBMRegressor(n_estimators=5, **LGB), cv=3)
    assert told(lambda: regressor.fit(X, y).predict_interval(X)) == 0


def test_a_rho_of_the_call_is_a_choice_for_it(model, trained):
    X = trained[1]
    assert told(lambda: model.predict_dist(X, rho=0.1)) == 0
    assert told(lambda: list(model.predict_dist(iter([X]), rho=0.1))) == 0
    assert told(lambda: model.predict_dist(X)) == 1


def test_what_does_not_calibrate(trained, tmp_path):
    booster, X, y = trained
    boosted = wrap(booster, X[:400], y[:400], variance="boosted")
    boosted.distribution = "laplace"
    boosted.save(tmp_path / "m.pgbm")
    assert told(lambda: load(tmp_path / "m.pgbm").predict_var(X)) == 1
    assert told(lambda: boosted.predict_var(X)) == 1
    with pytest.warns(UserWarning, match="held-out"):
        held_out = wrap(booster, X[400:], y[400:])
    assert told(lambda: held_out.predict_var(X)) == 1


def test_what_needs_no_spread(model, trained):
    _, X, y = trained
    assert told(lambda: model.predict(X)) == 0
    assert told(lambda: model.explain_variance(X[:5])) == 0
    assert told(lambda: model.tune(X[400:], y[400:], distributions="normal")) == 0
    score = crps_callback(X[400:], y[400:], X=X[:400], y=y[:400])
    assert told(lambda: lgb.train(LGB, lgb.Dataset(X[:400], y[:400]), 3, callbacks=[score])) == 0


@pytest.mark.parametrize(
    ("change", "silent"),
    [(lambda m: None, False), (lambda m: setattr(m, "rho", 0.3), True)],
    ids=["defaults", "rho"],
)
def test_files_from_before_it_was_stored(change, silent, model, trained, tmp_path):
    """What the user set shows in the numbers."""
    change(model)
    model.save(tmp_path / "m.pgbm")
    with (tmp_path / "m.pgbm").open("rb") as file:
        arrays, header, _ = container.unpack(file, (tmp_path / "m.pgbm").stat().st_size)
    header = json.loads(json.dumps(header))
    del header["settings"]["by_user"]
    (tmp_path / "old.pgbm").write_bytes(container.pack(arrays, header, "pgbm_plugin 0"))
    assert told(lambda: load(tmp_path / "old.pgbm").predict_var(trained[1])) == (0 if silent else 1)


def test_dask_says_it_to_the_user(model, trained):
    """A task of a worker would say it where nobody looks."""
    da = pytest.importorskip("dask.array")
    from pgbm_plugin.dask import DaskModel

    lazy, dX = DaskModel(model), da.from_array(trained[1], chunks=(200, 3))
    assert told(lambda: lazy.predict(dX).compute()) == 0
    assert told(lambda: lazy.predict_dist(dX, rho=0.1).compute()) == 0
    assert told(lambda: lazy.predict_var(dX)) == 1
    assert told(lambda: lazy.predict_var(dX).compute()) == 0


def test_the_command_line_says_it_once(model, trained, tmp_path):
    model.save(tmp_path / "m.pgbm")
    pd.DataFrame(trained[1], columns=["Column_0", "Column_1", "Column_2"]).to_parquet(tmp_path / "X.parquet")
    command = [sys.executable, "-m", "pgbm_plugin", "predict", "m.pgbm", "X.parquet", "-o", "out.parquet"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr.count("untuned") == 1


def test_an_embedded_model(trained):
    xgb = pytest.importorskip("xgboost")
    _, X, y = trained
    booster = xgb.train({"max_depth": 3, "nthread": 1}, xgb.DMatrix(X[:400], y[:400]), 3)
    model = wrap(booster, X[:400], y[:400])
    embed(booster, model)
    assert told(lambda: wrap(booster).predict_var(X)) == 1
    model.tune(X[400:], y[400:], distributions="normal")
    embed(booster, model)
    assert told(lambda: wrap(booster).predict_var(X)) == 0
