"""The example of forecast paths: draws feed on each other, belong to their series, and add up to totals that hold."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("mlforecast")
from examples import paths

COUNT, DAYS, TIMES = 4, 500, 150


@pytest.fixture(scope="module")
def fitted():
    """The forecaster and the model, and the last days of four series, whose levels are far apart."""
    series = paths.make_series(COUNT, DAYS, np.random.default_rng(0))
    forecaster, model = paths.fit(series)
    past = series[series["ds"] >= DAYS - 8]
    one = np.tile(past["y"][past["unique_id"] == 0], COUNT)
    return forecaster, model, past.assign(y=one + 4.0 * past["unique_id"])


def test_the_first_day_is_that_of_the_model_and_later_days_go_on_from_it(fitted):
    forecaster, model, past = fitted
    alone, together = paths.sample_paths(*fitted, TIMES, np.random.default_rng(1))
    rows = paths.Rows()
    forecaster.predict(1, new_df=past, before_predict_callback=rows.before)
    first = model.predict_dist(rows.steps[0])
    assert np.min(np.abs(np.diff(first.mean()))) > 1.0  # so that no series is taken for another
    for samples in (alone, together):
        assert samples.shape == (COUNT, paths.HORIZON, TIMES)
        for k in range(COUNT):
            z = (samples[k, 0] - first.mean()[k]) / first.std()[k]
            assert stats.kstest(z, "norm").pvalue > 1e-4
            # deviations stay by STAYS from day to day; independent days would have 0
            assert np.corrcoef(samples[k, 5], samples[k, 6])[0, 1] > 0.4


def test_series_share_their_days_in_joint_paths_only(fitted):
    alone, together = (
        np.mean(np.corrcoef(samples[:, 0])[np.triu_indices(COUNT, 1)])
        for samples in paths.sample_paths(*fitted, TIMES, np.random.default_rng(1))
    )
    assert abs(alone) < 0.12
    assert together > 0.12


def test_the_example_runs(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["paths.py", "--quick"])
    paths.main()
    table = capsys.readouterr().out.splitlines()[-4:]
    cover = {line[:12].strip(): [float(number) for number in re.findall(r"([\d.]+)%", line)] for line in table}
    assert list(cover) == ["one step", "marginals", "paths", "joint paths"]
    assert cover["joint paths"][1] > cover["one step"][1] + 10.0  # the last day
    assert cover["paths"][2] > cover["marginals"][2] + 10.0  # two weeks of a series
    assert cover["joint paths"][3] >= cover["paths"][3]  # two weeks of all series
