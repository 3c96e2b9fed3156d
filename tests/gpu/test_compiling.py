"""The compiling of `compiling.py`: every architecture, what is counted, what is refused."""

from __future__ import annotations

import pytest

from tests.gpu.compiling import ARCHITECTURES, Resources, assemble, compile_ptx, current_device, find_ptxas

pytest.importorskip("numba_cuda", "0.30.4", "numba-cuda is not installed: pip install pgbm-plugin[cuda-test]")
if find_ptxas() is None:
    pytest.skip("ptxas is not installed: pip install pgbm-plugin[cuda-test]", allow_module_level=True)

from numba import cuda, float64, int64, void


@cuda.jit(device=True)
def twice(x):
    return x + x


def double(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = twice(x[i])


def stage(x, out):
    tile = cuda.shared.array(64, float64)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    cuda.syncthreads()
    out[i] = tile[63 - i]


def scatter(x, where, out):
    frame = cuda.local.array(64, float64)
    for i in range(64):
        frame[where[i]] = x[i]
    for i in range(64):
        out[i] = frame[i]


@pytest.mark.parametrize("cc", ARCHITECTURES)
def test_a_kernel_with_a_device_function_compiles_and_assembles(cc):
    ptx = compile_ptx(double, void(float64[::1], float64[::1]), cc)
    assert f".target sm_{cc[0]}{cc[1]}\n" in ptx
    resources = assemble(ptx, cc)
    assert resources.registers > 0
    assert resources == Resources(resources.registers, shared=0, stack=0, spill_stores=0, spill_loads=0)


def test_shared_memory_and_stack_are_counted():
    # 1 kB of the block's shared memory is the system's own from sm_80 on, and ptxas leaves it out
    assert assemble(compile_ptx(stage, void(float64[::1], float64[::1]), (8, 0)), (8, 0)).shared == 64 * 8
    ptx = compile_ptx(scatter, void(float64[::1], int64[::1], float64[::1]), (8, 0))
    assert assemble(ptx, (8, 0)).stack == 64 * 8


def test_what_ptxas_refuses_is_reported():
    ptx = compile_ptx(double, void(float64[::1], float64[::1]), (9, 0))
    with pytest.raises(RuntimeError, match="sm_80"):
        assemble(ptx, (8, 0))


def test_a_jitted_kernel_is_refused():
    with pytest.raises(TypeError, match=r"py_func"):
        compile_ptx(twice, void(float64), (8, 0))


def test_an_architecture_that_nvvm_lacks_is_refused():
    with pytest.raises(RuntimeError, match="sm_81"):
        compile_ptx(double, void(float64[::1], float64[::1]), (8, 1))


def test_moved_internals_are_named(monkeypatch):
    from numba.cuda import dispatcher

    monkeypatch.delattr(dispatcher, "get_current_device")
    with pytest.raises(RuntimeError, match="compile_device"), current_device((8, 0)):
        pass


def test_the_device_is_answered_for_only_while_compiling():
    from numba.cuda import dispatcher

    asked = dispatcher.get_current_device
    with current_device((8, 0)):
        assert dispatcher.get_current_device().compute_capability == (8, 0)
    assert dispatcher.get_current_device is asked
