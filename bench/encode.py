"""Texts to ids: this project beside the reference and the native peers, in one run over the same texts.

    python bench/encode.py --json bench/results/encode.json

Checks before it times: ids are hashed, and a system whose ids differ from the reference's is shown and not ranked.
*cold* is an empty table, *warm* the same texts again, *fresh* a table filled with other texts of the same language.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import command
import numpy as np
import systems
import timing
from texts import Texts


def measure(path: Path, texts: Texts, threads: int, rounds: int) -> list[dict[str, Any]]:
    """One tokenizer on one language: a result for each system and state."""
    kinds, results, expected = [], [], None
    for kind in systems.SYSTEMS:
        try:
            checked = check(systems.make(kind, path, threads), texts, expected)
        except systems.Unsupported as reason:
            results.append({"system": kind.name, "state": "none", "same": False, "unsupported": str(reason)})
            continue
        expected = expected or checked.pop("rows")
        checked.pop("rows", None)
        kinds.append((kind, checked))
    times = {(kind.name, state): timing.Times() for kind, _ in kinds for state in ("cold", "warm", "fresh")}
    for number in range(rounds):
        for kind, _checked in kinds:
            if number < kind.rounds_at_most:
                one_round(kind, path, texts, threads, times)
    return results + [
        {"system": kind.name, "state": state, **checked, "lacks": kind.lacks}
        | times[kind.name, state].summary(texts.byte_count)
        for kind, checked in kinds
        for state in ("cold", "warm", "fresh")
    ]


def check(system: systems.System, texts: Texts, expected: tuple[np.ndarray, np.ndarray] | None) -> dict[str, Any]:
    """Ids of one run, hashed and compared with the reference's."""
    ids, starts = system.ids(system.encode(system.prepare(texts.timed)))
    same = expected is None or (np.array_equal(ids, expected[0]) and np.array_equal(starts, expected[1]))
    return {"ids": len(ids), "hash": timing.fnv1a(ids), "same": bool(same), "rows": (ids, starts)}


def one_round(
    kind: type[systems.System],
    path: Path,
    texts: Texts,
    threads: int,
    times: dict[tuple[str, str], timing.Times],
) -> None:
    """Times one system once in each state, each with a table of its own."""
    system = systems.make(kind, path, threads)
    prepared = system.prepare(texts.timed)
    if kind.rounds_at_most == systems.Reference.rounds_at_most:  # keeps no table: one time for all states
        seconds, _ = timing.timed(lambda: system.encode(prepared))
        for state in ("cold", "warm", "fresh"):
            times[kind.name, state].seconds.append(seconds)
        return
    cold, _ = timing.timed(lambda: system.encode(prepared))
    system.encode(prepared)  # the second run still fills tables of the workers that had other texts in the first
    seconds, _ = timing.timed(lambda: system.encode(prepared))
    warm, _ = timing.timed(lambda: system.encode(prepared), timing.repeats(seconds))
    filled = systems.make(kind, path, threads)
    filled.encode(filled.prepare(texts.others))
    fresh, _ = timing.timed(lambda: filled.encode(prepared))
    for state, seconds in (("cold", cold), ("warm", warm), ("fresh", fresh)):
        times[kind.name, state].seconds.append(seconds)


if __name__ == "__main__":
    command.run(measure, "encode", (__doc__ or "").split("\n")[0])
