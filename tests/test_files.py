"""Readers and writers: what goes in comes out, in bounded batches, and what is wrong is named."""

from __future__ import annotations

import gzip
import json
import threading
import time
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_tok.batch import Padding, TextBatch, TokenBatch, starts_of
from gpu_tok.errors import FileError
from gpu_tok.files import json_lines
from gpu_tok.files.documents import Documents, Reading, merge
from gpu_tok.files.readers import read
from gpu_tok.files.sources import TOKEN_KINDS, find
from gpu_tok.files.text_writers import text_writer
from gpu_tok.files.threads import ahead, behind
from gpu_tok.files.token_readers import read_tokens
from gpu_tok.files.token_writers import starts_path, token_writer

TEXTS = [
    "the cat",
    "",
    'quote " backslash \\ tab \t',
    "line\nbreak",
    "zero\x00byte",
    "e\u0301 中文 👩‍👩‍👧",
    "\u2028",
    "x" * 5000,
]

PACK = {
    "": lambda raw: raw,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def texts_of(*names: Path | str, **reading) -> list[str]:
    return [text for documents in read(find(map(str, names)), Reading(**reading)) for text in documents.texts.to_list()]


def json_line(text: str, **fields: object) -> bytes:
    return orjson.dumps({"id": 1, **fields, "text": text}) + b"\n"


def rows(*ids: list[int], counts: list[int] | None = None, side: str = "right") -> TokenBatch:
    flat = np.array([token for row in ids for token in row], np.int32)
    starts = starts_of(np.array([len(row) for row in ids], np.int64))
    real = np.diff(starts) if counts is None else np.array(counts, np.int64)
    return TokenBatch(flat, starts, real, padding=Padding(side=side))


@pytest.fixture
def file(tmp_path):
    def write(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return write


# --- JSON lines


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("batch_bytes", [7, 4096, 1 << 24])
def test_json_lines_give_their_texts_whatever_the_size_of_a_block(file, suffix, batch_bytes):
    path = file("a.jsonl" + suffix, PACK[suffix](b"".join(map(json_line, TEXTS))))
    assert texts_of(path, batch_bytes=batch_bytes) == TEXTS


@pytest.mark.parametrize("dump", [json.dumps, lambda value: json.dumps(value, ensure_ascii=False, indent=None)])
def test_json_lines_are_unescaped_as_python_wrote_them(file, dump):
    assert texts_of(file("a.jsonl", "\n".join(dump({"text": text}) for text in TEXTS).encode())) == TEXTS


@pytest.mark.parametrize(
    ("content", "expected", "reason"),
    [
        (b'{"text": "a"}\r\n{"text": "b"}\r\n', ["a", "b"], "Windows lines"),
        (b'\n  \n{"text": "a"}\n\n{"text": "b"}\n\n', ["a", "b"], "blank lines are no documents"),
        (b'\xef\xbb\xbf{"text": "a"}\n', ["a"], "a byte order mark"),
        (b'{"text": "a"}\n{"text": "b"}', ["a", "b"], "no newline at the end"),
        (b"", [], "an empty file"),
        (b"\n\n", [], "nothing but blank lines"),
        (b'\xef\xbb\xbf', [], "nothing but a byte order mark"),
        (b' { "x" : [1, {"text": "no"}], "text" : "a" } \n', ["a"], "a field of an inner object is not the field"),
        (b'{"text": "a", "text": "b"}\n', ["b"], "of equal fields the last counts"),
        (b'{"te\\u0078t": "a"}\n', ["a"], "an escape in a key"),
        (b'{"x": NaN, "text": "a"}\n', ["a"], "NaN, as Python writes it"),
        (b'{"text": "a", "x": {"y": [[], {}, "]}", -1.5e+3, true, false, null]}}\n', ["a"], "values of all kinds"),
        (b'{"text": "\\ud83d\\ude00 \\u00e9 \\/ \\b\\f\\n\\r\\t"}\n', ["😀 é / \b\f\n\r\t"], "all escapes"),
    ],
)  # fmt: skip
def test_json_lines_of_all_sorts(file, content, expected, reason):
    assert texts_of(file("a.jsonl", content)) == expected, reason


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        (b'{"text": "b"', "is no JSON"),
        (b'{"text": "b"} x', "is no JSON"),
        (b'{"text": "b",}', "is no JSON"),
        (b'{"n": 01, "text": "b"}', "is no JSON"),
        (b'{"n": [1 2], "text": "b"}', "is no JSON"),
        (b'{"n": [1}, "text": "b"}', "is no JSON"),
        (b'{"n": "\x01", "text": "b"}', "is no JSON"),
        (b'{"text": "\\x"}', "is no JSON"),
        (b'["b"]', "holds a list, not an object"),
        (b'"b"', "holds a text, not an object"),
        (b'{"body": "b"}', "has no field 'text'"),
        (b"{}", "has no field 'text'"),
        (b'{"text": null}', "the field 'text' is null"),
        (b'{"text": 5}', "the field 'text' is a number"),
        (b'{"text": ["b"]}', "the field 'text' is a list"),
        (b'{"text": "\\ud800"}', "the lone surrogate U+D800 at character 0"),
        (b'{"text": "caf\xe9"}', "byte 0xe9 at 13 is no UTF-8"),
        (b'{"x": "\xff", "text": "b"}', "byte 0xff at 7 is no UTF-8"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("keep", [(), ("id",)])
def test_a_wrong_line_is_named_by_file_and_line(file, line, finding, keep):
    path = file("a.jsonl", json_line("a") + b"\n" + json_line("c") + line + b"\n" + json_line("d"))
    with pytest.raises(FileError) as error:
        texts_of(path, keep=keep)
    assert f"{path}, line 4: {finding}" in error.value.finding


def test_a_missing_field_says_which_fields_there_are(file):
    with pytest.raises(FileError, match="'body', 'url'; name the one you mean with --text-field"):
        texts_of(file("a.jsonl", b'{"body": "b", "url": "c"}\n'))


def test_another_field_may_hold_the_text(file):
    assert texts_of(file("a.jsonl", '{"text": 5, "größe": "a"}\n'.encode()), text_field="größe") == ["a"]


def test_what_is_no_utf8_can_be_replaced(file):
    content = b'{"text": "caf\xe9"}\n{"text": "\\ud800x"}\n{"text": "b"}\n'
    assert texts_of(file("a.jsonl", content), invalid_utf8="replace") == ["caf\ufffd", "\ufffdx", "b"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.text(st.characters(codec="utf-8")), st.dictionaries(st.text(max_size=3), json_values, max_size=3)),
        max_size=4,
    )
)
def test_any_objects_that_python_writes_are_read_back(lines):
    block = b"".join(json.dumps({**fields, "text": text}, indent=None).encode() + b"\n" for text, fields in lines)
    taken = json_lines._take_texts(block, len(lines), json_lines.Place("a.jsonl", 1), Reading())
    assert taken.to_list() == [text for text, _fields in lines]


@settings(deadline=None)
@given(st.binary(max_size=40), st.integers(0, 60))
def test_a_damaged_line_is_taken_only_if_it_still_is_json(noise, at):
    line = b'{"a": [1, -2.5e3, {"b": "\\u00e9\\n"}], "text": "x \\"y\\" z", "c": null}'
    line = (line[:at] + noise + line[at + len(noise) :]).replace(b"\n", b" ")
    try:
        value = json.loads(line)
        expected = value["text"].encode() if isinstance(value, dict) and isinstance(value.get("text"), str) else None
    except (ValueError, UnicodeEncodeError):
        expected = None
    if not line.strip(b" \t\r"):
        return
    try:
        taken = json_lines._take_texts(line + b"\n", 1, json_lines.Place("a.jsonl", 1), Reading())
        assert [text.encode() for text in taken.to_list()] == [expected]
    except FileError:
        assert expected is None


def test_fields_are_kept_beside_the_texts(file):
    path = file("a.jsonl", json_line("a", url="u1", n=1) + json_line("b", n=2))
    (documents,) = read(find([str(path)]), Reading(keep=("url", "n")))
    assert documents.columns.to_pydict() == {"url": ["u1", None], "n": [1, 2]}


def test_a_field_to_keep_that_no_line_has_is_an_error(file):
    with pytest.raises(FileError, match="no line has a field 'ulr' to keep"):
        texts_of(file("a.jsonl", json_line("a", url="u")), keep=("ulr",))


# --- Plain text


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("batch_bytes", [3, 1 << 24])
def test_a_line_of_a_text_file_is_a_document(file, suffix, batch_bytes):
    path = file("a.txt" + suffix, PACK[suffix]("one\r\n\n中文 \ntab\there\rhere".encode()))
    assert texts_of(path, batch_bytes=batch_bytes) == ["one", "", "中文 ", "tab\there\rhere"]


@pytest.mark.parametrize("batch_bytes", [1, 2, 3, 1 << 24])
@pytest.mark.parametrize(
    ("content", "separator", "documents"),
    [
        ("a||b||", "||", ["a", "b"]),
        ("a|||b", "||", ["a", "|b"]),
        ("||", "||", [""]),
        ("a\nb\n\nc\n", "\n\n", ["a\nb", "c\n"]),
        ("a\n\n\n\nb", "\n\n", ["a", "", "b"]),
        ("a\r\nb", "", ["a\r\nb"]),
        ("", "||", []),
        ("中文文中文", "文中", ["中文", "文"]),
    ],
)  # fmt: skip
def test_a_separator_parts_documents_from_left_to_right(file, content, separator, documents, batch_bytes):
    path = file("a.txt", content.encode())
    assert texts_of(path, separator=separator, batch_bytes=batch_bytes) == documents


def test_invalid_bytes_of_a_text_file_are_named_by_line_or_replaced(file):
    path = file("a.txt", b"one\ntwo\ncaf\xe9\n")
    with pytest.raises(FileError, match=r"a\.txt, line 3: byte 0xe9 at 3 is no UTF-8"):
        texts_of(path, batch_bytes=4)
    assert texts_of(path, invalid_utf8="replace") == ["one", "two", "caf\ufffd"]


def test_one_document_may_be_far_larger_than_a_block(file):
    text = "word " * 100_000
    assert texts_of(file("a.jsonl", json_line(text) + json_line("b")), batch_bytes=1000) == [text, "b"]
    assert texts_of(file("a.txt", (text + "\nb").encode()), batch_bytes=1000) == [text, "b"]


# --- Packed files


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("kept", [0.3, 0.99])
def test_a_packed_file_that_is_cut_off_is_an_error(file, suffix, kept):
    packed = PACK[suffix](b"".join(json_line(f"{number**5}") for number in range(20_000)))
    with pytest.raises(FileError, match=r"is no whole (gzip|zstd) file"):
        texts_of(file("a.jsonl" + suffix, packed[: int(len(packed) * kept)]))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_file_that_is_not_packed_as_its_name_says_is_an_error(file, suffix):
    with pytest.raises(FileError, match="is no whole"):
        texts_of(file("a.jsonl" + suffix, b'{"text": "a"}\n'))
    with pytest.raises(FileError, match="it has no bytes"):
        texts_of(file("b.jsonl" + suffix, b""))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_packed_parts_one_behind_the_other_are_one_file(file, suffix):
    parts = b"".join(PACK[suffix](json_line(text)) for text in TEXTS)
    assert texts_of(file("a.jsonl" + suffix, parts)) == TEXTS


# --- Parquet


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())])
@pytest.mark.parametrize("batch_bytes", [100, 1 << 24])
def test_a_parquet_column_gives_its_texts(tmp_path, kind, batch_bytes):
    texts = [f"{text} {number}" for number in range(50) for text in TEXTS]
    pq.write_table(pa.table({"n": range(len(texts)), "text": pa.array(texts).cast(kind)}), tmp_path / "a.parquet")
    pieces = list(read(find([str(tmp_path)]), Reading(keep=("n",), batch_bytes=batch_bytes)))
    assert [text for piece in pieces for text in piece.texts.to_list()] == texts
    assert [n for piece in pieces for n in piece.columns["n"].to_pylist()] == list(range(len(texts)))


