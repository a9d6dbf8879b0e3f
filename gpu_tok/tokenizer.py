"""`Tokenizer`: what people import."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import tokenizers

from gpu_tok import arrays, cut, pipeline
from gpu_tok.batch import Padding, TextBatch, TokenBatch, TypeIds
from gpu_tok.choice import Choice, choose
from gpu_tok.cold import RUNS_BY_REFERENCE, ColdPath
from gpu_tok.decode import Decoder
from gpu_tok.decode_stream import DecodeStream
from gpu_tok.device import Workers
from gpu_tok.errors import DefinitionError, DeviceError, NotYetError
from gpu_tok.explain import Explanation, explain
from gpu_tok.id_rows import ragged_ids
from gpu_tok.info import Info, info_of
from gpu_tok.intern import Encoder, Table, TableUse
from gpu_tok.on_device.side import DeviceSide
from gpu_tok.postprocess import plan_of, resolve
from gpu_tok.tables.added_tokens import AddedTokens, compile_added_tokens
from gpu_tok.tables.cuts import CutTables, derive
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.postprocess import Pad, Template, compile_postprocess, resolve_padding
from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.tekken import load_tekken
from gpu_tok.tables.tiktoken import load_tiktoken
from gpu_tok.whole import encode_whole

TABLE_BYTES = 128 << 20
SMALL_BATCH_BYTES = 1 << 20  # a guess: where a GPU takes over from the CPU has not been measured

InvalidUtf8 = Literal["error", "replace"]
_LATER = "gpu_tok encodes single texts to ids; until then ask the reference: tokenizers.Tokenizer.encode_batch"


class Tokenizer:
    """A batch tokenizer that gives exactly the ids of Hugging Face `tokenizers` for the same `tokenizer.json`.

    >>> tok = Tokenizer.from_file("tokenizer.json")
    >>> tok.encode_batch(["The cat sat.", ""]).to_list()
    [[101, 1996, 4937, 2938, 1012, 102], [101, 102]]

    device: "cpu", "cuda" ("cuda:1" is another GPU), "emulated" (CUDA's kernels on the CPU, to test them), or "auto",
    the best there is; `tok.device` says which and why. All give the same ids; those of a GPU stay there (CuPy arrays).
    workers: threads, None for one a core. table_bytes: memory for chunks that were seen before; any value gives the
    same ids, 0 keeps none. fallback: "error" refuses a tokenizer whose cold path or post-processor is not
    native, "reference" runs those parts through the reference. small_batch_bytes: a batch of fewer bytes of text is
    encoded on the CPU, whatever the device, and uploaded; None is SMALL_BATCH_BYTES where "auto" took a GPU, else 0,
    which is for none.

    A tokenizer may be used from several threads, and in processes forked after use.
    """

    def __init__(
        self,
        definition: Definition,
        device: str = "auto",
        workers: int | None = None,
        table_bytes: int = TABLE_BYTES,
        fallback: Literal["reference", "error"] = "reference",
        small_batch_bytes: int | None = None,
    ) -> None:
        if not isinstance(definition, Definition):
            raise DefinitionError(
                f"Tokenizer({type(definition).__name__}) is no way to make one",
                "use Tokenizer.from_file(path), from_str(json), from_pretrained(name), from_tiktoken(encoding), ...",
            )
        if fallback not in ("reference", "error"):
            raise DefinitionError(f"fallback={fallback!r} is none of its values", 'they are "reference", "error"')
        self._options: dict[str, Any] = {
            "device": device, "workers": workers, "table_bytes": table_bytes, "fallback": fallback,
            "small_batch_bytes": small_batch_bytes,
        }  # fmt: skip
        self.definition = definition
        self.device: Choice = choose(device)
        self.workers = Workers(workers)
        self.cuts: CutTables = derive(definition)
        self.cold = ColdPath(definition, fallback=fallback)
        if fallback == "error" and self.goes_whole:
            raise DefinitionError(f"tokenizer.json: {self.goes_whole}", RUNS_BY_REFERENCE)
        self.added_tokens: AddedTokens = compile_added_tokens(definition)
        self.table = Table(table_bytes)
        self._encoder = Encoder(cut.lay_out(self.cuts), self.table, self.cold)
        self.decoder = Decoder(definition)
        _renew_after_fork(self.table)
        self._settle()

    def _settle(self) -> None:
        """Takes what has to do with the device, and the small batches that it gets from the CPU."""
        self._side: DeviceSide | None = None
        if self.device.handle is not None:
            parts = (self.cuts, self.cold, self.added_tokens, self.table.budget, self.decoder)
            self._side = DeviceSide(self.device.name, *parts)
            _renew_after_fork(self._side)
        small = self._options["small_batch_bytes"] if self._side else 0
        guess = SMALL_BATCH_BYTES if self._options["device"] == "auto" else 0
        self.small_batch_bytes: int = guess if small is None else small

    @classmethod
    def from_file(cls, path: str | Path, **options: Any) -> Tokenizer:
        """Loads a `tokenizer.json`; options as for `Tokenizer`."""
        return cls(Definition.from_file(path), **options)

    @classmethod
    def from_str(cls, text: str, **options: Any) -> Tokenizer:
        """Takes the text of a `tokenizer.json`; options as for `Tokenizer`."""
        return cls(Definition.from_str(text), **options)

    @classmethod
    def from_reference(cls, reference: tokenizers.Tokenizer, **options: Any) -> Tokenizer:
        """Takes a tokenizer of the reference as it is now; later changes to it are not seen."""
        if not isinstance(reference, tokenizers.Tokenizer):
            raise DefinitionError(
                f"from_reference({type(reference).__name__}) is no tokenizer of the reference",
                "pass a tokenizers.Tokenizer; of one of transformers that is its backend_tokenizer",
            )
        return _made_of(cls, reference.to_str(), reference.encode_special_tokens, options)

    @classmethod
    def from_pretrained(cls, name: str, revision: str = "main", token: str | None = None, **options: Any) -> Tokenizer:
        """Loads the `tokenizer.json` of a model on the Hugging Face hub, as the reference does."""
        try:
            reference = tokenizers.Tokenizer.from_pretrained(name, revision=revision, token=token)
        except Exception as error:  # the reference raises bare Exception
            raise DefinitionError(
                f"{name}: the hub gave no tokenizer: {error}",
                "check the name and the network, or download the tokenizer.json and use Tokenizer.from_file",
            ) from error
        return cls.from_reference(reference, **options)

    @classmethod
    def from_tiktoken(
        cls,
        encoding: Any,
        pattern: str | None = None,
        special_tokens: Mapping[str, int] | None = None,
        find_special_tokens: bool = True,
        **options: Any,
    ) -> Tokenizer:
        """Takes an encoding of tiktoken: a `tiktoken.Encoding`, a name, or a `.tiktoken` file of ranks (also gzipped).

        >>> tok = Tokenizer.from_tiktoken("o200k_base")  # through the package tiktoken, which downloads the ranks
        >>> tok = Tokenizer.from_tiktoken("cl100k_base.tiktoken")  # pattern and special tokens by the file's name
        >>> tok = Tokenizer.from_tiktoken("my.tiktoken", pattern=r"\\p{L}+|[^\\p{L}]+", special_tokens={"<end>": 300})

        Ids are those of `encode(text, allowed_special="all")`; with find_special_tokens=False special tokens in a text
        are text like any other, as in `encode_ordinary`. Where one special token begins with another the longest is
        taken; tiktoken leaves that open. `qwen.tiktoken` is normalized by NFC, as Qwen's tokenizer does.
        pattern, special_tokens: instead of the encoding's own; needed where the file's name says nothing about them.
        """
        return cls(load_tiktoken(encoding, pattern, special_tokens, find_special_tokens), **options)

    @classmethod
    def from_tekken(cls, path: str | Path, find_special_tokens: bool = False, **options: Any) -> Tokenizer:
        """Loads Mistral's `tekken.json`.

        >>> Tokenizer.from_tekken("tekken.json").encode_batch(["Hello [INST]"]).to_list()
        [[22177, 1766, 3174, 3074, 1093]]

        Ids are those of mistral-common's `Tekkenizer.encode(text, bos=False, eos=False)`, to which special tokens in a
        text are text like any other; find_special_tokens=True finds them, as a `tokenizer.json` of these models does.
        """
        return cls(load_tekken(path, find_special_tokens), **options)

    def encode_batch(
        self,
        texts: Any,
        add_special_tokens: bool = True,
        truncation: bool | None = None,
        max_length: int | None = None,
        padding: Literal["longest", "max_length", False] | None = None,
        pad_to_multiple_of: int | None = None,
        pad_id: int | None = None,
        *,
        invalid_utf8: InvalidUtf8 = "error",
        to_host: bool = False,
        text_pairs: None = None,
        stride: None = None,
        return_overflowing_tokens: Literal[False] = False,
        return_offsets: Literal[False] = False,
        return_word_ids: Literal[False] = False,
    ) -> TokenBatch:
        """The ids of a batch of texts.

        texts: list[str | bytes], a pyarrow (Large)String/(Large)Binary Array or ChunkedArray, or a TextBatch, which may
        lie on the GPU already.
        truncation, padding: None (the default) does what the file says, as the reference does, so that the same file
        gives the same ids in both; False switches it off whatever the file says. truncation=True cuts to `max_length`
        (or the file's). padding="longest" fills rows up to the longest of the batch, "max_length" to `max_length`,
        both to a multiple of `pad_to_multiple_of`, with `pad_id` (else the file's, else 0, as in the reference).
        invalid_utf8: "replace" puts U+FFFD where bytes are no UTF-8 and where a str has a lone surrogate.
        to_host: gives NumPy arrays whatever the device; those of a GPU are copied while it encodes what comes next.

        Pairs, stride and overflow, offsets and word ids come later: asking for them raises `NotYetError`.
        Raises `TextError`, which names the row, for a text that cannot be encoded.
        """
        asked = {"text_pairs": text_pairs, "stride": stride, "return_overflowing_tokens": return_overflowing_tokens,
                 "return_offsets": return_offsets, "return_word_ids": return_word_ids}  # fmt: skip
        for name, value in asked.items():
            if value:
                raise NotYetError(f"encode_batch({name}=...) is not there yet", _LATER)
        batch = TextBatch.of(texts, invalid_utf8, check=self._side is None)
        self._check_is_reached(batch.bytes)
        cut_off, pad = resolve(self.definition, truncation, max_length, padding, pad_to_multiple_of, pad_id)
        if not self.is_divisible:
            whole = encode_whole(self.definition, batch.validated(invalid_utf8), add_special_tokens, cut_off, pad)
            return whole if self._side is None or to_host else self._side.upload(whole)
        template = compile_postprocess(self.definition, add_special_tokens)
        plan, types, fill = plan_of(template, cut_off, pad), _type_ids(template), _padding(self.definition, pad)
        if self._side is not None and (batch.is_on_gpu or batch.byte_count >= self.small_batch_bytes):
            made = self._side.encode(batch, plan, invalid_utf8, to_host)
            device = None if to_host else self.device.handle
            return TokenBatch(made.ids, made.starts, made.counts, types, fill, device=device)
        valid = batch.validated(invalid_utf8)
        rows = pipeline.encode(valid, self.added_tokens, self._encoder, plan, self.workers)
        here = TokenBatch(*rows, types, fill)
        return here if self._side is None or to_host else self._side.upload(here)

    def decode_batch(self, rows: Any, skip_special_tokens: bool = True) -> list[str]:
        """The texts of rows of ids: a TokenBatch, list[list[int]], a 2-D array, arrays, or an Arrow list array.

        An id that is not in the vocabulary is passed over, as in the reference. Padding is decoded like any ids: pad
        tokens are special, so they are passed over by default.
        """
        return self.decode_bytes(rows, skip_special_tokens).to_list()

    def decode_bytes(self, rows: Any, skip_special_tokens: bool = True) -> TextBatch:
        """As `decode_batch`, with the texts as one array of UTF-8, on the device, and no Python object a text."""
        ids = ragged_ids(rows)
        self._check_is_reached(ids.flat)
        if self._side is not None:
            return self._side.decoder.decode_bytes(ids, skip_special_tokens)
        return self.decoder.decode_bytes(ids, skip_special_tokens, self.workers)

    def decode_stream(self, skip_special_tokens: bool = True) -> DecodeStream:
        """Decodes one row of ids as they come; all pieces joined are what `decode_batch` makes of the row.

        >>> stream = tok.decode_stream()
        >>> for token_id in generate():
        ...     print(stream.step(token_id), end="")  # never a part of a character
        >>> print(stream.finish())
        """
        return DecodeStream(self.definition, skip_special_tokens)

    def table_use(self) -> TableUse:
        """What the table of seen chunks holds, on the device that encodes."""
        return self.table.use if self._side is None else self._side.table_use()

    def to(self, device: str, small_batch_bytes: int | None = None) -> Tokenizer:
        """This tokenizer on another device. What was derived from the definition is shared.

        >>> tok.to("cpu").encode_batch(["The cat sat."]).to_list()
        [[101, 1996, 4937, 2938, 1012, 102]]
        """
        other = object.__new__(type(self))
        options = {**self._options, "device": device, "small_batch_bytes": small_batch_bytes}
        vars(other).update(vars(self), _options=options, device=choose(device))
        other._settle()
        return other

    def _check_is_reached(self, array: Any) -> None:
        if arrays.is_on_gpu(array) and not self.device.name.startswith("cuda"):
            raise DeviceError(
                f"the batch is on a GPU, and this tokenizer on device={self.device.name!r}",
                'make the tokenizer with device="cuda", or bring the batch to the host: batch.to_host()',
            )

    def explain(self, text: str) -> Explanation:
        """What each stage makes of a text, in the reference's words, and where it is cut."""
        return explain(self, text)

    def info(self) -> Info:
        """Model, sizes, the grade of each part and why, cuts, and the memory of the table."""
        return info_of(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as its definition and options, so that it can go to other processes; they begin with empty tables."""
        reference = self.definition.reference
        return _made_of, (type(self), reference.to_str(), reference.encode_special_tokens, self._options)

    def __repr__(self) -> str:
        model = self.definition.model["type"]
        return f"Tokenizer({model}, {len(self.definition.vocab):,} pieces, device={self.device.name!r})"

    @property
    def is_divisible(self) -> bool:
        """Does the post-processor put a text between special tokens; else texts go to the reference whole."""
        return not self.goes_whole

    @cached_property
    def goes_whole(self) -> str:
        """Why texts go to the reference whole; empty if they do not."""
        try:
            compile_postprocess(self.definition)
        except CannotCompile as refusal:
            return str(refusal)
        return ""


def _made_of(kind: type[Tokenizer], text: str, encode_special_tokens: bool, options: dict[str, Any]) -> Tokenizer:
    """encode_special_tokens: the one switch of the reference's objects that their files do not hold."""
    definition = Definition.from_str(text)
    definition.reference.encode_special_tokens = encode_special_tokens
    return kind(definition, **options)


def _type_ids(template: Template) -> TypeIds:
    return TypeIds(template.prefix_types, template.text_type, template.suffix_types)


def _padding(definition: Definition, pad: Pad | None) -> Padding:
    pad = pad or resolve_padding(definition, "longest") or Pad()
    return Padding(pad.pad_id, pad.pad_type_id, pad.side)


def _renew_after_fork(holder: Table | DeviceSide) -> None:
    """A thread of the parent may have held the lock; in the child nobody would ever let it go."""
    if hasattr(os, "register_at_fork"):
        renew = weakref.WeakMethod(holder.after_fork)
        os.register_at_fork(after_in_child=lambda: (method := renew()) and method())
