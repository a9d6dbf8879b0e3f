"""kernels/decode.cu on the emulator: the bytes and starts of the CPU's decoder, which test_decode checks.

The reference is asked again where kernels do in another way what the CPU does: heads, tiles, repair.
"""

from __future__ import annotations

import itertools

import compare
import kernel_copies
import numpy as np
import oracle
import pytest
from test_decode import byte_reference, decoder_for, wordpiece_reference
from tokenizers import AddedToken, Tokenizer, decoders

from gpu_tok.batch import Ragged, starts_of
from gpu_tok.decode import Decoder
from gpu_tok.emulated import EmulatedDevice, Mode, replay
from gpu_tok.errors import DeviceError, IdError
from gpu_tok.id_rows import ragged_ids
from gpu_tok.on_device import decode
from gpu_tok.on_device.decode import _places as places_of
from gpu_tok.on_device.decode import decode_on, upload
from gpu_tok.tables.definition import Definition

TILE_IDS, TILE_BYTES, STAGE = 512, 4096, 16384  # kernels/decode.cu
SIZES = (0, 1, 2, 31, 32, 33, 63, 64, 65, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 5000)
BEYOND = (1 << 31) - 5
NAMES = ("own/bert", "own/byte-level", "shared/bert-base-uncased", "shared/gpt2")

# Bytes of which nearly everything that can go wrong with UTF-8 is made: é, 中, 😀, surrogates, overlong forms.
DOUBTFUL = bytes.fromhex("41 C3A9 E4B8AD F09F9880 EDA080 C0 F4908080 E09F FF 42")


def new_device(seed: int = 0, **how) -> EmulatedDevice:
    try:
        return EmulatedDevice(seed, **how)
    except DeviceError as error:
        pytest.skip(error.finding)


@pytest.fixture(scope="module")
def device():
    return new_device()


@pytest.fixture(scope="module")
def decoder_of(definition_text):
    """`decoder_of("own/bert")` is the CPU's decoder and the reference."""

    def make(name: str) -> tuple[Decoder, Tokenizer]:
        definition = Definition.from_str(definition_text(name))
        return Decoder(definition), definition.reference

    return make


def run(device: EmulatedDevice, decoder: Decoder, rows: Ragged, skip: bool) -> tuple[np.ndarray, np.ndarray]:
    """The bytes and their starts, on the host again."""
    tables = upload(device, decoder.tables_for(skip))
    with device.running():
        out, starts = decode_on(device, tables, device.upload(rows.flat), device.upload(rows.starts))
    return device.download(out), device.download(starts)


def assert_decodes_alike(device: EmulatedDevice, decoder: Decoder, rows: Ragged | list[list[int]]) -> None:
    """Equal to the CPU, of which the bytes and starts are the expected ones."""
    rows = ragged_ids(rows)
    for skip in (True, False):
        expected = decoder.decode_bytes(rows, skip)
        out, starts = run(device, decoder, rows, skip)
        assert starts.dtype == np.int64
        np.testing.assert_array_equal(starts, expected.starts)
        assert out.tobytes() == expected.bytes.tobytes()


def assert_decodes(device: EmulatedDevice, decoder: Decoder, reference: Tokenizer, rows: list[list[int]]) -> None:
    """Equal to the reference."""
    for skip in (True, False):
        out, starts = run(device, decoder, ragged_ids(rows), skip)
        texts = [out[begin:end].tobytes().decode() for begin, end in itertools.pairwise(starts)]
        compare.assert_same_texts(reference.decode_batch(rows, skip_special_tokens=skip), texts, rows)


def random_rows(seed: int, decoder: Decoder, count: int, longest: int = 20) -> Ragged:
    """Rows of 0 to `longest` ids, some of which no token has."""
    rng = np.random.default_rng(seed)
    starts = starts_of(rng.integers(0, longest + 1, count))
    return Ragged(rng.integers(0, decoder.tables_for(False).rows.shape[1] + 10, starts[-1]), starts)


def byte_rows(decoder: Decoder, rows: list[bytes]) -> list[list[int]]:
    """Ids of single bytes, for the decoder of `byte_reference`."""
    letters = decoder.tables_for(False).rows[0, :, 0] & 0xFF
    id_of = {int(byte): token_id for token_id, byte in enumerate(letters)}
    return [[id_of[byte] for byte in row] for row in rows]


@pytest.mark.parametrize("name", NAMES)
def test_random_ids(device, decoder_of, name):
    decoder, reference = decoder_of(name)
    rows = random_rows(1, decoder, 1500)
    assert_decodes_alike(device, decoder, rows)
    assert_decodes(device, decoder, reference, [rows.row(row).tolist() for row in range(200)])


