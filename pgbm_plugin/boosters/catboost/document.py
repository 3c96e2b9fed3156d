"""The documents that CatBoost's model files and live models hold."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import UnsupportedModelError

_MAGIC = b"CBM1"

# A program that says when it has read the model.
_CONVERT = """
import sys, catboost
model = catboost.CatBoost().load_model(sys.argv[1])
print("read")
model.save_model(sys.argv[2], format="json")
"""

# The keys of a model in JSON, one of which comes first.
_KEYS = ("ctr_data", "features_info", "model_info", "oblivious_trees", "scale_and_bias", "trees")


def is_model_bytes(head: bytes) -> bool:
    """Tell whether a file that begins with `head` may be a CatBoost model."""
    if head.startswith(_MAGIC):
        return True
    brace, key = head.lstrip()[:1], head.lstrip()[1:].lstrip()
    if brace != b"{" or key[:1] != b'"' or len(key) < 2:
        return False
    name, quote, _ = key[1:].partition(b'"')
    return any(own.encode() == name if quote else own.encode().startswith(name) for own in _KEYS)


def load(raw: bytes) -> Mapping[str, Any]:
    """Return the document of a model file; a .cbm file needs CatBoost."""
    return _read_json(_as_json(raw) if raw.startswith(_MAGIC) else raw)


def load_live(model: Any) -> Mapping[str, Any]:
    """Return the document of a live model."""
    if not model.is_fitted():
        raise ValueError(f"this {type(model).__name__} is not fitted; call fit first")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        try:
            model.save_model(str(path), format="json")
        except Exception as error:  # CatBoostError, which we would have to import
            raise _not_exported(str(error)) from error
        return _read_json(path.read_bytes())


def _not_exported(reason: str) -> UnsupportedModelError:
    """Return the error for a model that CatBoost itself does not turn into JSON, such as one with text features."""
    return UnsupportedModelError(
        f"CatBoost does not export this model as JSON ({reason.rpartition(': ')[2]:.200}): train with numeric features "
        f"and categories only"
    )


def _as_json(raw: bytes) -> bytes:
    """Return a .cbm file as JSON. A damaged one can crash CatBoost, which therefore reads it in another process."""
    if importlib.util.find_spec("catboost") is None:
        raise ImportError(
            "CatBoost is needed to read its .cbm files: pip install 'pgbm-plugin[catboost]', or save the model as JSON "
            "where CatBoost is installed, model.save_model('model.json', format='json'), which needs no CatBoost"
        )
    with tempfile.TemporaryDirectory() as folder:
        path, converted = Path(folder) / "model.cbm", Path(folder) / "model.json"
        path.write_bytes(raw)
        command = [sys.executable, "-c", _CONVERT, str(path), str(converted)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0 or not converted.is_file():
            reason = (done.stderr.strip() or f"it ended with {done.returncode}").splitlines()[-1]
            if done.stdout.strip() == "read":
                raise _not_exported(reason)
            raise ValueError(f"CatBoost cannot read this .cbm file: {reason:.200}")
        return converted.read_bytes()


def _read_json(raw: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(raw)
        document["features_info"].keys(), document["model_info"].keys()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a CatBoost model, or a damaged one: {error!r:.200}") from error
    return document
