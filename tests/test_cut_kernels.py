"""kernels/cut.cu on the emulator, stage by stage beside cpu_ref: masks, sections, counts, and what is no UTF-8."""

from __future__ import annotations

import functools
import itertools
import random

import kernel_copies
import numpy as np
import pytest
import texts
import vocabularies
from hypothesis import given, settings
from hypothesis import strategies as st
from test_added_tokens import ALPHABET, NORMALIZERS, definition, some_tokens, token
from test_hot import asking

from cpu_ref import cut as reference
from cpu_ref import hot
from cpu_ref.machine import LANES
from gpu_tok.added_tokens import TEXT, WHOLE_TEXT, find_sections
from gpu_tok.batch import TextBatch, starts_of
from gpu_tok.cut import lay_out
from gpu_tok.emulated import EmulatedDevice, Mode, replay
from gpu_tok.errors import DeviceError
from gpu_tok.on_device import cut
from gpu_tok.on_device.report import ALL_GOOD, FIRST_BAD, TOKENS_SEEN, new_report
from gpu_tok.on_device.text import of_rows
from gpu_tok.tables import ends
from gpu_tok.tables.added_tokens import AddedTokenTables, compile_added_tokens
from gpu_tok.tables.cuts import CutTables, cuts_between, derive
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.pairs import NO_PAIRS
from gpu_tok.tables.runs import LONGEST_RUN, Runs
from gpu_tok.tables.thirds import Thirds, Three

THREADS = 256
WORD = 32  # bytes of text to a word of the mask
TILE_WORDS = 32
TILE = WORD * TILE_WORDS
GUARD = 4  # words behind a result that a kernel must leave alone
SIZES = (0, 1, 31, 32, 33, 63, 64, 65, THREADS * 8 - 1, TILE - 1, TILE, TILE + 1, 2 * TILE + 17, 8 * TILE, 8 * TILE + 1)
ALPHABETS = {
    "ASCII": "ab .,\n1",
    "two bytes": "éß a",
    "three bytes": "中文，は a",
    "four bytes": "😀𝄞中é a",
}


@pytest.fixture(scope="module")
def device():
    try:
        return EmulatedDevice()
    except DeviceError as error:
        pytest.skip(error.finding)


@functools.cache
def random_tables(seed: int, classes: int = 6) -> CutTables:
    rng = np.random.default_rng(seed)
    taken = rng.random((classes, classes)) < 0.4
    class_of = rng.integers(0, classes, 0x110000).astype(np.uint8)
    return CutTables(class_of, taken, taken, np.zeros_like(taken), NO_PAIRS, 0, ())


def random_bytes(seed: int, alphabet: str, count: int) -> np.ndarray:
    """Whole code points of the alphabet; spaces fill what no code point fits into."""
    rng = random.Random(seed)
    flat = bytearray()
    while len(flat) < count:
        character = rng.choice(alphabet).encode()
        flat += character if len(flat) + len(character) <= count else b" "
    return np.frombuffer(bytes(flat), np.uint8)


