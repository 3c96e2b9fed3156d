"""PTX text as dataclasses: variables, functions and their statements, each with its line.

Only what is known is read. Everything else raises `Untranslatable`, here as in the translation: nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


class Untranslatable(NotImplementedError):
    """PTX that is not known here."""


@dataclass(frozen=True)
class Variable:
    """`.shared .align 8 .b8 tile[64]`: memory with a name, or a parameter. `values` are its initial elements."""

    space: str
    type: str
    name: str
    align: int
    count: int | None  # None: a scalar
    values: tuple[int, ...] = ()
    extern: bool = False

    @property
    def size(self) -> int:
        """Bytes."""
        return width(self.type) // 8 * (1 if self.count is None else self.count)


@dataclass(frozen=True)
class Registers:
    """`.reg .b32 %r<3>`: names of one type."""

    type: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Label:
    name: str


@dataclass(frozen=True)
class Targets:
    """`name: .branchtargets A, B`: where `brx.idx` may go."""

    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Brace:
    """A scope opens or closes."""

    text: str


@dataclass(frozen=True)
class Instruction:
    """`@!%p1 ld.global.v2.f64 {%fd1, %fd2}, [%rd1+8]`; `guard` is `!%p1`."""

    line: int
    guard: str
    opcode: str
    operands: tuple[str, ...]


Statement = Variable | Registers | Label | Targets | Brace | Instruction


@dataclass(frozen=True)
class Function:
    """A kernel (`entry`) or a function that kernels call. `threads` is the most that a block may have, if stated."""

    name: str
    entry: bool
    results: tuple[Variable, ...]
    params: tuple[Variable, ...]
    body: tuple[Statement, ...]
    threads: int | None


@dataclass(frozen=True)
class Module:
    variables: tuple[Variable, ...]
    functions: tuple[Function, ...]


NAME = r"[A-Za-z_$%][\w$]*"
TYPE = r"pred|[bus](?:8|16|32|64)|f(?:32|64)"
LINKAGE = r"\.(?:visible|extern|weak|common)\s+"
VARIABLE = re.compile(
    rf"(?P<linkage>(?:{LINKAGE})*)\.(?P<space>global|const|shared|local|param)\s+"
    rf"(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>{TYPE})\s+(?:\.ptr\s+(?:\.\w+\s+)?(?:\.align\s+\d+\s+)?)?"
    rf"(?P<name>{NAME})\s*(?P<array>\[\d*\])?\s*(?:=\s*(?P<values>\{{[^}}]*\}}|[^{{}};]+))?"
)
HEADER = re.compile(
    rf"(?:{LINKAGE})*\.(?P<kind>entry|func)\s*(?:\((?P<results>[^)]*)\))?\s*(?P<name>{NAME})\s*"
    rf"(?:\((?P<params>[^)]*)\))?\s*(?P<bounds>(?:\.(?:maxntid|reqntid|minnctapersm|maxnreg|noreturn)[\s\d,]*)*)"
)


def width(type_: str) -> int:
    """Bits of a type; a predicate takes a byte."""
    return 8 if type_ == "pred" else int(type_[1:])


def integer(text: str) -> int:
    """A literal of PTX: decimal, hexadecimal, binary or octal, and an optional U."""
    match = re.fullmatch(r"(-?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)U?", text.strip())
    if not match:
        raise Untranslatable(f"{text!r} is not an integer")
    digits = match[2]
    base = 16 if digits[:2] in ("0x", "0X") else 2 if digits[:2] in ("0b", "0B") else 8 if digits[0] == "0" else 10
    return int(match[1] + digits, base)


def read_module(ptx: str) -> Module:
    """All variables and functions of a PTX file."""
    text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), ptx, flags=re.DOTALL)
    text = re.sub(r"//[^\n]*", "", text)
    variables, functions = [], []
    pieces = _pieces(text)
    for line, piece, end in pieces:
        if re.match(r"\.(?:version|target|file)\b", piece) or piece.split() == [".address_size", "64"]:
            continue
        if match := HEADER.fullmatch(piece):
            if end == "{":
                functions.append(_function(match, _body(pieces)))
        elif end == ";" and (match := VARIABLE.fullmatch(piece)):
            variables.append(_variable(match))
        else:
            raise Untranslatable(f"line {line}: {piece + end!r}")
    return Module(tuple(variables), tuple(functions))


def _pieces(text: str) -> Iterator[tuple[int, str, str]]:
    """(line, text, what ended it): statements up to `;`, braces that stand alone, labels up to `:`, header lines."""
    header = re.compile(r"\s*(\.(?:version|target|address_size|file|loc)\b[^\n;]*)(?:\n|;|$)")
    label = re.compile(rf"\s*({NAME})\s*:(?!:)(?!\s*\.branchtargets)")
    position = 0
    while position < len(text):
        if match := header.match(text, position) or label.match(text, position):
            yield text.count("\n", 0, match.start(1)) + 1, match[1].strip(), ":" if match.re is label else ""
            position = match.end()
            continue
        start = position + len(re.match(r"\s*", text[position : position + 10_000])[0])
        if start >= len(text):
            return
        line = text.count("\n", 0, start) + 1
        if text[start] in "{}":
            yield line, "", text[start]
            position = start + 1
            continue
        # braces inside a statement hold vectors or initial values; a header's brace opens its body
        functional = re.match(rf"(?:{LINKAGE})*\.(?:entry|func)\b", text[start : start + 200])
        end = re.compile(r"[;{]" if functional else ";").search(text, start)
        if not end:
            raise Untranslatable(f"line {line}: a statement without an end: {text[start : start + 80]!r}")
        yield line, text[start : end.start()].strip(), end[0]
        position = end.end()


def _body(pieces: Iterator[tuple[int, str, str]]) -> Iterator[Statement]:
    depth = 1
    for line, piece, end in pieces:
        if not piece:
            depth += 1 if end == "{" else -1
            if depth == 0:
                return
            yield Brace(end)
        elif end == ":":
            yield Label(piece)
        elif not re.match(r"\.(?:loc|pragma|file)\b", piece):
            yield _statement(line, piece)
    raise Untranslatable("a function without an end")


def _statement(line: int, piece: str) -> Statement:
    if match := re.fullmatch(rf"\.reg\s+\.({TYPE})\s+(.*)", piece, re.DOTALL):
        return Registers(match[1], tuple(name for part in match[2].split(",") for name in _names(part.strip())))
    if match := VARIABLE.fullmatch(piece):
        return _variable(match)
    if match := re.fullmatch(rf"({NAME})\s*:\s*\.branchtargets\s+(.*)", piece, re.DOTALL):
        return Targets(match[1], tuple(_split(match[2])))
    match = re.fullmatch(r"(?:@(!?%[\w$]+)\s+)?([a-z][\w.:]*)(?:\s+(.*))?", piece, re.DOTALL)
    if not match:
        raise Untranslatable(f"line {line}: {piece!r}")
    return Instruction(line, match[1] or "", match[2], tuple(_split(match[3] or "")))


def _names(text: str) -> list[str]:
    if match := re.fullmatch(rf"({NAME})<(\d+)>", text):
        return [f"{match[1]}{i}" for i in range(int(match[2]))]
    if not re.fullmatch(NAME, text):
        raise Untranslatable(f"registers {text!r}")
    return [text]


def _split(text: str) -> Iterator[str]:
    """Operands at the commas outside of brackets."""
    depth, operand = 0, ""
    for character in text.strip() + ",":
        depth += (character in "{[(") - (character in ")]}")
        if character == "," and depth == 0:
            if operand.strip():
                yield " ".join(operand.split())
            operand = ""
        else:
            operand += character


def _variable(match: re.Match[str]) -> Variable:
    array = match["array"]
    values = re.split(r"\s*,\s*", match["values"].strip("{} \t\n")) if match["values"] else []
    count = int(array[1:-1] or 0) if array else None
    if len(values) > (1 if count is None else count):
        raise Untranslatable(f"{match['name']} has {len(values)} values and room for {count or 1}")
    if values and match["type"][0] == "f":
        raise Untranslatable(f"{match['name']}: initial values of type {match['type']}")
    align = int(match["align"] or width(match["type"]) // 8)
    extern = ".extern" in match["linkage"]
    return Variable(match["space"], match["type"], match["name"], align, count, tuple(map(integer, values)), extern)


def _function(match: re.Match[str], body: Iterator[Statement]) -> Function:
    def variables(text: str | None) -> tuple[Variable, ...]:
        found = []
        for part in (text or "").split(","):
            if not part.strip():
                continue
            if not (parameter := VARIABLE.fullmatch(part.strip())) or parameter["space"] != "param":
                raise Untranslatable(f"a parameter of {match['name']}: {part.strip()!r}")
            found.append(_variable(parameter))
        return tuple(found)

    threads = None
    for numbers in re.findall(r"\.(?:maxntid|reqntid)([\s\d,]*)", match["bounds"]):
        threads = 1
        for number in re.findall(r"\d+", numbers):
            threads *= int(number)
    entry = match["kind"] == "entry"
    return Function(match["name"], entry, variables(match["results"]), variables(match["params"]), tuple(body), threads)
