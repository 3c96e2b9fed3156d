"""A flavor of MLflow: wrapped models in its tracking, registry and serving, without pickle."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import needing
from .load import load
from .model import ProbabilisticModel
from .version import __version__

with needing("pgbm_plugin.mlflow needs MLflow 3.1 or later: pip install 'pgbm-plugin[mlflow]'"):
    import pandas as pd
    from mlflow import pyfunc
    from mlflow.artifacts import download_artifacts
    from mlflow.models import Model, ModelSignature, infer_signature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

if TYPE_CHECKING:
    from mlflow.models.model import ModelInfo

FLAVOR_NAME = "pgbm_plugin"
_FILE = "model.pgbm"
_QUANTILES = [0.05, 0.5, 0.95]


def save_model(
    model: ProbabilisticModel,
    path: str | os.PathLike[str],
    *,
    input_example: Any = None,
    signature: ModelSignature | None = None,
    pip_requirements: list[str] | None = None,
    mlflow_model: Model | None = None,
    **options: Any,
) -> None:
    """Write a model to a directory, as MLflow does: for `load_model`, ``mlflow.pyfunc`` and servers.

    The directory is complete or not there. The model inside is the file that `ProbabilisticModel.save` writes.

    Parameters
    ----------
    model : ProbabilisticModel
        The model. A pipeline around a booster is not part of its file, and refused.
    path : str or path
        The directory to write; it must not exist, or be empty.
    input_example : table, optional
        A few rows. MLflow stores them, and checks that the columns of later rows have the same names and types.
        MLflow has no categories: columns of these are stored as text, and text becomes categories again.
    signature : ModelSignature, optional
        What MLflow checks, in place of what `input_example` says.
    pip_requirements : list of str, optional
        What a server installs. Default: this version of the package, and of pandas.
    mlflow_model : mlflow.models.Model, optional
        What MLflow knows of the model already.
    **options
        Passed to ``mlflow.pyfunc.save_model``, such as ``metadata``, ``extra_pip_requirements`` or ``code_paths``.
    """
    _check_saved_whole(model)
    target = Path(os.path.abspath(path))
    if (target.is_dir() and any(target.iterdir())) or (target.exists() and not target.is_dir()):
        raise FileExistsError(f"{os.fspath(path)!r} is there already: give a new directory")
    if isinstance(input_example, pd.DataFrame):
        categories = input_example.select_dtypes("category").columns
        input_example = input_example.astype(dict.fromkeys(categories, object))
    if signature is None:
        signature = _signature(model, input_example)
    elif signature.params is None:
        signature = ModelSignature(signature.inputs, signature.outputs, _params())
    if pip_requirements is None and "conda_env" not in options:
        pip_requirements = [f"pgbm-plugin=={__version__}", f"pandas=={pd.__version__}"]
    described = Model() if mlflow_model is None else mlflow_model
    described.add_flavor(FLAVOR_NAME, data=f"data/{_FILE}", pgbm_plugin_version=__version__)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder:
        file, whole = Path(folder, _FILE), Path(folder, "whole")
        model.save(file)
        pyfunc.save_model(
            str(whole),
            loader_module=__name__,
            data_path=str(file),
            mlflow_model=described,
            input_example=input_example,
            signature=signature,
            pip_requirements=pip_requirements,
            **options,
        )
        if target.is_dir():
            target.rmdir()  # it is empty, and Windows does not rename to it
        whole.rename(target)


def log_model(
    model: ProbabilisticModel,
    name: str | None = None,
    *,
    input_example: Any = None,
    signature: ModelSignature | None = None,
    pip_requirements: list[str] | None = None,
    registered_model_name: str | None = None,
    **options: Any,
) -> ModelInfo:
    """Log a model to the current run of MLflow, and register it if it is given a `registered_model_name`.

    Parameters
    ----------
    model, input_example, signature, pip_requirements
        As in `save_model`.
    name : str, optional
        Name of the logged model.
    registered_model_name : str, optional
        Name in MLflow's registry, where this becomes the next version.
    **options
        Passed to ``mlflow.models.Model.log`` or `save_model`, such as ``tags``, ``params`` or ``metadata``.
    """
    _check_saved_whole(model)
    return Model.log(
        artifact_path=None,
        name=name,
        flavor=sys.modules[__name__],
        registered_model_name=registered_model_name,
        model=model,
        input_example=input_example,
        signature=signature,
        pip_requirements=pip_requirements,
        **options,
    )


def load_model(
    model_uri: str, dst_path: str | None = None, *, device: str = "auto", n_jobs: int | None = None
) -> ProbabilisticModel:
    """Load a model that `save_model` or `log_model` wrote.

    Parameters
    ----------
    model_uri : str
        Where it is: a directory, or an address of MLflow such as "models:/prices/3".
    dst_path : str, optional
        Directory to download it to. Default: a temporary one.
    device, n_jobs
        As in `pgbm_plugin.load`.
    """
    folder = download_artifacts(artifact_uri=os.fspath(model_uri), dst_path=dst_path)
    flavors = Model.load(folder).flavors
    if FLAVOR_NAME not in flavors:
        raise ValueError(
            f"{os.fspath(model_uri)!r} is not a model of pgbm_plugin.mlflow, but of {', '.join(sorted(flavors))}"
        )
    return load(Path(folder, flavors[FLAVOR_NAME]["data"]), device=device, n_jobs=n_jobs)


class _Predictor:
    """A model as MLflow calls it: a frame for a frame."""

    def __init__(self, model: ProbabilisticModel):
        self.model = model

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """Return the columns of `ProbabilisticModel.predict_frame`: quantiles, and the ends of one interval."""
        asked = params or {}
        coverage = asked.get("coverage")
        return self.model.predict_frame(
            self._with_categories(model_input),
            quantiles=asked.get("quantiles", _QUANTILES),
            intervals=() if coverage is None else [coverage],
        )

    def _with_categories(self, X: Any) -> Any:
        """Return a frame whose columns of text are categories, which MLflow does not know."""
        features = self.model.state.columns
        if not isinstance(X, pd.DataFrame) or not (features.categories or features.category_hash):
            return X
        names = set(X.select_dtypes(["object", "string"]).columns)
        names |= {X.columns[j] for j in features.category_columns or () if j < X.shape[1]}
        return X.astype(dict.fromkeys(names, "category"))

    def get_raw_model(self) -> ProbabilisticModel:
        """Return the model; a method of this name of MLflow's wrapper calls it."""
        return self.model


