"""Added tokens in texts that are on the device: kernels/added_tokens.cu. gpu_tok/added_tokens.py is the same step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cpu_ref.added_tokens import BLOCK, COLUMNS, END, FLAGS, START, SUSPECTED, TOKEN_ID
from gpu_tok import added_tokens as on_host
from gpu_tok.added_tokens import WHOLE_TEXT, AddedTokens
from gpu_tok.batch import TextBatch
from gpu_tok.device import Workers
from gpu_tok.on_device.batch_table import starts_on
from gpu_tok.on_device.text import THREADS, Text
from gpu_tok.on_device.text import upload as upload_sections
from gpu_tok.tables import ends
from gpu_tok.tables.added_tokens import NO_PASS, NORMALIZED, RAW, TEXT, U8, AddedTokenTables

ANY_FLAG = 0xFF
FOR_HOST, SUSPECTS, PARTS = 0, 1, 2  # what a pass notices


class TokenTables(NamedTuple):
    """`AddedTokenTables` on the device. row: int32[4 * slots]; token: int32[2 * tokens]; code_point: uint8[0x110000];
    begins: uint8[65536]; opens: uint8[256], 1 for the first bytes of those pairs."""

    row: Any
    normalized_root: int
    token: Any
    code_point: Any
    begins: Any
    opens: Any


class _Search(NamedTuple):
    """A text, where anything may begin in it, and what that may be."""

    bytes: Any
    tile_tokens: Any
    places: Any
    tokens: TokenTables


def upload(device: Any, tables: AddedTokenTables) -> TokenTables:
    """The tables of added tokens in the device's memory."""
    opens = tables.begins.reshape(256, 256).any(axis=1).astype(np.uint8)
    return TokenTables(
        device.upload(tables.row.reshape(-1)),
        tables.normalized_root,
        device.upload(tables.token.reshape(-1)),
        device.upload(tables.code_point),
        device.upload(tables.begins),
        device.upload(opens),
    )


def opening_code_points(begins: U8) -> npt.NDArray[np.bool_]:
    """The code points with which anything may begin: bool[0x110000].

    begins: uint8[65536], by the first two bytes. ASCII is one byte of them, everything else has both.
    """
    pairs = begins.reshape(256, 256) != 0
    opens = np.zeros(0x110000, np.bool_)
    opens[:0x80] = pairs[:0x80].any(axis=1)
    for first, end, head, shift in ((0x80, 0x800, 0xC0, 6), (0x800, 0x10000, 0xE0, 12), (0x10000, 0x110000, 0xF0, 18)):
        value = np.arange(first, end)
        opens[first:end] = pairs[head | value >> shift, 0x80 | value >> shift - 6 & 0x3F]
    return opens


def divide(device: Any, text: Text, tile_tokens: Any, tokens: TokenTables, added: AddedTokens) -> Text:
    """Divides texts at their added tokens; raises `TextError` for a text that the reference cannot divide.

    text: each row one section, as `text.of_rows` makes it, and valid UTF-8. tile_tokens: uint8[tiles], from
    `cut.cut_words`; the others are not looked at. Waits for the device.

    >>> divide(device, of_rows(device, bytes, starts, 0), tile_tokens, tokens, bert).kind    # "the [MASK] sat"
    array([-16, 103, -12], dtype=int32)
    """
    table, row_section = _whole_rows(device.xp, text.section_start), text.row_section
    search = _Search(text.bytes, tile_tokens, _mark_places(device, text.bytes, tile_tokens, tokens), tokens)
    suspects = 0
    for kind, is_needed in ((RAW, added.raw_pass), (NORMALIZED, added.normalized_pass != NO_PASS)):
        if not is_needed:
            continue
        counts, noticed = _count_parts(device, search, table, kind)
        if noticed[FOR_HOST]:
            return _divide_on_host(device, text, added)
        first, suspects = starts_on(device.xp, counts), int(noticed[SUSPECTS])
        table = _write_parts(device, search, table, kind, first, int(noticed[PARTS]))
        row_section = first[row_section]
    if suspects:
        _settle_suspects(device, text.bytes, table, added)
    return _laid_out(device.xp, table, text, row_section)


