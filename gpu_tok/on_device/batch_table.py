"""misses -> their ids, once for each distinct chunk: the table that lives as long as a batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpu_tok.batch import Ragged
from gpu_tok.on_device.table import DeviceTable
from gpu_tok.on_device.text import THREADS, WARP

NO_MISS = 0xFFFFFFFF  # an empty slot


class Winners(NamedTuple):
    """One miss for all that are equal, on the device. winner: uint32[misses], the miss that stands for each; number:
    uint32[misses], of winners only; winners: uint32[misses], those that won, with their length (int64) and flags
    (uint8). How many of each hold something is in the report."""

    winner: Any
    number: Any
    winners: Any
    length: Any
    flags: Any


class Late(NamedTuple):
    """The ids that the cold path made, on the device. ids: int32[n]; of_winner: int64[2 * winners], of_miss: int64[2 *
    misses], pairs of where in `ids` those of each lie and how many they are; of_miss None until `settle`."""

    ids: Any
    of_winner: Any
    of_miss: Any = None


def claim(device: Any, bytes: Any, misses: Any, report: Any) -> Winners:
    """Lets equal misses agree on one of them.

    bytes: uint8[n]; misses: int64[2 * room], as look_up_chunks writes them; report: uint64[8].
    """
    xp, room = device.xp, len(misses) // 2
    slots = xp.full(1 << max(4, (2 * room - 1).bit_length()), NO_MISS, np.uint32)
    winner, number, winners = (xp.empty(room, np.uint32) for _ in range(3))
    length, flags = xp.empty(room, np.int64), xp.empty(room, np.uint8)
    grid = device.grid(room, THREADS)
    device.launch("claim_misses", grid, THREADS, bytes, len(bytes), misses, report, slots, len(slots), winner)
    device.launch("list_winners", grid, THREADS, winner, misses, number, winners, length, flags, report)
    return Winners(winner, number, winners, length, flags)


def bring(device: Any, bytes: Any, misses: Any, winners: Winners, count: int) -> tuple[Ragged, np.ndarray]:
    """The bytes and flags of the winners, on the host. count: how many they are."""
    start = starts_on(device.xp, winners.length[:count])
    copied = device.xp.empty(int(start[-1]), np.uint8)
    device.launch("copy_winners", device.grid(WARP * count, THREADS), THREADS, bytes, misses, winners.winners, count,
                  start, copied)  # fmt: skip
    return Ragged(device.download(copied), device.download(start)), device.download(winners.flags[:count])


def upload_ids(device: Any, ids: Ragged) -> Late:
    """Ids that the host made: int32 rows, one a winner."""
    of_winner = np.stack([ids.starts[:-1], np.diff(ids.starts)], axis=1)
    return Late(device.upload(ids.flat.astype(np.int32)), device.upload(of_winner.reshape(-1)))


def settle(device: Any, winners: Winners, late: Late, report: Any) -> Late:
    """Gives every miss the ids of its winner."""
    room = len(winners.winner)
    of_miss = device.xp.empty(2 * room, np.int64)
    device.launch("settle_misses", device.grid(room, THREADS), THREADS, winners.winner, winners.number, report,
                  late.of_winner, of_miss)  # fmt: skip
    return late._replace(of_miss=of_miss)


def publish(
    device: Any, bytes: Any, misses: Any, winners: Winners, late: Late, table: DeviceTable, report: Any
) -> None:
    """Keeps as many winners as fit, for the batches to come."""
    if table.capacity == 0:
        return
    grid = device.grid(len(winners.winner), THREADS)
    device.launch("publish_winners", grid, THREADS, bytes, len(bytes), misses, winners.winners, report, late.ids,
                  late.of_winner, table.rows, table.capacity, table.row_limit, table.keys, len(table.keys), table.ids,
                  len(table.ids), table.used)  # fmt: skip


def starts_on(xp: Any, counts: Any) -> Any:
    """An exclusive prefix sum on the device, with the total behind it: int64[n + 1]."""
    starts = xp.zeros(len(counts) + 1, np.int64)
    xp.cumsum(counts, out=starts[1:])
    return starts