@pytest.mark.parametrize("name", NAMES)
def test_real_texts(device, decoder_of, real_texts, name):
    decoder, reference = decoder_of(name)
    texts = [*real_texts("multi", 15_000), *real_texts("code", 5_000)]
    assert_decodes(device, decoder, reference, oracle.encode(reference, texts))


@pytest.mark.parametrize("name", NAMES[:2])
def test_32_bit_ids(device, decoder_of, name):
    decoder, _reference = decoder_of(name)
    rows = random_rows(2, decoder, 100)
    narrow = run(device, decoder, Ragged(rows.flat.astype(np.int32), rows.starts), True)
    assert all(map(np.array_equal, narrow, run(device, decoder, rows, True)))


@pytest.mark.parametrize("name", NAMES[:2])
def test_empty_rows_and_the_empty_batch(device, decoder_of, name):
    decoder, _reference = decoder_of(name)
    for rows in ([], [[]], [[], [1], [], [], [2, 3], []], [[]] * 1000):
        assert_decodes_alike(device, decoder, rows)


@pytest.mark.parametrize("name", NAMES[:2])
@pytest.mark.parametrize("size", SIZES)
def test_sizes_around_warps_blocks_and_tiles(device, decoder_of, name, size):
    decoder, _reference = decoder_of(name)
    ids = random_rows(size, decoder, size, 1000).flat[:size]
    assert_decodes_alike(device, decoder, Ragged(ids, np.array([0, len(ids)])))
    assert_decodes_alike(device, decoder, Ragged(ids, np.arange(len(ids) + 1)))


@pytest.mark.parametrize("name", NAMES[:2])
def test_one_long_row_among_tiny_ones_and_many_empty_ones(device, decoder_of, name):
    decoder, _reference = decoder_of(name)
    counts = [1, 0, 2, 20_000, 1, 0, *[0] * 5000, 3]
    ids = random_rows(3, decoder, 100, 1000).flat[: sum(counts)]
    assert_decodes_alike(device, decoder, Ragged(ids, starts_of(counts)))


