"""PGBMProbaRegressor: a probabilistic regressor of skpro; and distributions as skpro's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .checks import Variance
from .distributions import Clipped, Discrete, Distribution, Empirical, Laplace, Mapped, Normal, Snapped
from .errors import needing
from .sklearn import PGBMRegressor

with needing("pgbm_plugin.skpro needs skpro: pip install 'pgbm-plugin[skpro]'"):
    import pandas as pd
    import skpro.distributions as theirs
    from skpro.distributions.base import BaseDistribution
    from skpro.regression.base import BaseProbaRegressor

if TYPE_CHECKING:
    from .arrays import Array
    from .calibration.tune_result import TuneResult
    from .model import ProbabilisticModel

# Practically nothing lies so many standard deviations above the mean, whatever the family: at most a share of 1e-8.
_FAR = 1e4
# Families that skpro scores exactly and fast, and with the same parameters.
_THEIRS: dict[type[Distribution], Any] = {Normal: theirs.Normal, Laplace: theirs.Laplace}


class PGBMProbaRegressor(BaseProbaRegressor):  # type: ignore[misc]
    """Probabilistic regressor of skpro that fits a booster's regressor and calibrates it, as `PGBMRegressor` does.

    It works in skpro's pipelines, searches and benchmarks, and in those forecasters of sktime that take skpro's
    regressors. `predict` returns what the booster predicts. `update` adds rows without training.

    Parameters
    ----------
    estimator : regressor of a booster, or FrozenEstimator, optional
        As in `PGBMRegressor`, which has all other parameters as well.
    rho, distribution, variance, cv, tune_fraction, conformal_fraction, shuffle, random_state : optional
        As in `PGBMRegressor`.

    Attributes
    ----------
    regressor_ : PGBMRegressor
        The fitted regressor.
    model_ : ProbabilisticModel
        Its wrapped booster.
    tune_result_ : TuneResult or None
        Its result of tuning.

    Examples
    --------
    >>> from pgbm_plugin.skpro import PGBMProbaRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = PGBMProbaRegressor(HistGradientBoostingRegressor(max_iter=20)).fit(X, y)
    >>> distribution = model.predict_proba(X)
    >>> intervals = model.predict_interval(X, coverage=[0.5, 0.9])
    """

    _tags = {  # noqa: RUF012, skpro's way
        "authors": "The pgbm_plugin developers",
        "maintainers": "The pgbm_plugin developers",
        "capability:missing": True,
        "capability:multioutput": False,
        "capability:update": True,
    }

    def __init__(
        self,
        estimator: Any = None,
        rho: float | None = None,
        distribution: str | None = None,
        variance: Variance = "auto",
        cv: Any = 5,
        tune_fraction: float | None = None,
        conformal_fraction: float | None = None,
        shuffle: bool = True,
        random_state: Any = None,
    ):
        self.estimator = estimator
        self.rho = rho
        self.distribution = distribution
        self.variance = variance
        self.cv = cv
        self.tune_fraction = tune_fraction
        self.conformal_fraction = conformal_fraction
        self.shuffle = shuffle
        self.random_state = random_state
        super().__init__()

    def _fit(self, X: Any, y: Any) -> PGBMProbaRegressor:
        label = _one_target(y)
        self.regressor_ = PGBMRegressor(**self.get_params(deep=False)).fit(_named(X), label)
        self.model_: ProbabilisticModel = self.regressor_.model_
        self.tune_result_: TuneResult | None = self.regressor_.tune_result_
        return self

    def _update(self, X: Any, y: Any) -> PGBMProbaRegressor:
        self.model_.update(_named(X), _one_target(y))
        return self

    def _predict(self, X: Any) -> Any:
        mean = np.asarray(self.regressor_.predict(_named(X)), np.float64)
        return pd.DataFrame(mean, index=X.index, columns=self._get_columns("predict"))

    def _predict_proba(self, X: Any) -> Any:
        return to_skpro(self.regressor_.predict_dist(_named(X)), X.index, self._get_columns("predict"))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return settings that skpro's own tests use."""
        return [{"cv": 2}, {"cv": 2, "distribution": "studentt"}]


