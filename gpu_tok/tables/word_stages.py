"""The pre-tokenizer as stages, each run over the words of the one before: more than `gpu_tok.tables.words` can say.

A stage either *splits* words or *rewrites* their characters. Every splitter is an automaton whose matches and gaps
become words (`gpu_tok.tables.automaton`); neighbouring splitters that only look at the kinds of two neighbours are made
one. So a whole pre-tokenizer is a few rows of numbers:

    Sequence[Digits, ByteLevel]   split digits | rewrite: a space first | split GPT-2's pattern | rewrite: as bytes

Sources: `PreTokenizedString::split` and `NormalizedString::split` of the reference (tokenizers/src/tokenizer), its
splitters (tokenizers/src/pre_tokenizers).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_tok.tables import ends, unicode
from gpu_tok.tables.automaton import BEGIN, NO_STATE, Automaton
from gpu_tok.tables.decode import BYTE_OF
from gpu_tok.tables.definition import Definition, Part
from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.regex import compile_literal, compile_regex
from gpu_tok.tables.searches import Search, Searches
from gpu_tok.tables.splitters import GPT2_PATTERN
from gpu_tok.tables.words import WordTables, combine, split_matches, splitters_of

# The columns of `WordStages.stage`: of every row, of one that splits, of one that rewrites.
KIND = 0
ATOMS, FIRST, LAST, PARTED, REMOVED = 1, 2, 3, 4, 5
PREFIX, NEEDS, AT_START, REPLACED, REPLACEMENT = 1, 2, 3, 4, 5
COLUMNS = 6

SPLIT, REWRITE, TO_BYTES = 0, 1, 2  # kinds of stages
NOTHING = -1  # no prefix, nothing replaced
GAP, MATCH = 0, 1  # kinds of what a search divides a word into


class WordStages(NamedTuple):
    """What `cpu_ref.split_stages` reads. Every array is writable and contiguous, so that kernels compile once.

    stage: int64[stages, COLUMNS]. KIND is SPLIT, REWRITE or TO_BYTES (each character becomes those of its UTF-8 bytes).
    SPLIT: ATOMS, FIRST and LAST say where the automaton lies. PARTED has bit 2 * left + right set where a word ends
    between two that are MATCH or GAP, REMOVED bit k where what is of kind k belongs to no word.
    REWRITE: PREFIX goes before each word that does not begin with it, if the text has all end flags NEEDS and, with
    AT_START, the word begins where the text does. REPLACED becomes REPLACEMENT before that. Each may be NOTHING.
    atom_of: uint8[automata, 0x110000] and step: uint32, see `gpu_tok.tables.searches`. byte_character: uint32[256].
    expansion: at most so many characters come of each one.
    """

    stage: npt.NDArray[np.int64]
    atom_of: npt.NDArray[np.uint8]
    step: npt.NDArray[np.uint32]
    byte_character: npt.NDArray[np.uint32]
    expansion: int


class Split(NamedTuple):
    """A stage that splits: what a search for matches finds, and the gaps between, become words. See `WordStages`."""

    search: Search
    parted: int
    removed: int


class Rewrite(NamedTuple):
    """A stage that changes characters: a prefix (a code point or NOTHING) and under what conditions it is put; one code
    point replaced by another one; or, for TO_BYTES, neither."""

    kind: int = REWRITE
    prefix: int = NOTHING
    needs: int = 0
    at_start: bool = False
    replaced: int = NOTHING
    replacement: int = NOTHING


Stage = Split | Rewrite


def compile_word_stages(definition: Definition) -> WordStages:
    """The stages of a definition's pre-tokenizer; none if it has none. Raises CannotCompile at the first part without.

    >>> compile_word_stages(definition).stage[:, KIND]  # of gpt2
    array([0, 2])
    """
    builder = _Builder(bool(definition.normalizers), not all(map(keeps_beginning, definition.normalizers)))
    for where, part in definition.parts("pre_tokenizer"):
        builder.add(part, where)
    return builder.build()


def keeps_beginning(normalizer: Part) -> bool:
    """Whether all that it makes begins, by the reference's alignments, where the text does.

    What is deleted has no place, and what stands for several characters has that of the last one
    (`NormalizedString::transform_range`). So `prepend_scheme: first` finds no word at byte 0.

    >>> keeps_beginning({"type": "NFC"}), keeps_beginning({"type": "StripAccents"})
    (True, False)
    """
    kind = normalizer["type"]
    if kind == "BertNormalizer":
        strips = normalizer["strip_accents"]
        return not normalizer["clean_text"] and not (normalizer["lowercase"] if strips is None else strips)
    if kind == "Replace":
        return len(normalizer["pattern"].get("String", "")) == 1 and normalizer["content"] != ""
    if kind == "Strip":
        return not normalizer["strip_left"]
    return kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Prepend", "ByteLevel")


class _Builder:
    """Makes stages of parts, in order, and knows what the parts before have done to a text."""

    def __init__(self, changed: bool, moved: bool) -> None:
        self.stages: list[Stage] = []
        self.searches = Searches()
        self.tables: WordTables | None = None  # of the splitters that still wait to be made one stage
        self.changed = changed  # a word's place in the raw text is no longer certain
        self.moved = moved  # not even that of the first
        self.splits = False

    def add(self, part: Part, where: str) -> None:
        kind = part["type"]
        if kind == "Split":
            self._add_split(part, where)
        elif kind == "ByteLevel":
            self._add_byte_level(part, where)
        elif kind == "Metaspace":
            self._add_metaspace(part, where)
        else:
            self._add_tables(splitters_of(part, where), where)

    def build(self) -> WordStages:
        self._end_tables()
        rows = [_row(stage) for stage in self.stages]
        return WordStages(
            stage=np.array(rows, np.int64).reshape(len(rows), COLUMNS),
            atom_of=self.searches.atom_of(),
            step=self.searches.step(),
            byte_character=byte_characters(),
            expansion=math.prod(_growth(stage) for stage in self.stages),
        )

    def _end_tables(self) -> None:
        if self.tables is not None:
            runs = self.searches.add(_runs(self.tables), "pre_tokenizer")
            self.stages.append(Split(runs, *_outcome("Removed", invert=True)))
            self.tables = None

    def _add_tables(self, tables: list[WordTables], where: str) -> None:
        for each in tables:
            self.tables = each if self.tables is None else combine(self.tables, each, where)
        self.splits = True

    def _add_split(self, part: Part, where: str) -> None:
        pattern = part["pattern"]
        if "String" in pattern:
            automaton = compile_literal(pattern["String"], where)
        else:
            automaton = compile_regex(pattern["Regex"], where)
        self._add_search(automaton, part["behavior"], part["invert"], where)

    def _add_search(self, automaton: Automaton, behavior: str, invert: bool, where: str) -> None:
        self._end_tables()
        self.stages.append(Split(self.searches.add(automaton, where), *_outcome(behavior, invert)))
        self.splits = True

    def _add_byte_level(self, part: Part, where: str) -> None:
        if part["add_prefix_space"]:
            self._rewrite(Rewrite(prefix=ord(" "), needs=self._needs()))
        if part["use_regex"]:
            self._add_search(compile_regex(GPT2_PATTERN, where), "Isolated", False, where)
        self._rewrite(Rewrite(TO_BYTES))

    def _add_metaspace(self, part: Part, where: str) -> None:
        replacement, scheme = ord(part["replacement"]), part["prepend_scheme"]
        if scheme == "first" and (self.moved or (self.splits and self.changed)):
            raise CannotCompile(where, "behind other parts it is not certain which word begins at byte 0")
        prefix = NOTHING if scheme == "never" else replacement
        needs = ends.DOCUMENT_FIRST if scheme == "first" else self._needs()
        self._rewrite(Rewrite(REWRITE, prefix, needs, scheme == "first" and self.splits, ord(" "), replacement))
        if part["split"]:
            is_mark = np.arange(unicode.CODE_POINTS) == replacement
            self._add_tables([split_matches(is_mark, "MergedWithNext")], where)

    def _needs(self) -> int:
        """Behind a splitter a prefix goes to every word, else only to a text that begins a sub-section."""
        return 0 if self.splits else ends.SUBSECTION_FIRST

    def _rewrite(self, stage: Rewrite) -> None:
        self._end_tables()
        self.stages.append(stage)
        self.changed = True


def _outcome(behavior: str, invert: bool) -> tuple[int, int]:
    """PARTED and REMOVED of a stage: what a behavior makes of matches and gaps. Two gaps are never neighbours.

    >>> _outcome("MergedWithNext", False)  # parted: gap | match, match | match
    (10, 0)
    """
    delimiter = GAP if invert else MATCH
    parted = 0
    for left, right in ((GAP, MATCH), (MATCH, GAP), (MATCH, MATCH)):
        is_left, is_right = left == delimiter, right == delimiter
        joined = {
            "MergedWithPrevious": is_right and not is_left,
            "MergedWithNext": is_left and not is_right,
            "Contiguous": is_left == is_right,
        }.get(behavior, False)
        parted |= (not joined) << (2 * left + right)
    return parted, (1 << delimiter) if behavior == "Removed" else 0


def _runs(words: WordTables) -> Automaton:
    """The automaton whose matches are the words of a table, and whose gaps are what the table removes.

    There is a state behind each kind; a run goes on where the two kinds are not parted.
    """
    kinds = len(words.removed)
    behind = np.arange(1, kinds + 1, dtype=np.int32)
    next_state = np.full((kinds + 1, kinds), NO_STATE, np.int32)
    next_state[BEGIN] = np.where(words.removed, NO_STATE, behind)
    next_state[1:] = np.where(words.parted, NO_STATE, behind)
    accepts = np.zeros((kinds + 1, kinds + 1), bool)
    accepts[1:, :-1] = words.parted
    accepts[1:, -1] = True
    return Automaton(words.class_of, next_state, accepts)


def _row(stage: Stage) -> list[int]:
    if isinstance(stage, Split):
        return [SPLIT, *stage.search, stage.parted, stage.removed]
    return [int(field) for field in stage]


def _growth(stage: Stage) -> int:
    """At most so many characters come of each one."""
    if isinstance(stage, Split):
        return 1
    if stage.kind == TO_BYTES:
        return 4
    return 1 if stage.prefix == NOTHING else 2


def byte_characters() -> npt.NDArray[np.uint32]:
    """The character that `ByteLevel` writes for each byte: uint32[256].

    >>> chr(byte_characters()[0x20])
    'Ġ'
    """
    character = np.empty(256, np.uint32)
    for letter, byte in BYTE_OF.items():
        character[byte] = ord(letter)
    return character
