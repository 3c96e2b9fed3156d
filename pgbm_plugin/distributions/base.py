"""Distribution: one predictive distribution per row, with the method names of scipy's frozen distributions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import AnyArray, Array
from ..checks import check_level
from .per_row import fill_rows, read_only, with_point_masses

if TYPE_CHECKING:
    from typing_extensions import Self

ZERO, _ONE = np.zeros(()), np.ones(())  # arrays, because NumPy needs as long to convert a float as to compare a row


class Distribution(ABC):
    """Predictive distributions of one family, one per row; immutable.

    Outcomes `x` and `y` broadcast against the n rows: pass a number, an array of shape (n,) or a matrix of shape
    (n, k). A list of probability levels applies to every row: ``ppf([0.1, 0.5, 0.9])`` has shape (n, 3).

    A row whose variance is 0 is a point mass at its mean. All its quantiles are the mean, its cdf is a step, and its
    continuous ranked probability score (CRPS) is |y - mean|.

    To add a family, write a subclass with a `name` and the five abstract formulas: parameters from moments, moments,
    log density, cdf and quantiles. Formulas take the parameters by name and arrays that broadcast. They need not treat
    point masses or outcomes that are not finite.

    Parameters
    ----------
    point : array-like of shape (n,), optional
        Place of each row that is a point mass, NaN in all other rows. Default: no row is a point mass.
    **params : float or array-like of shape (n,)
        Parameters of the family, by name.
    """

    name: ClassVar[str]
    """Name that users pass as ``distribution=``."""
    groups: AnyArray | None = None
    """Keys of the groups, if these are distributions of totals, see `ProbabilisticModel.predict_total`; else None."""
    tunable: ClassVar[bool] = True
    """True if `tune` tries the family by default."""
    needs_residuals: ClassVar[bool] = False
    """True if the family is made from residuals of validation rows, in addition to the moments."""
    needs_positive_mean: ClassVar[bool] = False
    """True if the family has no member with a mean of 0 or less."""
    has_mass: ClassVar[bool] = False
    """True if single outcomes have a probability, so that densities of other families cannot be compared with it."""
    variants: ClassVar[tuple[str, ...]] = ()
    """Names with options that `tune` tries by default, beside the plain name."""
    is_lognormal: ClassVar[bool] = False
    """True if the logarithm is normal, so that the variance under a log link is exact."""

    def __init__(self, *, point: ArrayLike | None = None, **params: ArrayLike):
        arrays = {key: np.asarray(value, np.float64) for key, value in params.items()}
        place = None if point is None else np.asarray(point, np.float64)
        n = max([array.size for array in (arrays.values() if place is None else (place, *arrays.values()))])
        self._params = {key: fill_rows(array, n) for key, array in arrays.items()}
        self._point = None if place is None else fill_rows(place, n)

    @classmethod
    def from_moments(cls, mean: Array, variance: Array, **options: Any) -> Self:
        """Return the members of the family with these means and variances.

        Parameters
        ----------
        mean, variance : array-like of shape (n,)
            Moments of each row. A variance of 0 makes a point mass.
        **options : float
            Options of the family, such as ``df`` of Student's t.

        Raises
        ------
        ValueError
            If the family has no such member for some rows; the message says for how many.
        """
        mean, variance = np.asarray(mean, np.float64), np.asarray(variance, np.float64)
        if mean.shape != variance.shape:
            mean, variance = np.broadcast_arrays(mean, variance)
        fits = cls._fits(mean, variance)
        if np.count_nonzero(fits & (variance > ZERO)) == len(mean):
            return cls(**cls._parameters(mean, variance, **options))
        degenerate = variance <= 0.0
        regular = ~degenerate
        bad = regular & ~fits
        if bad.any():
            raise ValueError(
                f"{cls.name} cannot have the mean and variance of {bad.sum()} of {len(mean)} rows: {cls._needs}"
            )
        params = {key: np.full(len(mean), np.nan) for key in cls._parameters(np.ones(1), np.ones(1), **options)}
        for key, value in cls._parameters(mean[regular], variance[regular], **options).items():
            params[key][regular] = value
        return cls(point=np.where(degenerate, mean, np.nan), **params)

    @classmethod  # noqa: B027, most families have no options
    def check_options(cls, *args: Any, **options: Any) -> None:
        """Refuse values that an option cannot have, before anything is computed."""

    @classmethod
    def complexity(cls, *args: Any, **options: Any) -> float:
        """Return the order in which `tune` prefers families that score equally well: 0 is the simplest.

        It is about how many numbers describe the shape, beside mean and variance.
        """
        return 1.0

    # The formulas of a family. Their arguments are open here, because each family has its own parameters.

    _log_point_mass: ClassVar[float] = np.inf
    """Log density of a point mass at its place."""

    _needs: ClassVar[str] = "both must be finite"
    """Condition on mean and variance, in the words of the error message."""

    _scipy_name: ClassVar[str | None] = None
    """Name in scipy.stats, if scipy has the family with the same parameters."""

    @staticmethod
    def _fits(mean: Array, variance: Array) -> NDArray[np.bool_]:
        """Return (n,) flags, True where the family has a member with this mean and positive variance."""
        return np.isfinite(mean) & np.isfinite(variance)

    @staticmethod
    @abstractmethod
    def _parameters(*args: Any, **options: Any) -> dict[str, Array]:
        """Return the parameters by name, called as ``_parameters(mean, variance, **options)``."""

    @abstractmethod
    def _moments(self, *args: Any, **params: Any) -> tuple[Array, Array]:
        """Return mean and variance, called as ``_moments(**params)``."""

    @abstractmethod
    def _logpdf(self, *args: Any, **params: Any) -> Array:
        """Return the log density (discrete families: log mass), called as ``_logpdf(x, **params)``."""

    @abstractmethod
    def _cdf(self, *args: Any, **params: Any) -> Array:
        """Return P(Y <= x), called as ``_cdf(x, **params)``."""

    def _sf(self, *args: Any, **params: Any) -> Array:
        """Return P(Y > x), called as ``_sf(x, **params)``; override it to be accurate in the upper tail."""
        return 1.0 - self._cdf(*args, **params)

    @abstractmethod
    def _ppf(self, *args: Any, **params: Any) -> Array:
        """Return the smallest x with P(Y <= x) >= q, called as ``_ppf(q, **params)``."""

    def _isf(self, *args: Any, **params: Any) -> Array:
        """Return the smallest x with P(Y > x) <= q, called as ``_isf(q, **params)``; override it for small q."""
        return self._ppf(1.0 - args[0], **params)

    def _rvs(self, *args: Any, **params: Any) -> Array:
        """Draw samples, called as ``_rvs(rng, shape, **params)``."""
        rng, shape = args
        return self._from_uniform(rng.random(shape), **params)

    def _from_uniform(self, *args: Any, **params: Any) -> Array:
        """Return outcomes, which rise with uniform numbers, called as ``_from_uniform(u, **params)``."""
        return self._ppf(*args, **params)

    def _crps(self, *args: Any, **params: Any) -> Array:
        """Return the CRPS, called as ``_crps(y, **params)``; override it where there is a closed form.

        The score is twice the quantile loss, integrated over all levels (Laio and Tamea 2007). The integral is
        computed by Gauss-Legendre quadrature.
        """
        (y,) = args
        nodes, weights = np.polynomial.legendre.leggauss(200)
        total = np.zeros(np.broadcast_shapes(np.shape(y), *map(np.shape, params.values())))
        for level, weight in zip(0.5 * (nodes + 1.0), weights, strict=True):
            quantile = self._ppf(np.float64(level), **params)
            total += weight * ((y <= quantile) - level) * (quantile - y)
        return total

    def _entropy(self, *args: Any, **params: Any) -> Array:
        """Return the differential entropy if it has a closed form, called as ``_entropy(**params)``."""
        raise NotImplementedError

    # The methods that users call.

    @property
    def params(self) -> Mapping[str, Array]:
        """Return the parameters by name (scipy's names, where it has the family), each (n,); NaN in point masses."""
        return MappingProxyType(self._params)

    def mean(self) -> Array:
        """Return the (n,) means."""
        return with_point_masses(self._point, self._moments(**self.params)[0].copy())

    def var(self) -> Array:
        """Return the (n,) variances."""
        return with_point_masses(self._point, self._moments(**self.params)[1].copy(), 0.0)

    def std(self) -> Array:
        """Return the (n,) standard deviations."""
        return np.sqrt(self.var())

    def median(self) -> Array:
        """Return the (n,) medians."""
        return self.ppf(0.5)

    def entropy(self) -> Array:
        """Return the (n,) differential entropies in nats; NotImplementedError if there is no closed form."""
        try:
            return with_point_masses(self._point, self._entropy(**self.params), -np.inf)
        except NotImplementedError:
            raise NotImplementedError(f"the entropy of {self.name} has no closed form") from None

    def pdf(self, x: ArrayLike) -> Array:
        """Return the density at `x`; for a discrete family, the probability mass."""
        return np.exp(self.logpdf(x))

    def logpdf(self, x: ArrayLike) -> Array:
        """Return the log density at `x`; for a discrete family, the log of the probability mass."""
        return self._at_outcomes(
            self._logpdf, x, lambda x, at: np.where(x == at, self._log_point_mass, -np.inf), -np.inf, -np.inf
        )

    def cdf(self, x: ArrayLike) -> Array:
        """Return P(Y <= x), the cumulative distribution function."""
        return self._at_outcomes(self._cdf, x, lambda x, at: x >= at, 0.0, 1.0)

    def sf(self, x: ArrayLike) -> Array:
        """Return P(Y > x), the survival function."""
        return self._at_outcomes(self._sf, x, lambda x, at: x < at, 1.0, 0.0)

    def ppf(self, q: ArrayLike) -> Array:
        """Return quantiles, the smallest x with P(Y <= x) >= q: (n,) for one level, (n, k) for a list of k levels."""
        return self._at_levels(self._ppf, q)

    def isf(self, q: ArrayLike) -> Array:
        """Return upper quantiles, the smallest x with P(Y > x) <= q: (n,) for one level, (n, k) for a list."""
        return self._at_levels(self._isf, q)

    def interval(self, confidence: float) -> tuple[Array, Array]:
        """Return the lower and upper ends, each (n,), of the central interval with this probability.

        Parameters
        ----------
        confidence : float
            Probability that an outcome lies in the interval, between 0 and 1.
        """
        tail = np.array((1.0 - check_level("confidence", confidence)) / 2.0)
        lower, upper = self._ppf(tail, **self._params), self._isf(tail, **self._params)
        return with_point_masses(self._point, lower), with_point_masses(self._point, upper)

    def rvs(self, size: int | None = None, random_state: Any = None) -> Array:
        """Draw samples.

        Parameters
        ----------
        size : int, optional
            Samples per row. The result has shape (n, size), or (n,) by default.
        random_state : int or numpy.random.Generator, optional
            Seed or generator.
        """
        shape = (len(self), 1 if size is None else size)
        params, point = self._as_columns()
        if point is not None:  # NumPy refuses to draw with parameters that are NaN
            params = {key: np.where(np.isnan(point), value, 1.0) for key, value in params.items()}
        draws = with_point_masses(point, self._rvs(np.random.default_rng(random_state), shape, **params))
        return draws[:, 0] if size is None else draws

    def from_uniform(self, u: ArrayLike) -> Array:
        """Return the outcomes that uniform numbers stand for: quantiles at levels of each row's own.

        If `u` is uniform, the outcomes are samples. To draw rows that depend on each other, give numbers that do.

        Parameters
        ----------
        u : array-like of shape (n,) or (n, k)
            Numbers in (0, 1).
        """
        u = np.asarray(u, np.float64)
        if u.ndim not in (1, 2) or len(u) != len(self):
            raise ValueError(f"uniform numbers of shape {u.shape} do not fit {len(self)} rows; give ({len(self)}, k)")
        if not np.all((u > 0.0) & (u < 1.0)):
            raise ValueError("uniform numbers must lie strictly between 0 and 1")
        params, point = self._as_columns()
        columns = u if u.ndim == 2 else u[:, None]
        return with_point_masses(point, self._from_uniform(columns, **params)).reshape(u.shape)

    def crps(self, y: ArrayLike) -> Array:
        """Return the continuous ranked probability score (CRPS) of each outcome, in the unit of `y`."""
        return self._at_outcomes(self._crps, y, lambda y, at: np.abs(y - at), np.inf, np.inf)

    def nll(self, y: ArrayLike) -> Array:
        """Return the negative log likelihood (NLL) of each outcome, in nats."""
        return -self.logpdf(y)

    def pit(self, y: ArrayLike) -> Array:
        """Return the probability integral transform (PIT) of each outcome: uniform if the distributions are right.

        It is P(Y < y) + P(Y = y) / 2. Where outcomes have a probability of their own, such as counts or those on a
        bound, its mean is still 1/2, but it is not exactly uniform.
        """
        if not (self.has_mass or self.needs_residuals):
            return self.cdf(y)
        y = np.asarray(y, np.float64)
        return 0.5 * (self.cdf(y) + self.cdf(np.nextafter(y, -np.inf)))

    def to_scipy(self) -> Any:
        """Return a frozen scipy.stats distribution with (n,) parameters, which are NaN in point masses."""
        if self._scipy_name is None:
            raise NotImplementedError(f"no scipy.stats distribution is known for {self.name}")
        from scipy import stats

        return getattr(stats, self._scipy_name)(**self.params)

    def __len__(self) -> int:
        return len(next(iter(self._params.values())))

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"{self!r} is not an array of numbers: call its mean(), std(), ppf([0.05, 0.95]) or rvs(100), and so on"
        )

    def __getitem__(self, rows: Any) -> Self:
        """Select rows by an index, a slice, a list or a mask."""
        chosen = object.__new__(type(self))
        vars(chosen).update(vars(self))
        chosen._point = None if self._point is None else read_only(np.atleast_1d(self._point[rows]))
        chosen._params = {key: read_only(np.atleast_1d(value[rows])) for key, value in self.params.items()}
        if self.groups is not None:
            chosen.groups = self.groups[np.atleast_1d(np.arange(len(self))[rows])]
        return chosen

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for value in (*state.values(), *self._params.values()):
            if isinstance(value, np.ndarray):
                value.flags.writeable = False  # pickle makes arrays writable

    def __repr__(self) -> str:
        return f"<{type(self).__name__} distribution of {len(self)} {'rows' if self.groups is None else 'groups'}>"

    def _at_outcomes(
        self,
        formula: Callable[..., Array],
        x: ArrayLike,
        at_point: Callable[[Array, Array], Array | NDArray[np.bool_]],
        at_minus_inf: float,
        at_inf: float,
    ) -> Array:
        """Evaluate ``formula(x, **params)``, but ``at_point(x, point)`` in point masses and the limits at infinity."""
        x, n = np.asarray(x, np.float64), len(self)
        if x.ndim > 2 or (x.ndim and len(x) not in (1, n)):
            raise ValueError(f"values of shape {x.shape} do not fit {n} rows; give a number, ({n},) or ({n}, k)")
        finite = np.isfinite(x)
        all_finite = np.all(finite)
        inside = x if all_finite else np.where(finite, x, 1.0)
        params, point = self._as_columns() if x.ndim == 2 else (self.params, self._point)
        out = formula(inside, **params)
        if point is not None:
            out = with_point_masses(point, out, at_point(inside, point))
        if all_finite:
            return out
        return np.where(finite, out, np.where(np.isnan(x), np.nan, np.where(x < 0.0, at_minus_inf, at_inf)))

    def _at_levels(self, formula: Callable[..., Array], q: ArrayLike) -> Array:
        """Evaluate ``formula(q, **params)``, but the place of point masses; a list of levels makes a new last axis."""
        q = np.asarray(q, np.float64)
        if q.ndim > 1:
            raise ValueError(f"levels must be a number or a list, not an array of shape {q.shape}")
        if np.count_nonzero((q >= ZERO) & (q <= _ONE)) < q.size:
            raise ValueError(f"levels must lie between 0 and 1, not {q.tolist()}")
        params, point = self._as_columns() if q.ndim == 1 else (self.params, self._point)
        return with_point_masses(point, formula(q, **params))

    def _as_columns(self) -> tuple[Mapping[str, Array], Array | None]:
        """Return parameters and point masses as (n, 1) columns."""
        point = None if self._point is None else self._point[:, None]
        return {key: value[:, None] for key, value in self._params.items()}, point


class Symmetric(Distribution):
    """Base class of families that are symmetric around loc."""

    @staticmethod
    @abstractmethod
    def _standard_ppf(*args: Any, **shape: Any) -> Array:
        """Return quantiles for loc 0 and scale 1, called as ``_standard_ppf(q, **shape)``."""

    def _ppf(self, q: Array, loc: Array, scale: Array, **shape: Array) -> Array:
        return loc + scale * self._standard_ppf(q, **shape)

    def _isf(self, q: Array, loc: Array, scale: Array, **shape: Array) -> Array:
        return loc - scale * self._standard_ppf(q, **shape)

    def _sf(self, x: Array, loc: Array, scale: Array, **shape: Array) -> Array:
        return self._cdf(loc, loc=x, scale=scale, **shape)  # P(Y > x) = P(Y <= 2 loc - x), without cancellation


class Positive(Distribution):
    """Base class of continuous families on the positive numbers."""

    needs_positive_mean = True
    _needs = "it needs a mean > 0, and both finite"

    @staticmethod
    def _fits(mean: Array, variance: Array) -> NDArray[np.bool_]:
        return np.isfinite(mean) & np.isfinite(variance) & (mean > 0.0)
