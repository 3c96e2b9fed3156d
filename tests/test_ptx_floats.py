"""Each opcode of floats against exact fractions, or NumPy where it is exact."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from ptx.execute import find_compiler
from ptx.ieee import FLOATS, MODES, assert_equal, edges, rounded
from ptx.snippets import DTYPES, compute

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="PTX runs through gcc, which is not here")


def exact(kind, values, mode, type_):
    """The result of finite operands; a zero result has the sign that IEEE gives it."""
    x, y, z = (Fraction(float(v)) for v in (*values, 0, 0)[:3])
    result = {"add": x + y, "sub": x - y, "mul": x * y, "fma": x * y + z, "div": x / y if y else None}[kind]
    if result == 0:
        plain = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
        if kind in ("mul", "div"):
            return plain[kind](*values)
        first, second = (x * y, z) if kind == "fma" else (x, y if kind == "add" else -y)
        if first or second:  # they cancel
            return DTYPES[type_](-0.0 if mode == "rm" else 0.0)
        sign = np.signbit(values[0]) != np.signbit(values[1]) if kind == "fma" else np.signbit(values[0])
        other = np.signbit(values[-1]) != (kind == "sub")
        return DTYPES[type_](-0.0 if (sign and other) or (mode == "rm" and (sign or other)) else 0.0)
    return rounded(result, mode, type_)


@pytest.mark.parametrize("type_", FLOATS)
def test_sums_products_and_quotients_in_every_rounding(type_):
    a, b, c = (edges(type_, seed=s, finite=True) for s in range(3))
    b = np.where(b == 0, DTYPES[type_](3), b)
    rows, cases = [], []
    for kind in ("add", "sub", "mul", "fma", "div"):
        operands = (a, b, c)[: 3 if kind == "fma" else 2]
        for mode in MODES:
            rows.append((f"{kind}.{mode}.{type_}", type_, *((type_, x) for x in operands)))
            cases.append((kind, mode, operands))
    for kind in ("add", "sub", "mul"):
        rows.append((f"{kind}.{type_}", type_, (type_, a), (type_, b)))
        cases.append((kind, "rn", (a, b)))
    for (opcode, *_), (kind, mode, operands), got in zip(rows, cases, compute(*rows), strict=True):
        with np.errstate(all="ignore"):
            wanted = [exact(kind, values, mode, type_) for values in zip(*operands, strict=True)]
        assert_equal(opcode, got, np.array(wanted, DTYPES[type_]), *operands)


@pytest.mark.parametrize("type_", FLOATS)
def test_roots_and_reciprocals(type_):
    a = np.abs(edges(type_, finite=True))
    a = np.where(a == 0, DTYPES[type_](2), a)
    rows = [(f"{kind}.{mode}.{type_}", type_, (type_, a)) for kind in ("sqrt", "rcp") for mode in MODES]
    for (opcode, *_), got in zip(rows, compute(*rows), strict=True):
        kind, mode = opcode.split(".")[:2]
        for x, d in zip(a, got, strict=True):
            if kind == "rcp":
                wanted = rounded(1 / Fraction(float(x)), mode, type_)
                assert d == wanted, (opcode, x)
                continue
            up, down = np.nextafter(d, DTYPES[type_](np.inf)), np.nextafter(d, DTYPES[type_](0))
            square, above, below = (Fraction(float(v)) ** 2 for v in (d, up, down))
            target = Fraction(float(x))
            middle = [(Fraction(float(d)) + Fraction(float(v))) / 2 for v in (down, up)]
            good = {
                "rn": middle[0] ** 2 <= target <= middle[1] ** 2,
                "rz": square <= target < above,
                "rm": square <= target < above,
                "rp": below < target <= square,
            }[mode]
            assert good, (opcode, x, d)


@pytest.mark.parametrize("type_", FLOATS)
def test_infinities_and_nan_go_as_in_ieee(type_):
    a, b = edges(type_, seed=3), edges(type_, seed=4)
    rows = [(f"{kind}.rn.{type_}", type_, (type_, a), (type_, b)) for kind in ("add", "sub", "mul", "div")]
    rows.append((f"sqrt.rn.{type_}", type_, (type_, a)))
    with np.errstate(all="ignore"):
        wanted = [a + b, a - b, a * b, a / b, np.sqrt(a)]
    for (opcode, *_), got, want in zip(rows, compute(*rows), wanted, strict=True):
        assert_equal(opcode, got, want, a, b)


def test_flushing_and_saturation():
    tiny = np.finfo(np.float32).tiny
    a = edges("f32", seed=5)
    a[:64] = np.resize(np.float32([tiny / 2, -tiny / 2, tiny / 4, -tiny / 8]), 64)
    b = edges("f32", seed=6)
    b[:32] = np.resize(np.float32([1, -1, tiny, 0.5]), 32)

    def flush(x):
        return np.where(np.abs(x) < tiny, np.copysign(np.float32(0), x), x)

    def saturate(x):
        return np.where(x > 0, np.minimum(x, np.float32(1)), np.float32(0))

    x, y = ("f32", a), ("f32", b)
    with np.errstate(all="ignore"):
        cases = [
            (("add.ftz.f32", "f32", x, y), flush(flush(a) + flush(b))),
            (("mul.rn.ftz.f32", "f32", x, y), flush(flush(a) * flush(b))),
            (("mul.sat.f32", "f32", x, y), saturate(a * b)),
            (("fma.rn.ftz.sat.f32", "f32", x, y, y), saturate(flush(_fma32(flush(a), flush(b), flush(b))))),
            (("div.rn.ftz.f32", "f32", x, y), flush(flush(a) / flush(b))),
            (("abs.ftz.f32", "f32", x), np.abs(flush(a))),
            (("neg.ftz.f32", "f32", x), -flush(a)),
            (("cvt.sat.f32.f32", "f32", x), saturate(a)),
            (("cvt.ftz.f64.f32", "f64", x), flush(a).astype(np.float64)),
            (
                ("cvt.rn.ftz.f32.f64", "f32", ("f64", a.astype(np.float64) / 3)),
                flush((a.astype(float) / 3).astype("f4")),
            ),
            (("min.ftz.f32", "f32", x, ("f32", np.full_like(a, 1e30))), flush(np.fmin(flush(a), np.float32(1e30)))),
        ]
        compare = compute(("setp.eq.ftz.f32", "pred", x, "0f00000000"), ("setp.eq.f32", "pred", x, "0f00000000"))
    for (row, wanted), got in zip(cases, compute(*(row for row, _ in cases)), strict=True):
        assert_equal(row[0], got, wanted, a, b)
    assert np.array_equal(compare[0], flush(a) == 0)
    assert np.array_equal(compare[1], a == 0)
    assert compare[0].sum() > compare[1].sum()


def _fma32(*operands):
    out = np.empty_like(operands[0])
    for i, values in enumerate(zip(*operands, strict=True)):
        x, y, z = map(float, values)
        out[i] = exact("fma", values, "rn", "f32") if np.isfinite(values).all() else x * y + z
    return out


@pytest.mark.parametrize("type_", FLOATS)
def test_extremes_signs_and_classes(type_):
    a, b = edges(type_, seed=7), edges(type_, seed=8)
    a[:6], b[:6] = [0.0, -0.0, np.nan, 1, np.nan, -0.0], [-0.0, 0.0, 1, np.nan, np.nan, -0.0]
    x, y = (type_, a), (type_, b)
    tiny = np.finfo(DTYPES[type_]).tiny
    zeros = (a == 0) & (b == 0)
    low = np.where(zeros, np.copysign(0, np.where(np.signbit(a) | np.signbit(b), -1, 1)), np.fmin(a, b))
    high = np.where(zeros, np.copysign(0, np.where(np.signbit(a) & np.signbit(b), -1, 1)), np.fmax(a, b))
    rows = [(f"min.{type_}", low), (f"max.{type_}", high), (f"copysign.{type_}", np.copysign(b, a))]
    for (opcode, wanted), got in zip(rows, compute(*((o, type_, x, y) for o, _ in rows)), strict=True):
        assert_equal(opcode, got, wanted.astype(DTYPES[type_]), a, b)
    if type_ == "f32":
        (got,) = compute(("max.NaN.f32", "f32", x, y))
        wanted = np.where(np.isnan(a) | np.isnan(b), np.float32(np.nan), high)
        assert_equal("max.NaN.f32", got, wanted.astype(np.float32), a, b)
    signs = compute((f"abs.{type_}", type_, x), (f"neg.{type_}", type_, x))
    assert_equal("abs", signs[0], np.abs(a))
    assert_equal("neg", signs[1], -a)
    tests = {
        "finite": np.isfinite(a),
        "infinite": np.isinf(a),
        "number": ~np.isnan(a),
        "notanumber": np.isnan(a),
        "normal": np.isfinite(a) & (np.abs(a) >= tiny),
        "subnormal": (a != 0) & (np.abs(a) < tiny),
    }
    for wanted, got in zip(tests.values(), compute(*((f"testp.{t}.{type_}", "pred", x) for t in tests)), strict=True):
        assert np.array_equal(got, wanted)


def test_approximations_are_as_close_as_the_isa_promises():
    a = np.abs(edges("f32", seed=14, finite=True)).clip(1e-30, 1e30)
    x, small = ("f32", a), ("f32", a.clip(0, 100))
    with np.errstate(all="ignore"):
        cases = [
            (("ex2.approx.ftz.f32", "f32", small), np.exp2(a.clip(0, 100).astype(float))),
            (("lg2.approx.f32", "f32", x), np.log2(a.astype(float))),
            (("rcp.approx.ftz.f32", "f32", x), 1 / a.astype(float)),
            (("sqrt.approx.f32", "f32", x), np.sqrt(a.astype(float))),
            (("rsqrt.approx.f32", "f32", x), 1 / np.sqrt(a.astype(float))),
            (("div.approx.f32", "f32", ("f32", np.ones_like(a)), x), 1 / a.astype(float)),
        ]
    for (row, wanted), got in zip(cases, compute(*(row for row, _ in cases)), strict=True):
        assert np.allclose(got, wanted, rtol=2**-22, atol=1e-37), row[0]
    b = edges("f64", seed=15)
    got, root = compute(("rcp.approx.ftz.f64", "f64", ("f64", b)), ("rsqrt.approx.ftz.f64", "f64", ("f64", np.abs(b))))
    assert not (got.view(np.uint64) & np.uint64(0xFFFFFFFF)).any()
    tiny = np.finfo(float).tiny
    normal = (np.abs(b) < 1e300) & (np.abs(b) >= tiny)
    assert np.allclose(got[normal], 1 / b[normal], rtol=2**-19, atol=0)
    assert np.allclose(root[normal], 1 / np.sqrt(np.abs(b[normal])), rtol=2**-19, atol=0)
    assert np.array_equal(got[np.abs(b) < tiny], np.copysign(np.inf, b[np.abs(b) < tiny]))
    assert_equal("rcp", got[np.isinf(b)], np.copysign(0, b[np.isinf(b)]))
    assert np.isnan(got[np.isnan(b)]).all()
