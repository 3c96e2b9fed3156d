"""CatBoost's models: leaves, bits of predictions, certificate, categories, files and data sets."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import catboost as cb
import numpy as np
import pandas as pd
import pytest

from pgbm_plugin import UnsupportedModelError, boosters, crps_callback, load, record, wrap
from pgbm_plugin.cli import main
from pgbm_plugin.sklearn import PGBMRegressor
from tests.boosters.catboost_models import FIXED, damage, train


def train_frame(d, y, cats, **params):
    return cb.CatBoostRegressor(**(FIXED | {"one_hot_max_size": 255, "cat_features": cats} | params)).fit(d, y)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    X[::7, 2] = np.nan
    return X, X[:, 0] + np.exp(X[:, 1] / 3) * rng.normal(size=600) + 30


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(1)
    d = pd.DataFrame(
        {
            "x": rng.normal(size=500),
            "text": rng.choice(["x", "Zürich", "", "a name of more than 16 letters"], 500).astype(object),
            "whole": rng.integers(-1, 9, 500),
            "kind": pd.Categorical(rng.choice([3, 7], 500)),
        }
    )
    y = d.x + (d.text == "x") + (d.whole % 3 == 1) - (d.kind == 7).astype(float) + 0.2 * rng.normal(size=500)
    return d, y.to_numpy()


def awkward(X, model):
    """Rows on the borders and beside them, infinite and missing values, and float64 that rounds to a border."""
    out = np.concatenate([X, X])
    for j, borders in model.get_borders().items():
        on = np.array([b for b in borders if abs(b) < 1e30][:20], np.float32)
        out[: len(on), j] = on
        out[len(on) : 2 * len(on), j] = np.nextafter(on, np.float32(np.inf))
        out[2 * len(on) : 3 * len(on), j] = on.astype(float) * (1 + 1e-9)
    out[::5, 0], out[::11, 1], out[::13, 2] = np.nan, np.inf, -np.inf
    return out


KINDS = {
    "symmetric": {},
    "depthwise": {"grow_policy": "Depthwise"},
    "lossguide": {"grow_policy": "Lossguide", "max_leaves": 6},
    "deep": {"depth": 9, "iterations": 2},
    "nan-max": {"nan_mode": "Max"},
    "ordered": {"boosting_type": "Ordered"},
    "bayesian": {"bootstrap_type": "Bayesian"},
    "bernoulli": {"bootstrap_type": "Bernoulli", "subsample": 0.5},
    "no-average": {"boost_from_average": False},
    "unregularised": {"l2_leaf_reg": 0.0},
    "three-steps": {"leaf_estimation_iterations": 3},
    "constant-feature": {"ignored_features": [3]},
}


@pytest.mark.parametrize("kind", KINDS)
def test_leaves_bits_and_certificate(kind, rows, leaf_labels):
    X, y = rows
    model = train(X, y, **KINDS[kind])
    wrapped = wrap(model, X, y)
    assert wrapped.certificate.status == "certified"
    assert wrapped.certificate.error < 1e-12
    new = awkward(X, model)
    assert np.array_equal(leaf_labels(wrapped, new), model.calc_leaf_indexes(new))
    for table in (new, new.astype(np.float32), new[:1], new[:3]):
        assert np.array_equal(wrapped.predict(table), model.predict(table))


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"loss_function": "MAE"}, "MAE fits its leaves otherwise"),
        ({"loss_function": "Quantile:alpha=0.5"}, "MAE fits its leaves otherwise"),
        ({"loss_function": "MAPE"}, "MAPE fits its leaves otherwise"),
        ({"loss_function": "LogCosh"}, "LogCosh .Exact. fits its leaves otherwise"),
        ({"loss_function": "Poisson", "leaf_estimation_iterations": 3}, "leaf_estimation_iterations=3 steps several"),
        ({"langevin": True}, "langevin=True adds noise to the leaves; model_shrink_rate shrank"),
        ({"model_shrink_rate": 0.1}, "model_shrink_rate shrank"),
        ({"monotone_constraints": [1, 0, 0, 0]}, "monotone_constraints bound the leaves"),
        ({"leaf_estimation_method": "Simple", "bootstrap_type": "Bernoulli"}, "leaf_estimation_method=Simple"),
    ],
)
def test_what_is_approximate_says_why(params, why, rows):
    X, y = rows
    model = train(X, y, **params)
    with pytest.warns(UserWarning, match=f"not certified: approximate .*{why}"):
        wrapped = wrap(model, X, y)
    np.testing.assert_allclose(wrapped.predict(X), model.predict(X), rtol=1e-15)


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"loss_function": "Quantile:alpha=0.9"}, "loss_function 'Quantile' is not supported"),
        ({"loss_function": "Expectile:alpha=0.7"}, "loss_function 'Expectile' is not supported"),
        ({"loss_function": "RMSEWithUncertainty"}, "loss_function 'RMSEWithUncertainty' is not supported"),
        ({"loss_function": "MultiRMSE"}, "loss_function 'MultiRMSE' is not supported"),
        ({"loss_function": "LogLinQuantile"}, "loss_function 'LogLinQuantile' is not supported"),
    ],
)
def test_other_losses_are_refused_by_name(params, why, rows):
    model = train(*rows, **params)
    with pytest.raises(UnsupportedModelError, match=why):
        wrap(model, *rows)


def test_other_models_are_refused_by_name(rows):
    X, y = rows
    with pytest.raises(ValueError, match="CatBoostRegressor is not fitted"):
        wrap(cb.CatBoostRegressor(), X, y)
    with pytest.raises(UnsupportedModelError, match="'Logloss' is not supported"):
        wrap(cb.CatBoostClassifier(**FIXED).fit(X, y > 30), X, y)
    with pytest.raises(UnsupportedModelError, match="does not store how it was trained"):
        wrap(cb.sum_models([train(X, y), train(X, y)]), X, y)
    scaled = train(X, y)
    scaled.set_scale_and_bias(2.0, 0.0)
    with pytest.raises(UnsupportedModelError, match="scale is 2"):
        wrap(scaled, X, y)


@pytest.mark.parametrize("kind", ["text", "embedding"])
def test_other_features_are_refused_by_name(kind, rows, tmp_path):
    """CatBoost writes them to no JSON."""
    column = ["some words", "other words"] * 300 if kind == "text" else list(rows[0][:, :2])
    d = pd.DataFrame({"x": rows[0][:, 0], "own": column})
    pool = cb.Pool(d, np.resize([0.0, 1.0], 600), **{f"{kind}_features": ["own"]})
    model = cb.CatBoost({**FIXED, "iterations": 2}).fit(pool)
    model.save_model(str(tmp_path / "model.cbm"))
    for source in (model, tmp_path / "model.cbm"):
        with pytest.raises(UnsupportedModelError, match=f"{kind} features only.*train with numeric features"):
            wrap(source, d, rows[1])
    if kind == "text":  # one that no split uses is not in the way of an export
        d = d[["own", "x"]].assign(own="same text")
        model = cb.CatBoost({**FIXED, "iterations": 2}).fit(cb.Pool(d, rows[1], text_features=["own"]))
        with pytest.raises(UnsupportedModelError, match=r"leaves out columns.*train with numeric features"):
            wrap(model, d, rows[1])


def test_rows_that_are_not_those_of_training(rows):
    X, y = rows
    model = train(X, y)
    wrong = y.copy()
    wrong[5] += 1.0
    with pytest.warns(UserWarning, match="not certified"):
        assert wrap(model, X, wrong).certificate.status == "approximate"
    with pytest.warns(UserWarning, match="not certified"):
        assert wrap(model, X[:-1], y[:-1]).certificate.status == "held-out"
    with pytest.warns(UserWarning, match="not certified"):
        assert wrap(model, X, y, sample_weight=np.full(len(y), 2.0)).certificate.status != "certified"


@pytest.mark.parametrize("loss", ["RMSE", "Poisson"])
def test_weights(loss, rows):
    """The regularisation is l2_leaf_reg times the mean weight, which follows from the leaves."""
    X, y = rows
    weight = np.random.default_rng(2).uniform(0.5, 4.0, len(y)).astype(np.float32)
    model = train(X, y, weight, loss_function=loss)
    wrapped = wrap(model, X, y, sample_weight=weight)
    assert wrapped.certificate.status == "certified"
    assert wrapped.spec.lambda_[0] == pytest.approx(3.0 * weight.astype(float).mean(), rel=1e-6)
    with pytest.warns(UserWarning, match="not certified"):
        assert wrap(model, X, y).certificate.status != "certified"
    with pytest.warns(UserWarning, match="not certified"):
        assert wrap(model, X, y, sample_weight=weight[::-1].copy()).certificate.status != "certified"


def test_baselines_are_added_after_the_trees(rows, tmp_path):
    X, y = rows
    baseline = np.linspace(20.0, 40.0, len(y))  # CatBoost rounds them to float32
    model = train(X, y, baseline=baseline)
    wrapped = wrap(model, X, y, init_score=baseline)
    assert wrapped.certificate.status == "certified"
    assert np.array_equal(wrapped.predict(X, init_score=baseline), model.predict(cb.Pool(X, baseline=baseline)))
    wrapped.save(tmp_path / "model.pgbm")
    mean, _ = load(tmp_path / "model.pgbm").predict(X, return_std=True, init_score=baseline)
    assert np.array_equal(mean, model.predict(cb.Pool(X, baseline=baseline)))


def test_early_stopping_predicts_as_the_model_does(rows):
    X, y = rows
    model = cb.CatBoostRegressor(**(FIXED | {"iterations": 200, "early_stopping_rounds": 3, "learning_rate": 0.5}))
    model.fit(X[:400], y[:400], eval_set=(X[400:], y[400:]))
    assert model.tree_count_ < 100
    wrapped = wrap(model, X[:400], y[:400])
    assert wrapped.forest.n_trees == model.tree_count_
    assert wrapped.certificate.status == "certified"
    assert np.array_equal(wrapped.predict(X), model.predict(X))


@pytest.mark.parametrize("params", [{}, {"has_time": True}, {"iterations": 200, "early_stopping_rounds": 3}])
def test_rows_that_it_held_back_itself_are_found_again(params, rows):
    X, y = rows
    model = cb.CatBoostRegressor(**(FIXED | {"eval_fraction": 0.3} | params)).fit(X, y)
    wrapped = wrap(model, X, y)
    assert wrapped.certificate.status == "certified"
    assert "held 180 of the 600 rows back" in wrapped.certificate.sentence
    assert wrapped.moments.rows == 420
    assert np.array_equal(wrapped.predict(X), model.predict(X))
    with pytest.warns(UserWarning, match="not certified: held-out"):
        assert wrap(model, X[:500], y[:500]).moments.rows == 500
    folds = wrap(model, X, y, cv=3)  # which train on all rows that they have
    assert folds.chosen.tuned
    again = boosters.refit(model, folds.spec)(X, y, None, None, None)
    assert again.get_leaf_weights()[: again.get_tree_leaf_counts()[0]].sum() == 600


@pytest.mark.parametrize("policy", ["SymmetricTree", "Depthwise"])
def test_categories_are_known_by_their_hashes(policy, frame, leaf_labels, tmp_path):
    d, y = frame
    model = train_frame(d, y, ["text", "whole", "kind"], grow_policy=policy)
    wrapped = wrap(model, d, y)
    assert wrapped.certificate.status == "certified"
    new = d.assign(text=np.where(d.x > 0, d.text, "new").astype(object), whole=d.whole + 3)
    want = model.predict(new)
    assert np.array_equal(leaf_labels(wrapped, new), model.calc_leaf_indexes(new))
    as_category = new.assign(text=new.text.astype("category"), whole=new.whole.astype(str).astype("category"))
    for table in (new, as_category, new.to_numpy(), new.to_numpy().tolist()):
        assert np.array_equal(wrapped.predict(table), want)
    wrapped.save(tmp_path / "model.pgbm")
    assert np.array_equal(load(tmp_path / "model.pgbm").predict(new), want)
    assert np.array_equal(pickle.loads(pickle.dumps(wrapped)).predict(new), want)  # noqa: S301
    for bad, why in ((new.assign(text=None), "misses categories"), (new.assign(whole=1.5), "1.5 is a float")):
        with pytest.raises(ValueError, match=f"column '(text|whole)'.*{why}"):
            wrapped.predict(bad)


def test_categories_in_other_frames_and_files(frame, tmp_path):
    d, y = frame
    model = train_frame(d, y, ["text", "whole", "kind"])
    wrapped, want = wrap(model, d, y), model.predict(d)
    polars = pytest.importorskip("polars")
    plain = d.assign(kind=d.kind.astype(int))
    assert np.array_equal(wrapped.predict(polars.DataFrame({c: plain[c].tolist() for c in plain})), want)
    plain.assign(y=y).to_parquet(tmp_path / "rows.parquet")
    streamed = wrap(model, str(tmp_path / "rows.parquet"), label="y")
    assert streamed.certificate.status == "certified"
    np.testing.assert_allclose(streamed.moments.gg, wrapped.moments.gg, rtol=1e-9)


@pytest.mark.parametrize("length", [0, 1, 3, 4, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 300])
def test_hashes_of_texts_of_any_length(length):
    from pgbm_plugin.boosters.catboost.category_hash import category_hashes

    rng = np.random.default_rng(length)
    text = "".join(rng.choice(list("abcXYZ 09-"), length))
    d = pd.DataFrame({"text": np.resize(np.array([text, "another"], object), 40)})
    model = train_frame(d, np.resize([0.0, 1.0], 40), ["text"], iterations=3)
    stored = {split.category for split in _splits(model)}
    assert stored <= set(category_hashes([text, "another"]).tolist())
    assert stored


def test_many_texts_are_hashed_as_single_ones_are():
    from pgbm_plugin.boosters.catboost.category_hash import category_hashes

    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("abcü 09"), n)) for n in range(80) for _ in range(60)]
    values = [*texts, *rng.integers(-(10**9), 10**9, 200).tolist(), True, np.int8(3)]
    many = category_hashes(values)
    assert many.tolist() == [int(category_hashes([value])[0]) for value in values]
    for bad in ([1.5], [*texts, 1.5], [*texts, None]):
        with pytest.raises(
            ValueError, match=r"(1\.5|None) is a (float|NoneType), and CatBoost takes integers and text"
        ):
            category_hashes(bad)


def _splits(model):
    from pgbm_plugin.boosters.catboost.document import load_live
    from pgbm_plugin.boosters.catboost.flat_trees import flatten

    return flatten(load_live(model)).splits


@pytest.mark.parametrize("form", ["json", "cbm"])
def test_files(form, rows, tmp_path):
    X, y = rows
    model = train(pd.DataFrame(X, columns=list("abcd")), y)
    path = tmp_path / f"model.{form}"
    model.save_model(str(path), format=form)
    wrapped = wrap(path, pd.DataFrame(X, columns=list("abcd")), y)
    assert wrapped.certificate.status == "certified"
    assert np.array_equal(wrapped.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="another order"):
        wrapped.predict(pd.DataFrame(X, columns=list("bacd")))


def test_files_of_json_need_no_catboost(rows, tmp_path):
    X, y = rows
    model = train(X, y)
    for form in ("json", "cbm"):
        model.save_model(str(tmp_path / f"model.{form}"), format=form)
    np.savez(tmp_path / "rows.npz", X=X, y=y, want=model.predict(X))
    script = (
        "import sys; sys.modules['catboost'] = None\n"
        "import numpy as np\nfrom pgbm_plugin import load, wrap\n"
        f"folder = {str(tmp_path)!r}\n"
        "rows = np.load(folder + '/rows.npz')\n"
        "model = wrap(folder + '/model.json', rows['X'], rows['y'])\n"
        "assert model.certificate.status == 'certified'\n"
        "model.save(folder + '/model.pgbm')\n"
        "assert np.array_equal(load(folder + '/model.pgbm').predict(rows['X']), rows['want'])\n"
        "try:\n    wrap(folder + '/model.cbm', rows['X'], rows['y'])\n"
        "except ImportError as error:\n    assert 'save the model as JSON' in str(error)\n"
        "else:\n    raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)


def test_damaged_files_raise_value_errors(rows, tmp_path):
    """Values are replaced and removed anywhere: a file is read, or refused by name."""
    X, y = rows
    small = {"iterations": 2, "depth": 2}
    rng, path = np.random.default_rng(3), tmp_path / "model.json"
    read = refused = 0
    for policy in ("SymmetricTree", "Lossguide"):
        train(X, y, grow_policy=policy, **small).save_model(str(path), format="json")
        raw = path.read_bytes()
        for _ in range(150):
            document = json.loads(raw)
            for name in ("model_info", "features_info", "oblivious_trees", "trees", "scale_and_bias"):
                if rng.random() < 0.5 and name in document:
                    damage(document, name, rng)
            path.write_text(json.dumps(document))
            read, refused = _count(path, X, y, read, refused)
        for _ in range(50):
            cut = bytearray(raw)
            cut[rng.integers(len(cut))] = rng.integers(256)
            path.write_bytes(bytes(cut[: rng.integers(1, len(cut))] if rng.random() < 0.3 else cut))
            read, refused = _count(path, X, y, read, refused)
    assert read > 20
    assert refused > 100


def test_a_damaged_cbm_file_does_not_crash(rows, tmp_path):
    path = tmp_path / "model.cbm"
    train(*rows, iterations=2).save_model(str(path))
    raw = path.read_bytes()
    for damaged in (raw[: len(raw) // 2], raw[:8] + b"\xff" * 64 + raw[72:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"CatBoost cannot read this \.cbm file"):
            wrap(path, *rows)


def _count(path, X, y, read, refused):
    from pgbm_plugin.boosters import read_model

    try:
        read_model(path)
    except ValueError:
        return read, refused + 1
    return read + 1, refused


def test_pools_bring_their_columns(rows):
    X, y = rows
    weight = np.linspace(0.5, 2.0, len(y)).astype(np.float32)
    pool = cb.Pool(pd.DataFrame(X, columns=list("abcd")), y, weight=weight)
    model = cb.CatBoost(FIXED).fit(pool)
    wrapped = wrap(model, pool)
    assert wrapped.certificate.status == "certified"
    assert np.array_equal(wrapped.predict(pool), model.predict(pool))
    baseline = cb.Pool(X, y, baseline=np.linspace(0, 1, len(y)))
    assert wrap(cb.CatBoost(FIXED).fit(baseline), baseline).certificate.status == "certified"
    with pytest.raises(ValueError, match="another order"):
        wrapped.predict(cb.Pool(X, feature_names=list("bacd")))
    quantised = cb.Pool(X, y)
    quantised.quantize()
    with pytest.raises(TypeError, match="does not give back its rows"):
        wrap(model, quantised)


def test_folds_repeat_the_training(rows, tmp_path):
    X, y = rows
    model = train(X, y, random_seed=7, l2_leaf_reg=2.0)
    model.save_model(str(tmp_path / "model.json"), format="json")
    for source in (model, tmp_path / "model.json"):
        again = boosters.refit(source, wrap(source, X, y).spec)(X, y, None, None, None)
        assert np.array_equal(again.predict(X), model.predict(X))
    wrapped = wrap(model, X, y, cv=3)
    assert np.array_equal(wrapped.predict(X), model.predict(X))
    assert np.mean(np.abs(wrapped.predict_dist(X).pit(y) - 0.5) < 0.45) > 0.85


def test_estimator(rows):
    X, y = rows[0], rows[1] - 30
    model = PGBMRegressor(cb.CatBoostRegressor(**FIXED)).fit(X, y)
    assert np.array_equal(model.predict(X), train(X, y).predict(X))
    baseline = np.linspace(0.0, 1.0, len(y)).astype(np.float32)
    assert model.fit(X, y, baseline=baseline).predict_interval(X, init_score=baseline).shape == (len(y), 2)


def test_command_line(rows, tmp_path, capsys):
    X, y = rows
    frame = pd.DataFrame(X, columns=list("abcd"))
    train(frame, y).save_model(str(tmp_path / "model.json"), format="json")
    frame.assign(y=y).to_parquet(tmp_path / "rows.parquet")
    out = str(tmp_path / "model.pgbm")
    rows_file = str(tmp_path / "rows.parquet")
    main(["wrap", str(tmp_path / "model.json"), "--data", rows_file, "--label", "y", "-o", out])
    main(["inspect", out])
    assert "CatBoost" in capsys.readouterr().out


class _Squares:
    def calc_ders_range(self, approxes, targets, weights):
        out = []  # CatBoost compiles this with numba
        for i in range(len(targets)):
            out.append((targets[i] - approxes[i], -1.0))
        return out


def test_custom_objectives(rows):
    X, y = rows[0], rows[1] - 30
    model = cb.CatBoostRegressor(**FIXED, loss_function=_Squares(), eval_metric="RMSE").fit(X, y)
    wrapped = wrap(model, X, y, objective=lambda margin, y: (margin - y, np.ones(len(y))))
    assert wrapped.certificate.status == "certified"
    assert np.array_equal(wrapped.predict(X), model.predict(X))


def test_several_outputs_are_refused_by_name(rows, tmp_path):
    """Custom objectives can have them."""
    train(*rows, iterations=1).save_model(str(tmp_path / "model.json"), format="json")
    document = json.loads((tmp_path / "model.json").read_text())
    document["oblivious_trees"][0]["leaf_values"] *= 2
    document["scale_and_bias"] = [1, [0.0, 0.0]]
    (tmp_path / "model.json").write_text(json.dumps(document))
    with pytest.raises(UnsupportedModelError, match="several outputs: train one regressor per target"):
        wrap(tmp_path / "model.json", *rows)


def test_callbacks_see_no_trees(rows):
    X, y = rows
    for callback, name in ((record(), "record"), (crps_callback(X, y, X=X, y=y), "crps_callback")):
        with pytest.raises(cb.CatBoostError, match=f"shows no trees while it trains, so {name} cannot follow it"):
            cb.CatBoostRegressor(**FIXED).fit(X, y, callbacks=[callback])
    pool = cb.Pool(X, y)
    asks = (lambda: record(pool), lambda: record(cb.CatBoost()), lambda: crps_callback(pool, X=X, y=y))
    for ask in (*asks, lambda: crps_callback(X, y, X=pool)):
        with pytest.raises(UnsupportedModelError, match="CatBoost shows no trees while it trains"):
            ask()
