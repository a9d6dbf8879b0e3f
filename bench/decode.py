"""Ids to texts: this project beside the reference and the native peers, in one run over the same ids.

    python bench/decode.py --json bench/results/decode.json

The ids are those that the reference makes of the texts. Decoded texts are compared before anything is timed; a system
whose texts differ from the reference's is shown and not ranked. There is one state, *warm*: decoding keeps no table.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import command
import numpy as np
import systems
import timing
from texts import Texts


def measure(path: Path, texts: Texts, threads: int, rounds: int) -> list[dict[str, Any]]:
    """One tokenizer on one language: a result for each system."""
    reference = systems.make(systems.Reference, path, threads)
    ids, starts = reference.ids(reference.encode(texts.timed))
    rows = [ids[begin:end] for begin, end in pairwise(starts)]
    ready, results, expected = [], [], None
    for kind in systems.SYSTEMS:
        try:
            system = systems.make(kind, path, threads)
        except systems.Unsupported as reason:
            results.append({"system": kind.name, "state": "none", "same": False, "unsupported": str(reason)})
            continue
        prepared = system.prepare_ids(rows)
        decoded = system.texts(system.decode(prepared))
        expected = expected or decoded
        about = {"ids": len(ids), "hash": timing.fnv1a(as_bytes(decoded)), "same": decoded == expected}
        ready.append((system, prepared, about, timing.Times()))
    for number in range(rounds):
        for system, prepared, _about, times in ready:
            if number < system.rounds_at_most:
                times.seconds.append(timing.timed(lambda system=system, ids=prepared: system.decode(ids))[0])
    return results + [
        {"system": system.name, "state": "warm", **about, "lacks": system.lacks} | times.summary(texts.byte_count)
        for system, _prepared, about, times in ready
    ]


def as_bytes(texts: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(texts), np.uint8)


if __name__ == "__main__":
    command.run(measure, "decode", (__doc__ or "").split("\n")[0])
