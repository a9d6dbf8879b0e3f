"""`.jsonl`: an object a line, one of its fields the text.

Lines that are plainly right go through `cpu_ref.json_lines`, which holds no GIL; all others, and all when further
fields are kept, are parsed one by one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from cpu_ref.json_lines import take_texts
from gpu_tok.batch import TextBatch
from gpu_tok.errors import FileError
from gpu_tok.files.documents import Documents, Reading
from gpu_tok.files.sources import Source
from gpu_tok.files.streams import Stream, line_blocks
from gpu_tok.packing import is_utf8, without_surrogates

REPLACE_HINT = "repair the line, or put U+FFFD in the place of what is no UTF-8 with --invalid-utf8 replace"


class Place(NamedTuple):
    """Where a line stands; spelled only when something is wrong with it."""

    path: str
    line: int

    def error(self, finding: str, hint: str | None = None) -> FileError:
        return FileError(f"{self.path}, line {self.line}: {finding}", hint)


def read(source: Source, reading: Reading) -> Iterator[Documents]:
    place = Place(source.path, 1)
    with Stream(source) as stream:
        for block in line_blocks(stream, reading.batch_bytes):
            lines = block.count(b"\n")
            if reading.keep:
                texts, columns = _take_with_columns(block, place, reading)
            else:
                texts, columns = _take_texts(block, lines, place, reading), None
            yield Documents(texts, columns, stream.tell())
            place = place._replace(line=place.line + lines)


def get_ready() -> None:
    """Compiles, or loads, what reading runs."""
    _take_texts(b"\n", 1, Place("", 1), Reading())


def _take_texts(block: bytes, lines: int, place: Place, reading: Reading) -> TextBatch:
    data = np.frombuffer(block, np.uint8)
    if not is_utf8(data):
        return TextBatch.joined([text for text, _fields in _parse_lines(block, place, reading)])
    field = np.frombuffer(reading.text_field.encode(), np.uint8)
    texts, ends = np.empty(len(data), np.uint8), np.zeros(lines + 1, np.int64)
    row = written = at = 0
    while True:
        row, written, at = take_texts(data, at, field, texts, written, ends[1:], row)
        if at == len(data):
            return TextBatch(texts[:written], ends[: row + 1], valid=True)
        end = block.index(b"\n", at)
        here = place._replace(line=place.line + block.count(b"\n", 0, at))
        text, _fields = _parse_line(block[at:end], here, reading)
        texts[written : written + len(text)] = np.frombuffer(text, np.uint8)
        row, written, at = row + 1, written + len(text), end + 1
        ends[row] = written


def _take_with_columns(block: bytes, place: Place, reading: Reading) -> tuple[TextBatch, pa.Table]:
    lines = list(_parse_lines(block, place, reading))
    columns = {}
    for name in reading.keep:
        if place.line == 1 and not any(name in fields for _text, fields in lines):
            raise FileError(f"{place.path}: no line has a field {name!r} to keep", _fields_hint(lines[0][1], "--keep"))
        try:
            columns[name] = pa.array([fields.get(name) for _text, fields in lines])
        except (pa.ArrowException, OverflowError) as error:
            raise place.error(f"the field {name!r}, in this line or below, is not of one type: {error}") from error
    return TextBatch.joined([text for text, _fields in lines]), pa.table(columns)


def _parse_lines(block: bytes, place: Place, reading: Reading) -> Iterator[tuple[bytes, dict[str, Any]]]:
    for index, line in enumerate(block.split(b"\n")):
        if line.strip(b" \t\r"):
            yield _parse_line(line, place._replace(line=place.line + index), reading)


def _parse_line(line: bytes, place: Place, reading: Reading) -> tuple[bytes, dict[str, Any]]:
    """The text of one line as UTF-8, and all its fields."""
    fields = _parse(line, place, reading)
    if not isinstance(fields, dict):
        raise place.error(f"holds {_kind(fields)}, not an object", 'JSON lines have an object a line: {"text": "..."}')
    if reading.text_field not in fields:
        raise place.error(f"has no field {reading.text_field!r}", _fields_hint(fields, "--text-field"))
    text = fields[reading.text_field]
    if not isinstance(text, str):
        finding = f"the field {reading.text_field!r} is {_kind(text)}, not a text"
        raise place.error(finding, f"leave such lines out; {_fields_hint(fields, '--text-field')}")
    try:
        return text.encode(), fields
    except UnicodeEncodeError as error:
        if reading.invalid_utf8 == "replace":
            return without_surrogates(text), fields
        surrogate = f"U+{ord(text[error.start]):04X} at character {error.start}"
        raise place.error(f"the lone surrogate {surrogate} of the text has no UTF-8 form", REPLACE_HINT) from None


def _parse(line: bytes, place: Place, reading: Reading) -> Any:
    """What a line holds. What orjson refuses is tried again as Python's `json` writes it: NaN, lone surrogates."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(line.decode("utf-8", "strict" if reading.invalid_utf8 == "error" else "replace"))
    except UnicodeDecodeError as error:
        byte = f"byte {line[error.start]:#04x} at {error.start}"
        raise place.error(f"{byte} is no UTF-8: {error.reason}", REPLACE_HINT) from None
    except (ValueError, RecursionError) as error:
        raise place.error(f"is no JSON: {error}", "each line is one JSON object; is the file cut off?") from None


def _kind(value: Any) -> str:
    names = {
        type(None): "null",
        bool: "a truth value",
        int: "a number",
        float: "a number",
        list: "a list",
        str: "a text",
    }
    return names.get(type(value), "an object")


def _fields_hint(fields: dict[str, Any], option: str) -> str:
    names = ", ".join(repr(name) for name in list(fields)[:12]) or "none"
    return f"the fields of this line: {names}; name the one you mean with {option}"
