"""`Tokenizer` against the reference, end to end: all tokenizers at hand, all hard texts, every way to run them."""

from __future__ import annotations

import dataclasses
import functools
import io
import itertools
import os
import pickle
import random
import string
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import corpora
import numpy as np
import oracle
import pyarrow as pa
import pytest
import texts
import vocabularies
from compare import assert_same_ids
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from rich.console import Console
from tokenizers import Tokenizer as Reference

import gpu_tok
from gpu_tok import DefinitionError, IdError, NotYetError, TextBatch, TextError, Tokenizer, cold
from gpu_tok.cold import _texts as texts_of
from gpu_tok.info import Info

QUICK = ["own/bert", "own/byte-level", "own/metaspace-first", "own/unigram"]


@pytest.fixture(scope="module")
def on_cpu(definition_text: Callable[[str], str]) -> Callable[[str], Tokenizer]:
    """One tokenizer a name, kept for the whole file: what it has learnt by then must not matter."""

    @functools.cache
    def make(name: str) -> Tokenizer:
        return Tokenizer.from_str(definition_text(name), device="cpu", workers=2, table_bytes=1 << 22)

    return make


@pytest.fixture(scope="module")
def tokenizer(on_cpu: Callable[[str], Tokenizer], device: str) -> Callable[[str], Tokenizer]:
    """The same on each device."""
    return functools.cache(lambda name: on_cpu(name).to(device))


def with_tokens(reference: Reference, seed: int, count: int = 60) -> list[str]:
    """Texts with the tokenizer's own added tokens in them, beside troublemakers and white space."""
    pick = random.Random(seed)
    contents = [token.content for token in reference.get_added_tokens_decoder().values()]
    contents = pick.sample(contents, min(len(contents), 30))
    parts = [*contents, *(content.lower() for content in contents), *(content[:-1] for content in contents)]
    parts += [" ", "\n", "a", "the", " cat", "日本", "é", "  ", "\u3000", "[", "<", "_"]
    return ["".join(pick.choices(parts, k=pick.randrange(1, 12))) for _ in range(count)]


@pytest.mark.parametrize("name", vocabularies.names())
def test_ids_equal_the_reference(name, tokenizer, reference):
    ours, theirs = tokenizer(name), reference(name)
    given_texts = [*texts.TEXTS, *texts.random_texts(1, 150), *with_tokens(theirs, 2)]
    for special in (True, False):
        batch = ours.encode_batch(given_texts, special, truncation=False, padding=False)
        assert_same_ids(theirs, given_texts, batch, special)


@pytest.mark.parametrize("name", vocabularies.names(vocabularies.BYTE_LEVEL))
def test_all_steps_of_a_byte_level_tokenizer_are_native(name, on_cpu):
    info = on_cpu(name).info()
    assert (info.encode.grade, info.encode.reasons) == (1, ())
    assert info.decode.grade == 1 or info.decoder_type != "ByteLevel"
    assert info.cuts.certified


@pytest.mark.parametrize("name", vocabularies.names(sources=("shared",)))
def test_ids_of_real_texts_equal_the_reference(name, tokenizer, reference, real_texts):
    ours, theirs = tokenizer(name), reference(name)
    documents = [text for language in corpora.LANGUAGES for text in real_texts(language, 12_000)]
    for _pass in ("cold", "warm"):
        assert_same_ids(theirs, documents, ours.encode_batch(documents, truncation=False, padding=False))


@pytest.mark.slow
@pytest.mark.parametrize("name", vocabularies.names(sources=("shared",)))
def test_ids_of_many_real_texts_equal_the_reference(name, tokenizer, reference, real_texts):
    ours, theirs = tokenizer(name), reference(name)
    documents = [text for language in corpora.LANGUAGES for text in real_texts(language, 400_000)]
    assert_same_ids(theirs, documents, ours.encode_batch(documents, truncation=False, padding=False))


