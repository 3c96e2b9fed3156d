"""Booster: the one record through which the package knows a booster, and what its callbacks hand over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray, Array
from ..errors import UnsupportedModelError
from ..tables.labelled import RawRows
from ..trees.forest import Forest
from ..trees.objectives import Gradients, Objective
from ..trees.training_spec import TrainingSpec

Reading = tuple[Forest, TrainingSpec]
"""The trees of a model, and how they were grown."""

OTHER_WAY = "train on folds yourself, and give their predictions to model.tune(X, y, out_of_fold=p)"
"""Tells users whose training cannot be repeated what to do; the end of an error."""


@dataclass(frozen=True)
class Booster:
    """Everything that the package knows of one booster. No code outside of its folder names it.

    A booster is a folder of `boosters/` that exports one such record, and a line in `boosters/__init__.py`. None of its
    functions may need the booster's package to be installed, unless they are handed one of its objects. Classes are
    recognised by "package.Class" names of an object's type and its bases, so that nothing is imported to ask.

    Readers raise `UnsupportedModelError` for a model that has no honest variance, and `ValueError` for a damaged one.
    They translate the booster's split rule into that of `trees.forest.NODE`, its loss into an `Objective`, and set in
    the `TrainingSpec` the base score and whether the first tree holds it.

    Attributes
    ----------
    name : str
        The name for people; `Forest.booster`, and what a saved model says.
    models, estimators, datasets : tuple of str
        "package.Class" of live models, of scikit-learn estimators around them, and of the booster's own data sets.
    accepts : str
        What users may pass as a live model, for errors: "lightgbm.Booster, LGBMRegressor".
    file_format : str
        What its model files are called in errors: "a LightGBM text model". Empty if it has none.
    objectives : mapping of str to Objective
        The objectives whose models can be wrapped, by the booster's names.
    is_file : callable
        ``head -> bool``: whether a file that begins with these bytes may be one of its models.
    read_file : callable
        ``raw -> Reading`` of a model file's bytes.
    read_model : callable
        ``model -> Reading`` of a live model.
    live_model : callable or None
        ``estimator -> model``, the live model inside a fitted estimator.
    read_estimator : callable or None
        ``estimator -> Reading``, where an estimator predicts otherwise than its live model. Default: reads the latter.
    read_dataset : callable
        ``data -> RawRows`` of its data set; TypeError if that did not keep its rows.
    training_columns : callable
        ``data -> TrainingColumns`` of a data set that an objective is called with.
    held_data : callable or None
        ``model -> data set or None``: the training data that a live model still holds.
    training_rows : callable or None
        ``(model, n) -> row numbers or None``: which of n rows, given in the order of training, the trees were grown on,
        in rising order. For a booster that holds rows back itself, to stop early, and can tell which. None for all
        rows, or if n is not the number of rows that training was given.
    label_dtype, gradient_dtype : dtype
        Precisions in which the booster holds labels and weights, and gradients and hessians (see `TrainingSpec`).
    renamed : tuple of (str, str)
        What the booster replaces in the names of columns, see `Features.renamed`.
    numbers_are_values : bool
        Whether it looks up numbers in categorical columns, see `Features.numbers_are_values`.
    exp : callable or None
        The exponential function of its predictions under a log link, on arrays, if it is not that of C: the last bits
        differ.
    category_hash : callable or None
        The hashes by which its models know categories, see `Features.category_hash`.
    checks_names : bool
        Whether the booster refuses a frame with other column names than the model's. If not, it goes by position.
    base_last : bool
        Whether it adds the base margin after the trees, see `Forest.base_last`.
    init_score_dtype : dtype
        Precision to which it rounds init scores, see `Forest.init_score_dtype`.
    init_score : str
        What its estimators call the scores that rows start from in `fit`.
    default_estimator : callable or None
        Return a new estimator; ImportError if the booster is not installed.
    refit : callable or None
        ``(model or bytes of a file, spec) -> Train``: the training of a model, to be repeated on other rows.
        `UnsupportedModelError` where its parameters are lost. None for a booster that cannot be trained again.
    recorder : callable or None
        ``(data, follow) -> callback`` for `record`, where `follow` is a `Follow`; `data` is the training data
        where `records_data` says that its callbacks do not see it, else None.
    records_data : bool
        Whether `record` must be given the training data.
    scoring : type or None
        A mixin that answers the booster's callback protocol for `crps_callback`, see `training.crps.CRPSCallback`.
    read_attribute, write_attribute : callable or None
        ``(model or bytes of a file, name) -> str or None`` and ``(model, name, text)``: strings that the booster stores
        in its model files. None where it drops what it does not know.
    """

    name: str
    models: tuple[str, ...]
    accepts: str
    file_format: str
    objectives: Mapping[str, Objective]
    is_file: Callable[[bytes], bool]
    read_file: Callable[[bytes], Reading]
    read_model: Callable[[Any], Reading]
    estimators: tuple[str, ...] = ()
    read_estimator: Callable[[Any], Reading] | None = None
    live_model: Callable[[Any], Any] | None = None
    datasets: tuple[str, ...] = ()
    read_dataset: Callable[[Any], RawRows] | None = None
    training_columns: Callable[[Any], TrainingColumns] | None = None
    held_data: Callable[[Any], Any] | None = None
    training_rows: Callable[[Any, int], NDArray[np.int64] | None] | None = None
    label_dtype: np.dtype[Any] = np.dtype(np.float32)  # noqa: RUF009, it is immutable
    gradient_dtype: np.dtype[Any] = np.dtype(np.float32)  # noqa: RUF009
    renamed: tuple[tuple[str, str], ...] = ()
    numbers_are_values: bool = False
    exp: Callable[[AnyArray], AnyArray] | None = None
    category_hash: Callable[[Sequence[Any]], AnyArray] | None = None
    checks_names: bool = True
    base_last: bool = False
    init_score_dtype: np.dtype[Any] = np.dtype(np.float64)  # noqa: RUF009
    init_score: str = "init_score"
    default_estimator: Callable[[], Any] | None = None
    refit: Callable[[Any, TrainingSpec], Train] | None = None
    recorder: Callable[[Any, Follow], Any] | None = None
    records_data: bool = False
    scoring: type | None = None
    read_attribute: Callable[[Any, str], str | None] | None = None
    write_attribute: Callable[[Any, str, str], None] | None = None

    def start_rules(self) -> dict[str, Any]:
        """Return what its forests store of where margins start."""
        return {"base_last": self.base_last, "init_score_dtype": self.init_score_dtype}


def class_names(thing: Any) -> set[str]:
    """Return "package.Class" of an object's type and of its bases, such as "lightgbm.Booster"."""
    return {f"{cls.__module__.partition('.')[0]}.{cls.__name__}" for cls in type(thing).__mro__}


