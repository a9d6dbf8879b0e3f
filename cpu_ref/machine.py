"""What numba's Python has no word for: unaligned loads, vector compares, prefetch, ordered loads and stores.

All addresses are whole numbers (`address_of`); the caller answers for their bounds. Everything here is plain
LLVM, so it compiles for every processor that numba knows: vectors of 64 bytes become AVX-512, AVX2, SSE or NEON.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

intrinsic: Any = extending.intrinsic  # numba's own type takes the typing context for an argument of the call

LANES = 64  # bytes that one vector step looks at: the bits of one mask word

_BYTE, _HALF, _WORD, _WIDE = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.IntType(128)
_VECTOR, _LANE_BITS = ir.VectorType(_BYTE, LANES), ir.VectorType(ir.IntType(1), LANES)


@intrinsic
def address_of(typing_context, array):
    """Where an array's first byte lies, int64 as all addresses: `array.ctypes.data` is unsigned, and a variable that is
    now signed and now unsigned is a float64 to numba."""

    def generate(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, _WORD)

    return types.int64(array), generate


@intrinsic
def load_u64(typing_context, address):
    """The 8 bytes at any address, little-endian."""

    def generate(_context, builder, _signature, args):
        return builder.load(pointer(builder, args[0], _WORD), align=1)

    return types.uint64(types.int64), generate


@intrinsic
def load_u8(typing_context, address):
    """The byte at an address."""

    def generate(_context, builder, _signature, args):
        return builder.load(pointer(builder, args[0], _BYTE), align=1)

    return types.uint8(types.int64), generate


@intrinsic
def load_u32(typing_context, address):
    """The 4 bytes at an address that is a multiple of 4, little-endian."""

    def generate(_context, builder, _signature, args):
        return builder.zext(builder.load(pointer(builder, args[0], _HALF), align=4), _WORD)

    return types.uint64(types.int64), generate


@intrinsic
def store_u32(typing_context, address, value):
    """Writes 4 bytes at an address that is a multiple of 4, little-endian."""

    def generate(context, builder, _signature, args):
        builder.store(builder.trunc(args[1], _HALF), pointer(builder, args[0], _HALF), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), generate


@intrinsic
def store_u64(typing_context, address, value):
    """Writes 8 bytes at any address, little-endian."""

    def generate(context, builder, _signature, args):
        builder.store(args[1], pointer(builder, args[0], _WORD), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), generate


@intrinsic
def load_u64_acquire(typing_context, address):
    """The word at an address that is a multiple of 8; later loads see all that was written before it was published."""

    def generate(_context, builder, _signature, args):
        return builder.load_atomic(pointer(builder, args[0], _WORD), "acquire", 8)

    return types.uint64(types.int64), generate


@intrinsic
def store_u64_release(typing_context, address, value):
    """Publishes a word: whoever loads it with `load_u64_acquire` sees all that was written before."""

    def generate(context, builder, _signature, args):
        builder.store_atomic(args[1], pointer(builder, args[0], _WORD), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), generate


@intrinsic
def prefetch(typing_context, address):
    """Asks for the cache line at an address; no effect on results."""

    def generate(context, builder, _signature, args):
        place = pointer(builder, args[0], _BYTE)
        function = llvm_function(builder, "prefetch.p0", ir.VoidType(), [place.type, _HALF, _HALF, _HALF])
        builder.call(function, [place, _HALF(0), _HALF(3), _HALF(1)])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def trailing_zeros(typing_context, word):
    """How many zero bits a word ends with; 64 for zero."""

    def generate(_context, builder, _signature, args):
        return builder.cttz(args[0], ir.IntType(1)(0))

    return types.uint64(types.uint64), generate


@intrinsic
def bits_in(typing_context, mask):
    """How many bits are set."""
    return types.int64(types.uint64), lambda _context, builder, _signature, args: builder.ctpop(args[0])


@intrinsic
def write_places(typing_context, mask, first, address):
    """Writes where the bits of a mask are set, the lowest first, plus `first`: int64 from an address on.

    What stands behind them, up to the 64th number, may be written, too.
    """

    def generate(context, builder, _signature, args):
        mask, first, address = args
        if has_byte_compress(context):
            _compressed(builder, mask, first, address)
        else:
            _counted(builder, mask, first, address)
        return context.get_dummy_value()

    return types.void(types.uint64, types.int64, types.int64), generate


def has_byte_compress(context):
    """Whether the processor moves the bytes of 64 that a mask names to the front."""
    return _has(context, "avx512vbmi2")


def _compressed(builder, mask, first, address):
    """All numbers at once; a loop takes a wrong turn for nearly every mask, since it cannot know how often to go on."""
    arguments = [_VECTOR, _VECTOR, _LANE_BITS]
    compress = llvm_function(builder, "x86.avx512.mask.compress.v64i8", _VECTOR, arguments)
    places = ir.Constant(_VECTOR, [*range(LANES)])
    front = builder.call(compress, [places, places, builder.bitcast(mask, _LANE_BITS)])
    numbers = ir.VectorType(_WORD, 8)
    firsts = splat(builder, first, numbers)
    for part in range(0, LANES, 8):
        eight = ir.Constant(ir.VectorType(_HALF, 8), [*range(part, part + 8)])
        place = builder.zext(builder.shuffle_vector(front, front, eight), numbers)
        at = pointer(builder, builder.add(address, _WORD(8 * part)), numbers)
        builder.store(builder.add(place, firsts), at, align=8)


def _counted(builder, mask, first, address):
    """One number after the other."""
    left, at = cgutils.alloca_once_value(builder, mask), cgutils.alloca_once_value(builder, address)
    with cgutils.for_range(builder, builder.ctpop(mask)):
        bits = builder.load(left)
        place = builder.add(first, builder.cttz(bits, ir.IntType(1)(0)))
        builder.store(place, pointer(builder, builder.load(at), _WORD), align=8)
        builder.store(builder.and_(bits, builder.sub(bits, _WORD(1))), left)
        builder.store(builder.add(builder.load(at), _WORD(8)), at)


@intrinsic
def leading_zeros(typing_context, word):
    """How many zero bits a word begins with; 64 for zero."""

    def generate(_context, builder, _signature, args):
        return builder.ctlz(args[0], ir.IntType(1)(0))

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
        vector = builder.load(pointer(builder, args[0], _VECTOR), align=1)
        return builder.bitcast(builder.icmp_signed("<", vector, _splat(builder, _BYTE(0))), _WORD)

    return types.uint64(types.int64), generate


@intrinsic
def continuation_mask(typing_context, address):
    """One bit for each of 64 bytes: does it continue a code point of UTF-8, so is it 0x80 to 0xBF."""

    def generate(_context, builder, _signature, args):
        vector = builder.load(pointer(builder, args[0], _VECTOR), align=1)
        return builder.bitcast(builder.icmp_signed("<", vector, _splat(builder, _BYTE(-64))), _WORD)

    return types.uint64(types.int64), generate


@intrinsic
def equal_mask(typing_context, address, byte):
    """One bit for each of 64 bytes: is it this byte."""

    def generate(_context, builder, _signature, args):
        vector = builder.load(pointer(builder, args[0], _VECTOR), align=1)
        return builder.bitcast(builder.icmp_unsigned("==", vector, _splat(builder, args[1])), _WORD)

    return types.uint64(types.int64, types.uint8), generate


@intrinsic
def classify(typing_context, address, values, ranges, range_count, before, after):
    """Looks 64 ASCII bytes up and writes two bytes for each.

    values: address of u8[2, 128], the two results for each byte. ranges: address of u8[range_count, 4], the same by
    ranges: first byte, how many bytes, and the two results for bytes within; all others get zeros, and no two overlap.
    before, after: addresses of the two results, 64 bytes each.
    """

    def generate(context, builder, _signature, args):
        vector = builder.load(pointer(builder, args[0], _VECTOR), align=1)
        if has_byte_permute(context):
            results = _permuted(builder, vector, args[1])
        else:
            results = _added_by_range(builder, vector, args[2], args[3])
        for address, result in zip(args[4:], results, strict=True):
            builder.store(result, pointer(builder, address, _VECTOR), align=1)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), generate


def has_byte_permute(context):
    """Whether the processor looks 64 bytes up in a table of 128 at once."""
    return _has(context, "avx512vbmi")


def _has(context, feature):
    return f"+{feature}," in f"{context.codegen().magic_tuple()[2]},"


def _permuted(builder, vector, values):
    """The two results of 64 bytes, by one instruction each; ranges take some hundred."""
    look_up = llvm_function(builder, "x86.avx512.vpermi2var.qi.512", _VECTOR, [_VECTOR] * 3)
    low_before, high_before, low_after, high_after = (
        builder.load(pointer(builder, builder.add(values, _WORD(LANES * half)), _VECTOR), align=1) for half in range(4)
    )
    return [
        builder.call(look_up, [low_before, vector, high_before]),
        builder.call(look_up, [low_after, vector, high_after]),
    ]


def _added_by_range(builder, vector, ranges, count):
    """The two results of 64 bytes. Ranges do not overlap, so results are added: under a mask, that saves a blend."""
    nothing = ir.Constant(_VECTOR, [0] * LANES)
    results = [cgutils.alloca_once_value(builder, nothing) for _result in range(2)]
    with cgutils.for_range(builder, count) as loop:
        row = builder.add(ranges, builder.mul(loop.index, _WORD(4)))
        first, width, *values = (_splat(builder, _byte_at(builder, row, field)) for field in range(4))
        inside = builder.icmp_unsigned("<", builder.sub(vector, first), width)
        for result, value in zip(results, values, strict=True):
            builder.store(builder.add(builder.load(result), builder.select(inside, value, nothing)), result)
    return [builder.load(result) for result in results]


@intrinsic
def common_bits_mask(typing_context, left, right):
    """One bit for each of 64 byte pairs: do the byte at `left` and the one at `right` share a set bit."""

    def generate(_context, builder, _signature, args):
        first, second = (builder.load(pointer(builder, address, _VECTOR), align=1) for address in args)
        shared = builder.and_(first, second)
        return builder.bitcast(builder.icmp_unsigned("!=", shared, _splat(builder, _BYTE(0))), _WORD)

    return types.uint64(types.int64, types.int64), generate


@intrinsic
def common_bit_mask(typing_context, left, right, bit):
    """One bit for each of 64 byte pairs: do the byte at `left` and the one at `right` share this bit."""

    def generate(_context, builder, _signature, args):
        first, second = (builder.load(pointer(builder, address, _VECTOR), align=1) for address in args[:2])
        shared = builder.and_(builder.and_(first, second), _splat(builder, args[2]))
        return builder.bitcast(builder.icmp_unsigned("!=", shared, _splat(builder, _BYTE(0))), _WORD)

    return types.uint64(types.int64, types.int64, types.uint8), generate


def pointer(builder, address, kind):
    """Code for an address as a pointer to this type."""
    return builder.inttoptr(address, kind.as_pointer())


def splat(builder, number, kind):
    """Code for a vector of this type whose lanes all hold a number."""
    undefined, zeros = ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(_HALF, kind.count), [0] * kind.count)
    return builder.shuffle_vector(builder.insert_element(undefined, number, _HALF(0)), undefined, zeros)


def llvm_function(builder, name, result, arguments):
    """One of LLVM's own functions."""
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), f"llvm.{name}")


def _byte_at(builder, address, offset):
    return builder.load(pointer(builder, builder.add(address, _WORD(offset)), _BYTE), align=1)


def _splat(builder, byte):
    return splat(builder, byte, _VECTOR)
