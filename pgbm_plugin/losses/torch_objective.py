"""torch_objective(): any differentiable torch loss as an objective of the boosters, with exact derivatives."""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import AnyArray, Array
from ..boosters import booster_of_dataset
from ..errors import needing, warn
from ..tables.columns import read_labels, read_weights
from .levels import Level, read_levels

Hessian = Literal["diagonal", "rowsum"]

# A second derivative of 0 or less is raised to this share of the average positive one.
_FLOOR = 1e-3

# The largest default learning rate of the boosters.
_DEFAULT_RATE = 0.3

# All objectives in memory, numbered as they were made. Boosters do not store theirs, see `remembered`.
_LIVE: weakref.WeakValueDictionary[int, TorchObjective] = weakref.WeakValueDictionary()
_NUMBERS = count()


def torch_objective(
    loss: Callable[[Any, Any], Any],
    *,
    levels: Sequence[tuple[ArrayLike | None, ArrayLike]] | None = None,
    hessian: Hessian = "diagonal",
    device: Any = None,
    dtype: Any = None,
) -> TorchObjective:
    """Return an objective for `lgb.train`, `LGBMRegressor`, `xgb.train` and `XGBRegressor` from a torch loss.

    Parameters
    ----------
    loss : callable
        ``loss(y_pred, y_true)``: takes two tensors and returns a loss per row, or their sum.
    levels : list of (groups, weight), optional
        For losses of sums of rows. `groups` names each row's group, or is None for the rows themselves. The loss of a
        level is the sum over its groups of ``weight * loss(sum of predictions, sum of labels)``. `weight` is a number,
        or one number per group in the order of their names.
    hessian : {"diagonal", "rowsum"}
        Second derivatives that the booster gets. "diagonal": those of the paper. "rowsum": the row sums of the
        Hessian, which are larger if the loss couples rows; steps are then smaller and cannot diverge. With `levels`,
        `wrap` takes the variance from the diagonal in both cases.
    device : torch device, optional
        Device that computes the loss. Default: the CPU.
    dtype : torch dtype, optional
        Precision of the tensors. Default: float64.
    """
    return TorchObjective(loss, levels, hessian, device, dtype)


