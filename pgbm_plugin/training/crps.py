"""crps_callback(): the score of the distributions so far, in the training loop of either booster.

Every iteration walks its new tree alone: training rows give the moments of its leaves at the margins before it, and the
rows that are scored take one step of the recursion.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..boosters import TrainingData, read_dataset, read_model
from ..boosters.lightgbm import model as lightgbm
from ..errors import UnsupportedModelError, warn
from ..leaves.moments import LabelledRows, leaf_moments
from ..tables.columns import read_column, read_weights
from ..tables.labelled import as_held
from ..tables.rows import read_rows
from ..trees.forest import Forest
from ..trees.objectives import Gradients
from ..trees.training_spec import TrainingSpec
from ..wrap import wrap
from .follow import FollowedRows, Run, ScoredRows

if TYPE_CHECKING:
    from ..distributions import Distribution
    from ..losses.torch_objective import TorchObjective

_NO_CV = (
    "crps_callback does not work in cv, whose folds have training rows of their own: call train once per fold, with a "
    "callback for each"
)


def crps_callback(
    X_val: Any,
    y_val: Any = None,
    *,
    X: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    init_score: Any = None,
    sample_weight_val: Any = None,
    init_score_val: Any = None,
    objective: Gradients | TorchObjective | None = None,
    distribution: str = "normal",
    rho: float | None = None,
    name: str = "crps",
    data_name: str = "valid",
    n_jobs: int | None = None,
) -> CRPSCallback:
    """The mean CRPS on validation rows after every iteration, for the callbacks of LightGBM and XGBoost.

    It is ``wrap(booster so far, X, y).predict_dist(X_val).crps(y_val).mean()``. The boosters log and record it like a
    metric of theirs, and stop early on it:

    >>> score = crps_callback(X_val, y_val, X=X, y=y)
    >>> lgb.train(params | {"metric": "None"}, data, 1000, callbacks=[score, lgb.early_stopping(20)])
    >>> xgb.train(params, data, 1000, callbacks=[score], early_stopping_rounds=20)

    With metrics besides, LightGBM's ``early_stopping(20, first_metric_only=True)`` looks at the CRPS alone. XGBoost
    runs callbacks in their order: ``EarlyStopping(rounds=20, data_name="valid", metric_name="crps")`` and learning-rate
    schedules come after this one, which is to be made after ``import xgboost``.

    Parameters
    ----------
    X_val, y_val : the rows to score; or an lgb.Dataset or xgb.DMatrix, which bring their own y.
    X, y : the rows of training, likewise, for the moments of the leaves. LightGBM's may be left out if its Dataset
        keeps them (free_raw_data=False).
    sample_weight, init_score : those of training, if it had any; init_score is XGBoost's base_margin.
    sample_weight_val, init_score_val : the same of the rows to score.
    objective : the custom objective of training, if it had one, as in `wrap`.
    distribution : the family that is scored, such as "normal" or "studentt(df=5)".
    rho : correlation between trees; None for the default of `wrap`, log10(rows) / 100.
    name, data_name : how the score and its data set are called in the boosters' logs.
    n_jobs : threads; None for all cores.
    """
    from ..distributions import family

    cls, options = family(distribution)
    if cls.needs_residuals:
        raise ValueError(
            f"distribution {distribution!r} is made from residuals of held-out rows, not from moments alone: give "
            f"crps_callback a family such as 'normal' or 'studentt'"
        )
    if rho is not None and not -1.0 <= rho <= 1.0:
        raise ValueError(f"rho must lie in [-1, 1], not {rho}")
    for rows, labels, names in ((X_val, y_val, "X_val, y_val"), (X, y, "X=X, y=y")):
        if rows is not None and labels is None and not hasattr(rows, "get_label"):
            raise TypeError(f"crps_callback needs labels: give {names}")
    if X_val is None or (X is None and y is not None):
        raise TypeError("crps_callback got labels without rows: crps_callback(X_val, y_val, X=X, y=y)")
    if "xgboost" in sys.modules:  # whose callbacks must be instances of its own class
        sys.modules["xgboost"].callback.TrainingCallback.register(CRPSCallback)
    training = TrainingData(X, y, sample_weight, init_score)
    validation = TrainingData(X_val, y_val, sample_weight_val, init_score_val)
    return CRPSCallback(training, validation, objective, (cls, options), rho, name, data_name, n_jobs)


class _Never:
    """XGBoost calls `before_iteration` and stops if it returns True; LightGBM takes the attribute itself for a flag."""

    def __bool__(self) -> bool:
        return False

    def __call__(self, *args: Any) -> bool:
        return False


@dataclass(eq=False, repr=False)  # told apart by identity, and of too many rows to show
class CRPSCallback:
    """A callback of both boosters, made by `crps_callback`. It starts anew with every training."""

    training: TrainingData
    validation: TrainingData
    objective: Gradients | TorchObjective | None
    family: tuple[type[Distribution], dict[str, Any]]
    rho: float | None
    name: str
    data_name: str
    n_jobs: int | None
    order: int = 5  # LightGBM's log_evaluation has 10, record_evaluation 20, early_stopping 30
    before_iteration: _Never = field(default_factory=_Never)
    _run: Run | None = None

    def __call__(self, env: Any) -> None:
        """LightGBM calls it after an iteration."""
        booster, results = env.model, env.evaluation_result_list
        if hasattr(booster, "boosters"):
            raise UnsupportedModelError(_NO_CV)
        if env.iteration == env.begin_iteration:
            self._run = None
            self._check_lightgbm(booster, continued=env.begin_iteration > 0)
        shown = {result[0] for result in results}
        # LightGBM's early stopping expects every metric on every data set: beside others, score the training rows, too
        training = booster._train_data_name
        also = training if len(shown) > 1 and training in shown - {self.data_name} else None

        def read(begin: int, end: int) -> tuple[Forest, TrainingSpec]:
            text = booster.model_to_string(start_iteration=begin, num_iteration=end - begin)
            return lightgbm.read(text, booster.params)

        scores = self._scores(booster, booster.current_iteration(), read, also)
        entry = getattr(sys.modules["lightgbm"], "EvalResult", lambda *fields: fields)  # tuples, before LightGBM 4.7
        # in front, because early stopping may look at the first metric only
        results[:0] = [entry(data_name, self.name, value, False) for data_name, value in scores.items()]
        if env.iteration == env.begin_iteration and len(results) % len({result[1] for result in results}):
            warn(
                f"LightGBM's early_stopping needs every metric on every data set, and {self.name} is not known on "
                f"{', '.join(sorted(shown - {*scores}))}: leave these out of valid_sets, or set metric='None'",
            )

    def before_training(self, model: Any) -> Any:
        """XGBoost calls it first."""
        if hasattr(model, "cvfolds"):
            raise UnsupportedModelError(_NO_CV)
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
        self._run = None
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: dict[str, dict[str, list[float]]]) -> bool:
        """XGBoost calls it after an iteration, before those that come later in the list; True would stop training."""

        def read(begin: int, end: int) -> tuple[Forest, TrainingSpec]:
            return read_model(model[begin:end])

        scores = self._scores(model, model.num_boosted_rounds(), read, None)
        evals_log.setdefault(self.data_name, {}).setdefault(self.name, []).append(scores[self.data_name])
        return False

    def after_training(self, model: Any) -> Any:
        """XGBoost calls it last."""
        self._run = None
        return model

    def _check_lightgbm(self, booster: Any, continued: bool) -> None:
        """Refuse, before the work, what `wrap` cannot know."""
        if "\naverage_output\n" in booster.model_to_string(num_iteration=1):
            raise UnsupportedModelError(
                "boosting=rf: a forest's trees are averaged, so that no iteration is one to stop at; wrap the trained "
                "model, or train with boosting=gbdt"
            )
        tables = self.training.X, self.validation.X
        if continued and any(X is None or hasattr(X, "get_label") for X in tables):
            raise UnsupportedModelError(
                "continued training (init_model) hides the old trees in the init_score of a Dataset: give "
                "crps_callback tables as X and X_val, not Datasets"
            )

    def _scores(
        self, booster: Any, rounds: int, read: Callable[[int, int], tuple[Forest, TrainingSpec]], also: str | None
    ) -> dict[str, float]:
        """Data set -> score after so many rounds; `read` reads the trees of some of them."""
        run = self._run
        # LightGBM adds no tree where it finds no split, and a first tree that is a constant counts only while alone
        if run is None or (rounds > run.rounds and not run.split):
            run = self._run = self._begin(booster, rounds, also)
        elif rounds > run.rounds:
            run.add(*read(run.rounds, rounds), self.n_jobs)
            run.rounds = rounds
        return {data_name: scored.crps(run.forest, *self.family) for data_name, scored in run.scored.items()}

    def _begin(self, booster: Any, rounds: int, also: str | None) -> Run:
        """Wrap the trees so far, as a rule one, and bring all rows to where these leave them."""
        given = self.training if self.training.X is not None else replace(self.training, X=booster.train_set)
        training, validation = _with_dataset(given), _with_dataset(self.validation)
        first = wrap(
            booster,
            given.X,
            given.y,
            sample_weight=given.sample_weight,
            init_score=given.init_score,
            objective=self.objective,
            n_jobs=self.n_jobs,
        )
        forest, spec = first.forest, first.spec
        data, held_out = _labelled_rows(training, "", forest), _labelled_rows(validation, "_val", forest)
        from_zero = spec.from_zero() if spec.folded[0] else spec
        start = data.initial_margin(forest, from_zero, 0, len(data))
        train = FollowedRows(data.rows, data.y, as_held(data.weight), data.init_score, start)
        leaf_moments(forest, from_zero, train, n_jobs=self.n_jobs)
        objective = spec.objective
        assert objective is not None
        if objective.diagonal is not None:
            objective = replace(objective, gradients=objective.diagonal)
        rho = first.default_rho if self.rho is None else self.rho
        scored = {self.data_name: ScoredRows.before(forest, held_out)}
        if also is not None:
            scored[also] = ScoredRows.before(forest, data)
        for rows in scored.values():
            rows.add(forest, first.weights.sd, rho, self.n_jobs)
        told = first.certificate.status != "certified"
        return Run(rounds, forest, objective, not spec.constant.all(), rho, train, scored, told)


def _with_dataset(given: TrainingData) -> TrainingData:
    """What was given, completed by what a booster's own data set holds."""
    try:
        found = read_dataset(given.X)
    except TypeError as error:
        raise TypeError(
            "crps_callback needs rows, of training and to score, that its data set does not give back: give tables, "
            "crps_callback(X_val, y_val, X=X, y=y), or make it with lgb.Dataset(..., free_raw_data=False)"
        ) from error
    return given if found is None else found.replaced_by(given.y, given.sample_weight, given.init_score)


def _labelled_rows(given: TrainingData, suffix: str, forest: Forest) -> LabelledRows:
    """Checked, with the rows as one matrix for many passes; `suffix` is that of the arguments' names."""
    rows = read_rows(given.X, forest.features).converted()
    y = read_column(f"y{suffix}", given.y, len(rows))
    if y is None:
        raise ValueError(f"the data set X{suffix} has no labels; give y{suffix}")
    weight = read_weights(f"sample_weight{suffix}", given.sample_weight, len(rows))
    return LabelledRows(rows, y, weight, read_column(f"init_score{suffix}", given.init_score, len(rows)))
