"""UTF-8, one code point at a time. The bytes are known to be valid: `gpu_tok.batch` sees to that."""

from __future__ import annotations

from cpu_ref.compiled import inlined


@inlined
def code_point_length(first_byte):
    """Bytes of the code point that begins with `first_byte`: 1 to 4."""
    if first_byte < 0x80:
        return 1
    if first_byte < 0xE0:
        return 2
    return 3 if first_byte < 0xF0 else 4


@inlined
def code_point_at(bytes, at):
    """The code point that begins at `bytes[at]`."""
    first = int(bytes[at])
    if first < 0x80:
        return first
    if first < 0xE0:
        return (first & 0x1F) << 6 | int(bytes[at + 1]) & 0x3F
    if first < 0xF0:
        return (first & 0x0F) << 12 | (int(bytes[at + 1]) & 0x3F) << 6 | int(bytes[at + 2]) & 0x3F
    return (
        (first & 0x07) << 18
        | (int(bytes[at + 1]) & 0x3F) << 12
        | (int(bytes[at + 2]) & 0x3F) << 6
        | int(bytes[at + 3]) & 0x3F
    )


@inlined
def put_code_point(bytes, at, code_point):
    """Writes a code point at `bytes[at]`; returns the end (one past its last byte)."""
    if code_point < 0x80:
        bytes[at] = code_point
        return at + 1
    if code_point < 0x800:
        bytes[at] = 0xC0 | code_point >> 6
        bytes[at + 1] = 0x80 | code_point & 0x3F
        return at + 2
    if code_point < 0x10000:
        bytes[at] = 0xE0 | code_point >> 12
        bytes[at + 1] = 0x80 | code_point >> 6 & 0x3F
        bytes[at + 2] = 0x80 | code_point & 0x3F
        return at + 3
    bytes[at] = 0xF0 | code_point >> 18
    bytes[at + 1] = 0x80 | code_point >> 12 & 0x3F
    bytes[at + 2] = 0x80 | code_point >> 6 & 0x3F
    bytes[at + 3] = 0x80 | code_point & 0x3F
    return at + 4
