"""What a post-processor adds to a single text, and what truncation and padding make of it, as plain numbers.

For one text every post-processor of the reference comes to *prefix + text + suffix*. They are run here on a text of
one symbol, in the reference's order, so that a `Sequence` of them needs no rules of its own.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from gpu_tok.errors import GpuTokError
from gpu_tok.tables.definition import Definition, Part
from gpu_tok.tables.refusal import CannotCompile

Side = Literal["left", "right"]

TEXT = -1  # stands for all ids of the text


class Template(NamedTuple):
    """What stands before and after the ids of a text, with `token_type_ids`.

    `added` is the number of ids that the reference takes off `max_length`.
    """

    prefix: tuple[int, ...] = ()
    prefix_types: tuple[int, ...] = ()
    text_type: int = 0
    suffix: tuple[int, ...] = ()
    suffix_types: tuple[int, ...] = ()
    added: int = 0


class Truncation(NamedTuple):
    """At most `max_length` ids a text, special tokens included."""

    max_length: int
    side: Side = "right"
    strategy: str = "longest_first"
    stride: int = 0


class Pad(NamedTuple):
    """Rows are filled up to `length`; to the longest row where `length` is None."""

    length: int | None = None
    multiple: int = 0
    pad_id: int = 0
    pad_type_id: int = 0
    side: Side = "right"


class _Symbol(NamedTuple):
    id: int
    type_id: int


_Encoding = list[_Symbol]


def compile_postprocess(definition: Definition, add_special_tokens: bool = True) -> Template:
    """The post-processor for single texts; raises `CannotCompile` where it uses the text twice or never.

    >>> compile_postprocess(bert).prefix, compile_postprocess(bert).suffix, compile_postprocess(bert).added
    ((101,), (102,), 2)
    """
    encodings: list[_Encoding] = [[_Symbol(TEXT, 0)]]
    added = 0
    for place, part in definition.parts("post_processor"):
        encodings = _process(part, place, encodings, add_special_tokens)
        added += _added(part)
    whole = [symbol for encoding in encodings for symbol in encoding]
    places = [at for at, symbol in enumerate(whole) if symbol.id == TEXT]
    if len(places) != 1:
        raise CannotCompile("post_processor", f"the text stands {len(places)} times in its template, not once")
    before, text, after = whole[: places[0]], whole[places[0]], whole[places[0] + 1 :]
    return Template(
        tuple(symbol.id for symbol in before),
        tuple(symbol.type_id for symbol in before),
        text.type_id,
        tuple(symbol.id for symbol in after),
        tuple(symbol.type_id for symbol in after),
        added if add_special_tokens else 0,
    )


def _process(part: Part, place: str, encodings: list[_Encoding], special: bool) -> list[_Encoding]:
    kind = part["type"]
    if kind == "TemplateProcessing":
        return _fill_template(part, place, encodings, special)
    if kind == "BertProcessing":
        return [_bert(part, at, encoding) for at, encoding in enumerate(encodings)] if special else encodings
    if kind == "RobertaProcessing":
        zeroed = [[_Symbol(symbol.id, 0) for symbol in encoding] for encoding in encodings]
        return [_roberta(part, at, encoding) for at, encoding in enumerate(zeroed)] if special else zeroed
    if kind == "ByteLevel":  # trims offsets, leaves the ids alone
        return encodings
    raise CannotCompile(place, f"`{kind}` is a post-processor that gpu_tok does not know")


def _fill_template(part: Part, place: str, encodings: list[_Encoding], special: bool) -> list[_Encoding]:
    """Behind another template the reference takes what that one made as the sequences A and B."""
    if len(encodings) > 2:
        raise CannotCompile(place, f"a template over {len(encodings)} sequences, which the reference refuses")
    filled: list[_Encoding] = []
    for piece in part["single"] if len(encodings) == 1 else part["pair"]:
        if "Sequence" in piece:
            which, type_id = piece["Sequence"]["id"], piece["Sequence"]["type_id"]
            if which != "A" and len(encodings) < 2:
                raise CannotCompile(place, "the template for single texts uses `$B`, which the reference refuses")
            filled.append([_Symbol(symbol.id, type_id) for symbol in encodings[which != "A"]])
        elif special:
            name, type_id = piece["SpecialToken"]["id"], piece["SpecialToken"]["type_id"]
            if name not in part["special_tokens"]:
                raise CannotCompile(place, f"the template uses {name!r}, which its special_tokens do not have")
            filled.append([_Symbol(token_id, type_id) for token_id in part["special_tokens"][name]["ids"]])
    return filled


def _bert(part: Part, at: int, encoding: _Encoding) -> _Encoding:
    cls_id, sep_id = part["cls"][1], part["sep"][1]
    if at == 0:
        return [_Symbol(cls_id, 0), *encoding, _Symbol(sep_id, 0)]
    return [*encoding, _Symbol(sep_id, 1)]


def _roberta(part: Part, at: int, encoding: _Encoding) -> _Encoding:
    cls_id, sep_id = part["cls"][1], part["sep"][1]
    return [_Symbol(cls_id if at == 0 else sep_id, 0), *encoding, _Symbol(sep_id, 0)]


def _added(part: Part) -> int:
    """The ids that the reference counts for this part; in a `Sequence` that may be others than it writes."""
    if part["type"] in ("BertProcessing", "RobertaProcessing"):
        return 2
    if part["type"] == "TemplateProcessing":
        names = [piece["SpecialToken"]["id"] for piece in part["single"] if "SpecialToken" in piece]
        return sum(len(part["special_tokens"].get(name, {"ids": ()})["ids"]) for name in names)
    return 0


def resolve_truncation(
    definition: Definition,
    truncation: bool | None = None,
    max_length: int | None = None,
) -> Truncation | None:
    """What `encode_batch` is to cut off. None honours the file, False is off, True is on.

    max_length: instead of what the file says; alone, it switches truncation on.
    """
    _check_length("max_length", max_length)
    told = definition.truncation
    if truncation is False or (truncation is None and told is None and max_length is None):
        return None
    if told is None and max_length is None:
        raise GpuTokError(
            "truncation=True without a length, and tokenizer.json has none", "pass max_length=, e.g. max_length=512"
        )
    told = told or {}
    return Truncation(
        told["max_length"] if max_length is None else max_length,
        _side(told.get("direction", "Right")),
        _snake(told.get("strategy", "LongestFirst")),
        told.get("stride", 0),
    )


def resolve_padding(
    definition: Definition,
    padding: Literal["longest", "max_length", False] | None = None,
    max_length: int | None = None,
    pad_to_multiple_of: int | None = None,
    pad_id: int | None = None,
) -> Pad | None:
    """How `encode_batch` is to fill rows up. None honours the file, False is off.

    What is not given comes from the file, and else from the reference's own defaults: id 0, type 0, on the right.
    """
    _check_length("max_length", max_length)
    _check_length("pad_to_multiple_of", pad_to_multiple_of)
    told = definition.padding
    if padding not in (None, False, "longest", "max_length"):
        raise GpuTokError(f"padding={padding!r} is none of its values", 'they are "longest", "max_length", False, None')
    if padding is False or (padding is None and told is None):
        if pad_to_multiple_of:
            raise GpuTokError("pad_to_multiple_of without padding", 'pass padding="longest" or padding="max_length"')
        return None
    told = told or {}
    multiple = told.get("pad_to_multiple_of") if pad_to_multiple_of is None else pad_to_multiple_of
    return Pad(
        _pad_length(definition, padding, max_length),
        multiple or 0,
        told.get("pad_id", 0) if pad_id is None else pad_id,
        told.get("pad_type_id", 0),
        _side(told.get("direction", "Right")),
    )


def _pad_length(definition: Definition, padding: str | None, max_length: int | None) -> int | None:
    """The length to fill up to: given, or the file's own, or the length that its truncation cuts to."""
    if padding == "longest":
        return None
    strategy = (definition.padding or {}).get("strategy")
    fixed = strategy["Fixed"] if isinstance(strategy, dict) else None
    if padding is None:
        return fixed
    if max_length is None:
        max_length = fixed if fixed is not None else (definition.truncation or {}).get("max_length")
    if max_length is None:
        raise GpuTokError(
            'padding="max_length" without a length, and tokenizer.json has none',
            "pass max_length=, e.g. max_length=512",
        )
    return max_length


def _check_length(name: str, length: int | None) -> None:
    if length is not None and (isinstance(length, bool) or length != int(length) or length < 0):
        raise GpuTokError(f"{name}={length!r} is no length", "pass a whole number from 0")


def _side(direction: str) -> Side:
    return "left" if direction.lower() == "left" else "right"


def _snake(name: str) -> str:
    """LongestFirst -> longest_first, as the reference's Python interface spells it."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