@pytest.mark.parametrize("name", NAMES[:2])
def test_rows_that_begin_and_end_in_the_middle_of_the_ids(device, decoder_of, name):
    decoder, _reference = decoder_of(name)
    ids = random_rows(4, decoder, 100, 100).flat
    ids[:3], ids[-3:] = -1, 2**40  # they belong to no row
    for begin, end in ((3, 3), (3, 600), (512, 1024), (700, len(ids) - 3)):
        assert_decodes_alike(device, decoder, Ragged(ids, np.array([begin, begin, (begin + end) // 2, end])))


@pytest.mark.parametrize("name", NAMES[:2])
def test_every_seed_gives_the_same_bytes(decoder_of, name):
    decoder, _reference = decoder_of(name)
    rows = random_rows(5, decoder, 200)
    for seed in range(5):
        assert_decodes_alike(new_device(seed), decoder, rows)


def test_the_first_token_that_leaves_something_has_its_own_form(device):
    reference = wordpiece_reference(["[UNK]", "a", "##b", "[S]", "", "##"], decoders.WordPiece())
    reference.add_special_tokens([AddedToken("[S]", special=True)])
    decoder = decoder_for(reference)
    rows = [[*[3, 99] * (dropped // 2), *[3] * (dropped % 2), *tail] for dropped in range(140) for tail in ([], [2, 1])]
    assert_decodes(device, decoder, reference, rows)
    assert_decodes(device, decoder, reference, [[4, 1], [5, 1], [4, 4, 2], [3, 5, 2], [99, 99], [0]])


def test_long_tokens_are_longer_than_a_row_of_the_table_or_a_stage(device):
    lengths = (14, 15, 16, 17, 31, 32, 33, 500, STAGE - 1, STAGE, STAGE + 1, 3 * STAGE + 5)
    tokens = ["".join(chr(97 + (at + length) % 26) for at in range(length)) for length in lengths]
    for kind in (decoders.WordPiece(cleanup=False), decoders.ByteLevel()):
        reference = wordpiece_reference(["[UNK]", "x", *tokens], kind)
        decoder, rng = decoder_for(reference), np.random.default_rng(6)
        assert_decodes_alike(device, decoder, [[token_id] for token_id in range(len(tokens) + 2)])
        assert_decodes_alike(device, decoder, [rng.integers(0, 10, 700).tolist(), rng.integers(0, 14, 40).tolist()])


class Far(EmulatedDevice):
    """Is told of as many bytes as if the output began at BEYOND: memory that nobody touches is not there."""

    def download(self, array, out=None):
        told = super().download(array, out)
        return told + np.array([0, BEYOND, 0], np.uint64) if array.shape == (3,) else told


def test_bytes_go_to_places_beyond_what_32_bits_hold(decoder_of, monkeypatch):
    decoder, _reference = decoder_of("own/bert")
    rows, tables = random_rows(8, decoder, 300), decoder.tables_for(True)
    expected = decoder.decode_bytes(rows)
    monkeypatch.setattr(decode, "_places", lambda xp, tile_bytes: places_of(xp, tile_bytes) + BEYOND)
    out, starts = decode_on(Far(), tables, rows.flat, rows.starts)
    np.testing.assert_array_equal(starts, expected.starts + BEYOND)
    assert out[BEYOND:].tobytes() == expected.bytes.tobytes()


def test_bytes_that_are_no_utf8_become_one_mark_for_each_longest_start(device):
    reference = byte_reference()
    decoder, rng = decoder_for(reference), np.random.default_rng(7)
    pairs = [bytes([first, second, *rest]) for first in DOUBTFUL for second in DOUBTFUL for rest in (b"", b"\x80")]
    random_ones = [bytes(rng.choice(list(DOUBTFUL), rng.integers(0, 12))) for _ in range(2000)]
    assert_decodes(device, decoder, reference, byte_rows(decoder, [*pairs, *random_ones]))


@pytest.mark.parametrize("piece", ["é", "中", "😀"])
def test_characters_over_the_borders_of_tiles_parts_and_rows(device, piece):
    reference = byte_reference()
    decoder, whole = decoder_for(reference), piece.encode()
    rows = []
    for shift in range(len(whole) + 1):
        before = b"a" * (TILE_BYTES - sum(map(len, rows)) % TILE_BYTES - shift)
        rows += [before + whole + b"b" * 5, whole[:shift], whole[shift:]]  # over a tile; split over rows: no characters
        rows += [b"a" * (16 - shift) + whole[:-1] + b"c" + whole * 10]
    assert_decodes(device, decoder, reference, byte_rows(decoder, rows))


def test_repaired_bytes_of_all_sizes(device):
    reference = byte_reference()
    decoder, rng = decoder_for(reference), np.random.default_rng(8)
    for size in (1, 15, 16, 17, TILE_BYTES - 1, TILE_BYTES, TILE_BYTES + 1, 2 * TILE_BYTES + 17):
        many = [bytes(rng.choice(list(DOUBTFUL), size)), b"\xff" * size, b"\x80" * (size % 7), "中".encode() * size]
        assert_decodes(device, decoder, reference, byte_rows(decoder, many))


def test_texts_that_need_no_repair_come_as_they_were_gathered(device, decoder_of):
    decoder, reference = decoder_of("own/byte-level")
    rows = oracle.encode(reference, ["naïve 中文 😀", "plain"] * 30)
    assert_decodes(device, decoder, reference, rows)


@pytest.mark.parametrize("name", NAMES[:2])
@pytest.mark.parametrize("bad_id", [-1, -100, 2**32, 2**40])
def test_an_impossible_id_names_the_first_row_that_has_one(device, decoder_of, name, bad_id):
    decoder, _reference = decoder_of(name)
    rows = ragged_ids([[1], [], [1, bad_id], [1] * 600, [bad_id]])
    with pytest.raises(IdError, match=rf"row 2: the id {bad_id} at 1 "):
        run(device, decoder, rows, True)


@pytest.mark.parametrize("mode", [Mode.ADDRESS, Mode.THREAD])
def test_sanitizers_find_nothing(mode, tmp_path):
    alone = kernel_copies.copied(tmp_path / "kernels", "decode.cu")
    new_device()
    for reference in (wordpiece_reference(["[UNK]", "x", "y" * 40, "##b"], decoders.WordPiece()), byte_reference()):
        device = EmulatedDevice(dump_folder=tmp_path, folders=[alone])
        assert_decodes_alike(device, decoder_for(reference), random_rows(9, decoder_for(reference), 150, 15))
    dumped = {path.name[6:]: path for path in sorted(tmp_path.glob("*.launch"))}
    assert len(dumped) == 6
    assert {name: replay(path, mode, folders=[alone]) for name, path in dumped.items()} == dict.fromkeys(dumped, "")


@pytest.mark.parametrize(
    "without", ["__syncthreads();  // the stage is full", "__syncthreads();  // all places are there"]
)
def test_a_barrier_that_is_missing_shows(decoder_of, tmp_path, without):
    new_device()
    decoder, _reference = decoder_of("own/bert")
    device = EmulatedDevice(folders=[kernel_copies.broken(tmp_path / "kernels", "decode.cu", without, "")])
    with pytest.raises(AssertionError):
        assert_decodes_alike(device, decoder, random_rows(10, decoder, 400))
