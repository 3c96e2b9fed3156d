"""Comparisons, choices and conversions: what turns one type into another."""

from __future__ import annotations

import re

from .floats import ROUNDING
from .reading import TYPE, Instruction, Untranslatable, width
from .scope import Scope, c_type, opcode

ORDERED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
UNSIGNED = {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
LOGIC = {"and": "&", "or": "|", "xor": "^"}
INTEGRAL = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def compare(scope: Scope, name: str, type_: str, ftz: bool, a: str, b: str) -> str:
    """C that is true where `a` and `b` compare so; floats that compare with NaN as the name's end says."""
    x, y = scope.read(a, type_), scope.read(b, type_)
    if ftz:
        if type_ != "f32":
            raise Untranslatable(f".ftz of {type_}")
        x, y = f"ftz_f32({x})", f"ftz_f32({y})"
    nan = f"({x} != {x} || {y} != {y})"
    if type_[0] == "f":
        if name in ("num", "nan"):
            return nan if name == "nan" else f"(!{nan})"
        if name in ORDERED:
            return f"(!{nan} && {x} {ORDERED[name]} {y})"
        if name[-1] == "u" and name[:-1] in ORDERED:
            return f"({nan} || {x} {ORDERED[name[:-1]]} {y})"
    elif (name in ORDERED and (type_[0] in "us" or name in ("eq", "ne"))) or (name in UNSIGNED and type_[0] == "u"):
        return f"({x} {(ORDERED | UNSIGNED)[name]} {y})"
    raise Untranslatable(f"comparison {name} of {type_}")


def _combine(scope: Scope, logic: str | None, test: str, rest: tuple[str, ...]) -> str:
    if len(rest) != bool(logic):
        raise Untranslatable("a comparison with too many operands, or too few")
    if not logic:
        return test
    return f"({test} {LOGIC[logic]} {scope.predicate(rest[0])})"


@opcode(rf"setp\.([a-z]+?)(?:\.(and|or|xor))?(\.ftz)?\.({TYPE})")
def _setp(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    name, logic, ftz, type_ = match.groups()
    d, a, b, *rest = instruction.operands
    p, _, q = d.partition("|")
    test = compare(scope, name, type_, bool(ftz), a, b)
    code = f"int yes = {_combine(scope, logic, test, tuple(rest))};"
    if q:
        code += f"int no = {_combine(scope, logic, f'(!{test})', tuple(rest))}; {scope.write(q, 'pred', 'no')}"
    return f"{code} {scope.write(p, 'pred', 'yes')}"


@opcode(rf"set\.([a-z]+?)(?:\.(and|or|xor))?(\.ftz)?\.(u32|s32|f32)\.({TYPE})")
def _set(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    name, logic, ftz, result, type_ = match.groups()
    d, a, b, *rest = instruction.operands
    test = _combine(scope, logic, compare(scope, name, type_, bool(ftz), a, b), tuple(rest))
    return scope.write(d, result, f"{test} ? {'1.0f' if result == 'f32' else '-1'} : 0")


@opcode(r"selp\.([bus](?:16|32|64)|f32|f64)")
def _selp(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    d, a, b, p = instruction.operands
    bits = "b" + match[1][1:]  # as they are, those of a NaN too
    return scope.write(d, bits, f"{scope.read(p, 'pred')} ? {scope.read(a, bits)} : {scope.read(b, bits)}")


@opcode(r"slct(\.ftz)?\.([bus](?:16|32|64)|f32|f64)\.(s32|f32)")
def _slct(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    ftz, type_, sign = match.groups()
    if ftz and sign != "f32":
        raise Untranslatable(instruction.opcode)
    d, a, b, c = instruction.operands
    # subnormals flushed by .ftz are zeros, which are not below zero
    test = f"ftz_f32({scope.read(c, sign)})" if ftz else scope.read(c, sign)
    return scope.write(d, type_, f"{test} >= 0 ? {scope.read(a, type_)} : {scope.read(b, type_)}")


@opcode(r"cvt(?:\.(r[nzmp]i?))?(\.ftz)?(\.sat)?\.([us](?:8|16|32|64)|f32|f64)\.([us](?:8|16|32|64)|f32|f64)")
def _cvt(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    mode, ftz, sat, to, of = match.groups()
    d, a = instruction.operands
    if ftz and "f32" not in (to, of):
        raise Untranslatable(instruction.opcode)
    value = scope.read(a, of, wider=of[0] != "f")
    if of[0] == "f":
        value = f"ftz_f32({value})" if ftz and of == "f32" else value
        convert = _float_to_float if to[0] == "f" else _float_to_integer
        converted = convert(value, mode, bool(sat), to, of)
    elif to[0] == "f":
        converted = _integer_to_float(value, mode, to, of)
        converted = f"sat_{to}({converted})" if sat else converted
    elif mode:
        raise Untranslatable(instruction.opcode)
    else:
        converted = f"clamp((int128_t)({value}), {int(to[0] == 's')}, {width(to)})" if sat else value
    if ftz and to == "f32":
        converted = f"ftz_f32({converted})"
    return scope.write(d, to, converted, extend=True)


def _float_to_float(value: str, mode: str | None, sat: bool, to: str, of: str) -> str:
    same = to == of
    if same and mode in INTEGRAL:
        value = f"{INTEGRAL[mode]}{'f' if to == 'f32' else ''}({value})"
    elif (to, of) == ("f32", "f64") and mode in ROUNDING:
        value = f"f32_of_f64({ROUNDING[mode]}, {value}, 0, 0)"
    elif (to, of) == ("f64", "f32") and mode is None:
        value = f"(double){value}"
    elif not (same and mode is None and sat):
        raise Untranslatable(f"cvt of {of} to {to}, rounded {mode}")
    return f"sat_{to}({value})" if sat else f"nan_{to}({value})"


def _float_to_integer(value: str, mode: str | None, sat: bool, to: str, of: str) -> str:
    if mode not in INTEGRAL:
        raise Untranslatable(f"cvt of {of} to {to}, rounded {mode}")
    # saturation is the rule here, with .sat or without
    rounded = f"{INTEGRAL[mode]}((double){value})"
    return f"integer_of({rounded}, {int(to[0] == 's')}, {width(to)}, {int(of == 'f64')})"


def _integer_to_float(value: str, mode: str | None, to: str, of: str) -> str:
    if mode not in ROUNDING:
        raise Untranslatable(f"cvt of {of} to {to}, rounded {mode}")
    return f"{to}_of_{of[0]}64({ROUNDING[mode]}, ({c_type(of)})({value}), 0, 0)"
