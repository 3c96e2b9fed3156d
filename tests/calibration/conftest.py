"""Models to calibrate, and held-out rows."""

from __future__ import annotations

import pytest

from pgbm_plugin import wrap
from tests.calibration import conformalized, tuned


@pytest.fixture(scope="module")
def tune_booster():
    return tuned.train("lightgbm", *tuned.heteroscedastic(1200, 0))


@pytest.fixture
def tunable(tune_booster):
    return wrap(tune_booster, *tuned.heteroscedastic(1200, 0), variance="pgbm", n_jobs=1)


@pytest.fixture(scope="module")
def tune_rows():
    return tuned.heteroscedastic(500, 1)


@pytest.fixture(scope="module")
def conformal_rows():
    return conformalized.data(200, 3)
