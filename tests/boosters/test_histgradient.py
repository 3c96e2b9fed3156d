"""HistGradientBoostingRegressor: leaves, bits and certificates against its own, and the layouts that are refused."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import numpy.lib.recfunctions as rfn
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from pgbm_plugin import UnsupportedModelError, embed, load, partial_moments, record, wrap
from tests import naive
from tests.boosters.histgradient import own_leaves, own_values
from tests.quiet import quiet_wrap

SMALL = {"max_iter": 6, "max_leaf_nodes": 8, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 4))
    X[rng.random(X.shape) < 0.1] = np.nan
    X[:, 2] = rng.integers(0, 5, 700)  # ties
    y = np.nan_to_num(X[:, 0]) + 0.3 * X[:, 2] + 0.4 * rng.normal(size=700)
    return X, y


def fit(X, y, weight=None, **params):
    return HistGradientBoostingRegressor(**{**SMALL, **params}).fit(X, y, sample_weight=weight)


def test_bits_at_the_edges(rows, leaf_labels):
    """Infinities, ties, signed zeros, and numbers of every type go where its own trees send them."""
    X, y = rows
    rng = np.random.default_rng(1)
    edges = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, 1e300, 5e-324])
    Z = rng.choice(edges, (300, 4))
    for loss, label in (("squared_error", y), ("poisson", np.exp(y)), ("gamma", np.exp(y))):
        model = fit(X, label, loss=loss)
        thresholds = np.concatenate([t.nodes["num_threshold"] for (t,) in model._predictors])
        on = rng.choice(thresholds[np.isfinite(thresholds)], (300, 4))
        pm = wrap(model, X, label)
        for table in (Z, on, np.nextafter(on, np.inf), on.astype(np.float32), rng.integers(-3, 9, (50, 4)), Z[:1]):
            assert np.array_equal(leaf_labels(pm, table), own_leaves(model, table))
            assert np.array_equal(pm.predict(table), model.predict(table))
        assert np.array_equal(pm.predict_dist(Z).mean(), model.predict(Z))


def test_splits_that_part_only_the_missing(rows, leaf_labels):
    X, y = np.zeros((400, 2)), rows[1][:400].copy()
    X[::3, 1] = np.nan
    y[::3] += 5.0
    model = fit(X, y)
    assert np.isinf(model._predictors[0][0].nodes["num_threshold"]).any()
    assert np.array_equal(leaf_labels(wrap(model, X, y), X), own_leaves(model, X))


@pytest.mark.parametrize("loss", ["squared_error", "poisson", "gamma"])
@pytest.mark.parametrize("l2", [0.0, 3.0])
def test_certificate_tells_true_rows_from_others(rows, loss, l2):
    X, y = rows[0], rows[1] if loss == "squared_error" else np.exp(rows[1])
    weight = np.random.default_rng(2).uniform(0.5, 2.0, len(y))
    one_off = y.copy()
    one_off[100] += 1.0
    for w, wrong in ((None, weight), (weight, None), (weight, weight[::-1])):
        model = fit(X, y, w, loss=loss, l2_regularization=l2)
        certificate = wrap(model, X, y, sample_weight=w).certificate
        assert certificate.status == "certified"
        assert certificate.error < 1e-9
        assert quiet_wrap(model, X, one_off, sample_weight=w).certificate.status == "approximate"
        assert quiet_wrap(model, X, y, sample_weight=wrong).certificate.status == "approximate"
        some = quiet_wrap(model, X[:-1], y[:-1], sample_weight=None if w is None else w[:-1])
        assert some.certificate.status == "held-out"


def test_weights_where_training_had_none_are_not_certified(rows):
    """Without l2 no leaf changes if all weights double; the sums of hessians do."""
    model = fit(*rows)
    assert quiet_wrap(model, *rows, sample_weight=np.full(700, 2.0)).certificate.status == "approximate"


def test_moments_are_those_of_the_oracle_with_rows_of_weight_0(rows):
    X, y = rows
    weight = np.random.default_rng(3).integers(0, 3, len(y)).astype(float)
    model = fit(X, y, weight, max_iter=2, min_samples_leaf=60)
    pm = wrap(model, X, y, sample_weight=weight)
    start = float(model._baseline_prediction.item())
    ids = own_leaves(model, X)
    trees = naive.replay(
        ids, own_values(model), naive.squared, 0.0, y, start, weight=weight, weigh_rounded=False, held=float
    )
    want = [leaf.moments() for tree in trees for leaf in (tree[k] for k in sorted(tree))]
    np.testing.assert_allclose(pm.moments.g_mean, [m[1] for m in want], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(pm.moments.var_g, [m[3] for m in want], rtol=1e-9)


def test_settings_that_change_no_leaf_formula(rows):
    X, y = rows
    warm = HistGradientBoostingRegressor(**SMALL, warm_start=True).fit(X, y)
    for model in (
        fit(X, y, max_features=0.5, interaction_cst=[{0, 1}, {2, 3}]),
        fit(X, y, max_depth=2, max_bins=7),
        fit(X, y, max_leaf_nodes=None, min_samples_leaf=5, learning_rate=1.0),
        warm.set_params(max_iter=9).fit(X, y),
    ):
        pm = wrap(model, X, y)
        assert pm.certificate.status == "certified"
        assert np.array_equal(pm.predict(X), model.predict(X))


def test_a_rate_that_warm_start_changed_is_not_certified_by_the_last(rows):
    model = HistGradientBoostingRegressor(**SMALL, warm_start=True).fit(*rows)
    model.set_params(max_iter=9, learning_rate=0.3).fit(*rows)
    assert quiet_wrap(model, *rows).certificate.status == "approximate"


def test_monotone_bounds(rows):
    """A constraint that bounds no leaf certifies; one that does is approximate, and says how many leaves it bounds."""
    X, y = rows
    free, idle = fit(X, y, max_leaf_nodes=2), fit(X, y, max_leaf_nodes=2, monotonic_cst=[1, 0, 1, 0])
    assert wrap(free, X, y).certificate.status == wrap(idle, X, y).certificate.status == "certified"
    model = fit(X, y, monotonic_cst=[1, 0, -1, 0], max_leaf_nodes=16)
    pm = quiet_wrap(model, X, y)
    assert pm.certificate.status == "approximate"
    assert "monotonic_cst bounds" in pm.certificate.sentence
    assert np.array_equal(pm.predict(X), model.predict(X))
    # every leaf off its formula was counted
    stated = int(pm.certificate.sentence.split("bounds ")[1].split(" ")[0])
    m = pm.moments
    newton = -0.1 * m.g_sum / m.h_sum
    assert 0 < np.sum(~np.isclose(newton, pm.forest.leaf_value, rtol=1e-5, atol=1e-7)) <= stated


def test_absolute_error_is_approximate(rows):
    model = fit(*rows, loss="absolute_error")
    pm = quiet_wrap(model, *rows)
    assert pm.certificate.status == "approximate"
    assert "absolute_error renews its leaves" in pm.certificate.sentence
    assert np.array_equal(pm.predict(rows[0]), model.predict(rows[0]))


def test_labels_that_cannot_be_split(rows):
    """A tree of one leaf adds nothing, and the spread is that of the labels."""
    X, y = rows[0], rows[1]
    model = fit(X, y, min_samples_leaf=400)
    pm = wrap(model, X, y)
    assert pm.certificate.status == "certified"
    assert np.array_equal(pm.predict(X), model.predict(X))
    np.testing.assert_allclose(pm.predict_var(X[:1]), y.var(ddof=1), rtol=1e-6)


def test_save_load_and_pickle_without_scikit_learn(rows, tmp_path):
    X, y = rows
    pm = wrap(fit(X, np.exp(y), loss="gamma"), X, np.exp(y))
    pm.save(tmp_path / "model.pgbm")
    for copied in (load(tmp_path / "model.pgbm"), pickle.loads(pickle.dumps(pm))):  # noqa: S301
        assert np.array_equal(copied.predict(X), pm.predict(X))
        assert np.array_equal(copied.predict_interval(X), pm.predict_interval(X))
        assert copied.update(X, np.exp(y)).spec.label_dtype == np.float64
    np.save(tmp_path / "X.npy", X)
    code = (
        "import sys; sys.modules['sklearn'] = None; import numpy as np, pgbm_plugin; "
        f"p = pgbm_plugin.load({str(tmp_path / 'model.pgbm')!r}).predict(np.load({str(tmp_path / 'X.npy')!r})); "
        "print(p.sum().hex())"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.strip() == pm.predict(X).sum().hex()


def test_what_it_cannot_do_is_refused_by_name(rows):
    X, y = rows
    with pytest.raises(UnsupportedModelError, match=r"loss 'quantile' is not supported: .* poisson, squared_error"):
        wrap(fit(X, y, loss="quantile", quantile=0.3), X, y)
    for classes in (2, 3):
        label = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
        with pytest.raises(UnsupportedModelError, match="loss 'log_loss' is not supported"):
            wrap(HistGradientBoostingClassifier(**SMALL).fit(X, label), X, label)
    with pytest.raises(ValueError, match="not fitted; call fit first"):
        wrap(HistGradientBoostingRegressor(), X, y)
    model = fit(X, y)
    with pytest.raises(UnsupportedModelError, match="HistGradientBoosting drops what it does not know"):
        embed(model)
    with pytest.raises(UnsupportedModelError, match="HistGradientBoosting shows no trees while it trains, so record"):
        record(model)
    with pytest.raises(TypeError, match="found neither moments nor training data"):
        wrap(model)


def without(name):
    def change(model):
        delattr(model, name)

    return change


def renamed_field(model):
    tree = model._predictors[0][0]
    tree.nodes = rfn.rename_fields(tree.nodes, {"num_threshold": "threshold"})


def two_trees(model):
    model._predictors[1] = model._predictors[1] * 2


def other_bitsets(model):
    model._predictors[2][0].raw_left_cat_bitsets = np.zeros((0, 4), np.uint64)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (without("_bin_mapper"), "it has no _bin_mapper"),
        (without("_random_seed"), "it has no _random_seed"),
        (without("_preprocessor"), "it has no _preprocessor"),
        (renamed_field, "nodes have the fields value, count, feature_idx, threshold"),
        (two_trees, "_predictors is not a list of one tree per iteration"),
        (other_bitsets, r"raw_left_cat_bitsets have type uint64 and shape \(0, 4\)"),
    ],
)
def test_other_layouts_are_refused_by_name(rows, change, named):
    model = copy.deepcopy(fit(*rows))
    change(model)
    with pytest.raises(UnsupportedModelError, match=rf"not stored as scikit-learn .* stores it .*{named}.*fit it anew"):
        wrap(model, *rows)


def points(field, value):
    def change(model):
        model._predictors[0][0].nodes[field][0] = value

    return change


@pytest.mark.parametrize(
    "change", [points("left", 10**6), points("right", 0), points("feature_idx", -1), points("feature_idx", 99)]
)
def test_damaged_trees_are_refused(rows, change):
    model = copy.deepcopy(fit(*rows))
    change(model)
    with pytest.raises(ValueError, match="damaged HistGradientBoostingRegressor"):
        wrap(model, *rows)


def test_parts_merge_to_the_whole(rows):
    X, y = rows
    model = fit(X, y)
    parts = [partial_moments(model, X[i::3], y[i::3]) for i in range(3)]
    assert wrap(model, parts[0].merge(parts[1]).merge(parts[2])).certificate.status == "certified"
