"""kernels/cold_bpe.cu on the emulator: what each step makes of new chunks, against `cpu_ref.cold_bpe`, which
test_cold_bpe checks against the reference; and merges against the reference's model."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import kernel_copies
import numpy as np
import oracle
import pytest
import texts
import vocabularies
from hypothesis import given, settings
from hypothesis import strategies as some
from random_definitions import random_normalizer, random_pre_tokenizer, random_strings
from test_cold_kernels import BEHIND, MARKS, encode_texts, encoder_of, new_device, ragged, rows_of
from test_merge import FALLBACK, FALLBACK_MERGES, UNK, all_words, long_words, merge_lists, model_of, odd_models
from tokenizers import Tokenizer as Reference
from tokenizers import models

from cpu_ref.cold_bpe import trace
from gpu_tok import Tokenizer, added_tokens
from gpu_tok.batch import Ragged, TextBatch
from gpu_tok.emulated import EmulatedDevice, Mode, replay
from gpu_tok.errors import DeviceError
from gpu_tok.on_device import cold_bpe, rooms
from gpu_tok.on_device.batch_table import Winners
from gpu_tok.on_device.cold_bpe import BpeColdTables, Work, work_of
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
from gpu_tok.tables.native import NativeBpe, compile_native
from gpu_tok.tables.normalizer import compile_normalizer
from gpu_tok.tables.pair_entries import SHORT
from gpu_tok.tables.refusal import CannotCompile

NAMES = vocabularies.names(vocabularies.BYTE_LEVEL, vocabularies.SENTENCEPIECE)
QUICK = [*vocabularies.names(vocabularies.BYTE_LEVEL, vocabularies.SENTENCEPIECE, sources=("own",)), "shared/gpt2"]
QUICK += ["shared/llama-3", "shared/falcon-7b", "shared/qwen3"]
EACH = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NAMES]
GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True, "trim_offsets": True}
MARKS_FIRST = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
STAGES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "none": ("own/metaspace-first", []),
    "a prefix for the first word": ("own/metaspace-first", [{"type": "WhitespaceSplit"}, MARKS_FIRST]),
    "falcon's": (
        "own/byte-level",
        [{"type": "Punctuation", "behavior": "Contiguous"}, GPT2, {"type": "Digits", "individual_digits": False}],
    ),
    "digits, then GPT-2's": ("own/byte-level", [{"type": "Digits", "individual_digits": True}, GPT2]),
    "a prefix for each word": ("own/byte-level", [{"type": "WhitespaceSplit"}, GPT2 | {"add_prefix_space": True}]),
    "bytes of bytes": ("own/byte-level", [GPT2, GPT2 | {"add_prefix_space": True}]),
}
BEGINS = np.uint32(1 << 31)  # of a character: a word begins there
ENDS = [0, ends.SUBSECTION_FIRST, ends.DOCUMENT_FIRST | ends.SUBSECTION_FIRST | ends.SECTION_FIRST | ends.SECTION_LAST]
HARD = [*texts.TEXTS, *(text for text, _reason in MARKS)]
SHORT_AND_LONG = ["a" * count for count in (SHORT - 1, SHORT, SHORT + 1, 100)] + ["ab" * 20 + " " + "c" * 31 + " é"]


class Made(NamedTuple):
    """What the kernels made: normalized texts and the characters of words (uint32 rows), ids (int32 rows), the
    report."""

    code_point: Ragged
    character: Ragged
    ids: Ragged
    report: np.ndarray


@pytest.fixture(scope="module")
def device() -> EmulatedDevice:
    return new_device()


def tables_of(definition: Definition) -> NativeBpe:
    tables = compile_native(definition)
    assert isinstance(tables, NativeBpe)
    return tables


@cache
def named(name: str) -> NativeBpe:
    return tables_of(Definition.from_str(vocabularies.text(name)))


@cache
def staged(name: str) -> NativeBpe:
    """The tables of a model behind other stages than its own."""
    model, parts = STAGES[name]
    plain = json.loads(vocabularies.text(model))
    plain |= {"added_tokens": [], "normalizer": None}
    plain["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": parts}
    return tables_of(Definition.from_str(json.dumps(plain)))


def make(
    device: EmulatedDevice,
    tables: BpeColdTables,
    chunks: Ragged,
    flags: int = 0,
    room: int | None = None,
    seed: int = 0,
    spoiled: tuple[int, int] = (SPOILED, 0),
) -> Made:
    """Runs the kernels on chunks, which are misses in an order of their own. room: words of the arena, None for enough;
    spoiled: a word of the report, and what it says from the beginning."""
    count = chunks.count
    order = np.random.default_rng(seed).permutation(count)
    misses = np.empty((count, 2), np.int64)
    misses[order, 0], misses[order, 1] = chunks.starts[:-1], np.diff(chunks.starts) | flags << 32
    misses = device.upload(misses.reshape(-1))
    winners = Winners(None, None, device.upload(order.astype(np.uint32)), None, None)
    report = np.zeros(REPORT_WORDS, np.uint64)
    report[WINNERS_SEEN], report[FIRST_BAD] = count, ALL_GOOD
    report[spoiled[0]] = spoiled[1]
    report = device.upload(report)
    room = enough(chunks, tables) if room is None else room
    memory = device.upload(np.full(room + len(BEHIND), BEHIND[0]))
    arena = memory[:room]
    of_winner = cold_bpe.normalize(device, device.upload(chunks.flat), misses, winners, tables, arena, report)
    fits = report[SPOILED] == 0 and report[WORK_ASKED] <= len(arena)
    code_point = rows_of(arena, of_winner) if fits else None
    cold_bpe.split(device, misses, winners, tables, arena, of_winner, report)
    character = rows_of(arena, of_winner) if fits else None
    late = cold_bpe.merge(device, tables, arena, of_winner, report)
    ids = rows_of(late.ids, late.of_winner) if report[SPOILED] == 0 else None
    assert np.array_equal(memory[room:], BEHIND), "written outside the arena"
    return Made(code_point, character, ids, report)


def enough(chunks: Ragged, tables: BpeColdTables) -> int:
    """Room that holds all chunks."""
    work = tables.work
    each, opening = max(work.growth, work.factor) * 18, (work.opening + work.added + 1) * max(work.growth, work.factor)
    return 8 * (each * len(chunks.flat) + (opening + 1) * chunks.count)


def words_of(characters: np.ndarray) -> list[str]:
    begins = np.flatnonzero(characters & BEGINS)
    return [part.tobytes().decode("utf-32-le") for part in np.split(characters & ~BEGINS, begins)[1:]]


def assert_same(
    device: EmulatedDevice, tables: NativeBpe, chunks: Ragged | Sequence[str], flags: int = 0, **how: Any
) -> None:
    """Each step makes of each chunk what it makes on the CPU."""
    chunks = chunks if isinstance(chunks, Ragged) else ragged(list(chunks))
    made = make(device, cold_bpe.upload(device, tables, 0), chunks, flags, **how)
    for row in range(chunks.count):
        chunk = chunks.row(row).tobytes()
        wanted = trace(chunk, flags, tables)
        shown = chunk.decode()[:80]
        assert made.code_point.row(row).tobytes().decode("utf-32-le") == wanted.text, ("normalize", shown)
        assert words_of(made.character.row(row)) == list(wanted.words), ("split", shown)
        assert made.ids.row(row).tolist() == wanted.ids.tolist(), ("merge", shown)


def merged(device: EmulatedDevice, tables: NativeBpe, words: list[str]) -> list[list[int]]:
    """The ids of words that are chunks."""
    chunks = ragged(words)
    ids = make(device, cold_bpe.upload(device, tables, 0), chunks).ids
    return [ids.row(row).tolist() for row in range(chunks.count)]


def assert_model(device: EmulatedDevice, model: models.BPE, words: list[str], short: int = SHORT) -> None:
    """As the reference's model. short: 0 lets the heap merge all words."""
    tables = tables_of(Definition(Reference(model)))
    tables = tables._replace(model=tables.model._replace(short=min(short, tables.model.short)))
    for word, got in zip(words, merged(device, tables, words), strict=True):
        assert got == [token.id for token in model.tokenize(word)], word[:200]


