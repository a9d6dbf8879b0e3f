"""What numba's Python has no word for: unaligned loads, vector compares, prefetch, ordered loads and stores.

All addresses are whole numbers (`array.ctypes.data`); the caller answers for their bounds. Everything here is plain
LLVM, so it compiles for every processor that numba knows: vectors of 64 bytes become AVX-512, AVX2, SSE or NEON.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

intrinsic: Any = extending.intrinsic  # numba's own type takes the typing context for an argument of the call

LANES = 64  # bytes that one vector step looks at: the bits of one mask word

_BYTE, _WORD, _WIDE = ir.IntType(8), ir.IntType(64), ir.IntType(128)
_VECTOR = ir.VectorType(_BYTE, LANES)
RANGES = 16  # byte ranges that `classify` knows


@intrinsic
def load_u64(typing_context, address):
    """The 8 bytes at any address, little-endian."""

    def generate(_context, builder, _signature, args):
        return builder.load(_pointer(builder, args[0], _WORD), align=1)

    return types.uint64(types.int64), generate


@intrinsic
def load_u8(typing_context, address):
    """The byte at an address."""

    def generate(_context, builder, _signature, args):
        return builder.load(_pointer(builder, args[0], _BYTE), align=1)

    return types.uint8(types.int64), generate


@intrinsic
def store_u64(typing_context, address, value):
    """Writes 8 bytes at any address, little-endian."""

    def generate(context, builder, _signature, args):
        builder.store(args[1], _pointer(builder, args[0], _WORD), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), generate


@intrinsic
def load_u64_acquire(typing_context, address):
    """The word at an address that is a multiple of 8; later loads see all that was written before it was published."""

    def generate(_context, builder, _signature, args):
        return builder.load_atomic(_pointer(builder, args[0], _WORD), "acquire", 8)

    return types.uint64(types.int64), generate


@intrinsic
def store_u64_release(typing_context, address, value):
    """Publishes a word: whoever loads it with `load_u64_acquire` sees all that was written before."""

    def generate(context, builder, _signature, args):
        builder.store_atomic(args[1], _pointer(builder, args[0], _WORD), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), generate


@intrinsic
def prefetch(typing_context, address):
    """Asks for the cache line at an address; no effect on results."""

    def generate(context, builder, _signature, args):
        pointer = builder.inttoptr(args[0], ir.PointerType(_BYTE))
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def trailing_zeros(typing_context, word):
    """How many zero bits a word ends with; 64 for zero."""

    def generate(_context, builder, _signature, args):
        return builder.cttz(args[0], ir.IntType(1)(0))

    return types.uint64(types.uint64), generate


@intrinsic
def fold_multiply(typing_context, left, right):
    """Upper half XOR lower half of the 128-bit product: the mixing step of the hash."""

    def generate(_context, builder, _signature, args):
        product = builder.mul(builder.zext(args[0], _WIDE), builder.zext(args[1], _WIDE))
        upper = builder.trunc(builder.lshr(product, _WIDE(64)), _WORD)
        return builder.xor(upper, builder.trunc(product, _WORD))

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def non_ascii_mask(typing_context, address):
    """One bit for each of 64 bytes: is it 0x80 or more."""

    def generate(_context, builder, _signature, args):
        vector = builder.load(_pointer(builder, args[0], _VECTOR), align=1)
        return builder.bitcast(builder.icmp_signed("<", vector, _splat(builder, _BYTE(0))), _WORD)

    return types.uint64(types.int64), generate


@intrinsic
def equal_mask(typing_context, address, byte):
    """One bit for each of 64 bytes: is it this byte."""

    def generate(_context, builder, _signature, args):
        vector = builder.load(_pointer(builder, args[0], _VECTOR), align=1)
        return builder.bitcast(builder.icmp_unsigned("==", vector, _splat(builder, args[1])), _WORD)

    return types.uint64(types.int64, types.uint8), generate


@intrinsic
def classify(typing_context, address, ranges, before, after):
    """Looks 64 ASCII bytes up in `RANGES` ranges of bytes and writes two bytes for each.

    ranges: address of u8[RANGES, 4]: first byte, how many bytes, and the two results for bytes within. They do
    not overlap, so results are added: AVX-512 adds under a mask, which saves a blend.
    before, after: addresses of the two results, 64 bytes each.
    """

    def generate(context, builder, _signature, args):
        vector = builder.load(_pointer(builder, args[0], _VECTOR), align=1)
        results = [ir.Constant(_VECTOR, [0] * LANES)] * 2
        for index in range(RANGES):
            first, width, *values = (_byte_at(builder, args[1], 4 * index + field) for field in range(4))
            offset = builder.sub(vector, _splat(builder, first))
            inside = builder.icmp_unsigned("<", offset, _splat(builder, width))
            nothing = ir.Constant(_VECTOR, [0] * LANES)
            results = [
                builder.add(result, builder.select(inside, _splat(builder, value), nothing))
                for result, value in zip(results, values, strict=True)
            ]
        for address, result in zip(args[2:], results, strict=True):
            builder.store(result, _pointer(builder, address, _VECTOR), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), generate


@intrinsic
def common_bits_mask(typing_context, left, right):
    """One bit for each of 64 byte pairs: do the byte at `left` and the one at `right` share a set bit."""

    def generate(_context, builder, _signature, args):
        first, second = (builder.load(_pointer(builder, address, _VECTOR), align=1) for address in args)
        shared = builder.and_(first, second)
        return builder.bitcast(builder.icmp_unsigned("!=", shared, _splat(builder, _BYTE(0))), _WORD)

    return types.uint64(types.int64, types.int64), generate


def _pointer(builder, address, kind):
    return builder.inttoptr(address, kind.as_pointer())


def _byte_at(builder, address, offset):
    return builder.load(_pointer(builder, builder.add(address, _WORD(offset)), _BYTE), align=1)


def _splat(builder, byte):
    single = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), byte, ir.IntType(32)(0))
    return builder.shuffle_vector(single, ir.Constant(_VECTOR, ir.Undefined), _LANE_ZERO)


_LANE_ZERO = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
