"""The map of a `Precompiled` normalizer: its keys, and what they become.

SentencePiece stores its normalization as `u32 size | double array of that size | values, each ended by NUL`. The
reference looks up a whole grapheme cluster if it is shorter than 6 bytes and takes the *shortest* key that begins it,
dropping the rest of the cluster; only where there is none it goes on character by character. So a key of several
characters that begins with a shorter key, or is longer than a cluster may be, is never found.
"""

from __future__ import annotations

import base64
from functools import lru_cache

import numpy as np
import numpy.typing as npt

LONGEST_CLUSTER = 5  # bytes of a cluster that is looked up whole
LEAF, VALUE_MASK = 1 << 8, (1 << 31) - 1


@lru_cache(maxsize=8)
def read_charsmap(encoded: str) -> dict[str, str]:
    """What a `precompiled_charsmap` maps, without the keys that are never found. Raises ValueError if it is none.

    >>> read_charsmap(part["precompiled_charsmap"])["㎏"]
    'kg'
    """
    raw = base64.b64decode(encoded, validate=True)
    if len(raw) < 4:
        raise ValueError("the map is shorter than its own size field")
    size = int(np.frombuffer(raw, "<u4", 1)[0])
    if size == 0 or size % 4 or 4 + size > len(raw):
        raise ValueError(f"the map names a double array of {size} bytes and holds {len(raw) - 4}")
    units, values = np.frombuffer(raw, "<u4", size // 4, 4), raw[4 + size :]
    return {
        key.decode("utf-8"): values[begin : values.index(0, begin)].decode("utf-8") for key, begin in _leaves(units)
    }


def _leaves(units: npt.NDArray[np.uint32]) -> list[tuple[bytes, int]]:
    """The shortest keys of a double array, and where their values begin.

    The child of a node by a byte lies at `node ^ byte`, if the unit there has that byte as its label; so a unit is a
    child of the node at `its index ^ its label`.
    """
    index = np.arange(len(units), dtype=np.int64)
    label = (units & np.uint32(1 << 31 | 0xFF)).astype(np.int64)
    offset = ((units >> 10) << ((units & (1 << 9)) >> 6)).astype(np.int64)
    node_of = (index ^ offset).tolist()
    parent = np.where((label > 0) & (label < 256), index ^ label, -1)
    child_order = np.argsort(parent, kind="stable")
    begin = np.searchsorted(parent[child_order], index).tolist()
    end = np.searchsorted(parent[child_order], index, side="right").tolist()
    child, label_of, is_leaf = child_order.tolist(), label.tolist(), ((units & LEAF) > 0).tolist()
    found, waiting = [], [(node_of[0], b"")]
    while waiting:
        node, key = waiting.pop()
        for unit in child[begin[node] : end[node]] if node < len(units) else ():
            longer = key + bytes((label_of[unit],))
            if is_leaf[unit]:
                found.append((longer, int(units[node_of[unit]]) & VALUE_MASK))
            elif len(longer) < LONGEST_CLUSTER:
                waiting.append((node_of[unit], longer))
    return found