def test_parquet_errors_name_row_and_column(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", None], "n": [1, 2], "raw": [b"a", b"\xff"]}), path)
    with pytest.raises(FileError, match="row 1, column 'text': is null"):
        texts_of(path)
    with pytest.raises(FileError, match="column 'n': the Arrow array is of type int64"):
        texts_of(path, text_field="n")
    with pytest.raises(FileError, match="row 1, column 'raw': byte 0xff at 0 is no UTF-8"):
        texts_of(path, text_field="raw")
    with pytest.raises(FileError, match=r"has no column 'body'\nhint: its columns: 'text', 'n', 'raw'"):
        texts_of(path, text_field="body")


def test_a_file_that_is_no_parquet_is_an_error(file):
    with pytest.raises(FileError, match="is no readable Parquet file"):
        texts_of(file("a.parquet", b"PAR1 not really"))


# --- Which files


def test_a_folder_brings_its_data_files_in_order(file, tmp_path):
    for name in (
        "b.jsonl",
        "a/z.txt",
        "a/a.jsonl.zst",
        ".hidden.jsonl",
        ".git/c.txt",
        "notes.md",
        "info.json",
        "a.npy",
    ):
        file(name, b"")
    names = [str(Path(source.path).relative_to(tmp_path)) for source in find([str(tmp_path)])]
    assert names == ["b.jsonl", "a/a.jsonl.zst", "a/z.txt"]


def test_a_glob_brings_what_it_matches_and_a_name_is_taken_as_it_is(file, tmp_path):
    for name in ("1.jsonl", "2.jsonl", "sub/3.jsonl", "[x].txt"):
        file(name, b"")
    found = [find([str(tmp_path / pattern)]) for pattern in ("*.jsonl", "**/*.jsonl", "[x].txt")]
    assert [len(sources) for sources in found] == [2, 3, 1]


@pytest.mark.parametrize(
    ("name", "finding"),
    [
        ("nowhere.jsonl", "no file is named so"),
        ("*.nothing", "no file matches"),
        ("empty", "is empty"),
        ("notes", "holds no file of texts"),
        ("notes/a.md", "is no file of texts by its name"),
        ("notes/a.parquet.gz", "no file is named so"),
    ],
)
def test_names_that_bring_nothing_are_errors(file, tmp_path, name, finding):
    (tmp_path / "empty").mkdir()
    file("notes/a.md", b"")
    with pytest.raises(FileError, match=finding):
        find([str(tmp_path / name)])


def test_an_output_is_no_input(file, tmp_path):
    file("a.parquet", b"")
    out = str(file("out.parquet", b""))
    assert [Path(source.path).name for source in find([str(tmp_path)], outputs=[out])] == ["a.parquet"]
    with pytest.raises(FileError, match="is input and output at once"):
        find([out], outputs=[out])


def test_a_format_can_be_said(file):
    path = file("a.log", b"one\ntwo\n")
    (source,) = find([str(path)], kind="txt")
    assert source.kind == "txt"


def test_small_files_come_together_in_one_batch(file, tmp_path):
    for number in range(20):
        file(f"{number:02}.jsonl", json_line(str(number)))
    (documents,) = read(find([str(tmp_path)]))
    assert documents.texts.to_list() == [str(number) for number in range(20)]
    assert documents.read == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_merging_keeps_batches_bounded():
    pieces = [Documents(TextBatch.of(["x" * 40]), None, 0) for _ in range(10)]
    assert [documents.texts.byte_count for documents in merge(iter(pieces), 100)] == [80] * 5


# --- Threads


def test_reading_ahead_is_bounded_and_in_order():
    made = []
    items = ahead((made.append(number) or number for number in range(1, 100)), depth=2)
    assert next(items) == 1
    time.sleep(0.05)
    assert len(made) <= 3
    assert list(items) == list(range(2, 100))


def test_an_error_of_the_reader_comes_up_behind_what_was_read_before():
    def failing():
        yield 1
        raise FileError("broken")

    items = ahead(failing())
    assert next(items) == 1
    with pytest.raises(FileError, match="broken"):
        next(items)


def test_a_reader_that_is_left_early_ends_its_thread():
    items = ahead(iter(range(1, 1000)))
    next(items)
    items.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("gpu-tok-reader")]