@pytest.mark.parametrize("name", QUICK)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts.strategy())
def test_any_text_has_the_ids_of_the_reference(name, tokenizer, reference, text):
    assert_same_ids(reference(name), [text], tokenizer(name).encode_batch([text], truncation=False, padding=False))


@functools.cache
def bpe_at_hand() -> list[str]:
    names = vocabularies.names(vocabularies.BYTE_LEVEL, vocabularies.SENTENCEPIECE)
    return [name for name in names if vocabularies.present(name)]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=some.data())
def test_any_text_has_the_ids_of_the_reference_for_any_bpe(tokenizer, reference, data):
    name, text = data.draw(some.sampled_from(bpe_at_hand())), data.draw(texts.strategy())
    assert_same_ids(reference(name), [text], tokenizer(name).encode_batch([text], truncation=False, padding=False))


def long_texts(length: int) -> dict[str, str]:
    """Texts of one word, or nearly so."""
    source = random.Random(3)
    return {
        "one letter": "a" * length,
        "underscores": "_" * length,
        "base64": "".join(source.choices(string.ascii_letters + string.digits + "+/", k=length)),
        "random bytes": source.randbytes(length).decode("latin-1"),
        "Chinese": "".join(chr(source.randint(0x4E00, 0x9FA5)) for _ in range(length // 3)),
        "spaces": " " * length,
    }


def seconds_of(tokenizer: Tokenizer, text: str) -> float:
    begun = time.process_time()
    tokenizer.encode_batch([text], truncation=False, padding=False)
    return time.process_time() - begun


def test_a_word_of_any_length_takes_near_linear_time(definition_text, reference):
    ours = Tokenizer.from_str(definition_text("own/byte-level"), device="cpu", workers=1, table_bytes=0)
    long_ones, short_ones = long_texts(160_000), long_texts(20_000)
    assert_same_ids(reference("own/byte-level"), [*long_ones.values()], ours.encode_batch([*long_ones.values()]))
    for kind, text in long_ones.items():
        long, short = (min(seconds_of(ours, each) for _ in range(3)) for each in (text, short_ones[kind]))
        assert long < 0.02 + 3 * 8 * short, kind


@pytest.mark.slow
@pytest.mark.parametrize("name", vocabularies.names(vocabularies.BYTE_LEVEL, vocabularies.SENTENCEPIECE))
def test_a_megabyte_of_one_word(name, tokenizer, reference, device):
    for kind, text in long_texts(1_000_000 if device == "cpu" else 200_000).items():
        begun = time.process_time()
        batch = tokenizer(name).encode_batch([text], truncation=False, padding=False)
        assert time.process_time() - begun < 20, kind
        assert_same_ids(reference(name), [text], batch)


@pytest.mark.parametrize("name", QUICK)
def test_any_split_of_a_batch_gives_the_same_ids(name, tokenizer):
    given_texts = [*texts.TEXTS, *texts.random_texts(3, 100)]
    whole = tokenizer(name).encode_batch(given_texts).to_list()
    edges = [0, *sorted(texts.random_splits(4, len(given_texts), 9)), len(given_texts)]
    parts = [tokenizer(name).encode_batch(given_texts[a:b]).to_list() for a, b in itertools.pairwise(edges)]
    assert [row for part in parts for row in part] == whole


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("options", [{"workers": 1}, {"workers": 5}, {"table_bytes": 0}, {"table_bytes": 5000}])
def test_any_worker_count_and_table_gives_the_same_ids(name, options, device, definition_text, on_cpu):
    given_texts = texts.TEXTS * 3
    ours = Tokenizer.from_str(definition_text(name), device=device, **options)
    expected = on_cpu(name).encode_batch(given_texts).to_list()
    for _pass in ("cold", "warm"):
        assert ours.encode_batch(given_texts).to_list() == expected


@pytest.mark.parametrize("name", vocabularies.names(sources=("own",)))
def test_texts_come_back_as_the_reference_decodes_them(name, tokenizer, reference):
    ours = tokenizer(name)
    batch = ours.encode_batch(texts.TEXTS, padding="longest")
    rows = batch.to_list()
    for skip in (True, False):
        expected = oracle.decode(reference(name), rows, skip)
        for ids in (batch, rows, batch.to_padded().input_ids):
            assert ours.decode_batch(ids, skip) == expected
            assert ours.decode_bytes(ids, skip).to_list() == expected


def test_an_impossible_id_names_its_row(tokenizer):
    for name in QUICK:
        with pytest.raises(IdError, match="row 1: the id -100 at 1 is not between"):
            tokenizer(name).decode_batch([[5], [5, -100]])


def test_one_long_text_among_many_short_ones(tokenizer, reference):
    for name in QUICK:
        given_texts = ["a b", " ".join(texts.TEXTS) * 40, *[""] * 1000, "word " * 60_000, "x"]
        assert_same_ids(reference(name), given_texts, tokenizer(name).encode_batch(given_texts))


def test_a_batch_of_nothing(tokenizer):
    for name in QUICK:
        empty = tokenizer(name).encode_batch([])
        assert (len(empty), empty.to_list(), empty.to_padded().input_ids.shape) == (0, [], (0, 0))
        assert len(tokenizer(name).encode_batch([""] * 100_000)) == 100_000


def test_texts_of_every_form_have_the_same_ids(tokenizer):
    ours = tokenizer("own/bert")
    rows = ["the cat", "", "sät日本"]
    expected = ours.encode_batch(rows).to_list()
    for given_texts in ([row.encode() for row in rows], pa.array(rows), pa.chunked_array([rows]), TextBatch.of(rows)):
        assert ours.encode_batch(given_texts).to_list() == expected
    sliced = TextBatch.of(["before", *rows, "behind"])
    inner = TextBatch(sliced.bytes, sliced.starts[1:-1].copy())
    assert ours.encode_batch(inner).to_list() == expected


def test_arrays_that_may_not_be_written_to_are_taken(tokenizer):
    flat, starts = np.frombuffer(b"the cat", np.uint8), np.array([0, 3, 7])
    starts.flags.writeable = False
    assert len(tokenizer("own/bert").encode_batch(TextBatch(flat, starts))) == 2


def test_texts_may_begin_beyond_what_32_bits_hold(tokenizer):
    batch, before = TextBatch.of(texts.TEXTS), (1 << 31) - 5
    far = np.zeros(before + len(batch.bytes), np.uint8)  # memory that nobody touches is not there
    far[before:] = batch.bytes
    for name in ("own/bert", "own/byte-level"):
        ours = tokenizer(name)
        assert ours.encode_batch(TextBatch(far, before + batch.starts)).to_list() == ours.encode_batch(batch).to_list()


@pytest.mark.parametrize("name", ["own/bert", "own/byte-level", "own/prepend"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("max_length", [0, 1, 2, 3, 5, 16, 1000])
def test_truncation_and_padding_equal_the_reference(name, side, max_length, device, definition_text):
    theirs = oracle.copy_of(oracle.plain(definition_text(name)))
    theirs.enable_truncation(max_length, direction=side)
    theirs.enable_padding(direction=side, pad_id=3, pad_type_id=1, pad_to_multiple_of=4)
    ours = Tokenizer.from_reference(theirs, device=device)
    batch = ours.encode_batch(texts.TEXTS)
    expected = theirs.encode_batch(texts.TEXTS)
    assert batch.to_list() == [row.ids for row in expected]
    padded = batch.to_padded()
    assert padded.attention_mask.tolist() == [row.attention_mask for row in expected]
    assert padded.token_type_ids.tolist() == [row.type_ids for row in expected]
    off = ours.encode_batch(texts.TEXTS, truncation=False, padding=False)
    assert_same_ids(oracle.plain(definition_text(name)), texts.TEXTS, off)


@pytest.mark.parametrize("padding", ["longest", "max_length"])
def test_arguments_go_before_the_file(padding, device, definition_text):
    theirs = oracle.copy_of(oracle.plain(definition_text("own/bert")))
    theirs.enable_truncation(7)
    theirs.enable_padding(length=7 if padding == "max_length" else None, pad_to_multiple_of=3)
    ours = Tokenizer.from_str(definition_text("own/bert"), device=device)
    batch = ours.encode_batch(texts.TEXTS, truncation=True, max_length=7, padding=padding, pad_to_multiple_of=3)
    assert_same_ids(theirs, texts.TEXTS, batch)


FIRST, SECOND = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
TWICE = {"type": "TemplateProcessing", "single": [FIRST] * 2, "pair": [FIRST, SECOND], "special_tokens": {}}


def test_a_post_processor_without_a_native_form_is_exact_too(device, definition_text):
    text = oracle.changed(definition_text("own/bert"), post_processor=TWICE)
    given_texts = ["the cat", "", "sat"]
    batch = Tokenizer.from_str(text, device=device).encode_batch(given_texts, padding="longest")
    theirs = oracle.copy_of(oracle.plain(text))
    theirs.enable_padding()
    assert_same_ids(theirs, given_texts, batch)
    assert batch.to_padded().token_type_ids.tolist() == [row.type_ids for row in theirs.encode_batch(given_texts)]


def test_the_switch_of_the_reference_that_no_file_holds_is_taken_over(definition_text):
    reference = oracle.copy_of(Reference.from_str(definition_text("own/bert")))
    reference.encode_special_tokens = True
    given_texts = ["[CLS] the cat [SEP]", "sat[MASK]"]
    ours = Tokenizer.from_reference(reference)
    assert_same_ids(reference, given_texts, ours.encode_batch(given_texts))
    assert_same_ids(reference, given_texts, pickle.loads(pickle.dumps(ours)).encode_batch(given_texts))


def test_a_pickled_tokenizer_has_the_same_definition_and_options(device, definition_text):
    ours = Tokenizer.from_str(definition_text("own/byte-level"), device=device, workers=1, table_bytes=0)
    again = pickle.loads(pickle.dumps(ours))
    assert again.definition.json == ours.definition.json
    assert (again.workers.count, again.table.budget, again.device.name) == (1, 0, device)
    assert again.encode_batch(texts.TEXTS).to_list() == ours.encode_batch(texts.TEXTS).to_list()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tokenizer("tokenizer.json"), "use Tokenizer.from_file"),
        (lambda: Tokenizer.from_reference("tokenizer.json"), "pass a tokenizers.Tokenizer"),
        (lambda: Tokenizer.from_file("no.json"), "no.json: cannot be read: No such file or directory\n"),
        (lambda: Tokenizer.from_str("{}"), "does not load it: Model missing"),
    ],
)
def test_what_makes_no_tokenizer_says_what_does(make, message):
    with pytest.raises(DefinitionError) as caught:
        make()
    assert message in str(caught.value)


def test_bad_texts_are_named(tokenizer):
    for name in QUICK:
        with pytest.raises(TextError, match=r"text 1: .*surrogate") as caught:
            tokenizer(name).encode_batch(["fine", "b\udc00d"])
        assert caught.value.row == 1
        with pytest.raises(TextError, match="text 2: byte 0xff"):
            tokenizer(name).encode_batch(["fine", b"fine", b"\xff"])
        replaced = tokenizer(name).encode_batch(["b\udc00d", b"b\xffd"], invalid_utf8="replace")
        assert replaced.to_list() == tokenizer(name).encode_batch(["b\ufffdd"] * 2).to_list()


BROKEN = [
    (b"a\x80b\xbf", "continuation bytes alone"),
    (b"\xc3", "a character of two bytes without its second, at the end"),
    (b"\xc3 a\xc3\xc3\xa9", "and before others"),
    (b"the \xe4\xb8", "one of three bytes without its third"),
    (b"\xe4\xb8 cat\xe4b\xe4\xb8\xad", "and before others"),
    (b"\xf0\x9f\x98", "one of four bytes without its fourth"),
    (b"\xf0\x9f\x98\xf0\x9f\xf0\x9f\x98\x80 \xf0", "and before others"),
    (b"\xc0\xaf\xe0\x9f\xbf\xf0\x8f\xbf\xbf", "overlong forms"),
    (b"\xed\xa0\xbd\xed\xb8\x80x", "surrogates"),
    (b"\xf4\x90\x80\x80\xf5\xfe\xff", "beyond the last code point"),
    ("it's \u4e2d\u56fd 123\r\n".encode()[:-5] + b"\xff's", "a contraction behind a bad byte"),
]


@pytest.mark.parametrize("form", [list, pa.array])
def test_invalid_and_truncated_utf8_is_an_error_or_replaced(form, tokenizer, reference):
    rows = [row for row, _reason in BROKEN]
    for name in QUICK:
        ours, expected = tokenizer(name), [row.decode(errors="replace") for row in rows]
        assert_same_ids(reference(name), expected, ours.encode_batch(form(rows), invalid_utf8="replace"))
        for row in rows:
            with pytest.raises(TextError, match="text 1: byte 0x"):
                ours.encode_batch(form([b"fine", row]))


LATER = [("text_pairs", ["b"]), ("stride", 2), ("return_overflowing_tokens", True), ("return_offsets", True)]


@pytest.mark.parametrize(("name", "value"), [*LATER, ("return_word_ids", True)])
def test_what_comes_later_says_so(tokenizer, name, value):
    with pytest.raises(NotYetError, match=f"encode_batch.{name}=.* is not there yet"):
        tokenizer("own/bert").encode_batch(["a"], **{name: value})


def test_several_threads_share_a_tokenizer(device, definition_text):
    ours = Tokenizer.from_str(definition_text("own/byte-level"), device=device, workers=2, table_bytes=1 << 16)
    expected = ours.encode_batch(texts.TEXTS).to_list()
    wrong: list[int] = []

    def encode_often() -> None:
        for _ in range(10):
            if ours.encode_batch(texts.TEXTS).to_list() != expected:
                wrong.append(1)
            ours.table.clear()

    threads = [threading.Thread(target=encode_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_several_tokenizers_share_a_device(device, definition_text):
    tokenizers = [Tokenizer.from_str(definition_text(name), device=device, workers=1) for name in QUICK]
    expected = [ours.encode_batch(texts.TEXTS).to_list() for ours in tokenizers]
    with ThreadPoolExecutor(len(tokenizers)) as pool:
        for _pass in range(3):
            made = pool.map(lambda ours: ours.encode_batch(texts.TEXTS).to_list(), tokenizers)
            assert list(made) == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize(
    ("device", "count", "parallelism"),
    [("cpu", 1500, None), ("cpu", 1500, "true"), ("cpu", 1500, "false"), ("emulated", 200, "true")],
)
def test_a_process_forked_after_use_does_not_hang(device, count, parallelism, definition_text, tmp_path):
    for name in ("own/bert", "own/byte-level"):
        (tmp_path / "tokenizer.json").write_text(definition_text(name), encoding="utf-8")
        program = textwrap.dedent(
            """
            import os, sys, gpu_tok
            tok = gpu_tok.Tokenizer.from_file("tokenizer.json", device=sys.argv[1], workers=2)
            rows = ["some words %d" % i + " x" * i for i in range(int(sys.argv[2]))]
            expected = tok.encode_batch(rows).to_list()
            texts = tok.decode_batch(expected)
            child = os.fork()
            if child == 0:
                same = tok.encode_batch(rows).to_list() == expected
                new = len(tok.encode_batch(["never seen %d" % i for i in range(5000)])) == 5000
                os._exit(0 if same and new and tok.decode_batch(expected) == texts else 1)
            raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            """
        )
        environment = {**os.environ, **({"TOKENIZERS_PARALLELISM": parallelism} if parallelism else {})}
        command = [sys.executable, "-c", program, device, str(count)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, timeout=180, check=False)
        assert done.returncode == 0


def test_info_says_what_a_tokenizer_is(tokenizer):
    for name in QUICK:
        info = tokenizer(name).info()
        described = info.to_dict()
        assert described["encode"]["grade"] in (1, 3)
        assert described["encode"]["grade"] == 1 or described["encode"]["reasons"]
        assert set(info.cuts.taken) <= set(info.cuts.certified)
        assert info.table_bytes_used <= info.table_bytes
        assert "certified" in shown(info)
    assert tokenizer("own/bert").info().encode.grade == 1
    assert tokenizer("own/bert").info().decode.grade == 1


def test_info_says_where_a_third_character_decides(tokenizer):
    tok = tokenizer("own/byte-level")
    info, classes = tok.info(), [int(number) for number in tok.cuts.class_of[[ord(c) for c in " a's"]]]
    space, letter, apostrophe, s = classes
    first, middle, last = info.cuts.behind
    assert space in first
    assert space in middle
    assert letter in last
    assert space not in last
    first, middle, last = info.cuts.before
    assert (apostrophe in first, middle, s in last) == (True, (apostrophe,), True)
    assert "by a third one behind: " in shown(info)
    assert f", {apostrophe} | {s}" in shown(info)
    assert info.to_dict()["cuts"]["before"][1] == (apostrophe,)
    without = tokenizer("own/bert").info()
    assert (without.cuts.behind, without.cuts.before) == ((), ())
    assert "by a third one" not in shown(without)


PLAIN = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)


@pytest.mark.parametrize(
    ("normalizer", "text", "finding"),
    [
        (None, "a;b", ""),
        ("NFC", "a;b\u037e", "sections in which normalization makes or alters an added token"),
        ("Lowercase", "a;b", "sections that, normalized, hold an added token"),
    ],
)
def test_info_says_which_sections_the_reference_encodes(
    normalizer, text, finding, device, definition_text, monkeypatch
):
    token = {"id": 11, "content": ";", "normalized": True, **PLAIN}
    normalizer = normalizer and {"type": normalizer}
    definition = oracle.changed(definition_text("own/bert"), added_tokens=[token], normalizer=normalizer)
    asked: list[str] = []
    monkeypatch.setattr(cold, "_texts", lambda *chunks: asked.extend(found := texts_of(*chunks)) or found)
    ours = Tokenizer.from_str(definition, device=device)
    assert_same_ids(oracle.plain(definition), [text], ours.encode_batch([text]))
    assert asked == [text] * bool(finding)
    assert ours.info().by_reference == ((f"{finding} with `normalized: true`: ';'",) if finding else ())
    assert ("by reference" in shown(ours.info())) == bool(finding)


def test_info_says_that_the_reference_encodes_all_texts(device, definition_text):
    info = Tokenizer.from_str(oracle.changed(definition_text("own/bert"), post_processor=TWICE), device=device).info()
    assert info.encode.grade == 1
    assert "all texts: post_processor: the text stands 2 times" in shown(info)


def test_the_error_fallback_refuses_such_a_post_processor(definition_text):
    definition = oracle.changed(definition_text("own/bert"), post_processor=TWICE)
    with pytest.raises(DefinitionError, match="post_processor: the text stands 2 times"):
        Tokenizer.from_str(definition, device="cpu", fallback="error")


def shown(info: Info) -> str:
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(info)
    return " ".join(console.export_text().split())


def test_what_info_says_is_shown_as_it_is(on_cpu):
    reason = "pre_tokenizer: a pattern with [a-z] and [/b]"
    info = on_cpu("own/bert").info()
    assert reason in shown(dataclasses.replace(info, encode=dataclasses.replace(info.encode, reasons=(reason,))))


def test_the_package_offers_its_names():
    assert all(hasattr(gpu_tok, name) for name in gpu_tok.__all__)
    assert repr(gpu_tok.Tokenizer).startswith("<class")
    with pytest.raises(AttributeError):
        _ = gpu_tok.nothing
