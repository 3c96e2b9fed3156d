"""A web service with FastAPI: rows as JSON, and a mean, a spread and an interval for each.

pip install fastapi uvicorn
MODEL=model.pgbm uvicorn --factory examples.service:make_app     # serve a model that `model.save` has written
python -m examples.service [--requests 5000]                     # measure: a made-up model, one client, one worker

The answer to a row that the model cannot take is 422, with a sentence that names the column.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse

from pgbm_plugin import load

PORT = 8765


def make_app(path: str | None = None) -> FastAPI:
    """Return the service of a model file; by default that of the environment variable MODEL."""
    model = load(path or os.environ["MODEL"], n_jobs=1)
    served = model.serve(quantiles=[0.5], intervals=[0.9])
    app = FastAPI()

    # async: a call takes less time than handing it to another thread would
    @app.post("/predict")
    async def predict(request: Request) -> JSONResponse:
        try:
            return JSONResponse(served(await request.json()))
        except (TypeError, ValueError) as error:
            raise HTTPException(422, str(error)) from error

    @app.post("/nothing")
    async def nothing(request: Request) -> JSONResponse:
        """Read a row and do nothing with it, to tell what the framework takes."""
        await request.json()
        return JSONResponse({"mean": 0.0})

    return app


def make_model(path: Path) -> list[dict[str, float]]:
    """Save a calibrated model of 500 trees and 31 leaves, and return rows for it."""
    import lightgbm as lgb
    import pandas as pd

    from pgbm_plugin import wrap

    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(30_000, 28)), columns=[f"x{j}" for j in range(28)])
    y = X["x0"] + np.sin(3.0 * X["x1"]) * X["x2"] + rng.normal(size=len(X))
    train, tune, calibrate = slice(0, 20_000), slice(20_000, 23_000), slice(23_000, 25_000)
    model = wrap(lgb.train({"verbose": -1}, lgb.Dataset(X[train], y[train]), 500), X[train], y[train])
    model.tune(X[tune], y[tune])
    model.conformalize(X[calibrate], y[calibrate])
    model.save(path)
    return X[25_000:].to_dict("records")


@contextmanager
def running(model: Path) -> Iterator[http.client.HTTPConnection]:
    """Run the service in a process of its own, and give a connection to it."""
    command = [sys.executable, "-m", "uvicorn", "--factory", "examples.service:make_app", "--port", str(PORT)]
    server = subprocess.Popen([*command, "--log-level", "warning"], env={**os.environ, "MODEL": str(model)})  # noqa: S603
    try:
        for _ in range(300):
            try:
                client = http.client.HTTPConnection("127.0.0.1", PORT)
                client.connect()
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        yield client
    finally:
        server.terminate()
        server.wait()


def seconds(client: http.client.HTTPConnection, place: str, body: object) -> float:
    """Post a body, and return how long the answer took."""
    text = json.dumps(body)
    start = time.perf_counter()
    client.request("POST", place, text, {"Content-Type": "application/json"})
    answer = client.getresponse()
    answer.read()
    took = time.perf_counter() - start
    if answer.status != 200:
        raise RuntimeError(f"{place} answered {answer.status}")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=5000)
    count = parser.parse_args().requests
    with TemporaryDirectory() as folder:
        rows = make_model(Path(folder) / "model.pgbm")
        served = load(Path(folder) / "model.pgbm", n_jobs=1).serve(quantiles=[0.5], intervals=[0.9])
        calls = []
        for row in rows[:count]:
            start = time.perf_counter()
            served(row)
            calls.append(time.perf_counter() - start)
        with running(Path(folder) / "model.pgbm") as client:
            bodies = {"/nothing": lambda i: rows[i % len(rows)], "/predict": lambda i: rows[i % len(rows)]}
            bodies["/predict 100 rows"] = lambda i: rows[i % 40 * 100 : i % 40 * 100 + 100]
            times = {name: [] for name in bodies}
            for i in range(count):
                for name, body in bodies.items():
                    if i % 20 == 0 or " " not in name:
                        times[name].append(seconds(client, name.partition(" ")[0], body(i)))
    print(f"the call alone, one row: median {1e6 * np.median(calls[100:]):.0f} us")
    for name, took in times.items():
        middle, high = np.quantile(took[10:], [0.5, 0.99])
        print(f"{name}: median {1e6 * middle:.0f} us, 99 of 100 within {1e6 * high:.0f} us")


if __name__ == "__main__":
    main()