def check_fitted(estimator: Any, attribute: str) -> None:
    """Refuse an estimator that is not fitted; `attribute` is one that `fit` sets."""
    # an unfitted LightGBM estimator raises its own error, scikit-learn's, or AttributeError, depending on its version
    try:
        getattr(estimator, attribute)
    except Exception as error:
        raise ValueError(f"this {type(estimator).__name__} is not fitted; call fit first") from error


@contextmanager
def finding(damage: str) -> Iterator[None]:
    """Turn what a damaged model raises inside into a ValueError that says so; refusals stay as they are."""
    try:
        yield
    except UnsupportedModelError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{damage}: {error}") from error


def unsupported_loss(kind: str, name: str, supported: Iterable[str]) -> UnsupportedModelError:
    """Return the error for a loss that is not among the supported ones; `kind` is the booster's word for losses."""
    return UnsupportedModelError(
        f"{kind} {name!r:.60} is not supported: a mean and a variance need a regression {kind.partition('_')[0]}, one "
        f"of {', '.join(sorted(supported))}"
    )


def shows_no_trees(booster: str, what: str) -> UnsupportedModelError:
    """Return the error for a booster, by name, whose training `what` cannot follow."""
    return UnsupportedModelError(
        f"{booster} shows no trees while it trains, so {what} cannot follow it: stop by its own metric, and call "
        f"wrap(booster, X, y)"
    )