def test_writing_behind_is_in_order_and_raises():
    written = []
    with behind(written.append) as write:
        for number in range(50):
            write(number)
    assert written == list(range(50))

    def fail(number):
        raise FileError(f"disk full at {number}")

    with pytest.raises(FileError, match="disk full at 0"), behind(fail) as write:  # noqa: PT012
        for number in range(50):
            write(number)


# --- Tokens


BATCHES = [rows([1, 2, 3], [], [4]), rows(), rows([5, 6])]
LISTS = [[1, 2, 3], [], [4], [5, 6]]


def test_ids_are_written_to_parquet_and_read_back(tmp_path):
    path = str(tmp_path / "out.parquet")
    with token_writer(path) as writer:
        for batch in BATCHES:
            writer.write(batch, None)
    table = pq.read_table(path)
    assert table.schema.field("input_ids").type == pa.list_(pa.int32())
    assert table["input_ids"].to_pylist() == LISTS
    assert [piece.rows.row(row).tolist() for piece in read_tokens(find([path], TOKEN_KINDS), batch_ids=1)
            for row in range(piece.rows.count)] == LISTS  # fmt: skip


@pytest.mark.parametrize("batch_ids", [1, 3, 1 << 20])
def test_ids_are_written_to_flat_arrays_and_read_back(tmp_path, batch_ids):
    path = str(tmp_path / "out.npy")
    with token_writer(path) as writer:
        for batch in BATCHES:
            writer.write(batch, None)
    ids, starts = np.load(path, mmap_mode="r"), np.load(starts_path(path), mmap_mode="r")
    assert (ids.dtype, ids.tolist()) == (np.int32, [1, 2, 3, 4, 5, 6])
    assert (starts.dtype, starts.tolist()) == (np.int64, [0, 3, 3, 4, 6])
    read_back = [piece.rows.row(row).tolist() for piece in read_tokens(find([path], TOKEN_KINDS), batch_ids=batch_ids)
                 for row in range(piece.rows.count)]  # fmt: skip
    assert read_back == LISTS