def _load_pyfunc(data_path: str) -> _Predictor:
    """Return what ``mlflow.pyfunc.load_model`` wraps; MLflow calls it by this name."""
    return _Predictor(load(data_path))


def _check_saved_whole(model: Any) -> None:
    """Refuse what is no model, and a model whose file would be a part of it."""
    if not isinstance(model, ProbabilisticModel):
        hint = "give its model_" if hasattr(model, "model_") else "make one with wrap"
        raise TypeError(f"a ProbabilisticModel is needed, not {type(model).__name__}: {hint}")
    around = model.surroundings.described
    if around:
        raise ValueError(
            f"the file of a model does not hold what is around its booster ({around}), so that MLflow could not "
            f"predict with it: wrap the booster alone, with rows and outcomes as it sees them"
        )


def _signature(model: ProbabilisticModel, example: Any) -> ModelSignature:
    if example is None:
        return ModelSignature(None, Schema([ColSpec("double", name) for name in ("mean", "std")]), _params())
    found = infer_signature(example, _Predictor(model).predict(example))
    return ModelSignature(found.inputs, found.outputs, _params())


def _params() -> ParamSchema:
    """Return what ``predict(rows, params=...)`` takes."""
    return ParamSchema([ParamSpec("quantiles", "double", _QUANTILES, (-1,)), ParamSpec("coverage", "double", None)])
