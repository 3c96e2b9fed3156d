"""CatBoost's target statistics (CTRs): leaves, bits of predictions, moments, folds, saved models and hostile files."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys

import catboost as cb
import numpy as np
import pandas as pd
import pytest

from pgbm_plugin import UnsupportedModelError, boosters, load, wrap
from pgbm_plugin.boosters import read_model
from pgbm_plugin.cli import main
from pgbm_plugin.routes import choose
from pgbm_plugin.saving.model_bytes import from_bytes, to_bytes
from pgbm_plugin.sklearn import PGBMRegressor
from pgbm_plugin.tables.rows import read_rows
from pgbm_plugin.trees.looked_up import ABOVE, ABOVE_OR_MISSING, EQUAL, HASH
from tests import naive
from tests.boosters.catboost_models import FIXED, damage, own_values
from tests.saving.hostile import Sealed, values

pytestmark = pytest.mark.filterwarnings("ignore:not certified. approximate:UserWarning")

CATEGORIES = ["text", "whole", "kind"]


def train(d, y, **params):
    """Train so that combinations are chosen: many are allowed, and large tables are not punished."""
    own = {"cat_features": CATEGORIES, "model_size_reg": 0.0, "max_ctr_complexity": 4, "depth": 5}
    return cb.CatBoostRegressor(**(FIXED | own | params)).fit(d, y)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(5)
    d = pd.DataFrame(
        {
            "text": rng.choice(["x", "Zürich", "", "a name of more than 16 letters", "q"], 600).astype(object),
            "x": rng.normal(size=600),
            "whole": rng.integers(-1, 20, 600),
            "kind": rng.choice([3, 7], 600),
            "z": rng.normal(size=600).round(1),
        }
    )
    d.loc[::9, "x"] = np.nan
    y = d.x.fillna(-1.0) + (d.text == "x") * (d.whole % 3) - (d.kind == 7) * d.z + 0.2 * rng.normal(size=600)
    return d, y.to_numpy()


@pytest.fixture(scope="module")
def new(rows):
    """The rows of training, and others with categories that training did not see."""
    d = rows[0].sample(frac=1.0, random_state=0)
    d["text"] = np.where(np.arange(600) % 3 == 0, "new", d.text).astype(object)
    d["whole"] += 7
    d.loc[::4, ["x", "z"]] = np.nan
    return pd.concat([rows[0], d], ignore_index=True)


@pytest.fixture(scope="module")
def model(rows):
    return train(*rows, simple_ctr=["Borders", "Counter"])


KINDS = {
    "default": {},
    "borders": {"simple_ctr": "Borders:TargetBorderCount=4", "combinations_ctr": "Borders:TargetBorderCount=3"},
    "buckets": {"simple_ctr": "Buckets:TargetBorderCount=3", "combinations_ctr": "Buckets"},
    "means": {"simple_ctr": "BinarizedTargetMeanValue:TargetBorderCount=3", "combinations_ctr": "Borders"},
    "counters": {"simple_ctr": "Counter", "combinations_ctr": "Counter:CtrBorderCount=40", "one_hot_max_size": 1},
    "all-rows-counters": {"simple_ctr": ["Counter", "Borders"], "counter_calc_method": "Full"},
    "priors": {"simple_ctr": "Borders:Prior=0.3/1:Prior=2/1", "combinations_ctr": "Counter:Prior=0.7/1"},
    "per-feature": {"per_feature_ctr": ["0:Buckets:TargetBorderCount=2:Prior=0.5/1"]},
    "depthwise": {"grow_policy": "Depthwise"},
    "lossguide": {"grow_policy": "Lossguide", "max_leaves": 12},
    "nan-max": {"nan_mode": "Max", "depth": 6, "iterations": 30},
    "few-leaves": {"ctr_leaf_count_limit": 5},
    "every-category": {"one_hot_max_size": 1},
    "exact-categories": {"one_hot_max_size": 5, "depth": 6, "iterations": 40},
    "ordered": {"boosting_type": "Ordered"},
    "poisson": {"loss_function": "Poisson"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_leaves_and_bits(kind, rows, new, leaf_labels, monkeypatch):
    d, y = rows
    y = y - y.min() if kind == "poisson" else y
    trained = train(d, y, **KINDS[kind])
    wrapped = wrap(trained, d, y)
    assert np.any(wrapped.forest.nodes["feature"] >= 5)  # there are statistics
    if kind == "counters":  # they know no labels, and are in training what they are afterwards
        assert wrapped.certificate.status == "certified"
    else:
        assert wrapped.certificate.status == "approximate"
        assert "target statistics (CTRs) of the rows before it" in wrapped.certificate.sentence
    assert np.array_equal(leaf_labels(wrapped, new), trained.calc_leaf_indexes(new))
    want = trained.predict(new)
    for route in ("walk", "replay"):
        monkeypatch.setattr(choose, "forced", route)
        for table, expected in ((new, want), (new[:1], want[:1]), (new[600:603], want[600:603])):
            np.testing.assert_allclose(wrapped.predict(table), expected, rtol=1e-15 if kind == "poisson" else 0)


def test_the_models_have_combinations_of_everything(rows):
    seen = set()
    for kind in ("nan-max", "every-category", "exact-categories"):
        looked_up = read_model(train(*rows, **KINDS[kind]))[0].features.looked_up
        seen |= set(looked_up.part_kind.tolist())
        assert np.diff(looked_up.part_start).max() > 1
    assert seen == {HASH, ABOVE, ABOVE_OR_MISSING, EQUAL}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("policy", ["SymmetricTree", "Lossguide"])
def test_moments_and_variance_are_the_papers(policy, weighted, rows, leaf_labels):
    d, y = rows
    weight = np.linspace(0.5, 2.0, len(y)) if weighted else None
    trained = cb.CatBoostRegressor(**FIXED, cat_features=CATEGORIES, grow_policy=policy, l2_leaf_reg=1.5)
    trained.fit(d, y, sample_weight=weight)
    wrapped = wrap(trained, d, y, sample_weight=weight)
    lambda_ = 1.5 * (1.0 if weight is None else weight.astype(np.float32).astype(float).mean())
    ids, forest = trained.calc_leaf_indexes(d), wrapped.forest
    start = trained.get_scale_and_bias()[1]
    settings = {"weight": weight, "weigh_rounded": False, "held_gradients": float}
    trees = naive.replay(ids, own_values(trained), naive.squared, 0.0, y, start, **settings)
    compared = 0
    for t, tree in enumerate(trees):
        for k in range(*forest.leaf_start[t : t + 2]):
            leaf = tree[int(forest.leaf_label[k])]
            if len(leaf.g) > 1:
                compared += 1
                assert wrapped.weights.variance[k] == pytest.approx(leaf.weight(lambda_)[1], rel=1e-9, abs=1e-12)
    assert compared > 50


def test_other_tables(model, rows, new, tmp_path):
    d, y = rows
    wrapped, want = wrap(model, d, y), model.predict(new)
    as_category = new.assign(text=new.text.astype("category"), whole=new.whole.astype(str).astype("category"))
    for table in (as_category, new.to_numpy(), new.to_numpy().tolist()):
        assert np.array_equal(wrapped.predict(table), want)
    polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    assert np.array_equal(wrapped.predict(polars.DataFrame({c: new[c].tolist() for c in new})), want)
    assert np.array_equal(wrapped.predict(pyarrow.table({c: new[c].tolist() for c in new})), want)
    for bad, why in ((new.assign(text=None), "misses categories"), (new.assign(whole=1.5), "1.5 is a float")):
        with pytest.raises(ValueError, match=f"column '(text|whole)'.*{why}"):
            wrapped.predict(bad)
    with pytest.raises(TypeError, match="does not give back its rows"):
        wrapped.predict(cb.Pool(new, cat_features=CATEGORIES))


def test_types_that_only_gpus_train(rows, new, leaf_labels, tmp_path):
    """They have the tables of two other types, which CatBoost reads under these names, too."""
    path = tmp_path / "model.json"
    ctrs = {"simple_ctr": ["Counter", "BinarizedTargetMeanValue"], "combinations_ctr": ["Counter", "Borders"]}
    train(*rows, one_hot_max_size=1, **ctrs).save_model(str(path), format="json")
    text = (
        path.read_text().replace("BinarizedTargetMeanValue", "FloatTargetMeanValue").replace("Counter", "FeatureFreq")
    )
    path.write_text(text)
    types = {ctr["ctr_type"] for ctr in json.loads(text)["features_info"]["ctrs"]}
    assert types >= {"FloatTargetMeanValue", "FeatureFreq"}
    oracle = cb.CatBoost().load_model(str(path), format="json")
    wrapped = wrap(path, *rows)
    assert np.array_equal(leaf_labels(wrapped, new), oracle.calc_leaf_indexes(new))
    np.testing.assert_allclose(wrapped.predict(new), oracle.predict(new), atol=1e-14)  # it reads JSON less exactly
    assert wrapped.certificate.status == "approximate"


def test_estimators_and_the_command_line(rows, tmp_path, capsys):
    d, y = rows
    estimator = cb.CatBoostRegressor(**FIXED, cat_features=tuple(CATEGORIES))
    model = PGBMRegressor(estimator).fit(d, y)
    assert np.array_equal(model.predict(d), cb.CatBoostRegressor(**FIXED, cat_features=CATEGORIES).fit(d, y).predict(d))
    trained = train(d, y)
    trained.save_model(str(tmp_path / "model.json"), format="json")
    d.assign(y=y).to_parquet(tmp_path / "rows.parquet")
    out, file = str(tmp_path / "model.pgbm"), str(tmp_path / "rows.parquet")
    main(["wrap", str(tmp_path / "model.json"), "--data", file, "--label", "y", "-o", out])
    assert np.array_equal(load(out).predict(d), trained.predict(d))
    main(["inspect", out])
    shown = capsys.readouterr().out
    assert "CTRs" in shown
    assert re.search(r"looked up: +\d+ columns", shown)


def test_a_key_that_marks_empty_places_is_no_category(rows, tmp_path):
    """CatBoost exports it with the counts of another category."""
    train(*rows).save_model(str(tmp_path / "model.json"), format="json")
    document = json.loads((tmp_path / "model.json").read_text())
    assert any(str((1 << 64) - 1) in table["hash_map"] for table in document["ctr_data"].values())
    assert -1 not in read_model(tmp_path / "model.json")[0].features.looked_up.key


def test_batches_and_files(model, rows, tmp_path):
    d, y = rows
    wrapped = wrap(model, d, y)
    d.assign(y=y).to_parquet(tmp_path / "rows.parquet")
    batches = ((d[i : i + 100], y[i : i + 100]) for i in range(0, 600, 100))
    for streamed in (wrap(model, batches), wrap(model, str(tmp_path / "rows.parquet"), label="y")):
        np.testing.assert_allclose(streamed.moments.gg, wrapped.moments.gg, rtol=1e-9)
        assert np.array_equal(streamed.predict(d), model.predict(d))


def test_what_follows_a_wrap(model, rows, new):
    d, y = rows
    wrapped = wrap(model, d[:400], y[:400])
    wrapped.tune(d[400:500], y[400:500])
    wrapped.conformalize(d[500:], y[500:])
    assert np.array_equal(wrapped.predict(new), model.predict(new))
    boosted = wrap(model, d[:400], y[:400], variance="boosted")
    assert np.array_equal(boosted.predict(new), model.predict(new))
    wrapped.update(d[400:], y[400:])
    assert "update brought" in wrapped.certificate.sentence


def test_parts_of_the_variance_are_those_of_columns(rows):
    wrapped = wrap(train(*rows, depth=5), *rows)
    parts = wrapped.explain_variance(rows[0][:50])
    assert parts.values.shape == (50, 5)
    np.testing.assert_allclose(parts.values.sum(axis=1) + parts.base, wrapped.predict_var(rows[0][:50]), rtol=1e-9)


def test_saved_models_need_no_catboost(model, rows, new, tmp_path):
    d, y = rows
    for form in ("json", "cbm"):
        model.save_model(str(tmp_path / f"model.{form}"), format=form)
        wrapped = wrap(tmp_path / f"model.{form}", d, y)
        assert np.array_equal(wrapped.predict(new), model.predict(new))
    assert np.array_equal(pickle.loads(pickle.dumps(wrapped)).predict(new), model.predict(new))  # noqa: S301
    d.assign(y=y).to_pickle(tmp_path / "rows.pkl")
    new.to_pickle(tmp_path / "new.pkl")
    np.savez(tmp_path / "want.npz", mean=model.predict(new), variance=wrapped.predict_var(new))
    script = (
        "import sys; sys.modules['catboost'] = None\n"
        "import numpy as np, pandas as pd\nfrom pgbm_plugin import load, wrap\n"
        f"folder = {str(tmp_path)!r}\n"
        "d, new = pd.read_pickle(folder + '/rows.pkl'), pd.read_pickle(folder + '/new.pkl')\n"
        "want = np.load(folder + '/want.npz')\n"
        "model = wrap(folder + '/model.json', d.drop(columns='y'), d.y)\n"
        "model.save(folder + '/model.pgbm')\n"
        "for m in (model, load(folder + '/model.pgbm')):\n"
        "    assert np.array_equal(m.predict(new), want['mean'])\n"
        "    assert np.array_equal(m.predict_var(new), want['variance'])\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)


def test_models_that_chose_no_statistic_certify(rows):
    d, _ = rows
    trained = train(d.assign(text="same", kind=1, whole=2), d.z.to_numpy())
    assert wrap(trained, d.assign(text="same", kind=1, whole=2), d.z.to_numpy()).certificate.status == "certified"


def test_borders_that_training_rounds_otherwise(rows):
    """The borders of many are whole numbers in float32; in training they are a millionth lower."""
    d, y = rows
    seen = set()
    for seed in range(8):
        params = {"one_hot_max_size": 1, "max_ctr_complexity": 1, "iterations": 15, "random_seed": seed}
        trained = train(d, y, simple_ctr="Counter:CtrBorderCount=63", **params)
        wrapped = wrap(trained, d, y)
        seen.add(wrapped.certificate.status)
        said = "training rounded a border of a counter" in wrapped.certificate.sentence
        assert said == (wrapped.certificate.status == "approximate")
        assert np.array_equal(wrapped.predict(d), trained.predict(d))
    assert seen == {"certified", "approximate"}


def test_statistics_without_tables_are_refused_by_name(rows):
    trained = train(*rows, final_ctr_computation_mode="Skip")
    with pytest.raises(UnsupportedModelError, match=r"without their tables.*final_ctr_computation_mode=Skip"):
        wrap(trained, *rows)


def test_one_type_with_several_target_borders_is_refused_by_name(rows):
    """CatBoost writes several tables under one name."""
    trained = train(*rows, simple_ctr=["Borders:TargetBorderCount=1", "Borders:TargetBorderCount=3"])
    with pytest.raises(UnsupportedModelError, match=r"'Borders' with several target borders.*train with one"):
        wrap(trained, *rows)


@pytest.mark.parametrize("one_hot", [2, 255])
def test_folds_repeat_the_training(one_hot, rows, new, tmp_path):
    d, y = rows
    trained = train(d, y, one_hot_max_size=one_hot, random_seed=7)
    trained.save_model(str(tmp_path / "model.json"), format="json")
    forest = read_model(trained)[0]
    table = read_rows(d, forest.features).training_table()
    for source in (trained, tmp_path / "model.json"):
        again = boosters.refit(source, wrap(trained, d, y).spec)(table, y, None, None, None)
        repeated = read_model(again)[0]
        assert np.array_equal(repeated.leaf_value, forest.leaf_value)
        moved = read_rows(new, forest.features).for_trained_on_table(repeated.features)
        assert np.array_equal(moved.block(0, 1200), read_rows(new, forest.features).block(0, 1200), equal_nan=True)
    wrapped = wrap(trained, d, y, cv=3)
    assert np.array_equal(wrapped.predict(new), trained.predict(new))
    assert 0.85 < np.mean(np.abs(wrapped.predict_dist(d).pit(y) - 0.5) < 0.45) <= 1.0


def test_damaged_documents_raise_value_errors(rows, tmp_path):
    """Values of the statistics are replaced and removed anywhere: a file is read, or refused by name."""
    rng, path = np.random.default_rng(3), tmp_path / "model.json"
    params = {"iterations": 3, "simple_ctr": ["Borders", "Counter", "BinarizedTargetMeanValue"], "depth": 4}
    read = refused = 0
    train(*rows, **params).save_model(str(path), format="json")
    raw = path.read_bytes()
    for _ in range(300):
        document = json.loads(raw)
        for part, name in ((document, "ctr_data"), (document["features_info"], "ctrs")):
            if rng.random() < 0.7:
                damage(part, name, rng)
        path.write_text(json.dumps(document))
        try:
            forest, _ = read_model(path)
        except ValueError:
            refused += 1
        else:
            read += 1
            for _, _, block in read_rows(rows[0][:10], forest.features).blocks(0, 10):
                assert block.shape == (10, forest.features.width)
    assert read > 20
    assert refused > 100


def test_hashes_of_categories_in_saved_models(rows):
    content = to_bytes(wrap(train(*rows), *rows).state)
    for wrong in ("x", 1.5, 1 << 40, True, None):
        sealed = Sealed(content)
        sealed.model["features"]["categories"][0] = [wrong]
        with pytest.raises(ValueError, match="a category is not the hash of one"):
            from_bytes(sealed.packed())


def table_of(change):
    """Change the first table of statistics of a document."""

    def changed(document):
        change(next(iter(document["ctr_data"].values())))

    return changed


def first_key(key):
    return table_of(lambda table: table["hash_map"].__setitem__(0, key))


def border_without_class(document):
    for ctr in document["features_info"]["ctrs"]:
        ctr["target_border_idx"] = 7
    for tree in document["oblivious_trees"]:
        for split in tree["splits"]:
            split.update({"ctr_target_border_idx": 7} if split["split_type"] == "OnlineCtr" else {})


def endless(table):
    table.update(hash_map=[], hash_stride=10**9)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (first_key(str(1 << 64)), "is not a key"),
        (first_key("-5"), "is not a key"),
        (first_key(5), "is not a key"),
        (table_of(lambda table: table["hash_map"].__setitem__(slice(2), [])), "numbers, . a row"),
        (table_of(lambda table: table["hash_map"].pop()), "numbers, . a row"),
        (table_of(lambda table: table.update(hash_stride=0)), "numbers, 0 a row"),
        (table_of(endless), "numbers, 1000000000 a row"),
        (table_of(lambda table: table["hash_map"].__setitem__(1, 1e99)), "no counts"),
        (table_of(lambda table: table["hash_map"].extend(table["hash_map"])), "a key twice"),
        (table_of(lambda table: table.update(counter_denominator=1 << 40)), "the denominator"),
        (lambda d: d["features_info"]["ctrs"][0]["elements"].clear(), "has 0 features"),
        (lambda d: d["features_info"]["ctrs"][0]["elements"][0].update(cat_feature_index=9), "does not list"),
        (lambda d: d["features_info"]["ctrs"][0].update(target_border_idx=4), "another border"),
        (border_without_class, "target border 7, its table has 1"),
        (lambda d: d["features_info"]["ctrs"][0].update(ctr_type="Other"), "'Other'"),
        (lambda d: d["ctr_data"].clear(), "damaged"),
    ],
)
def test_what_is_wrong_with_a_document_is_named(change, words, rows, tmp_path):
    path = tmp_path / "model.json"
    train(*rows, iterations=3, simple_ctr="Borders").save_model(str(path), format="json")
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=words):
        read_model(path)


def test_damaged_saved_models(model, rows):
    """Numbers of the arrays of looked up columns are replaced: a file is refused, or predicts."""
    content = to_bytes(wrap(model, *rows).state)
    rng, loaded, refused = np.random.default_rng(4), 0, 0
    for _ in range(400):
        sealed = Sealed(content)
        own = {name: array for name, array in sealed.arrays.items() if name.startswith("looked_up.")}
        other = {name: array for name, array in sealed.arrays.items() if name not in own}
        sealed.arrays = own
        values(sealed, rng)
        sealed.arrays = sealed.arrays | other
        try:
            state = from_bytes(sealed.packed())
        except ValueError:
            refused += 1
            continue
        loaded += 1
        features = state.forest.features
        assert read_rows(rows[0][:10], features).block(0, 10).shape == (10, features.width)
    assert loaded > 20
    assert refused > 100


@pytest.mark.parametrize(
    ("name", "at", "value", "words"),
    [
        ("key", 0, 1 << 62, "keys of a combination do not rise"),
        ("key_start", 1, 0, "one number for each key"),
        ("part_start", 1, 0, "no parts, or unknown ones"),
        ("part_kind", 0, 4, "no parts, or unknown ones"),
        ("part_kind", 0, ABOVE, "a category for a number"),
        ("part_column", 0, 5, "made of a column that does not exist"),
        ("part_column", 0, 1, "a number for a category"),
        ("combination", 0, 10**6, "a combination that does not exist"),
        ("value_start", 0, 1, "numbers of looked up columns are out of order"),
        ("value_start", 1, -(1 << 63), "numbers of looked up columns are out of order"),
        ("part_value", 0, np.inf, "finite"),
    ],
)
def test_what_is_wrong_with_a_saved_model_is_named(name, at, value, words, model, rows):
    sealed = Sealed(to_bytes(wrap(model, *rows).state))
    array = sealed.arrays[f"looked_up.{name}"] = sealed.arrays[f"looked_up.{name}"].copy()
    array[at] = value
    with pytest.raises(ValueError, match=words):
        from_bytes(sealed.packed())


@pytest.mark.parametrize("name", ["part_start", "key", "absent", "value"])
def test_saved_models_with_missing_arrays(name, model, rows):
    sealed = Sealed(to_bytes(wrap(model, *rows).state))
    del sealed.arrays[f"looked_up.{name}"]
    with pytest.raises(ValueError, match="some arrays of looked up columns without the others"):
        from_bytes(sealed.packed())
