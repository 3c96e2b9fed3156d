"""Integer, logic and bit instructions."""

from __future__ import annotations

import re

from .reading import Instruction, Untranslatable, integer, width
from .scope import Scope, c_type, opcode

INT = r"([us](?:16|32|64))"


@opcode(rf"(add|sub)\.{INT}")
def _add(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    sign, type_ = "+" if match[1] == "add" else "-", match[2]
    d, a, b = instruction.operands
    return scope.write(d, type_, f"{scope.read(a, type_)} {sign} {scope.read(b, type_)}")


@opcode(r"(add|sub)(c|\.cc|c\.cc)\.([us](?:32|64))")
def _carry(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    sign, unsigned = "+" if match[1] == "add" else "-", "u" + match[3][1:]
    d, a, b = instruction.operands
    total = f"(uint128_t){scope.read(a, unsigned)} {sign} {scope.read(b, unsigned)}"
    total += f" {sign} carry" if match[2][0] == "c" else ""
    keep = f"carry = (unsigned)(total >> {unsigned[1:]}) & 1;" if match[2].endswith(".cc") else ""
    return f"uint128_t total = {total}; {keep} {scope.write(d, unsigned, 'total')}"


@opcode(rf"(mul|madc?)\.(lo|hi|wide)(\.cc)?\.{INT}")
def _multiply(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    kind, part, sets, type_ = match.groups()
    bits = width(type_)
    carries = sets or kind == "madc"
    if (part == "wide" and bits == 64) or (carries and (kind == "mul" or part == "wide" or bits == 16)):
        raise Untranslatable(instruction.opcode)
    d, a, b, *c = instruction.operands
    if len(c) != (kind != "mul"):
        raise Untranslatable(f"{instruction.opcode} of {len(instruction.operands)} operands")
    result = type_[0] + str(2 * bits) if part == "wide" else type_
    # a signed operand keeps its sign in 128 bits, of which only the lower ones are taken
    product = f"(uint128_t){scope.read(a, type_)} * (uint128_t){scope.read(b, type_)}"
    if part == "hi":
        product = f"({product}) >> {bits}"
    code = f"{c_type(result)} product = ({c_type(result)})({product});"
    if not c:
        return f"{code} {scope.write(d, result, 'product')}"
    unsigned = "u" + result[1:]
    total = f"(uint128_t)({c_type(unsigned)})product + {scope.read(c[0], unsigned)}"
    total += " + carry" if kind == "madc" else ""
    keep = f"carry = (unsigned)(total >> {bits}) & 1;" if sets else ""
    return f"{code} uint128_t total = {total}; {keep} {scope.write(d, unsigned, 'total')}"


@opcode(rf"(div|rem)\.{INT}")
def _divide(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    kind, type_ = match.groups()
    d, a, b = instruction.operands
    # in 128 bits, the least integer over -1 has a quotient, which then wraps
    quotient = f"(int128_t)a {'/' if kind == 'div' else '%'} b"
    return (
        f"{c_type(type_)} a = {scope.read(a, type_)}, b = {scope.read(b, type_)};"
        f'if (b == 0) fail(t, {instruction.line}, "division of an integer by zero");'
        f"{scope.write(d, type_, quotient)}"
    )


@opcode(r"(abs|neg)\.(s(?:16|32|64))")
def _sign(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    d, a = instruction.operands
    value = "-a" if match[1] == "neg" else "a < 0 ? -a : a"
    return f"{c_type(match[2])} a = {scope.read(a, match[2])}; {scope.write(d, match[2], value)}"


@opcode(rf"(min|max)\.{INT}")
def _extreme(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    kind, type_ = match.groups()
    d, a, b = instruction.operands
    code = f"{c_type(type_)} a = {scope.read(a, type_)}, b = {scope.read(b, type_)};"
    value = "a < b ? a : b" if kind == "min" else "a > b ? a : b"
    return f"{code} {scope.write(d, type_, value)}"


@opcode(r"(and|or|xor)\.(pred|b16|b32|b64)")
def _logic(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    sign = {"and": "&", "or": "|", "xor": "^"}[match[1]]
    d, a, b = instruction.operands
    return scope.write(d, match[2], f"{scope.read(a, match[2])} {sign} {scope.read(b, match[2])}")


@opcode(r"(not|cnot)\.(pred|b16|b32|b64)")
def _not(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    d, a = instruction.operands
    if match[1] == "cnot" and match[2] == "pred":
        raise Untranslatable(instruction.opcode)
    sign = "!" if match[1] == "cnot" or match[2] == "pred" else "~"
    return scope.write(d, match[2], f"{sign}{scope.read(a, match[2])}")


@opcode(r"(shl|shr)\.([bus](?:16|32|64))")
def _shift(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    kind, type_ = match.groups()
    if kind == "shl" and type_[0] != "b":
        raise Untranslatable(instruction.opcode)
    d, a, n = instruction.operands
    name = "shl" if kind == "shl" else "shr_s" if type_[0] == "s" else "shr_u"
    return scope.write(d, type_, f"{name}({scope.read(a, type_)}, {scope.read(n, 'u32')}, {width(type_)})")


@opcode(r"shf\.([lr])\.(clamp|wrap)\.b32")
def _funnel(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    d, a, b, n = instruction.operands
    amount = scope.read(n, "u32") + (" & 31" if match[2] == "wrap" else "")
    return scope.write(d, "b32", f"shf_{match[1]}({scope.read(a, 'b32')}, {scope.read(b, 'b32')}, {amount})")


@opcode(r"bfe\.([us](?:32|64))")
def _extract(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    d, a, b, c = instruction.operands
    unsigned, signed = "u" + match[1][1:], int(match[1][0] == "s")
    where = f"{scope.read(b, 'u32')}, {scope.read(c, 'u32')}"
    return scope.write(d, unsigned, f"bfe({scope.read(a, unsigned)}, {where}, {signed}, {unsigned[1:]})")


@opcode(r"bfi\.(b32|b64)")
def _insert(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    f, a, b, c, d = instruction.operands
    values = f"{scope.read(a, match[1])}, {scope.read(b, match[1])}, {scope.read(c, 'u32')}, {scope.read(d, 'u32')}"
    return scope.write(f, match[1], f"bfi({values}, {width(match[1])})")


@opcode(r"bfind(\.shiftamt)?\.([us](?:32|64))")
def _find(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    d, a = instruction.operands
    unsigned = "u" + match[2][1:]
    value = f"({scope.read(a, match[2])} < 0 ? ~a : a)" if match[2][0] == "s" else "a"
    found = f"bfind({value}, {width(unsigned)}, {int(bool(match[1]))})"
    return f"{c_type(unsigned)} a = {scope.read(a, unsigned)}; {scope.write(d, 'u32', found)}"


@opcode(r"(popc|clz)\.(b32|b64)")
def _count(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    d, a = instruction.operands
    value = scope.read(a, match[2])
    count = f"__builtin_popcountll({value})" if match[1] == "popc" else f"clz({value}, {width(match[2])})"
    return scope.write(d, "u32", count)


@opcode(r"brev\.(b32|b64)")
def _reverse(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    d, a = instruction.operands
    return scope.write(d, match[1], f"brev({scope.read(a, match[1])}, {width(match[1])})")


@opcode(r"prmt\.b32")
def _permute(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    d, *operands = instruction.operands
    a, b, c = (scope.read(operand, "b32") for operand in operands)
    return scope.write(d, "b32", f"prmt({a}, {b}, {c})")


@opcode(r"lop3\.b32")
def _lop3(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    d, *operands, table = instruction.operands
    a, b, c = (scope.read(operand, "b32") for operand in operands)
    if not 0 <= integer(table) < 256:
        raise Untranslatable(f"lop3 with table {table}")
    return scope.write(d, "b32", f"lop3({a}, {b}, {c}, {integer(table)})")


@opcode(r"szext\.(clamp|wrap)\.([us])32")
def _szext(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    d, a, n = instruction.operands
    amount = scope.read(n, "u32") + (" & 31" if match[1] == "wrap" else "")
    return scope.write(d, "u32", f"szext({scope.read(a, 'u32')}, {amount}, {int(match[2] == 's')})")
