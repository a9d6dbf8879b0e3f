"""Special tokens, truncation and padding: rows laid out by the plan are the reference's rows."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tokenizers
import vocabularies
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_tok.errors import GpuTokError, TextError
from gpu_tok.postprocess import PAD_TO_LONGEST, UNLIMITED, place, plan_of, resolve
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.postprocess import compile_postprocess
from gpu_tok.tables.refusal import CannotCompile

VOCAB = {word: at for at, word in enumerate(["<u>", "a", "b", "c", "[CLS]", "[SEP]", "<x>", "<y>"])}
TEXTS = ["a b c a b c a b", "", "a", "b c a b", "c c c"]
SPECIAL = {
    "[CLS]": {"id": "[CLS]", "ids": [4], "tokens": ["[CLS]"]},
    "[SEP]": {"id": "[SEP]", "ids": [5], "tokens": ["[SEP]"]},
    "xy": {"id": "xy", "ids": [6, 7], "tokens": ["<x>", "<y>"]},
}


def special(name, type_id=0):
    return {"SpecialToken": {"id": name, "type_id": type_id}}


def text(type_id=0, which="A"):
    return {"Sequence": {"id": which, "type_id": type_id}}


def template(*single, pair=None):
    both = pair or [text(), text(1, "B")]
    return {"type": "TemplateProcessing", "single": list(single), "pair": both, "special_tokens": SPECIAL}


def sequence(*parts):
    return {"type": "Sequence", "processors": list(parts)}


BERT = {"type": "BertProcessing", "sep": ["[SEP]", 5], "cls": ["[CLS]", 4]}
ROBERTA = {**BERT, "type": "RobertaProcessing", "trim_offsets": True, "add_prefix_space": True}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
PROCESSORS = {
    "none": None,
    "ByteLevel": BYTE_LEVEL,
    "Bert": BERT,
    "Roberta": ROBERTA,
    "text alone": template(text()),
    "text of type 3": template(text(3)),
    "cls text sep": template(special("[CLS]"), text(), special("[SEP]")),
    "sep and cls behind, as xlnet": template(text(), special("[SEP]"), special("[CLS]", 2)),
    "a special token of two ids": template(special("xy", 1), text(2), special("[SEP]", 4), special("xy", 5)),
    "Sequence of none": sequence(),
    "Sequence of ByteLevel and template": sequence(BYTE_LEVEL, template(special("[CLS]", 7), text(1))),
    "Roberta sets the types of a template": sequence(template(special("[CLS]", 7), text(1)), ROBERTA),
    "Bert around a template": sequence(template(special("[CLS]", 7), text(3), special("xy", 2)), BERT),
    "template around Bert": sequence(BERT, template(special("xy", 1), text(2))),
    "a template over what a template made": sequence(
        template(special("[CLS]"), text(1)), template(text(), pair=[special("xy"), text(5), text(6, "B")])
    ),
    "nested Sequences": sequence(sequence(BERT), sequence(sequence(ROBERTA))),
}


def definition(post_processor=None, **parts):
    model = {"type": "WordLevel", "vocab": VOCAB, "unk_token": "<u>"}
    described = {"post_processor": post_processor, "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}
    return Definition.from_str(json.dumps({**described, **parts}))


def rows(plan, template, pad, encoded):
    """The rows that a plan makes of encoded texts: ids, type ids, attention mask. Read off, not fast."""
    kept, row_lengths = place(np.array([len(ids) for ids in encoded], np.int64), plan)
    made = []
    for ids, keep, row_length in zip(encoded, kept.tolist(), row_lengths.tolist(), strict=True):
        ids = ids[len(ids) - keep :] if plan.keep_last else ids[:keep]
        row = [*plan.prefix.tolist(), *ids, *plan.suffix.tolist()]
        types = [*template.prefix_types, *[template.text_type] * keep, *template.suffix_types]
        gap = row_length - len(row)
        before, after = (gap, 0) if plan.pad_left else (0, gap)
        pad_type = pad.pad_type_id if pad else 0
        made.append(
            (
                [plan.pad_id] * before + row + [plan.pad_id] * after,
                [pad_type] * before + types + [pad_type] * after,
                [0] * before + [1] * len(row) + [0] * after,
            )
        )
    return made


def make_plan(made, add_special_tokens=True, **arguments):
    """The plan for the arguments of `encode_batch`, and the template and the padding that it was made from."""
    template = compile_postprocess(made, add_special_tokens)
    cut, pad = resolve(made, **arguments)
    return plan_of(template, cut, pad), template, pad


def reference_rows(reference, texts, add_special_tokens):
    encodings = reference.encode_batch(texts, add_special_tokens=add_special_tokens)
    return [(row.ids, row.type_ids, row.attention_mask) for row in encodings]


def encoded_texts(made, texts):
    plain = made.reference
    if plain.truncation or plain.padding:
        plain = tokenizers.Tokenizer.from_str(plain.to_str())
        plain.no_truncation()
        plain.no_padding()
    return [row.ids for row in plain.encode_batch(texts, add_special_tokens=False)]


def assert_rows_equal(made, texts, add_special_tokens, **arguments):
    plan, template, pad = make_plan(made, add_special_tokens, **arguments)
    expected = reference_rows(made.reference, texts, add_special_tokens)
    assert rows(plan, template, pad, encoded_texts(made, texts)) == expected


@pytest.mark.parametrize("add_special_tokens", [True, False])
@pytest.mark.parametrize("name", PROCESSORS)
def test_every_post_processor_is_prefix_text_suffix(name, add_special_tokens):
    assert_rows_equal(definition(PROCESSORS[name]), TEXTS, add_special_tokens)


@pytest.mark.parametrize("name", vocabularies.names())
def test_files_at_hand(reference, name):
    assert_rows_equal(Definition(reference(name)), ["a text", ""], True)


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(sorted(PROCESSORS)),
    add_special_tokens=st.booleans(),
    cut=st.none() | st.tuples(st.integers(0, 9), st.sampled_from(["left", "right"]), st.integers(0, 2)),
    pad=st.none() | st.tuples(st.integers(0, 12) | st.none(), st.integers(0, 5), st.sampled_from(["left", "right"])),
    texts=st.lists(st.sampled_from(TEXTS), max_size=5),
)
def test_truncation_and_padding_of_the_file(name, add_special_tokens, cut, pad, texts):
    reference = definition(PROCESSORS[name]).reference
    if cut is not None:
        try:
            reference.enable_truncation(cut[0], direction=cut[1], stride=cut[2])
        except ValueError:  # a stride that the reference refuses for this length
            return
    if pad is not None:
        reference.enable_padding(
            length=pad[0], pad_to_multiple_of=pad[1] or None, direction=pad[2], pad_id=2, pad_type_id=9
        )
    made = Definition(reference)
    try:
        expected = reference_rows(reference, texts, add_special_tokens)
    except BaseException as error:
        assert type(error).__name__ == "PanicException"  # noqa: PT017 - a panic is no Exception
        plan = make_plan(made, add_special_tokens)[0]
        counts = np.array([len(ids) for ids in encoded_texts(made, texts)], np.int64)
        with pytest.raises(TextError, match="cannot be truncated"):
            place(counts, plan)
        return
    plan, template, padding = make_plan(made, add_special_tokens)
    assert rows(plan, template, padding, encoded_texts(made, texts)) == expected


@pytest.mark.parametrize("max_length", range(6))
def test_a_max_length_about_the_number_of_specials(max_length):
    made = definition(PROCESSORS["a special token of two ids"])  # five of them
    made.reference.enable_truncation(max_length)
    assert_rows_equal(Definition(made.reference), TEXTS, True)
    expected = UNLIMITED if max_length < 5 else 0
    assert make_plan(Definition(made.reference))[0].keep_at_most == expected


def test_arguments_stand_before_the_file():
    made = definition(BERT)
    made.reference.enable_truncation(3)
    made.reference.enable_padding(length=8, pad_id=2)
    made = Definition(made.reference)
    assert make_plan(made)[0][2:8] == (1, False, 2, 8, 0, 2)
    assert make_plan(made, truncation=False, padding=False)[0][2:6] == (UNLIMITED, False, 0, 0)
    assert make_plan(made, max_length=6)[0].keep_at_most == 4
    assert make_plan(made, padding="longest")[0].pad_mode == PAD_TO_LONGEST
    assert make_plan(made, padding="max_length")[0].pad_length == 8
    assert make_plan(made, pad_id=7)[0].pad_id == 7


def test_a_length_alone_cuts_but_a_length_to_pad_to_does_not():
    made = definition(BERT)
    assert make_plan(made, max_length=6)[0].keep_at_most == 4
    assert make_plan(made, max_length=6, padding="max_length")[0][2:6] == (UNLIMITED, False, 2, 6)
    assert make_plan(made, truncation=True, max_length=6, padding="max_length")[0][2:6] == (4, False, 2, 6)


def test_arguments_equal_the_reference_set_up_by_hand():
    made = definition(BERT)
    made.reference.enable_truncation(5)
    made.reference.enable_padding(pad_to_multiple_of=4, pad_id=0)
    arguments = {"truncation": True, "max_length": 5, "padding": "longest", "pad_to_multiple_of": 4}
    plan, template, pad = make_plan(definition(BERT), **arguments)
    assert rows(plan, template, pad, encoded_texts(made, TEXTS)) == reference_rows(made.reference, TEXTS, True)


def test_only_second_refuses_a_single_text_that_is_too_long():
    made = definition(BERT)
    made.reference.enable_truncation(4, strategy="only_second")
    plan = make_plan(Definition(made.reference))[0]
    assert place(np.array([2, 0]), plan)[0].tolist() == [2, 0]
    with pytest.raises(TextError, match="text 1: has 3 ids and cannot be truncated to 2"):
        place(np.array([2, 3]), plan)
    with pytest.raises(Exception, match="Second sequence not provided"):
        made.reference.encode("a b c")


@pytest.mark.parametrize(
    ("processor", "reason"),
    [
        (template(text(), text()), "the text stands 2 times"),
        (template(special("[CLS]")), "the text stands 0 times"),
        (template(text(), text(0, "B")), r"uses `\$B`"),
        (template(special("[PAD]"), text()), r"'\[PAD\]'"),
    ],
)
def test_what_is_not_prefix_text_suffix_is_refused(processor, reason):
    with pytest.raises(CannotCompile, match=reason):
        compile_postprocess(definition(processor))


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ({"truncation": True}, "pass max_length="),
        ({"padding": "max_length"}, "pass max_length="),
        ({"padding": "longst"}, '"longest"'),
        ({"pad_to_multiple_of": 8}, 'padding="longest"'),
        ({"max_length": -1}, "a whole number"),
    ],
)
def test_arguments_that_say_nothing_are_refused(arguments, hint):
    with pytest.raises(GpuTokError, match=hint):
        make_plan(definition(BERT), **arguments)


def test_an_empty_batch_has_no_rows():
    plan = make_plan(definition(BERT), padding="longest", pad_to_multiple_of=8)[0]
    kept, row_lengths = place(np.zeros(0, np.int64), plan)
    assert (len(kept), len(row_lengths)) == (0, 0)
