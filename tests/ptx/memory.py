"""Loads, stores, atomics, addresses and moves."""

from __future__ import annotations

import re

from .reading import NAME, TYPE, Instruction, Untranslatable, integer, width
from .scope import Scope, c_name, c_type, opcode

SPACE = r"(?:\.(global|const|shared|local|param)(?:::cta|::entry|::func)?)?"
ORDER = r"(?:\.weak|\.volatile|\.(?:relaxed|acquire|release)\.(?:cta|cluster|gpu|sys))?"
CACHE = r"(?:\.(?:ca|cg|cs|lu|cv|wb|wt))?(?:\.nc)?(?:\.L[12]::(?:evict_\w+|no_allocate|\d+B))*"
MEMORY = rf"{ORDER}{SPACE}{CACHE}(?:\.v([248]))?\.((?!pred){TYPE})"
VALID = {
    "add": ("u32", "s32", "u64", "f32", "f64"),
    "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"),
    "inc": ("u32",),
    "dec": ("u32",),
    "cas": ("b16", "b32", "b64"),
} | dict.fromkeys(("and", "or", "xor", "exch"), ("b32", "b64"))


def _pointer(scope: Scope, space: str | None, operand: str, size: int, store: int, line: int) -> str:
    """C for a checked pointer to `size` bytes."""
    if space == "param":
        match = re.fullmatch(rf"\[({NAME})(?:\+(\d+))?\]", operand)
        if not match:
            raise Untranslatable(f"parameter {operand}")
        offset = int(match[2] or 0)
        if offset + size > scope.param(match[1]).size or offset % size:
            raise Untranslatable(f"{size} bytes of parameter {operand}")
        return f"{c_name('P_', match[1])} + {offset}"
    if space == "const" and store:
        raise Untranslatable(f"a store into constant memory, {operand}")
    space = "global" if space == "const" else space
    if space is None and not re.match(r"\[\s*%", operand):
        raise Untranslatable(f"generic address {operand}")
    address = scope.address(operand, space or "generic")
    return f"{space or 'generic'}_at(t, {address}, {size}, {store}, {line})"


def _elements(operand: str, count: int) -> list[str]:
    if count == 1:
        return [operand]
    names = [part.strip() for part in operand[1:-1].split(",")]
    if operand[:1] + operand[-1:] != "{}" or len(names) != count:
        raise Untranslatable(f"a vector of {count}: {operand}")
    return names