@pytest.mark.parametrize("name", ["out.parquet", "out.npy"])
def test_no_documents_make_a_file_without_rows(tmp_path, name):
    path = str(tmp_path / name)
    with token_writer(path):
        pass
    assert list(read_tokens(find([path], TOKEN_KINDS))) == []


def test_rows_out_of_the_middle_of_a_batch_are_written_as_they_are(tmp_path):
    whole = rows([9, 9], [1, 2, 3], [], [4], [9])
    part = TokenBatch(whole.ids, whole.starts, whole.counts)[1:4]
    for name in ("out.parquet", "out.npy"):
        with token_writer(str(tmp_path / name)) as writer:
            writer.write(part, None)
    assert pq.read_table(tmp_path / "out.parquet")["input_ids"].to_pylist() == [[1, 2, 3], [], [4]]
    assert np.load(tmp_path / "out.starts.npy").tolist() == [0, 3, 3, 4]


@pytest.mark.parametrize(("side", "mask"), [("right", [[1, 0, 0], [1, 1, 1]]), ("left", [[0, 0, 1], [1, 1, 1]])])
def test_padded_rows_have_a_mask(tmp_path, side, mask):
    path = str(tmp_path / "out.parquet")
    with token_writer(path, mask=True) as writer:
        writer.write(rows([7, 0, 0], [1, 2, 3], counts=[1, 3], side=side), None)
    assert pq.read_table(path)["attention_mask"].to_pylist() == mask


