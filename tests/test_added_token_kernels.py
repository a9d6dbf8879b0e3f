"""kernels/added_tokens.cu on the emulator: texts on a device are divided as on the host, into the same sections."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import compare
import kernel_copies
import numpy as np
import pytest
import vocabularies
from hypothesis import given, settings
from hypothesis import strategies as st
from test_added_tokens import ALPHABET, HARD, NORMALIZERS, definition, some_tokens, token
from test_cut_kernels import made_up_thirds
from test_hot import ALL_ENDS, MadeUpModel, random_tables

from cpu_ref.added_tokens import mark_places
from gpu_tok import Tokenizer
from gpu_tok import added_tokens as on_host
from gpu_tok.batch import TextBatch
from gpu_tok.device import Workers
from gpu_tok.emulated import EmulatedDevice, Mode, replay
from gpu_tok.errors import DeviceError, TextError
from gpu_tok.on_device import added_tokens, cut, path
from gpu_tok.on_device.report import TOKENS_SEEN
from gpu_tok.on_device.text import THREADS, TILE, Text, of_rows, upload
from gpu_tok.postprocess import plan_of
from gpu_tok.tables.added_tokens import BY_SUSPICION, NATIVE, AddedTokens, compile_added_tokens
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.postprocess import compile_postprocess

BLOCK = 64  # bytes of text to a word of marks
UNTOUCHED = np.uint64(2**64 - 1)
WORKERS = Workers(1)
ANY_CUTS = random_tables(1)


@pytest.fixture(scope="module")
def device():
    try:
        return EmulatedDevice()
    except DeviceError as error:
        pytest.skip(error.finding)


def whole_on(device, batch: TextBatch, flag_mask: int = 0) -> Text:
    return of_rows(device, device.upload(batch.bytes), device.upload(batch.starts), flag_mask)


def divide(device, whole: Text, added: AddedTokens) -> Text:
    tile_tokens = tile_tokens_of(whole, added)
    return added_tokens.divide(device, whole, tile_tokens, added_tokens.upload(device, added.tables), added)


def tile_tokens_of(whole: Text, added: AddedTokens) -> np.ndarray:
    """As the cut step leaves them, whatever kernels the device under test has."""
    plain = EmulatedDevice()
    return cut.cut_words(plain, whole, cut.upload(plain, ANY_CUTS, added.tables)).tile_tokens


def divided_on(device, batch: TextBatch, added: AddedTokens) -> Text:
    return divide(device, whole_on(device, batch), added)


def shown(device, text: Text) -> list[list[tuple[str, int]]]:
    """The sections of each row: their text, and the id of a token or the complement of the flags."""
    bytes, start, kind, row_section = map(
        device.download, (text.bytes, text.section_start, text.kind, text.row_section)
    )
    parts = [bytes[begin:end].tobytes().decode() for begin, end in itertools.pairwise(start.tolist())]
    both = list(zip(parts, kind.tolist(), strict=True))
    return [both[begin:end] for begin, end in itertools.pairwise(row_section.tolist())]


def closed_of(device, text: Text) -> list[int]:
    return [0] * len(text.kind) if text.closed is None else device.download(text.closed).tolist()


def found_or_refused(find: Callable[[], Any]) -> Any:
    """What was found, or why a text was refused."""
    try:
        return find()
    except TextError as error:
        return str(error)


def assert_divided_as_on_the_host(device, batch: TextBatch, added: AddedTokens) -> None:
    whole = whole_on(device, batch)
    sections = found_or_refused(lambda: on_host.run(batch, added, WORKERS))
    ours = found_or_refused(lambda: divide(device, whole, added))
    if isinstance(sections, str) or isinstance(ours, str):
        assert ours == sections
        return
    expected = upload(device, sections, 0xFF)
    for row, pair in enumerate(zip(shown(device, ours), shown(device, expected), strict=True)):
        assert pair[0] == pair[1], f"row {row}: {batch.text(row)!r}"
    assert closed_of(device, ours) == closed_of(device, expected)
    assert ours.tiles == expected.tiles
    assert ours.is_divided
    is_covered_twice = len(sections.bytes) > len(batch.bytes)
    assert (ours.bytes is whole.bytes) != is_covered_twice, "the host was asked without need, or not asked"


@settings(max_examples=100, deadline=None)
@given(
    tokens=some_tokens,
    normalizer=st.sampled_from(sorted(NORMALIZERS)),
    encode_special_tokens=st.booleans(),
    data=st.data(),
)
def test_made_up_tokens(tokens, normalizer, encode_special_tokens, data, device):
    made = definition(tokens, NORMALIZERS[normalizer])
    made.reference.encode_special_tokens = encode_special_tokens
    pieces = st.sampled_from([token["content"] for token in tokens]) | st.text(ALPHABET, max_size=3)
    texts = data.draw(st.lists(st.lists(pieces, max_size=7).map("".join), max_size=4))
    assert_divided_as_on_the_host(device, TextBatch.of(texts), compile_added_tokens(made))


ALL_KINDS = [
    token("<a>", lstrip=True, rstrip=True),
    token("<b>", single_word=True),
    token("aba", normalized=True),
    token("<a", rstrip=True),
    token("ba", special=True),
    token("b>"),
    token("> ", normalized=True, lstrip=True),
]
NOT_STABLE = token("é≯", normalized=True)  # with it, NFC sections are looked through by suspicion


def some_texts(seed: int, tokens: list[dict], count: int = 60) -> list[str]:
    """Tokens and white space above all, so that they touch."""
    pick = random.Random(seed)
    contents = [token["content"] for token in tokens]
    pieces = [
        *3 * contents,
        *4 * [" "],
        "\t ",
        "a",
        "b",
        "é",
        "中",
        *3 * ["\u0338"],
        "\u200d",
        "<",
        ">",
        "－",
        "x" * 70,
    ]
    return ["".join(pick.choices(pieces, k=pick.randrange(30))) for _ in range(count)]


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tokens", [ALL_KINDS, [*ALL_KINDS, NOT_STABLE]], ids=["stable", "not stable"])
def test_random_texts_of_all_kinds_of_tokens(tokens, seed, normalizer):
    made = definition(tokens, NORMALIZERS[normalizer])
    batch = TextBatch.of(some_texts(seed, tokens))
    assert_divided_as_on_the_host(EmulatedDevice(seed), batch, compile_added_tokens(made))


STEMS = (
    "bert-base-uncased",
    "clip-vit-base",
    "deberta-v3-base",
    "deepseek-v3",
    "gpt-neox-20b",
    "mistral-v3",
    "t5-small",
)


@pytest.mark.parametrize("name", [*vocabularies.names(sources=("own",)), *(f"shared/{stem}" for stem in STEMS)])
def test_tokenizers_at_hand(definition_text, name, device):
    made = Definition.from_str(definition_text(name))
    own = [token["content"] for token in made.added_tokens[:: max(1, len(made.added_tokens) // 40)]]
    texts = [text for text, _why in HARD]
    texts += [f"a{content}b {content} {content.upper()}" for content in own] + ["".join(own)]
    added = compile_added_tokens(made)
    if added.count:
        assert_divided_as_on_the_host(device, TextBatch.of(texts), added)


@pytest.mark.parametrize("stem", ["modernbert", "deberta-v3-base", "clip-vit-base"])
def test_real_texts(definition_text, real_texts, stem, device):
    added = compile_added_tokens(Definition.from_str(definition_text(f"shared/{stem}")))
    batch = TextBatch.of([*real_texts("code", 60_000), *real_texts("markdown", 30_000)])
    assert_divided_as_on_the_host(device, batch, added)


@pytest.mark.parametrize("ends", ["", "b"], ids=["at the last byte", "before it"])
@pytest.mark.parametrize("content", ["<a>", "<", "é", "中"])
def test_tokens_at_the_borders_of_words(content, ends, device):
    added = compile_added_tokens(definition([token(content, rstrip=True)]))
    for before in [*range(20), *range(BLOCK - 4, BLOCK + 4)]:
        assert_divided_as_on_the_host(device, TextBatch.of(["b" * before + content + ends, content, " "]), added)


def test_a_token_does_not_reach_into_the_next_text(device):
    added = compile_added_tokens(definition([token("<a>"), token("b", rstrip=True), token("c", single_word=True)]))
    batch = TextBatch.of(["<", "a>", "b", " b", "", " ", "c", "c", "<a", ">"])
    assert_divided_as_on_the_host(device, batch, added)
    assert [len(row) for row in shown(device, divided_on(device, batch, added))] == [1, 1, 1, 2, 1, 1, 1, 1, 1, 1]


def test_a_suspected_section_is_settled_by_the_host(device):
    added = compile_added_tokens(definition([token("<a>", normalized=True)], NORMALIZERS["Lowercase"]))
    assert added.normalized_pass == BY_SUSPICION
    batch = TextBatch.of(["a b", "a <A b", "b<A>b", "", "<A>"])
    assert_divided_as_on_the_host(device, batch, added)
    assert closed_of(device, divided_on(device, batch, added)) == [0, 0, 1, 0, 1]


def test_a_neighbour_that_composes_with_a_token_sends_the_section_whole(device):
    added = compile_added_tokens(definition([token("<a>", normalized=True)], NORMALIZERS["NFC"]))
    assert added.normalized_pass == NATIVE
    batch = TextBatch.of(["b<a>b<a>\u0338b<a>", "<a>"])
    assert_divided_as_on_the_host(device, batch, added)
    assert closed_of(device, divided_on(device, batch, added)) == [1, 1]


def test_text_that_is_covered_twice_is_copied(device):
    added = compile_added_tokens(definition([token("<", rstrip=True), token("  ")]))
    batch = TextBatch.of(["a", "<   a", "b"])
    assert_divided_as_on_the_host(device, batch, added)
    assert device.download(divided_on(device, batch, added).bytes).tobytes() == b"a<      ab"


def test_a_text_that_makes_the_reference_panic_is_named(device):
    added = compile_added_tokens(definition([token("<", rstrip=True), token("  ", lstrip=True)]))
    with pytest.raises(TextError, match="text 1: its added tokens overlap"):
        divided_on(device, TextBatch.of(["a", "<    a"]), added)


def test_many_rows_and_none(device):
    added = compile_added_tokens(definition([token("<a>")]))
    assert_divided_as_on_the_host(device, TextBatch.of(["b<a>", "", "b"] * 3000), added)
    assert len(divided_on(device, TextBatch.of([]), added).kind) == 0


@pytest.mark.parametrize("count", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 40 * BLOCK + 7])
def test_places_are_those_of_the_cpu(count, device):
    added = compile_added_tokens(definition(ALL_KINDS, NORMALIZERS["NFC"]))
    flat = np.random.default_rng(count).choice(np.frombuffer("ab<> é中".encode(), np.uint8), count)
    expected = np.zeros(-(-count // BLOCK), np.uint64)
    mark_places(flat, 0, count, added.tables.begins, added.tables.first_bytes, expected)
    tables, places = added_tokens.upload(device, added.tables), np.zeros(len(expected), np.uint64)
    tile_tokens = np.ones(-(-count // TILE), np.uint8)
    device.launch("mark_places", 2, THREADS, device.upload(flat), count, tile_tokens, tables.opens, tables.begins,
                  places)  # fmt: skip
    assert places.tolist() == expected.tolist()


def texts_with_few_tokens(seed: int) -> list[str]:
    """Longer than tiles, most of which have no token, and `<` everywhere, which may begin one."""
    pick = random.Random(seed)
    return [
        "".join("x<" * pick.randrange(2 * TILE) + pick.choice(["<a>", "b>", "<b>", "aba", " "]) for _ in range(6))
        for _ in range(5)
    ]


@pytest.mark.parametrize("normalizer", ["none", "NFC", "Lowercase"])
@pytest.mark.parametrize("seed", range(4))
def test_tiles_without_tokens_are_passed_over(seed, normalizer, device):
    added = compile_added_tokens(definition(ALL_KINDS, NORMALIZERS[normalizer]))
    batch = TextBatch.of(texts_with_few_tokens(seed))
    tile_tokens = tile_tokens_of(whole_on(device, batch), added)
    assert 0 < tile_tokens.sum() < len(tile_tokens) / 2
    assert_divided_as_on_the_host(device, batch, added)
    places = np.full(-(-len(batch.bytes) // BLOCK), UNTOUCHED)
    tables = added_tokens.upload(device, added.tables)
    device.launch("mark_places", 2, THREADS, device.upload(batch.bytes), len(batch.bytes), tile_tokens, tables.opens,
                  tables.begins, places)  # fmt: skip
    assert ((places == UNTOUCHED) == (np.repeat(tile_tokens, TILE // BLOCK)[: len(places)] == 0)).all()


@pytest.mark.parametrize("name", vocabularies.names(sources=("own",)))
def test_ids_are_those_of_the_reference(name, definition_text, reference):
    tok = Tokenizer.from_str(definition_text(name), workers=1)
    if not tok.is_divisible or tok.added_tokens.count == 0:
        pytest.skip("its texts go to the reference whole, or there is nothing to find")
    device = EmulatedDevice()
    encoder = path.encoder_on(device, tok.cuts, tok.cold, 1 << 18, tok.added_tokens)
    plan = plan_of(compile_postprocess(tok.definition), None, None)
    texts = [*some_texts(1, tok.definition.added_tokens[:20], 30), "", *(text for text, _why in HARD)]
    for is_expected in (False, True):
        assert encoder.shares.expects_tokens == is_expected
        begun = begin(device, texts, encoder, plan)
        assert begun.told.wait()[TOKENS_SEEN] > 0
        compare.assert_same_ids(reference(name), texts, ids_of(device, begun, encoder))
    plain = ["the cat", "", "sat"]
    compare.assert_same_ids(reference(name), plain, ids_of(device, begin(device, plain, encoder, plan), encoder))


def begin(device, texts: list[str], encoder, plan) -> path.Batch:
    whole = whole_on(device, TextBatch.of(texts), encoder.cold.flags)
    return path.begin(device, whole, encoder, plan, encoder.shares.rooms(len(whole.bytes)))


def ids_of(device, begun: path.Batch, encoder) -> list[list[int]]:
    rows = path.end(device, begun, encoder)
    ids, starts = device.download(rows.ids), device.download(rows.starts)
    return [ids[begin:end].tolist() for begin, end in itertools.pairwise(starts)]


class Noting(EmulatedDevice):
    """Notes which kernels it launches."""

    launched: tuple[str, ...] = ()

    def launch(self, kernel, grid, block, *arguments):
        self.launched = (*self.launched, kernel)
        super().launch(kernel, grid, block, *arguments)


TWICE = [token("<", rstrip=True), token("  ")]  # of `<   a` they cover a space twice


@pytest.mark.parametrize("is_expected", [False, True], ids=["unexpected", "expected"])
@pytest.mark.parametrize(
    ("tokens", "texts", "words_cut"),
    [
        (TWICE, ["a b", "b"], 1),
        (TWICE, ["a<b", "< "], 1),
        (TWICE, ["b", "a<   a"], 2),
        (ALL_KINDS, texts_with_few_tokens(4), 1),
        *((ALL_KINDS, some_texts(seed, ALL_KINDS), 1) for seed in range(4, 8)),
    ],
    ids=["no token", "tokens", "covered twice", "few tokens", *(f"random {seed}" for seed in range(4))],
)
def test_texts_divided_on_the_way_have_the_ids_of_sections(tokens, texts, words_cut, is_expected):
    """What is cut before the sections are known is cut as if they had been."""
    device, batch, added = Noting(), TextBatch.of(texts), compile_added_tokens(definition(tokens))
    tables = made_up_thirds(words_cut)
    encoder = path.encoder_on(device, tables, MadeUpModel(ALL_ENDS), 1 << 20, added)
    sections = on_host.run(batch, added, WORKERS)
    rows = path.encode(device, sections, encoder)
    encoder.shares.expects_tokens, device.launched = is_expected, ()
    ids, starts = rows.ids, rows.starts.tolist()
    expected = [ids[begin:end].tolist() for begin, end in itertools.pairwise(starts)]
    assert ids_of(device, begin(device, texts, encoder, None), encoder) == expected
    assert device.launched.count("cut_words") == words_cut
    assert ("divide_sections" in device.launched) == (len(sections.id) > len(batch))


@pytest.mark.parametrize("is_expected", [False, True], ids=["unexpected", "expected"])
def test_bytes_that_are_no_utf8_are_refused_before_they_are_divided(is_expected):
    device, added = Noting(), compile_added_tokens(definition(ALL_KINDS))
    encoder = path.encoder_on(device, random_tables(1), MadeUpModel(), 1 << 16, added)
    encoder.shares.expects_tokens = is_expected
    flat = np.frombuffer(b"b<a>b<a>\xf0\x9f", np.uint8)
    whole = of_rows(device, device.upload(flat), device.upload(np.array([0, 5, len(flat)])), 0)
    with pytest.raises(TextError) as raised:
        path.end(device, path.begin(device, whole, encoder, None, encoder.shares.rooms(len(flat))), encoder)
    assert raised.value.row == 1
    assert "divide_sections" not in device.launched


FAULTS = {
    "the last white space not eaten": (
        "if ((search.tables.code_point[found.value] & WHITE)",
        "if (at + 1 == end || (search.tables.code_point[found.value] & WHITE)",
    ),
    "white space of the token before eaten": (
        "at, progress.text_from, section.end)",
        "at, section.start, section.end)",
    ),
    "the last bytes of a word not marked": ("part < BLOCK;", "part < BLOCK - 16;"),
    "what follows a single word not looked at": ("return end == section.end ||", "return true ||"),
    "a discarded match that swallows nothing": ("? at + 1 : match.end;", "? at + 1 : at + 1;"),
    "neighbours that compose overlooked": ("& JOINS) != 0", "& JOINS) > JOINS"),
    "suspects overlooked": ("search.kind == NORMALIZED && holds_suspect", "false && holds_suspect"),
    "a first part that does not begin the text": ("& (SECTION_FIRST | DOCUMENT_FIRST)", "& SECTION_FIRST"),
    "text covered twice overlooked": ("return is_covered_twice ? FOR_HOST : parts.count", "return parts.count"),
    "an empty text that has no section": ("|| section.start == section.end", ""),
    "the tile behind one without tokens not looked at": ("at = (at / TILE + 1) * TILE;", "at += TILE;"),
    "a tile taken for the one before it": ("tile_tokens[block * BLOCK", "tile_tokens[(block - 1) * BLOCK"),
}
IN_SHORT = ("the last white space not eaten", "the last bytes of a word not marked")


def is_noticed(folder: Path) -> bool:
    device = EmulatedDevice(folders=[folder])
    covering = [*ALL_KINDS, token("  ")]
    try:
        for tokens, normalizer in itertools.product((ALL_KINDS, covering), ("none", "NFC", "Lowercase")):
            added = compile_added_tokens(definition(tokens, NORMALIZERS[normalizer]))
            for seed in range(3):
                assert_divided_as_on_the_host(device, TextBatch.of(some_texts(seed, tokens)), added)
                assert_divided_as_on_the_host(device, TextBatch.of(texts_with_few_tokens(seed)), added)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("fault", kernel_copies.cases(FAULTS, IN_SHORT))
def test_a_fault_is_noticed(fault, tmp_path):
    assert is_noticed(kernel_copies.broken(tmp_path, "added_tokens.cu", *fault))


def test_right_kernels_pass(tmp_path):
    assert not is_noticed(kernel_copies.copied(tmp_path, "added_tokens.cu"))


@pytest.fixture
def alone(tmp_path) -> Path:
    """A folder with this step's kernels only: sanitizers compile slowly."""
    return kernel_copies.copied(tmp_path / "kernels", "added_tokens.cu")


