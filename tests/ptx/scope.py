"""What names mean inside a function: registers and operands as C expressions, checked for their width."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .reading import NAME, Function, Instruction, Untranslatable, Variable, integer, width

AXES = {"tid": "t->tid", "ctaid": "t->block->ctaid", "ntid": "machine.ntid", "nctaid": "machine.nctaid"}
SPECIAL = {f"%{name}.{axis}": f"{array}[{d}]" for name, array in AXES.items() for d, axis in enumerate("xyz")} | {
    "%laneid": "t->lane",
    "%lanemask_eq": "(1u << t->lane)",
    "%lanemask_lt": "((1u << t->lane) - 1)",
    "%lanemask_le": "((2u << t->lane) - 1)",
    "%lanemask_gt": "~((2u << t->lane) - 1)",
    "%lanemask_ge": "~((1u << t->lane) - 1)",
    "WARP_SZ": "32u",
}
GLOBAL = ("global", "const")


def c_type(type_: str) -> str:
    """The C type in which values of a PTX type are computed."""
    if type_ in ("f32", "f64"):
        return "float" if type_ == "f32" else "double"
    return f"{'' if type_[0] == 's' else 'u'}int{width(type_)}_t"


def c_name(prefix: str, name: str) -> str:
    """A name that cannot clash with one of C."""
    return prefix + name.lstrip("%").replace("$", "_S_")


@dataclass
class Scope:
    """Names of a function being translated. `offsets` are those of shared and local variables in their windows."""

    variables: Mapping[str, Variable]
    offsets: Mapping[str, int]
    functions: Mapping[str, Function]
    entry: bool
    registers: list[dict[str, str]] = field(default_factory=lambda: [{}])
    params: list[dict[str, Variable]] = field(default_factory=lambda: [{}])
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def register_type(self, name: str) -> str | None:
        for scope in reversed(self.registers):
            if name in scope:
                return scope[name]
        return None

    def param(self, name: str) -> Variable:
        for scope in reversed(self.params):
            if name in scope:
                return scope[name]
        raise Untranslatable(f"parameter {name}")

    def read(self, operand: str, type_: str, *, wider: bool = False) -> str:
        """The value of an operand as `type_`, in C. `wider`: of a larger register, the lower bits."""
        declared = self.register_type(operand)
        if declared is not None:
            same_kind = (declared == "pred") == (type_ == "pred")
            fits = width(declared) == width(type_) or (wider and width(declared) > width(type_))
            if not (same_kind and fits):
                raise Untranslatable(f"{operand} of type {declared}, read as {type_}")
            name = c_name("R_", operand)
            if type_ in ("f32", "f64"):
                return f"as_{type_}({f'(uint{width(type_)}_t)' if wider else ''}{name})"
            return name if type_ == "pred" else f"({c_type(type_)}){name}"
        if operand in SPECIAL and width(type_) == 32 and type_[0] != "f":
            return f"({c_type(type_)}){SPECIAL[operand]}"
        return self._literal(operand, type_)

    def _literal(self, operand: str, type_: str) -> str:
        if match := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})|0[fF]([0-9a-fA-F]{8})", operand):
            bits = 64 if match[1] else 32
            if width(type_) != bits or type_[0] not in "fb":
                raise Untranslatable(f"the float {operand} as {type_}")
            value = f"0x{match[1] or match[2]}u{'ll' if bits == 64 else ''}"
            return f"as_{type_}({value})" if type_[0] == "f" else value
        value = integer(operand)
        if type_ == "pred":
            return str(int(value != 0))
        if type_[0] == "f":
            raise Untranslatable(f"the integer {operand} as {type_}")
        if not -(1 << (width(type_) - 1)) <= value < 1 << width(type_):
            raise Untranslatable(f"{operand} does not fit into {type_}")
        return f"({c_type(type_)}){value & 0xFFFFFFFFFFFFFFFF}ull"

    def predicate(self, operand: str) -> str:
        """A predicate that may be negated."""
        if operand.startswith("!"):
            return f"(!{self.read(operand[1:], 'pred')})"
        return self.read(operand, "pred")

    def write(self, operand: str, type_: str, value: str, *, extend: bool = False) -> str:
        """C that writes a value of `type_`; `extend`: a larger register takes the sign, or zeros."""
        if operand == "_":
            return f"(void)({value});"
        declared = self.register_type(operand)
        if declared is None:
            raise Untranslatable(f"{operand} is not a register")
        if type_ == "pred" or declared == "pred":
            if type_ != declared:
                raise Untranslatable(f"{operand} of type {declared}, written as {type_}")
            return f"{c_name('R_', operand)} = ({value}) != 0;"
        if width(declared) != width(type_) and not (extend and width(declared) > width(type_) and type_[0] != "f"):
            raise Untranslatable(f"{operand} of type {declared}, written as {type_}")
        if type_[0] == "f":
            return f"{c_name('R_', operand)} = bits_{type_}({value});"
        return f"{c_name('R_', operand)} = (uint{width(declared)}_t)({c_type(type_)})({value});"

    def address(self, operand: str, space: str) -> str:
        """The address in brackets, `[%rd1+8]` or `[tile+8]`, within its space: of shared and local, an offset."""
        match = re.fullmatch(rf"\[\s*({NAME}|\d+)\s*(?:\+\s*(-?\w+)|(-\d+))?\s*\]", operand)
        if not match:
            raise Untranslatable(f"address {operand}")
        base, offset = match[1], integer(match[2] or match[3] or "0")
        if self.register_type(base) is not None:
            return f"({self.read(base, 'u64')} + ({offset}ll))"
        return f"({self.symbol(base, space)} + ({offset}ll))"

    def symbol(self, name: str, space: str) -> str:
        """The address of a variable in its own space."""
        variable = self.variables.get(name)
        if variable is None or (variable.space if variable.space not in GLOBAL else "global") != space:
            raise Untranslatable(f"{name} is no variable in {space} memory")
        return f"(uint64_t){c_name('S_', name)}" if space == "global" else f"{self.offsets[name]}ull"


Translator = Callable[[Scope, "re.Match[str]", Instruction], str]
OPCODES: list[tuple[re.Pattern[str], Translator]] = []


def opcode(pattern: str) -> Callable[[Translator], Translator]:
    """Register what translates the opcodes that match in full: a modifier that is not named here is not known."""

    def register(translator: Translator) -> Translator:
        OPCODES.append((re.compile(pattern), translator))
        return translator

    return register
