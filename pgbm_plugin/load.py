"""load(): a model from the file that `ProbabilisticModel.save` wrote."""

from __future__ import annotations

import os

from .device import check_device
from .model import ProbabilisticModel
from .saving.model_bytes import read


def load(path: str | os.PathLike[str], *, device: str = "auto", n_jobs: int | None = None) -> ProbabilisticModel:
    """Load a model that `ProbabilisticModel.save` wrote: it predicts the same bits, and needs no booster installed.

    Everything in the file is checked before it is used; a damaged or hostile one is a ValueError. A family of your own
    must be registered first. The function of a custom objective is not in the file: the model predicts, but cannot
    take further moments.

    Parameters
    ----------
    path : str or path
        The file.
    device : str
        Where it predicts, as in `wrap`.
    n_jobs : int, optional
        Threads; None for all cores.
    """
    check_device(device)
    return ProbabilisticModel(read(path), device=device, n_jobs=n_jobs)
