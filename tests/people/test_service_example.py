"""The example of a web service, called without a network. Skipped where FastAPI is not installed."""

from __future__ import annotations

import asyncio
import json

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest

from pgbm_plugin import wrap

pytest.importorskip("fastapi")


def post(app, body):
    """Return (status, answer) of a POST to /predict by the ASGI protocol, as a server calls an app."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": body.encode(), "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/predict", "raw_path": b"/predict", "query_string": b""}
    asyncio.run(app({**scope, "headers": [(b"content-type", b"application/json")]}, receive, send))
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


def test_rows_as_json(tmp_path):
    from examples.service import make_app

    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 2)), columns=["a", "b"]).assign(c=pd.Categorical(["x", "y"] * 200))
    y = X["a"].to_numpy() + rng.normal(size=400)
    model = wrap(lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(X[:200], y[:200]), 5), X[:200], y[:200])
    model.conformalize(X[200:], y[200:])
    model.save(tmp_path / "model.pgbm")
    app, rows = make_app(str(tmp_path / "model.pgbm")), X[:3].to_dict("records")
    expected = model.predict_frame(X[:3], [0.5], [0.9]).to_dict("records")
    assert post(app, json.dumps(rows)) == (200, expected)
    assert post(app, json.dumps(rows[0])) == (200, expected[0])
    message = "the row: column 'a' must be a number, not 'one'; for a missing value give None"
    assert post(app, json.dumps({**rows[0], "a": "one"})) == (422, {"detail": message})
    assert post(app, "{")[0] == 422