def test_row_groups_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("gpu_tok.files.token_writers.ROW_GROUP_IDS", 10)
    path = str(tmp_path / "out.parquet")
    with token_writer(path) as writer:
        for number in range(20):
            writer.write(rows([number] * 4), None)
    file = pq.ParquetFile(path)
    assert [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)] == [2] * 10


def test_a_kept_column_may_be_empty_at_first_but_not_change_its_type(tmp_path, monkeypatch):
    path = str(tmp_path / "out.parquet")
    with token_writer(path) as writer:
        writer.write(rows([1]), pa.table({"x": [None]}))
        writer.write(rows([2]), pa.table({"x": [5]}))
    assert pq.read_table(path)["x"].to_pylist() == [None, 5]
    monkeypatch.setattr("gpu_tok.files.token_writers.ROW_GROUP_IDS", 1)
    with pytest.raises(FileError, match="changes its type"), token_writer(path) as writer:  # noqa: PT012
        writer.write(rows([1]), pa.table({"x": [1]}))
        writer.write(rows([2]), pa.table({"x": [{"a": 1}]}))


@pytest.mark.parametrize("name", ["out.parquet", "out.npy"])
@pytest.mark.parametrize("stop", [FileError("broken"), KeyboardInterrupt()])
def test_work_that_stops_leaves_nothing_behind_and_the_old_file_alone(tmp_path, name, stop):
    (tmp_path / name).write_bytes(b"old")
    with pytest.raises(type(stop)), token_writer(str(tmp_path / name)) as writer:  # noqa: PT012
        writer.write(rows([1, 2]), None)
        assert len(list(tmp_path.iterdir())) > 1
        raise stop
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"old"


