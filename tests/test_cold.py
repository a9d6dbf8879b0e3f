"""The cold path against the reference, in threads and in forked children."""

from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gpu_tok import cold
from gpu_tok.batch import Ragged, TextBatch
from gpu_tok.cold import ColdPath
from gpu_tok.errors import DefinitionError, TextError
from gpu_tok.tables import ends
from gpu_tok.tables.definition import Definition

ALL = ends.SECTION_FIRST | ends.SECTION_LAST | ends.DOCUMENT_FIRST | ends.SUBSECTION_FIRST
TEXTS = ["ab abc", "", "aab", " b", "c", "日本", "ab" * 50, "a  b "]


NEVER_NATIVE = {"type": "Replace", "pattern": {"Regex": "(?<=~)~"}, "content": "~"}


@pytest.fixture(params=["native", "by the reference"])
def bpe(request):
    """A small BPE, with a normalizer that only the reference has where it shall encode."""
    return lambda **parts: described(**({} if request.param == "native" else {"normalizer": NEVER_NATIVE}) | parts)


def described(**parts):
    vocab = {"<u>": 0, "▁": 1, "a": 2, "b": 3, "c": 4, "ab": 5, "▁ab": 6}
    model = {"type": "BPE", "vocab": vocab, "merges": [["a", "b"], ["▁", "ab"]], "unk_token": "<u>"}
    pre_tokenizer = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return Definition.from_str(json.dumps({"pre_tokenizer": pre_tokenizer, "model": model, **parts}))


def chunks_of(texts):
    batch = TextBatch.of(texts)
    return Ragged(batch.bytes, batch.starts)


def rows_of(ragged):
    return [ragged.row(row).tolist() for row in range(ragged.count)]


def reference_rows(definition, texts):
    return [row.ids for row in definition.reference.encode_batch(texts, add_special_tokens=False)]


def encode(path, texts, flags=ALL):
    return rows_of(path.encode(chunks_of(texts), np.full(len(texts), flags, np.uint8)))


def test_ids_are_the_references(bpe):
    definition = bpe()
    assert encode(ColdPath(definition), TEXTS) == reference_rows(definition, TEXTS)


def test_each_chunk_has_its_own_flags_and_keeps_its_row(bpe):
    path = ColdPath(bpe())
    flags = np.array([ALL, 0, 0, ALL, ALL, 0], np.uint8)
    assert rows_of(path.encode(chunks_of(["ab"] * 6), flags)) == [[6], [5], [5], [6], [6], [5]]


def test_flags_that_do_not_matter_change_nothing(bpe):
    path = ColdPath(bpe())
    assert path.flags == ends.SUBSECTION_FIRST
    assert encode(path, TEXTS, ends.SECTION_FIRST | ends.WHOLE) == encode(path, TEXTS, 0)


def test_no_chunks_and_empty_chunks(bpe):
    path = ColdPath(bpe())
    assert encode(path, []) == []
    assert encode(path, ["", "", ""]) == [[], [], []]


def test_chunks_of_a_slice_of_a_batch(bpe):
    path = ColdPath(bpe())
    whole = chunks_of(TEXTS)
    part = Ragged(whole.flat, whole.starts[2:6])
    assert rows_of(path.encode(part, np.full(3, ALL, np.uint8))) == encode(path, TEXTS[2:5])


def test_more_chunks_than_one_task_takes(bpe):
    texts = [f"{'ab' * (row % 7)} c" for row in range(2 * cold.CHUNKS_A_TASK + 3)]
    definition = bpe()
    assert encode(ColdPath(definition), texts) == reference_rows(definition, texts)


def test_whole_sections_find_tokens_in_normalized_text(bpe):
    token = {"content": "[x]", "single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
    definition = bpe(normalizer={"type": "Lowercase"}, added_tokens=[{"id": 7, "special": True, **token}])
    assert encode(ColdPath(definition), ["ab[X]ab"], ALL | ends.WHOLE) == [[6, 7, 6]]
    assert 7 not in encode(ColdPath(definition), ["ab[X]ab"])[0]


def test_a_wordpiece_takes_the_native_grade_and_the_reference_takes_whole_sections():
    token = {"content": "[x]", "single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
    model = {"type": "WordPiece", "vocab": {"[UNK]": 0, "ab": 1, "##c": 2, "[x]": 3}, "unk_token": "[UNK]"}
    model |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    described = {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "BertPreTokenizer"}, "model": model}
    path = ColdPath(
        Definition.from_str(json.dumps({**described, "added_tokens": [{"id": 3, "special": True, **token}]}))
    )
    flags = np.array([ALL, ALL | ends.WHOLE, ALL], np.uint8)
    assert rows_of(path.encode(chunks_of(["ABC x", "abc[X]AB", "ab"]), flags)) == [[1, 2, 0], [1, 2, 3, 1], [1]]


def test_threads_share_a_cold_path(bpe):
    definition = bpe()
    path, expected = ColdPath(definition), reference_rows(definition, TEXTS * 40)
    with ThreadPoolExecutor(4) as pool:
        for rows in pool.map(lambda _: encode(path, TEXTS * 40), range(16)):
            assert rows == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("setting", [None, "true", "false"])
def test_a_child_forked_after_use_does_not_hang(setting, monkeypatch, bpe):
    if setting is None:
        monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    else:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", setting)
    path = ColdPath(bpe())
    expected = encode(path, TEXTS * 600)
    child = os.fork()
    if child == 0:
        os._exit(0 if encode(path, TEXTS * 600) == expected else 1)
    assert _status_within(child, seconds=20) == 0


def _status_within(child, seconds):
    """The exit status of a child; 'hangs' (and the child is ended) when it takes longer."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hangs"


def test_a_chunk_that_the_reference_refuses_is_named():
    model = {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "[UNK]"}
    model |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    definition = Definition.from_str(json.dumps({"model": model, "pre_tokenizer": {"type": "UnicodeScripts"}}))
    with pytest.raises(TextError, match=r"text 2: the reference refuses 'zz'"):
        encode(ColdPath(definition), ["a", "a", "zz", "a"])


def test_the_error_fallback_refuses_what_has_no_native_form():
    with pytest.raises(DefinitionError, match="hint: it runs through the reference"):
        ColdPath(described(normalizer=NEVER_NATIVE), fallback="error")


def test_dropout_is_refused_when_the_path_is_made():
    model = {"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1}
    with pytest.raises(DefinitionError, match="dropout"):
        ColdPath(Definition.from_str(json.dumps({"model": model})))
