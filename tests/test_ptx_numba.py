"""Kernels that numba-cuda compiled, run on the CPU: arguments as numba passes them, libdevice, work in blocks."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from ptx.compiling import compile_ptx
from ptx.execute import Kernel, KernelFault, find_compiler

pytest.importorskip("numba_cuda", "0.30.4", "numba-cuda is not installed: pip install pgbm-plugin[cuda-test]")
if find_compiler() is None:
    pytest.skip("PTX runs through gcc, which is not here", allow_module_level=True)

from numba import boolean, cuda, float32, float64, from_dtype, int32, int64, types, uint8, void
from numba.cuda import libdevice

# NVVM has one compiler for sm_100 and newer, and another for all before
ARCHITECTURES = [(8, 0), (12, 0)]
pytestmark = pytest.mark.parametrize("cc", ARCHITECTURES, ids=lambda cc: f"sm_{cc[0]}{cc[1]}")


def compiled(function, signature, cc):
    return Kernel(compile_ptx(function, signature, cc), signature)


def mapped(function):
    def kernel(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = function(x[i])

    return kernel


def wide_range(name, dtype):
    """Values all over the domain of a function, its ends, and where it changes its method."""
    info = np.finfo(dtype)
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(np.log(info.smallest_subnormal), np.log(info.max), 2000))
    near = np.concatenate([1 + rng.normal(size=500) * 10.0 ** rng.integers(-15, 0, 500), rng.normal(size=500)])
    ends = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, info.max, info.tiny, info.smallest_subnormal, -1.0, 0.5, -0.5]
    x = np.concatenate([sizes, -sizes, near, ends])
    if name in ("exp", "expm1", "tanh"):
        x = np.concatenate([x, rng.uniform(-760, 760, 3000), rng.uniform(-1, 1, 1000)])
    if name == "log1p":
        x = np.concatenate([x, -1 + 10.0 ** rng.uniform(-15, 0, 500)])
    with np.errstate(all="ignore"):
        return x.astype(dtype)


@pytest.mark.parametrize("name", ["exp", "log", "log1p", "sqrt", "expm1", "tanh", "sin"])
@pytest.mark.parametrize("type_", [float64, float32], ids=str)
def test_libdevice_is_within_two_ulp(name, type_, cc):
    dtype = np.dtype(str(type_))
    x = wide_range(name, dtype)
    got = np.zeros_like(x)
    compiled(mapped(getattr(math, name)), void(type_[::1], type_[::1]), cc)(-(-len(x) // 128), 128, x, got)
    with np.errstate(all="ignore"):
        # NumPy rounds well in long doubles, and better than libdevice in doubles of floats
        want = getattr(np, name)(x.astype(np.longdouble if dtype == np.float64 else np.float64))
        want = want.astype(dtype)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    finite = np.isfinite(want)
    assert np.array_equal(got[~finite & ~np.isnan(want)], want[~finite & ~np.isnan(want)])
    error = np.abs(got[finite].astype(np.longdouble) - want[finite]) / np.spacing(np.abs(want[finite]))
    assert error.max() <= 2, x[finite][error.argmax()]


def test_powers_call_a_function(cc):
    def kernel(x, y, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = x[i] ** y[i]

    ptx = compile_ptx(kernel, void(float64[::1], float64[::1], float64[::1]), cc)
    assert "call.uni" in ptx
    rng = np.random.default_rng(0)
    x, y, got = np.abs(rng.normal(size=256)) * 10, rng.normal(size=256) * 20, np.zeros(256)
    Kernel(ptx)(2, 128, x, y, got)
    assert (np.abs(got - x**y) <= 2 * np.spacing(x**y)).all()


def test_fma_copysign_and_extremes(cc):
    def kernel(x, y, z, out):
        i = cuda.grid(1)
        out[i, 0] = libdevice.fma(x[i], y[i], z[i])
        out[i, 1] = math.copysign(x[i], y[i])
        out[i, 2] = min(x[i], y[i])
        out[i, 3] = max(x[i], y[i])
        out[i, 4] = libdevice.dmul_rn(x[i], y[i]) + z[i]

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 128))
    z = -x * y
    got = np.zeros((128, 5))
    compiled(kernel, void(float64[::1], float64[::1], float64[::1], float64[:, ::1]), cc)(1, 128, x, y, z, got)
    exact = [float(Fraction(a) * Fraction(b) + Fraction(c)) for a, b, c in zip(x, y, z, strict=True)]
    assert np.count_nonzero(got[:, 0]) > 100  # what a product loses in rounding
    assert np.array_equal(got[:, 0], exact)
    assert np.array_equal(got[:, 1:4], np.stack([np.copysign(x, y), np.minimum(x, y), np.maximum(x, y)], axis=1))
    assert not got[:, 4].any()


def test_arrays_of_any_shape_and_layout(cc):
    def kernel(a, b, c, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = (
                a[i % a.size]
                + b[i % b.shape[0], -1 - i % b.shape[1]]
                + c[i % c.shape[0], i % c.shape[1], i % c.shape[2]]
            )

    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=14)[::2], np.asfortranarray(rng.normal(size=(5, 3))), rng.normal(size=(4, 3, 2))
    signature = void(float64[:], float64[::1, :], types.Array(float64, 3, "C", readonly=True), float64[::1])
    run = compiled(kernel, signature, cc)
    i = np.arange(100)
    for seed in range(3):
        out = np.zeros(100)
        c.flags.writeable = False
        run(2, 64, a, b, c, out, seed=seed)
        assert np.array_equal(out, a[i % 7] + b[i % 5, -1 - i % 3] + c[i % 4, i % 3, i % 2])


def test_records(cc):
    dtype = np.dtype([("x", "f8"), ("n", "i4"), ("flag", "u1"), ("y", "f4")], align=True)

    def kernel(rows, out):
        i = cuda.grid(1)
        if i < rows.size:
            rows[i].n += 1
            out[i] = rows[i].x * rows[i].n + (rows[i].y if rows[i].flag else 0.0)

    rows = np.zeros(50, dtype)
    rng = np.random.default_rng(0)
    rows["x"], rows["y"], rows["n"], rows["flag"] = (
        rng.normal(size=50),
        rng.normal(size=50),
        range(50),
        np.arange(50) % 2,
    )
    before, out = rows.copy(), np.zeros(50)
    compiled(kernel, void(from_dtype(dtype)[::1], float64[::1]), cc)(1, 64, rows, out, seed=1)
    assert np.array_equal(rows["n"], before["n"] + 1)
    assert np.allclose(out, before["x"] * rows["n"] + before["y"] * before["flag"], rtol=1e-15)  # fused, or not


def test_scalars_of_each_type(cc):
    def kernel(a, b, c, d, e, f, out):
        out[0], out[1], out[2], out[3], out[4], out[5] = a, b, c, 10 if d else 20, e, f

    run = compiled(kernel, void(int32, int64, uint8, boolean, float32, float64, float64[::1]), cc)
    out = np.zeros(6)
    run(1, 1, np.int32(-7), np.int64(-(2**40)), np.uint8(200), True, np.float32(0.1), 0.1, out)
    assert out.tolist() == [-7, -(2.0**40), 200, 10, float(np.float32(0.1)), 0.1]
    run(1, 1, np.int32(-7), np.int64(5), np.uint8(200), np.bool_(False), np.float32(0.1), 0.1, out)
    assert out[3] == 20
    with pytest.raises(TypeError, match="argument 0 is int64"):
        run(1, 1, np.int64(-7), np.int64(5), np.uint8(200), True, np.float32(0.1), 0.1, out)


def test_arguments_are_checked_against_the_signature(cc):
    run = compiled(mapped(math.sqrt), void(float64[::1], float64[::1]), cc)
    x = np.ones(8)
    run(1, 8, x, x.copy())
    for wrong in (x.astype(np.float32), np.ones((2, 4)), np.ones(16)[::2], np.ones(8, np.int64), np.float64(1)):
        with pytest.raises(TypeError, match="argument 1"):
            run(1, 8, x, wrong)


@cuda.jit(device=True)
def halved(x):
    return 0.5 * x


def block_sums(x, out):
    """Sums of blocks by halving, in shared memory."""
    tile = cuda.shared.array(128, float64)
    i = cuda.threadIdx.x
    tile[i] = halved(x[cuda.grid(1)])
    step = 64
    while step > 0:
        cuda.syncthreads()
        if i < step:
            tile[i] += tile[i + step]
        step //= 2
    if i == 0:
        out[cuda.blockIdx.x] = tile[0]


def racing_sums(x, out):
    """The same without its barrier."""
    tile = cuda.shared.array(128, float64)
    i = cuda.threadIdx.x
    tile[i] = halved(x[cuda.grid(1)])
    step = 64
    while step > 0:
        if i < step:
            tile[i] += tile[i + step]
        step //= 2
    if i == 0:
        out[cuda.blockIdx.x] = tile[0]


def warp_sums(x, out):
    value = x[cuda.grid(1)]
    step = 16
    while step > 0:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
        step //= 2
    if cuda.laneid == 0:
        cuda.atomic.add(out, cuda.blockIdx.x, value)


def test_blocks_work_together_in_any_order(cc):
    x = np.random.default_rng(0).integers(-99, 99, 512).astype(np.float64)  # sums of integers have no rounding
    signature = void(float64[::1], float64[::1])
    right, wrong, warps = (compiled(f, signature, cc) for f in (block_sums, racing_sums, warp_sums))
    sums = x.reshape(4, 128).sum(axis=1)
    for seed in range(8):
        for kernel, factor in ((right, 0.5), (warps, 1)):
            out = np.zeros(4)
            kernel(4, 128, x, out, seed=seed)
            assert np.array_equal(out, factor * sums)
        out = np.zeros(4)
        wrong(4, 128, x, out, seed=seed)
        assert not np.array_equal(out, 0.5 * sums)
    with pytest.raises(KernelFault, match="passes argument 0"):
        right(5, 128, x, np.zeros(5))
