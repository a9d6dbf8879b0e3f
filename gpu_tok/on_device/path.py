"""The path of a batch on a device, step under step; written once for every device that has `xp` and `launch`.

All steps are enqueued before anything of them is known, and the host waits once, for the report. Where a guess turns
out wrong (a buffer was too small, a text may hold added tokens, new chunks need the host), kernels do nothing from
there on, and what depends on it is done again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpu_tok.added_tokens import AddedTokens, Sections
from gpu_tok.cold import ColdPath
from gpu_tok.copies import Copy
from gpu_tok.errors import TextError
from gpu_tok.on_device import added_tokens, cut, gather, intern, native
from gpu_tok.on_device.batch_table import Late
from gpu_tok.on_device.cut import Cuts, Words
from gpu_tok.on_device.gather import DeviceRows
from gpu_tok.on_device.intern import DeviceEncoder, Entries
from gpu_tok.on_device.report import (
    ALL_GOOD,
    CHUNKS_SEEN,
    FIRST_BAD,
    HAS_TOKENS,
    IDS_SEEN,
    MISSES_SEEN,
    NEEDS_HOST,
    SPOILED,
    TOKENS_SEEN,
    spoil_if,
)
from gpu_tok.on_device.rooms import MOST_MISSES, Rooms, Shares, enlarged
from gpu_tok.on_device.table import DeviceTable
from gpu_tok.on_device.text import Text, row_at, upload
from gpu_tok.postprocess import Plan, refuse_cut
from gpu_tok.tables.cuts import CutTables


@dataclass(frozen=True)
class Batch:
    """A batch under way. rows: its ids, with more room than they need; told: the report, on its way to the host."""

    text: Text
    plan: Plan | None
    rooms: Rooms
    words: Words
    cuts: Cuts
    found: Entries
    late: Late | None
    rows: DeviceRows
    told: Copy


def encoder_on(
    device: Any, cuts: CutTables, cold: ColdPath, table_bytes: int, added: AddedTokens | None = None
) -> DeviceEncoder:
    """Uploads the tables of the steps and makes an empty persistent table. added: the tokens to look for in texts."""
    cutter = cut.upload(device, cuts, None if added is None else added.tables)
    tables = None if cold.native is None else native.upload(device, cold.native, cold.by_reference)
    return DeviceEncoder(cutter, DeviceTable(device, table_bytes), cold, tables, Shares(), added)


def encode(device: Any, sections: Sections, encoder: DeviceEncoder, plan: Plan | None = None) -> DeviceRows:
    """sections -> ids, exactly the reference's."""
    batch = upload(device, sections, encoder.cold.flags)
    rows = end(device, begin(device, batch, encoder, plan, encoder.shares.rooms(len(batch.bytes))), encoder)
    if encoder.table.is_stale:
        encoder.table.clear()
    return rows


def begin(device: Any, text: Text, encoder: DeviceEncoder, plan: Plan | None, rooms: Rooms) -> Batch:
    """Enqueues all steps of a batch: text -> chunks -> entries -> places -> ids."""
    words = cut.cut_words(device, text, encoder.cuts)
    if not text.is_divided:
        if encoder.shares.expects_tokens:
            text, words = _divided_if_needed(device, text, words, encoder)
        else:
            spoil_if(words.report, TOKENS_SEEN, HAS_TOKENS)
    return _begin_sections(device, text, words, encoder, plan, rooms)


def _begin_sections(
    device: Any, text: Text, words: Words, encoder: DeviceEncoder, plan: Plan | None, rooms: Rooms
) -> Batch:
    """Enqueues the steps that depend on sections."""
    cuts = cut.cut_sections(device, text, words, encoder.cuts)
    found = intern.look_up(device, text, cuts, encoder, rooms)
    late = intern.encode_new(device, text, cuts, found, encoder, rooms)
    rows, told = _place(device, text, cuts, found, late, encoder, plan, rooms)
    return Batch(text, plan, rooms, words, cuts, found, late, rows, told)


def _place(
    device: Any, text: Text, cuts: Cuts, found: Entries, late: Late | None, encoder: DeviceEncoder, plan: Plan | None,
    rooms: Rooms,
) -> tuple[DeviceRows, Copy]:  # fmt: skip
    places = gather.place_sections(device, text, cuts, found, late, encoder.table)
    rows = gather.run(device, text, cuts, found, late, places, encoder.table, plan, rooms.ids)
    return rows, device.fetch(cuts.report)


def end(device: Any, batch: Batch, encoder: DeviceEncoder) -> DeviceRows:
    """Waits for the report of a batch, and does again what was guessed wrong."""
    while True:
        report = batch.told.wait()
        _check(device, batch.text, report)
        if not report[SPOILED]:
            break
        batch = _again(device, batch, encoder, report)
    encoder.shares.learn(report, len(batch.text.bytes))
    encoder.table.note(int(report[MISSES_SEEN]), int(report[CHUNKS_SEEN]))
    if batch.plan is not None and batch.plan.refuses:
        refuse_cut(device.download(batch.rows.text_counts), batch.plan)
    return batch.rows._replace(ids=batch.rows.ids[: int(report[IDS_SEEN])])


def _again(device: Any, batch: Batch, encoder: DeviceEncoder, report: np.ndarray) -> Batch:
    """The batch once more, from the step on that could not do its work."""
    if report[SPOILED] & HAS_TOKENS:
        batch.words.report[SPOILED:] = 0
        text, words = _divided(device, batch.text, batch.words, encoder)
        return _begin_sections(device, text, words, encoder, batch.plan, batch.rooms)
    rooms = enlarged(batch.rooms, report)
    if rooms.misses > MOST_MISSES:
        raise TextError(0, f"and the texts behind it have {report[MISSES_SEEN]} new chunks", "pass fewer texts at once")
    if not batch.rooms.hold(report):
        return begin(device, batch.text, encoder, batch.plan, rooms)
    batch.cuts.report[SPOILED:] = 0
    late = batch.late
    if report[SPOILED] & NEEDS_HOST:
        late = intern.encode_on_host(device, batch.text, batch.cuts, batch.found, encoder)
    rows, told = _place(device, batch.text, batch.cuts, batch.found, late, encoder, batch.plan, rooms)
    return replace(batch, rooms=rooms, late=late, rows=rows, told=told)


def _divided_if_needed(device: Any, text: Text, words: Words, encoder: DeviceEncoder) -> tuple[Text, Words]:
    """The text divided, if it may hold added tokens, and is UTF-8; waits for what its words say."""
    report = device.download(words.report)
    is_needed = int(report[FIRST_BAD]) == ALL_GOOD and report[TOKENS_SEEN] > 0
    return _divided(device, text, words, encoder) if is_needed else (text, words)


def _divided(device: Any, text: Text, words: Words, encoder: DeviceEncoder) -> tuple[Text, Words]:
    """The text divided at its added tokens, and its words; waits for how many parts there are."""
    assert encoder.added is not None
    assert encoder.cuts.tokens is not None
    divided = added_tokens.divide(device, text, words.tile_tokens, encoder.cuts.tokens, encoder.added)
    if divided.bytes is not text.bytes:  # some of it is there twice
        words = cut.cut_words(device, divided, encoder.cuts)
    return divided, words


def _check(device: Any, text: Text, report: np.ndarray) -> None:
    if int(report[FIRST_BAD]) != ALL_GOOD:
        row = row_at(device, text, int(report[FIRST_BAD]))
        raise TextError(row, "is not UTF-8, or a section begins inside a character", 'pass invalid_utf8="replace"')
