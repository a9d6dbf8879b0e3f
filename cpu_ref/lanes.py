"""The numbers of a word side by side: uint32 in a vector register that numba's Python can name.

Plain LLVM as in `cpu_ref.machine`: on AVX-512 a row is one register, elsewhere several. Masks have a bit for each lane.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending, types

from cpu_ref.machine import intrinsic, llvm_function, pointer, splat

LANES = 32
WORDS = LANES // 8  # of 64 bits, for a byte of each lane

_NUMBER, _WORD, _BITS = ir.IntType(32), ir.IntType(64), ir.IntType(LANES)
_ROW, _MASK = ir.VectorType(_NUMBER, LANES), ir.VectorType(ir.IntType(1), LANES)
_WORDS, _BYTES = ir.VectorType(_WORD, WORDS), ir.VectorType(ir.IntType(8), LANES)
_PLACES, _ZEROS = ir.Constant(_ROW, [*range(LANES)]), ir.Constant(_ROW, [0] * LANES)
_ALIGNED = _NUMBER(4)


class RowType(types.Type):
    """uint32[LANES] by value."""

    def __init__(self) -> None:
        super().__init__(name="Row")


@extending.register_model(RowType)
class RowModel(extending.models.PrimitiveModel):
    """A row is the vector itself."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _ROW)


row_type = RowType()


@intrinsic
def load_row(typing_context, address, count):
    """The `count` numbers at an address, and zeros behind them."""

    def generate(_context, builder, _signature, args):
        load = llvm_function(builder, f"masked.load.v{LANES}i32.p0", _ROW, [_ROW.as_pointer(), _NUMBER, _MASK, _ROW])
        return builder.call(load, [pointer(builder, args[0], _ROW), _ALIGNED, _first_lanes(builder, args[1]), _ZEROS])

    return row_type(types.int64, types.int64), generate


@intrinsic
def store_row(typing_context, address, row, count):
    """Writes the first `count` numbers of a row."""

    def generate(context, builder, _signature, args):
        kind = [_ROW, _ROW.as_pointer(), _NUMBER, _MASK]
        store = llvm_function(builder, f"masked.store.v{LANES}i32.p0", ir.VoidType(), kind)
        builder.call(store, [args[1], pointer(builder, args[0], _ROW), _ALIGNED, _first_lanes(builder, args[2])])
        return context.get_dummy_value()

    return types.void(types.int64, row_type, types.int64), generate


@intrinsic
def store_chosen(typing_context, address, row, mask):
    """Writes the numbers of a row whose bits are set, one behind the other."""

    def generate(context, builder, _signature, args):
        store = llvm_function(
            builder, f"masked.compressstore.v{LANES}i32", ir.VoidType(), [_ROW, _NUMBER.as_pointer(), _MASK]
        )
        builder.call(store, [args[1], pointer(builder, args[0], _NUMBER), _chosen(builder, args[2])])
        return context.get_dummy_value()

    return types.void(types.int64, row_type, types.uint64), generate


@intrinsic
def look_up(typing_context, table, row, count, other):
    """What a table of 32-bit numbers at an address has for the first `count` numbers of a row; `other` behind them."""

    def generate(_context, builder, _signature, args):
        wide, pointers = ir.VectorType(_WORD, LANES), ir.VectorType(_NUMBER.as_pointer(), LANES)
        offset = builder.shl(builder.zext(args[1], wide), ir.Constant(wide, [2] * LANES))
        address = builder.inttoptr(builder.add(splat(builder, args[0], wide), offset), pointers)
        gather = llvm_function(builder, f"masked.gather.v{LANES}i32.v{LANES}p0", _ROW, [pointers, _NUMBER, _MASK, _ROW])
        return builder.call(gather, [address, _ALIGNED, _first_lanes(builder, args[2]), _everywhere(builder, args[3])])

    return row_type(types.int64, row_type, types.int64, types.uint64), generate


@intrinsic
def pairs_of(typing_context, row, factor):
    """Of each number and the one behind: number * factor + next."""

    def generate(_context, builder, _signature, args):
        behind = builder.shuffle_vector(args[0], _ZEROS, ir.Constant(_ROW, [*range(1, LANES + 1)]))
        return builder.add(builder.mul(args[0], _everywhere(builder, args[1])), behind)

    return row_type(row_type, types.int64), generate


@intrinsic
def with_places(typing_context, row):
    """Each number with the bits of its place, which it has not."""

    def generate(_context, builder, _signature, args):
        return builder.or_(args[0], _PLACES)

    return row_type(row_type), generate


@intrinsic
def with_chosen(typing_context, row, mask, number):
    """The row with another number where bits are set."""

    def generate(_context, builder, _signature, args):
        return builder.select(_chosen(builder, args[1]), _everywhere(builder, args[2]), args[0])

    return row_type(row_type, types.uint64, types.uint64), generate


@intrinsic
def least_of(typing_context, row):
    """The least number."""

    def generate(_context, builder, _signature, args):
        least = llvm_function(builder, f"vector.reduce.umin.v{LANES}i32", _NUMBER, [_ROW])
        return builder.zext(builder.call(least, [args[0]]), _WORD)

    return types.uint64(row_type), generate


@intrinsic
def below(typing_context, row, limit):
    """The mask of numbers below a limit."""

    def generate(_context, builder, _signature, args):
        mask = builder.icmp_unsigned("<", args[0], _everywhere(builder, args[1]))
        return builder.zext(builder.bitcast(mask, _BITS), _WORD)

    return types.uint64(row_type, types.int64), generate


@intrinsic
def lowest_bytes(typing_context, row):
    """The lowest byte of each number, in WORDS words."""

    def generate(context, builder, _signature, args):
        words = builder.bitcast(builder.trunc(args[0], _BYTES), _WORDS)
        halves = [builder.extract_element(words, _NUMBER(half)) for half in range(WORDS)]
        return context.make_tuple(builder, types.UniTuple(types.uint64, WORDS), halves)

    return types.UniTuple(types.uint64, WORDS)(row_type), generate


def _first_lanes(builder, count):
    return builder.icmp_signed("<", _PLACES, _everywhere(builder, count))


def _chosen(builder, mask):
    return builder.bitcast(builder.trunc(mask, _BITS), _MASK)


def _everywhere(builder, number):
    return splat(builder, builder.trunc(number, _NUMBER), _ROW)
