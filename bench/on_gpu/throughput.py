"""Bytes of input text a second: encode and decode, from and to where, in each state; the reference beside it.

Ids are compared with the reference's and hashed before anything is timed. *cold*: an empty table. *warm*: the same
texts again. *fresh*: a table that other texts of the language have filled. Cold and fresh are timed on distinct texts
alone; a large batch is drawn from the same texts over and over, and is only ever warm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import systems
import timing

from gpu_tok import Tokenizer
from gpu_tok.batch import Ragged, TextBatch, TokenBatch
from gpu_tok.files import readers, sources
from on_gpu import compare, documents
from on_gpu.clocks import timed_rounds, timed_states
from on_gpu.setting import Setting, file_of

LANGUAGES = ("en", "zh", "code")
CPU_ROUNDS = 2
PARQUET_SHARE = 4  # so much less text than otherwise drawn: reading is slower


def tasks(setting: Setting) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """What can be timed, by name, the most telling first."""
    languages = [language for language in LANGUAGES if language in setting.data.languages]
    for language in languages:
        for name in setting.names:
            yield f"{name}/{language}", partial(measure, setting, name, language)
    for name in setting.names[:1]:
        yield f"documents/{name}", partial(by_documents, setting, name, languages[0])


def measure(setting: Setting, name: str, language: str) -> dict[str, Any]:
    return Case(setting, name, language).measure()


def encode(tokenizer: Tokenizer, batch: TextBatch, to_host: bool = False) -> TokenBatch:
    return tokenizer.encode_batch(batch, add_special_tokens=False, truncation=False, padding=False, to_host=to_host)


def on_device(setting: Setting, batch: TextBatch) -> TextBatch:
    """The same texts in the device's memory."""
    device = setting.handle
    with device.running():
        return TextBatch(device.upload(batch.bytes), device.upload(batch.starts), valid=True)


def pinned(setting: Setting, batch: TextBatch) -> TextBatch:
    """The same texts in host memory that the device copies from at full speed."""
    copy = setting.handle.pinned(len(batch.bytes), np.uint8)
    copy[...] = batch.bytes
    return TextBatch(copy, batch.starts, valid=True)


