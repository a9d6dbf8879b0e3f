"""`parity`: each fault that is put in must be found, and the right stage named."""

from __future__ import annotations

import compare
import numpy as np
import orjson
import pytest
import texts
from rich.console import Console
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from cpu_ref.parity import FNV_START, fnv1a
from gpu_tok import differences
from gpu_tok.batch import TextBatch
from gpu_tok.choice import Choice
from gpu_tok.cold import ColdPath
from gpu_tok.differences import CpuStages
from gpu_tok.parity import Path, check, paths_of
from gpu_tok.stages import ReferenceStages
from gpu_tok.tables.added_tokens import compile_added_tokens
from gpu_tok.tables.cuts import derive
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.trie_rows import ID

TEXTS = ["The cats sat.", "a dog's naïve [MASK] cat", "", "unknown Ωμέγα here", "cat\u00e9 x!y", "the [MASK][MASK]"]


def small_bert() -> Tokenizer:
    pieces = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat", "dog", "naive", "here", "x", "y", "a"]
    pieces += [".", "'", "!", "[", "]", "mask", "s", "c", "##a", "##t", "##e", "b"]
    reference = Tokenizer(models.WordPiece({piece: at for at, piece in enumerate(pieces)}, unk_token="[UNK]"))
    reference.normalizer = normalizers.BertNormalizer()
    reference.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    reference.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    reference.decoder = decoders.WordPiece()
    special = [AddedToken(token, special=True, normalized=False) for token in ("[UNK]", "[CLS]", "[SEP]", "[MASK]")]
    reference.add_special_tokens(special)
    return reference


class Parts:
    """A tokenizer whose parts can be broken one by one; it encodes by the same parts as it shows."""

    device = Choice("cpu", "asked for")

    def __init__(self, reference: Tokenizer) -> None:
        self.definition = Definition(reference)
        self.cuts = derive(self.definition)
        self.cold = ColdPath(self.definition)
        self.added_tokens = compile_added_tokens(self.definition)

    def encode_batch(self, batch, add_special_tokens=True, truncation=None, padding=None):
        show = CpuStages(self)
        template = ReferenceStages(self.definition).whole.encode("", add_special_tokens=add_special_tokens).ids
        middle = (len(template) + 1) // 2  # [CLS] | [SEP], or <s> |
        before, behind = template[:middle], template[middle:]
        return [[*before, *(i for part in show(text) for i in part.ids), *behind] for text in batch.to_list()]


@pytest.fixture
def bert() -> Parts:
    return Parts(small_bert())


@pytest.fixture
def llama(definition_text) -> Parts:
    return Parts(Definition.from_str(definition_text("own/prepend")).reference)


def stages_found(tokenizer, paths=None, source=TEXTS) -> set[str]:
    report = check(tokenizer, TextBatch.of(source), paths)
    assert not report.same
    return {difference.stage for difference in report.differences}


def replaced(array: np.ndarray, at, value) -> np.ndarray:
    changed = array.copy()
    changed[at] = value
    return changed


def test_a_path_without_a_fault_is_the_same(bert, llama):
    hard = TextBatch.of([*TEXTS, *(text for text, _reason in texts.HARD_TEXTS)])
    for tokenizer in (bert, llama):
        for special in (True, False):
            report = check(tokenizer, hard, paths_of(tokenizer, special), special)
            assert report.differences == []
            assert report.same
            assert report.hashes["cpu"] == report.hashes["reference"]
            assert report.documents == len(hard)


def test_wrong_lower_case_is_named_normalization(bert):
    native = bert.cold.native
    ascii = replaced(native.normalizer.ascii, ord("T"), ord("T"))
    bert.cold.native = native._replace(normalizer=native.normalizer._replace(ascii=ascii))
    report = check(bert, TextBatch.of(TEXTS))
    assert [(difference.document, difference.position, difference.stage) for difference in report.differences] == [
        (0, 1, differences.NORMALIZATION)
    ]
    assert report.differences[0].detail == "normalized text 0: The cats sat, not the cats sat"
    assert report.differences[0].shown == ">>>The<<< cats sat."


def test_a_missed_word_boundary_is_named(bert):
    native = bert.cold.native
    words = native.words._replace(parted=np.zeros_like(native.words.parted))
    bert.cold.native = native._replace(words=words)
    bert.cuts = bert.cuts._replace(taken=np.zeros_like(bert.cuts.taken))
    assert stages_found(bert) == {differences.WORDS}


