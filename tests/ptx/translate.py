"""PTX to C: a C function for each function, a goto for each branch, one statement for each instruction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from . import control, conversions, floats, integers, memory
from .reading import (
    Brace,
    Function,
    Instruction,
    Label,
    Module,
    Registers,
    Targets,
    Untranslatable,
    Variable,
    read_module,
    width,
)
from .scope import GLOBAL, OPCODES, SPECIAL, Scope, c_name

FAMILIES = (control, conversions, floats, integers, memory)  # imported for the opcodes that they register


@dataclass(frozen=True)
class Translation:
    """C, and what a launch must know. `offsets` are those of the parameters; `loads` the types that read each one."""

    source: str
    entry: Function
    offsets: tuple[int, ...]
    loads: tuple[frozenset[str], ...]
    params_size: int
    shared_size: int
    local_size: int


def translate(ptx: str) -> Translation:
    """The one kernel of a PTX file, and the functions that it calls."""
    module = read_module(ptx)
    entries = [function for function in module.functions if function.entry]
    if len(entries) != 1:
        raise Untranslatable(f"one kernel a file, not {len(entries)}")
    variables = _variables(module)
    offsets: dict[str, int] = {}
    shared_size = _lay_out([v for v in variables.values() if v.space == "shared"], offsets)
    local_size = _lay_out([v for v in variables.values() if v.space == "local"], offsets)
    functions = {function.name: function for function in module.functions}
    _refuse_recursion(functions)
    parts = ['#include "arithmetic.h"', '#include "machine.h"']
    parts += [_memory(variable) for variable in variables.values() if variable.space in GLOBAL]
    parts += [_header(function) + ";" for function in module.functions]
    for function in module.functions:
        params = {variable.name: variable for variable in (*function.results, *function.params)}
        scope = Scope(variables, offsets, functions, function.entry, params=[params])
        parts.append(
            "\n".join([_header(function), "{", "unsigned carry = t->garbage & 1;", *_body(scope, function), "}"])
        )
    where: dict[str, int] = {}
    params_size = _lay_out(list(entries[0].params), where)
    given = "".join(f", machine.params + {where[variable.name]}" for variable in entries[0].params)
    parts.append(f"static void start(Thread *t) {{ {c_name('F_', entries[0].name)}(t{given}); }}")
    parts += ['#include "launch.h"', _ranges(variables)]
    loads = tuple(_loads(entries[0], variable.name) for variable in entries[0].params)
    at = tuple(where[variable.name] for variable in entries[0].params)
    return Translation("\n\n".join(parts), entries[0], at, loads, params_size, shared_size, local_size)


def _variables(module: Module) -> dict[str, Variable]:
    """Every variable by name; those inside functions too, whose names PTX keeps apart."""
    inside = [s for f in module.functions for s in f.body if isinstance(s, Variable) and s.space != "param"]
    variables: dict[str, Variable] = {}
    for variable in (*module.variables, *inside):
        if variable.name in variables:
            raise Untranslatable(f"two variables {variable.name}")
        if variable.extern and variable.space != "shared":
            raise Untranslatable(f"{variable.name} is in another file")
        if variable.values and variable.space not in GLOBAL:
            raise Untranslatable(f"initial values of {variable.name} in {variable.space} memory")
        variables[variable.name] = variable
    return variables


def _lay_out(variables: list[Variable], offsets: dict[str, int]) -> int:
    """Fill `offsets`; returns the size. Dynamic shared memory, of no size of its own, comes last."""
    end = 0
    for variable in sorted(variables, key=lambda v: v.extern):
        align = variable.align
        end = (end + align - 1) // align * align
        offsets[variable.name] = end
        end += variable.size
    return end


def _refuse_recursion(functions: dict[str, Function]) -> None:
    """A function's local memory and stack are laid out once."""
    calls = {
        name: {o for s in f.body if isinstance(s, Instruction) for o in s.operands if o in functions}
        for name, f in functions.items()
    }
    left = dict(calls)
    while left:
        leaves = [name for name, called in left.items() if not called & left.keys()]
        if not leaves:
            raise Untranslatable(f"recursion among {', '.join(left)}")
        for name in leaves:
            del left[name]


