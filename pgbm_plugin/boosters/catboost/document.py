"""The documents that CatBoost's model files and live models hold."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MAGIC = b"CBM1"

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
    return _read_json(raw) if not raw.startswith(_MAGIC) else load_live(_unpacked(raw))


def load_live(model: Any) -> Mapping[str, Any]:
    """Return the document of a live model."""
    if not model.is_fitted():
        raise ValueError(f"this {type(model).__name__} is not fitted; call fit first")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json")
        return _read_json(path.read_bytes())


def _unpacked(raw: bytes) -> Any:
    """Return the live model of a .cbm file."""
    try:
        import catboost
    except ImportError as error:
        raise ImportError(
            "CatBoost is needed to read its .cbm files: pip install 'pgbm-plugin[catboost]', or save the model as JSON "
            "where CatBoost is installed, model.save_model('model.json', format='json'), which needs no CatBoost"
        ) from error
    try:
        return catboost.CatBoost().load_model(blob=raw)
    except catboost.CatBoostError as error:
        raise ValueError(f"CatBoost cannot read this .cbm file: {error}") from error


def _read_json(raw: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(raw)
        document["features_info"].keys(), document["model_info"].keys()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a CatBoost model, or a damaged one: {error!r:.200}") from error
    return document