def test_a_wrong_piece_is_named_matching(bert):
    native = bert.cold.native
    row = native.model.row.copy()
    row[row[:, ID] == 5, ID] = 8
    bert.cold.native = native._replace(model=native.model._replace(row=row))
    assert stages_found(bert) == {differences.MATCHING}


def test_a_wrong_unknown_is_named(bert):
    native = bert.cold.native
    bert.cold.native = native._replace(model=native.model._replace(unknown_id=8))
    assert stages_found(bert) == {differences.UNKNOWN}
    bert.cold.native = native._replace(model=native.model._replace(max_characters=2))
    assert stages_found(bert) == {differences.UNKNOWN}


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_a_forgotten_added_token_is_named(request, kind):
    tokenizer = request.getfixturevalue(kind)
    described = orjson.loads(tokenizer.definition.reference.to_str())
    forgotten = described["added_tokens"].pop()
    bare = Definition.from_str(orjson.dumps(described).decode())
    tokenizer.added_tokens = compile_added_tokens(bare)
    source = ["some text", f"a {forgotten['content']} b"]
    report = check(tokenizer, TextBatch.of(source))
    assert [(difference.document, difference.stage) for difference in report.differences] == [(1, differences.ADDED)]


def test_wrong_special_tokens_are_named(bert):
    def encode(batch):
        return [ids[:-1] for ids in bert.encode_batch(batch)]

    for path in (Path(encode), Path(encode, CpuStages(bert))):
        assert stages_found(bert, {"gpu": path}) == {differences.ADDED}


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_a_wrong_cut_is_named(request, kind):
    tokenizer = request.getfixturevalue(kind)
    tokenizer.cuts = tokenizer.cuts._replace(taken=np.ones_like(tokenizer.cuts.taken))
    assert stages_found(tokenizer) == {differences.CUTS}


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_wrong_ids_behind_right_stages_are_named_interning(request, kind):
    tokenizer = request.getfixturevalue(kind)

    def encode(batch):
        return [
            [9 if at == 3 else token_id for at, token_id in enumerate(ids)] for ids in tokenizer.encode_batch(batch)
        ]

    path = Path(encode, CpuStages(tokenizer), CpuStages(tokenizer, cuts=False))
    assert stages_found(tokenizer, {"cpu": path}) == {differences.INTERNING}


def changed(reference: Tokenizer, **parts) -> Path:
    """A path that is the reference with some parts changed, and shows nothing but ids."""
    described = orjson.loads(reference.to_str())
    for name, value in parts.items():
        described[name] = value
    other = Tokenizer.from_str(orjson.dumps(described).decode())
    return Path(lambda batch: [row.ids for row in other.encode_batch(batch.to_list())])


REPLACE_DOG = {"type": "Replace", "pattern": {"String": "dog"}, "content": "cat"}


@pytest.mark.parametrize(
    ("parts", "source", "stage"),
    [
        ({"normalizer": REPLACE_DOG}, "the dog sat", differences.NORMALIZATION),
        ({"pre_tokenizer": {"type": "WhitespaceSplit"}}, "the cat . sat.", differences.UNKNOWN),
        ({"added_tokens": []}, "the [MASK] cat", differences.ADDED),
        ({"post_processor": None}, "the cat", differences.ADDED),
    ],
)
def test_a_path_that_shows_only_ids_is_judged_by_them(bert, parts, source, stage):
    report = check(bert, TextBatch.of([source]), {"other": changed(bert.definition.reference, **parts)})
    assert [difference.stage for difference in report.differences] == [stage]


def test_ids_alone_tell_matching_from_word_boundaries(bert):
    """`cat` as c ##a ##t reads the same; `s` for `##s` reads the same but for a space."""
    expected = bert.definition.reference.encode("the cats sat").ids
    for piece, pieces, stage in ((5, [21, 22, 23], differences.MATCHING), (6, [20], differences.WORDS)):
        ids = [made for token_id in expected for made in (pieces if token_id == piece else [token_id])]
        report = check(bert, TextBatch.of(["the cats sat"]), {"other": lambda _batch, ids=ids: [ids]})
        (difference,) = report.differences
        assert (difference.stage, difference.inferred) == (stage, True)


