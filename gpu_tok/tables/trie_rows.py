"""The rows of a flattened trie: where a piece ends is found by one table look-up a byte.

A double array: from `node`, byte `b` leads to `link[node] + b`, if that slot's `parent` is `node`. `id` is the piece
that ends at a node, or `NO_PIECE`. The three stand side by side in one row, since a step reads all of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

NO_PIECE = -1
WORD_ROOT = 0  # where a word's first piece begins
LINK, PARENT, ID, COLUMNS = 0, 1, 2, 4  # the columns of a row; the fourth keeps rows on 16-byte borders

Rows = npt.NDArray[np.int32]
NO_ROWS: Rows = np.zeros((0, COLUMNS), np.int32)  # what `insert_pieces` begins with
