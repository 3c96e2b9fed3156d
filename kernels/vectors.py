"""Vectors in registers, for kernels: a numba type over LLVM's vectors, and what kernels do with them.

LLVM splits a vector that is wider than a register: a pack of 64 bytes is one register of AVX-512, two of AVX2, and four
of SSE2 or NEON. Lane i is element i of the array that a vector is loaded from, in any order of bytes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

BYTES = 64


def _features() -> str:
    """Return what the CPU can do that numba compiles for."""
    features = vars(config)["CPU_FEATURES"]
    return str(binding.get_host_cpu_features().flatten() if features is None else features)


# Packs that are replayed at once: enough for comparisons to overlap, and few enough for the registers, of which
# AVX-512 has 32. Numba's cache knows the features, too.
PACKS = 4 if "+avx512bw" in _features() else 2

_PAIR = ir.VectorType(ir.DoubleType(), 2)


class Vector(types.Type):  # type: ignore[misc]
    """The type of so many lanes of integers or of float64."""

    def __init__(self, item: Any, lanes: int):
        self.item, self.lanes = item, lanes
        number = ir.DoubleType() if item == types.float64 else ir.IntType(item.bitwidth)
        self.llvm = ir.VectorType(number, lanes)
        super().__init__(name=f"Vector({item}, {lanes})")


DOUBLES = Vector(types.float64, BYTES // 8)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Vector):
        super().__init__(manager, kind, kind.llvm)


def _operation(define: Callable[..., Any]) -> Any:
    """Make an operation of kernels, which is called without the typing context; a constant comes with its value."""
    return intrinsic(prefer_literal=True)(define)


def _shuffled(builder: Any, a: Any, b: Any, lanes: Any) -> Any:
    """Return these lanes of two vectors, whose lanes are counted on from one to the other."""
    lanes = list(lanes)
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes))


def _joined(builder: Any, parts: list[Any]) -> Any:
    """Return one vector of the lanes of all parts, whose number is a power of two."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [_shuffled(builder, a, b, range(2 * a.type.count)) for a, b in pairs]
    return parts[0]


def _filled(builder: Any, kind: ir.VectorType, scalar: Any) -> Any:
    """Return a vector with the scalar in all lanes."""
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, scalar, ir.Constant(ir.IntType(32), 0))
    return _shuffled(builder, first, nothing, [0] * kind.count)


def _address(context: Any, builder: Any, array_type: Any, array: Any, offset: Any, kind: Any) -> Any:
    assert array_type.layout == "C", "vectors are for arrays with no gaps"
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), kind.as_pointer())


