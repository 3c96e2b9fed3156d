"""PGBMProbaRegressor among skpro's and sktime's own tools, and distributions as skpro's."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.preprocessing import StandardScaler

from pgbm_plugin import distributions
from pgbm_plugin.distributions import Clipped, Conformal, Gamma, Normal, Poisson, Snapped
from pgbm_plugin.sklearn import PGBMRegressor

# skpro and sktime call what pandas and they themselves deprecate
pytestmark = [pytest.mark.filterwarnings("ignore::FutureWarning"), pytest.mark.filterwarnings("ignore::UserWarning")]

pytest.importorskip("skpro")

from pgbm_plugin.skpro import PGBMProbaRegressor, RowDistributions, to_skpro  # noqa: E402

BOOSTER = LGBMRegressor(n_estimators=5, min_child_samples=5, n_jobs=1, verbose=-1)


def small(**settings):
    return PGBMProbaRegressor(BOOSTER, **{"cv": 2, **settings})


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
    y = pd.DataFrame({"price": X["a"] + np.exp(0.5 * X["b"]) * rng.normal(size=300)})
    return X, y


@pytest.fixture(scope="module")
def fitted(rows):
    return small().fit(*rows)


@pytest.mark.parametrize("checked", [small(), RowDistributions], ids=["regressor", "distributions"])
def test_skpro_s_own_checks(checked):
    from skpro.utils import check_estimator

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(checked, verbose=False)
    assert len(results) > 30
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}


def test_predictions_are_those_of_the_scikit_learn_estimator(rows, fitted):
    X, y = rows
    own = PGBMRegressor(BOOSTER, cv=2).fit(X, y["price"])
    index = X.index[::-1]
    X = X.loc[index]
    mean = fitted.predict(X)
    assert np.array_equal(mean["price"], own.predict(X))
    assert mean.index.equals(index)
    found = fitted.predict_interval(X, coverage=[0.5, 0.9])
    assert np.array_equal(found["price", 0.9], own.predict_interval(X, 0.9))
    assert np.array_equal(fitted.predict_quantiles(X, [0.1, 0.7]), own.predict_quantiles(X, [0.1, 0.7]))
    assert np.array_equal(fitted.predict_var(X)["price"], own.predict_dist(X).var())


def test_update_adds_rows(rows):
    X, y = rows
    model = small().fit(X[:200], y[:200])
    before, mean = model.model_.moments.count.sum(), model.predict(X)
    model.update(X[200:], y[200:])
    assert model.model_.moments.count.sum() > before
    assert model.predict(X).equals(mean)


def test_several_targets_are_refused(rows):
    X, y = rows
    with pytest.raises(ValueError, match=r"one target, and y has 2 columns: fit one regressor for each"):
        small().fit(X, y.assign(other=1.0))


def test_tuned_and_scored_by_skpro(rows):
    from skpro.metrics import CRPS
    from skpro.model_selection import GridSearchCV
    from skpro.regression.compose import Pipeline

    X, y = rows
    pipeline = Pipeline([("scale", StandardScaler()), ("model", small())])
    grid = {"model__estimator__num_leaves": [2, 8], "model__distribution": ["normal", "studentt"]}
    search = GridSearchCV(pipeline, cv=2, param_grid=grid, scoring=CRPS(), backend="None", error_score="raise").fit(
        X, y
    )
    assert len(search.cv_results_) == 4
    assert 0.3 < search.best_score_ < 1.5
    score = CRPS()(y, search.predict_proba(X))
    last = search.best_estimator_.steps_[-1][1]
    scaled = StandardScaler().set_output(transform="pandas").fit_transform(X)
    assert score == pytest.approx(last.model_.predict_dist(scaled).crps(y["price"]).mean())


def test_forecasts_of_sktime():
    pytest.importorskip("sktime")
    from sktime.forecasting.compose import make_reduction

    rng = np.random.default_rng(0)
    y = pd.Series(10 + np.sin(np.arange(200)) + rng.normal(0, 0.3, 200), pd.RangeIndex(200))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forecaster = make_reduction(small(distribution="normal"), strategy="direct", window_length=8)
        forecaster.fit(y, fh=[1, 2, 3])
        ends = forecaster.predict_interval(coverage=0.9)
    assert ends.shape == (3, 2)
    width = ends.iloc[:, 1] - ends.iloc[:, 0]
    assert np.all((width > 0.5) & (width < 3.0))


def members():
    """Yield a distribution of every family, and of every kind that is made from another."""
    rng = np.random.default_rng(0)
    mean, variance = rng.gamma(4.0, 2.0, 20) + 0.5, rng.gamma(2.0, 2.0, 20) + 9.0
    for name, cls in distributions.FAMILIES.items():
        residuals = {"residuals": rng.normal(size=40)} if cls.needs_residuals else {}
        family = cls.from_moments(mean, variance, **residuals)
        yield pytest.param(family, id=name)
        if name in ("normal", "poisson", "conformal"):
            yield pytest.param(Snapped(family, np.arange(30.0)), id=f"{name}-snapped")
        if name in ("normal", "poisson"):
            yield pytest.param(Clipped(family, 2.0, 20.0), id=f"{name}-clipped")
    variance[::4] = 0.0
    yield pytest.param(Normal.from_moments(mean, variance), id="point masses")


@pytest.mark.parametrize("distribution", members())
def test_every_family_as_skpro_s(distribution):
    """Moments, quantiles and scores are those of the family; the spread between two copies is that of samples."""
    from skpro.metrics import CRPS, PinballLoss

    y = pd.DataFrame({"y": np.random.default_rng(1).gamma(4.0, 2.0, 20).round()}, index=np.arange(20) * 3)
    found = to_skpro(distribution, y.index, y.columns)
    assert found.shape == (20, 1)
    for method in ("mean", "var"):
        assert np.allclose(getattr(found, method)()["y"], getattr(distribution, method)(), rtol=1e-12)
    assert np.allclose(found.cdf(y)["y"], distribution.cdf(y["y"]), atol=1e-12)
    assert np.allclose(found.quantile([0.1, 0.9]), distribution.ppf([0.1, 0.9]), rtol=1e-12)
    assert np.allclose(CRPS().evaluate_by_index(y, found).iloc[:, 0], distribution.crps(y["y"]), rtol=1e-9, atol=1e-9)
    assert np.isfinite(PinballLoss(alpha=[0.1, 0.9])(y, found.quantile([0.1, 0.9])))
    copies = (distribution.rvs(20_000, random_state=seed) for seed in (1, 2))
    distance = np.abs(next(copies) - next(copies))
    error = distance.std(axis=1) / np.sqrt(20_000)
    assert np.all(np.abs(found.energy()["energy"] - distance.mean(axis=1)) <= 5.0 * error + 1e-6)
    few = found.iloc[[3, 1]]
    assert list(few.index) == [9, 3]
    assert np.allclose(few.mean()["y"], distribution.mean()[[3, 1]], rtol=1e-12)
    assert found.sample(5).shape == (100, 1)
    assert found.iat[2, 0].mean() == pytest.approx(distribution.mean()[2])


def test_which_become_skpro_s_own():
    mean, variance = np.array([1.0, 2.0]), np.array([1.0, 0.0])
    assert type(to_skpro(Normal.from_moments(mean, mean))).__module__.startswith("skpro")
    assert isinstance(to_skpro(Normal.from_moments(mean, variance)), RowDistributions)  # a point mass has no density
    assert isinstance(to_skpro(Gamma.from_moments(mean, mean)), RowDistributions)


@pytest.mark.parametrize(
    ("distribution", "kind", "mass"),
    [
        (Gamma.from_moments([2.0], [1.0]), "continuous", [0.0, 0.0]),
        (Poisson.from_moments([2.0], [2.0]), "discrete", [np.exp(-2.0), 0.0]),
        (Clipped(Normal.from_moments([0.0], [1.0]), lower=0.0), "mixed", [0.5, 0.0]),
    ],
)
def test_probabilities_of_single_outcomes(distribution, kind, mass):
    found = to_skpro(distribution)
    assert found.get_tag("distr:measuretype") == kind
    assert np.allclose([found.pmf(0.0).iloc[0, 0], found.pmf(0.5).iloc[0, 0]], mass)
    if kind != "discrete":
        assert found.log_pdf(0.5).iloc[0, 0] == pytest.approx(distribution.logpdf(0.5)[0])


def test_conformal_quantiles_are_rounded_outwards():
    conformal = Conformal.from_moments(np.zeros(2), np.ones(2), residuals=np.arange(19.0))
    found = to_skpro(conformal).quantile([0.05, 0.95]).to_numpy()
    assert np.array_equal(found, np.stack(conformal.interval(0.9), axis=1))
    assert np.all(found[:, 0] <= 0.0)
    assert np.all(found[:, 1] >= 18.0)


def test_bad_names_are_refused():
    normal = Gamma.from_moments([1.0, 2.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="2 rows of one column need as many names, not 3 and 1"):
        to_skpro(normal, [1, 2, 3])
    with pytest.raises(ValueError, match="give index= and columns= for 2 rows"):
        RowDistributions(normal)
    with pytest.raises(TypeError, match="takes a distribution of predict_dist, not ndarray"):
        to_skpro(np.zeros(3))
