"""`explain`: each stage as the reference shows it."""

from __future__ import annotations

import oracle
import pytest
import texts
import vocabularies
from rich.console import Console
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from gpu_tok.cold import ColdPath
from gpu_tok.decode import Decoder
from gpu_tok.errors import TextError
from gpu_tok.explain import explain
from gpu_tok.stages import ReferenceStages
from gpu_tok.tables.cuts import derive
from gpu_tok.tables.definition import Definition

NAMES = [*vocabularies.names(sources=("own",)), "shared/bert-base-uncased", "shared/llama-2", "shared/deberta-v3-base"]


class Parts:
    """What `explain` reads of a `gpu_tok.Tokenizer`."""

    def __init__(self, reference: Tokenizer) -> None:
        self.definition = Definition(reference)
        self.cuts = derive(self.definition)
        self.cold = ColdPath(self.definition)
        self.decoder = Decoder(self.definition)


@pytest.mark.parametrize("name", NAMES)
def test_stages_put_together_are_the_ids(definition_text, name):
    definition = Definition.from_str(definition_text(name))
    stages = ReferenceStages(definition)
    plain = oracle.plain(definition_text(name))
    for text, _reason in texts.HARD_TEXTS:
        sections = stages.sections(text)
        ids = [
            piece_id
            for section in sections
            for piece_id in ([section.added_id] if section.added_id is not None else _ids_of(section))
        ]
        assert ids == plain.encode(text, add_special_tokens=False).ids
        assert "".join(section.text for section in sections) == text


def _ids_of(section):
    return [piece_id for word in section.words for piece_id in word.ids]


@pytest.mark.parametrize("name", NAMES)
def test_normalized_text_and_words_are_those_of_the_reference_s_own_parts(definition_text, name):
    definition = Definition.from_str(definition_text(name))
    stages, reference = ReferenceStages(definition), oracle.plain(definition_text(name))
    for text, _reason in texts.HARD_TEXTS:
        sections = stages.sections(text)
        if len(sections) != 1 or sections[0].added_id is not None:
            continue
        assert sections[0].normalized == oracle.normalize(reference, text)
        assert [word.text for word in sections[0].words] == oracle.words(reference, text)


@pytest.fixture(scope="module")
def bert() -> Parts:
    return Parts(small_bert())


def small_bert() -> Tokenizer:
    vocab = {"[UNK]": 0, "cat": 1, "the": 2, "##s": 3, "!": 4}
    reference = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    reference.normalizer = normalizers.BertNormalizer()
    reference.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    reference.decoder = decoders.WordPiece()
    reference.add_special_tokens([AddedToken("[SEP]", special=True, lstrip=True, normalized=False)])
    reference.enable_truncation(3)
    return reference


def test_sections_words_pieces_and_their_bytes(bert):
    explained = explain(bert, "Thé cats [SEP]dog!")
    first, token, last = explained.sections
    assert (first.text, first.normalized, first.start, first.end) == ("Thé cats", "the cats", 0, 9)
    assert [(word.text, word.start, word.end) for word in first.words] == [("the", 0, 4), ("cats", 5, 9)]
    assert [(word.pieces, word.ids) for word in first.words] == [(("the",), (2,)), (("cat", "##s"), (1, 3))]
    assert (token.text, token.normalized, token.added_id, token.words) == (" [SEP]", "[SEP]", 5, ())
    assert [(word.text, word.pieces, word.ids) for word in last.words] == [
        ("dog", ("[UNK]",), (0,)),
        ("!", ("!",), (4,)),
    ]


def test_the_file_s_truncation_is_left_out(bert):
    assert explain(bert, "the cats the cats").ids == (2, 1, 3, 2, 1, 3)


def test_cuts_are_marked_in_the_text(bert):
    explained = explain(bert, "the cats [SEP]cat!")
    assert set(explained.taken) <= set(explained.certified)
    assert {3, 17} <= set(explained.taken)
    assert explained.cut_text().startswith("the| ")
    assert explained.cut_text().endswith(" [SEP]cat|!")


def test_cuts_that_a_third_character_decides_are_marked_too(definition_text):
    parts = Parts(Definition.from_str(definition_text("own/byte-level")).reference)
    assert explain(parts, "a  b\n\nc  ").cut_text() == "a| | b|\\n|\\nc|  "


def test_grades_come_with_their_reasons(definition_text):
    shown = {}
    for name in ("own/unigram", "own/prepend"):
        explained = explain(Parts(Definition.from_str(definition_text(name)).reference), "a")
        shown[name] = [(part.part, part.grade, bool(part.reasons)) for part in explained.grades]
    assert shown == {
        "own/unigram": [("cold path", 3, True), ("decoder", 1, False)],
        "own/prepend": [("cold path", 1, False), ("decoder", 3, True)],
    }


def test_it_prints_what_cannot_be_seen_as_escapes(bert):
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    explained = explain(bert, "the\u200bcat\n[b]")
    console.print(explained)
    shown = console.export_text()
    assert "the\\u200bcat\\n" in shown
    assert "[b]" in shown


def test_the_empty_text(bert):
    explained = explain(bert, "")
    assert (explained.sections, explained.ids, explained.taken) == ((), (), ())
    assert explained.to_dict()["text"] == ""


def test_what_has_no_utf8_form_is_an_error(bert):
    with pytest.raises(TextError, match="surrogate") as caught:
        explain(bert, "a\ud800")
    assert caught.value.hint == "repair the text first"
    with pytest.raises(TextError, match="is int, not str"):
        explain(bert, 5)


def test_nothing_is_shortened_in_a_narrow_terminal(bert):
    console = Console(width=60, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(explain(bert, "unaffable " * 3 + "x" * 150))
    assert "…" not in console.export_text()
