"""Memory, moves, branches and calls of PTX, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.execute import Kernel, KernelFault, find_compiler
from ptx.snippets import build, compute, program

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="PTX runs through gcc, which is not here")


def at(register, array, size, index="%i"):
    return f"mad.wide.u32 {register}, {index}, {size}, %a{array};\n"


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_loads_extend_by_their_type(bits):
    values = np.resize(np.array([0, 1, 2 ** (bits - 1) - 1, 2 ** (bits - 1), 2**bits - 1], f"u{bits // 8}"), 64)
    signed, unsigned, plain = (np.zeros(64, np.int64) for _ in range(3))
    body = at("%rd1", 0, bits // 8) + at("%rd2", 1, 8) + at("%rd3", 2, 8) + at("%rd4", 3, 8)
    for kind, array in (("s", 2), ("u", 3), ("b", 4)):
        body += f"ld.global.{kind}{bits} %rd9, [%rd1];\nst.global.u64 [%rd{array}], %rd9;\n"
    build(4, body)(1, 64, values, signed, unsigned, plain)
    assert np.array_equal(signed, values.view(f"i{bits // 8}"))
    assert np.array_equal(unsigned, values)
    assert np.array_equal(plain, values)


def test_narrow_registers_are_extended_to_their_own_width():
    values = np.resize(np.array([0, 127, 128, 255], np.uint8), 64)
    out = np.zeros(64, np.uint32)
    body = at("%rd1", 0, 1) + at("%rd2", 1, 4)
    body += "ld.global.s8 %h1, [%rd1]; cvt.u32.u16 %r1, %h1; st.global.u32 [%rd2], %r1;"
    build(2, body)(1, 64, values, out)
    assert np.array_equal(out, values.view(np.int8).astype(np.int16).view(np.uint16))


def test_stores_take_the_lower_bits():
    out = np.full((3, 64), 0xFF, np.uint8)
    body = "mov.u64 %rd1, 0x1122334455667788;\n" + at("%rd2", 0, 1) + "st.global.u8 [%rd2], %rd1;\n"
    body += (
        at("%rd2", 1, 1, "0")
        + "st.global.u16 [%rd2], %rd1; st.global.u32 [%rd2+4], %rd1; st.global.v2.u8 [%rd2+8], {%rd1, 7};"
    )
    build(2, body)(1, 1, out[0], out[1])
    assert out[0, :2].tolist() == [0x88, 0xFF]
    assert out[1, :11].tolist() == [0x88, 0x77, 0xFF, 0xFF, 0x88, 0x77, 0x66, 0x55, 0x88, 7, 0xFF]


def test_vectors_and_offsets_of_either_sign():
    x = np.arange(64 * 4, dtype=np.float32)
    y = np.zeros(64 * 4, np.float32)
    body = at("%rd1", 0, 16) + at("%rd2", 1, 16)
    body += """add.s64 %rd1, %rd1, 16;
    ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+-16];
    st.global.v2.f32 [%rd2+8], {%f1, %f2}; st.global.v2.f32 [%rd2], {%f3, %f4};"""
    build(2, body)(1, 64, x, y)
    assert np.array_equal(y.reshape(-1, 4), x.reshape(-1, 4)[:, [2, 3, 0, 1]])


def test_vectors_of_eight():
    """From sm_100 on; `build` assembles for an older one, and would refuse."""
    names = ", ".join(f"%f{k}" for k in range(1, 9))
    body = at("%rd1", 0, 32) + at("%rd2", 1, 32)
    body += f"ld.global.v8.f32 {{{names}}}, [%rd1]; st.global.v8.f32 [%rd2], {{{names}}};"
    ptx = program(2, body)
    x, y = _aligned(256, 32), _aligned(256, 32)
    x[:] = range(256)
    Kernel(ptx)(1, 32, x, y)
    assert np.array_equal(x, y)


def _aligned(n, align):
    raw = np.zeros(4 * n + align, np.uint8)
    start = -raw.ctypes.data % align
    return raw[start : start + 4 * n].view(np.float32)


def test_tables_with_and_without_initial_values():
    head = """.const .align 8 .b8 table[16] = {1, 2, 3, 4, 0xff, 6, 7};
    .global .align 4 .u32 words[4] = {10, 0x20, 4294967295, -1};
    .global .align 8 .u64 one = 5;"""
    body = (
        at("%rd1", 0, 8)
        + """mov.u64 %rd2, table; cvt.u64.u32 %rd3, %i; add.s64 %rd2, %rd2, %rd3;
    ld.const.u8 %r1, [%rd2]; ld.const.u8 %r2, [table+4];
    and.b32 %r5, %i, 3; mul.wide.u32 %rd4, %r5, 4; mov.u64 %rd5, words; add.s64 %rd5, %rd5, %rd4;
    ld.global.u32 %r3, [%rd5]; ld.global.u64 %rd6, [one];
    add.u32 %r1, %r1, %r2; cvt.u64.u32 %rd7, %r1; cvt.u64.u32 %rd8, %r3; add.s64 %rd7, %rd7, %rd8;
    add.s64 %rd7, %rd7, %rd6;
    st.global.u64 [%rd1], %rd7;"""
    )
    out = np.zeros(16, np.uint64)
    build(1, body, head)(1, 16, out)
    table = np.array([1, 2, 3, 4, 255, 6, 7] + [0] * 9, np.uint64)
    assert np.array_equal(out, table + 255 + 5 + np.resize(np.array([10, 32, 2**32 - 1, 2**32 - 1], np.uint64), 16))


def test_moves_pack_and_unpack():
    x = np.array([0x1122334455667788, 0, 2**64 - 1, 0x8000000000000001] * 32, np.uint64)
    out = np.zeros((4, 128), np.uint64)
    body = at("%rd1", 0, 8) + "ld.global.u64 %rd2, [%rd1];\n" + "".join(at(f"%rd{3 + k}", 1 + k, 8) for k in range(4))
    body += """mov.b64 {%r1, %r2}, %rd2; mov.b64 %rd9, {%r2, %r1}; st.global.u64 [%rd3], %rd9;
    mov.b64 {%h1, %h2, %h3, %h4}, %rd2; mov.b64 %rd9, {%h4, %h3, %h2, %h1}; st.global.u64 [%rd4], %rd9;
    mov.b32 {%h1, %h2}, %r1; mov.b32 %r3, {%h2, %h1}; cvt.u64.u32 %rd9, %r3; st.global.u64 [%rd5], %rd9;
    mov.b64 {_, %r4}, %rd2; mov.b64 %fd1, {%r4, %r4}; mov.b64 %rd9, %fd1; st.global.u64 [%rd6], %rd9;"""
    build(5, body)(1, 128, x, *out)
    halves, quarters = x.view(np.uint32).reshape(-1, 2), x.view(np.uint16).reshape(-1, 4)
    assert np.array_equal(out[0], np.ascontiguousarray(halves[:, ::-1]).view(np.uint64).ravel())
    assert np.array_equal(out[1], np.ascontiguousarray(quarters[:, ::-1]).view(np.uint64).ravel())
    assert np.array_equal(out[2], np.ascontiguousarray(quarters[:, 1::-1]).view(np.uint32).ravel())
    assert np.array_equal(out[3], np.ascontiguousarray(halves[:, [1, 1]]).view(np.uint64).ravel())


def test_literals():
    x = ("b32", np.zeros(128))
    got = compute(
        ("add.s32", "s32", x, "-7"),
        ("or.b32", "b32", x, "0xFFFFFFFF"),
        ("or.b32", "b32", x, "0b101"),
        ("or.b32", "b32", x, "017"),
        ("or.b32", "b32", x, "9U"),
        ("add.f64", "f64", ("f64", np.zeros(128)), "0d3FF8000000000000"),
        ("add.f32", "f32", ("f32", np.zeros(128)), "0fBF800000"),
    )
    assert [column[0] for column in got] == [-7, 0xFFFFFFFF, 5, 15, 9, 1.5, -1.0]


def test_generic_addresses_find_their_memory():
    """One load for global, shared and local memory."""
    head = ".shared .align 8 .b8 tile[1024];"
    body = (
        ".local .align 8 .b8 frame[16];\n"
        + at("%rd1", 0, 8)
        + at("%rd2", 1, 8)
        + """
    cvt.u64.u32 %rd3, %i; shl.b64 %rd3, %rd3, 3; mov.u64 %rd4, tile; add.s64 %rd4, %rd4, %rd3;
    add.s64 %rd7, %rd3, 1000; st.shared.u64 [%rd4], %rd7;
    mov.u64 %rd5, frame; add.s64 %rd8, %rd3, 2000; st.local.u64 [%rd5+8], %rd8;
    cvta.shared.u64 %rd4, %rd4; cvta.local.u64 %rd5, %rd5; add.s64 %rd5, %rd5, 8; cvta.global.u64 %rd6, %rd1;
    rem.u32 %r1, %i, 3; setp.eq.u32 %p1, %r1, 1; setp.eq.u32 %p2, %r1, 2;
    @%p1 mov.u64 %rd6, %rd4;
    @%p2 mov.u64 %rd6, %rd5;
    ld.u64 %rd9, [%rd6]; st.global.u64 [%rd2], %rd9;
    cvta.to.shared.u64 %rd4, %rd4; ld.shared.u64 %rd10, [%rd4];
    add.s64 %rd10, %rd10, %rd9; st.global.u64 [%rd2], %rd10;"""
    )
    x, out = np.arange(96) + 5, np.zeros(96, np.int64)
    build(2, body, head)(1, 96, x, out)
    i = np.arange(96)
    assert np.array_equal(out, np.choose(i % 3, [x, 8 * i + 1000, 8 * i + 2000]) + 8 * i + 1000)


CALLEES = """.func (.param .align 8 .b8 pair[16]) halves (.param .b64 whole);
.func (.param .b64 out) addone (.param .b64 in)
{
.reg .b64 %v<3>;
ld.param.u64 %v1, [in];
add.s64 %v2, %v1, 1;
st.param.b64 [out+0], %v2;
ret;
}
.func (.param .align 8 .b8 pair[16]) halves (.param .b64 whole)
{
.local .align 8 .b8 kept[8];
.reg .b64 %v<5>;
.reg .pred %q;
ld.param.u64 %v1, [whole];
st.local.u64 [kept], %v1;
shr.u64 %v2, %v1, 1;
{
.param .b64 param0; .param .b64 retval0;
st.param.b64 [param0+0], %v2;
call.uni (retval0), addone, (param0);
ld.param.b64 %v3, [retval0+0];
}
st.param.b64 [pair+0], %v3;
setp.gt.u64 %q, %v1, 20;
@%q bra BIG;
st.param.b64 [pair+8], 0;
ret;
BIG:
ld.local.u64 %v4, [kept];
st.param.b64 [pair+8], %v4;
ret;
}"""


def test_functions_call_functions():
    body = (
        at("%rd1", 0, 16)
        + """cvt.u64.u32 %rd2, %i;
    {
    .param .b64 param0; .param .align 8 .b8 retval0[16];
    st.param.b64 [param0+0], %rd2;
    call.uni (retval0), halves, (param0);
    ld.param.b64 %rd3, [retval0+0]; ld.param.b64 %rd4, [retval0+8];
    }
    st.global.v2.u64 [%rd1], {%rd3, %rd4};"""
    )
    out = np.zeros(128, np.int64)
    build(1, body, CALLEES)(1, 64, out, seed=4)
    i = np.arange(64)
    assert np.array_equal(out.reshape(-1, 2), np.stack([i // 2 + 1, np.where(i > 20, i, 0)], axis=1))


def test_indexed_branches():
    body = (
        at("%rd1", 0, 4)
        + """and.b32 %r1, %i, 3; mov.u32 %r2, 0;
    ways: .branchtargets ONE, TWO, END, TWO;
    brx.idx %r1, ways;
    ONE: add.u32 %r2, %r2, 1;
    TWO: add.u32 %r2, %r2, 10;
    END: st.global.u32 [%rd1], %r2;"""
    )
    out = np.zeros(8, np.int32)
    build(1, body)(1, 8, out)
    assert out.tolist() == [11, 10, 0, 10] * 2
    with pytest.raises(KernelFault, match="no target"):
        build(1, body.replace("and.b32 %r1, %i, 3", "add.u32 %r1, %i, 3"))(1, 8, out)


def test_guards_and_loops():
    body = (
        at("%rd1", 0, 4)
        + """mov.u32 %r1, 0; mov.u32 %r2, 0;
    AGAIN: setp.ge.u32 %p1, %r1, %i;
    @!%p1 add.u32 %r2, %r2, %r1;
    add.u32 %r1, %r1, 1;
    @!%p1 bra AGAIN;
    st.global.u32 [%rd1], %r2;"""
    )
    out = np.zeros(32, np.int32)
    build(1, body)(1, 32, out)
    assert out.tolist() == [i * (i - 1) // 2 for i in range(32)]


def test_atomics_return_the_old_value_and_lose_nothing():
    out = np.zeros(12, np.uint32)
    out[[2, 4, 9]] = 0xFFFFFFFF, 0xFFFFFFFF, 5
    total = np.zeros(2)
    seen = np.zeros(128, np.uint32)
    body = (
        at("%rd1", 2, 4)
        + """atom.global.add.u32 %r1, [%a0], 1; st.global.u32 [%rd1], %r1;
    red.global.max.u32 [%a0+4], %i; red.global.min.u32 [%a0+8], %i; red.global.or.b32 [%a0+12], %i;
    red.global.and.b32 [%a0+16], %i; red.global.xor.b32 [%a0+20], %i;
    atom.global.inc.u32 %r2, [%a0+24], 9; atom.global.dec.u32 %r3, [%a0+28], 9;
    atom.global.cas.b32 %r4, [%a0+32], 0, 77; atom.global.exch.b32 %r5, [%a0+36], 8;
    red.global.add.s32 [%a0+40], -1; red.global.max.s32 [%a0+44], -1;
    atom.global.add.f64 %fd1, [%a1], 0d3FF8000000000000;"""
    )
    kernel = build(3, body)
    for seed in (0, 1, 2):
        now, count = out.copy(), total.copy()
        kernel(2, 64, now, count, seen, seed=seed)
        assert sorted(seen) == list(range(128))
        assert now[:6].tolist() == [128, 127, 0, 127, 0, 0]
        assert now[6:10].tolist() == [8, (-128) % 10, 77, 8]
        assert now[10:].view(np.int32).tolist() == [-128, 0]
        assert count.tolist() == [128 * 1.5, 0]
