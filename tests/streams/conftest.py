"""A Spark session on this machine, made when a test asks for one."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def spark_sessions():
    """A function that returns the session that runs, or a new one; the last is stopped at the end."""
    pytest.importorskip("pyspark")
    from tests.streams.spark_session import running, stop

    yield running
    stop()


@pytest.fixture
def session(spark_sessions):
    return spark_sessions()
