"""What a GPU would stop at or quietly get wrong is reported, and arguments that do not fit are refused."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.execute import Kernel, KernelFault, find_compiler
from ptx.reading import Untranslatable
from ptx.snippets import build, program

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="PTX runs through gcc, which is not here")
COPY = """mad.wide.u32 %rd1, %i, 8, %a0; mad.wide.u32 %rd2, %i, 8, %a1;
ld.global.u64 %rd3, [%rd1+OFFSET]; st.global.u64 [%rd2], %rd3;"""


@pytest.fixture(scope="module")
def copy():
    return build(2, COPY.replace("OFFSET", "0"))


def test_a_load_past_the_end(copy):
    x, y = np.arange(40), np.zeros(64, np.int64)
    with pytest.raises(KernelFault, match=r"load of 8 bytes outside of every array; it passes argument 0 by 8 bytes"):
        copy(1, 41, x, y)
    with pytest.raises(KernelFault, match=r"thread \(40, 0, 0\), line \d+, '.*ld.global.u64 %rd3"):
        copy(1, 41, x, y)


def test_a_store_past_the_end(copy):
    with pytest.raises(KernelFault, match=r"store of 8 bytes outside of every array; it passes argument 1 by 8 bytes"):
        copy(2, 32, np.arange(64), np.zeros(63, np.int64), seed=1)


def test_a_load_before_the_start():
    with pytest.raises(KernelFault, match="it precedes argument 0 by 16 bytes"):
        build(2, COPY.replace("OFFSET", "-16"))(1, 1, np.arange(4), np.zeros(4, np.int64))


def test_an_array_beside_another_is_still_outside(copy):
    """Views of one buffer are moved apart: a step out of the one is no step into the other."""
    buffer = np.arange(128)
    with pytest.raises(KernelFault, match="passes argument 0 by 8 bytes"):
        copy(1, 64, buffer[:63], buffer[63:127])


def test_arrays_that_overlap_stay_so(copy):
    buffer = np.arange(65)
    copy(1, 64, buffer[1:], buffer[:-1])
    assert np.array_equal(buffer[:64], np.arange(1, 65))


def test_results_before_a_fault_are_there_and_unchecked_runs_do_without(copy):
    buffer, y = np.arange(64), np.zeros(64, np.int64)
    with pytest.raises(KernelFault):
        copy(1, 64, buffer[:63], y)
    assert np.array_equal(y[:63], np.arange(63))
    copy(1, 64, buffer[:63], y, checked=False)
    assert np.array_equal(y, np.arange(64))


def test_read_only_arrays_are_read_only(copy):
    x, y = np.arange(8), np.zeros(8, np.int64)
    x.flags.writeable = False
    copy(1, 8, x, y)
    with pytest.raises(KernelFault, match="store into a read-only array"):
        copy(1, 8, y, x)
    assert np.array_equal(x, np.arange(8))


def test_addresses_that_are_not_aligned():
    body = COPY.replace("OFFSET", "4")
    with pytest.raises(KernelFault, match="load of 8 bytes is not aligned"):
        build(2, body)(1, 1, np.arange(4), np.zeros(4, np.int64))
    raw = np.zeros(65, np.uint8)
    shift = (-raw.ctypes.data) % 8 + 1
    with pytest.raises(KernelFault, match="not aligned"):
        build(2, COPY.replace("OFFSET", "0"))(1, 1, raw[shift : shift + 8].view(np.int64), np.zeros(4, np.int64))


@pytest.mark.parametrize("space", ["shared", "local"])
def test_windows_have_ends(space):
    head, inside = (
        (".shared .align 8 .b8 room[64];", "") if space == "shared" else ("", ".local .align 8 .b8 room[64];\n")
    )
    body = (
        inside + f"mul.wide.u32 %rd1, %i, 8; mov.u64 %rd2, room; add.s64 %rd2, %rd2, %rd1; st.{space}.u64 [%rd2], %rd1;"
    )
    kernel = build(1, body, head)
    kernel(1, 8, np.zeros(1))
    with pytest.raises(KernelFault, match=f"store of 8 bytes outside of {space} memory, which has 64"):
        kernel(1, 9, np.zeros(1))


def test_dynamic_shared_memory():
    head = ".extern .shared .align 8 .b8 room[];"
    body = "mul.wide.u32 %rd1, %i, 8; mov.u64 %rd2, room; add.s64 %rd2, %rd2, %rd1; st.shared.u64 [%rd2], %rd1;"
    kernel = build(1, body, head)
    kernel(1, 8, np.zeros(1), shared=64)
    with pytest.raises(KernelFault, match="outside of shared memory"):
        kernel(1, 8, np.zeros(1), shared=56)


def test_division_by_zero_and_traps():
    with pytest.raises(KernelFault, match=r"by zero.*thread \(3, 0, 0\)"):
        build(1, "sub.s32 %r1, %i, 3; div.s32 %r2, 7, %r1;")(1, 8, np.zeros(1))
    with pytest.raises(KernelFault, match=r"trap: block \(1, 0, 0\)"):
        build(1, "setp.gt.u32 %p1, %i, 9; @%p1 trap;")(2, 8, np.zeros(1))


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (".shared .align 8 .b8 room[64];", "ld.shared.u64 %rd9, [room+8];"),
        ("", ".local .align 8 .b8 room[64];\nld.local.u64 %rd9, [room+8];"),
        ("", ""),
    ],
    ids=["shared", "local", "registers"],
)
def test_what_was_never_written_is_garbage(head, body):
    """So that a kernel which reads it has other results with every seed."""
    # ptxas would warn of it, and so is not asked
    kernel = Kernel(program(1, body + "mad.wide.u32 %rd1, %i, 8, %a0; st.global.u64 [%rd1], %rd9;", head))
    seen = set()
    for seed in range(5):
        out = np.zeros(4, np.uint64)
        kernel(1, 4, out, seed=seed)
        assert out.all()
        seen.add(out.tobytes())
    assert len(seen) == 5


def test_three_axes():
    digits = [
        "ctaid.y",
        "ctaid.x",
        "tid.y",
        "tid.x",
        *(f"{name}.{axis}" for name in ("nctaid", "ntid") for axis in "zyx"),
    ]
    body = "mov.u32 %r9, 0;\n"
    body += "".join(f"mov.u32 %r1, %{digit}; mad.lo.u32 %r9, %r9, 8, %r1;\n" for digit in digits)
    index = """mov.u32 %r2, %tid.z; mov.u32 %r3, %ntid.y; mov.u32 %r4, %tid.y; mad.lo.u32 %r2, %r2, %r3, %r4;
    mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r2, %r2, %r3, %r4;
    mov.u32 %r3, %ctaid.z; mov.u32 %r4, %nctaid.y; mov.u32 %r5, %ctaid.y; mad.lo.u32 %r3, %r3, %r4, %r5;
    mov.u32 %r4, %nctaid.x; mov.u32 %r5, %ctaid.x; mad.lo.u32 %r3, %r3, %r4, %r5;
    mad.lo.u32 %r2, %r3, 30, %r2; mad.wide.u32 %rd1, %r2, 4, %a0; st.global.u32 [%rd1], %r9;"""  # fmt: skip
    grid, block = (3, 2, 4), (5, 3, 2)
    kernel = build(1, body + index)
    for seed in (0, 1):
        out = np.zeros(24 * 30, np.uint32)
        kernel(grid, block, out, seed=seed)
        wanted = []
        for b in range(24):
            for t in range(30):
                value = 0
                for digit in (b // 3 % 2, b % 3, t // 5 % 3, t % 5, *grid[::-1], *block[::-1]):
                    value = value * 8 + digit
                wanted.append(value % 2**32)
        assert out.tolist() == wanted


def test_blocks_and_arguments_that_do_not_fit(copy):
    x = np.arange(8)
    with pytest.raises(ValueError, match="2048 threads"):
        copy(1, 2048, x, x)
    with pytest.raises(ValueError, match="grid is 0"):
        copy(0, 8, x, x)
    with pytest.raises(TypeError, match="takes 14 parameters, and the arguments make 7"):
        copy(1, 8, x)
    with pytest.raises(TypeError, match=r"argument 1 is 3: .*np.int32\(3\)"):
        copy(1, 8, x, 3)
    with pytest.raises(TypeError, match="0 dimensions"):
        copy(1, 8, x, np.array(1.0))
    limited = program(1, "").replace("\n{\n", "\n.maxntid 64, 1, 1\n{\n", 1)
    Kernel(limited)(1, 64, x)
    with pytest.raises(ValueError, match="takes 64"):
        Kernel(limited)(1, 65, x)


def test_scalars_are_checked_against_their_loads():
    ptx = """.version 8.0
    .target sm_80
    .address_size 64
    .visible .entry k(.param .b64 x, .param .u32 n, .param .u8 flag)
    { .reg .f64 %fd1; .reg .b32 %r1; .reg .b16 %h1;
    ld.param.f64 %fd1, [x]; ld.param.u32 %r1, [n]; ld.param.u8 %h1, [flag]; ret; }"""
    kernel = Kernel(ptx)
    kernel(1, 1, 1.5, np.int32(3), True)
    for arguments in (
        (np.int64(1), np.int32(3), True),
        (1.5, np.float32(3), True),
        (1.5, np.int64(3), True),
        (1.5, np.int32(3), np.int32(1)),
        (np.float32(1), np.int32(3), True),
    ):
        with pytest.raises(TypeError, match="for "):
            kernel(1, 1, *arguments)


def test_files_that_are_not_understood():
    for old, new in (
        (".address_size 64", ".address_size 32"),
        (".address_size 64", ".address_size 64\n.extern .global .u32 elsewhere;"),
        (".address_size 64", ".address_size 64\n.section .debug_info { .b8 1 }"),
        (".address_size 64", ".address_size 64\n.global .texref t;"),
        ("ret;\n}", "ret;"),
        (".reg .pred %p<9>;", ".reg .v2 .f32 %p;"),
        (".visible .entry kernel(", ".visible .entry first()\n{\nret;\n}\n.visible .entry kernel("),
    ):
        ptx = program(1, "")
        assert old in ptx
        with pytest.raises(Untranslatable):
            Kernel(ptx.replace(old, new, 1))