class TorchObjective:
    """A torch loss that the boosters can call; see `torch_objective`."""

    def __init__(self, loss: Callable[[Any, Any], Any], levels: Any, hessian: Hessian, device: Any, dtype: Any):
        if not callable(loss):
            raise TypeError(f"loss must be a function of (y_pred, y_true), not {loss!r}")
        if hessian not in ("diagonal", "rowsum"):
            raise ValueError(f"hessian must be 'diagonal' or 'rowsum', not {hessian!r}")
        self.loss = loss
        self.hessian = hessian
        self.device = device
        self.dtype = dtype
        self.levels = None if levels is None else read_levels(levels)
        self._trained_on: set[tuple[int, int]] = set()
        self._warned: set[str] = set()
        _LIVE[next(_NUMBERS)] = self

    def __call__(self, first: Any, second: Any, sample_weight: Any = None) -> tuple[Array, Array]:
        """Return (g, h) for a booster's call, ``(margin, data set)`` or ``(y_true, margin[, weight])``."""
        rate, booster = None, booster_of_dataset(second)
        if booster is not None and booster.training_columns is not None:
            margin, (y, sample_weight, rate) = first, booster.training_columns(second)
        else:
            margin, y = second, first
        y = np.asarray(y, np.float64).reshape(-1)
        if sample_weight is not None and len(sample_weight) == 0:  # XGBoost without weights
            sample_weight = None
        if _digest(y) not in self._trained_on:
            self._look_ahead(np.asarray(margin).reshape(-1), y, rate)
            self._trained_on.add(_digest(y))
        return self.derivatives(margin, y, sample_weight)

    def derivatives(
        self,
        margin: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        hessian: Hessian | None = None,
        floor: bool = True,
    ) -> tuple[Array, Array]:
        """Return the (n,) gradients and second derivatives; `hessian` is "diagonal" or "rowsum", by default its own."""
        g, diagonal, rowsum = self._exact(np.asarray(margin).reshape(-1), np.asarray(y).reshape(-1))
        h = rowsum if (hessian or self.hessian) == "rowsum" else diagonal
        h = self._floored(h) if floor else h
        if sample_weight is None:
            return g, h
        if self.levels is not None:
            raise ValueError("a loss with levels has weights per group: leave sample_weight out")
        weight = np.asarray(sample_weight, np.float64).reshape(-1)
        return g * weight, h * weight

    def init(self, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the constant margin that minimises the loss, to start training from instead of 0 or 0.5.

        LightGBM: ``lgb.Dataset(X, y, init_score=np.full(len(y), objective.init(y)))``, to be added to predictions;
        XGBoost: ``params["base_score"] = objective.init(y)``.
        """
        from scipy.optimize import brentq

        n = np.size(y)
        if n == 0 or (sample_weight is not None and self.levels is not None):
            raise ValueError("init needs labels, and no sample_weight if the loss has levels, which have weights")
        label, weight = read_labels("y", y, n), read_weights("sample_weight", sample_weight, n)
        weight = np.ones(n) if weight is None else weight

        def slope(c: float) -> float:
            with np.errstate(all="ignore"):
                return float(self._exact(np.full(n, c), label, check=False)[0] @ weight)

        # 0 may be outside the loss's domain; the mean label may be far from the margin of a log link
        low = high = next((c for c in (0.0, float(label.mean())) if np.isfinite(slope(c))), 0.0)
        step = float(label.std()) or 1.0
        # widen the bracket until the slope of the convex loss changes its sign
        for _ in range(200):
            at_low, at_high = slope(low), slope(high)
            if at_low <= 0.0 <= at_high:
                return float(brentq(slope, low, high, xtol=1e-12 * (1.0 + abs(low) + abs(high))) if low < high else low)
            if at_high < 0.0 and np.isfinite(slope(high + step)):
                low, high = high, high + step
            elif at_low > 0.0 and np.isfinite(slope(low - step)):
                low, high = low - step, low
            else:
                step /= 4.0  # the loss is not defined that far away
                continue
            step *= 2.0
        raise ValueError("no constant minimises the loss on these labels; choose the start of training yourself")

    def __deepcopy__(self, memo: Any) -> TorchObjective:
        return self  # lgb.train and scikit-learn's clone make copies that do not live long enough for `remembered`

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        _LIVE[next(_NUMBERS)] = self

    def __repr__(self) -> str:
        name = getattr(self.loss, "__name__", type(self.loss).__name__)
        levels = "" if self.levels is None else f", {len(self.levels)} levels"
        return f"torch_objective({name}{levels}, hessian={self.hessian!r})"

    def _exact(self, margin: AnyArray, y: AnyArray, check: bool = True) -> tuple[Array, Array, Array]:
        """Return the (n,) gradient, diagonal and row sums of the Hessian of the loss of all levels."""
        if len(margin) != len(y):
            raise ValueError(f"{len(margin)} predictions for {len(y)} labels")
        g, diagonal, rowsum = np.zeros((3, len(y)))
        for level in self._levels(len(y)):
            dg, dh = self._group_derivatives(level.sums(margin), level.sums(y), level.weight)
            if level.group is None:
                derivatives = dg, dh, dh
            else:
                derivatives = dg[level.group], dh[level.group], (dh * np.bincount(level.group))[level.group]
            for total, derivative in zip((g, diagonal, rowsum), derivatives, strict=True):
                total += derivative
        bad = ~(np.isfinite(g) & np.isfinite(diagonal))
        if check and bad.any():
            i = int(np.argmax(bad))
            raise ValueError(
                f"the loss has no finite derivatives in {bad.sum()} rows (first: prediction {margin[i]:g}, "
                f"label {y[i]:g})"
            )
        return g, diagonal, rowsum

    def _levels(self, n: int) -> list[Level]:
        """Return the levels of n rows; one level of the rows themselves if there are none."""
        for level in self.levels or []:
            rows = level.weight.size if level.group is None else len(level.group)
            if rows != n and not (level.group is None and level.weight.ndim == 0):
                raise ValueError(f"levels has groups for {rows} rows, the data has {n}")
        return self.levels or [Level(None, n, np.ones(()))]

    def _group_derivatives(self, pred: AnyArray, true: AnyArray, weight: Array) -> tuple[Array, Array]:
        """Return gradient and row sums of the Hessian, which are its diagonal unless the loss couples groups."""
        torch, p, g = self._gradient(pred, true, weight)
        return _array(g), _array(_derivative(torch, g.sum(), p))

    def _gradient(self, pred: AnyArray, true: AnyArray, weight: Array) -> tuple[Any, Any, Any]:
        """Return torch, the predictions as a tensor, and the gradient of the weighted loss by them, for derivatives."""
        with needing("torch_objective needs torch: pip install 'pgbm-plugin[torch]'"):
            import torch
        kind = {"dtype": self.dtype or torch.float64, "device": self.device}
        p = torch.tensor(pred, **kind, requires_grad=True)
        value = self.loss(p, torch.tensor(true, **kind))
        if not isinstance(value, torch.Tensor) or not value.requires_grad:
            raise TypeError("loss must return a tensor that depends on y_pred through torch's functions")
        if value.shape not in (p.shape, ()):
            raise ValueError(f"loss must return one value per row or their sum, not shape {tuple(value.shape)}")
        if value.ndim == 0 and weight.ndim:
            raise ValueError("weights per group need a loss per group: let loss return one value for each group")
        (g,) = torch.autograd.grad((value * torch.tensor(weight, **kind)).sum(), p, create_graph=True)
        return torch, p, g

    def _couples(self, pred: AnyArray, true: AnyArray, weight: Array) -> bool:
        """Tell whether the Hessian has entries off its diagonal.

        Without such entries, the Hessian times a vector of random signs equals its row sums times the signs.
        """
        torch, p, g = self._gradient(pred, true, weight)
        signs = torch.tensor(np.random.default_rng(0).choice([-1.0, 1.0], len(pred)), dtype=p.dtype, device=p.device)
        rowsum = _derivative(torch, g.sum(), p, keep=True)
        product = _derivative(torch, (g * signs).sum(), p)
        difference = float((product - rowsum * signs).abs().max())
        # outside the loss's domain, the difference is NaN and the comparison False
        return difference > 1e3 * torch.finfo(p.dtype).eps * float(rowsum.abs().max() + product.abs().max())

    def couples_rows(self, margin: AnyArray, y: Array) -> bool:
        """Tell whether the loss couples groups of rows, or single rows if there are no levels."""
        # test with noise, too: at equal margins, a penalty on the spread of predictions does not couple rows
        noise = 0.5 * y.std() * np.random.default_rng(0).normal(size=len(y))
        return any(
            self._couples(level.sums(at), level.sums(y), level.weight)
            for level in self._levels(len(y))
            for at in (margin, margin + noise)
        )

    def _look_ahead(self, margin: AnyArray, y: Array, rate: float | None) -> None:
        """Refuse a loss that couples rows, and warn of other problems, before the first tree is grown."""
        if (self.hessian == "diagonal" or self.levels is not None) and self.couples_rows(margin, y):
            raise ValueError(
                "the loss couples rows, so one backward pass does not give the diagonal of its Hessian. Say which rows "
                "it sums: torch_objective(loss, levels=[(groups, weight), ...]), with a loss of one sum. Or use the "
                "row sums of the Hessian: hessian='rowsum'"
            )
        _, diagonal, rowsum = self._exact(margin, y)
        if self.levels and self.hessian == "diagonal":
            ratio = float((rowsum / np.where(diagonal > 0, diagonal, np.inf)).max())
            if (rate or _DEFAULT_RATE) * ratio >= 2.0:
                self._warn(
                    "diverge",
                    f"with hessian='diagonal', steps diverge at learning rates above {2 / ratio:.2g}, because the "
                    f"Hessian's row sums are up to {ratio:.3g} times its diagonal: use a lower learning rate, or "
                    f"hessian='rowsum'",
                )
        if self.levels is None and diagonal.mean() * len(y) < 100.0 and len(y) > 100:
            self._warn(
                "small",
                f"second derivatives are {diagonal.mean():.1g} on average and their sum is below 100, so "
                "min_child_weight or min_sum_hessian_in_leaf will stop trees early. If the loss is a mean, let it "
                "return one value per row (reduction='none')",
            )

    def _floored(self, h: Array) -> Array:
        bad = ~(h > 0.0)
        if not bad.any():
            return h
        if bad.all():
            raise ValueError(
                "the loss has no positive second derivative in any row, and boosters need them: smooth the loss"
            )
        self._warn(
            "floor",
            f"{bad.sum()} of {len(h)} second derivatives are not positive; they are replaced by {_FLOOR:g} times the "
            "average positive one",
        )
        return np.where(bad, _FLOOR * h[~bad].mean(), h)

    def _warn(self, which: str, message: str) -> None:
        if which not in self._warned:
            self._warned.add(which)
            warn(message)


def remembered(y: Array, weighted: bool) -> list[TorchObjective]:
    """Return the objectives in memory that a booster was trained with on these labels, the newest first.

    If the rows are `weighted`, a loss of levels is not among them: it takes the weights of its groups instead.
    """
    fitting = [objective for objective in _LIVE.values() if _digest(y) in objective._trained_on]
    return [objective for objective in reversed(fitting) if objective.levels is None or not weighted]


def _derivative(torch: Any, value: Any, by: Any, keep: bool = False) -> Any:
    """Return d value / d by; 0 if `value` does not depend on `by`, like the gradient of a linear loss."""
    if not value.requires_grad:
        return torch.zeros_like(by)
    (out,) = torch.autograd.grad(value, by, retain_graph=keep, allow_unused=True)
    return torch.zeros_like(by) if out is None else out


def _array(tensor: Any) -> Array:
    return tensor.numpy(force=True).astype(np.float64)


def _digest(y: Array) -> tuple[int, int]:
    """Hash labels in float32, the precision of most boosters."""
    return len(y), zlib.crc32(np.ascontiguousarray(y, np.float32).data)
