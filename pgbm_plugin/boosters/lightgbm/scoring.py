"""The form of LightGBM's callbacks, for `crps_callback`."""

from __future__ import annotations

import sys
from typing import Any

from ...errors import UnsupportedModelError, warn
from ..booster import Reading
from .model import read


class LightGBMScoring:
    """Answers LightGBM's callback protocol; the class that mixes it in brings `scores`, `restart` and the names."""

    name: str
    data_name: str

    @property
    def order(self) -> int:
        """Return the callback's place: before those that read scores, which LightGBM numbers from -len(callbacks) on.

        A property, because LightGBM looks for an order in the object's own __dict__, and else writes one into it.
        """
        return -500

    def __call__(self: Any, env: Any) -> None:
        """Score an iteration of LightGBM, and put the score in front of its own metrics."""
        model, results = env.model, env.evaluation_result_list
        if hasattr(model, "boosters"):
            self.refuse_cv()
        first = env.iteration == env.begin_iteration
        if first:
            self.restart()
            _check_training(self, model, continued=env.begin_iteration > 0)
        shown = {result[0] for result in results}
        # LightGBM's early stopping expects every metric on every data set: beside others, score the training rows, too
        training = model._train_data_name
        also = training if len(shown) > 1 and training in shown - {self.data_name} else None

        def read_rounds(begin: int, end: int) -> Reading:
            return read(model.model_to_string(start_iteration=begin, num_iteration=end - begin), model.params)

        scores = self.scores(model, model.current_iteration(), read_rounds, also)
        entry = getattr(sys.modules["lightgbm"], "EvalResult", lambda *fields: fields)  # tuples, before LightGBM 4.7
        # in front, because early stopping may look at the first metric only
        results[:0] = [entry(data_name, self.name, value, False) for data_name, value in scores.items()]
        if first and len(results) % len({result[1] for result in results}):
            warn(
                f"LightGBM's early_stopping needs every metric on every data set, and {self.name} is not known on "
                f"{', '.join(sorted(shown - {*scores}))}: leave these out of valid_sets, or set metric='None'",
            )


def _check_training(callback: Any, model: Any, continued: bool) -> None:
    """Refuse, before the work, a training whose trees cannot be scored."""
    if "\naverage_output\n" in model.model_to_string(num_iteration=1):
        raise UnsupportedModelError(
            "boosting=rf: a forest's trees are averaged, so that no iteration is one to stop at; wrap the trained "
            "model, or train with boosting=gbdt"
        )
    tables = callback.training.X, callback.validation.X
    if continued and any(X is None or hasattr(X, "get_label") for X in tables):
        raise UnsupportedModelError(
            "continued training (init_model) hides the old trees in the init_score of a Dataset: give crps_callback "
            "tables as X and X_val, not Datasets"
        )
