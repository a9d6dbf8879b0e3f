"""The derived definitions: whole texts and the same texts in chunks must come to the same ids."""

from __future__ import annotations

import json

import pytest
import tokenizers

from gpu_tok.errors import DefinitionError
from gpu_tok.tables import ends
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.variants import flags_that_matter, parts_for, variant

FIRST, LAST, DOCUMENT, SUBSECTION, WHOLE = (
    ends.SECTION_FIRST,
    ends.SECTION_LAST,
    ends.DOCUMENT_FIRST,
    ends.SUBSECTION_FIRST,
    ends.WHOLE,
)
ALL = FIRST | LAST | DOCUMENT | SUBSECTION
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}
PREPEND = {"type": "Prepend", "prepend": "▁"}
DIGITS = {"type": "Digits", "individual_digits": True}


def definition(normalizer=None, pre_tokenizer=None, added_tokens=(), **model):
    """A BPE whose pieces are single characters: its tokens show what normalizer and pre-tokenizer made."""
    vocab = {character: at for at, character in enumerate("▁Ġ abcxyz0123456789<>!")}
    described = {
        "added_tokens": list(added_tokens),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "model": {"type": "BPE", "vocab": vocab, "merges": [], **model},
    }
    return Definition.from_str(json.dumps(described))


def token(content, at, **flags):
    told = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
    return {"id": at, "content": content, **told, **flags}


def sequence(*parts):
    return {"type": "Sequence", "normalizers": list(parts)}


def pre_sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def tokens(definition, flags, text):
    return "".join(variant(definition, flags).encode(text, add_special_tokens=False).tokens)


def test_prepend_acts_only_on_the_first_chunk_of_a_raw_section():
    made = definition(sequence(PREPEND, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}))
    assert flags_that_matter(made) == FIRST
    assert tokens(made, FIRST, "a b") == "▁a▁b"
    assert tokens(made, LAST | DOCUMENT | SUBSECTION, "a b") == "a▁b"


def test_strip_acts_left_and_right_apart():
    made = definition(STRIP)
    assert flags_that_matter(made) == FIRST | LAST
    shown = {flags: tokens(made, flags, " a ") for flags in (0, FIRST, LAST, FIRST | LAST)}
    assert shown == {0: " a ", FIRST: "a ", LAST: " a", FIRST | LAST: "a"}


def test_metaspace_always_acts_on_the_first_chunk_of_a_sub_section():
    made = definition(None, METASPACE)
    assert flags_that_matter(made) == SUBSECTION
    assert (tokens(made, SUBSECTION, "a b"), tokens(made, FIRST, "a b")) == ("▁a▁b", "a▁b")


def test_metaspace_first_acts_at_byte_0_of_the_document():
    made = definition(None, {**METASPACE, "prepend_scheme": "first"})
    assert flags_that_matter(made) == DOCUMENT
    assert (tokens(made, DOCUMENT, "a b"), tokens(made, FIRST | SUBSECTION, "a b")) == ("▁a▁b", "a▁b")


def test_add_prefix_space_acts_on_the_first_chunk_of_a_sub_section():
    made = definition(None, BYTE_LEVEL)
    assert flags_that_matter(made) == SUBSECTION
    assert (tokens(made, SUBSECTION, "a"), tokens(made, FIRST, "a")) == ("Ġa", "a")


@pytest.mark.parametrize("part", [METASPACE, BYTE_LEVEL], ids=["Metaspace", "ByteLevel"])
def test_behind_a_splitter_every_piece_has_its_prefix(part):
    made = definition(None, pre_sequence(DIGITS, part))
    assert flags_that_matter(made) == 0
    assert tokens(made, 0, "a1b") == tokens(made, ALL, "a1b") != tokens(definition(None, part), 0, "a1b")


def test_a_part_that_does_not_split_is_no_splitter():
    unsplit = pre_sequence({**METASPACE, "split": False, "prepend_scheme": "never"}, METASPACE)
    assert flags_that_matter(definition(None, unsplit)) == SUBSECTION
    unsplit = pre_sequence({**BYTE_LEVEL, "use_regex": False, "add_prefix_space": False}, METASPACE)
    assert flags_that_matter(definition(None, unsplit)) == SUBSECTION


def test_parts_in_nested_sequences_are_found():
    made = definition(sequence(sequence(STRIP), PREPEND), pre_sequence(pre_sequence(METASPACE), DIGITS))
    assert flags_that_matter(made) == FIRST | LAST | SUBSECTION
    assert parts_for(made, ALL) == (made.json["normalizer"], made.json["pre_tokenizer"])


def test_added_tokens_truncation_padding_and_post_processor_are_gone():
    made = definition(None, None, [token("abc", 99, normalized=False)])
    made.reference.enable_truncation(1)
    made.reference.enable_padding(length=9)
    assert tokens(Definition(made.reference), ALL, "xabcx") == "xabcx"


def test_a_whole_section_finds_its_normalized_tokens_under_their_ids():
    added = [token("a!", 30, normalized=False), token("<x>", 31, lstrip=True), token("a", 3)]
    made = definition({"type": "Lowercase"}, None, added)
    reference = made.reference
    expected = reference.encode("b <X>c a", add_special_tokens=False).ids
    assert variant(made, ALL | WHOLE).encode("b <X>c a", add_special_tokens=False).ids == expected
    assert reference.token_to_id("<x>") in expected


def test_a_whole_section_does_not_find_raw_tokens_again():
    made = definition(None, None, [token("abc", 30, normalized=False), token("bcx", 31)])
    ids = variant(made, ALL | WHOLE).encode("abcx", add_special_tokens=False).ids
    assert ids == [made.vocab["a"], made.reference.token_to_id("bcx")]


def test_a_whole_section_passes_over_special_tokens_where_the_reference_does():
    made = definition(None, None, [token("ab", 30, special=True), token("bc", 31)])
    made.reference.encode_special_tokens = True
    expected = made.reference.encode("abc bc", add_special_tokens=False).ids
    assert variant(made, ALL | WHOLE).encode("abc bc", add_special_tokens=False).ids == expected


def test_variants_share_the_model_and_are_made_once():
    made = definition(STRIP)
    assert variant(made, FIRST) is variant(made, FIRST | DOCUMENT | SUBSECTION)
    assert variant(made, FIRST) is not variant(made, 0)


def test_dropout_is_refused_by_name():
    with pytest.raises(DefinitionError, match=r"model\.dropout is 0\.5"):
        variant(definition(dropout=0.5), 0)
    assert isinstance(variant(definition(dropout=0.0), 0), tokenizers.Tokenizer)