class Case:
    """One tokenizer on one language."""

    def __init__(self, setting: Setting, name: str, language: str) -> None:
        self.setting, self.name = setting, name
        self.tokenizer = setting.tokenizer(name)
        self.texts = setting.data.to_time(language, setting.sizes.text_megabytes)
        self.batch = TextBatch.of(self.texts.timed)
        self.rates: list[dict[str, Any]] = []

    def measure(self) -> dict[str, Any]:
        checked = self.check()
        if checked["difference"] is None:
            self.time_distinct()
            self.time_drawn()
            self.time_cpu()
        return checked | {"rates": self.rates}

    @cached_property
    def expected(self) -> Ragged:
        """The reference's ids."""
        rows = self.setting.reference(self.name).encode_batch_fast(self.texts.timed, add_special_tokens=False)
        return compare.as_rows([row.ids for row in rows], np.int32)

    @cached_property
    def drawn(self) -> np.ndarray:
        """Rows of the texts, over and over, for a large batch."""
        return documents.drawn_rows(np.diff(self.batch.starts), self.setting.sizes.drawn_megabytes * 1e6)

    @cached_property
    def large(self) -> TextBatch:
        """The large batch, on the host."""
        return documents.take(self.batch, self.drawn)

    def check(self) -> dict[str, Any]:
        """Ids of the texts when they are new and again, decoded texts, and ids of the large batch."""
        empty = self.setting.empty_tokenizer(self.name)
        cold, warm = (compare.rows_of(encode(empty, self.batch)) for _pass in range(2))
        large = compare.rows_of(encode(empty, self.large))
        pairs = {
            "cold": (cold, self.expected),
            "warm": (warm, self.expected),
            "drawn": (large, documents.take_rows(self.expected, self.drawn)),
            "decoded": self._decoded(),
        }
        found = {state: difference for state, pair in pairs.items() if (difference := compare.first_difference(*pair))}
        return {
            "difference": found or None,
            "hash": timing.fnv1a(warm.flat),
            "expected_hash": timing.fnv1a(self.expected.flat),
            "texts": len(self.batch),
            "bytes": self.batch.byte_count,
            "ids": len(self.expected.flat),
        }

    def _decoded(self) -> tuple[Ragged, Ragged]:
        ours = compare.bytes_of(self.tokenizer.decode_bytes(self.expected, skip_special_tokens=False))
        rows = [self.expected.row(row).tolist() for row in range(self.expected.count)]
        texts = self.setting.reference(self.name).decode_batch(rows, skip_special_tokens=False)
        return ours, compare.as_rows([text.encode("utf-8") for text in texts], np.uint8)

    def time_distinct(self) -> None:
        """Cold, fresh and warm, on texts that do not repeat."""
        rounds, device = self.setting.sizes.rounds, self.setting.handle
        there, others = on_device(self.setting, self.batch), TextBatch.of(self.texts.others)
        empty, filled = ([self.setting.empty_tokenizer(self.name) for _ in range(rounds)] for _state in range(2))
        for tokenizer in filled:
            encode(tokenizer, others)
        for state, tokenizers in (("cold", empty), ("fresh", filled)):
            times = timed_states(device, [partial(encode, tokenizer, there) for tokenizer in tokenizers])
            self._add("encode", "device", "device", state, times)
        self._add("encode", "device", "device", "warm", timed_rounds(device, partial(encode, empty[0], there), rounds))

    def time_drawn(self) -> None:
        """Warm, on a large batch: from the device, from the host, from a file; and decoding."""
        rounds, device = self.setting.sizes.rounds, self.setting.handle
        here = pinned(self.setting, self.large)
        there = on_device(self.setting, here)
        work = partial(encode, self.tokenizer, there)
        self._add("encode", "device", "device", "warm", timed_rounds(device, work, rounds), here)
        ids = work()
        decoded = timed_rounds(device, lambda: self.tokenizer.decode_bytes(ids, skip_special_tokens=False), rounds)
        self._add("decode", "device", "device", "warm", decoded, here)
        to_host = timed_rounds(device, lambda: encode(self.tokenizer, here, to_host=True), rounds)
        self._add("encode", "pinned host", "host", "warm", to_host, here)
        part = documents.take(self.batch, self.drawn[: max(1, len(self.drawn) // PARQUET_SHARE)])
        with TemporaryDirectory() as folder:
            path = write_parquet(part, Path(folder, "texts.parquet"))
            read = timed_rounds(
                device, lambda: [encode(self.tokenizer, texts, to_host=True) for texts in parts_of(path)], 2
            )
        self._add("encode", "Parquet file", "host", "warm", read, part)

    def time_cpu(self) -> None:
        """The reference and this project's CPU path on the same host, with all its cores, on the distinct texts."""
        cores = timing.machine()["cores"]
        with file_of(self.setting.data, self.name) as path:
            for kind in (systems.Reference, systems.GpuTok):
                system = systems.make(kind, path, cores)
                encode_all = partial(system.encode, system.prepare(self.texts.timed))
                ids = system.prepare_ids([self.expected.row(row) for row in range(self.expected.count)])
                for what, work in (("encode", encode_all), ("decode", partial(system.decode, ids))):
                    times = timing.Times([timing.timed(work)[0] for _ in range(1 + CPU_ROUNDS)][1:])
                    self._add(what, "host", "host", "warm", times, system=f"{system.name}, CPU")

    def _add(
        self,
        what: str,
        source: str,
        target: str,
        state: str,
        times: timing.Times,
        batch: TextBatch | None = None,
        system: str | None = None,
    ) -> None:
        """batch: the large one, if it is what was timed."""
        timed = self.batch if batch is None else batch
        text = "distinct" if batch is None else f"drawn over and over from {self.batch.byte_count:,} bytes"
        about = {"what": what, "from": source, "to": target, "state": state, "text": text, "documents": len(timed)}
        owner = system or f"gpu_tok, {self.setting.device}"
        self.rates.append(
            {"system": owner, **about, "bytes": timed.byte_count, "how": "measured", **times.summary(timed.byte_count)}
        )


def write_parquet(batch: TextBatch, path: Path) -> Path:
    offsets = pa.py_buffer(batch.starts)
    column = pa.Array.from_buffers(pa.large_string(), len(batch), [None, offsets, pa.py_buffer(batch.bytes)])
    pq.write_table(pa.table({"text": column}), path, row_group_size=max(1, len(batch) // 8))
    return path


def parts_of(path: Path) -> Iterator[TextBatch]:
    """The texts of a file, read ahead on a thread of its own, as `gpu-tok encode` does."""
    for part in readers.read(sources.find([str(path)])):
        yield part.texts


def by_documents(setting: Setting, name: str, language: str) -> dict[str, Any]:
    """Batches of 1 to a million short documents, warm: the time of a call, from host and device; the reference beside
    it, as long as the batches are no larger than the distinct texts."""
    tokenizer, reference = setting.tokenizer(name), setting.reference(name)
    texts = setting.data.to_time(language, setting.sizes.text_megabytes).timed
    rows = []
    for count in setting.sizes.documents:
        if setting.deadline.has_passed:
            break
        given = documents.short_documents(texts, count)
        batch = TextBatch.of(given)
        works = {
            "from_device": partial(encode, tokenizer, on_device(setting, batch)),
            "from_host": partial(encode, tokenizer, batch),
        }
        if batch.byte_count <= setting.sizes.text_megabytes * 1e6:
            works["reference"] = partial(reference.encode_batch_fast, given, add_special_tokens=False)
        times = {what: timed_rounds(setting.handle, work, setting.sizes.rounds) for what, work in works.items()}
        summaries = {what: each.summary(batch.byte_count) for what, each in times.items()}
        rows.append({"documents": count, "bytes": batch.byte_count, **summaries})
    return {"sizes": rows, "how": "measured, warm; ids stay where they are made", "cores": timing.machine()["cores"]}
