"""kernels/cold.cu on the emulator: what each step makes of new chunks, against `cpu_ref.cold`, which test_cold_native
checks against the reference."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import kernel_copies
import numpy as np
import oracle
import pytest
import texts
import vocabularies
from random_definitions import random_normalizer, random_pre_tokenizer, random_strings
from test_cold_native import TEXTS, definition_of
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers

from cpu_ref import cold as on_cpu
from gpu_tok import Tokenizer, added_tokens
from gpu_tok.batch import Ragged, TextBatch, starts_of
from gpu_tok.emulated import EmulatedDevice, Mode, replay
from gpu_tok.errors import DeviceError
from gpu_tok.on_device import cold, path, rooms
from gpu_tok.on_device.batch_table import Winners
from gpu_tok.on_device.cold import ColdTables
from gpu_tok.on_device.intern import DeviceEncoder
from gpu_tok.on_device.path import encoder_on
from gpu_tok.on_device.report import (
    ALL_GOOD,
    FIRST_BAD,
    NEEDS_HOST,
    REPORT_WORDS,
    SPOILED,
    TOO_SMALL,
    WINNERS_SEEN,
    WORK_ASKED,
)
from gpu_tok.tables import ends
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.native import NativeTables, compile_native
from gpu_tok.tables.refusal import CannotCompile

NAMES = vocabularies.names(vocabularies.WORDPIECE)
PROGRAMS: dict[str, tuple[Any, Any]] = {
    "nothing": (None, None),
    "bert": (normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()),
    "bert, cased": (
        normalizers.BertNormalizer(lowercase=False, strip_accents=False),
        pre_tokenizers.BertPreTokenizer(),
    ),
    "nfc": (normalizers.NFC(), pre_tokenizers.Whitespace()),
    "nfd": (normalizers.NFD(), pre_tokenizers.WhitespaceSplit()),
    "nfkc, then lower case": (
        normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
        pre_tokenizers.Punctuation("merged_with_previous"),
    ),
    "marks sorted behind a map that makes more of them": (
        normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase(), normalizers.NFKD(), normalizers.NFC()]),
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(True)]),
    ),
    "strip accents": (
        normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]),
        pre_tokenizers.CharDelimiterSplit("。"),
    ),
    "llama's": (
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        pre_tokenizers.Whitespace(),
    ),
    "patterns, ends and an opening": (
        normalizers.Sequence(
            [
                normalizers.NFC(),
                normalizers.Replace(Regex(r"\s+|é"), "a\u0323\u0301 "),
                normalizers.Strip(),
                normalizers.Prepend("\u0130x"),
                normalizers.Replace("ab", ""),
                normalizers.Lowercase(),
                normalizers.NFD(),
            ]
        ),
        pre_tokenizers.WhitespaceSplit(),
    ),
}
MARKS = [
    ("a" + "\u0301\u0323" * 16, "32 marks: sorted by insertion"),
    ("a" + "\u0301\u0323" * 16 + "\u0327", "33 marks: sorted by passes"),
    ("\u0301\u0323\u0345" * 700 + "b", "2100 marks without a base"),
    ("é\u0323\u0301" * 90, "composed letters with marks"),
    ("\u0327\u0301" * 40 + "x" + "\u0323\u031b" * 40, "two long runs"),
    ("가각힣" + "\u1100\u1161\u11a8" * 20 + "\u1100\u11a8\u1161", "Hangul, composed, in parts and in disorder"),
    ("\ufdfa" * 70 + "ﬃ㌀ﷺ", "18 code points of one"),
    ("xy\u0130z" * 30, "I with a dot becomes two letters"),
    ("\u1fa7\u0390\u1e9e\u0345", "letters of three and four parts"),
    ("\u0958\u0f73\u2adc\U0001d15e", "letters that NFC does not compose again"),
]
HARD = [*TEXTS, *(text for text, _reason in MARKS)]
LIMITS = ["y" * count for count in (99, 100, 101)] + ["é" * count for count in (99, 100, 101)]


BEHIND = np.full(64, 0xABABABAB, np.uint32)  # what stands behind an arena


class Made(NamedTuple):
    """What the kernels made: normalized texts (uint32 rows), ids (int32 rows) and the report."""

    code_point: Ragged
    ids: Ragged
    report: np.ndarray


def new_device(seed: int = 0, **how: Any) -> EmulatedDevice:
    try:
        return EmulatedDevice(seed, **how)
    except DeviceError as error:
        pytest.skip(error.finding)


@pytest.fixture(scope="module")
def device() -> EmulatedDevice:
    return new_device()


@cache
def native(definition: str) -> NativeTables:
    return compile_native(Definition(oracle.bare(definition)))


def ragged(chunks: list[str]) -> Ragged:
    rows = [chunk.encode() for chunk in chunks]
    return Ragged(np.frombuffer(b"".join(rows), np.uint8), starts_of(np.array([len(row) for row in rows], np.int64)))


def make(
    device: EmulatedDevice,
    tables: ColdTables,
    chunks: Ragged,
    room: int | None = None,
    flags: int = 0,
    seed: int = 0,
    spoiled: tuple[int, int] = (SPOILED, 0),
) -> Made:
    """Runs the kernels on chunks, which are misses in an order of their own. room: words of the arena, None for enough;
    spoiled: a word of the report, and what it says from the beginning."""
    count = chunks.count
    order = np.random.default_rng(seed).permutation(count)
    misses = np.empty((count, 2), np.int64)
    misses[order, 0], misses[order, 1] = chunks.starts[:-1], np.diff(chunks.starts) | flags << 32
    winners = Winners(None, None, device.upload(order.astype(np.uint32)), None, None)
    report = np.zeros(REPORT_WORDS, np.uint64)
    report[WINNERS_SEEN], report[FIRST_BAD] = count, ALL_GOOD
    report[spoiled[0]] = spoiled[1]
    report = device.upload(report)
    if room is None:
        room = max(40, 18 * tables.growth) * len(chunks.flat) + tables.opening * tables.growth * count
    memory = device.upload(np.full(room + len(BEHIND), BEHIND[0]))
    arena = memory[:room]
    batch = (device.upload(chunks.flat), device.upload(misses.reshape(-1)), winners)
    of_winner = cold.normalize(device, *batch, tables, arena, report)
    code_point = rows_of(arena, of_winner) if report[SPOILED] == 0 and report[WORK_ASKED] <= len(arena) else None
    late = cold.match(device, tables, arena, of_winner, report)
    ids = rows_of(late.ids, late.of_winner) if report[SPOILED] == 0 else None
    assert np.array_equal(memory[room:], BEHIND), "written outside the arena"
    return Made(code_point, ids, report)


def rows_of(flat: np.ndarray, places: np.ndarray) -> Ragged:
    places = places.reshape(-1, 2)
    starts = starts_of(places[:, 1])
    at = np.arange(starts[-1]) + np.repeat(places[:, 0] - starts[:-1], places[:, 1])
    return Ragged(flat[at], starts)


def expected(chunks: Ragged, tables: NativeTables, flags: int = 0) -> Made:
    """What the CPU makes of the same chunks."""
    room = len(chunks.flat) * tables.normalizer.expansion
    code_point, scratch = np.empty(room, np.uint32), np.empty(room, np.uint32)
    starts = np.zeros(chunks.count + 1, np.int64)
    flat = on_cpu.writable(chunks.flat)
    each = np.full(chunks.count, flags, np.uint8)
    on_cpu.normalize_chunks(flat, chunks.starts, each, tables.normalizer, scratch, code_point, starts)
    ids = on_cpu.encode_chunks(flat, chunks.starts, tables, each)
    return Made(Ragged(code_point[: starts[-1]], starts), Ragged(*ids), np.zeros(0))


def assert_same(
    device: EmulatedDevice, tables: NativeTables, chunks: Ragged | list[str], flags: int = 0, **how: Any
) -> None:
    chunks = ragged(chunks) if isinstance(chunks, list) else chunks
    made = make(device, cold.upload(device, tables, 0), chunks, flags=flags, **how)
    wanted = expected(chunks, tables, flags)
    for step in ("code_point", "ids"):
        got, want = getattr(made, step), getattr(wanted, step)
        if np.array_equal(got.starts, want.starts) and np.array_equal(got.flat, want.flat):
            continue
        for row in range(chunks.count):
            chunk = chunks.row(row).tobytes().decode()
            assert got.row(row).tolist() == want.row(row).tolist(), (step, chunk[:80])


@pytest.mark.parametrize("name", NAMES)
def test_hard_and_random_chunks(device, definition_text, name):
    tables = native(definition_text(name))
    assert_same(device, tables, [*HARD, *texts.random_texts(1, 300), *texts.random_code_points(1, 300)])


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_normalizers(device, name):
    tables = native(definition_of(*PROGRAMS[name]))
    given = [*HARD, *texts.random_texts(2, 200), *texts.random_code_points(2, 200)]
    for flags in (0, ends.SECTION_FIRST, ends.SECTION_LAST, ends.SECTION_FIRST | ends.SECTION_LAST):
        assert_same(device, tables, given, flags)


@pytest.mark.parametrize("limit", [1, 2, 33, 100])
@pytest.mark.parametrize("name", ["bert", "nfd"])
def test_words_around_the_limit_of_characters(device, name, limit):
    tables = native(definition_of(*PROGRAMS[name], max_input_chars_per_word=limit))
    lengths = (limit - 1, limit, limit + 1)
    words = [letter * length for letter in ("a", "é", "\u1e69", "中") for length in lengths]
    assert_same(device, tables, [*words, *LIMITS, " ".join(words), *TEXTS])


def random_tables(seed: int) -> NativeTables:
    """Of the first random definition that has a native form."""
    source = random.Random(seed)
    plain = json.loads(definition_of(None, None))
    while True:
        steps = [random_normalizer(source, []) for _ in range(source.randint(1, 3))]
        splitters = [random_pre_tokenizer(source) for _ in range(source.randint(0, 2))]
        plain["normalizer"] = {"type": "Sequence", "normalizers": steps}
        plain["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": splitters}
        plain["model"]["max_input_chars_per_word"] = source.choice([1, 2, 10, 100])
        with contextlib.suppress(CannotCompile):
            return compile_native(Definition.from_str(json.dumps(plain)))


@pytest.mark.parametrize("seed", range(8))
def test_random_definitions(device, seed):
    source = random.Random(seed)
    assert_same(device, random_tables(seed), [*HARD, *random_strings(source, 300), *texts.random_texts(seed, 100)])


def every_code_point(step: int, before: str = "", behind: str = "") -> Ragged:
    """A chunk for every `step`th code point, with the same neighbours."""
    return ragged([before + chr(at) + behind for at in range(0, 0x110000, step) if not 0xD800 <= at < 0xE000])


EVERY = pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.slow)])


@EVERY
@pytest.mark.parametrize("name", ["bert", "nfkc, then lower case"])
def test_every_code_point(device, name, step):
    tables = native(definition_of(*PROGRAMS[name]))
    assert_same(device, tables, every_code_point(step))
    assert_same(device, tables, every_code_point(3 * step, "a\u0323", "\u0301b"))


@pytest.mark.parametrize(
    "text", ["the cat sat, " * 6_000, "y" * 70_000, "é中 " * 20_000, "a" + "\u0301\u0323" * 30_000]
)
@pytest.mark.parametrize("name", ["bert", "nfc", "nothing"])
def test_long_chunks(device, name, text):
    assert_same(device, native(definition_of(*PROGRAMS[name])), ["a", text, "", "b é"])


@pytest.mark.parametrize("language", ["en", "zh", "multi"])
@pytest.mark.parametrize("name", ["shared/bert-base-uncased", "shared/bert-base-multilingual-cased", "own/bert"])
def test_real_texts(device, definition_text, real_texts, name, language):
    given = real_texts(language, 30_000)
    chunks = [word for text in given for word in text.split(" ")]
    assert_same(device, native(definition_text(name)), [*given, *chunks])


def test_no_chunks_and_empty_ones(device):
    tables = native(vocabularies.text("own/bert"))
    assert_same(device, tables, [])
    assert_same(device, tables, ["", "", ""])
    assert_same(device, tables, ["\x00\u0301", "\x00", ""])


@pytest.mark.parametrize("seed", range(1, 5))
def test_any_order_of_threads_gives_the_same_ids(seed):
    tables = native(vocabularies.text("own/bert"))
    assert_same(new_device(seed), tables, [*HARD, *texts.random_texts(seed, 200)], seed=seed)


def test_work_is_what_code_points_need(device):
    """The first map is counted, later ones bounded: two words for each code point of BERT's that is not ASCII."""
    tables = cold.upload(device, native(vocabularies.text("own/bert")), 0)
    assert tables.growth == 2
    for chunks, words in ((["the", " cat"], 7), (["\x00a\x00"], 1), (["é"], 4), (["中"], 6), (["é", "ab"], 6)):
        assert make(device, tables, ragged(chunks)).report[WORK_ASKED] == words