@_operation
def zeros(typing_context: Any, array: Any, packs: Any) -> Any:
    """Return zeros of the array's type, in so many packs; the number is a constant."""
    kind = Vector(array.dtype, packs.literal_value * 8 * BYTES // array.dtype.bitwidth)
    return kind(array, packs), lambda context, builder, signature, args: ir.Constant(kind.llvm, None)


@_operation
def ones(typing_context: Any, array: Any) -> Any:
    """Return a pack of ones of the array's type."""
    kind = Vector(array.dtype, 8 * BYTES // array.dtype.bitwidth)
    return kind(array), lambda context, builder, signature, args: ir.Constant(kind.llvm, [1] * kind.lanes)


@_operation
def load_packs(typing_context: Any, like: Any, codes: Any, pack: Any, line: Any) -> Any:
    """Return ``codes[pack, line]``, ``codes[pack + 1, line]`` and so on, as many packs as `like` has."""
    kind = ir.VectorType(like.llvm.element, 8 * BYTES // like.item.bitwidth)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, codes_, pack, line = args
        lines = builder.extract_value(context.make_array(codes)(context, builder, codes_).shape, 1)
        parts, step = [], builder.mul(lines, ir.Constant(lines.type, kind.count))
        at = builder.add(builder.mul(pack, step), builder.mul(line, ir.Constant(line.type, kind.count)))
        for _ in range(like.lanes // kind.count):
            parts.append(builder.load(_address(context, builder, codes, codes_, at, kind), align=1))
            at = builder.add(at, step)
        return _joined(builder, parts)

    return like(like, codes, types.int64, types.int64), generate


@_operation
def store(typing_context: Any, vector: Any, array: Any, offset: Any) -> Any:
    """Write all lanes to a flat array, from an offset on; float64 is rounded to the array's type."""
    kind = ir.VectorType(ir.FloatType(), vector.lanes) if array.dtype == types.float32 else vector.llvm

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = args[0] if kind == vector.llvm else builder.fptrunc(args[0], kind)
        builder.store(value, _address(context, builder, array, args[1], args[2], kind), align=1)
        return context.get_dummy_value()

    return types.none(vector, array, types.int64), generate


@_operation
def load(typing_context: Any, array: Any, offset: Any) -> Any:
    """Return eight successive floats of an array as float64."""
    kind = ir.VectorType(ir.FloatType(), DOUBLES.lanes) if array.dtype == types.float32 else DOUBLES.llvm

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = builder.load(_address(context, builder, array, args[0], args[1], kind), align=1)
        return found if kind == DOUBLES.llvm else builder.fpext(found, DOUBLES.llvm)

    return DOUBLES(array, types.int64), generate


@_operation
def fill(typing_context: Any, value: Any) -> Any:
    """Return eight times a float64."""
    return DOUBLES(types.float64), lambda context, builder, signature, args: _filled(builder, DOUBLES.llvm, args[0])


@_operation
def split(typing_context: Any, at: Any, codes: Any, region: Any, code: Any, new: Any) -> Any:
    """Return `new` in the lanes whose region is `region` and whose code is above `code`, else the region.

    No lane may be in region `new` before. So one comparison tells whether a lane moves, and only that one waits for
    the split before: two would take a third longer, because these comparisons take long but overlap.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        from_, above = (_filled(builder, at.llvm, scalar) for scalar in args[2:4])
        to = _joined(builder, [args[4]] * (at.lanes // new.lanes))
        wanted = builder.select(builder.icmp_signed(">", args[1], above), from_, to)
        return builder.select(builder.icmp_signed("==", args[0], wanted), to, args[0])

    return at(at, codes, at.item, codes.item, new), generate


def _rows(context: Any, builder: Any, at: Any, args: Any) -> Any:
    """Yield the entries of an array of unsigned integers that belong to eight lanes."""
    for lane in range(DOUBLES.lanes):
        offset = builder.add(args[1], ir.Constant(ir.IntType(64), lane))
        found = builder.load(_address(context, builder, at, args[0], offset, ir.IntType(at.dtype.bitwidth)))
        yield builder.zext(found, ir.IntType(64))


@_operation
def look_up(typing_context: Any, table: Any, at: Any, offset: Any) -> Any:
    """Return ``table[at[i]]`` for eight successive i from an offset on, as float64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number = ir.FloatType() if table.dtype == types.float32 else ir.DoubleType()
        out = ir.Constant(ir.VectorType(number, DOUBLES.lanes), ir.Undefined)
        for lane, row in enumerate(_rows(context, builder, at, args[1:])):
            found = builder.load(_address(context, builder, table, args[0], row, number))
            out = builder.insert_element(out, found, ir.Constant(ir.IntType(32), lane))
        return out if out.type == DOUBLES.llvm else builder.fpext(out, DOUBLES.llvm)

    return DOUBLES(table, at, types.int64), generate


@_operation
def look_up_pairs(typing_context: Any, pairs: Any, at: Any, offset: Any) -> Any:
    """Return ``pairs[2 * at[i]]`` and ``pairs[2 * at[i] + 1]`` for eight successive i from an offset on."""
    both = types.UniTuple(DOUBLES, 2)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        parts = []
        for row in _rows(context, builder, at, args[1:]):
            place = builder.shl(row, ir.Constant(ir.IntType(64), 1))
            parts.append(builder.load(_address(context, builder, pairs, args[0], place, _PAIR), align=8))
        found = _joined(builder, parts)
        split = (_shuffled(builder, found, found, range(i, 2 * DOUBLES.lanes, 2)) for i in range(2))
        return context.make_tuple(builder, both, split)

    return both(pairs, at, types.int64), generate


# Arithmetic, so that scalar functions are compiled for vectors, too.


class _OfTwo(AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        if len(args) == 2 and isinstance(args[0], Vector) and args[0] == args[1]:
            return signature(args[0], *args)
        return None


def _define(operation: Any, name_for_integers: str, name_for_floats: str) -> None:
    infer_global(operation)(type(f"_{operation.__name__}", (_OfTwo,), {}))

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        is_float = signature.return_type.item == types.float64
        return getattr(builder, name_for_floats if is_float else name_for_integers)(*args)

    lower_builtin(operation, Vector, Vector)(lower)


_define(operator.add, "add", "fadd")
_define(operator.sub, "sub", "fsub")
_define(operator.mul, "mul", "fmul")


@infer_global(math.sqrt)
class _Sqrt(AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        return signature(args[0], args[0]) if len(args) == 1 and isinstance(args[0], Vector) else None


@lower_builtin(math.sqrt, Vector)
def _sqrt(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    kind = args[0].type
    name, takes = f"llvm.sqrt.v{kind.count}f64", ir.FunctionType(kind, [kind])
    return builder.call(cgutils.get_or_insert_function(builder.module, takes, name), args)