def _whole_rows(xp: Any, row_start: Any) -> Any:
    """The table of sections, int64[rows, COLUMNS], before anything is divided."""
    table = xp.empty((len(row_start) - 1, COLUMNS), np.int64)
    table[:, START], table[:, END] = row_start[:-1], row_start[1:]
    table[:, TOKEN_ID], table[:, FLAGS] = TEXT, WHOLE_TEXT
    return table


def _mark_places(device: Any, bytes: Any, tile_tokens: Any, tokens: TokenTables) -> Any:
    """Where anything may begin, a bit for each byte of tiles in which a token may: uint64[blocks]."""
    blocks = -(-len(bytes) // BLOCK)
    places = device.xp.empty(blocks, np.uint64)
    device.launch("mark_places", device.grid(blocks, THREADS), THREADS, bytes, len(bytes), tile_tokens, tokens.opens,
                  tokens.begins, places)  # fmt: skip
    return places


def _count_parts(device: Any, search: _Search, table: Any, kind: int) -> tuple[Any, npt.NDArray[np.uint64]]:
    """How many parts each section falls into, and on the host what was noticed: uint64[3]."""
    counts, noticed = device.xp.empty(len(table), np.int64), device.xp.zeros(3, np.uint64)
    _launch_divide(device, search, table, kind, None, counts, None, noticed)
    noticed[PARTS] = counts.sum()
    return counts, device.download(noticed)


def _write_parts(device: Any, search: _Search, table: Any, kind: int, first: Any, parts: int) -> Any:
    """The table of sections after a pass."""
    divided = device.xp.empty((parts, COLUMNS), np.int64)
    _launch_divide(device, search, table, kind, first, None, divided, None)
    return divided


def _launch_divide(device: Any, search: _Search, table: Any, kind: int, *outputs: Any) -> None:
    bytes, tile_tokens, places, tokens = search
    device.launch("divide_sections", device.grid(len(table), THREADS), THREADS, bytes, tile_tokens, places, table,
                  len(table), kind, tokens.row, tokens.normalized_root, tokens.begins, tokens.code_point, tokens.token,
                  *outputs)  # fmt: skip


def _settle_suspects(device: Any, bytes: Any, table: Any, added: AddedTokens) -> None:
    """Normalizes the sections that may hold a token, on the host, and marks as WHOLE those that do."""
    at = device.xp.flatnonzero(table[:, FLAGS] & SUSPECTED)
    suspects = device.download(table[at])
    base = int(suspects[0, START])
    span = device.download(bytes[base : int(suspects[-1, END])])
    for section in suspects:
        start, end = section[START] - base, section[END] - base
        holds = added.holds_normalized(span[start:end].tobytes())
        section[FLAGS] = section[FLAGS] & ~SUSPECTED | (ends.WHOLE if holds else 0)
    table[at] = device.upload(suspects)


def _laid_out(xp: Any, table: Any, text: Text, row_section: Any) -> Text:
    ids, flags = table[:, TOKEN_ID], table[:, FLAGS]
    is_token = ids != TEXT
    section_start = xp.concatenate([table[:, START], text.section_start[-1:]])
    kind = xp.where(is_token, ids, ~flags).astype(np.int32)
    closed = (is_token | (flags & ends.WHOLE != 0)).astype(np.uint8)
    return Text(text.bytes, section_start, kind, closed, row_section, text.tiles)


def _divide_on_host(device: Any, text: Text, added: AddedTokens) -> Text:
    """For texts that the reference cannot divide, which the error names, or covers twice, which are copied."""
    batch = TextBatch(device.download(text.bytes), device.download(text.section_start), valid=True)
    return upload_sections(device, on_host.run(batch, added, Workers(1)), ANY_FLAG)
