"""crps_callback(): the score of the distributions so far, in the training loop of a booster.

Each iteration uses only its new trees: training rows give the moments of the new leaves, and the rows to score make one
more step of the recursion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from ..boosters import BOOSTERS, booster_of_dataset, completed, read_model, with_precision
from ..boosters.booster import Reading, shows_no_trees
from ..checks import check_rho
from ..errors import UnsupportedModelError, warn
from ..leaves.gather import leaf_moments
from ..leaves.measured import measure_table
from ..leaves.weights import leaf_weights
from ..losses.custom_objectives import CustomObjective, with_diagonal, with_usable_weights
from ..predict.state import default_rho
from ..tables.categories import with_seen_categories
from ..tables.columns import read_weights
from ..tables.labelled import LabelledRows, RawRows, read_labelled
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec
from .follow import Run, ScoredRows

if TYPE_CHECKING:
    from ..distributions import Distribution


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
    objective: CustomObjective | None = None,
    distribution: str = "normal",
    rho: float | None = None,
    name: str = "crps",
    data_name: str = "valid",
    n_jobs: int | None = None,
) -> CRPSCallback:
    """Return a callback that scores validation rows after every iteration of LightGBM or XGBoost.

    The score is the mean CRPS (continuous ranked probability score) of the model so far,
    ``wrap(booster so far, X, y).predict_dist(X_val).crps(y_val).mean()``. The boosters log and record it like their own
    metrics, and can stop early on it.

    If there are other metrics, LightGBM's ``early_stopping(20, first_metric_only=True)`` uses only the CRPS. XGBoost
    runs callbacks in their order: ``EarlyStopping(rounds=20, data_name="valid", metric_name="crps")`` and
    learning-rate schedules must come after this one. Import xgboost before you call `crps_callback`.

    Parameters
    ----------
    X_val, y_val : table and column
        The rows to score; or an lgb.Dataset or xgb.DMatrix without y_val.
    X, y : table and column, optional
        The training rows, for the moments of the leaves; or a data set without y. LightGBM's may be left out if its
        Dataset keeps them (free_raw_data=False).
    sample_weight, init_score : column, optional
        Weights and init_score (XGBoost: base_margin) of training, if it had any.
    sample_weight_val, init_score_val : column, optional
        The same columns of the rows to score.
    objective : callable or torch_objective, optional
        The custom objective of training, if it had one, as in `wrap`.
    distribution : str
        The family that is scored, such as "normal" or "studentt(df=5)".
    rho : float, optional
        Correlation between trees. Default: that of `wrap`, log10(rows) / 100.
    name, data_name : str
        What the score and its data set are called in the boosters' logs.
    n_jobs : int, optional
        Threads; None for all cores.

    Examples
    --------
    >>> score = crps_callback(X_val, y_val, X=X, y=y)
    >>> lgb.train(params | {"metric": "None"}, data, 1000, callbacks=[score, lgb.early_stopping(20)])
    >>> xgb.train(params, data, 1000, callbacks=[score], early_stopping_rounds=20)
    """
    from ..distributions import family

    cls, options = family(distribution)
    if cls.needs_residuals:
        raise ValueError(
            f"distribution {distribution!r} needs residuals of held-out rows: give crps_callback a family such as "
            f"'normal' or 'studentt'"
        )
    rho = None if rho is None else check_rho(rho)
    for rows, labels, names in ((X_val, y_val, "X_val, y_val"), (X, y, "X=X, y=y")):
        if rows is not None and labels is None and not hasattr(rows, "get_label"):
            raise TypeError(f"crps_callback needs labels: give {names}")
        owner = booster_of_dataset(rows)
        if owner is not None and owner.recorder is None:
            raise shows_no_trees(owner.name, "crps_callback")
    if X_val is None or (X is None and y is not None):
        raise TypeError("crps_callback got labels without rows: call crps_callback(X_val, y_val, X=X, y=y)")
    callback = CRPSCallback(
        RawRows(X, y, sample_weight, init_score),
        RawRows(X_val, y_val, sample_weight_val, init_score_val),
        objective,
        (cls, options),
        rho,
        name,
        data_name,
        n_jobs,
    )
    callback.register()
    return callback


@dataclass(eq=False, repr=False)  # compared by identity, and with too many rows to show
class CRPSScorer:
    """A score of the distributions of a booster's trees so far. Every training starts from the beginning.

    `CRPSCallback` adds the boosters' callback classes, `Booster.scoring`, which call `restart` and `scores`.
    """

    training: RawRows
    validation: RawRows
    objective: CustomObjective | None
    family: tuple[type[Distribution], dict[str, Any]]
    rho: float | None
    name: str
    data_name: str
    n_jobs: int | None
    _run: Run | None = None

    def refuse_cv(self) -> NoReturn:
        """Refuse cross-validation, whose folds have training rows of their own."""
        raise UnsupportedModelError(
            "crps_callback does not work in cv, because each fold has its own training rows: call train once per fold, "
            "with a callback for each"
        )

    def restart(self) -> None:
        """Forget the training so far."""
        self._run = None

    def scores(
        self, booster: Any, rounds: int, read_rounds: Callable[[int, int], Reading], also: str | None
    ) -> dict[str, float]:
        """Return the score of each data set after so many iterations of a live model.

        ``read_rounds(begin, end)`` reads the trees of some iterations. `also` names the training data, if it is scored.
        """
        run = self._run
        # LightGBM adds no tree if it finds no split, and it drops a constant first tree when another one follows
        if run is None or (rounds > run.rounds and not run.split):
            run = self._run = self._begin(booster, rounds, also)
        elif rounds > run.rounds:
            run.add(*with_precision(read_rounds(run.rounds, rounds)), self.n_jobs)
            run.rounds = rounds
        return {data_name: scored.crps(run.forest, *self.family) for data_name, scored in run.scored.items()}

    def _begin(self, booster: Any, rounds: int, also: str | None) -> Run:
        """Measure the trees so far, usually one, and compute the margins and variances after them."""
        raw = self.training if self.training.X is not None else replace(self.training, X=booster.train_set)
        forest, spec = read_model(booster)
        spec.check_sequential("crps_callback", "train without dropout, or stop by another metric")
        data = _read(raw, forest, spec, self.objective)
        spec, moments, certificate, *_ = measure_table(
            booster, forest, spec, self.objective, data, self.n_jobs, progress=False
        )
        certified = certificate.status == "certified"
        if not certified:
            warn(f"not certified: {certificate}")
        forest = forest.with_features(with_seen_categories(forest.features, data.rows))
        data = replace(data, rows=data.rows.converted())
        train, from_zero = data.on_margin_scale(spec), spec.from_zero() if spec.folded[0] else spec
        margin = train.initial_margin(forest, from_zero, 0, len(train))
        leaf_moments(forest, from_zero, train, margin=margin, n_jobs=self.n_jobs)
        objective = with_diagonal(spec).objective
        assert objective is not None
        rho = default_rho(moments) if self.rho is None else self.rho
        held_out = _with_own_weights(_read(self.validation, forest, spec, None, "_val"), self.validation, "_val")
        scored = {self.data_name: ScoredRows.before(forest, held_out)}
        if also is not None:
            scored[also] = ScoredRows.before(forest, _with_own_weights(data, raw, ""))
        sd = leaf_weights(forest, spec, moments).sd
        for rows in scored.values():
            rows.add(forest, sd, rho, self.n_jobs)
        return Run(rounds, forest, objective, len(forest.nodes) > 0, rho, train, margin, scored, not certified)

    @classmethod
    def register(cls) -> None:
        """Do nothing; a booster whose callbacks must be instances of its own class overrides this."""


# One class serves all boosters, because their callbacks have methods of different names.
_FORMS = tuple(booster.scoring for booster in reversed(BOOSTERS) if booster.scoring is not None)
CRPSCallback: Any = type("CRPSCallback", (*_FORMS, CRPSScorer), {"__doc__": "A callback that `crps_callback` returns."})


def _read(
    given: RawRows, forest: Forest, spec: TrainingSpec, objective: CustomObjective | None, suffix: str = ""
) -> LabelledRows:
    """Return labelled rows; `suffix` ends the names of the arguments in errors."""
    try:
        raw = with_usable_weights(completed(given), given.sample_weight, objective)
    except TypeError as error:
        raise TypeError(
            "crps_callback needs the training rows and the rows to score, but a data set did not keep its rows: give "
            "tables, crps_callback(X_val, y_val, X=X, y=y), or make it with lgb.Dataset(..., free_raw_data=False)"
        ) from error
    return read_labelled(raw, forest, spec, suffix=suffix)


def _with_own_weights(data: LabelledRows, raw: RawRows, suffix: str) -> LabelledRows:
    """Return the rows as one matrix, with the user's weights, not rounded to the booster's precision."""
    weight = read_weights(f"sample_weight{suffix}", completed(raw).sample_weight, len(data))
    return replace(data, rows=data.rows.converted(), weight=weight)
