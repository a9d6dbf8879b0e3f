"""Certified cuts: between which code points a text may be divided into chunks, whatever stands around.

A cut between a and b is certified when for all x and y the ids of `x a b y` are the ids of `x a` and then of `b y`,
each encoded by the variant that its place asks for (`gpu_tok.tables.variants`). It is derived, never sampled:

1. each step of the normalizer can be cut between every possible last character of the left side and every possible
   first character of the right side (`gpu_tok.tables.steps`);
2. so can the pre-tokenizer: some part has a word boundary there, and no part up to it looks across
   (`gpu_tok.tables.stages`). Models never look across a word boundary;
3. what acts at an end of a section acts on the chunk that has this end, and on no other.

`certified` are all of them over classes of code points; `taken` are those that give chunks of a good size.

    "The cat sat"  BERT     certified  The| |cat| |sat      taken  The| cat| sat
                   GPT-2    certified  The| cat| sat        taken  the same
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_tok.tables import variants

from gpu_tok.tables.definition import Definition
from gpu_tok.tables.images import ANY, Ends, Property, Step, identity
from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.stages import Stage, stage_of
from gpu_tok.tables.steps import steps_of
from gpu_tok.tables.unicode import CODE_POINTS, has

MOST_CLASSES = 32
MOST_ATOMS = 64  # as many as a uint64 has bits

Pairs = npt.NDArray[np.bool_]


class CutTables(NamedTuple):
    """class_of: uint8[0x110000]. certified, taken: bool[classes, classes]; [a, b] says: a cut between a and b.

    flags: the `gpu_tok.tables.ends` flags that change what a chunk becomes. reasons: what blocks or limits cuts.
    """

    class_of: npt.NDArray[np.uint8]
    certified: Pairs
    taken: Pairs
    flags: int
    reasons: tuple[str, ...]


class _Condition(NamedTuple):
    """A pair (a, b) is fine if no atom of a's left mask and no atom of b's right mask are a forbidden pair."""

    left: npt.NDArray[np.uint64]
    right: npt.NDArray[np.uint64]
    forbidden: Pairs


def derive(definition: Definition) -> CutTables:
    """The cut tables of a tokenizer.

    >>> tables = derive(gpt2)
    >>> letter, space = tables.class_of[[ord("a"), ord(" ")]]
    >>> tables.certified[letter, space], tables.certified[space, letter]
    (True, False)
    """
    reasons: list[str] = []
    flags = variants.flags_that_matter(definition)
    try:
        conditions = _conditions(definition, reasons)
    except CannotCompile as refusal:
        reasons.append(f"{refusal.part}: {refusal.reason}; a section is one chunk")
        return _one_class(flags, reasons)
    key_of, certified = _pairs_of(conditions)
    if not certified.any():
        if not reasons:
            reasons.append("no pair of characters is always a word boundary; only cuts inside words would help")
        return _one_class(flags, reasons)
    class_of, certified = _with_few_classes(key_of, certified, reasons)
    return CutTables(class_of, certified, certified.copy(), flags, tuple(reasons))


def _one_class(flags: int, reasons: list[str]) -> CutTables:
    none = np.zeros((1, 1), bool)
    return CutTables(np.zeros(CODE_POINTS, np.uint8), none, none.copy(), flags, tuple(reasons))


def _conditions(definition: Definition, reasons: list[str]) -> list[_Condition]:
    """All that a certified pair has to fulfil, over raw code points."""
    chain = _Chain()
    for at, part in enumerate(definition.normalizers):
        for step in steps_of(part, _where("normalizer", "normalizers", at, definition.json.get("normalizer"))):
            chain.add(step)
    words = _word_boundaries(definition, reasons)
    if words is None:
        raise CannotCompile("pre_tokenizer", "words are not divided at certain places; only cuts inside words would help")
    atom_of, boundary, minds_first = words
    chain.forbid(atom_of, ~boundary)
    if minds_first is not None:
        chain.mind_left(minds_first)
    return chain.conditions


class _Chain:
    """The steps of a normalizer one after the other, and the conditions that they make."""

    def __init__(self) -> None:
        self.first: Ends = identity()
        self.last: Ends = identity()
        self.present: Property = np.ones(CODE_POINTS, bool)
        self.present[0xD800:0xE000] = False
        self.stripped_left: Property = np.zeros(CODE_POINTS, bool)
        self.stripped_right: Property = np.zeros(CODE_POINTS, bool)
        self.conditions: list[_Condition] = []

    def add(self, step: Step) -> None:
        if step.atom_of is not None and step.splits is not None:
            self.forbid(step.atom_of, ~step.splits)
        if step.minds_left is not None:
            self.mind_left(step.minds_left)
        if step.minds_right is not None:
            self.mind_right(step.minds_right)
        if step.strips_left is not None:
            self.stripped_left |= self._may_be(self.last, step.strips_left)
        if step.strips_right is not None:
            self.stripped_right |= self._may_be(self.first, step.strips_right)
        self.first, self.last = self.first.then(step.first), self.last.then(step.last)
        self.present = self.present & ~step.replaced
        self.present[step.made] = True

    def forbid(self, atom_of: npt.NDArray[np.unsignedinteger], forbidden: Pairs) -> None:
        """No cut where a possible last and a possible first character are a forbidden pair."""
        if not forbidden.any():
            return
        atom_of, forbidden = _merged(atom_of, forbidden, MOST_ATOMS)
        left = self.last.masks(atom_of, self.present)
        self.conditions.append(_Condition(left, self.first.masks(atom_of, self.present), forbidden))

    def mind_left(self, characters: Property) -> None:
        """Something acts on such characters at the left end: the left side must not be able to become nothing, since
        then the right side would have this end, and its chunk does not know."""
        gone = self.stripped_left | (self.last.set_of == ANY)
        self.conditions.append(_both(gone, self._may_be(self.first, characters)))

    def mind_right(self, characters: Property) -> None:
        gone = self.stripped_right | (self.first.set_of == ANY)
        self.conditions.append(_both(self._may_be(self.last, characters), gone))

    def _may_be(self, ends: Ends, characters: Property) -> Property:
        return ends.masks(characters.astype(np.uint8), self.present) & np.uint64(2) > 0


def _both(left: Property, right: Property) -> _Condition:
    bit = np.array([1, 2], np.uint64)
    return _Condition(bit[left.astype(np.uint8)], bit[right.astype(np.uint8)], np.array([[False, False], [False, True]]))


def _word_boundaries(
    definition: Definition, reasons: list[str]
) -> tuple[npt.NDArray[np.unsignedinteger], Pairs, Property | None] | None:
    """Which pairs of atoms of normalized text always have a word boundary that no part minds, and the characters on
    which a prefix acts at the left end of a section. None if there is no such pair."""
    stages = _stages(definition, reasons)
    seen = identity().code_point
    sets: list[npt.NDArray[np.unsignedinteger]] = []
    for stage in stages:
        sets.append(stage.atom_of[seen])
        if stage.replaces:
            seen = np.where(seen == stage.replaces[0], np.uint32(stage.replaces[1]), seen)
    quiet_for, minds_first = _prefixes(definition, stages)
    atom_of, members = _joint(sets + [quiet.astype(np.uint8) for quiet in quiet_for])
    count = members.shape[1]
    certain, independent = np.zeros((count, count), bool), np.ones((count, count), bool)
    for at, stage in enumerate(stages):
        atom = members[at]
        independent &= stage.independent[np.ix_(atom, atom)]
        quiet = members[len(stages) + at].astype(bool)
        certain |= independent & stage.boundary[np.ix_(atom, atom)] & quiet[None, :]
    return (atom_of, certain, minds_first) if certain.any() else None


def _stages(definition: Definition, reasons: list[str]) -> list[Stage]:
    """The parts of the pre-tokenizer that can be used: those before the first unknown one, or up to `ByteLevel`."""
    stages: list[Stage] = []
    for at, part in enumerate(definition.pre_tokenizers):
        try:
            stages.append(stage_of(part, _where("pre_tokenizer", "pretokenizers", at, definition.json["pre_tokenizer"])))
        except CannotCompile as refusal:
            reasons.append(f"{refusal.part}: {refusal.reason}; it and the parts behind it make no cuts")
            break
        if stages[-1].makes_bytes:
            if at + 1 < len(definition.pre_tokenizers):
                reasons.append(f"{stages[-1].where}: the parts behind it see bytes as characters; they make no cuts")
            break
    return stages


def _prefixes(definition: Definition, stages: list[Stage]) -> tuple[list[Property], Property | None]:
    """For each stage, the characters before which its boundaries count; and those on which a prefix acts at the left
    end of a section (or of the document).

    A part that puts a prefix before each word of an earlier splitter would put one behind the cut, too, where there
    is none; but not before a character that already is the prefix. Where nothing splits before, the variant of a
    chunk that does not begin a section has no prefix.
    """
    everything = np.ones(CODE_POINTS, bool)
    quiet, quiet_for, minds_first, splits_before = everything, [], None, False
    seen = identity().code_point
    for stage, part in zip(stages, definition.pre_tokenizers, strict=False):
        if stage.prefix:
            prefixed = seen != ord(stage.prefix)
            if stage.replaces:
                prefixed &= seen != stage.replaces[0]
            if stage.prefix_scheme == "always" and splits_before:
                quiet = quiet & ~prefixed
            elif stage.prefix_scheme in ("always", "first"):
                minds_first = prefixed if minds_first is None else minds_first | prefixed
        if stage.replaces:
            seen = np.where(seen == stage.replaces[0], np.uint32(stage.replaces[1]), seen)
        quiet_for.append(quiet)
        splits_before |= part.get("split", True) if part["type"] == "Metaspace" else part.get("use_regex", True)
    return quiet_for, minds_first


def _joint(
    atoms: list[npt.NDArray[np.unsignedinteger]],
) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.int64]]:
    """Classes of code points that have the same atom in each array: uint16[0x110000]; and these atoms of each class,
    int64[arrays, classes]."""
    changes = np.zeros(CODE_POINTS, bool)
    changes[0] = True
    for atom_of in atoms:
        changes[1:] |= atom_of[1:] != atom_of[:-1]
    begins = np.flatnonzero(changes)
    rows = np.stack([atom_of[begins].astype(np.int64) for atom_of in atoms]) if atoms else np.zeros((0, 1), np.int64)
    kinds, kind_of = np.unique(rows, axis=1, return_inverse=True)
    return np.repeat(kind_of.ravel(), np.diff(np.r_[begins, CODE_POINTS])).astype(np.uint16), kinds


def _pairs_of(conditions: list[_Condition]) -> tuple[npt.NDArray[np.int64], Pairs]:
    """Classes of raw code points that no condition tells apart, and which pairs of them fulfil all."""
    arrays = [array for condition in conditions for array in (condition.left, condition.right)]
    changes = np.zeros(CODE_POINTS, bool)
    changes[0] = True
    for array in arrays:
        changes[1:] |= array[1:] != array[:-1]
    begins = np.flatnonzero(changes)
    rows = np.stack([array[begins] for array in arrays])
    kinds, kind_of = np.unique(rows, axis=1, return_inverse=True)
    certified = np.ones((kinds.shape[1], kinds.shape[1]), bool)
    for at, condition in enumerate(conditions):
        left, right = (_bits(kinds[2 * at + side], len(condition.forbidden)) for side in (0, 1))
        certified &= ~((left @ condition.forbidden.astype(np.float32) @ right.T) > 0)
    return np.repeat(kind_of.ravel(), np.diff(np.r_[begins, CODE_POINTS])), certified


def _bits(masks: npt.NDArray[np.uint64], count: int) -> npt.NDArray[np.float32]:
    return ((masks[:, None] >> np.arange(count, dtype=np.uint64)) & np.uint64(1)).astype(np.float32)


def _merged(
    atom_of: npt.NDArray[np.integer], forbidden: Pairs, most: int
) -> tuple[npt.NDArray[np.uint8], Pairs]:
    """Merges atoms with equal rows and columns; above `most` also others, which then forbid what either forbids."""
    kinds, merged_of = np.unique(np.hstack([forbidden, forbidden.T]), axis=0, return_inverse=True)
    merged_of = merged_of.ravel()
    size = np.bincount(merged_of[atom_of], minlength=len(kinds)) if len(kinds) > most else np.zeros(len(kinds))
    keep = np.argsort(-size, kind="stable")[: most - 1] if len(kinds) > most else np.arange(len(kinds))
    number = np.full(len(kinds), most - 1)
    number[keep] = np.arange(len(keep))
    merged_of = number[merged_of]
    count = int(merged_of.max()) + 1
    small = np.zeros((count, count), bool)
    np.logical_or.at(small, (merged_of[:, None], merged_of[None, :]), forbidden)
    return merged_of.astype(np.uint8)[atom_of], small


def _with_few_classes(
    key_of: npt.NDArray[np.int64], certified: Pairs, reasons: list[str]
) -> tuple[npt.NDArray[np.uint8], Pairs]:
    class_of, forbidden = _merged(key_of, ~certified, MOST_CLASSES)
    if len(np.unique(np.hstack([certified, certified.T]), axis=0)) > MOST_CLASSES:
        reasons.append(f"more than {MOST_CLASSES} classes of characters: the rarest are merged and lose cuts")
    return class_of, ~forbidden


def _where(top: str, inner: str, at: int, part: dict | None) -> str:
    return f"{top}.{inner}[{at}]" if part is not None and part["type"] == "Sequence" else top