def test_each_path_is_reported_by_itself(bert):
    right = paths_of(bert)["cpu"]
    wrong = Path(lambda batch: [[0] for _ in range(len(batch))])
    report = check(bert, TextBatch.of(["the cat", "a dog"]), {"right": right, "wrong": wrong})
    assert report.different == {"right": 0, "wrong": 2}
    assert report.hashes["right"] == report.hashes["reference"] != report.hashes["wrong"]
    assert {difference.path for difference in report.differences} == {"wrong"}


def test_the_hash_is_fnv_1a_over_little_endian_words(bert):
    ids = np.array([0, 1, 255, 256, 65_536, 2**31 - 1, 7], np.int32)
    assert fnv1a(ids, np.uint64(FNV_START)) == compare.fnv1a(ids)
    state = FNV_START
    for at in range(len(ids)):
        state = fnv1a(ids[at : at + 1], state)
        assert state == compare.fnv1a(ids[: at + 1])  # below 2^63 and above
    report = check(bert, TextBatch.of(TEXTS))
    flat = np.concatenate([row.ids for row in bert.definition.reference.encode_batch(TEXTS)])
    assert report.hashes["reference"] == f"{compare.fnv1a(flat):016x}"
    assert report.ids == len(flat)


def test_batches_stream_and_documents_are_counted_across_them(bert, monkeypatch):
    monkeypatch.setattr("gpu_tok.parity._SLICE_BYTES", 16)
    wrong = {"other": lambda batch: [ids[:-1] if "dog" in text else ids for text, ids in _with_ids(bert, batch)]}
    whole = check(bert, TextBatch.of(TEXTS), wrong)
    parts = check(bert, (TextBatch.of([text]) for text in TEXTS), wrong)
    assert whole.hashes == parts.hashes
    assert whole.differences == parts.differences
    assert (whole.documents, whole.bytes) == (parts.documents, parts.bytes)
    assert [difference.document for difference in whole.differences] == [1]


def _with_ids(tokenizer, batch):
    return zip(batch.to_list(), tokenizer.encode_batch(batch), strict=True)


def test_the_file_s_truncation_and_padding_are_off():
    reference = small_bert()
    reference.enable_truncation(4)
    reference.enable_padding(length=8)
    assert check(Parts(reference), TextBatch.of(TEXTS)).same


def test_long_documents_are_shown_shortened_with_the_place_marked(bert):
    text = "the " * 1000 + "cat " + "sat " * 1000
    wrong = {"other": lambda batch: [[8 if token_id == 5 else token_id for token_id in bert.encode_batch(batch)[0]]]}
    (difference,) = check(bert, TextBatch.of([text]), wrong).differences
    assert (difference.position, difference.id, difference.expected_id) == (1001, 8, 5)
    assert ">>>cat<<<" in difference.shown
    assert len(difference.shown) < 100
    assert difference.shown[0] == difference.shown[-1] == "…"


def test_all_differences_are_counted_and_some_are_shown(bert):
    report = check(bert, TextBatch.of(["cat"] * 50), {"other": lambda batch: [[] for _ in range(50)]}, most_shown=3)
    assert report.different == {"other": 50}
    assert len(report.differences) == 3
    assert report.differences[0].id is None


def test_a_report_prints_and_goes_to_json(bert):
    report = check(bert, TextBatch.of(TEXTS), {"other": lambda batch: [[0]] * len(batch)})
    console = Console(width=140, record=True, quiet=False)
    with console.capture() as shown:
        console.print(report)
    assert "documents differ" in shown.get()
    assert orjson.loads(orjson.dumps(report.to_dict()))["same"] is False


def test_the_empty_batch_is_the_same(bert):
    report = check(bert, TextBatch.of([]))
    assert (report.same, report.documents, report.ids) == (True, 0, 0)
    assert report.hashes["reference"] == f"{FNV_START:016x}"


def test_a_cold_path_s_stages_are_those_of_the_reference_on_hard_texts(bert):
    show, reference = CpuStages(bert), ReferenceStages(bert.definition)
    for text, _reason in texts.HARD_TEXTS:
        parts = [part for part in show(text) if part.added_id is None]
        sections = [section for section in reference.sections(text) if section.added_id is None]
        assert "".join(part.normalized for part in parts) == "".join(section.normalized for section in sections)
