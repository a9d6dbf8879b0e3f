"""The hot path against a plain one: cuts, table, late ids and places, with a made-up model in the cold path.

The model gives every chunk ids that follow from its bytes and flags alone, none to forty of them; so any chunk that was
cut elsewhere, looked up wrongly or put in the wrong place shows.
"""

from __future__ import annotations

import random
import zlib

import numba
import numpy as np
import pytest
import texts
from numba.core.registry import cpu_target

from cpu_ref import machine
from cpu_ref.cut import BLOCK, next_cut
from cpu_ref.hot import MISS_FIELDS, MISS_FLAGS, MISS_LENGTH, MISS_START
from cpu_ref.new_chunks import collect
from gpu_tok import cut, intern, pipeline
from gpu_tok.added_tokens import TEXT, Sections
from gpu_tok.batch import Ragged, TextBatch, starts_of
from gpu_tok.intern import Encoder, Table, encode_sections
from gpu_tok.positions import of_sections, section_counts
from gpu_tok.tables import ends
from gpu_tok.tables.cuts import CutTables
from gpu_tok.tables.pairs import NO_PAIRS, may_join

ALL_ENDS = ends.SECTION_FIRST | ends.SECTION_LAST | ends.DOCUMENT_FIRST | ends.SUBSECTION_FIRST


class MadeUpModel:
    """A cold path: ids of a chunk from a checksum of its bytes and flags."""

    native = None

    def __init__(self, flags: int = 0) -> None:
        self.flags = flags
        self.encoded: list[bytes] = []

    def encode(self, chunks: Ragged, flags: np.ndarray) -> Ragged:
        rows = [chunks.row(row).tobytes() for row in range(chunks.count)]
        self.encoded += rows
        ids = [self.ids_of(chunk, int(flag)) for chunk, flag in zip(rows, flags, strict=True)]
        return Ragged(np.array([x for row in ids for x in row], np.int32), starts_of(np.array([len(x) for x in ids])))

    def ids_of(self, chunk: bytes, flag: int) -> list[int]:
        mixed = zlib.crc32(chunk + bytes([flag & (self.flags | ends.WHOLE)]))
        count = (0, 1, 1, 1, 1, 2, 3, 4, 40)[mixed % 9]
        return [(mixed >> 4) + at for at in range(count)]


def random_tables(seed: int, classes: int = 6, share: float = 0.4, ascii_alike: bool = False) -> CutTables:
    """Classes and pairs at random: nothing that a tokenizer would have, so nothing is right by luck."""
    rng = np.random.default_rng(seed)
    class_of = rng.integers(0, classes, 0x110000).astype(np.uint8)
    if ascii_alike:
        class_of[:128] = np.sort(class_of[:128])
    taken = rng.random((classes, classes)) < share
    return CutTables(class_of, taken, taken, np.zeros_like(taken), NO_PAIRS, 0, ())


def asking(tables: CutTables, seed: int) -> CutTables:
    """The same with two more classes of 3 bytes each, of which one is asked for behind both, and a filter half full."""
    rng = np.random.default_rng(seed)
    class_of, first = tables.class_of.copy(), len(tables.taken)
    class_of[0x3000:0xD800] = rng.integers(first, first + 2, 0xD800 - 0x3000)
    taken = np.pad(tables.taken, (0, 2))
    asked = np.zeros_like(taken)
    asked[first : first + 2, first] = True
    taken[asked] = False
    return tables._replace(class_of=class_of, certified=taken, taken=taken, asked=asked, pairs=half_full(rng))


def half_full(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 1 << 32, 1 << 7, np.uint32)


def plain_cuts(text: str, tables: CutTables) -> list[str]:
    chunks: list[str] = []
    for at, character in enumerate(text):
        pair = np.array([ord(text[at - 1])]), np.array([ord(character)])
        classes = tables.class_of[pair[0]], tables.class_of[pair[1]]
        apart = tables.taken[classes] | (tables.asked[classes] & ~may_join(*pair, tables.pairs))
        if at and not apart[0]:
            chunks[-1] += character
        else:
            chunks.append(character)
    return chunks


def plain_ids(text: str, tables: CutTables, model: MadeUpModel, flags: int = ALL_ENDS) -> list[int]:
    chunks = [text] if flags & ends.WHOLE else plain_cuts(text, tables)
    ids: list[int] = []
    for at, chunk in enumerate(chunks):
        own = flags if at == 0 else flags & (ends.SECTION_LAST | ends.WHOLE)
        if at + 1 < len(chunks):
            own &= ~ends.SECTION_LAST
        ids += model.ids_of(chunk.encode(), own)
    return ids


