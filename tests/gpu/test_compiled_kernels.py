"""Compile and assemble every CUDA kernel for every architecture, without a GPU, and check what each takes."""

from __future__ import annotations

from functools import cache

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install -e '.[cuda-test]'")

from numba import from_dtype, types

from pgbm_plugin.trees.forest import NODE
from tests.gpu.compiling import ARCHITECTURES, assemble, compile_ptx, find_ptxas

# Of a multiprocessor's 64 K registers, 1,024 threads of four blocks can have 64 each.
MOST_REGISTERS, MOST_SHARED = 64, 8192

f4, f8, i4, i8 = types.float32, types.float64, types.int32, types.int64


def array(dtype, ndim=1, layout="C"):
    return types.Array(dtype, ndim, layout)


TREES = (array(i4), array(from_dtype(NODE)), array(i8), array(types.uint32))
SIGNATURES = {
    "read": [(array(f8, 2, "A"), f4, array(f4, 2))],
    "leaves": [
        (array(f8, 2), i4, *TREES[1:], array(i8)),
        (array(f4, 2, "A"), i4, *TREES[1:], array(i8)),
    ],
    "add_margin": [
        (array(f8, 2, "A"), *TREES, array(f8), array(f8)),
        (array(f4, 2), *TREES, array(f4), array(f4)),
    ],
    "add_margin_variance": [
        (array(f8, 2), *TREES, array(f8), array(f8), f8, array(f8), array(f8)),
        (array(f4, 2, "A"), *TREES, array(f4), array(f8), f8, array(f4), array(f8)),
        (array(f4, 2), *TREES, array(f4), array(f4), f4, array(f4), array(f4)),
    ],
    "add_variances": [(array(f8, 2), *TREES, array(f8), array(f8), array(f8, 2))],
    "gradients": [
        (array(f8), array(f8), array(f8), i8, f8, i8, array(f8), array(f8)),
        (array(f8), array(f8), array(f4), i8, f8, i8, array(f8), array(f8)),
    ],
    "add_rows": [
        (array(f8, 2), i4, *TREES[1:], i8, array(f8), *[array(f8)] * 3, array(f8), array(f8, 3)),
        (array(f4, 2), i4, *TREES[1:], i8, array(f4), *[array(f8)] * 3, array(f4), array(f8, 3)),
    ],
    "merge": [(array(f8, 3), array(f8, 2))],
}


@cache
def compiled(name, variant=0, cc=(8, 0)):
    from pgbm_plugin.kernels import cuda

    return compile_ptx(getattr(cuda, name).py_func, types.void(*SIGNATURES[name][variant]), cc)


@pytest.mark.skipif(find_ptxas() is None, reason="no ptxas")
@pytest.mark.parametrize("cc", ARCHITECTURES, ids=lambda cc: f"sm_{cc[0]}{cc[1]}")
@pytest.mark.parametrize("name", SIGNATURES)
def test_resources(name, cc):
    """Nothing spills, and enough threads fit on a multiprocessor to hide the latency of its memory."""
    for variant in range(len(SIGNATURES[name])):
        used = assemble(compiled(name, variant, cc), cc)
        assert used.stack == used.spill_stores == used.spill_loads == 0
        assert used.registers <= MOST_REGISTERS
        assert used.shared <= MOST_SHARED


def test_single_precision_computes_in_it():
    """Neither root nor product of the recursion is taken in float64, in which many GPUs are slow."""
    ptx = compiled("add_margin_variance", 2)
    assert "sqrt.rn.f32" in ptx
    assert "sqrt.rn.f64" not in ptx
    assert "fma.rn.f64" not in ptx


def test_there_are_no_atomics():
    for name, variants in SIGNATURES.items():
        for variant in range(len(variants)):
            assert not {"atom", "red"} & {word.partition(".")[0] for word in compiled(name, variant).split()}
