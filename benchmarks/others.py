"""Other packages that take part where they are installed: none is needed, and none is installed by the project."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from .models import Case, Contender, train

NAMES = ("lleaves", "catboost", "ngboost", "pgbm")
SAME_TREES = {"ONNX Runtime": ("onnxruntime", "onnxmltools"), "oneDAL": ("daal4py",)}
"""Runtimes of other packages, and the modules they need: pip install onnxruntime onnxmltools scikit-learn-intelex."""

# Only their prediction is timed, and some train for minutes on more.
_TRAINING_ROWS = 2_000


def on_same_trees(it: Contender, threads: int) -> dict[str, Callable[[np.ndarray], Any]]:
    """Return predictors of the mean with the very trees of LightGBM or XGBoost, and name those not installed."""
    makers = {"ONNX Runtime": _onnx_runtime, "oneDAL": _onedal}
    ready: dict[str, Callable[[np.ndarray], Any]] = {}
    if it.booster not in ("LightGBM", "XGBoost"):
        return ready
    expected = it.predict(it.X[:1000])
    for name, packages in SAME_TREES.items():
        if not _is_here(name, packages):
            continue
        try:
            predict = makers[name](it, threads)
            difference = float(np.max(np.abs(np.ravel(predict(it.X[:1000])) - expected)))
            if difference > 1e-3 * np.std(expected):  # they compare in float32, which sends few rows another way
                raise ValueError(f"its predictions differ by {difference:.3g}")
            ready[name] = predict
        except Exception as error:  # a package that does not run beside the others is no reason to stop
            print(f"{name} takes no part for {it.booster}, {it.case}: {type(error).__name__}: {error}")
    return ready


@cache
def _is_here(name: str, packages: tuple[str, ...]) -> bool:
    """Tell whether packages are installed, and say once which are not."""
    missing = [package for package in packages if not find_spec(package)]
    if missing:
        print(f"{name} takes no part: {', '.join(missing)} not installed")
    return not missing


def _onnx_runtime(it: Contender, threads: int) -> Callable[[np.ndarray], Any]:
    """The trees as an ONNX graph, in float32."""
    import onnxmltools
    import onnxruntime
    from onnxmltools.convert.common.data_types import FloatTensorType

    convert = onnxmltools.convert_lightgbm if it.booster == "LightGBM" else onnxmltools.convert_xgboost
    graph = convert(it.trained, initial_types=[("x", FloatTensorType([None, it.case.features]))])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
    # rows are converted here, because users have them in float64
    return lambda X: session.run(None, {"x": X.astype(np.float32, copy=False)})[0]


def _onedal(it: Contender, threads: int) -> Callable[[np.ndarray], Any]:
    import daal4py

    daal4py.daalinit(threads)
    return daal4py.mb.convert_model(it.trained).predict


def contenders(case: Case, X_new: np.ndarray, threads: int) -> dict[str, Callable[[], Any]]:
    """Return the contenders that are installed, ready to predict `X_new`."""
    X, y = case.rows(_TRAINING_ROWS, 0)
    makers = {"lleaves": _lleaves, "catboost": _catboost, "ngboost": _ngboost, "pgbm": _pgbm}
    ready = {}
    for name in NAMES:
        if find_spec(name):
            try:
                ready[name] = makers[name](case, X, y, X_new, threads)
                ready[name]()
            except Exception as error:  # a package that does not run beside the others is no reason to stop
                ready.pop(name, None)
                print(f"{name} does not run here: {type(error).__name__}: {error}")
    return ready


def _lleaves(case: Case, X: np.ndarray, y: np.ndarray, X_new: np.ndarray, threads: int) -> Callable[[], Any]:
    """The same trees compiled by LLVM; the mean only."""
    import lleaves

    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.txt"
        train("LightGBM", case, X, y, 2).save_model(path)
        model = lleaves.Model(model_file=str(path))
        model.compile()
    return lambda: model.predict(X_new, n_jobs=threads)


def _catboost(case: Case, X: np.ndarray, y: np.ndarray, X_new: np.ndarray, threads: int) -> Callable[[], Any]:
    """Symmetric trees with a mean and a variance a leaf; about as many leaves."""
    import catboost

    depth = int(np.log2(case.leaves + 1))
    model = catboost.CatBoostRegressor(
        iterations=case.trees,
        depth=depth,
        loss_function="RMSEWithUncertainty",
        verbose=False,
        allow_writing_files=False,
    ).fit(X, y)
    return lambda: model.predict(X_new, thread_count=threads)


def _ngboost(case: Case, X: np.ndarray, y: np.ndarray, X_new: np.ndarray, threads: int) -> Callable[[], Any]:
    """Two depth-three scikit-learn trees an iteration, its default."""
    from ngboost import NGBRegressor

    model = NGBRegressor(n_estimators=case.trees, verbose=False).fit(X, y)
    return lambda: model.pred_dist(X_new)


def _pgbm(case: Case, X: np.ndarray, y: np.ndarray, X_new: np.ndarray, threads: int) -> Callable[[], Any]:
    """The paper authors' package, its scikit-learn flavour."""
    from pgbm.sklearn import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(max_iter=case.trees, max_leaf_nodes=case.leaves, early_stopping=False)
    model.fit(X, y)
    return lambda: model.predict(X_new, return_std=True)