def test_an_arena_that_is_too_small_is_reported_with_what_was_needed(device):
    tables = cold.upload(device, native(vocabularies.text("own/bert")), 0)
    chunks = ragged(HARD)
    needed = int(make(device, tables, chunks).report[WORK_ASKED])
    for room in (0, 1, needed // 2, needed - 1):
        report = make(device, tables, chunks, room).report
        assert (report[SPOILED], report[WORK_ASKED]) == (TOO_SMALL, needed)
    assert make(device, tables, chunks, needed).report[SPOILED] == 0


def test_whole_sections_are_left_to_the_host(device):
    native_tables = native(vocabularies.text("own/bert"))
    tables = cold.upload(device, native_tables, ends.WHOLE)
    assert make(device, tables, ragged(["a", "b"]), flags=ends.WHOLE).report[SPOILED] == NEEDS_HOST
    assert make(device, tables, ragged(["a", "b"]), flags=ends.SECTION_FIRST).report[SPOILED] == 0
    assert make(device, cold.upload(device, native_tables, 0), ragged(["a"]), flags=ends.WHOLE).report[SPOILED] == 0


@pytest.mark.parametrize(("word", "value"), [(SPOILED, TOO_SMALL), (FIRST_BAD, 7)])
def test_nothing_is_done_for_a_spoiled_batch(device, word, value):
    tables = cold.upload(device, native(vocabularies.text("own/bert")), 0)
    made = make(device, tables, ragged(["a"]), spoiled=(word, value))
    assert made.report[WORK_ASKED] == 0
    assert made.report[word] == value


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_chunk_stays_in_the_room_that_it_asks_for(device, name):
    tables = native(definition_of(*PROGRAMS[name]))
    uploaded = cold.upload(device, tables, 0)
    for text in [*(text for text in HARD if len(text) < 5_000), *texts.random_code_points(3, 30)]:
        chunk = ragged([text])
        needed = int(make(device, uploaded, chunk).report[WORK_ASKED])
        assert_same(device, tables, chunk, room=needed)


def encoder_of(device: EmulatedDevice, definition: str) -> tuple[Tokenizer, DeviceEncoder]:
    tok = Tokenizer.from_str(definition, workers=1)
    return tok, encoder_on(device, tok.cuts, tok.cold, 1 << 18)


def encode_texts(device: EmulatedDevice, tok: Tokenizer, encoder: DeviceEncoder, given: list[str]) -> list[list[int]]:
    """Without special tokens around them."""
    made = path.encode(device, added_tokens.run(TextBatch.of(given), tok.added_tokens, tok.workers), encoder)
    return [made.ids[begin:end].tolist() for begin, end in itertools.pairwise(made.starts)]


def test_new_chunks_do_not_reach_the_host(device, monkeypatch):
    reference = oracle.plain(vocabularies.text("own/bert"))
    tok, encoder = encoder_of(device, reference.to_str())
    monkeypatch.setattr(tok.cold, "encode", lambda *_: pytest.fail("the host was asked"))
    for _pass in ("cold", "warm"):
        assert encode_texts(device, tok, encoder, HARD) == oracle.encode(reference, HARD, add_special_tokens=False)


def test_a_batch_whose_arena_was_too_small_is_done_again(device, monkeypatch):
    reference = oracle.plain(vocabularies.text("own/bert"))
    tok, encoder = encoder_of(device, reference.to_str())
    monkeypatch.setattr(rooms, "LEAST", 100)
    encoder.shares._shares[3] = 0.0
    assert encode_texts(device, tok, encoder, HARD) == oracle.encode(reference, HARD, add_special_tokens=False)
    assert encoder.shares._shares[3] > 0


def test_sections_with_tokens_that_are_still_to_be_found_go_to_the_host(device):
    reference = oracle.copy_of(oracle.plain(vocabularies.text("own/bert")))
    reference.add_tokens([AddedToken("xYz", normalized=True)])
    tok, encoder = encoder_of(device, reference.to_str())
    given = ["plain text", "a xyz b", "AXYZB é", "xYz" * 50, *texts.random_texts(6, 50)]
    assert encoder.native.host_flags == ends.WHOLE
    assert encode_texts(device, tok, encoder, given) == oracle.encode(reference, given, add_special_tokens=False)


FILES = ("cold.cu", "cold.cuh", "normalize.cuh", "split.cuh", "match.cuh")
FAULTS = {
    "marks of one class change places": ("normalize.cuh", "& CLASS) > (comb", "& CLASS) >= (comb"),
    "many marks without the last class": ("normalize.cuh", "rank <= CLASS", "rank < 30"),
    "an image that overtakes": (
        "normalize.cuh",
        "count > at) move_rest(text, at, end, room);\n        made = put_image(image, code_point",
        "count > at + 1) move_rest(text, at, end, room);\n        made = put_image(image, code_point",
    ),
    "a mark that is not blocked": ("normalize.cuh", "left_class < right_class", "left_class <= right_class"),
    "the first piece instead of the longest": ("match.cuh", "longest = {at, node.id};", "return {at, node.id};"),
    "a word of one character more": ("match.cuh", "end - at <=", "end - at - 1 <="),
    "an unknown word that leaves its pieces": ("match.cuh", "return first + 1;", "return made + 1;"),
    "a word that its first letter ends": ("split.cuh", "left = right;", ""),
    "room for one of two": ("cold.cuh", "(size.count + opening) * growth", "size.count"),
}
IN_SHORT = ("an image that overtakes", "a word of one character more", "a word that its first letter ends")


def is_noticed(device: EmulatedDevice) -> bool:
    """Do some chunks become other ids, or other normalized texts, than they should."""
    chunks = [*HARD, *texts.random_texts(4, 200), *LIMITS]
    names = ("bert", "nfc", "nfkc, then lower case", "marks sorted behind a map that makes more of them")
    try:
        for definition in (vocabularies.text("own/bert"), *(definition_of(*PROGRAMS[name]) for name in names)):
            assert_same(device, native(definition), chunks)
    except (AssertionError, DeviceError):
        return True
    return False


def test_right_kernels_pass(device):
    assert not is_noticed(device)


@pytest.mark.parametrize("fault", kernel_copies.cases(FAULTS, IN_SHORT))
def test_a_fault_is_noticed(fault, tmp_path):
    assert is_noticed(new_device(folders=[kernel_copies.broken(tmp_path, *fault, FILES)]))


@pytest.fixture(scope="module")
def dumped(tmp_path_factory) -> Path:
    """Launches with an arena that is just large enough, and with one that is too small."""
    folder = tmp_path_factory.mktemp("launches")
    device = new_device(dump_folder=folder)
    chunks = ragged([*(text for text in HARD if len(text) < 400), *texts.random_texts(5, 30), "ab"])
    for name in ("bert", "marks sorted behind a map that makes more of them"):
        tables = cold.upload(device, native(definition_of(*PROGRAMS[name])), 0)
        needed = int(make(new_device(), tables, chunks).report[WORK_ASKED])
        make(device, tables, chunks, needed)
        make(device, tables, chunks, needed // 2)
    return folder


@pytest.mark.parametrize("mode", [Mode.ADDRESS, pytest.param(Mode.THREAD, marks=pytest.mark.slow)])
def test_sanitizers_find_nothing(dumped, mode):
    launches = sorted(dumped.glob("*.launch"))
    assert len(launches) == 8
    assert [replay(launch, mode) for launch in launches] == [""] * len(launches)


@pytest.mark.parametrize(
    ("launch", "fault"),
    [
        ("00003_normalize_chunks", ("cold.cuh", "if (at + room > arena_room) continue;", "")),
        ("00002_match_chunks", ("cold.cu", "at < made.count;)", "at <= made.count;)")),
    ],
)
def test_sanitizers_notice_a_fault(dumped, tmp_path, launch, fault):
    folder = kernel_copies.broken(tmp_path, *fault, FILES)
    assert replay(dumped / f"{launch}.launch", Mode.ADDRESS, folders=[folder]) != ""
