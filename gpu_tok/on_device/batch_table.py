"""misses -> their ids, once for each distinct chunk: the table that lives as long as a batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpu_tok.batch import Ragged
from gpu_tok.on_device.table import DeviceTable

THREADS = 256
NO_MISS = 0xFFFFFFFF  # an empty slot
WINNERS_SEEN = 2  # a word of the report


class Winners(NamedTuple):
    """One miss for all that are equal. On the device: winner: uint32[misses], the miss that stands for each; number:
    uint32[misses], of winners only; winners: uint32[count], the misses that won. On the host: chunks, their bytes;
    flags: uint8[count]."""

    winner: Any
    number: Any
    winners: Any
    chunks: Ragged
    flags: np.ndarray


class Late(NamedTuple):
    """The ids that the cold path made, on the device. ids: int32[n]; of_winner: int64[2 * winners], of_miss: int64[2 *
    misses], pairs of where in `ids` those of each lie and how many they are; of_miss None until `settle`."""

    ids: Any
    of_winner: Any
    of_miss: Any = None


def claim(device: Any, bytes: Any, misses: Any, count: int, report: Any) -> Winners:
    """Lets equal misses agree on one of them, and brings the winners' bytes to the host.

    bytes: uint8[n]; misses: int64[count, 2] as look_up_chunks writes them; report: uint64[8].
    """
    xp, grid = device.xp, device.grid(count, THREADS)
    miss_count = report[1:2]
    slots = xp.full(1 << max(4, (2 * count - 1).bit_length()), NO_MISS, np.uint32)
    winner, number, winners = (xp.empty(count, np.uint32) for _ in range(3))
    length, flags = xp.empty(count, np.int64), xp.empty(count, np.uint8)
    device.launch("claim_misses", grid, THREADS, bytes, len(bytes), misses, miss_count, slots, len(slots), winner)
    device.launch("list_winners", grid, THREADS, winner, misses, miss_count, number, winners, length, flags, report)
    won = int(device.download(report)[WINNERS_SEEN])
    start = starts_on(xp, length[:won])
    copied = xp.empty(int(start[-1]), np.uint8)
    grid = device.grid(32 * won, THREADS)
    device.launch("copy_winners", grid, THREADS, bytes, misses, winners, won, start, copied)
    chunks = Ragged(device.download(copied), device.download(start))
    return Winners(winner, number, winners[:won], chunks, device.download(flags[:won]))


def upload_ids(device: Any, ids: Ragged) -> Late:
    """Ids that the host made: int32 rows, one a winner."""
    of_winner = np.stack([ids.starts[:-1], np.diff(ids.starts)], axis=1)
    return Late(device.upload(ids.flat.astype(np.int32)), device.upload(of_winner.reshape(-1)))


def settle(device: Any, winners: Winners, late: Late, report: Any) -> Late:
    """Gives every miss the ids of its winner."""
    count = len(winners.winner)
    of_miss = device.xp.empty(2 * count, np.int64)
    device.launch("settle_misses", device.grid(count, THREADS), THREADS, winners.winner, winners.number, report[1:2],
                  late.of_winner, of_miss)  # fmt: skip
    return late._replace(of_miss=of_miss)


def publish(device: Any, bytes: Any, misses: Any, winners: Winners, late: Late, table: DeviceTable) -> None:
    """Keeps as many winners as fit, for the batches to come."""
    if table.capacity == 0:
        return
    count = len(winners.winners)
    device.launch("publish_winners", device.grid(count, THREADS), THREADS, bytes, len(bytes), misses, winners.winners,
                  count, late.ids, late.of_winner, table.rows, table.capacity, table.row_limit, table.keys,
                  len(table.keys), table.ids, len(table.ids), table.used)  # fmt: skip


def starts_on(xp: Any, counts: Any) -> Any:
    """An exclusive prefix sum on the device, with the total behind it: int64[n + 1]."""
    starts = xp.zeros(len(counts) + 1, np.int64)
    xp.cumsum(counts, out=starts[1:])
    return starts
