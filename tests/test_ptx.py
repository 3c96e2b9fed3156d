"""Each opcode of integers, bits and logic against Python's own integers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from ptx.execute import find_compiler
from ptx.reading import Untranslatable, integer, width
from ptx.snippets import DTYPES, build, compute, program
from ptx.translate import translate

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="PTX runs through gcc, which is not here")
INTEGERS = [f"{kind}{bits}" for kind in "us" for bits in (16, 32, 64)]


def edges(type_, n=256, seed=0):
    """Integers of a type: those at its ends, powers of two and their neighbours, and others."""
    bits = width(type_)
    some = {0, 1, 2, 3, 5, 7, bits, bits - 1, bits + 1}
    some |= {(1 << k) + d for k in range(bits) for d in (-1, 0, 1)}
    some |= {-x for x in some}
    dtype = DTYPES[type_]
    rng = np.random.default_rng(seed)
    values = np.array([wrap(x, type_) for x in sorted(some)], dtype)
    more = rng.integers(0, 1 << 63, n, dtype=np.uint64).astype(dtype)
    return rng.permutation(np.concatenate([values, more]))[:n]


def wrap(x, type_):
    """An integer modulo 2^bits, in the range of a type."""
    bits = width(type_)
    x &= (1 << bits) - 1
    return x - (1 << bits) if type_[0] == "s" and x >> (bits - 1) else x


def check(rows):
    """Rows of (opcode, result type, oracle, *operands): the oracle takes Python integers and may return any."""
    results = compute(*((opcode, result, *operands) for opcode, result, _, *operands in rows))
    for (opcode, result, oracle, *operands), got in zip(rows, results, strict=True):
        lists = [itertools.repeat(integer(o)) if isinstance(o, str) else o[1].tolist() for o in operands]
        wanted = [oracle(*values) for values in zip(*lists, strict=False)][: len(got)]
        wanted = np.array([bool(x) if result == "pred" else wrap(x, result) for x in wanted], DTYPES[result])
        bad = np.flatnonzero(got != wanted)
        assert not bad.size, (opcode, [next(itertools.islice(v, int(bad[0]), None)) for v in lists], got[bad[0]])


def pair(type_, seed=0):
    return (type_, edges(type_, seed=seed)), (type_, edges(type_, seed=seed + 1))


def test_sums_products_and_extremes():
    rows = []
    for t in INTEGERS:
        a, b = pair(t)
        bits = width(t)
        rows += [
            (f"add.{t}", t, lambda x, y: x + y, a, b),
            (f"sub.{t}", t, lambda x, y: x - y, a, b),
            (f"min.{t}", t, min, a, b),
            (f"max.{t}", t, max, a, b),
            (f"mul.lo.{t}", t, lambda x, y: x * y, a, b),
            (f"mul.hi.{t}", t, lambda x, y, bits=bits: (x * y) >> bits, a, b),
            (f"mad.lo.{t}", t, lambda x, y, z: x * y + z, a, b, (t, edges(t, seed=7))),
            (f"mad.hi.{t}", t, lambda x, y, z, bits=bits: ((x * y) >> bits) + z, a, b, (t, edges(t, seed=7))),
        ]
        if bits < 64:
            wide = f"{t[0]}{2 * bits}"
            rows += [
                (f"mul.wide.{t}", wide, lambda x, y: x * y, a, b),
                (f"mad.wide.{t}", wide, lambda x, y, z: x * y + z, a, b, (wide, edges(wide, seed=7))),
            ]
        if t[0] == "s":
            rows += [(f"neg.{t}", t, lambda x: -x, a), (f"abs.{t}", t, abs, a)]
    check(rows)


def test_division_truncates_and_the_least_integer_wraps():
    rows = []
    for t in INTEGERS:
        a, (_, b) = pair(t)
        a[1][:2] = np.iinfo(DTYPES[t]).min
        b = np.where(b == 0, 3, b).astype(DTYPES[t])
        b[0] = wrap(-1, t)
        b = (t, b)

        def quotient(x, y):
            return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)

        rows += [(f"div.{t}", t, quotient, a, b), (f"rem.{t}", t, lambda x, y: x - quotient(x, y) * y, a, b)]
    check(rows)


def test_logic():
    rows = []
    for t in ("b16", "b32", "b64"):
        a, b = pair(t)
        rows += [
            (f"and.{t}", t, lambda x, y: x & y, a, b),
            (f"or.{t}", t, lambda x, y: x | y, a, b),
            (f"xor.{t}", t, lambda x, y: x ^ y, a, b),
            (f"not.{t}", t, lambda x: ~x, a),
            (f"cnot.{t}", t, lambda x: x == 0, a),
        ]
    p, q = ("pred", np.arange(256) % 2 == 1), ("pred", np.arange(256) // 2 % 2 == 1)
    rows += [
        ("and.pred", "pred", lambda x, y: x and y, p, q),
        ("or.pred", "pred", lambda x, y: x or y, p, q),
        ("xor.pred", "pred", lambda x, y: x != y, p, q),
        ("not.pred", "pred", lambda x: not x, p),
        ("mov.pred", "pred", lambda x: x, p),
    ]
    for table in (0x00, 0xFF, 0x80, 0xFE, 0x96, 0xCA, 0xE8, 0x1B):

        def lop3(x, y, z, table):
            at = [(x >> i & 1) * 4 + (y >> i & 1) * 2 + (z >> i & 1) for i in range(32)]
            return sum((table >> k & 1) << i for i, k in enumerate(at))

        rows.append(("lop3.b32", "b32", lop3, *pair("b32"), ("b32", edges("b32", seed=5)), hex(table)))
    check(rows)


AMOUNTS = ("u32", np.resize([0, 1, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 0x80000000, 0xFFFFFFFF], 256))


def test_shifts_clamp_at_the_width():
    rows = []
    for t in ("b16", "b32", "b64"):
        rows.append((f"shl.{t}", t, lambda x, n: x << min(n, 64), (t, edges(t)), AMOUNTS))
    for t in (*INTEGERS, "b16", "b32", "b64"):
        rows.append((f"shr.{t}", t, lambda x, n: x >> min(n, 64), (t, edges(t)), AMOUNTS))
    for mode, amount in (("clamp", lambda n: min(n, 32)), ("wrap", lambda n: n % 32)):
        low, high = pair("b32")
        rows += [
            (f"shf.l.{mode}.b32", "b32", lambda a, b, n, f=amount: (b << 32 | a) << f(n) >> 32, low, high, AMOUNTS),
            (f"shf.r.{mode}.b32", "b32", lambda a, b, n, f=amount: (b << 32 | a) >> f(n), low, high, AMOUNTS),
        ]
    check(rows)


def test_bit_fields():
    positions = ("u32", np.resize([0, 1, 7, 30, 31, 32, 33, 62, 63, 64, 100, 255, 256, 259], 256))
    lengths = ("u32", np.resize([0, 1, 2, 9, 31, 32, 33, 63, 64, 65, 255, 257, 512], 256))
    rows = []

    def extract(x, at, n, bits, signed):
        at, n = at % 256, n % 256
        whole = wrap(x, f"s{bits}") if signed else x  # infinitely many copies of the sign, or zeros
        field = (whole >> at) & ((1 << n) - 1)
        if signed and n and whole >> min(at + n - 1, bits - 1) & 1:
            field -= 1 << n
        return field

    def insert(x, y, at, n, bits):
        mask = ((1 << n % 256) - 1) << at % 256 & ((1 << bits) - 1)
        return y & ~mask | x << at % 256 & mask

    for t in ("u32", "s32", "u64", "s64"):
        bits, signed = width(t), t[0] == "s"
        where = (("u32", edges("u32", seed=3) % 300), lengths)
        for at, n in ((positions, lengths), where):
            rows.append((f"bfe.{t}", t, lambda x, p, n, b=bits, s=signed: extract(x, p, n, b, s), (t, edges(t)), at, n))

        def find(x, bits=bits, shift=False):
            top = (~x if x < 0 else x).bit_length() - 1
            return top if top < 0 or not shift else bits - 1 - top

        rows.append((f"bfind.{t}", "u32", find, (t, edges(t))))
        rows.append((f"bfind.shiftamt.{t}", "u32", lambda x, f=find: f(x, shift=True), (t, edges(t))))
    for t in ("b32", "b64"):
        bits = width(t)
        rows += [
            (f"bfi.{t}", t, lambda x, y, p, n, b=bits: insert(x, y, p, n, b), *pair(t), positions, lengths),
            (f"popc.{t}", "u32", lambda x: x.bit_count(), (t, edges(t))),
            (f"clz.{t}", "u32", lambda x, b=bits: b - x.bit_length(), (t, edges(t))),
            (f"brev.{t}", t, lambda x, b=bits: int(f"{x:0{b}b}"[::-1], 2), (t, edges(t))),
        ]

    def permute(x, y, selector):
        data = (y << 32 | x).to_bytes(8, "little")
        chosen = [selector >> 4 * i & 15 for i in range(4)]
        return int.from_bytes([data[c & 7] if c < 8 else 255 * (data[c & 7] >> 7) for c in chosen], "little")

    rows.append(("prmt.b32", "b32", permute, *pair("b32"), ("b32", edges("b32", seed=9))))

    def extend(x, n, signed):
        x = x % (1 << n) if n < 32 else x
        return x - (1 << n) if signed and 0 < n < 32 and x >> (n - 1) else x

    for t, signed in (("u32", False), ("s32", True)):
        rows += [
            (f"szext.clamp.{t}", t, lambda x, n, s=signed: extend(x % 2**32, min(n, 32), s), (t, edges(t)), AMOUNTS),
            (f"szext.wrap.{t}", t, lambda x, n, s=signed: extend(x % 2**32, n % 32, s), (t, edges(t)), AMOUNTS),
        ]
    check(rows)


def test_unknown_modifiers_and_widths_are_refused():
    for statement in (
        "add.sat.s32 %r1, %r2, %r3",
        "mul24.lo.s32 %r1, %r2, %r3",
        "prmt.b32.f4e %r1, %r2, %r3, %r4",
        "lop3.or.b32 %r1|%p1, %r2, %r3, %r4, 0x80, %p2",
        "add.f16 %h1, %h2, %h3",
        "add.s32 %rd1, %rd2, %rd3",
        "add.s32 %r1, %r2",
        "add.s32 %r1, %r2, 0d3FF0000000000000",
        "add.f64 %fd1, %fd2, 1",
        "add.s16 %h1, %h2, 70000",
        "mul.wide.s64 %rd1, %rd2, %rd3",
        "shl.u32 %r1, %r2, %r3",
        "add.s32 %unknown, %r2, %r3",
        "mov.u32 %r1, %clock",
        "sad.s32 %r1, %r2, %r3, %r4",
        "wmma.load %r1, %r2",
        "cvt.f32.f64 %f1, %fd1",
        "cvt.rni.f32.s32 %f1, %r1",
        "setp.lo.s32 %p1, %r1, %r2",
        "setp.lt.b32 %p1, %r1, %r2",
        "ld.global.b128 %rd1, [%rd2]",
        "ld.global.f32 %fd1, [%rd2]",
        "st.const.f32 [%rd1], %f1",
        "ld.param.u64 %rd1, [p0_4+8]",
        "atom.global.add.s64 %rd1, [%rd2], %rd3",
        "call.uni (p0_4), nowhere, ()",
        ".reg .b128 %wide",
        "activemask.b32 %r1",
    ):
        with pytest.raises(Untranslatable):
            translate(program(1, statement + ";"))


def test_carries_pass_through_wide_sums_and_products():
    """128-bit arithmetic out of 32-bit words, as compilers write it."""
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 1 << 32, 4 * 64, dtype=np.uint64).astype(np.uint32) for _ in range(2))
    a[: 4 * 16] = 0xFFFFFFFF
    b[4 * 8 : 4 * 24] = 0xFFFFFFFF
    total, difference, product = (np.zeros_like(a) for _ in range(3))
    load = "".join(
        f"ld.global.u32 %r{k + 1}, [%rd1+{4 * k}];\nld.global.u32 %r{k + 5}, [%rd2+{4 * k}];\n" for k in range(4)
    )
    steps = ["mul.wide.u32 %rd9, %i, 16;"] + [f"add.s64 %rd{k + 1}, %a{k}, %rd9;" for k in range(5)] + [load]
    for array, op in ((3, "add"), (4, "sub")):
        kinds = (f"{op}.cc.u32", f"{op}c.cc.u32", f"{op}c.cc.u32", f"{op}c.u32")
        steps += [f"{kind} %r{k + 9}, %r{k + 1}, %r{k + 5};" for k, kind in enumerate(kinds)]
        steps += [f"st.global.u32 [%rd{array}+{4 * k}], %r{k + 9};" for k in range(4)]
    steps += [
        "mul.lo.u32 %r9, %r1, %r5;",
        "mul.hi.u32 %r10, %r1, %r5;",
        "mad.lo.cc.u32 %r10, %r1, %r6, %r10;",
        "madc.hi.cc.u32 %r11, %r1, %r6, 0;",
        "madc.hi.u32 %r12, %r2, %r6, 0;",
        "mad.lo.cc.u32 %r10, %r2, %r5, %r10;",
        "madc.hi.cc.u32 %r11, %r2, %r5, %r11;",
        "addc.u32 %r12, %r12, 0;",
        "mad.lo.cc.u32 %r11, %r2, %r6, %r11;",
        "addc.u32 %r12, %r12, 0;",
    ] + [f"st.global.u32 [%rd5+{4 * k}], %r{k + 9};" for k in range(4)]
    build(5, "\n".join(steps))(1, 64, a, b, total, difference, product)

    def whole(words):
        return [int.from_bytes(row.tobytes(), "little") for row in words.reshape(-1, 4)]

    for x, y, s, d, p in zip(*map(whole, (a, b, total, difference, product)), strict=True):
        assert s == (x + y) % 2**128
        assert d == (x - y) % 2**128
        assert p == x % 2**64 * (y % 2**64)