def sections_of(batch: TextBatch) -> Sections:
    rows = len(batch)
    ids, flags = np.full(rows, TEXT, np.int32), np.full(rows, ALL_ENDS, np.uint8)
    return Sections(batch.bytes, batch.starts, ids, flags, np.arange(rows + 1))


def encode(batch: TextBatch, sections: Sections, encoder: Encoder, unit_bytes: int = 1 << 20) -> list[list[int]]:
    """All steps but special tokens, on one thread."""
    sections = cut.divide_long(sections, encoder.cut_table, unit_bytes)
    units = cut.units_of(sections, unit_bytes, ramp=False)
    end_place = np.zeros(len(sections.id), np.int64)
    parts = [encode_sections(unit, sections, end_place, encoder) for unit in units]
    places = of_sections(section_counts(end_place, units), sections.row_section)
    flat = np.concatenate(parts) if parts else np.zeros(0, np.int32)
    starts = starts_of(places.row_counts)
    return [flat[starts[row] : starts[row + 1]].tolist() for row in range(len(batch))]


def encoder_of(tables: CutTables, flags: int = 0, budget: int = 1 << 20) -> Encoder:
    return Encoder(cut.lay_out(tables), Table(budget), MadeUpModel(flags))


def some_texts(seed: int) -> list[str]:
    return [*texts.random_texts(seed, 60, 200), *texts.TEXTS, "", "", *texts.random_code_points(seed, 40)]


@pytest.mark.parametrize("flags", [0, ALL_ENDS, ends.SECTION_FIRST, ends.SECTION_LAST, ends.DOCUMENT_FIRST])
@pytest.mark.parametrize("classes", [1, 2, 6, 8, 32])
def test_ids_are_those_of_the_plain_path_cold_and_warm(classes, flags):
    tables = random_tables(classes, classes, ascii_alike=classes == 6)
    if classes == 8:
        tables = asking(tables, 8)
    encoder = encoder_of(tables, flags)
    given = some_texts(classes)
    batch = TextBatch.of(given)
    expected = [plain_ids(text, tables, encoder.cold) for text in given]
    for _pass in ("cold", "warm"):
        assert encode(batch, sections_of(batch), encoder) == expected


def test_ascii_goes_by_lanes_where_they_fit():
    few = random_tables(1, 3, ascii_alike=True)
    assert cut.lay_out(few).has_lanes[0]
    assert not cut.lay_out(random_tables(1, 32)).has_lanes[0]


@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 63, 64, 65, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
@pytest.mark.parametrize("alphabet", ["ab ", "aé ", "日本 ", "🙂a "])
def test_texts_of_lengths_around_vectors_and_blocks(alphabet, length):
    tables = random_tables(7, 4, ascii_alike=True)
    encoder = encoder_of(tables)
    pick = random.Random(length)
    given = ["".join(pick.choices(alphabet, k=length)), "x", "".join(pick.choices(alphabet, k=length))]
    batch = TextBatch.of(given)
    expected = [plain_ids(text, tables, encoder.cold) for text in given]
    assert encode(batch, sections_of(batch), encoder) == expected
    assert encode(batch, sections_of(batch), encoder) == expected


@pytest.mark.parametrize("unit_bytes", [1, 64, 1000, 10_000])
def test_any_size_of_work_units_gives_the_same_ids(unit_bytes):
    tables = random_tables(3)
    encoder = encoder_of(tables, ALL_ENDS)
    given = [*some_texts(3), "ab " * 20_000]
    batch = TextBatch.of(given)
    expected = [plain_ids(text, tables, encoder.cold) for text in given]
    assert encode(batch, sections_of(batch), encoder, unit_bytes) == expected


@pytest.mark.parametrize(
    ("byte_count", "workers", "expected"),
    [(10, 1, 1 << 22), (10, 2, 1 << 20), (1 << 24, 2, 1 << 21), (1 << 30, 2, 1 << 22)],
)
def test_units_are_large_but_leave_several_for_each_worker(byte_count, workers, expected):
    assert pipeline.unit_bytes(byte_count, workers) == expected


@pytest.mark.parametrize("budget", [0, 1, 1000, 1 << 12, 1 << 16, 1 << 24])
def test_any_budget_of_the_table_gives_the_same_ids(budget):
    tables = random_tables(4)
    encoder = encoder_of(tables, budget=budget)
    for seed in range(3):
        given = some_texts(seed)
        batch = TextBatch.of(given)
        expected = [plain_ids(text, tables, encoder.cold) for text in given]
        assert encode(batch, sections_of(batch), encoder) == expected
    assert encoder.table.use.bytes <= budget


