"""Added tokens in texts that are on the device: kernels/added_tokens.cu. gpu_tok/added_tokens.py is the same step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_tok.tables.added_tokens import U8, AddedTokenTables


class TokenTables(NamedTuple):
    """`AddedTokenTables` on the device. row: int32[4 * slots]; token: int32[2 * tokens]; code_point: uint8[0x110000];
    begins: uint8[65536]."""

    row: Any
    normalized_root: int
    token: Any
    code_point: Any
    begins: Any


def upload(device: Any, tables: AddedTokenTables) -> TokenTables:
    """The tables of added tokens in the device's memory."""
    row, token = device.upload(tables.row.reshape(-1)), device.upload(tables.token.reshape(-1))
    return TokenTables(
        row, tables.normalized_root, token, device.upload(tables.code_point), device.upload(tables.begins)
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
