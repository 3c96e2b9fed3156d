"""Comparisons, choices and conversions against NumPy, Python's integers and exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from ptx.execute import find_compiler
from ptx.ieee import FLOATS, MODES, assert_equal, edges, equal, rounded
from ptx.reading import width
from ptx.snippets import DTYPES, build, compute

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="PTX runs through gcc, which is not here")
INTEGERS = [f"{kind}{bits}" for kind in "us" for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("type_", FLOATS)
def test_comparisons_with_nan(type_):
    a, b = edges(type_, seed=9), edges(type_, seed=10)
    b[::3] = a[::3]
    nan = np.isnan(a) | np.isnan(b)
    plain = {"eq": a == b, "ne": (a != b) & ~nan, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
    wanted = plain | {f"{name}u": yes | nan for name, yes in plain.items()} | {"num": ~nan, "nan": nan}
    x, y = (type_, a), (type_, b)
    for (name, yes), got in zip(
        wanted.items(), compute(*((f"setp.{name}.{type_}", "pred", x, y) for name in wanted)), strict=True
    ):
        assert np.array_equal(got, yes), name
    c = np.arange(len(a)) % 2 == 0
    combined = {"and": plain["lt"] & c, "or": plain["lt"] | c, "xor": plain["lt"] ^ c}
    rows = [(f"setp.lt.{logic}.{type_}", "pred", x, y, ("pred", c)) for logic in combined]
    for yes, got in zip(combined.values(), compute(*rows), strict=True):
        assert np.array_equal(got, yes)
    ones = compute((f"set.ltu.u32.{type_}", "u32", x, y), (f"set.ge.f32.{type_}", "f32", x, y))
    assert np.array_equal(ones[0], np.where(wanted["ltu"], np.uint32(0xFFFFFFFF), np.uint32(0)))
    assert np.array_equal(ones[1], plain["ge"].astype(np.float32))


def test_comparisons_of_integers_and_both_results():
    rows, wanted = [], []
    for t in ("u16", "s16", "u32", "s32", "u64", "s64"):
        info = np.iinfo(DTYPES[t])
        a = np.resize(np.array([0, 1, info.min, info.max, info.max - 1, info.max // 2 + 1], DTYPES[t]), 128)
        b = np.repeat(a[:6], 22)[:128]
        names = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
        if t[0] == "u":
            names |= {"lo": a < b, "ls": a <= b, "hi": a > b, "hs": a >= b}
        rows += [(f"setp.{name}.{t}", "pred", (t, a), (t, b)) for name in names]
        wanted += names.values()
    for (opcode, *_), yes, got in zip(rows, wanted, compute(*rows), strict=True):
        assert np.array_equal(got, yes), opcode
    out = np.zeros(128, np.uint32)
    body = """setp.lt.u32 %p1|%p2, %i, 10;
    setp.gt.and.u32 %p3|%p4, %i, 5, !%p2;
    selp.u32 %r1, 1, 0, %p1; selp.u32 %r2, 2, 0, %p2; selp.u32 %r3, 4, 0, %p3; selp.u32 %r4, 8, 0, %p4;
    or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %r3; or.b32 %r1, %r1, %r4;
    mad.wide.u32 %rd1, %i, 4, %a0; st.global.u32 [%rd1], %r1;"""
    build(1, body)(1, 128, out)
    i = np.arange(128)
    first, second = i < 10, i > 5
    assert np.array_equal(out, first + 2 * ~first + 4 * (second & first) + 8 * (~second & first))


def test_choices():
    p = np.arange(384) % 3 == 0
    nan = np.uint64(0x7FF0000000000001)  # selp moves the bits of a signalling NaN as they are
    a, b = np.full(384, nan).view(np.float64), edges("f64")
    rows = [
        ("selp.f64", "f64", ("f64", a), ("f64", b), ("pred", p)),
        ("selp.b32", "b32", ("b32", np.arange(384)), "7", ("pred", p)),
        ("selp.s16", "s16", "-5", ("s16", np.arange(384)), ("pred", p)),
        ("slct.f64.s32", "f64", ("f64", b), "0d0000000000000000", ("s32", np.arange(-9, 375))),
        ("slct.u32.f32", "u32", "1", "2", ("f32", edges("f32", seed=2))),
    ]
    got = compute(*rows)
    assert np.array_equal(got[0].view(np.uint64), np.where(p, nan, b.view(np.uint64)))
    assert np.array_equal(got[1], np.where(p, np.arange(384), 7))
    assert np.array_equal(got[2], np.where(p, -5, np.arange(384)))
    assert_equal("slct.f64", got[3], np.where(np.arange(-9, 375) >= 0, b, 0.0))
    assert np.array_equal(got[4], np.where(edges("f32", seed=2) >= 0, 1, 2))


@pytest.mark.parametrize("source", INTEGERS)
def test_integers_become_integers_and_floats(source):
    info = np.iinfo(DTYPES[source])
    rng = np.random.default_rng(1)
    some = [0, 1, info.max, info.max - 1, info.max // 2, info.min, info.min + 1, 100, (1 << 24) + 1, (1 << 53) + 1]
    # a tie in float32 but for the last bit, which a double on the way would lose
    some += [(1 << k) + (1 << (k - 24)) + 1 for k in (61, 62, 63)]
    some += [int(x) for x in rng.integers(0, info.max, 128 - len(some), dtype=np.uint64)]
    a = np.array([((x - info.min) % (info.max - info.min + 1)) + info.min for x in some], DTYPES[source])
    rows = [(f"cvt.{to}.{source}", to, (source, a)) for to in INTEGERS if to != source]
    rows += [(f"cvt.sat.{to}.{source}", to, (source, a)) for to in INTEGERS if not _holds(to, source)]
    rows += [(f"cvt.{mode}.{to}.{source}", to, (source, a)) for to in FLOATS for mode in MODES]
    for (opcode, to, _), got in zip(rows, compute(*rows), strict=True):
        mode = opcode.split(".")[1]
        for x, d in zip(a.tolist(), got, strict=True):
            if to in FLOATS:
                wanted = rounded(Fraction(x), mode, to) if x else DTYPES[to](0)
            elif mode == "sat":
                wanted = min(max(x, np.iinfo(DTYPES[to]).min), np.iinfo(DTYPES[to]).max)
            else:
                wanted = np.array([x % (1 << width(to))], np.uint64).astype(f"u{width(to) // 8}").view(DTYPES[to])[0]
            assert d == wanted, (opcode, x)


def _holds(to, source):
    low, high = np.iinfo(DTYPES[source]).min, np.iinfo(DTYPES[source]).max
    return np.iinfo(DTYPES[to]).min <= low and high <= np.iinfo(DTYPES[to]).max


@pytest.mark.parametrize("source", FLOATS)
def test_floats_become_integers_and_saturate(source):
    a = edges(source, seed=11)
    steps = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
    rows = [(f"cvt.{mode}.{to}.{source}", to, (source, a)) for to in INTEGERS for mode in steps]
    rows += [(f"cvt.{mode}.{source}.{source}", source, (source, a)) for mode in steps]
    for (opcode, to, _), got in zip(rows, compute(*rows), strict=True):
        whole = steps[opcode.split(".")[1]](a)
        if to == source:
            assert_equal(opcode, got, whole, a)
            continue
        info = np.iinfo(DTYPES[to])
        # the ISA: NaN is zero between types of 32 bits and fewer, else the top bit alone
        nan = 1 << (width(to) - 1) if source == "f64" or width(to) == 64 else 0
        nan = nan - (1 << width(to)) if nan > info.max else nan
        for x, w, d in zip(a, whole, got.tolist(), strict=True):
            if np.isinf(x):
                wanted = info.max if x > 0 else info.min
            else:
                wanted = nan if np.isnan(x) else min(max(int(w), info.min), info.max)
            assert d == wanted, (opcode, x)


def test_floats_become_floats():
    a = edges("f64", seed=12)
    a[:100] = edges("f32", seed=1)[:100].astype(np.float64) * (1 + 2**-30)
    rows = [(f"cvt.{mode}.f32.f64", "f32", ("f64", a)) for mode in MODES]
    for mode, got in zip(MODES, compute(*rows), strict=True):
        for x, d in zip(a, got, strict=True):
            plain = not np.isfinite(x) or x == 0
            with np.errstate(all="ignore"):
                wanted = np.float32(x) if plain else rounded(Fraction(float(x)), mode, "f32")
            assert equal(d, wanted), (mode, x)
    b = edges("f32", seed=13)
    (got,) = compute(("cvt.f64.f32", "f64", ("f32", b)))
    assert_equal("cvt.f64.f32", got, b.astype(np.float64))
