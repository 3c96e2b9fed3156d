"""Branches, calls, barriers, and what the threads of a warp do together."""

from __future__ import annotations

import re

from .reading import Instruction, Untranslatable
from .scope import Scope, c_name, opcode


@opcode(r"bra(?:\.uni)?")
def _bra(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    (label,) = instruction.operands
    return f"jump(t, {instruction.line}); goto {c_name('L_', label)};"


@opcode(r"brx\.idx(?:\.uni)?")
def _brx(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    index, targets = instruction.operands
    if targets not in scope.targets:
        raise Untranslatable(f"branch targets {targets}")
    cases = "".join(f"case {i}: goto {c_name('L_', label)};" for i, label in enumerate(scope.targets[targets]))
    line = instruction.line
    return f'jump(t, {line}); switch ({scope.read(index, "u32")}) {{{cases}}} fail(t, {line}, "a branch to no target");'


@opcode(r"ret(?:\.uni)?")
def _ret(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    if instruction.operands:
        raise Untranslatable(instruction.opcode)
    return "return;"


@opcode(r"exit")
def _exit(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    if not scope.entry:
        raise Untranslatable("exit from within a function")
    return "return;"


@opcode(r"trap")
def _trap(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    return f'fail(t, {instruction.line}, "trap");'


@opcode(r"call(?:\.uni)?")
def _call(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    results, name, params = ("()", *instruction.operands) if len(instruction.operands) == 2 else instruction.operands
    function = scope.functions.get(name)
    if function is None:
        raise Untranslatable(f"a call of {name}, which is not in this file")
    given = [[part.strip() for part in text[1:-1].split(",") if part.strip()] for text in (results, params)]
    wanted = [[variable.size for variable in part] for part in (function.results, function.params)]
    if [[scope.param(operand).size for operand in part] for part in given] != wanted:
        raise Untranslatable(f"a call of {name} with other parameters than its own")
    operands = [c_name("P_", operand) for part in given for operand in part]
    return f"{c_name('F_', name)}({', '.join(['t', *operands])});"


def _barrier(scope: Scope, instruction: Instruction, operands: tuple[str, ...], aligned: bool, value: str) -> str:
    which, *count = operands
    expected = scope.read(count[0], "u32") if count else "0"
    if len(count) > 1:
        raise Untranslatable(instruction.opcode)
    return f"barrier(t, {scope.read(which, 'u32')}, {expected}, {int(aligned)}, {value}, {instruction.line})"


@opcode(r"bar(rier)?(?:\.cta)?\.sync(\.aligned)?")
def _bar_sync(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    return _barrier(scope, instruction, instruction.operands, not match[1] or bool(match[2]), "1") + ";"


@opcode(r"bar(rier)?(?:\.cta)?\.red\.(popc|and|or)(\.aligned)?\.(u32|pred)")
def _bar_red(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    long, kind, aligned, type_ = match.groups()
    if (kind == "popc") != (type_ == "u32"):
        raise Untranslatable(instruction.opcode)
    d, *where, p = instruction.operands
    call = _barrier(scope, instruction, tuple(where), not long or bool(aligned), scope.predicate(p))
    everyone = scope.read(where[1], "u32") if len(where) > 1 else "machine.threads"
    value = {"popc": "came", "and": f"came == {everyone}", "or": "came != 0"}[kind]
    return f"uint64_t came = {call}; {scope.write(d, type_, value)}"


@opcode(r"bar\.warp\.sync")
def _bar_warp(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    (mask,) = instruction.operands
    return f"in_warp(t, SYNC_WARP, 0, 0, 0, {scope.read(mask, 'b32')}, {instruction.line});"


@opcode(r"shfl\.sync\.(up|down|bfly|idx)\.b32")
def _shfl(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    d, *operands = instruction.operands
    d, _, p = d.partition("|")
    a, b, c, mask = (scope.read(operand, "b32") for operand in operands)
    code = f"uint64_t got = in_warp(t, SHFL_{match[1].upper()}, {a}, {b}, {c}, {mask}, {instruction.line});"
    return code + scope.write(d, "b32", "got") + (scope.write(p, "pred", "got >> 32") if p else "")


@opcode(r"vote\.sync\.(all|any|uni|ballot)\.(pred|b32)")
def _vote(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    kind, type_ = match.groups()
    if (kind == "ballot") != (type_ == "b32"):
        raise Untranslatable(instruction.opcode)
    d, p, mask = instruction.operands
    code = f"in_warp(t, VOTE_{kind.upper()}, {scope.predicate(p)}, 0, 0, {scope.read(mask, 'b32')}, {instruction.line})"
    return f"uint64_t got = {code}; {scope.write(d, type_, 'got')}"


@opcode(r"nanosleep\.u32")
def _sleep(scope: Scope, match: re.Match[str], instruction: Instruction) -> str:
    (time,) = instruction.operands
    return f"(void)({scope.read(time, 'u32')}); jump(t, {instruction.line}); switch_away(t);"