def to_skpro(distribution: Distribution, index: Any = None, columns: Any = None) -> Any:
    """Return a distribution of skpro with one column.

    Normal and Laplace distributions become skpro's own. All other families become `RowDistributions`, which answer with
    the formulas of this package: skpro scores its own by quadrature, row by row, or by random samples.

    Parameters
    ----------
    distribution : Distribution
        What `predict_dist` returns.
    index : index, optional
        Names of the rows. Default: 0, 1, ...
    columns : sequence of one name, optional
        Name of the outcome. Default: "y".
    """
    if not isinstance(distribution, Distribution):
        raise TypeError(f"to_skpro takes a distribution of predict_dist, not {type(distribution).__name__}")
    names = {
        "index": pd.RangeIndex(len(distribution)) if index is None else index,
        "columns": ["y"] if columns is None else columns,
    }
    own = _THEIRS.get(type(distribution))
    if own is None or distribution._point is not None:
        return RowDistributions(distribution, **names)
    return own(distribution.params["loc"][:, None], distribution.params["scale"][:, None], **names)


class RowDistributions(BaseDistribution):  # type: ignore[misc]
    """Distributions of this package as one of skpro: each row has its own, and there is one column.

    Quantiles of conformal distributions are rounded outwards, so that intervals hold their coverage, and may be
    infinite. Densities of families with point masses hold the mass at these points.

    Parameters
    ----------
    distribution : Distribution
        What `predict_dist` returns.
    index : index, optional
        Names of the rows. Without `index` and `columns`, a distribution of one row is a scalar one.
    columns : sequence of one name, optional
        Name of the outcome.

    Examples
    --------
    >>> from pgbm_plugin.distributions import Gamma
    >>> from pgbm_plugin.skpro import RowDistributions
    >>> gamma = Gamma.from_moments([2.0, 3.0], [1.0, 1.0])
    >>> median = RowDistributions(gamma, index=[0, 1], columns=["y"]).ppf(0.5)
    """

    _tags = {  # noqa: RUF012
        "authors": "The pgbm_plugin developers",
        "capabilities:approx": [],
        "capabilities:exact": ["mean", "var", "energy", "ppf"],
        "distr:paramtype": "nonparametric",
    }

    def __init__(self, distribution: Distribution, index: Any = None, columns: Any = None):
        self.distribution = distribution
        if (index is None) != (columns is None) or (index is None and len(distribution) != 1):
            raise ValueError(f"give index= and columns= for {len(distribution)} rows")
        if index is not None and (len(index) != len(distribution) or len(columns) != 1):
            raise ValueError(
                f"{len(distribution)} rows of one column need as many names, not {len(index)} and {len(columns)}"
            )
        super().__init__(index=index, columns=columns)
        kind = _measure(distribution)
        formulas = {"continuous": ["cdf", "pdf", "log_pdf"], "mixed": ["cdf"], "discrete": ["cdf", "pmf", "log_pmf"]}
        # where an outcome lies on a residual, rounding decides on which side of it
        exact = [] if isinstance(_inner(distribution), Empirical) else formulas[kind]
        tags = {"capabilities:exact": ["mean", "var", "energy", "ppf", *exact]}
        self.set_tags(**tags, **{"distr:measuretype": kind, "capabilities:approx": [] if exact else ["cdf"]})

    def _iloc(self, rowidx: Any = None, colidx: Any = None) -> RowDistributions:
        rows = np.arange(len(self.distribution))
        rows = rows if rowidx is None else np.atleast_1d(rows[rowidx])
        columns = self.columns if colidx is None else self.columns[np.atleast_1d(np.arange(1)[colidx])]
        return RowDistributions(self.distribution[rows], self.index[rows], columns)

    def _iat(self, rowidx: Any = None, colidx: Any = None) -> RowDistributions:
        if rowidx is None or colidx is None:
            raise ValueError("iat takes the numbers of a row and a column")
        return RowDistributions(self.distribution[[rowidx]])

    def _mean(self) -> Any:
        return self._shaped(self.distribution.mean())

    def _var(self) -> Any:
        return self._shaped(self.distribution.var())

    def _pdf(self, x: Any) -> Any:
        return self._shaped(self.distribution.pdf(self._flat(x)))

    def _log_pdf(self, x: Any) -> Any:
        return self._shaped(self.distribution.logpdf(self._flat(x)))

    def _pmf(self, x: Any) -> Any:
        d, flat = self.distribution, self._flat(x)
        mass = d.pdf(flat) if _is_lattice(d) else d.cdf(flat) - d.cdf(np.nextafter(flat, -np.inf))
        return self._shaped(mass)

    def _log_pmf(self, x: Any) -> Any:
        with np.errstate(divide="ignore"):
            return np.log(self._pmf(x))

    def _cdf(self, x: Any) -> Any:
        return self._shaped(self.distribution.cdf(self._flat(x)))

    def _ppf(self, p: Any) -> Any:
        levels, place = np.unique(self._flat(p), return_inverse=True)
        out = np.empty(len(place))
        for k, level in enumerate(levels):
            rows = place == k
            out[rows] = self.distribution[rows].ppf(level)
        return self._shaped(out)

    def _energy_self(self) -> Any:
        return self._shaped(self._spread())

    def _energy_x(self, x: Any) -> Any:
        return self._shaped(self.distribution.crps(self._flat(x)) + 0.5 * self._spread())

    def _spread(self) -> Array:
        """Return E|Y - Y'| of each row: twice what the CRPS of a distant outcome leaves of its distance to the mean."""
        mean = self.distribution.mean()
        distance = _FAR * self.distribution.std()
        with np.errstate(invalid="ignore"):  # NaN where the mean is infinite
            return np.maximum(2.0 * (distance - self.distribution.crps(mean + distance)), 0.0)

    def _sample(self, n_samples: int | None = None) -> Any:
        draws = self.distribution.rvs(n_samples).T
        if self.ndim == 0:
            return draws[0] if n_samples is None else pd.DataFrame(draws)
        if n_samples is None:
            return pd.DataFrame(draws, index=self.index, columns=self.columns)
        rows = len(self.index)
        own = self.index[np.tile(np.arange(rows), n_samples)]
        levels = [own.get_level_values(k) for k in range(own.nlevels)]
        names = pd.MultiIndex.from_arrays([np.repeat(np.arange(n_samples), rows), *levels])
        return pd.DataFrame(draws.ravel(), index=names, columns=self.columns)

    def _flat(self, x: Any) -> Array:
        return np.asarray(x, np.float64).reshape(len(self.distribution))

    def _shaped(self, values: Array) -> Any:
        return values.reshape(self.shape)[()]

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return settings that skpro's own tests use."""
        mean, variance = np.array([1.0, 2.0, 5.0]), np.array([1.0, 0.5, 7.0])
        rows = {"index": pd.Index([4, 1, 7]), "columns": pd.Index(["y"])}
        empirical = Empirical.from_moments(mean, variance, residuals=[-1.5, -0.2, 0.3, 1.1])
        return [
            {"distribution": Normal.from_moments(mean, variance), **rows},
            {"distribution": empirical, **rows},
            {"distribution": Normal.from_moments(mean[:1], variance[:1])},
        ]


def _one_target(y: Any) -> Any:
    """Return the only column of a frame of targets."""
    if y.shape[1] != 1:
        raise ValueError(
            f"PGBMProbaRegressor predicts one target, and y has {y.shape[1]} columns: fit one regressor for each"
        )
    return y.iloc[:, 0]


def _named(X: Any) -> Any:
    """Return a frame whose columns are named by strings, as scikit-learn wants them."""
    return X.set_axis(X.columns.map(str), axis="columns")


def _inner(distribution: Distribution) -> Distribution:
    """Return what a clipped, snapped or mapped distribution was made from."""
    while isinstance(distribution, (Clipped, Mapped, Snapped)):
        distribution = distribution._inner
    return distribution


def _is_lattice(distribution: Distribution) -> bool:
    return isinstance(distribution, Snapped) or isinstance(_inner(distribution), Discrete)


def _measure(distribution: Distribution) -> str:
    """Return skpro's word for where the probability lies."""
    if _is_lattice(distribution) or isinstance(_inner(distribution), Empirical):
        return "discrete"
    return "mixed" if distribution.has_mass else "continuous"
