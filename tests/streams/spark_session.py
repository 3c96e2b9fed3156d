"""Spark on this machine, and frames of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[2]),  # tasks import the tests
}


# What Spark's own code warns of.
QUIET = [
    pytest.mark.filterwarnings(f"ignore:{which}")
    for which in (":DeprecationWarning", ":FutureWarning", ":ResourceWarning", "'PYARROW_IGNORE_TIMEZONE'")
]


def running():
    """Return the session that runs, or a new one. Its tasks may fail three times."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2,4]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def stop():
    if (session := SparkSession.getActiveSession()) is not None:
        session.stop()


def in_parts(session, frame, parts=3):
    """Return a Spark frame with the rows of a pandas frame, spread by its column `key`."""
    return session.createDataFrame(frame).repartition(parts, "key")


def sorted_frame(df):
    """Return the rows of a Spark frame as a pandas frame, in the order of `key`."""
    return df.toPandas().sort_values("key", ignore_index=True)
