"""Threads of PTX: barriers, warps, races that a seed reveals, and faults that are reported."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.execute import KernelFault, find_compiler
from ptx.snippets import build

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="PTX runs through gcc, which is not here")
SEEDS = range(6)
TILE = ".shared .align 8 .b8 tile[4096];"
MINE = """cvt.u64.u32 %rd1, %part; shl.b64 %rd1, %rd1, 2; mov.u64 %rd2, tile; add.s64 %rd2, %rd2, %rd1;
mad.wide.u32 %rd3, %i, 4, %a0;"""
# each thread leaves its number in shared memory, and takes that of the thread opposite
REVERSE = (
    MINE
    + """st.shared.u32 [%rd2], %i;
BARRIER
mov.u32 %r1, %ntid.x; sub.u32 %r1, %r1, 1; sub.u32 %r1, %r1, %part;
mul.wide.u32 %rd4, %r1, 4; mov.u64 %rd5, tile; add.s64 %rd5, %rd5, %rd4;
ld.shared.u32 %r2, [%rd5]; st.global.u32 [%rd3], %r2;"""
)


@pytest.mark.parametrize("barrier", ["bar.sync 0;", "barrier.sync 3;", "barrier.sync.aligned 0;"])
def test_barriers_hold_several_warps(barrier):
    kernel = build(1, REVERSE.replace("BARRIER", barrier), TILE)
    for seed in SEEDS:
        for threads in (32, 70, 256):
            out = np.zeros(3 * threads, np.int32)
            kernel(3, threads, out, seed=seed)
            assert np.array_equal(out.reshape(3, -1), np.arange(3 * threads).reshape(3, -1)[:, ::-1])


def test_a_missing_barrier_shows():
    """In turn, the first half reads what was never written; in other orders, other threads do."""
    kernel = build(1, REVERSE.replace("BARRIER", ""), TILE)
    outcomes = set()
    for seed in SEEDS:
        out = np.zeros(64, np.int32)
        kernel(1, 64, out, seed=seed)
        outcomes.add(out.tobytes())
        assert not np.array_equal(out, np.arange(64)[::-1])
    assert len(outcomes) == len(SEEDS)


def test_lost_updates_show():
    """Load, add one, store: without a seed each thread is alone, with one it is not."""
    kernel = build(1, "ld.global.u32 %r1, [%a0]; add.u32 %r1, %r1, 1; st.global.u32 [%a0], %r1;")
    outcomes = []
    for seed in SEEDS:
        out = np.zeros(1, np.int32)
        kernel(2, 64, out, seed=seed)
        outcomes.append(int(out[0]))
    assert outcomes[0] == 128
    assert all(count < 128 for count in outcomes[1:])
    assert len(set(outcomes)) > 2


def test_blocks_that_race_show():
    """The last writer of two blocks depends on their order; and one block sees the other at work."""
    kernel = build(1, "mov.u32 %r1, %ctaid.x; st.global.u32 [%a0], %r1;")
    last = set()
    for seed in range(20):
        out = np.zeros(1, np.int32)
        kernel(5, 1, out, seed=seed)
        last.add(int(out[0]))
    assert last == set(range(5))
    kernel = build(1, "ld.global.u32 %r1, [%a0]; add.u32 %r1, %r1, 1; st.global.u32 [%a0], %r1;")
    counts = set()
    for seed in range(40):
        out = np.zeros(1, np.int32)
        kernel(64, 1, out, seed=seed)
        counts.add(int(out[0]))
    assert min(counts) < 64


def test_threads_come_in_any_order():
    """Tickets: in turn they count up; with a seed, about every second thread comes before the one before it."""
    kernel = build(1, "atom.global.add.u32 %r1, [%a0], 1; mad.wide.u32 %rd1, %i, 4, %a0; st.global.u32 [%rd1+4], %r1;")
    for seed in SEEDS:
        out = np.zeros(257, np.int32)
        kernel(1, 256, out, seed=seed)
        assert sorted(out[1:]) == list(range(256))
        earlier = np.count_nonzero(np.diff(out[1:]) < 0)
        assert earlier == 0 if seed == 0 else 90 < earlier < 170


def test_the_same_seed_gives_the_same_run():
    kernel = build(1, REVERSE.replace("BARRIER", ""), TILE)
    first, second = np.zeros((2, 64), np.int32)
    kernel(1, 64, first, seed=3)
    kernel(1, 64, second, seed=3)
    assert np.array_equal(first, second)


@pytest.mark.parametrize("kind", ["popc.u32", "and.pred", "or.pred"])
def test_barriers_that_count(kind):
    result = {"popc.u32": "%r1", "and.pred": "%p2", "or.pred": "%p2"}[kind]
    body = MINE + f"setp.lt.u32 %p1, %i, 50; bar.red.{kind} {result}, 0, %p1; bar.red.{kind} {result}, 0, !%p1;\n"
    body += "" if kind == "popc.u32" else "selp.u32 %r1, 1, 0, %p2;\n"
    kernel = build(1, body + "st.global.u32 [%rd3], %r1;", TILE)
    for seed in SEEDS:
        out = np.full(96, -1, np.int32)
        kernel(1, 96, out, seed=seed)
        assert set(out) == {{"popc.u32": 46, "and.pred": 0, "or.pred": 1}[kind]}


def test_barriers_for_some_of_the_threads():
    """Two warps meet at barrier 1; the third does not come."""
    body = MINE + "setp.ge.u32 %p1, %part, 64; @%p1 bra END; st.shared.u32 [%rd2], %i; bar.sync 1, 64;"
    body += "xor.b32 %r1, %part, 63; mul.wide.u32 %rd4, %r1, 4; mov.u64 %rd5, tile; add.s64 %rd5, %rd5, %rd4;"
    kernel = build(1, body + "ld.shared.u32 %r2, [%rd5]; st.global.u32 [%rd3], %r2; END:", TILE)
    for seed in SEEDS:
        out = np.full(96, -1, np.int32)
        kernel(1, 96, out, seed=seed)
        assert out.tolist() == [*range(63, -1, -1)] + [-1] * 32


@pytest.mark.parametrize("seed", SEEDS)
def test_a_barrier_that_some_threads_do_not_reach(seed):
    kernel = build(
        1, MINE + "setp.eq.u32 %p1, %part, 40; @%p1 bra END; bar.sync 0; END: st.global.u32 [%rd3], %i;", TILE
    )
    with pytest.raises(
        KernelFault, match=r"deadlock: of the block's threads, 63 wait at a barrier, 0 .* and 1 have left"
    ):
        kernel(1, 64, np.zeros(64, np.int32), seed=seed)


def test_a_warp_at_two_barriers():
    body = MINE + "setp.lt.u32 %p1, %part, 8;\n@%p1 bra OTHER;\nbar.sync 0;\nbra END;\nOTHER: bar.sync 0;\nEND: ret;"
    with pytest.raises(KernelFault, match="different barriers"):
        build(1, body, TILE)(1, 32, np.zeros(32, np.int32))
    unaligned = build(1, body.replace("bar.sync", "barrier.sync"), TILE)
    unaligned(1, 32, np.zeros(32, np.int32))


def test_a_thread_may_wait_for_another_by_spinning():
    """A flag in memory that the last thread sets: those that spin let it run, with any seed."""
    body = MINE + """setp.ne.u32 %p1, %i, 63; @%p1 bra SPIN;
    st.volatile.global.u32 [%a0], 1; bra END;
    SPIN: ld.volatile.global.u32 %r1, [%a0]; setp.eq.u32 %p2, %r1, 0; @%p2 bra SPIN;
    END: ret;"""  # fmt: skip
    kernel = build(1, body, TILE)
    for seed in (0, 1):
        kernel(1, 64, np.zeros(64, np.int32), seed=seed)
    with pytest.raises(KernelFault, match="no end after 100000 jumps"):
        kernel(1, 63, np.zeros(64, np.int32), jumps=100_000)


@pytest.mark.parametrize(("mode", "bound"), [("up", 0), ("down", 31), ("bfly", 31), ("idx", 31), ("down", 0x101F)])
def test_shuffles(mode, bound):
    amounts = np.array([0, 1, 3, 16, 31])
    body = "mad.wide.u32 %rd1, %i, 8, %a0; mul.lo.u32 %r1, %i, 7;\n"
    for k, amount in enumerate(amounts):
        body += f"shfl.sync.{mode}.b32 %r2|%p1, %r1, {amount}, {bound}, -1; selp.u32 %r3, 1, 0, %p1;\n"
        body += f"st.global.v2.u32 [%rd1+{k * 64 * 8}], {{%r2, %r3}};\n"
    kernel = build(1, body)
    half = 16 if bound > 31 else 32  # 0x101F: two groups of 16 lanes
    for seed in SEEDS:
        for threads in (32, 64, 20):
            out = np.zeros((len(amounts), 64, 2), np.uint32)
            kernel(1, threads, out.reshape(-1), seed=seed)
            for k, i in np.ndindex(len(amounts), threads):
                lane, amount = i % 32, amounts[k]
                group = lane // half * half
                j = {"up": lane - amount, "down": lane + amount, "bfly": lane ^ amount, "idx": amount}[mode]
                inside = group <= j < group + half
                source = i - lane + (j if inside else lane)
                assert out[k, i, 1] == inside
                if source < threads:  # else the lane is not there, and what comes is not specified
                    assert out[k, i, 0] == 7 * source


def test_votes():
    body = """setp.lt.u32 %p1, %i, 40; mad.wide.u32 %rd1, %i, 16, %a0;
    vote.sync.ballot.b32 %r1, %p1, -1; vote.sync.any.pred %p2, %p1, -1; vote.sync.all.pred %p3, %p1, -1;
    vote.sync.uni.pred %p4, !%p1, -1;
    selp.u32 %r2, 1, 0, %p2; selp.u32 %r3, 1, 0, %p3; selp.u32 %r4, 1, 0, %p4;
    bar.warp.sync -1; st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};"""  # fmt: skip
    kernel = build(1, body)
    for seed in SEEDS:
        out = np.zeros(96 * 4, np.uint32)
        kernel(1, 96, out, seed=seed)
        warps = out.reshape(3, 32, 4)
        for warp, wanted in zip(warps, ([2**32 - 1, 1, 1, 1], [255, 1, 0, 0], [0, 0, 0, 1]), strict=True):
            assert (warp == wanted).all()


def test_lanes_that_wait_for_others_in_vain():
    body = "setp.lt.u32 %p1, %i, 8; @%p1 bra OTHER; bar.sync 0; OTHER: shfl.sync.down.b32 %r1|%p2, %i, 1, 31, -1;"
    with pytest.raises(KernelFault, match=r"deadlock: .* 24 wait at a barrier, 8 for lanes"):
        build(1, body)(1, 32, np.zeros(1, np.int32))
    with pytest.raises(KernelFault, match="lane 16 is not among"):
        build(1, "shfl.sync.down.b32 %r1|%p2, %i, 1, 31, 0xFFFF;")(1, 32, np.zeros(1, np.int32))


def test_lanes_that_left_are_not_waited_for():
    body = "setp.ge.u32 %p1, %i, 16; @%p1 bra END; shfl.sync.idx.b32 %r1|%p2, %i, 3, 31, -1;"
    kernel = build(1, body + "mad.wide.u32 %rd1, %i, 4, %a0; st.global.u32 [%rd1], %r1; END:")
    for seed in SEEDS:
        out = np.zeros(32, np.int32)
        kernel(1, 32, out, seed=seed)
        assert out.tolist() == [3] * 16 + [0] * 16
