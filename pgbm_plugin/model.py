"""ProbabilisticModel: a wrapped booster."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .adapters import read_dataset
from .certificate import Certificate
from .columns import check_levels, read_column
from .forest import Forest
from .moments import LeafMoments
from .propagate import LeafWeights, margins, paper_leaf_values, response_variance, to_response
from .rows import Rows, read_rows
from .training import TrainingSpec

if TYPE_CHECKING:
    from .distributions import Distribution


class ProbabilisticModel:
    """Predicts a distribution per row, around the booster's own prediction. Made by `wrap`.

    Attributes
    ----------
    forest : the trees.
    spec : how they were grown.
    moments : sample moments of gradient and hessian per leaf.
    weights : mean and variance of each leaf's weight.
    certificate : whether the moments are those of training.
    rho : correlation between successive trees (paper eq. 12), in [-1, 1]; log10(rows) / 100 unless set.
    distribution : name of the family that `predict_dist` returns unless told otherwise.
    """

    def __init__(
        self,
        forest: Forest,
        spec: TrainingSpec,
        moments: LeafMoments,
        weights: LeafWeights,
        certificate: Certificate,
        *,
        mean: Literal["booster", "pgbm"] = "booster",
        n_jobs: int | None = None,
    ):
        self.forest = forest
        self.spec = spec
        self.moments = moments
        self.weights = weights
        self.certificate = certificate
        self.n_jobs = n_jobs
        self.rho = math.log10(moments.rows) / 100.0
        self.distribution = "normal"
        self._leaf_value = forest.leaf_value if mean == "booster" else paper_leaf_values(forest, spec, weights)

    @property
    def rho(self) -> float:
        return self._rho

    @rho.setter
    def rho(self, value: float) -> None:
        self._rho = _check_rho(value)

    @property
    def distribution(self) -> str:
        return self._distribution

    @distribution.setter
    def distribution(self, name: str) -> None:
        from .distributions import family

        family(name)  # raises if there is none
        self._distribution = name

    def predict(self, X: Any, return_std: bool = False, *, init_score: Any = None) -> Any:
        """What the booster predicts, bit for bit; with ``return_std=True`` the pair (mean, std).

        `init_score` is per row, for models trained with LightGBM's init_score or XGBoost's base_margin.
        """
        if return_std:
            mean, variance = self._moments(X, None, init_score)
            return mean, np.sqrt(variance)
        rows, score = self._read(X, init_score)
        margin, _ = margins(self.forest, rows, self._leaf_value, score, n_jobs=self.n_jobs)
        return to_response(self.forest, margin)

    def predict_dist(
        self,
        X: Any,
        distribution: str | None = None,
        rho: float | None = None,
        device: str | None = None,
        *,
        init_score: Any = None,
    ) -> Distribution:
        """A distribution per row: ``d.mean()``, ``d.std()``, ``d.ppf([.05, .95])``, ``d.rvs(100)``, ``d.crps(y)``..."""
        if device not in (None, "auto", "cpu"):
            raise ValueError(f"device must be 'auto' or 'cpu', not {device!r}: this version has CPU kernels only")
        from .distributions import family

        chosen, options = family(distribution or self.distribution)
        mean, variance = self._moments(X, rho, init_score)
        return chosen.from_moments(mean.astype(np.float64), variance, **options)

    def predict_var(self, X: Any, *, init_score: Any = None) -> NDArray[np.float64]:
        """(n,) predictive variances."""
        return self._moments(X, None, init_score)[1]

    def predict_quantiles(self, X: Any, q: ArrayLike, *, init_score: Any = None) -> NDArray[np.float64]:
        """(n, k) quantiles at k levels in (0, 1)."""
        levels = np.atleast_1d(check_levels("q", q))
        return self.predict_dist(X, init_score=init_score).ppf(levels)

    def predict_interval(self, X: Any, coverage: float = 0.9, *, init_score: Any = None) -> NDArray[np.float64]:
        """(n, 2) lower and upper end of the central interval."""
        check_levels("coverage", coverage)
        return np.stack(self.predict_dist(X, init_score=init_score).interval(coverage), axis=1)

    def _read(self, X: Any, init_score: Any) -> tuple[Rows, NDArray[np.float64] | None]:
        found = read_dataset(X)
        if found is not None:
            X, init_score = found.X, found.init_score if init_score is None else init_score
        rows = read_rows(X, self.forest.features)
        return rows, read_column("init_score", init_score, len(rows))

    def _moments(self, X: Any, rho: float | None, init_score: Any) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Mean and variance of the response."""
        rho = self.rho if rho is None else _check_rho(rho)
        rows, score = self._read(X, init_score)
        margin, variance = margins(self.forest, rows, self._leaf_value, score, self.weights.sd, rho, n_jobs=self.n_jobs)
        assert variance is not None
        prediction = to_response(self.forest, margin)
        return prediction, response_variance(self.forest, margin, prediction, variance)

    def __repr__(self) -> str:
        objective = self.spec.objective.name if self.spec.objective else "custom"
        return (
            f"ProbabilisticModel: {self.forest.booster}, {objective}, {self.forest.n_trees} trees, "
            f"{self.forest.n_leaves} leaves\n"
            f"  rows seen:    {self.moments.rows}\n"
            f"  certificate:  {self.certificate}\n"
            f"  rho:          {self.rho:.4g}\n"
            f"  distribution: {self.distribution}"
        )


def _check_rho(value: float) -> float:
    value = float(value)
    if not -1.0 <= value <= 1.0:
        raise ValueError(f"rho must lie in [-1, 1], not {value}")
    return value
