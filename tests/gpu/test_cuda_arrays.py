"""Arrays of other libraries that lie on a GPU, played by fakes in numba's simulator, which has none itself."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import wrap
from tests.gpu.simulated import LGB, ROWS, SIMULATED, TREES, XGB
from tests.same import assert_same_ranges

pytestmark = [
    pytest.mark.skipif(not SIMULATED, reason="plays a GPU in the simulator"),
    pytest.mark.usefixtures("uncertified_is_fine"),
]


class Tensor:
    """A torch tensor on cuda:0, as far as the package looks at one."""

    __module__ = "torch"

    def __init__(self, array, device="cuda:0", requires_grad=False):
        self.array, self.requires_grad = np.asarray(array), requires_grad
        self.device = SimpleNamespace(type="cuda", index=int(device.rpartition(":")[2]))

    @property
    def __cuda_array_interface__(self):
        if self.requires_grad:
            raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad")
        return {"shape": self.array.shape, "typestr": self.array.dtype.str, "version": 2}

    def detach(self):
        return Tensor(self.array)

    def cpu(self):
        return SimpleNamespace(numpy=lambda: self.array)

    def __array__(self, *args, **kwargs):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


class CupyArray:
    """A CuPy array."""

    __module__ = "cupy"

    def __init__(self, array):
        self.array, self.device = np.asarray(array), SimpleNamespace(id=0)

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.array.shape, "typestr": self.array.dtype.str, "version": 3}

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")


class DlpackArray:
    """An array of a library that has nothing but the DLPack standard."""

    __module__ = "other"

    def __init__(self, array):
        self.array = np.asarray(array)

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **kwargs):
        return self


class CudfFrame:
    """A cuDF DataFrame."""

    __module__ = "cudf.core.dataframe"

    def __init__(self, frame):
        self.frame, self.columns, self.dtypes = frame, list(frame.columns), list(frame.dtypes)

    def to_cupy(self, na_value):
        assert np.isnan(na_value)
        return CupyArray(self.frame.to_numpy())

    def to_pandas(self):
        return self.frame


@pytest.fixture
def calls(monkeypatch):
    """Fakes of the libraries, and what they were asked."""
    from numba import cuda

    seen = SimpleNamespace(views=[], streams=[], synchronised=0)

    class Stream:
        def __init__(self, handle):
            seen.streams.append(handle)

        def synchronize(self):
            seen.synchronised += 1

    def as_cuda_array(X, sync):
        X.__cuda_array_interface__  # noqa: B018, as numba does
        seen.views.append(sync)
        return cuda.to_device(X.array)

    monkeypatch.setattr(cuda, "as_cuda_array", as_cuda_array, raising=False)
    monkeypatch.setattr(cuda, "external_stream", Stream, raising=False)
    torch, cupy = ModuleType("torch"), ModuleType("cupy")
    torch.cuda = SimpleNamespace(current_stream=lambda device: SimpleNamespace(cuda_stream=7))
    torch.from_dlpack = lambda X: Tensor(X.__dlpack__().array)
    torch.as_tensor = lambda values, device: Tensor(values, f"cuda:{device.index}")
    cupy.cuda = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=9))
    cupy.asarray = CupyArray
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    return seen


@pytest.fixture(scope="module")
def lightgbm_model(make_data):
    X, y = make_data("nan", n=ROWS)
    booster = lgb.train(LGB, lgb.Dataset(X, y), TREES)
    return booster, X, y, wrap(booster, X, y, device="cpu")


@pytest.mark.parametrize(("kind", "stream"), [(Tensor, 7), (CupyArray, 9)])
def test_an_array_goes_in_and_out_in_its_kind(kind, stream, lightgbm_model, calls):
    booster, X, y, want = lightgbm_model
    model = wrap(booster, kind(X), kind(y))
    assert model.certificate.status == "certified"
    np.testing.assert_allclose(model.moments.gg, want.moments.gg, rtol=1e-10)
    assert calls.streams
    assert set(calls.streams) == {stream}
    assert not any(calls.views[1::2]), "a view must not wait for the device"
    mean, std = model.predict(kind(X), return_std=True)
    assert type(model.predict(kind(X))) is type(mean) is type(std) is kind
    assert np.array_equal(mean.array, want.predict(X))
    np.testing.assert_allclose(std.array, want.predict_dist(X).std(), rtol=1e-10)
    assert model.predict_interval(kind(X)).array.shape == (ROWS, 2)
    assert model.predict_quantiles(kind(X), [0.1, 0.5, 0.9]).array.shape == (ROWS, 3)
    assert model.predict_var(kind(X)).array.shape == (ROWS,)
    assert isinstance(model.predict_dist(kind(X)).mean(), np.ndarray)  # distributions live on the host
    assert_same_ranges(model.moments.ranges, want.moments.ranges)
    found, expected = model.predict_support(kind(2.0 * X)), want.predict_support(2.0 * X)
    np.testing.assert_allclose(found.rows, expected.rows, rtol=1e-10)
    assert found.outside == expected.outside != ((),) * ROWS
    assert calls.synchronised


def test_a_tensor_that_keeps_gradients(lightgbm_model, calls):
    _, X, _, model = lightgbm_model
    assert np.array_equal(model.predict(Tensor(X, requires_grad=True), device="auto").array, model.predict(X))


def test_an_array_of_dlpack_alone(lightgbm_model, calls):
    booster, X, y, want = lightgbm_model
    model = wrap(booster, DlpackArray(X), DlpackArray(y))
    assert model.certificate.status == "certified"
    got = model.predict(DlpackArray(X))
    assert isinstance(got, CupyArray)
    assert np.array_equal(got.array, want.predict(X))


def test_the_cpu_is_asked_for(lightgbm_model, calls):
    """Then the table is fetched, and results still are of its kind."""
    _, X, _, model = lightgbm_model
    got = model.predict(Tensor(X), device="cpu")
    assert isinstance(got, Tensor)
    assert np.array_equal(got.array, model.predict(X))
    assert not calls.streams


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("missing", [np.nan, -1.0])
def test_conversion_on_the_device(dtype, missing, calls):
    """XGBoost compares in float32, and may have a missing value of its own."""
    rng = np.random.default_rng(0)
    X = rng.integers(-1, 5, (ROWS, 4)).astype(dtype)
    y = X[:, 0] + 0.1 * rng.normal(size=ROWS)
    estimator = xgb.XGBRegressor(n_estimators=TREES, missing=missing, **XGB).fit(X, y)
    model = wrap(estimator, CupyArray(X), CupyArray(y))
    assert model.certificate.status == "certified"
    assert np.array_equal(model.predict(CupyArray(X)).array, estimator.predict(X))
    assert np.array_equal(model.predict(CupyArray(X), device="cpu").array, estimator.predict(X))


def test_a_frame_on_the_device(calls, make_data):
    import pandas as pd

    X, y = make_data("nan", n=ROWS)
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = wrap(lgb.train(LGB, lgb.Dataset(frame, y), TREES), frame, y)
    got = model.predict(CudfFrame(frame))
    assert isinstance(got, CupyArray)
    assert calls.streams == [9]
    assert np.array_equal(got.array, model.predict(frame))
    with pytest.raises(ValueError, match="another order"):
        model.predict(CudfFrame(frame[list("dcba")]))
    with pytest.raises(ValueError, match=r"'b'.*to_pandas"):
        model.predict(CudfFrame(frame.assign(b="text")))


@pytest.mark.parametrize(
    ("X", "match"),
    [
        (np.zeros((3, 9)), "9 columns"),
        (np.zeros(4), "two dimensions"),
        (np.zeros((3, 4), np.float16), "float16"),
        (np.zeros((3, 4), complex), "complex"),
    ],
    ids=["columns", "dimensions", "half", "complex"],
)
def test_bad_arrays_on_the_device(X, match, lightgbm_model, calls):
    with pytest.raises((ValueError, TypeError), match=match):
        lightgbm_model[3].predict(Tensor(X), device="auto")


def test_no_rows_on_the_device(lightgbm_model, calls):
    model, X = lightgbm_model[3], Tensor(np.zeros((0, 4)))
    assert model.predict(X).array.shape == (0,)
    assert model.predict_interval(X, device="cuda").array.shape == (0, 2)


def test_tuning_and_conformal_intervals(lightgbm_model, calls):
    booster, X, y, _ = lightgbm_model
    model = wrap(booster, Tensor(X), Tensor(y))
    with pytest.warns(UserWarning, match="wrap has seen these rows"):
        model.tune(Tensor(X), Tensor(y), distributions="normal", rho=[0.0, 0.1])
    with pytest.warns(UserWarning, match="has seen these rows"):
        model.conformalize(Tensor(X), Tensor(y))
    assert model.predict_interval(Tensor(X)).array.shape == (ROWS, 2)
