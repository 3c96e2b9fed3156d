"""The choice of a device where there is none but the CPU; what CUDA would cost to import is not paid."""

from __future__ import annotations

import subprocess
import sys

import lightgbm as lgb
import pytest

from pgbm_plugin import device, wrap
from pgbm_plugin.device import check_device, in_kind_of, to_host
from pgbm_plugin.tables import cuda_rows
from pgbm_plugin.tables.cuda_rows import CudaRows, read_rows_for


@pytest.fixture(scope="module")
def trained(numeric):
    X, y = numeric
    booster = lgb.train({"verbose": -1}, lgb.Dataset(X, y), 3)
    return booster, X, y, wrap(booster, X, y)


@pytest.fixture
def without_gpu(monkeypatch):
    """numba-cuda is there, a GPU is not."""
    import numba.cuda

    monkeypatch.setattr(device, "find_spec", lambda name: object())
    monkeypatch.setattr(numba.cuda, "is_available", lambda: False)


def test_without_the_package(trained, monkeypatch):
    booster, X, y, model = trained
    monkeypatch.setattr(device, "find_spec", lambda name: None)
    for call in (
        lambda: wrap(booster, X, y, device="cuda"),
        lambda: model.predict(X, device="cuda"),
        lambda: model.predict_dist(X, device="cuda:1"),
        lambda: model.predict_interval(X, device="cuda"),
        lambda: model.tune(X, y, device="cuda"),
        lambda: model.conformalize(X, y, device="cuda"),
    ):
        with pytest.raises(RuntimeError, match=r"needs the package numba-cuda: pip install 'pgbm-plugin\[cuda\]'"):
            call()


def test_without_a_gpu(trained, without_gpu):
    booster, X, y, _ = trained
    with pytest.raises(RuntimeError, match=r"no usable GPU.*nvidia-smi.*pip install.*device='cpu'"):
        wrap(booster, X, y, device="cuda")


@pytest.mark.parametrize("wrong", ["gpu", "cuda:", "cuda:-1", "CUDA", "cuda:x", "", None, 0])
def test_no_device(wrong, trained):
    with pytest.raises(ValueError, match="device must be 'auto', 'cpu', 'cuda' or 'cuda:1'"):
        check_device(wrong)
    if wrong is not None:  # the model's own, in predictions
        with pytest.raises(ValueError, match="device must be"):
            trained[3].predict(trained[1], device=wrong)


def test_auto_sends_large_tables_to_a_gpu_that_is_there(trained, monkeypatch):
    import numba.cuda

    _, X, _, model = trained
    assert not isinstance(read_rows_for(X, model.forest, "auto"), CudaRows)
    monkeypatch.setattr(cuda_rows, "_LARGE", 1)
    monkeypatch.setattr(device, "find_spec", lambda name: object())
    monkeypatch.setattr(numba.cuda, "is_available", lambda: False)
    assert not isinstance(read_rows_for(X, model.forest, "auto"), CudaRows)
    monkeypatch.setattr(numba.cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda_rows, "gpu_number", lambda name: 0)
    assert isinstance(read_rows_for(X, model.forest, "auto"), CudaRows)
    assert not isinstance(read_rows_for(X, model.forest, "cpu"), CudaRows)


def test_tables_of_the_host_stay_as_they_are(trained):
    _, X, y, _ = trained
    assert to_host(X) is X
    assert in_kind_of(X, y) is y


def test_cuda_is_not_imported():
    """Neither by the package nor by a model that stays on the CPU."""
    code = """
import sys
import numpy as np, lightgbm as lgb
from pgbm_plugin import wrap
X = np.random.default_rng(0).normal(size=(200, 3))
model = wrap(lgb.train({"verbose": -1}, lgb.Dataset(X, X[:, 0]), 2), X, X[:, 0])
model.predict_dist(X)
assert "numba.cuda.cudadrv.driver" not in sys.modules and "pgbm_plugin.kernels.cuda" not in sys.modules
assert "torch" not in sys.modules and "cupy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
