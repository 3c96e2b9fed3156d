"""Weights and starting scores of the rows in `numeric`; rows cut into training and validation."""

from __future__ import annotations

import numpy as np
import pytest

from tests.training.validated import split


@pytest.fixture(scope="module")
def weight(numeric):
    return np.random.default_rng(1).uniform(0.5, 2.0, len(numeric[1]))


@pytest.fixture(scope="module")
def score(numeric):
    return np.random.default_rng(4).normal(1.0, 0.3, len(numeric[1]))


@pytest.fixture(scope="module")
def numeric_sets(numeric):
    return split(*numeric)


@pytest.fixture(scope="module")
def mixed_sets(mixed):
    return split(*mixed)
