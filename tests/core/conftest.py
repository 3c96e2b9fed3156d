"""Fixtures of the core."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def numeric_4000(make_data):
    return make_data("numeric", n=4000)