def _memory(variable: Variable) -> str:
    mask = (1 << width(variable.type)) - 1
    values = ", ".join(f"{value & mask}ull" for value in variable.values) or "0"
    count = 1 if variable.count is None else max(variable.count, 1)
    name, align = c_name("S_", variable.name), max(variable.align, 16)
    return f"static uint{width(variable.type)}_t {name}[{count}] __attribute__((aligned({align}))) = {{{values}}};"


def _ranges(variables: dict[str, Variable]) -> str:
    rows = "".join(
        f"to[n++] = (Range){{(uint64_t){c_name('S_', v.name)}, (uint64_t){c_name('S_', v.name)} + {v.size}, "
        f"{int(v.space == 'global')}, -1}};"
        for v in variables.values()
        if v.space in GLOBAL
    )
    return f"int module_ranges(Range *to) {{ int n = 0; {rows} return n; }}"


def _header(function: Function) -> str:
    params = "".join(f", unsigned char *{c_name('P_', v.name)}" for v in (*function.results, *function.params))
    return f"static void {c_name('F_', function.name)}(Thread *t{params})"


def _loads(function: Function, name: str) -> frozenset[str]:
    return frozenset(
        s.opcode.rpartition(".")[2]
        for s in function.body
        if isinstance(s, Instruction)
        and s.opcode.startswith("ld.param")
        and s.operands[1].strip("[]").split("+")[0] == name
    )


def _body(scope: Scope, function: Function) -> Iterator[str]:
    scope.targets.update((s.name, s.labels) for s in function.body if isinstance(s, Targets))
    number = 0
    for statement in function.body:
        if isinstance(statement, Brace):
            if statement.text == "{":
                scope.registers.append({})
                scope.params.append({})
            else:
                scope.registers.pop()
                scope.params.pop()
            yield statement.text
        elif isinstance(statement, Registers):
            for name in statement.names:
                if name in SPECIAL:
                    raise Untranslatable(f"a register {name}")
                scope.registers[-1][name] = statement.type
                number += 1
                yield _garbage(name, statement.type, number)
        elif isinstance(statement, Variable):
            if statement.space == "param":
                scope.params[-1][statement.name] = statement
                name = c_name("P_", statement.name)
                yield f"unsigned char {name}[{statement.size}]; memset({name}, t->garbage & 0xff, {statement.size});"
        elif isinstance(statement, Label):
            yield f"{c_name('L_', statement.name)}:;"
        elif isinstance(statement, Instruction):
            yield _instruction(scope, statement)


def _garbage(name: str, type_: str, number: int) -> str:
    """A register before its first write: whatever was there, so that reading it shows."""
    value = f"t->garbage >> {number % 64} & 1" if type_ == "pred" else f"t->garbage * {2 * number + 1}u"
    return f"uint{width(type_)}_t {c_name('R_', name)} = (uint{width(type_)}_t)({value});"


def _instruction(scope: Scope, instruction: Instruction) -> str:
    found = [(match, translator) for pattern, translator in OPCODES if (match := pattern.fullmatch(instruction.opcode))]
    text = f"line {instruction.line}: {instruction.opcode} {', '.join(instruction.operands)}"
    if len(found) != 1:
        raise Untranslatable(f"{text}: {'an unknown opcode' if not found else 'an opcode known twice'}")
    match, translator = found[0]
    try:
        code = translator(scope, match, instruction)
    except Untranslatable as refusal:
        raise Untranslatable(f"{text}: {refusal}") from None
    except (ValueError, IndexError):  # operands that do not unpack
        raise Untranslatable(f"{text}: {len(instruction.operands)} operands") from None
    guard = f"if ({scope.predicate(instruction.guard)}) " if instruction.guard else ""
    return f"{guard}{{ {code} }}"
