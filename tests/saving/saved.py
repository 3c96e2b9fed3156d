"""Collect what a model says of rows, as bits.

Run as a program on a folder of saved models, it compares their answers where no booster can be imported.
"""

from __future__ import annotations

import pickle
import sys
import warnings
from pathlib import Path

import numpy as np

QUANTILES = [0.05, 0.5, 0.9]


def said(model, X):
    """Question -> dtype, shape and bytes of the answer, or the words of the refusal."""
    from pgbm_plugin.distributions import FAMILIES

    def bits(answer):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # quantiles of few rows, moments of points
                array = np.asarray(answer())
        except (ValueError, NotImplementedError) as error:
            return str(error)
        return array.dtype.str, array.shape, array.tobytes()

    few = X.iloc[:7] if hasattr(X, "iloc") else X[:7]
    out = {
        "predict": bits(lambda: model.predict(X)),
        "few": bits(lambda: model.predict(few)),  # walked, not replayed
        "std": bits(lambda: model.predict(X, return_std=True)[1]),
        "interval": bits(lambda: model.predict_interval(X, 0.8)),
        "rho": bits(lambda: model.predict_dist(X, "normal", rho=-0.3).std()),
        "support": bits(lambda: model.predict_support(X).rows),
        "outside": repr(model.predict_support(X).outside),
        "repr": repr(model),
    }
    for name in (*FAMILIES, "studentt(df=7)"):
        out[name] = bits(lambda name=name: model.predict_dist(X, name).ppf(QUANTILES))
    return out


def main(folder):
    for booster in ("lightgbm", "xgboost", "catboost", "sklearn"):
        sys.modules[booster] = None
    import pgbm_plugin

    paths = sorted(Path(folder).glob("*.pgbm"))
    for path in paths:
        X, expected = pickle.loads(path.with_suffix(".said").read_bytes())  # noqa: S301
        found = said(pgbm_plugin.load(path), X)
        wrong = [question for question in expected if found[question] != expected[question]]
        if wrong:
            raise SystemExit(f"{path.name} answers otherwise: {wrong}")
    print(len(paths))


if __name__ == "__main__":
    main(sys.argv[1])