def words_for(count: int) -> int:
    return -(-count // WORD)


def tiles_for(words: int) -> int:
    return -(-words // TILE_WORDS)


def guarded(words: int, dtype) -> np.ndarray:
    return np.full(words + GUARD, 0xA5, dtype)


def unguarded(array: np.ndarray) -> np.ndarray:
    assert (array[-GUARD:] == 0xA5).all(), "written behind the end"
    return array[:-GUARD]


def counts_of(mask: np.ndarray) -> list[int]:
    """How many bits each tile of the mask has."""
    padded = np.zeros(tiles_for(len(mask)) * TILE_WORDS, np.uint32)
    padded[: len(mask)] = mask
    return np.unpackbits(padded.view(np.uint8)).reshape(-1, TILE).sum(axis=1).tolist()


def run_cut_words(
    device, flat: np.ndarray, tables: CutTables, grid: int = 3, added: AddedTokenTables | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The mask and the report; the chunks of tiles, and in which of them tokens may begin, are looked at here."""
    on_device = cut.upload(device, tables, added)
    mask, report = guarded(words_for(len(flat)), np.uint32), new_report(device)
    tile_chunks = guarded(tiles_for(len(mask) - GUARD), np.int64)
    tile_tokens = None if added is None else np.zeros(len(tile_chunks) - GUARD, np.uint8)
    device.launch("cut_words", grid, THREADS, flat, len(flat), *cut.table_arguments(on_device),
                  mask, tile_chunks, tile_tokens, report)  # fmt: skip
    assert unguarded(tile_chunks).tolist() == counts_of(unguarded(mask))
    if tile_tokens is not None:
        assert (tile_tokens.sum() > 0) == (report[TOKENS_SEEN] > 0)
        assert tile_tokens.max(initial=0) <= 1
    return unguarded(mask), report


def tiles_with_tokens(device, flat: np.ndarray, added: AddedTokenTables) -> list[int]:
    tables = cut.upload(device, random_tables(2), added)
    whole = of_rows(device, flat, np.array([0, len(flat)]), 0)
    return np.flatnonzero(cut.cut_words(device, whole, tables).tile_tokens).tolist()


def run_cut_sections(device, flat, start, closed, mask, grid: int = 3, tables: CutTables | None = None) -> int:
    """Changes the mask; returns FIRST_BAD."""
    report, tile_chunks = new_report(device), np.array(counts_of(mask), np.int64)
    arguments = cut.border_arguments(cut.upload(device, tables)) if tables else (None, None, None)
    device.launch("cut_sections", grid, THREADS, flat, len(flat), start, len(start) - 1, closed, *arguments,
                  mask, tile_chunks, report)  # fmt: skip
    assert tile_chunks.tolist() == counts_of(mask)
    return int(report[FIRST_BAD])


def reference_mask(flat: np.ndarray, tables: CutTables) -> np.ndarray:
    table = lay_out(tables)
    mask = np.zeros(-(-len(flat) // LANES), np.uint64)
    scratch = np.empty(2 * reference.SCRATCH, np.uint8), np.empty(2 * reference.SCRATCH, np.uint8)
    state, paired = (np.int64(table.class_of[0]), np.int64(0), np.int64(0)), 0
    for begin in range(0, len(flat), reference.BLOCK):
        count = min(reference.BLOCK, len(flat) - begin)
        part = mask[begin // LANES :]
        *state, paired = reference.cut_block(flat, begin, count, *state, np.uint64(paired), table, part, *scratch)
    return mask.view(np.uint32)[: words_for(len(flat))]


def plain_mask(flat: np.ndarray, tables: CutTables) -> np.ndarray:
    bits = np.zeros(words_for(len(flat)) * WORD, np.bool_)
    text = "\0" + flat.tobytes().decode()
    _certified, taken = cuts_between(np.frombuffer(text.encode("utf-32-le"), np.uint32), tables)
    bits[np.flatnonzero(flat & 0xC0 != 0x80)] = taken
    return np.packbits(bits, bitorder="little").view(np.uint32)


def assert_same_bits(ours: np.ndarray, expected: np.ndarray) -> None:
    differ = np.flatnonzero(np.unpackbits((ours ^ expected).view(np.uint8), bitorder="little"))
    assert len(ours) == len(expected)
    assert len(differ) == 0, f"first at byte {differ[0]}, {len(differ)} in all"


@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize("count", SIZES)
def test_cuts_are_those_of_the_cpu_and_of_the_definition(count, alphabet, device):
    flat, tables = random_bytes(count, ALPHABETS[alphabet], count), random_tables(count)
    mask, report = run_cut_words(device, flat, tables)
    assert report[FIRST_BAD] == ALL_GOOD
    assert_same_bits(mask, reference_mask(flat, tables))
    assert_same_bits(mask, plain_mask(flat, tables))


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_pairs_are_asked_for_as_on_the_cpu(alphabet, device):
    flat, tables = random_bytes(3, ALPHABETS[alphabet] + "国は", 3000), asking(random_tables(5), 5)
    mask, _report = run_cut_words(device, flat, tables)
    assert_same_bits(mask, reference_mask(flat, tables))
    assert_same_bits(mask, plain_mask(flat, tables))


def running(tables: CutTables, seed: int) -> CutTables:
    """The same with three more classes of 3 bytes, asked for behind one another anywhere or in good runs only."""
    rng = np.random.default_rng(seed)
    tables = asking(tables, seed)
    class_of, first = tables.class_of.copy(), len(tables.taken)
    class_of[0x3000:0xD800] = rng.integers(first - 2, first + 3, 0xD800 - 0x3000)
    taken, asked, in_runs, begins = (np.pad(table, (0, 3)) for table in (tables.taken, *3 * [tables.asked]))
    inside = np.arange(len(taken)) >= first - 1
    in_runs[inside] = inside & ~asked[inside]
    in_runs[first + 2, first] = False  # so runs go on where nothing is asked
    begins[:] = inside & (rng.random(begins.shape) < 0.1)
    taken[asked | in_runs] = False
    runs = Runs(in_runs & ~asked, begins, inside)
    return tables._replace(class_of=class_of, certified=taken, taken=taken, asked=asked, runs=runs)


@pytest.mark.parametrize("alphabet", ["中国はがカ가あ文", "中国はがカ가あ文 a。é😀"])
@pytest.mark.parametrize("count", [2, 31, 33, 300, TILE - 1, TILE + 4, 3 * TILE + 17])
def test_good_runs_are_found_as_on_the_cpu(count, alphabet, device):
    for seed in range(4):
        flat, tables = random_bytes(seed, alphabet, count), running(random_tables(seed), seed)
        mask, _report = run_cut_words(device, flat, tables)
        assert_same_bits(mask, reference_mask(flat, tables))
        assert_same_bits(mask, plain_mask(flat, tables))


@pytest.mark.parametrize("before", [0, 1, 2, 29, 30, 31, TILE - 1])
def test_runs_are_as_long_as_on_the_cpu(before, device):
    """Behind a neighbour that fits nothing begins anew, so pairs are asked for until the run is too long."""
    tables = running(random_tables(1), 1)
    run, space = (tables.class_of[ord(c)] for c in "中 ")
    begins = np.zeros_like(tables.runs.begins)
    begins[space] = tables.runs.inside
    one_class = np.where(tables.class_of < len(tables.taken) - 4, tables.class_of, run).astype(np.uint8)
    one_class[0x3000:0xD800] = len(tables.taken) - 1
    tables = tables._replace(
        class_of=one_class, pairs=np.zeros(1 << 9, np.uint32), runs=tables.runs._replace(begins=begins)
    )
    tables.runs.asked[-1, -1] = True
    flat = np.frombuffer(("a" * before + " " + "中" * (2 * LONGEST_RUN) + "a中中").encode(), np.uint8)
    mask, _report = run_cut_words(device, flat, tables)
    assert_same_bits(mask, reference_mask(flat, tables))
    assert_same_bits(mask, plain_mask(flat, tables))
    cuts = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
    in_the_run = (cuts[(cuts > before + 1) & (cuts < before + 1 + 6 * LONGEST_RUN)] - before - 1) // 3
    assert in_the_run.tolist() == list(range(1, LONGEST_RUN + 1))


@given(
    st.lists(st.sampled_from([b"\xe4\xb8\xad", b"\xe5\x9b\xbd", b"\x80", b"\xe4\xb8", b"\xe4", b"\xf0\x9f"])),
    st.integers(0, 40),
)
@settings(max_examples=200, deadline=None)
def test_what_is_no_utf8_leads_no_run_out_of_the_text(device, parts, before):
    joined = b"".join([*parts, "中".encode() * before])
    _, report = run_cut_words(device, np.frombuffer(joined, np.uint8), running(random_tables(1), 1))
    assert report[FIRST_BAD] == first_bad_of(joined)


@pytest.mark.parametrize("classes", [1, 2, 32])
def test_any_number_of_classes_will_do(classes, device):
    flat, tables = random_bytes(1, "ab cdé中文。😀.\n", 3000), random_tables(classes, classes)
    assert_same_bits(run_cut_words(device, flat, tables)[0], plain_mask(flat, tables))


def test_hard_texts_are_cut_as_on_the_cpu(device):
    flat = np.frombuffer("".join(text for text, _reason in texts.HARD_TEXTS).encode(), np.uint8)
    tables = random_tables(7)
    mask, report = run_cut_words(device, flat, tables)
    assert report[FIRST_BAD] == ALL_GOOD
    assert_same_bits(mask, reference_mask(flat, tables))


def test_any_order_of_threads_and_any_grid_gives_the_same_mask(device):
    flat, tables = random_bytes(5, "ab é中😀", TILE + 100), random_tables(5)
    expected, _ = run_cut_words(device, flat, tables)
    for seed, grid in ((1, 1), (2, 2), (3, 40)):
        assert_same_bits(run_cut_words(EmulatedDevice(seed), flat, tables, grid)[0], expected)


@given(
    st.lists(st.sampled_from(["a", "é", "中", "😀", b"\x80", b"\xc2", b"\xe4\xb8", b"\xf0\x9f", b"\xff"])), st.data()
)
@settings(max_examples=200, deadline=None)
def test_the_first_byte_that_is_no_utf8_is_reported(device, parts, data):
    before = data.draw(st.integers(0, 40))  # puts the parts around the borders between words
    joined = b"a" * before + b"".join(part if isinstance(part, bytes) else part.encode() for part in parts)
    _, report = run_cut_words(device, np.frombuffer(joined, np.uint8), random_tables(1))
    assert report[FIRST_BAD] == first_bad_of(joined)


@pytest.mark.parametrize(
    "wrong",
    [b"\xc0\x80", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80"],
)
def test_overlong_forms_surrogates_and_large_values_are_no_utf8(wrong, device):
    for before in (0, 29, 30, 31, 32):
        joined = b"a" * before + wrong + b"a"
        assert run_cut_words(device, np.frombuffer(joined, np.uint8), random_tables(1))[1][FIRST_BAD] == before


def first_bad_of(joined: bytes) -> int:
    try:
        joined.decode()
    except UnicodeDecodeError as error:
        return error.start
    return ALL_GOOD


def random_sections(seed: int, flat: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Starts at code points, some sections empty; ids and flags, as added tokens and whole sections have them."""
    rng = np.random.default_rng(seed)
    heads = np.append(np.flatnonzero(flat & 0xC0 != 0x80), len(flat))
    start = np.sort(rng.choice(heads, count - 1)) if count > 1 else np.empty(0, np.int64)
    ids = np.where(rng.random(count) < 0.3, 7, TEXT).astype(np.int32)
    flags = np.where(rng.random(count) < 0.1, ends.WHOLE, 0).astype(np.uint8)
    return np.concatenate([[0], start, [len(flat)]]).astype(np.int64), ids, flags


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 700])
@pytest.mark.parametrize("length", [0, 1, 33, TILE + 1])
def test_sections_are_cut_as_on_the_cpu(count, length, device):
    flat, tables = random_bytes(length, "ab é中😀", length), random_tables(length)
    start, ids, flags = random_sections(count, flat, count)
    closed = ((ids != TEXT) | (flags & ends.WHOLE != 0)).astype(np.uint8)
    mask = run_cut_words(device, flat, tables)[0].copy()
    expected = sections_on_the_cpu(mask, flat, start, ids, flags, tables)
    assert run_cut_sections(device, flat, start, closed, mask) == ALL_GOOD
    assert_same_bits(mask, expected)


def sections_on_the_cpu(mask, flat, start, ids, flags, tables: CutTables) -> np.ndarray:
    """The mask with the cuts of sections."""
    whole = np.zeros(-(-len(flat) // LANES) * 2, np.uint32)
    whole[: len(mask)] = mask
    sections = (len(start) - 1, start, ids, flags)
    hot._cut_at_sections(whole.view(np.uint64), 0, len(flat), 0, *sections, flat, lay_out(tables))
    return whole[: len(mask)]


def test_without_closed_sections_only_starts_are_added(device):
    flat = random_bytes(3, "ab", 100)
    mask = np.zeros(words_for(100), np.uint32)
    run_cut_sections(device, flat, np.array([0, 40, 40, 99, 100]), None, mask)
    assert np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist() == [0, 40, 99]


def test_a_hundred_thousand_empty_texts_have_no_chunks(device):
    mask = np.zeros(0, np.uint32)
    assert run_cut_sections(device, np.zeros(0, np.uint8), np.zeros(100_001, np.int64), None, mask) == ALL_GOOD


def test_one_closed_section_of_many_words_has_one_cut(device):
    flat = random_bytes(4, "ab", 3 * TILE)
    mask = np.full(words_for(len(flat)), 0xFFFFFFFF, np.uint32)
    run_cut_sections(device, flat, np.array([0, 5, len(flat) - 3, len(flat)]), np.array([0, 1, 0], np.uint8), mask)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    assert np.flatnonzero(bits).tolist() == [0, 1, 2, 3, 4, 5, len(flat) - 3, len(flat) - 2, len(flat) - 1]


def test_a_text_that_begins_inside_a_code_point_is_reported(device):
    flat = np.frombuffer("a中b".encode(), np.uint8)
    mask = np.zeros(1, np.uint32)
    assert run_cut_sections(device, flat, starts_of(np.array([2, 3])), None, mask) == 2


TOKENS = ["<a>", "<", "[x]", "  ", "é", "中b", "😀"]


def places_of_tokens(flat: np.ndarray, contents: list[str]) -> int:
    """At how many bytes any of these begins."""
    joined = flat.tobytes()
    return sum(any(joined.startswith(content.encode(), at) for content in contents) for at in range(len(joined)))


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("contents", [TOKENS, ["<ab>", "<a"], ["[x]"], ["a"]], ids=str)
def test_places_where_a_token_begins_are_counted(contents, normalized, device):
    added = compile_added_tokens(definition([token(content, normalized=normalized) for content in contents])).tables
    for before in range(40):  # puts the tokens around the borders between words
        flat = np.frombuffer(("b" * before + "".join(TOKENS) + "<a<ab>[x[x] é[<").encode(), np.uint8)
        mask, report = run_cut_words(device, flat, random_tables(2), 3, added)
        assert report[TOKENS_SEEN] == places_of_tokens(flat, contents)
        assert_same_bits(mask, plain_mask(flat, random_tables(2)))


@pytest.mark.parametrize("share", [0, 1, 40])
def test_places_of_all_tiles_are_added_up(share, device):
    added = compile_added_tokens(definition([token("<a>")])).tables
    flat = random_bytes(share, "b" * 1000 + "<a>" * share, 5 * TILE + 9)
    report = run_cut_words(device, flat, random_tables(2), 2, added)[1]
    assert report[TOKENS_SEEN] == places_of_tokens(flat, ["<a>"])


@pytest.mark.parametrize("token_at", [(), (0,), (TILE - 1,), (TILE - 3, 2 * TILE), (5, 9, 3 * TILE + 40, 5 * TILE)])
def test_tiles_in_which_a_token_begins_are_marked(token_at, device):
    added = compile_added_tokens(definition([token("<a>")])).tables
    flat = np.full(5 * TILE + 9, ord("<"), np.uint8)
    for at in token_at:
        flat[at : at + 3] = np.frombuffer(b"<a>", np.uint8)
    assert tiles_with_tokens(device, flat, added) == sorted({at // TILE for at in token_at})


@given(
    given=st.lists(st.text(ALPHABET, max_size=12), max_size=3),
    tokens=some_tokens,
    name=st.sampled_from(sorted(NORMALIZERS)),
)
@settings(max_examples=100, deadline=None)
def test_no_text_that_holds_a_token_is_overlooked(given, tokens, name, device):
    """However many tokens are normalized, and where one may come about only when its text is."""
    made = definition(tokens, NORMALIZERS[name])
    batch = TextBatch.of(given)
    added = compile_added_tokens(made)
    report = run_cut_words(device, batch.bytes, random_tables(2), 3, added.tables)[1]
    if report[TOKENS_SEEN] == 0:
        sections = find_sections(batch.bytes, batch.starts, added)
        assert (sections.flags == WHOLE_TEXT).all()
        assert sections.start.tolist() == batch.starts[:-1].tolist()


DECIDING = 4 * " " + " \t\nab1'.:(\u00a0\u3000é中😀"  # what thirds of real tokenizers tell apart, and other lengths
REAL = ("gpt2", "llama-3", "o200k_base", "deepseek-v3", "qwen3")
TOKENS_AMONG_THEM = compile_added_tokens(definition([token(content) for content in ("'a", " .", "é1", "中")])).tables
WITH_THIRDS = [
    *("made up", "own/byte-level", "own/ignore-merges"),
    *(pytest.param(f"shared/{name}", marks=pytest.mark.slow) for name in REAL),
]


def made_up_thirds(seed: int) -> CutTables:
    """Any cuts and any thirds, middle ones that are not ASCII among them."""
    rng = np.random.default_rng(seed)
    tables = random_tables(seed, 12)
    sets = rng.random((6, 12)) < 0.5
    taken = tables.taken & (rng.random((12, 12)) < 0.4)
    return tables._replace(taken=taken, certified=taken, thirds=Thirds.of(Three(*sets[:3]), Three(*sets[3:])))


@pytest.fixture(scope="module", params=WITH_THIRDS)
def deciding(request, definition_text) -> list[CutTables]:
    """Tables with cuts that a third character decides."""
    if request.param == "made up":
        return [made_up_thirds(seed) for seed in range(6)]
    tables = derive(Definition.from_str(definition_text(request.param)))
    assert tables.thirds is not None
    return [tables._replace(runs=None)]  # those look over the borders of sections, too


def sectioned_mask(flat: np.ndarray, start: np.ndarray, closed: np.ndarray | None, tables: CutTables) -> np.ndarray:
    """Each section on its own: a cut where it begins, and inside what the definition says, or none in closed ones."""
    bits = np.zeros(words_for(len(flat)) * WORD, np.bool_)
    for section, (begin, end) in enumerate(itertools.pairwise(start.tolist())):
        bits[begin:end] = np.arange(begin, end) == begin
        if closed is None or not closed[section]:
            part = flat[begin:end]
            text = np.frombuffer(part.tobytes().decode().encode("utf-32-le"), np.uint32)
            bits[begin + np.flatnonzero(part & 0xC0 != 0x80)[1:]] = cuts_between(text, tables)[1]
    return np.packbits(bits, bitorder="little").view(np.uint32)


def check_words_by_thirds(device, deciding: list[CutTables]) -> None:
    for seed, count in enumerate([1, 2, 3, 31, 32, 33, 64, 65, 500, TILE - 1, TILE + 1, THREADS * WORD + TILE + 5]):
        tables = deciding[seed % len(deciding)]
        flat = random_bytes(seed, DECIDING if seed % 2 else " a.'\t", count)
        for added in (None, TOKENS_AMONG_THEM):
            mask, report = run_cut_words(device, flat, tables, 1 + seed % 3, added)
            assert report[FIRST_BAD] == ALL_GOOD
            assert_same_bits(mask, plain_mask(flat, tables))
            assert_same_bits(mask, reference_mask(flat, tables))


def check_sections_by_thirds(device, deciding: list[CutTables]) -> None:
    for seed, (length, sections) in enumerate([(1, 3), (40, 1), (70, 30), (TILE + 9, 200), (8 * TILE + 50, 4000)]):
        tables = deciding[seed % len(deciding)]
        flat = random_bytes(seed, DECIDING if seed % 2 else " a.'\t", length)
        start, some_ids, _flags = random_sections(seed, flat, sections)
        mask = run_cut_words(device, flat, tables, 3, TOKENS_AMONG_THEM)[0]
        for ids in (np.full(sections, TEXT), some_ids):
            closed = None if ids is not some_ids else (ids != TEXT).astype(np.uint8)
            ours = mask.copy()
            assert run_cut_sections(device, flat, start, closed, ours, 3, tables) == ALL_GOOD
            assert_same_bits(ours, sectioned_mask(flat, start, closed, tables))
            rows = mask.copy()  # cut by some of the borders first, and then by all
            run_cut_sections(device, flat, np.append(start[:-1:3], start[-1]), None, rows, 3, tables)
            run_cut_sections(device, flat, start, closed, rows, 3, tables)
            assert_same_bits(rows, ours)
            flags = np.zeros(sections, np.uint8)
            assert_same_bits(ours, sections_on_the_cpu(mask, flat, start, ids.astype(np.int32), flags, tables))


def test_a_third_character_decides_as_the_definition_says(deciding, device):
    check_words_by_thirds(device, deciding)


def test_a_third_character_decides_wherever_words_begin(deciding, device):
    for before in range(WORD + 1):
        for middle in ("   a", "..a", ".'s", "a'b", "\t\ta", "é''s", "中  1", "\u00a0\u00a0a"):
            flat = np.frombuffer(("b" * before + middle + "b" * (WORD - 1)).encode(), np.uint8)
            for tables in deciding:
                assert_same_bits(run_cut_words(device, flat, tables)[0], plain_mask(flat, tables))


def test_a_third_character_of_another_section_decides_nothing(deciding, device):
    check_sections_by_thirds(device, deciding)


@pytest.mark.parametrize("text", ["   a", "..a..a", ".'s.'s", "a  . 's  1", "é  中''s"])
def test_every_division_of_a_text_is_cut_as_each_part_alone(text, device):
    flat = np.frombuffer(("b" * (WORD - 3) + text).encode(), np.uint8)
    tables = derive(Definition.from_str(vocabularies.text("own/byte-level")))
    mask = run_cut_words(device, flat, tables)[0]
    heads = np.flatnonzero(flat & 0xC0 != 0x80)[-len(text) :]
    for chosen in itertools.product([False, True], repeat=len(text)):
        start = np.concatenate([[0], heads[list(chosen)], [len(flat)]])
        ours = mask.copy()
        run_cut_sections(device, flat, start, None, ours, 3, tables)
        assert_same_bits(ours, sectioned_mask(flat, start, None, tables))


THIRD_FAULTS = {
    "nothing seen behind the word": ("cuts |= cut_by_next(", "cuts |= 0 * cut_by_next("),
    "nothing seen before the word": (
        "if (by_thirds) state.kinds = kinds_before(",
        "if (false) state.kinds = kinds_before(",
    ),
    "nothing seen before 8 bytes": ("pairs << 8 | state.kinds;", "pairs << 8;"),
    "a middle one of several bytes": ("if (found.length != 1) kinds = NO_KIND;", ""),
    "nothing taken back": ("!is_closed && end - start > 1", "false"),
    "nothing taken back at the end": ("take_back(BEHIND_CUT, bytes, end - 1,", "take_back(NO_KIND, bytes, end - 1,"),
    "nothing taken back at the start": (
        "take_back(BEFORE_CUT, bytes, start + 1,",
        "take_back(NO_KIND, bytes, start + 1,",
    ),
    "the start of the next section taken back": (
        "take_back(BEHIND_CUT, bytes, end - 1,",
        "take_back(BEHIND_CUT, bytes, min(end, count - 1),",
    ),
    "cuts of two characters taken back": ("if (bit_of(taken[last_class], this_class) != 0) return;", ""),
    "other kinds taken back": ("& kind) == 0) return;", "& 15) == 0) return;"),
    "what is taken back is still counted": ("add_chunks(-1, at", "add_chunks(0, at"),
}


@pytest.mark.parametrize("fault", THIRD_FAULTS.values(), ids=THIRD_FAULTS)
def test_a_fault_of_thirds_is_noticed(fault, tmp_path):
    broken = EmulatedDevice(folders=[kernel_copies.broken(tmp_path, "cut.cu", *fault)])
    deciding = [made_up_thirds(seed) for seed in range(6)]
    with pytest.raises(AssertionError):  # noqa: PT012 - one of the two sees it
        check_words_by_thirds(broken, deciding)
        check_sections_by_thirds(broken, deciding)


RUN_FAULTS = {
    "runs never end": ("max(at - LONGEST_RUN + 1, (i64)0)", "(i64)0"),
    "runs begin anywhere": ("bit_of(runs.begins[last_class % MOST_CLASSES], this_class) != 0", "true"),
    "runs go through anything": (" && bit_of(runs.inside, this_class) != 0", ""),
    "pairs asked anywhere need a run": ("second) != 0) return 1;", "second) == 7) return 1;"),
    "what is known of a run is forgotten to end": (
        "return known.begin >= first ? known.begin : NOWHERE;",
        "return at;",
    ),
}


def check_runs(device) -> None:
    test_good_runs_are_found_as_on_the_cpu(3 * TILE + 17, "中国はがカ가あ文 a。é😀", device)
    test_runs_are_as_long_as_on_the_cpu(1, device)


@pytest.mark.parametrize("fault", RUN_FAULTS.values(), ids=RUN_FAULTS)
def test_a_fault_of_runs_is_noticed(fault, tmp_path):
    broken = EmulatedDevice(folders=[kernel_copies.broken(tmp_path, "cut.cu", *fault)])
    with pytest.raises(AssertionError):
        check_runs(broken)


FAULTS = {
    "tokens at the last byte of a word overlooked": ("left = word.marks;", "left = word.marks & 0x7FFFFFFF;"),
    "tokens that only a second byte rules out counted": (
        "tokens += may_begin_token(",
        "tokens += 1 + 0 * may_begin_token(",
    ),
    "the first tile marked for another": ("tile_tokens[first / TILE_WORDS] = 1", "tile_tokens[0] = 1"),
    "cuts of sections not counted": ("& bit) == 0) add_chunks(1,", "& bit) == 0) add_chunks(0,"),
}


def check_tokens_and_sections(device) -> None:
    test_places_where_a_token_begins_are_counted(["<ab>", "<a"], False, device)
    test_without_closed_sections_only_starts_are_added(device)
    test_tiles_in_which_a_token_begins_are_marked((TILE - 3, 2 * TILE), device)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_noticed(fault, tmp_path):
    broken = EmulatedDevice(folders=[kernel_copies.broken(tmp_path, "cut.cu", *fault)])
    with pytest.raises(AssertionError):
        check_tokens_and_sections(broken)


@pytest.mark.parametrize("mode", [Mode.ADDRESS, Mode.THREAD], ids=["address", "threads"])
def test_sanitizers_find_nothing(mode, tmp_path):
    alone = kernel_copies.copied(tmp_path / "kernels", "cut.cu")
    device = EmulatedDevice(dump_folder=tmp_path, folders=[alone])
    flat, tables = random_bytes(9, "ab é中😀", 1000), made_up_thirds(9)
    tokens = [token("b 😀"), token("é", normalized=True)]
    mask, _ = run_cut_words(device, flat, tables, 3, compile_added_tokens(definition(tokens)).tables)
    mask = mask.copy()
    start, ids, _ = random_sections(9, flat, 100)
    run_cut_sections(device, flat, start, (ids != TEXT).astype(np.uint8), mask, 3, tables)
    dumped = sorted(tmp_path.glob("*.launch"))
    assert len(dumped) == 2
    assert [replay(path, mode, folders=[alone]) for path in dumped] == ["", ""]