# All steps


@pytest.mark.parametrize("name", EACH)
def test_hard_and_random_chunks_with_all_ends(device, definition_text, name):
    definition_text(name)
    for flags in ENDS:
        given = [*HARD, *SHORT_AND_LONG, *texts.random_texts(1, 150), *texts.random_code_points(1, 100)]
        assert_same(device, named(name), given, flags)


@pytest.mark.parametrize("flags", ENDS)
@pytest.mark.parametrize("name", STAGES)
def test_stages(device, name, flags):
    source = random.Random(5)
    assert_same(device, staged(name), [*texts.TEXTS, *random_strings(source, 200), *SHORT_AND_LONG], flags)


@pytest.mark.parametrize("language", ["en", "code", pytest.param("zh", marks=pytest.mark.slow), "multi"])
@pytest.mark.parametrize("name", EACH)
def test_real_texts(device, definition_text, real_texts, name, language):
    definition_text(name)
    if name not in ("own/byte-level", "shared/gpt2") and language != "multi":
        pytest.skip("one language for each")
    given = real_texts(language, 20_000)
    assert_same(device, named(name), [*given, *(word for text in given for word in text.split(" "))])


def random_tables(seed: int) -> NativeBpe:
    """Of the first random definition that has a native form."""
    source = random.Random(seed)
    plain = json.loads(vocabularies.text(source.choice(["own/byte-level", "own/metaspace-first", "own/word-end"])))
    plain["added_tokens"] = []
    while True:
        steps = [random_normalizer(source, []) for _ in range(source.randint(0, 2))]
        splitters = [random_pre_tokenizer(source) for _ in range(source.randint(0, 4))]
        plain["normalizer"] = {"type": "Sequence", "normalizers": steps}
        plain["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": splitters}
        plain["model"]["byte_fallback"] = source.random() < 0.4
        with contextlib.suppress(CannotCompile):
            return compile_native(Definition.from_str(json.dumps(plain)))


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 60))])
def test_random_definitions(device, seed):
    source = random.Random(seed)
    tables = random_tables(seed)
    for flags in ENDS:
        assert_same(device, tables, [*MARKS[0], *random_strings(source, 200), *texts.TEXTS[::7]], flags)


