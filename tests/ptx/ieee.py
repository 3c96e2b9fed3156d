"""Floats as IEEE defines them, in exact fractions: what the tests of opcodes compare with."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from .snippets import DTYPES

MODES = ("rn", "rz", "rm", "rp")
FLOATS = ("f32", "f64")


def edges(type_, n=384, seed=0, finite=False):
    """Floats of a type: zeros, ends, subnormals, halves, infinities and NaN, powers of two near the integers' ends."""
    dtype = DTYPES[type_]
    info = np.finfo(dtype)
    some = [0.0, 0.5, 1.0, 1.5, 2.5, 3.5, 1 / 3, 254.5, 255.5, info.max, info.tiny, info.smallest_subnormal, info.eps]
    some += [info.tiny / 2, 1 + info.eps, 1 - info.epsneg] + ([] if finite else [np.inf, np.nan])
    for k in (7, 8, 15, 16, 31, 32, 63, 64):
        some += [2.0**k, np.nextafter(dtype(2.0**k), dtype(0)), 2.0**k - 0.5]
    rng = np.random.default_rng(seed)
    values = np.array(some + [-x for x in some], dtype)
    more = (rng.normal(size=n) * 10.0 ** rng.integers(-8, 9, n)).astype(dtype)
    return rng.permutation(np.concatenate([values, more])[:n])


def rounded(exact, mode, type_):
    """A fraction, not zero, as a float of `type_`: IEEE's definition, in integers."""
    precision, least = (24, -126) if type_ == "f32" else (53, -1022)
    size, negative = abs(exact), exact < 0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    unit = Fraction(2) ** (max(exponent, least) - precision + 1)
    count, rest = divmod(size / unit, 1)
    away = (mode == "rp" and not negative) or (mode == "rm" and negative)
    if rest and (away or (mode == "rn" and (rest > 0.5 or (rest == 0.5 and count % 2)))):
        count += 1
    largest = Fraction(float(np.finfo(DTYPES[type_]).max))
    value = float(min(count * unit, largest))
    if count * unit > largest and (away or mode == "rn"):
        value = np.inf
    return DTYPES[type_](-value if negative else value)


def equal(got, wanted):
    """Equal values, zeros with equal signs, NaN with NaN."""
    nan = np.isnan(got) & np.isnan(wanted)
    return nan | ((got == wanted) & (np.signbit(got) == np.signbit(wanted)))


def assert_equal(opcode, got, wanted, *operands):
    bad = np.flatnonzero(~equal(got, wanted))
    assert not bad.size, (opcode, [x[bad[0]] for x in operands], got[bad[0]], wanted[bad[0]])
