"""The form of XGBoost's callbacks, for `crps_callback`."""

from __future__ import annotations

import sys
from typing import Any

from ...errors import UnsupportedModelError
from ..booster import Reading
from .model import read_live


class _Never:
    """Does nothing before an iteration: XGBoost calls it, and stops if it returns True; LightGBM reads it as a flag."""

    def __bool__(self) -> bool:
        return False

    def __call__(self, *args: Any) -> bool:
        return False


class XGBoostScoring:
    """Answers XGBoost's callback protocol; the class that mixes it in brings `scores`, `restart` and the names."""

    before_iteration = _Never()

    @classmethod
    def register(cls) -> None:
        """Make the class one of XGBoost's callbacks, which must be instances of its own class."""
        if "xgboost" in sys.modules:
            sys.modules["xgboost"].callback.TrainingCallback.register(cls)

    def before_training(self: Any, model: Any) -> Any:
        """Refuse, before XGBoost's first iteration, a training that cannot be scored."""
        if hasattr(model, "cvfolds"):
            self.refuse_cv()
        if isinstance(sys.modules["xgboost"].callback.CallbackContainer([]).callbacks, set):
            raise UnsupportedModelError(
                "crps_callback: XGBoost before 3.2 calls callbacks in no order, so that early stopping may come before "
                "the score: pip install 'xgboost>=3.2'"
            )
        if self.training.X is None:
            raise TypeError(
                "crps_callback needs the rows of training, which XGBoost does not show to callbacks: give X= and y=, "
                "or X=dtrain"
            )
        self.restart()
        return model

    def after_iteration(self: Any, model: Any, epoch: int, evals_log: dict[str, dict[str, list[float]]]) -> bool:
        """Score an iteration of XGBoost, before callbacks later in the list; True would stop training."""

        def read_rounds(begin: int, end: int) -> Reading:
            return read_live(model[begin:end])

        scores = self.scores(model, model.num_boosted_rounds(), read_rounds, None)
        evals_log.setdefault(self.data_name, {}).setdefault(self.name, []).append(scores[self.data_name])
        return False

    def after_training(self: Any, model: Any) -> Any:
        """Forget the rows after XGBoost's last iteration."""
        self.restart()
        return model