@pytest.mark.parametrize("step", [37, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["own/byte-level", "own/ignore-merges", "own/metaspace-first"])
def test_every_code_point(device, name, step):
    characters = [chr(at) for at in range(0, 0x110000, step) if not 0xD800 <= at < 0xE000]
    assert_same(device, named(name), [f"a {character}b" for character in characters])


@pytest.mark.parametrize("letters", ["_", "0123456789+/AZaz", "中国人", " ", "é", "a\u0301\u0323"])
@pytest.mark.parametrize("name", ["own/byte-level", "own/ignore-merges"])
def test_chunks_of_a_hundred_thousand_bytes(device, name, letters):
    source = random.Random(3)
    text = "".join(source.choices(letters, k=100_000 // len(letters[:1].encode())))
    assert_same(device, named(name), ["a", text, "", "b é"])


def test_no_chunks_and_empty_ones(device):
    for name in ("own/byte-level", "own/metaspace-first"):
        for flags in ENDS:
            assert_same(device, named(name), [], flags)
            assert_same(device, named(name), ["", "", ""], flags)


@pytest.mark.parametrize("seed", range(1, 5))
def test_any_order_of_threads_gives_the_same_ids(seed):
    assert_same(new_device(seed), named("own/byte-level"), [*HARD, *texts.random_texts(seed, 200)], seed=seed)


# The model, against the reference's


@settings(max_examples=30, deadline=None)
@given(merge_lists(), some.sampled_from([0, SHORT]), some.integers(0, 2**32))
def test_any_merges_on_all_short_words(device, made, short, seed):
    source = random.Random(seed)
    words = all_words("abc", 5) + ["".join(source.choices("abc", k=source.randint(6, 50))) for _ in range(100)]
    assert_model(device, model_of(*made), words, short)


@settings(max_examples=60, deadline=None)
@given(odd_models())
def test_odd_models(device, model):
    with contextlib.suppress(CannotCompile):
        compile_native(Definition(Reference(model)))
        assert_model(device, model, [*all_words("ab#é", 4), "ab" * 30, "a" * 40])


def test_a_rank_outlives_its_pair_where_another_makes_the_same_piece(device):
    vocab = {"a": 0, "b": 1, "c": 2, "d": 3, "bc": 4, "bcd": 5, "ab": 6, "abc": 6}
    model = model_of(vocab, [("b", "c"), ("a", "b"), ("bc", "d"), ("a", "bc")])
    assert merged(device, tables_of(Definition(Reference(model))), ["abcd"]) == [[6, 3]]
    assert_model(device, model, all_words("abcd", 6))


@pytest.mark.parametrize("unknown", [None, UNK])
@pytest.mark.parametrize("fuses", [False, True])
@pytest.mark.parametrize("falls_back", [False, True])
@pytest.mark.parametrize(("prefix", "suffix"), [(None, None), ("x", None), (None, "é"), ("é", "x"), ("中", "")])
def test_unknown_characters(device, unknown, fuses, falls_back, prefix, suffix):
    vocab = dict(FALLBACK)
    for piece in ("a", "b"):
        for spelled in ((prefix or "") + piece, piece + (suffix or ""), (prefix or "") + piece + (suffix or "")):
            vocab.setdefault(spelled, len(vocab))
    options = {"continuing_subword_prefix": prefix, "end_of_word_suffix": suffix, "byte_fallback": falls_back}
    merges = FALLBACK_MERGES if not prefix else []
    model = model_of(vocab, merges, unk_token=unknown, fuse_unk=fuses, **options)
    assert_model(device, model, [*all_words("abé中x", 3), "中" * 40, "é" * 40, "é中" * 40, "a中" * 40])


def test_words_that_are_pieces(device):
    vocab = {"a": 0, "b": 1, "ab": 2, "bab": 3, "é中": 4, UNK: 5}
    for takes in (True, False):
        model = model_of(vocab, [("a", "b")], unk_token=UNK, ignore_merges=takes)
        assert_model(device, model, ["bab", "babb", "é中", "é中a", "ab", "<unk>", *all_words("ab", 5)])


@pytest.mark.parametrize("length", [*range(30, 36), 63, 64, 65])
def test_words_around_the_length_at_which_the_heap_begins(device, length):
    model = model_of({"a": 0, "b": 1, "aa": 2, "aab": 3, "aaaa": 4}, [("aa", "aa"), ("aa", "b"), ("a", "a")])
    source = random.Random(length)
    assert_model(device, model, ["a" * length, *("".join(source.choices("aab", k=length)) for _ in range(50))])


def test_long_words(device, definition_text):
    model = Reference.from_str(definition_text("own/byte-level")).model
    assert_model(device, model, list(long_words(20_000).values()))


# Room and reports


def test_work_is_what_symbols_need(device):
    """A word for each byte, one more to merge it; seven more where they are more than 32."""
    tables = cold_bpe.upload(device, named("own/byte-level"), 0)
    assert tables.work == Work(opening=0, growth=1, in_bytes=True, added=0, factor=1)
    for chunks, words in ((["the"], 8), ([" cat", " a"], 12), (["é"], 4), (["x" * 32], 64), (["x" * 33], 34 + 232)):
        assert make(device, tables, ragged(chunks)).report[WORK_ASKED] == words, chunks


def test_how_much_stages_add():
    plain = json.loads(vocabularies.text("own/metaspace-first"))
    plain["normalizer"] = None
    gpt2 = {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True, "trim_offsets": True}
    marks = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}
    white = {"type": "WhitespaceSplit"}
    for parts, falls_back, work in (
        ([gpt2], False, Work(0, 1, True, 1, 1)),
        ([white, gpt2], False, Work(0, 1, True, 0, 2)),
        ([gpt2, gpt2], False, Work(0, 1, True, 1, 2 * 2)),
        ([marks], False, Work(0, 1, False, 1, 1)),
        ([marks], True, Work(0, 1, True, 1, 1)),
        ([marks, gpt2], False, Work(0, 1, True, 3 + 1, 3)),
    ):
        plain["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": parts}
        plain["model"]["byte_fallback"] = falls_back
        assert work_of(compile_native(Definition.from_str(json.dumps(plain)))) == work, parts


def test_how_much_normalizers_add():
    """A text of ▁ that is one symbol, as Llama's; and one that is counted in bytes."""
    prepend = {"type": "Prepend", "prepend": "▁"}
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    white = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": "é ▁"}
    for name, steps, work in (
        ("own/prepend", [prepend, spaces], Work(1, 1, True, 1, 1)),
        ("own/byte-level", [prepend, spaces], Work(1, 1, True, 3, 3)),
        ("own/byte-level", [{"type": "NFC"}], Work(0, 2, True, 0, 1)),
        ("own/byte-level", [{"type": "NFC"}, {"type": "Lowercase"}], Work(0, 2, True, 0, 2)),
        ("own/byte-level", [{"type": "NFC"}, white], Work(0, 3, True, 0, 6)),
    ):
        plain = json.loads(vocabularies.text(name)) | {"normalizer": {"type": "Sequence", "normalizers": steps}}
        if name == "own/byte-level":
            plain["pre_tokenizer"] = GPT2
        assert work_of(compile_native(Definition.from_str(json.dumps(plain)))) == work, steps


@pytest.mark.parametrize(
    "name", ["own/byte-level", "own/ignore-merges", "own/metaspace-first", "own/word-end", "own/prepend"]
)
def test_a_chunk_stays_in_the_room_that_it_asks_for(device, name):
    tables = named(name)
    uploaded = cold_bpe.upload(device, tables, 0)
    chunks = [text for text in HARD if len(text) < 2_000]
    for text in [
        *chunks[::3],
        *(text for text, _reason in MARKS[:5]),
        *SHORT_AND_LONG,
        *texts.random_code_points(3, 9),
    ]:
        for flags in (0, ENDS[2]):
            needed = int(make(device, uploaded, ragged([text]), flags).report[WORK_ASKED])
            assert_same(device, tables, [text], flags, room=needed)


@pytest.mark.parametrize("seed", range(8))
def test_random_definitions_stay_in_their_room(device, seed):
    tables, source = random_tables(seed), random.Random(seed)
    uploaded = cold_bpe.upload(device, tables, 0)
    for text in [*random_strings(source, 40), " ▁ a" * 30, "é中\U0001f600 " * 12]:
        needed = int(make(device, uploaded, ragged([text]), ENDS[2]).report[WORK_ASKED])
        assert_same(device, tables, [text], ENDS[2], room=needed)


def test_no_composed_character_has_more_bytes_than_its_parts():
    """So the bytes of what NFC takes apart bound those of what it makes."""
    pair = compile_normalizer(Definition.from_str(vocabularies.text("own/ignore-merges"))).pair
    held = [[chr(part) for part in row] for row in pair if row[0] != 0]
    assert len(held) > 900
    assert all(len(composed.encode()) <= len((first + second).encode()) for first, second, composed in held)


def test_an_arena_that_is_too_small_is_reported_with_what_was_needed(device):
    tables = cold_bpe.upload(device, named("own/byte-level"), 0)
    chunks = ragged(HARD)
    needed = int(make(device, tables, chunks).report[WORK_ASKED])
    for room in (0, 1, needed // 2, needed - 1):
        report = make(device, tables, chunks, room=room).report
        assert (report[SPOILED], report[WORK_ASKED]) == (TOO_SMALL, needed)
    assert make(device, tables, chunks, room=needed).report[SPOILED] == 0


def test_whole_sections_are_left_to_the_host(device):
    tables = cold_bpe.upload(device, named("own/byte-level"), ends.WHOLE)
    assert make(device, tables, ragged(["a", "b"]), ends.WHOLE).report[SPOILED] == NEEDS_HOST
    assert make(device, tables, ragged(["a", "b"]), ends.SECTION_FIRST).report[SPOILED] == 0


@pytest.mark.parametrize(("word", "value"), [(SPOILED, TOO_SMALL), (FIRST_BAD, 7)])
def test_nothing_is_done_for_a_spoiled_batch(device, word, value):
    tables = cold_bpe.upload(device, named("own/byte-level"), 0)
    made = make(device, tables, ragged(["a"]), spoiled=(word, value))
    assert made.report[WORK_ASKED] == 0
    assert made.report[word] == value


# The whole path


def has_whole_sections(tok: Tokenizer, text: str) -> bool:
    """Whether added tokens are found in its normalized text: only the host does that."""
    sections = added_tokens.run(TextBatch.of([text]), tok.added_tokens, tok.workers)
    return bool((sections.flags & ends.WHOLE).any())


@pytest.mark.parametrize("name", EACH)
def test_new_chunks_do_not_reach_the_host(device, definition_text, monkeypatch, name):
    definition_text(name)
    named(name)
    reference = oracle.plain(vocabularies.text(name))
    tok, encoder = encoder_of(device, reference.to_str())
    monkeypatch.setattr(tok.cold, "encode", lambda *_: pytest.fail("the host was asked"))
    given = [text for text in [*HARD, *texts.random_texts(3, 50)] if not has_whole_sections(tok, text)]
    assert len(given) > len(HARD)
    for _pass in ("cold", "warm"):
        assert encode_texts(device, tok, encoder, given) == oracle.encode(reference, given, add_special_tokens=False)


def test_a_batch_whose_arena_was_too_small_is_done_again_once(device, monkeypatch):
    reference = oracle.plain(vocabularies.text("own/byte-level"))
    tok, encoder = encoder_of(device, reference.to_str())
    monkeypatch.setattr(rooms, "LEAST", 100)
    encoder.shares._shares[:] = [1.1, 1.1, 1.1, 0.0]
    asked = []
    real = cold_bpe.normalize
    monkeypatch.setattr(cold_bpe, "normalize", lambda *a: asked.append(len(a[5])) or real(*a))
    assert encode_texts(device, tok, encoder, HARD) == oracle.encode(reference, HARD, add_special_tokens=False)
    assert len(asked) == 2
    assert encoder.shares._shares[3] > 0


# Faults

FILES = [f"{stem}.cuh" for stem in ("characters", "search", "normalize", "cold", "split_stages", "merge")] + [
    "cold_bpe.cu"
]
FAULTS = {
    "of equal ranks the rightmost": ("merge.cuh", "if (rank[other] < least) {", "if (rank[other] <= least) {"),
    "a stale entry of the heap": ("merge.cuh", "merges.merged_id[there] != merged", "false"),
    "a rank that does not outlive its pair": ("merge.cuh", "merges.merged_id[there] != merged", "true"),
    "a heap that is none": ("merge.cuh", "if (heap[child] >= waits) break;", "break;"),
    "a bucket that ends at a full one": ("merge.cuh", "found.entry[3] == NO_ENTRY", "true"),
    "the pair before is not renewed": ("merge.cuh", "if (before != 0) renew(", "if (false) renew("),
    "bytes do not overtake": ("merge.cuh", "waits && (found", "waits && (falls_back || found"),
    "whole words that end early": ("merge.cuh", "while (behind < end && ", "while (behind + 1 < end && "),
    "one byte too few": ("split_stages.cuh", "u32 i = 0; i < length; i++", "u32 i = 0; i + 1 < length || i == 0; i++"),
    "bytes that overtake": ("split_stages.cuh", "shift += utf8_length(text[at] & LETTER) - 1;", "shift = 0;"),
    "a match that ends where it was last seen": ("search.cuh", "if (entry & ACCEPTS) end = at;", "end = at;"),
    "a match without the last letter": ("search.cuh", "is_inside = at < count", "is_inside = at + 1 < count"),
    "a prefix for every word": ("split_stages.cuh", "(stage.at_start && !opens_text)", "false"),
    "a prefix for every text": ("split_stages.cuh", "(flags & stage.needs) == stage.needs", "true"),
    "what is removed stays": ("split_stages.cuh", "if (stage.removed >> right & 1) {", "if (false) {"),
    "no room for the heap": ("cold_bpe.cu", "symbols > short_most ? LONG_WORDS : 1", "1"),
}
IN_SHORT = ("of equal ranks the rightmost", "a stale entry of the heap", "one byte too few")


def is_noticed(device: EmulatedDevice) -> bool:
    """Do some chunks become other words or ids than they should."""
    model = model_of({"a": 0, "b": 1, "aa": 2, "aab": 3, "aaaa": 4}, [("aa", "aa"), ("aa", "b"), ("a", "a")])
    odd = model_of(
        {"a": 0, "b": 1, "c": 2, "d": 3, "bc": 4, "bcd": 5, "ab": 6, "abc": 6},
        [("b", "c"), ("a", "b"), ("bc", "d"), ("a", "bc")],
    )
    takes_words = model_of({"a": 0, "b": 1, "bab": 2}, [], ignore_merges=True)
    falls_back = model_of(FALLBACK, [], unk_token=UNK, byte_fallback=True)
    try:
        assert_model(device, model, [*all_words("ab", 6), "aab" * 30, "a" * 50])
        assert_model(device, model, [*all_words("ab", 6), "aab" * 30, "a" * 50], short=0)
        assert_model(device, odd, all_words("abcd", 5))
        assert_model(device, falls_back, ["中éa", "éa"])
        assert_model(device, takes_words, ["bab", "babb"])
        for name in ("own/byte-level", "own/ignore-merges", *STAGES):
            tables = staged(name) if name in STAGES else named(name)
            for flags in ENDS:
                assert_same(device, tables, [*texts.TEXTS, *SHORT_AND_LONG, *texts.random_texts(4, 50)], flags)
            tight = make(device, cold_bpe.upload(device, tables, 0), ragged(SHORT_AND_LONG)).report[WORK_ASKED]
            assert_same(device, tables, SHORT_AND_LONG, room=int(tight))
    except (AssertionError, DeviceError):
        return True
    return False


def test_right_kernels_pass(device):
    assert not is_noticed(device)


@pytest.mark.parametrize("fault", kernel_copies.cases(FAULTS, IN_SHORT))
def test_a_fault_is_noticed(device, fault, tmp_path):
    assert is_noticed(EmulatedDevice(folders=[kernel_copies.broken(tmp_path, *fault, FILES)]))


@pytest.fixture(scope="module")
def dumped(tmp_path_factory) -> Path:
    """Launches with an arena that is just large enough, and with one that is too small."""
    folder = tmp_path_factory.mktemp("launches")
    device = new_device(dump_folder=folder)
    chunks = ragged([*(text for text in HARD if len(text) < 300), *SHORT_AND_LONG, *texts.random_texts(5, 30)])
    for name in ("own/ignore-merges", "own/metaspace-first"):
        tables = cold_bpe.upload(device, named(name), 0)
        needed = int(make(new_device(), tables, chunks, ENDS[2]).report[WORK_ASKED])
        make(device, tables, chunks, ENDS[2], needed)
        make(device, tables, chunks, ENDS[2], needed // 2)
    return folder


@pytest.mark.parametrize("mode", [Mode.ADDRESS, pytest.param(Mode.THREAD, marks=pytest.mark.slow)])
def test_sanitizers_find_nothing(dumped, mode):
    launches = sorted(dumped.glob("*.launch"))
    assert len(launches) == 16
    assert [replay(launch, mode) for launch in launches] == [""] * len(launches)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launch", "fault"),
    [
        ("00000_normalize_bpe_chunks", ("cold_bpe.cu", "max(symbols, least)", "min(symbols, least) / 2")),
        ("00001_split_chunks", ("characters.cuh", "text[at + shift] =", "text[at + shift + 4096] =")),
    ],
)
def test_sanitizers_notice_a_fault(dumped, tmp_path, launch, fault):
    folder = kernel_copies.broken(tmp_path, *fault, FILES)
    assert replay(dumped / f"{launch}.launch", Mode.ADDRESS, folders=[folder]) != ""
