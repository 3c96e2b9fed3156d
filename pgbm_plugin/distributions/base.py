"""Distribution: one predictive distribution per row, with the names of scipy's frozen distributions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..columns import check_levels

if TYPE_CHECKING:
    from typing_extensions import Self


Array = NDArray[np.float64]


class Distribution(ABC):
    """`len(d)` distributions of one family; immutable.

    A family gives `from_moments` and the six methods on standard arguments below; everything else follows.
    Arguments broadcast against the rows: a number, one value per row, or a matrix with one line per row.
    Probabilities in a list are different: ``ppf([.1, .5, .9])`` is (n, 3), every level for every row.
    """

    name: ClassVar[str]
    params: dict[str, Array]
    """Parameters of the family by scipy's names, each (n,)."""

    def __init__(self, **params: Array):
        n = len(next(iter(params.values())))
        if any(p.shape != (n,) for p in params.values()):
            raise ValueError("parameters must be arrays of one length")
        self.params = {key: _read_only(value) for key, value in params.items()}

    @classmethod
    @abstractmethod
    def from_moments(cls, mean: Array, variance: Array) -> Self:
        """The member of the family with these means and variances, each (n,)."""

    @abstractmethod
    def mean(self) -> Array:
        """(n,) means."""

    @abstractmethod
    def var(self) -> Array:
        """(n,) variances."""

    @abstractmethod
    def logpdf(self, x: ArrayLike) -> Array:
        """Log density (log mass for a discrete family)."""

    @abstractmethod
    def cdf(self, x: ArrayLike) -> Array:
        """P(Y <= x)."""

    @abstractmethod
    def ppf(self, q: ArrayLike) -> Array:
        """Quantiles: (n,) for one level, (n, k) for k levels."""

    @abstractmethod
    def rvs(self, size: int | None = None, random_state: Any = None) -> Array:
        """Samples: (n,) for None, else (n, size). `random_state`: a seed or a NumPy Generator."""

    @abstractmethod
    def crps(self, y: ArrayLike) -> Array:
        """(n,) continuous ranked probability score of the outcomes, in closed form."""

    @abstractmethod
    def to_scipy(self) -> Any:
        """The same as a frozen scipy.stats distribution with (n,) parameters."""

    def std(self) -> Array:
        """(n,) standard deviations."""
        return np.sqrt(self.var())

    def median(self) -> Array:
        """(n,) medians."""
        return self.ppf(0.5)

    def pdf(self, x: ArrayLike) -> Array:
        """Density (mass for a discrete family)."""
        return np.exp(self.logpdf(x))

    def sf(self, x: ArrayLike) -> Array:
        """P(Y > x)."""
        return 1.0 - self.cdf(x)

    def isf(self, q: ArrayLike) -> Array:
        """Upper quantiles, shaped as `ppf`."""
        return self.ppf(1.0 - np.asarray(q, np.float64))

    def interval(self, confidence: float) -> tuple[Array, Array]:
        """Ends of the central interval that holds this much probability."""
        check_levels("confidence", confidence)
        tail = (1.0 - confidence) / 2.0
        return self.ppf(tail), self.isf(tail)

    def nll(self, y: ArrayLike) -> Array:
        """(n,) negative log likelihood of the outcomes."""
        return -self.logpdf(y)

    def pit(self, y: ArrayLike) -> Array:
        """(n,) probability integral transform of the outcomes: uniform if the distributions are right."""
        return self.cdf(y)

    def __len__(self) -> int:
        return len(next(iter(self.params.values())))

    def __getitem__(self, rows: Any) -> Self:
        """The distributions of some rows: an index, a slice or a mask."""
        new = object.__new__(type(self))
        vars(new).update(vars(self), params={k: _read_only(np.atleast_1d(v[rows])) for k, v in self.params.items()})
        return new

    def __repr__(self) -> str:
        return f"<{type(self).__name__} distribution of {len(self)} rows>"

    def _per_row(self, x: ArrayLike) -> tuple[Array, dict[str, Array]]:
        """`x` and the parameters, shaped so that they broadcast: a matrix has one line per row."""
        x = np.asarray(x, np.float64)
        n = len(self)
        if x.ndim > 2 or (x.ndim == 1 and len(x) not in (1, n)) or (x.ndim == 2 and len(x) not in (1, n)):
            raise ValueError(f"values of shape {x.shape} do not fit {n} rows; give a number, ({n},) or ({n}, k)")
        if x.ndim == 2:
            return x, {key: value[:, None] for key, value in self.params.items()}
        return x, self.params

    def _per_level(self, q: ArrayLike) -> tuple[Array, dict[str, Array]]:
        """Levels and the parameters, shaped so that a list of levels makes a new last axis."""
        q = np.asarray(q, np.float64)
        if q.ndim > 1:
            raise ValueError(f"levels must be a number or a list, not of shape {q.shape}")
        if q.ndim == 1:
            return q, {key: value[:, None] for key, value in self.params.items()}
        return q, self.params


def _read_only(array: Array) -> Array:
    array = array.view()
    array.flags.writeable = False
    return array