class Train(Protocol):
    """Repeats a training on other rows, with the same parameters and number of trees."""

    def __call__(
        self, X: Any, y: Array, weight: AnyArray | None, init_score: Array | None, gradients: Gradients | None
    ) -> Any:
        """Return a live model trained on these rows, n of them.

        Parameters
        ----------
        X : (n, features) float array or sparse matrix
            Features as the booster sees them: categories are codes, or hashes if `Booster.category_hash` is set;
            missing values are NaN.
        y, weight, init_score : (n,) float array
            Columns of the rows, as in `RawRows`.
        gradients : callable or None
            A custom objective on these rows; None for the one that the model stores.
        """


class TrainingColumns(NamedTuple):
    """Columns of the data set that a booster calls an objective with.

    `learning_rate` is None where the booster does not show it.
    """

    label: Any
    weight: Any
    learning_rate: float | None = None


@dataclass(frozen=True)
class TreeLeaves:
    """The leaves of one tree: the booster's own numbers for them, as in `Forest.leaf_label`, and their values."""

    label: NDArray[np.int32]
    value: NDArray[Any]


@dataclass(frozen=True)
class LeafPaths:
    """The leaves that n rows reached in a few trees: one of P combinations ("paths") per row.

    Attributes
    ----------
    leaf : (trees, P) int32 array
        The leaves of each path, numbered through the trees.
    taken : (n,) uint32 array
        The path of each row.
    """

    leaf: NDArray[np.int32]
    taken: NDArray[np.uint32]


class FollowedTraining(Protocol):
    """The rows of a training that `record` follows, tree by tree. A recorder tells it what the booster did.

    Attributes
    ----------
    forest : Forest
        The model when it had its first trees.
    n_recorded : int
        Number of trees that were recorded.
    split_seen : bool
        Whether any recorded tree has a split.
    """

    forest: Forest

    @property
    def n_recorded(self) -> int: ...

    @property
    def split_seen(self) -> bool: ...

    def attach(self, model: Any) -> None:
        """Store what was recorded in the live model, where `wrap` finds it."""

    def give_up(self, model: Any, trees: list[TreeLeaves]) -> None:
        """Store in the model, and warn, that the scores do not tell the leaves of these trees apart."""

    def tells_two(self, tree: TreeLeaves) -> bool:
        """Tell whether the scores after another tree like this one will still tell the leaves of both trees."""

    def find(self, trees: list[TreeLeaves], score: NDArray[Any], link: int) -> LeafPaths | None:
        """Find the leaves that rows reached in the next trees, from the scores after them; None if these do not tell.

        `link` is how the booster's scores relate to margins.
        """

    def follow(self, trees: list[TreeLeaves], paths: LeafPaths, *, one_iteration: bool = True) -> None:
        """Record trees, of one iteration or of one each, and take the rows through them."""

    def check_first_tree(self) -> None:
        """Refuse a training whose first tree does not follow from the data and the objective."""


def check_followed(folds: bool, continued: str) -> None:
    """Refuse what `record` cannot follow: a training on `folds`, or one `continued` by a parameter of this name."""
    if folds:
        raise UnsupportedModelError("cv trains a model a fold, and record follows one: train the model to be wrapped")
    if continued:
        raise UnsupportedModelError(
            f"{continued}: record has not seen the trees that training continues from; train without it, and call "
            f"wrap(booster, X, y)"
        )


class Follow(Protocol):
    """Begins to follow a training."""

    def __call__(
        self, model: Any, y: NDArray[Any], weight: Any, init_score: Any, average: bool = False
    ) -> FollowedTraining:
        """Return the rows of a training at its start; `average` if the booster averages its trees."""