@pytest.mark.parametrize("normalizer", ["NFC", "Lowercase"])
@pytest.mark.parametrize("mode", [Mode.ADDRESS, pytest.param(Mode.THREAD, marks=pytest.mark.slow)])
def test_sanitizers_find_nothing(mode, normalizer, alone, tmp_path):
    device = EmulatedDevice(dump_folder=tmp_path, folders=[alone])
    added = compile_added_tokens(definition(ALL_KINDS, NORMALIZERS[normalizer]))
    divided_on(device, TextBatch.of(["", *some_texts(7, ALL_KINDS, 20), "<a"]), added)
    dumped = sorted(tmp_path.glob("*.launch"))
    assert len(dumped) == 5
    assert [replay(launch, mode, folders=[alone]) for launch in dumped] == [""] * 5


@pytest.mark.parametrize("wrong", [b"\x80", b"\xc2", b"<a>\xf0\x9f", b" \x80\x80\x80\x80<a>", b"\xe4\xb8"])
def test_bytes_that_are_no_utf8_do_no_harm(wrong, alone, tmp_path):
    """The report of the batch refuses them, but not before."""
    device = EmulatedDevice(dump_folder=tmp_path, folders=[alone])
    flat = np.frombuffer(wrong * 3, np.uint8)
    whole = of_rows(device, device.upload(flat), device.upload(np.array([0, len(wrong), len(flat)])), 0)
    divide(device, whole, compile_added_tokens(definition(ALL_KINDS)))
    assert [replay(launch, Mode.ADDRESS, folders=[alone]) for launch in sorted(tmp_path.glob("*.launch"))] == [""] * 5
