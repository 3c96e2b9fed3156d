"""The documentation is true: its code runs, its links lead somewhere, its reference is complete.

Every page is a session of its own: its blocks run in order, with the names that a reader would have.
"""

from __future__ import annotations

import ast
import re
import warnings
from importlib.util import find_spec

import numpy as np
import pytest
import xgboost as xgb

import pgbm_plugin
from pgbm_plugin import UntunedWarning, distributions, scores
from pgbm_plugin.distributions import FAMILIES
from tests import ROOT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")])

# Packages that recipes need and the tests may lack; their own warnings are not ours.
OTHERS = {"crepes", "duckdb", "hierarchicalforecast", "mapie", "mlflow", "mlforecast", "optuna", "shap", "skpro"}

# A block that cannot run here has the reason before it: <!-- not run: needs a GPU -->
BLOCK = re.compile(r"^(<!-- not run: \S.* -->\n)?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page):
    """(code, whether it runs) of each Python block."""
    return [(code, not excuse) for excuse, code in BLOCK.findall(page.read_text())]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_code_blocks(page, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pgbm_plugin.distributions.FAMILIES", FAMILIES.copy())  # pages may register their own
    monkeypatch.setattr("pgbm_plugin.calibration.search.FAMILIES", distributions.FAMILIES)
    if any("torch_objective(" in code and runs for code, runs in blocks(page)):
        pytest.importorskip("torch")
    if any("SparkSession" in code and runs for code, runs in blocks(page)):
        pytest.importorskip("pyspark")
        from tests.streams import spark_session

        spark_session.running()  # which the page gets
        request.addfinalizer(spark_session.stop)
    names, lacking = given_names(), set()
    for code, runs in blocks(page):
        block = compile(code, str(page), "exec")
        others = packages(code) & OTHERS
        without = {name for name in others if find_spec(name) is None}
        if runs and without:
            lacking |= without
        elif runs:
            with warnings.catch_warnings():
                if others:
                    warnings.simplefilter("ignore")
                warnings.simplefilter("error", UntunedWarning)  # readers copy what they see, so it must be calibrated
                exec(block, names)  # noqa: S102
    if lacking:
        pytest.skip(f"all blocks ran but those that need {', '.join(sorted(lacking))}")


def packages(code):
    """Return the packages that a block imports."""
    nodes = list(ast.walk(ast.parse(code)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def given_names():
    """What pages take for granted; threads would only wait for each other on so few rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 5))
    y = X[:, 0] + np.exp(0.5 * X[:, 1]) * rng.normal(size=1200)
    return {
        "params": {"num_leaves": 8, "num_threads": 1, "verbose": -1},
        "xgb": xgb,
        "xgb_params": {"max_depth": 3, "nthread": 1},
        "dtrain": xgb.DMatrix(X[:400], y[:400]),
        "department": np.arange(400) // 10,
        "X": X[:400],
        "y": y[:400],
        "y_log": y[:400],
        "X_val": X[400:800],
        "y_val": y[400:800],
        "X_cal": X[800:1000],
        "y_cal": y[800:1000],
        "X_new": X[1000:],
        "y_new": y[1000:],
    }


def test_every_block_is_found():
    """One that the pattern misses would never run."""
    for page in PAGES:
        assert len(re.findall(r"^\s*(```|~~~) *python", page.read_text(), re.MULTILINE)) == len(blocks(page)), page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page):
    """Files and headings of the repository; also those that mkdocs does not see, and as GitHub resolves them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text):
        path, _, heading = (target[0] or target[1]).partition("#")
        if path.startswith("https://"):
            continue
        file = page.parent / path if path else page
        assert file.is_file(), f"{page.name} links to {path}"
        if heading:
            assert heading in anchors(file), f"{page.name} links to {path}#{heading}"


def anchors(page):
    """Return the anchors of headings, as GitHub and mkdocs make them, and those that mkdocstrings adds."""
    text = page.read_text()
    found = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"(?m)^#+ (.*)$", text)}
    return found | set(re.findall(r"(?m)^::: (\S+)$", text))


def test_commands_exist():
    for page in PAGES:
        text = page.read_text()
        modules = {f"benchmarks/{name}" for name in re.findall(r"python -m benchmarks\.(\w+)", text)}
        modules = {f"{name}/__main__.py" if (ROOT / name).is_dir() else f"{name}.py" for name in modules}
        scripts = set(re.findall(r"python ((?:examples|docs)/\w+\.py)", text))
        for name in modules | scripts | set(re.findall(r"`((?:tests|kernels)/[\w/]+\.py)`", text)):
            assert (ROOT / name).is_file(), f"{page.name} names {name}"


def test_reference_is_complete():
    """Every public name has its place there."""
    documented = set(re.findall(r"(?m)^::: pgbm_plugin\.(\S+)$", (ROOT / "docs" / "api.md").read_text()))
    of_scores = [name for name, value in vars(scores).items() if getattr(value, "__module__", "") == scores.__name__]
    public = {f"scores.{name}" for name in of_scores if not name.startswith("_")}
    public |= {f"distributions.{name}" for name in distributions.__all__ if name != "FAMILIES"}
    for name in pgbm_plugin.__all__:  # a module may have the name of its function
        public.add(f"{name}.{name}" if (ROOT / "pgbm_plugin" / f"{name}.py").is_file() else name)
    assert public <= documented, public - documented