def test_new_chunks_are_collected_once_each():
    generator = random.Random(1)
    text = bytes(generator.choices(b"ab", k=2000))
    misses = np.zeros((3000, MISS_FIELDS), np.int64)
    for miss in misses:
        miss[MISS_LENGTH] = generator.choice([1, 2, 3, 8, 14, 15, 16, 17, 40, 300])
        miss[MISS_START] = generator.choice([0, 1, generator.randrange(1700), len(text) - miss[MISS_LENGTH]])
        miss[MISS_FLAGS] = generator.choice([0, 0, 1, 15, ends.WHOLE, ends.WHOLE | 1])
    count = len(misses) - 1  # the last one is not asked for
    number, chunks = collect(np.frombuffer(text, np.uint8).copy(), misses, count)

    distinct: dict[tuple[bytes, int], int] = {}
    expected = []
    for miss in misses[:count].tolist():
        start = miss[MISS_START]
        chunk = text[start : start + miss[MISS_LENGTH]], miss[MISS_FLAGS]
        expected.append(distinct.setdefault(chunk, len(distinct)))
    assert number.tolist() == expected
    assert chunks.bytes.tobytes() == b"".join(chunk for chunk, _flags in distinct)
    assert np.diff(chunks.starts).tolist() == [len(chunk) for chunk, _flags in distinct]
    assert chunks.flags.tolist() == [flags for _chunk, flags in distinct]
    assert chunks.first.tolist() == [expected.index(index) for index in range(len(distinct))]


def test_a_known_chunk_is_not_encoded_again():
    tables = random_tables(5)
    encoder = encoder_of(tables)
    batch = TextBatch.of(some_texts(5))
    encode(batch, sections_of(batch), encoder)
    encoder.cold.encoded.clear()
    encode(batch, sections_of(batch), encoder)
    assert all(len(chunk) > 256 for chunk in encoder.cold.encoded)
    encoder.table.clear()
    encode(batch, sections_of(batch), encoder)
    assert len(encoder.cold.encoded) > 100


def test_a_table_that_grows_gives_the_same_ids(monkeypatch):
    monkeypatch.setattr(intern, "FIRST_ROWS", 16)
    tables = random_tables(12)
    encoder = encoder_of(tables, ALL_ENDS, 1 << 22)
    for seed in range(4):
        given = some_texts(seed)
        batch = TextBatch.of(given)
        expected = [plain_ids(text, tables, encoder.cold) for text in given]
        assert encode(batch, sections_of(batch), encoder) == expected
    assert len(encoder.table.arrays.rows) > 4 * 1000
    encoder.cold.encoded.clear()
    assert encode(batch, sections_of(batch), encoder) == expected
    assert len([chunk for chunk in encoder.cold.encoded if len(chunk) <= 256]) < 20


def test_a_full_table_begins_a_new_generation_when_the_texts_changed():
    tables = random_tables(6, share=1.0)
    encoder = encoder_of(tables, budget=1 << 12)
    for seed in range(60):
        given = texts.random_code_points(seed, 200)
        batch = TextBatch.of(given)
        assert encode(batch, sections_of(batch), encoder) == [plain_ids(text, tables, encoder.cold) for text in given]
    assert encoder.table.generation > 0


@pytest.mark.parametrize("flags", [0, ALL_ENDS])
def test_added_tokens_and_whole_sections_are_not_cut(flags):
    tables = random_tables(8)
    encoder = encoder_of(tables, flags)
    pick = random.Random(8)
    given, rows, expected = [], [], []
    for text in some_texts(8):
        pieces = [
            (text, TEXT, ALL_ENDS),
            ("[X] y" * pick.randrange(1, 40), 7, 0),
            (text[::-1], TEXT, ends.SECTION_LAST),
        ]
        pieces += [("whole " * pick.randrange(900), TEXT, ALL_ENDS | ends.WHOLE), ("<s>", 3, 0), ("<s>", 4, 0)]
        pick.shuffle(pieces)
        rows.append(pieces[: pick.randrange(len(pieces) + 1)])
        given.append("".join(piece for piece, _id, _flags in rows[-1]))
        ids = [[id_] if id_ != TEXT else plain_ids(piece, tables, encoder.cold, flag) for piece, id_, flag in rows[-1]]
        expected.append([x for row in ids for x in row])
    batch = TextBatch.of(given)
    flat = [piece for row in rows for piece in row]
    sections = Sections(
        batch.bytes,
        starts_of(np.array([len(piece.encode()) for piece, _id, _flags in flat])),
        np.array([id_ for _piece, id_, _flags in flat], np.int32),
        np.array([flag for _piece, _id, flag in flat], np.uint8),
        starts_of(np.array([len(row) for row in rows])),
    )
    for _pass in ("cold", "warm"):
        assert encode(batch, sections, encoder) == expected
        assert encode(batch, sections, encoder, 500) == expected