def test_nothing_appears_under_its_name_before_it_is_complete(tmp_path):
    path = tmp_path / "out.npy"
    with token_writer(str(path)) as writer:
        writer.write(rows([1, 2]), None)
        assert [hidden.name.startswith(".out.") for hidden in tmp_path.iterdir()] == [True, True]
    assert sorted(made.name for made in tmp_path.iterdir()) == ["out.npy", "out.starts.npy"]


@pytest.mark.parametrize(
    ("name", "keep", "finding"),
    [
        ("out.bin", (), "ids are written as .parquet or .npy"),
        ("out.npy", ("url",), "holds ids alone"),
        ("out.parquet", ("input_ids",), "cannot be kept too"),
        ("nowhere/out.npy", (), "there is no folder"),
        ("folder.npy", (), "is a folder"),
    ],
)
def test_outputs_that_cannot_be_written_are_refused_at_once(tmp_path, name, keep, finding):
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(FileError, match=finding), token_writer(str(tmp_path / name), keep=keep):
        pytest.fail("the block was entered")


def test_flat_ids_need_their_starts(tmp_path):
    path = str(tmp_path / "ids.npy")
    np.save(path, np.arange(5))
    with pytest.raises(FileError, match=r"there is no .*ids\.starts\.npy"):
        list(read_tokens(find([path], TOKEN_KINDS)))
    np.save(starts_path(path), np.array([0, 3, 9]))
    with pytest.raises(FileError, match="does not belong to"):
        list(read_tokens(find([path], TOKEN_KINDS)))


def test_a_rectangle_of_ids_is_read_row_by_row(tmp_path):
    path = str(tmp_path / "ids.npy")
    np.save(path, np.arange(6).reshape(2, 3))
    (piece,) = read_tokens(find([path], TOKEN_KINDS))
    assert [piece.rows.row(row).tolist() for row in range(2)] == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("column", "finding"),
    [
        (pa.array([1, 2]), "is of type int64, not a list"),
        (pa.array([["a"]]), "not a list of whole numbers"),
        (pa.array([[1], None]), "row 1: the ids in 'input_ids' are null"),
        (pa.array([[1, None]]), "row 0: the ids"),
    ],
)
def test_columns_that_hold_no_ids_are_refused(tmp_path, column, finding):
    pq.write_table(pa.table({"input_ids": column}), tmp_path / "a.parquet")
    with pytest.raises(FileError, match=finding):
        list(read_tokens(find([str(tmp_path)], TOKEN_KINDS)))


# --- Texts


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
def test_texts_that_are_written_are_read_back(tmp_path, name):
    path = str(tmp_path / name)
    with text_writer(path, "body") as writer:
        writer.write(TextBatch.of(TEXTS[:3]))
        writer.write(TextBatch.of([]))
        writer.write(TextBatch.of(TEXTS[3:]))
    assert texts_of(path, text_field="body") == TEXTS


@pytest.mark.parametrize("name", ["a.txt", "a.txt.zst"])
def test_texts_are_written_a_line_each_unless_they_hold_a_line_break(tmp_path, name):
    path = str(tmp_path / name)
    with text_writer(path) as writer:
        writer.write(TextBatch.of(["a", "", "中文"]))
    assert texts_of(path) == ["a", "", "中文"]
    with pytest.raises(FileError, match="text 1 holds '\\\\n', which parts the texts"), text_writer(path) as writer:
        writer.write(TextBatch.of(["a", "b\nc"]))
    with text_writer(path, separator="<|>") as writer:
        writer.write(TextBatch.of(["a", "b\nc"]))
    assert texts_of(path, separator="<|>") == ["a", "b\nc"]
