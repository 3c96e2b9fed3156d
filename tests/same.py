"""Compare moments and models that must be equal up to rounding."""

from __future__ import annotations

import numpy as np

from pgbm_plugin.leaves.moments import LeafMoments
from pgbm_plugin.tables.ranges import Ranges

MOMENTS = ("g_mean", "h_mean", "gg", "hh", "gh")


def assert_same_moments(a: LeafMoments, b: LeafMoments):
    """Assert equality up to rounding, also of what weights bring.

    A sum of n float64 terms is off by n eps of its terms' size at worst, here 4e3 * 2e-16.
    """
    assert a.rows == b.rows
    assert np.array_equal(a.count, b.count)
    assert a.arrays().keys() == b.arrays().keys()
    for name in a.arrays().keys() & {"weight", "freedom", "effective"}:
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-12)
    g2, h2 = (s / np.where(a.mass > 0, a.mass, 1) + m**2 for s, m in ((a.gg, a.g_mean), (a.hh, a.h_mean)))
    # numbers that are nearly equal have squared deviations of their rounding
    gg, hh = a.gg + 1e-8 * a.mass * g2, a.hh + 1e-8 * a.mass * h2
    scale = (np.sqrt(g2), np.sqrt(h2), gg, hh, np.sqrt(gg * hh))
    for name, size in zip(MOMENTS, scale, strict=True):
        difference = np.abs(getattr(a, name) - getattr(b, name))
        assert np.all(difference <= 1e-12 * np.maximum(size, 1e-300)), name


def assert_same_ranges(a: Ranges | None, b: Ranges | None):
    """Assert that two records of what rows held are equal, to the bit, or both unknown."""
    assert (a is None) == (b is None)
    if a is not None and b is not None:
        for name in vars(a):
            assert np.array_equal(getattr(a, name), getattr(b, name)), name


def assert_same_model(streamed, whole, X, init_score=None):
    """Assert that two models agree: equal means, equal certificates, moments and variances up to rounding."""
    assert_same_moments(whole.moments, streamed.moments)
    assert_same_ranges(whole.moments.ranges, streamed.moments.ranges)
    assert streamed.certificate.status == whole.certificate.status
    assert streamed.rho == whole.rho
    assert np.array_equal(streamed.predict(X), whole.predict(X))
    want = whole.predict_var(X, init_score=init_score)
    np.testing.assert_allclose(streamed.predict_var(X, init_score=init_score), want, rtol=1e-10)