@pytest.mark.parametrize("tables", [random_tables(9, share=0.1), asking(random_tables(9, share=0.1), 9)])
def test_a_long_text_is_divided_at_cuts_only(tables):
    table = cut.lay_out(tables)
    text = "".join(texts.random_code_points(9, 2000, 30))
    batch = TextBatch.of([text])
    edges = {0}
    for chunk in plain_cuts(text, tables):
        edges.add(max(edges) + len(chunk.encode()))
    divided = cut.divide_long(sections_of(batch), table, 500)
    assert len(divided.id) > 10
    assert set(divided.start.tolist()) <= edges
    assert divided.flags[0] & ends.SECTION_FIRST
    assert not divided.flags[0] & ends.SECTION_LAST
    assert divided.flags[-1] == ends.SECTION_LAST
    assert next_cut(batch.bytes, 0, len(batch.bytes), table) in edges


def test_rows_that_differ_only_in_flags_are_not_the_same():
    tables = random_tables(10, share=1.0)
    encoder = encoder_of(tables, ends.SECTION_FIRST)
    batch = TextBatch.of(["aaaa"] * 50)
    assert encode(batch, sections_of(batch), encoder) == [plain_ids("aaaa", tables, encoder.cold)] * 50
    assert encode(batch, sections_of(batch), encoder) == [plain_ids("aaaa", tables, encoder.cold)] * 50


def test_a_wrong_row_in_the_table_would_be_seen():
    """The tests above compare ids; this one shows that they can fail: a row with other ids changes the result."""
    tables = random_tables(11)
    encoder = encoder_of(tables)
    batch = TextBatch.of(["some text of several words"] * 3)
    right = encode(batch, sections_of(batch), encoder)
    rows = encoder.table.arrays.rows.reshape(-1, 4)
    rows[rows[:, 1] != 0, 2] += np.uint64(1)
    assert encode(batch, sections_of(batch), encoder) != right


@pytest.mark.parametrize("permutes", [False, True])
def test_ascii_is_classified_alike_on_every_processor(permutes, monkeypatch):
    context = cpu_target.target_context
    if permutes and not machine.has_byte_permute(context):
        pytest.skip("this processor has no AVX-512 VBMI")
    monkeypatch.setattr(machine, "has_byte_permute", lambda _context: permutes)

    @numba.njit
    def classify(text, values, ranges, before, after):
        addresses = values.ctypes.data, ranges.ctypes.data, len(ranges) // 4, before.ctypes.data, after.ctypes.data
        machine.classify(text.ctypes.data, *addresses)

    table = cut.lay_out(random_tables(3, 5))
    for begin in (0, 64):
        before, after = np.zeros((2, 64), np.uint8)
        classify(np.arange(begin, begin + 64, dtype=np.uint8), table.values, table.ranges, before, after)
        assert np.array_equal([before, after], table.values.reshape(2, 128)[:, begin : begin + 64])


@pytest.mark.parametrize("compresses", [False, True])
@pytest.mark.parametrize("mask", [0, 1, 1 << 63, 0b1011, 0x8000_0000_0100_0001, (1 << 64) - 1, (1 << 64) - 2])
def test_bits_are_listed_alike_on_every_processor(mask, compresses, monkeypatch):
    if compresses and not machine.has_byte_compress(cpu_target.target_context):
        pytest.skip("this processor has no AVX-512 VBMI2")
    monkeypatch.setattr(machine, "has_byte_compress", lambda _context: compresses)

    @numba.njit
    def write_places(mask, first, places):
        machine.write_places(mask, first, machine.address_of(places))

    places = np.full(machine.LANES + 1, -1, np.int64)
    write_places(np.uint64(mask), 1000, places)
    expected = [1000 + bit for bit in range(64) if mask >> bit & 1]
    assert places[: len(expected)].tolist() == expected
    assert places[-1] == -1
