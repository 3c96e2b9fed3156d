"""Fixtures of the GPU's tests."""

from __future__ import annotations

import warnings

import pytest


@pytest.fixture
def uncertified_is_fine():
    """Ignore the warning of models that are not certified."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "not certified", UserWarning)
        yield
