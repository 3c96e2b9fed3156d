"""Fixtures of the command line, of scikit-learn's regressors and of the report."""

from __future__ import annotations

import lightgbm as lgb
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.base import clone

from pgbm_plugin import ProbabilisticModel, wrap
from tests.people.commands import train, write
from tests.people.regressors import REGRESSORS
from tests.people.reported import made_cases, made_data, made_pages


@pytest.fixture(scope="module")
def cli_folder(tmp_path_factory, make_data):
    """Return a folder that holds a small model without names, wrapped and not, and its rows."""
    folder = tmp_path_factory.mktemp("plain")
    X, y = make_data("numeric", n=200)
    booster = train("lightgbm", X, y, folder)
    model = wrap(booster, X, y)
    model.rho = model.default_rho  # a choice, so that predictions do not warn
    model.save(folder / "model.pgbm")
    frame = pd.DataFrame(X, columns=list("abcd"))
    write(frame, folder / "new.parquet")
    write(frame.assign(y=y), folder / "rows.parquet")
    write(frame.assign(y=y), folder / "rows.csv")
    return folder


@pytest.fixture(params=REGRESSORS)
def regressor(request):
    return clone(REGRESSORS[request.param])


@pytest.fixture
def given_to_steps(monkeypatch):
    """Return a dict that fills with (X, y, options) of each step, by the name of its method."""
    given = {}

    def recorded(name, method):
        def record(self, X, y, **options):
            given[name] = X, y, options
            return method(self, X, y, **options)

        return record

    steps = [(lgb.LGBMRegressor, "fit"), (xgb.XGBRegressor, "fit")]
    for cls, name in [*steps, (ProbabilisticModel, "tune"), (ProbabilisticModel, "conformalize")]:
        monkeypatch.setattr(cls, name, recorded(name, getattr(cls, name)))
    return given


@pytest.fixture
def report_data():
    return made_data()


@pytest.fixture
def report_cases():
    return made_cases()


@pytest.fixture
def report_pages():
    return made_pages()
