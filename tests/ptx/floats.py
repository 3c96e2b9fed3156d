"""Arithmetic of f32 and f64: IEEE, in the rounding that the instruction names.

A product and a sum without `.rn` are rounded apart here, where ptxas may still fuse them.
"""

from __future__ import annotations

import re

from .reading import Instruction, Untranslatable
from .scope import Scope, c_type, opcode

ROUNDING = {"rn": "FE_TONEAREST", "rz": "FE_TOWARDZERO", "rm": "FE_DOWNWARD", "rp": "FE_UPWARD"}


def _operands(scope: Scope, instruction: Instruction, type_: str, ftz: bool, count: int) -> tuple[str, list[str]]:
    """The destination, and the sources with subnormals flushed if so."""
    d, *sources = instruction.operands
    if len(sources) != count or (ftz and type_ != "f32"):
        raise Untranslatable(f"{instruction.opcode} of {len(instruction.operands)} operands")
    values = [scope.read(source, type_) for source in sources]
    return d, [f"ftz_f32({value})" for value in values] if ftz else values


def _finish(value: str, type_: str, ftz: bool = False, sat: bool = False) -> str:
    if sat and type_ != "f32":
        raise Untranslatable(f".sat of {type_}")
    value = f"ftz_f32({value})" if ftz else value
    return f"sat_f32({value})" if sat else f"nan_{type_}({value})"


def _rounded(name: str, mode: str, type_: str, values: list[str]) -> str:
    padded = [*values, "0", "0"][:3]
    return f"{name}_{type_}({', '.join([ROUNDING[mode], *padded])})"


@opcode(r"(add|sub|mul)(?:\.(r[nzmp]))?(\.ftz)?(\.sat)?\.(f32|f64)")
def _arithmetic(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    kind, mode, ftz, sat, type_ = match.groups()
    d, values = _operands(scope, instruction, type_, bool(ftz), 2)
    sign = {"add": "+", "sub": "-", "mul": "*"}[kind]
    plain = (mode or "rn") == "rn"
    value = f"{values[0]} {sign} {values[1]}" if plain else _rounded(kind, mode, type_, values)
    return scope.write(d, type_, _finish(value, type_, bool(ftz), bool(sat)))


@opcode(r"fma\.(r[nzmp])(\.ftz)?(\.sat)?\.(f32|f64)")
def _fma(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    mode, ftz, sat, type_ = match.groups()
    d, values = _operands(scope, instruction, type_, bool(ftz), 3)
    value = f"fma{'f' if type_ == 'f32' else ''}({', '.join(values)})"
    if mode != "rn":
        value = _rounded("fma", mode, type_, values)
    return scope.write(d, type_, _finish(value, type_, bool(ftz), bool(sat)))


@opcode(r"div\.(r[nzmp]|approx|full)(\.ftz)?\.(f32|f64)")
def _divide(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    mode, ftz, type_ = match.groups()
    if mode in ("approx", "full") and type_ == "f64":
        raise Untranslatable(instruction.opcode)
    d, values = _operands(scope, instruction, type_, bool(ftz), 2)
    value = _rounded("div", mode if mode in ROUNDING else "rn", type_, values)
    return scope.write(d, type_, _finish(value, type_, bool(ftz)))


@opcode(r"(rcp|sqrt)\.(r[nzmp]|approx)(\.ftz)?\.(f32|f64)")
def _root(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    kind, mode, ftz, type_ = match.groups()
    if mode == "approx" and type_ == "f64":
        if kind == "sqrt" or not ftz:
            raise Untranslatable(instruction.opcode)
        d, values = _operands(scope, instruction, type_, False, 1)
        return scope.write(d, type_, f"rcp_seed({values[0]})")
    d, values = _operands(scope, instruction, type_, bool(ftz), 1)
    name, values = ("sqrt", values) if kind == "sqrt" else ("div", ["1", *values])
    value = _rounded(name, mode if mode in ROUNDING else "rn", type_, values)
    return scope.write(d, type_, _finish(value, type_, bool(ftz)))


@opcode(r"rsqrt\.approx(\.ftz)?\.(f32|f64)")
def _rsqrt(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    ftz, type_ = match.groups()
    if type_ == "f64":
        if not ftz:
            raise Untranslatable(instruction.opcode)
        d, values = _operands(scope, instruction, type_, False, 1)
        return scope.write(d, type_, f"rsqrt_seed({values[0]})")
    d, values = _operands(scope, instruction, type_, bool(ftz), 1)
    return scope.write(d, type_, _finish(f"rsqrt_f32({values[0]})", type_, bool(ftz)))


@opcode(r"(ex2|lg2|sin|cos|tanh)\.approx(\.ftz)?\.f32")
def _approximate(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    kind, ftz = match.groups()
    d, values = _operands(scope, instruction, "f32", bool(ftz), 1)
    return scope.write(d, "f32", _finish(f"{kind}_f32({values[0]})", "f32", bool(ftz)))


@opcode(r"(abs|neg)(\.ftz)?\.(f32|f64)")
def _sign(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    kind, ftz, type_ = match.groups()
    d, values = _operands(scope, instruction, type_, bool(ftz), 1)
    value = f"-{values[0]}" if kind == "neg" else f"fabs{'f' if type_ == 'f32' else ''}({values[0]})"
    return scope.write(d, type_, value)


@opcode(r"(min|max)(\.ftz)?(\.NaN)?\.(f32|f64)")
def _extreme(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    kind, ftz, nan, type_ = match.groups()
    if nan and type_ == "f64":
        raise Untranslatable(instruction.opcode)
    d, values = _operands(scope, instruction, type_, bool(ftz), 2)
    value = f"{kind}_{type_}(a, b)"
    if nan:
        value = f"a != a || b != b ? nan_f32(a + b) : {value}"
    return f"{c_type(type_)} a = {values[0]}, b = {values[1]}; {scope.write(d, type_, value)}"


@opcode(r"copysign\.(f32|f64)")
def _copysign(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    d, (sign, magnitude) = _operands(scope, instruction, match[1], False, 2)
    return scope.write(d, match[1], f"copysign{'f' if match[1] == 'f32' else ''}({magnitude}, {sign})")


@opcode(r"testp\.(finite|infinite|number|notanumber|normal|subnormal)\.(f32|f64)")
def _test(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    p, a = instruction.operands
    test = {
        "finite": "isfinite(a)",
        "infinite": "isinf(a)",
        "number": "a == a",
        "notanumber": "a != a",
        "normal": "fpclassify(a) == FP_NORMAL",
        "subnormal": "fpclassify(a) == FP_SUBNORMAL",
    }[match[1]]
    return f"{c_type(match[2])} a = {scope.read(a, match[2])}; {scope.write(p, 'pred', test)}"
