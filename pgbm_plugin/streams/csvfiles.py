"""Special treatment of CSV files: column types taken from the model, and Arrow's errors in plain words."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_SUFFIX = re.compile(r"\.csv(\.(gz|bz2|zst|lz4))?$", re.IGNORECASE)
_NOT_OPENED = re.compile(r"Could not open \w+ input source '(.*?)': (?:Invalid: )?(.*)")
_NOT_CONVERTED = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+): invalid (?:value '(.*)'|UTF8 data)"
)

# Bytes that are read at a time. No line can be longer; a table of 100,000 columns has lines of 2 MB.
_BLOCK = 1 << 22


def is_csv(path: str) -> bool:
    return bool(_SUFFIX.search(path))


def csv_format() -> Any:
    """Return Arrow's CSV reader, with options for long lines and for line breaks inside values."""
    from pyarrow.csv import ParseOptions, ReadOptions
    from pyarrow.dataset import CsvFileFormat

    # by default, Arrow would end a row at a line break inside quotes
    return CsvFileFormat(ParseOptions(newlines_in_values=True), read_options=ReadOptions(block_size=_BLOCK))


def check_separated(columns: Sequence[str]) -> None:
    """Refuse a header whose columns are not separated by commas."""
    if len(columns) == 1 and re.search(r"[;\t|]", columns[0]):
        raise ValueError(f"it has one column, {columns[0]!r}: values must be separated by commas")


def csv_schema(schema: Any, numbers: Sequence[str], categories: Container[str], keep: Sequence[str]) -> Any:
    """Return the types to read a file's columns in, which Arrow would guess from the first lines alone.

    Categories are read as text, because 01 and 1 may be different categories. Columns to keep are text, too.
    """
    import pyarrow as pa

    def kind(name: str, guess: Any) -> Any:
        if name in numbers and name not in categories:
            return guess if pa.types.is_boolean(guess) else pa.float64()
        return pa.string() if name in categories or name in keep else guess

    return pa.schema([(field.name, kind(field.name, field.type)) for field in schema])


def missing_spellings(values: Sequence[Any]) -> list[str]:
    """Return the texts that mean a missing value, without those that are categories of the model."""
    from pyarrow.csv import ConvertOptions

    return [text for text in ConvertOptions().null_values if text not in values]


@contextmanager
def plain_reason(columns: Sequence[str], path: str | None = None) -> Iterator[None]:
    """Turn Arrow's errors inside into plain words, with `path`, if given, in front."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(f"{'' if path is None else f'{path!r}: '}the names of its columns are not UTF-8") from error
    except ValueError as error:
        text = " ".join(str(error).split())
        opened = _NOT_OPENED.search(text)
        if opened:
            path, text = opened[1] if path is not None else None, opened[2]
        wrong = _NOT_CONVERTED.search(text)
        if wrong and int(wrong[1]) < len(columns):
            row = f" in row {wrong[2]}" if wrong[2] else ""
            what = f"text that is not UTF-8{row}" if wrong[4] is None else f"{wrong[4]!r}{row}, which is not a number"
            text = f"column {columns[int(wrong[1])]!r} holds {what}"
        if "straddles two block boundaries" in text:
            text = f"it has a line of more than {_BLOCK >> 20} MB, or a quote that never ends: write it as Parquet"
        if "Empty CSV file or block" in text:
            text = f"Empty CSV file, or a first line of more than {_BLOCK >> 20} MB"
        raise ValueError(text if path is None else f"{path!r}: {text}") from error
