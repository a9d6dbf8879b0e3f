"""Texts in any form -> UTF-8 in one array, and where each begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpu_tok.errors import TextError, TextTypeError

Bytes = npt.NDArray[np.uint8]
Starts = npt.NDArray[np.int64]


def is_utf8(flat: Bytes) -> bool:
    """Are bytes (uint8[n]) valid UTF-8."""
    step = 1 << 30  # an Arrow string of 32-bit offsets holds less than 2 GiB
    begin = 0
    while begin < len(flat):
        end = min(begin + step, len(flat))
        while end < len(flat) and end > begin and (flat[end] & 0xC0) == 0x80:
            end -= 1
        offsets = pa.py_buffer(np.array([0, end - begin], np.int32))
        text = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(flat[begin:end])])
        try:
            text.validate(full=True)
        except pa.ArrowInvalid:
            return False
        begin = end
    return True


def rows_are_utf8(flat: Bytes, starts: Starts) -> bool:
    """Is every row UTF-8: all of them together are, and none begins within a character."""
    inner = starts[(starts > starts[0]) & (starts < starts[-1])]
    return is_utf8(flat[starts[0] : starts[-1]]) and not bool(np.any((flat[inner] & 0xC0) == 0x80))


def from_arrow(texts: pa.Array | pa.ChunkedArray) -> tuple[Bytes, Starts]:
    """Arrow's own bytes, and its offsets in 64 bits. Raises `TextTypeError` for nulls and for what is no text."""
    if texts.null_count:
        row = next(index for index, text in enumerate(texts) if not text.is_valid)
        raise TextTypeError(row, "is null", "drop or fill nulls first: array.drop_null() or array.fill_null('')")
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks() if texts.num_chunks != 1 else texts.chunk(0)
        if isinstance(texts, pa.ChunkedArray):  # no chunk, or more bytes than one array may hold
            wide = pa.large_binary() if pa.types.is_binary(texts.type) else pa.large_string()
            texts = texts.cast(wide).combine_chunks()
    wide_types = {
        pa.string(): np.int32,
        pa.binary(): np.int32,
        pa.large_string(): np.int64,
        pa.large_binary(): np.int64,
    }
    if texts.type not in wide_types:
        if pa.types.is_dictionary(texts.type) or texts.type in (pa.string_view(), pa.binary_view()):
            return from_arrow(texts.cast(pa.large_string()))
        raise TextTypeError(
            0, f"the Arrow array is of type {texts.type}", "cast it: array.cast(pyarrow.large_string())"
        )
    _validity, offsets, data = texts.buffers()
    if len(texts) == 0 or offsets is None:
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    starts = np.frombuffer(offsets, wide_types[texts.type])[texts.offset : texts.offset + len(texts) + 1]
    flat = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return flat, starts.astype(np.int64)


def from_python(texts: Sequence[Any]) -> tuple[Bytes, Starts] | None:
    """str or bytes laid end to end by Arrow; None if one of them is neither, or no UTF-8: then `utf8_of` says which."""
    are_str = all(type(text) is str for text in texts)
    try:
        array = pa.array(texts, pa.large_string() if are_str else pa.large_binary())
    except (UnicodeEncodeError, pa.ArrowException, TypeError):
        return None
    if array.null_count:
        return None
    packed = from_arrow(array)
    return packed if are_str or rows_are_utf8(*packed) else None


def without_surrogates(text: str) -> bytes:
    """A string as UTF-8, with U+FFFD in the place of each lone surrogate."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")


def utf8_of(row: int, text: Any, invalid_utf8: str) -> bytes:
    """One text as UTF-8; raises `TextError` naming the row where it has none."""
    if isinstance(text, str):
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError as error:
            if invalid_utf8 == "replace":
                return without_surrogates(text)
            raise TextError(
                row,
                f"the lone surrogate U+{ord(text[error.start]):04X} at character {error.start} has no UTF-8 form",
                'repair the text, or pass invalid_utf8="replace" to put U+FFFD in its place',
            ) from None
    if isinstance(text, (bytes, bytearray, memoryview)):
        raw = bytes(text)
        try:
            raw.decode("utf-8")
            return raw
        except UnicodeDecodeError as error:
            if invalid_utf8 == "replace":
                return raw.decode("utf-8", "replace").encode("utf-8")
            raise TextError(
                row,
                f"byte {raw[error.start]:#04x} at {error.start} is no UTF-8: {error.reason}",
                'decode the bytes as what they are, or pass invalid_utf8="replace" to put U+FFFD in their place',
            ) from None
    raise TextTypeError(row, f"is {type(text).__name__}, not str or bytes", "every element of a batch is a text")
