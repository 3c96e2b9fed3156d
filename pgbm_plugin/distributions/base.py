"""Distribution: one predictive distribution per row, with the names of scipy's frozen distributions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..tables.columns import check_level
from .rowwise import Array, of_outcomes, per_row, read_only, unless

if TYPE_CHECKING:
    from typing_extensions import Self

_ZERO = np.zeros(())  # an array, since NumPy takes as long to read a float as to compare a row


class Distribution(ABC):
    """`len(d)` distributions of one family; immutable.

    Arguments broadcast against the rows: a number, one value per row, or a matrix with one line per row.
    Probabilities in a list are different: ``ppf([.1, .5, .9])`` is (n, 3), every level for every row.

    A row whose variance is 0 is a point mass at its mean: a finite quantile, a step as cdf, |y - mean| as CRPS.

    A family is a subclass with a `name` and the five formulas marked abstract below: parameters from moments, moments,
    log density, cdf and quantiles. They take arrays that broadcast and parameters by name, and never meet a point mass.
    """

    name: ClassVar[str]
    tunable: ClassVar[bool] = True
    """Whether `tune` tries the family when not told which."""
    needs_residuals: ClassVar[bool] = False
    """Whether it is made from residuals of validation rows, besides the moments."""
    needs_positive_mean: ClassVar[bool] = False
    """Whether a row whose mean is not positive has no member of the family."""
    is_lognormal: ClassVar[bool] = False
    """Whether its logarithm is normal, so that a log link gives its variance exactly."""

    def __init__(self, *, point: ArrayLike | None = None, **params: ArrayLike):
        """From parameters, each (n,) or a number; `point` is (n,), the place of a point mass or NaN for none."""
        arrays = {key: np.asarray(value, np.float64) for key, value in params.items()}
        place = None if point is None else np.asarray(point, np.float64)
        n = max([array.size for array in (arrays.values() if place is None else (place, *arrays.values()))])
        self._params = {key: per_row(array, n) for key, array in arrays.items()}
        self._point = None if place is None else per_row(place, n)

    @classmethod
    def from_moments(cls, mean: Array, variance: Array, **options: Any) -> Self:
        """The member of the family with these means and variances, each (n,).

        ValueError, with the number of rows, where the family has no such member.
        """
        mean, variance = np.asarray(mean, np.float64), np.asarray(variance, np.float64)
        if mean.shape != variance.shape:
            mean, variance = np.broadcast_arrays(mean, variance)
        fits = cls._fits(mean, variance)
        if np.count_nonzero(fits & (variance > _ZERO)) == len(mean):
            return cls(**cls._parameters(mean, variance, **options))
        degenerate = variance <= 0.0
        bad = ~degenerate & ~fits
        if bad.any():
            raise ValueError(f"{cls.name} cannot have the moments of {bad.sum()} of {len(mean)} rows: {cls._needs}")
        params = {key: np.full(len(mean), np.nan) for key in cls._parameters(np.ones(1), np.ones(1), **options)}
        regular = ~degenerate
        for key, value in cls._parameters(mean[regular], variance[regular], **options).items():
            params[key][regular] = value
        return cls(point=np.where(degenerate, mean, np.nan), **params)

    # The formulas of a family. Their arguments are open here, because every family has its own parameters.

    _log_point_mass: ClassVar[float] = np.inf
    """Log density of a point mass at its place."""

    _needs: ClassVar[str] = "they must be finite"
    """What moments must satisfy, for the error message."""

    @staticmethod
    def _fits(mean: Array, variance: Array) -> NDArray[np.bool_]:
        """(n,) whether the family has a member with this mean and positive variance."""
        return np.isfinite(mean) & np.isfinite(variance)

    @staticmethod
    @abstractmethod
    def _parameters(*args: Any, **options: Any) -> dict[str, Array]:
        """(mean, variance, **options): the parameters."""

    @abstractmethod
    def _moments(self, *args: Any, **params: Any) -> tuple[Array, Array]:
        """(**params): mean and variance."""

    @abstractmethod
    def _logpdf(self, *args: Any, **params: Any) -> Array:
        """(x, **params): log density, or log mass of a discrete family."""

    @abstractmethod
    def _cdf(self, *args: Any, **params: Any) -> Array:
        """(x, **params): P(Y <= x)."""

    def _sf(self, *args: Any, **params: Any) -> Array:
        """(x, **params): P(Y > x); override it to be accurate in the upper tail."""
        return 1.0 - self._cdf(*args, **params)

    @abstractmethod
    def _ppf(self, *args: Any, **params: Any) -> Array:
        """(q, **params): the smallest x with P(Y <= x) >= q."""

    def _isf(self, *args: Any, **params: Any) -> Array:
        """(q, **params): the smallest x with P(Y > x) <= q; override it to be accurate for small q."""
        return self._ppf(1.0 - args[0], **params)

    def _rvs(self, *args: Any, **params: Any) -> Array:
        """(rng, shape, **params): draws."""
        rng, shape = args
        return self._ppf(rng.random(shape), **params)

    def _crps(self, *args: Any, **params: Any) -> Array:
        """(y, **params): continuous ranked probability score; override it where there is a closed form.

        Twice the quantile loss over all levels (Laio and Tamea 2007), by Gauss-Legendre quadrature.
        """
        (y,) = args
        nodes, weights = np.polynomial.legendre.leggauss(200)
        total = np.zeros(np.broadcast_shapes(np.shape(y), *map(np.shape, params.values())))
        for level, weight in zip(0.5 * (nodes + 1.0), weights, strict=True):
            quantile = self._ppf(np.float64(level), **params)
            total += weight * ((y <= quantile) - level) * (quantile - y)
        return total

    def _entropy(self, *args: Any, **params: Any) -> Array:
        """(**params): differential entropy, where it is closed."""
        raise NotImplementedError

    def to_scipy(self) -> Any:
        """The same as a frozen scipy.stats distribution with (n,) parameters; NaN in a point mass."""
        raise NotImplementedError(f"{self.name} does not say which scipy distribution it is")

    # What users call.

    @property
    def params(self) -> Mapping[str, Array]:
        """Parameters of the family by scipy's names, each (n,); NaN in a row that is a point mass."""
        return MappingProxyType(self._params)

    def mean(self) -> Array:
        """(n,) means."""
        return unless(self._point, self._moments(**self.params)[0].copy(), lambda at: at)

    def var(self) -> Array:
        """(n,) variances."""
        return unless(self._point, self._moments(**self.params)[1].copy(), lambda at: 0.0)

    def std(self) -> Array:
        """(n,) standard deviations."""
        return np.sqrt(self.var())

    def median(self) -> Array:
        """(n,) medians."""
        return self.ppf(0.5)

    def entropy(self) -> Array:
        """(n,) differential entropies, in nats; NotImplementedError for a family without a closed form."""
        try:
            return unless(self._point, self._entropy(**self.params), lambda at: -np.inf)
        except NotImplementedError:
            raise NotImplementedError(f"the entropy of {self.name} has no closed form") from None

    def pdf(self, x: ArrayLike) -> Array:
        """Density (mass for a discrete family)."""
        return np.exp(self.logpdf(x))

    def logpdf(self, x: ArrayLike) -> Array:
        """Log density (log mass for a discrete family)."""
        x, p, point = self._per_row(x)

        def logpdf(x: Array) -> Array:
            return unless(point, self._logpdf(x, **p), lambda at: np.where(x == at, self._log_point_mass, -np.inf))

        return of_outcomes(x, logpdf, -np.inf, -np.inf)

    def cdf(self, x: ArrayLike) -> Array:
        """P(Y <= x)."""
        x, p, point = self._per_row(x)
        return of_outcomes(x, lambda x: unless(point, self._cdf(x, **p), lambda at: x >= at), 0.0, 1.0)

    def sf(self, x: ArrayLike) -> Array:
        """P(Y > x)."""
        x, p, point = self._per_row(x)
        return of_outcomes(x, lambda x: unless(point, self._sf(x, **p), lambda at: x < at), 1.0, 0.0)

    def ppf(self, q: ArrayLike) -> Array:
        """Quantiles: (n,) for one level, (n, k) for k levels."""
        q, p, point = self._per_level(q)
        return unless(point, self._ppf(q, **p), lambda at: at)

    def isf(self, q: ArrayLike) -> Array:
        """Upper quantiles, shaped as `ppf`."""
        q, p, point = self._per_level(q)
        return unless(point, self._isf(q, **p), lambda at: at)

    def interval(self, confidence: float) -> tuple[Array, Array]:
        """Ends of the central interval that holds this much probability."""
        tail = (1.0 - check_level("confidence", confidence)) / 2.0
        return self.ppf(tail), self.isf(tail)

    def rvs(self, size: int | None = None, random_state: Any = None) -> Array:
        """Samples: (n,) for None, else (n, size). `random_state`: a seed or a NumPy Generator."""
        shape = (len(self), 1 if size is None else size)
        p = {key: value[:, None] for key, value in self.params.items()}
        if self._point is not None:  # NumPy draws from no parameters that are NaN
            p = {key: np.where(np.isnan(self._point)[:, None], value, 1.0) for key, value in p.items()}
        draws = self._rvs(np.random.default_rng(random_state), shape, **p)
        out = unless(None if self._point is None else self._point[:, None], draws, lambda at: at)
        return out[:, 0] if size is None else out

    def crps(self, y: ArrayLike) -> Array:
        """(n,) continuous ranked probability score of the outcomes."""
        y, p, point = self._per_row(y)
        return of_outcomes(y, lambda y: unless(point, self._crps(y, **p), lambda at: np.abs(y - at)), np.inf, np.inf)

    def nll(self, y: ArrayLike) -> Array:
        """(n,) negative log likelihood of the outcomes."""
        return -self.logpdf(y)

    def pit(self, y: ArrayLike) -> Array:
        """(n,) probability integral transform of the outcomes: uniform if the distributions are right."""
        return self.cdf(y)

    def __len__(self) -> int:
        return len(next(iter(self._params.values())))

    def __getitem__(self, rows: Any) -> Self:
        """The distributions of some rows: an index, a slice or a mask."""
        chosen = object.__new__(type(self))
        vars(chosen).update(vars(self))
        chosen._point = None if self._point is None else read_only(np.atleast_1d(self._point[rows]))
        chosen._params = {key: read_only(np.atleast_1d(value[rows])) for key, value in self.params.items()}
        return chosen

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for array in (self._point, *self._params.values()):
            if array is not None:
                array.flags.writeable = False  # pickle forgets it

    def __repr__(self) -> str:
        return f"<{type(self).__name__} distribution of {len(self)} rows>"

    def _per_row(self, x: ArrayLike) -> tuple[Array, Mapping[str, Array], Array | None]:
        """`x`, parameters and points, shaped so that they broadcast: a matrix has one line per row."""
        x = np.asarray(x, np.float64)
        n = len(self)
        if x.ndim > 2 or (x.ndim and len(x) not in (1, n)):
            raise ValueError(f"values of shape {x.shape} do not fit {n} rows; give a number, ({n},) or ({n}, k)")
        if x.ndim == 2:
            return x, *self._upright()
        return x, self.params, self._point

    def _per_level(self, q: ArrayLike) -> tuple[Array, Mapping[str, Array], Array | None]:
        """Levels, parameters and points, shaped so that a list of levels makes a new last axis."""
        q = np.asarray(q, np.float64)
        if q.ndim > 1:
            raise ValueError(f"levels must be a number or a list, not of shape {q.shape}")
        if not np.all((q >= 0.0) & (q <= 1.0)):
            raise ValueError(f"levels must lie between 0 and 1, not {q.tolist()}")
        if q.ndim == 1:
            return q, *self._upright()
        return q, self.params, self._point

    def _upright(self) -> tuple[Mapping[str, Array], Array | None]:
        """Parameters and points as (n, 1)."""
        point = None if self._point is None else self._point[:, None]
        return {key: value[:, None] for key, value in self._params.items()}, point


class Positive(Distribution):
    """A family on the positive numbers."""

    needs_positive_mean = True
    _needs = "it needs a mean > 0, and finite moments"

    @staticmethod
    def _fits(mean: Array, variance: Array) -> NDArray[np.bool_]:
        return np.isfinite(mean) & np.isfinite(variance) & (mean > 0.0)
