"""predict_frame returns a frame of the library that X came in, with its index, and the numbers of the other methods."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from pgbm_plugin import wrap

NAMES = list("abcd")


@pytest.fixture(scope="module")
def model(numeric):
    X, y = numeric
    params = {"num_leaves": 8, "num_threads": 1, "verbose": -1}
    model = wrap(lgb.train(params, lgb.Dataset(X, y, feature_name=NAMES), 5), X, y)
    model.tune(X[:100], y[:100])
    return model


@pytest.fixture
def frame(numeric):
    return pd.DataFrame(numeric[0][:7], columns=NAMES, index=pd.Index(list("tuvwxyz"), name="shop"))


FORMS = {
    "pandas": (lambda frame: frame, pd.DataFrame),
    "polars": (pl.from_pandas, pl.DataFrame),
    "arrow": (lambda frame: pa.Table.from_pandas(frame, preserve_index=False), pa.Table),
    "batch": (lambda frame: pa.RecordBatch.from_pandas(frame, preserve_index=False), pa.Table),
    "narwhals": (lambda frame: pytest.importorskip("narwhals").from_native(pl.from_pandas(frame)), pl.DataFrame),
    "numpy": (lambda frame: frame.to_numpy(), pd.DataFrame),
    "sparse": (lambda frame: sp.csr_matrix(frame.to_numpy()), pd.DataFrame),
    "dataset": (lambda frame: lgb.Dataset(frame, np.zeros(7), free_raw_data=False), pd.DataFrame),
}


@pytest.mark.parametrize("form", FORMS)
def test_frames_are_of_the_kind_of_x(model, frame, form):
    make, kind = FORMS[form]
    X = make(frame)
    found = model.predict_frame(X, quantiles=[0.05, 0.975], intervals=0.9)
    assert type(found) is kind
    columns = {name: np.asarray(found[name]) for name in ["mean", "std", "q05", "q97.5", "lower90", "upper90"]}
    assert list(columns) == list(getattr(found, "column_names", found.columns))
    mean, std = model.predict(frame, return_std=True)
    np.testing.assert_array_equal(columns["mean"], mean)
    np.testing.assert_array_equal(columns["std"], std)
    quantiles = np.stack([columns["q05"], columns["q97.5"]], axis=1)
    np.testing.assert_array_equal(quantiles, model.predict_quantiles(frame, [0.05, 0.975]))
    ends = np.stack([columns["lower90"], columns["upper90"]], axis=1)
    np.testing.assert_array_equal(ends, model.predict_interval(frame, 0.9))


def test_index_is_kept(model, frame):
    pd.testing.assert_index_equal(model.predict_frame(frame).index, frame.index)
    assert list(model.predict_frame(frame)) == ["mean", "std", "q05", "q50", "q95"]


def test_dask_frames_are_computed(model, frame):
    dd = pytest.importorskip("dask.dataframe")
    frame = frame.reset_index(drop=True)  # Dask changes the type of a text index
    found = model.predict_frame(dd.from_pandas(frame, npartitions=2))
    pd.testing.assert_frame_equal(found, model.predict_frame(frame))


@pytest.mark.parametrize("levels", [{"quantiles": [0.5, 1.5]}, {"intervals": [90]}])
def test_levels_are_refused_before_the_work(model, levels):
    with pytest.raises(ValueError, match=next(iter(levels))):
        model.predict_frame(object(), **levels)


def test_streams_are_refused(model, frame):
    with pytest.raises(TypeError, match="predict_parquet"):
        model.predict_frame(iter([frame]))