@opcode(rf"ldu?{MEMORY}")
def _load(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    space, vector, type_ = match.groups()
    d, source = instruction.operands
    size, count = width(type_) // 8, int(vector or 1)
    bits = type_ if type_[0] == "s" else "u" + type_[1:]
    pointer = _pointer(scope, space, source, size * count, 0, instruction.line)
    code = f"{c_type(bits)} v[{count}]; memcpy(v, {pointer}, {size * count});"
    for i, name in enumerate(_elements(d, count)):
        # floats too are moved as bits, but never extended
        code += scope.write(name, bits, f"v[{i}]", extend=type_[0] != "f")
    return code


@opcode(rf"st{MEMORY}")
def _store(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    space, vector, type_ = match.groups()
    target, source = instruction.operands
    size, count = width(type_) // 8, int(vector or 1)
    bits = "b" + type_[1:]
    values = [scope.read(name, bits, wider=type_[0] != "f") for name in _elements(source, count)]
    code = f"{c_type(bits)} v[{count}] = {{{', '.join(values)}}};"
    return f"{code} memcpy({_pointer(scope, space, target, size * count, 1, instruction.line)}, v, {size * count});"


@opcode(
    r"(atom|red)(?:\.(?:relaxed|acquire|release|acq_rel))?(?:\.(?:cta|cluster|gpu|sys))?(?:\.(global|shared)(?:::cta)?)?"
    rf"\.({'|'.join(VALID)})\.({TYPE})"
)
def _atomic(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    kind, space, name, type_ = match.groups()
    if type_ not in VALID[name] or (kind == "red" and name in ("cas", "exch")):
        raise Untranslatable(instruction.opcode)
    d, target, *operands = instruction.operands if kind == "atom" else ("_", *instruction.operands)
    if len(operands) != 1 + (name == "cas"):
        raise Untranslatable(f"{instruction.opcode} of {len(instruction.operands)} operands")
    size = width(type_) // 8
    b, *c = (scope.read(operand, type_) for operand in operands)
    if (name, type_) == ("add", "f32"):  # memory outside of the block flushes subnormals
        flush = {"global": "1", "shared": "0", None: "(uint64_t)p - (uint64_t)t->block->shared >= machine.shared_size"}
        new = f"{flush[space]} ? ftz_f32(ftz_f32(old) + ftz_f32(b)) : old + b"
    else:
        new = {
            "add": "old + b",
            "and": "old & b",
            "or": "old | b",
            "xor": "old ^ b",
            "exch": "b",
            "min": "b < old ? b : old",
            "max": "b > old ? b : old",
            "inc": "old >= b ? 0 : old + 1",
            "dec": "old == 0 || old > b ? b : old - 1",
            "cas": f"old == b ? {c[0] if c else ''} : old",
        }[name]
    kind_c = c_type(type_)
    return (
        f"unsigned char *p = {_pointer(scope, space, target, size, 2, instruction.line)};"
        f"{kind_c} old, b = {b}; memcpy(&old, p, {size}); {kind_c} new = {new}; memcpy(p, &new, {size});"
        f"{scope.write(d, type_, 'old')}"
    )


@opcode(r"membar\.(?:cta|gl|sys)|fence(?:\.sc|\.acq_rel)?\.(?:cta|cluster|gpu|sys)")
def _fence(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    if instruction.operands:
        raise Untranslatable(instruction.opcode)
    return "let_others(t);"  # memory here has one order; another thread may run


def _symbol_address(scope: Scope, operand: str) -> tuple[str, str] | None:
    """(space, address in it) of `name` or `name+4`, if it names a variable."""
    match = re.fullmatch(rf"({NAME})(?:\+(\d+))?", operand)
    if not match or match[1] not in scope.variables:
        return None
    space = scope.variables[match[1]].space
    space = "global" if space == "const" else space
    return space, f"({scope.symbol(match[1], space)} + {integer(match[2] or '0')})"


@opcode(r"cvta(\.to)?\.(global|const|shared|local)(?:::cta)?\.u64")
def _cvta(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    to, space = match.groups()
    d, a = instruction.operands
    space = "global" if space == "const" else space
    symbol = _symbol_address(scope, a)
    if symbol and (to or symbol[0] != space):
        raise Untranslatable(f"{instruction.opcode} of {a}")
    value = symbol[1] if symbol else scope.read(a, "u64")
    base = {"global": "0", "shared": "(uint64_t)t->block->shared", "local": "(uint64_t)t->local"}[space]
    return scope.write(d, "u64", f"{value} {'-' if to else '+'} {base}")


@opcode(r"mov\.(pred|[bus](?:16|32|64)|f32|f64)")
def _move(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    d, a = instruction.operands
    bits = match[1] if match[1] == "pred" else "b" + match[1][1:]
    if d[0] == "{" or a[0] == "{":
        if match[1][0] != "b" or d[0] == a[0]:
            raise Untranslatable(f"{instruction.opcode} {d}, {a}")
        return _pack(scope, d, a, bits) if a[0] == "{" else _unpack(scope, d, a, bits)
    if scope.register_type(a) is None and (symbol := _symbol_address(scope, a)):
        return scope.write(d, bits, symbol[1]) if width(bits) == 64 else _refuse(instruction)
    return scope.write(d, bits, scope.read(a, bits))


def _refuse(instruction: Instruction) -> str:
    raise Untranslatable(f"{instruction.opcode} of an address")


def _part(operand: str, bits: str) -> tuple[int, str]:
    count = operand.count(",") + 1
    if count not in (2, 4) or width(bits) // count < 8:
        raise Untranslatable(f"{operand} as parts of {bits}")
    return count, f"b{width(bits) // count}"


def _pack(scope: Scope, d: str, a: str, bits: str) -> str:
    count, part = _part(a, bits)
    values = [f"(uint64_t){scope.read(name, part)} << {i * width(part)}" for i, name in enumerate(_elements(a, count))]
    return scope.write(d, bits, " | ".join(f"({value})" for value in values))


def _unpack(scope: Scope, d: str, a: str, bits: str) -> str:
    count, part = _part(d, bits)
    code = f"uint64_t whole = {scope.read(a, bits)};"
    for i, name in enumerate(_elements(d, count)):
        code += scope.write(name, part, f"whole >> {i * width(part)}")
    return code
