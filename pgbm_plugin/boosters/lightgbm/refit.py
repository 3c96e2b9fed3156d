"""The training of a LightGBM model, repeated on other rows."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...arrays import AnyArray, Array
from ...trees.objectives import Gradients
from ...trees.training_spec import TrainingSpec
from ..booster import Train

# Parameters that belong to one run: its files, its machines, its number of trees.
_OF_ONE_RUN = {
    *("data", "valid", "input_model", "output_model", "save_binary", "task"),
    *("machines", "machine_list_filename", "num_machines", "local_listen_port", "time_out", "pre_partition"),
    *("num_iterations", "early_stopping_round"),
}


def refit(model: Any, spec: TrainingSpec) -> Train:
    """Return a function that trains on other rows with the parameters of a live model or of a model file's bytes."""
    try:
        import lightgbm as lgb
    except ImportError as error:
        raise ImportError("cv= trains again, which needs LightGBM: pip install 'pgbm-plugin[lightgbm]'") from error

    text = model if isinstance(model, bytes) else model.model_to_string().encode()
    with TemporaryDirectory() as folder:
        path = Path(folder, "model.txt")
        path.write_bytes(text)
        stored = lgb.Booster(model_file=path).params  # LightGBM 4.0 reads none of them from a text in memory
    params = {name: value for name, value in stored.items() if name not in _OF_ONE_RUN}
    # Dask wrote the parallel learner that its machines shared
    params |= {"verbosity": -1, "tree_learner": "serial"}
    categorical = params.pop("categorical_feature", None) or []

    def train(
        X: Any, y: Array, weight: AnyArray | None, init_score: Array | None, gradients: Gradients | None
    ) -> lgb.Booster:
        own = params if gradients is None else params | {"objective": lambda margin, _: gradients(margin, y)}
        data = lgb.Dataset(X, y, weight=weight, init_score=init_score, categorical_feature=categorical)
        return lgb.train(own, data, len(spec.alpha))

    return train
