"""PTX written by hand, for opcodes one at a time."""

from __future__ import annotations

import numpy as np

from .compiling import assemble, find_ptxas
from .execute import Kernel
from .reading import width

DTYPES = {"pred": np.bool_, "f32": np.float32, "f64": np.float64} | {
    f"{kind}{bits}": np.dtype(f"{'i' if kind == 's' else 'u'}{bits // 8}") for kind in "bus" for bits in (8, 16, 32, 64)
}
ARCHITECTURE = (8, 0)


def program(n_arrays: int, body: str, head: str = "") -> str:
    """A kernel that takes so many 1-d arrays; `%a0`, `%a1`... are their addresses, and `%i` is the thread's number."""
    params = ",\n".join(f".param .u64 p{i}_{j}" for i in range(n_arrays) for j in range(7))
    addresses = "\n".join(f"ld.param.u64 %a{i}, [p{i}_4];\ncvta.to.global.u64 %a{i}, %a{i};" for i in range(n_arrays))
    return f""".version 8.0
.target sm_80
.address_size 64
{head}
.visible .entry kernel({params})
{{
.reg .b64 %a<{n_arrays}>;
.reg .pred %p<9>;
.reg .b16 %h<9>;
.reg .b32 %r<19>;
.reg .b64 %rd<19>;
.reg .f32 %f<9>;
.reg .f64 %fd<9>;
.reg .b32 %i, %part;
{addresses}
mov.u32 %i, %ctaid.x;
mov.u32 %part, %ntid.x;
mul.lo.u32 %i, %i, %part;
mov.u32 %part, %tid.x;
add.u32 %i, %i, %part;
{body}
ret;
}}
"""


def build(n_arrays: int, body: str, head: str = "") -> Kernel:
    """`program`, which ptxas too must take, where there is one: PTX that is no PTX proves nothing."""
    ptx = program(n_arrays, body, head)
    if find_ptxas():
        assemble(ptx, ARCHITECTURE)
    return Kernel(ptx)


def compute(*rows: tuple) -> list[np.ndarray]:
    """Results of instructions on arrays of equal length, each of its own row.

    Parameters
    ----------
    rows
        (opcode, type of the result, *operands); an operand is (type, array), or text that stands as it is.
    """
    length = len(next(o for row in rows for o in row[2:] if not isinstance(o, str))[1])
    given: list[np.ndarray] = []
    body = ".reg .b64 %at;\n.reg .b16 %byte;\n"
    for number, (opcode, result, *operands) in enumerate(rows):
        names = [f"%d{number}"]
        for k, operand in enumerate(operands):
            if isinstance(operand, str):
                names.append(operand)
                continue
            type_, values = operand
            names.append(f"%x{number}_{k}")
            body += _declare(names[-1], type_) + _load(names[-1], type_, len(given) * 8 * length)
            given.append(np.zeros(8 * length, np.uint8))
            given[-1].view(DTYPES[type_])[:length] = values
        body += _declare(names[0], result) + f"{opcode} {', '.join(names)};\n"
        body += _store(names[0], result, number * 8 * length)
    source, target = np.concatenate(given), np.zeros(len(rows) * 8 * length, np.uint8)
    if length % 128:
        raise ValueError(f"{length} values: a multiple of 128")
    build(2, body)(length // 128, 128, source, target)
    return [target[i * 8 * length :].view(DTYPES[result])[:length].copy() for i, (_, result, *_) in enumerate(rows)]


def _declare(name: str, type_: str) -> str:
    stored = "b16" if width(type_) == 8 and type_ != "pred" else type_
    return f".reg .{stored} {name};\n"


def _at(array: str, type_: str) -> str:
    return f"mad.wide.u32 %at, %i, {width(type_) // 8}, {array};\n"


def _load(name: str, type_: str, offset: int) -> str:
    if type_ == "pred":
        return _at("%a0", type_) + f"ld.global.u8 %byte, [%at+{offset}];\nsetp.ne.u16 {name}, %byte, 0;\n"
    return _at("%a0", type_) + f"ld.global.{type_} {name}, [%at+{offset}];\n"


def _store(name: str, type_: str, offset: int) -> str:
    if type_ == "pred":
        return _at("%a1", type_) + f"selp.u16 %byte, 1, 0, {name};\nst.global.u8 [%at+{offset}], %byte;\n"
    return _at("%a1", type_) + f"st.global.{type_} [%at+{offset}], {name};\n"
