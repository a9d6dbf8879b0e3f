"""The tests' own tools: each vocabulary loads, covers its kind, and does what its description says."""

from __future__ import annotations

import json

import compare
import numpy as np
import oracle
import package_vocabularies
import pytest
import texts
import vocabularies


@pytest.mark.parametrize("name", vocabularies.names())
def test_every_vocabulary_loads_in_the_reference(name, reference):
    assert len(oracle.encode(reference(name), ["The cat, 中文 123"])[0]) > 0


@pytest.mark.parametrize("kind", vocabularies.KINDS)
def test_each_kind_is_covered_without_files_from_elsewhere(kind):
    model = {vocabularies.WORDPIECE: "WordPiece", vocabularies.UNIGRAM: "Unigram"}.get(kind, "BPE")
    own = vocabularies.names(kind, sources=("own",))
    assert own
    for name in own:
        assert json.loads(vocabularies.text(name))["model"]["type"] == model


@pytest.mark.parametrize("name", vocabularies.names("byte-level BPE", "Unigram", sources=("own",)))
def test_own_vocabularies_split_words_and_know_whole_words(name, definition_text):
    tokenizer = oracle.plain(definition_text(name))
    counts = [len(row) for row in oracle.encode(tokenizer, ["the", "unaffableness"], add_special_tokens=False)]
    assert counts[0] < len("the") + 1
    assert counts[1] > 1


@pytest.mark.parametrize(("left", "right"), [("package/cl100k", "shared/cl100k_base"), ("package/gpt2", "shared/gpt2")])
def test_a_package_and_a_real_file_give_the_same_ids(left, right, reference):
    one, other = reference(left), reference(right)
    sample = [*texts.TEXTS, *texts.random_texts(7, 200)]
    compare.assert_same_ids(one, sample, oracle.encode(other, sample))


def test_merges_of_ranked_tokens_come_from_lower_ranks():
    ranks = {b"a": 0, b"b": 1, b"c": 2, b"ab": 3, b"bc": 4, b"abc": 5, b"abcab": 6}
    assert package_vocabularies.split_by_rank(b"abc", ranks) == (b"ab", b"c")
    assert package_vocabularies.split_by_rank(b"abcab", ranks) == (b"abc", b"ab")


def test_hard_texts_are_many_and_each_has_a_reason():
    assert len(set(texts.TEXTS)) == len(texts.TEXTS) > 100
    assert all(reason for _text, reason in texts.HARD_TEXTS)
    assert all(text.encode("utf-8").decode("utf-8") == text for text in texts.TEXTS)


def test_random_texts_are_the_same_for_the_same_seed():
    assert texts.random_texts(3, 10) == texts.random_texts(3, 10) != texts.random_texts(4, 10)
    assert texts.random_splits(1, 10, 4)[0] == 0
    assert texts.random_splits(1, 10, 4)[-1] == 10


def test_a_difference_is_shown_with_its_text_word_and_position(reference):
    tokenizer = reference("own/bert")
    rows = oracle.encode(tokenizer, ["the cat", "a dog, barking"])
    rows[1][3] += 1
    with pytest.raises(AssertionError, match=r"(?s)text 1 .*at id 3.*word +'") as error:
        compare.assert_same_ids(tokenizer, ["the cat", "a dog, barking"], rows)
    assert ">" in str(error.value)


def test_a_missing_row_is_a_difference(reference):
    with pytest.raises(AssertionError, match="1 rows for 2 texts"):
        compare.assert_same_ids(reference("own/bert"), ["a", "b"], [[2, 3]])


def test_fnv1a_gives_the_published_values():
    assert compare.fnv1a_of_bytes(b"foobar") == 0x85944171F73967E8
    assert compare.fnv1a_of_bytes(b"a") == 0xAF63DC4C8601EC8C


def test_fnv1a_of_ids_is_over_their_bytes_low_byte_first():
    assert compare.fnv1a([0x626F6F66]) == compare.fnv1a_of_bytes(b"foob")
    assert compare.fnv1a(np.array([1, 2], np.int64)) == compare.fnv1a_of_bytes(b"\x01\0\0\0\x02\0\0\0")
