"""XXH3-64, seed 0, default secret."""

import struct

from .numbers import M32, M64, u32, u64

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

STRIPE = 64
STRIPES_PER_BLOCK = (len(SECRET) - STRIPE) // 8  # the secret moves on 8 bytes a stripe
BLOCK = STRIPE * STRIPES_PER_BLOCK
SECRET_WORDS = struct.unpack("<24Q", SECRET)


def _fold(a, b):
    product = a * b
    return (product & M64) ^ (product >> 64)


def _rotl64(v, n):
    return (v << n | v >> (64 - n)) & M64


def _avalanche_xxh64(h):
    h ^= h >> 33
    h = h * P64_2 & M64
    h ^= h >> 29
    h = h * P64_3 & M64
    return h ^ h >> 32


def _avalanche(h):
    h ^= h >> 37
    h = h * 0x165667919E3779F9 & M64
    return h ^ h >> 32


def _mix16(data, at, secret_at):
    return _fold(u64(data, at) ^ u64(SECRET, secret_at),
                 u64(data, at + 8) ^ u64(SECRET, secret_at + 8))


def _accumulate(acc, data, at, stripes, keys):
    """Add whole stripes to the eight sums; keys[s + lane] is the secret of stripe s.

    Lane by lane instead of stripe by stripe, and reduced modulo 2^64 once at the end: the sums are
    the same and Python's integers do not wrap.
    """
    words = struct.unpack_from("<%dQ" % (8 * stripes), data, at)
    for lane in range(8):
        total = acc[lane] + sum(words[lane ^ 1::8])
        for word, key in zip(words[lane::8], keys[lane:]):
            word ^= key
            total += (word & M32) * (word >> 32)
        acc[lane] = total & M64


def _xxh3_long(data):
    n = len(data)
    acc = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]
    blocks = (n - 1) // BLOCK
    scramble_keys = SECRET_WORDS[-8:]
    for block in range(blocks):
        _accumulate(acc, data, block * BLOCK, STRIPES_PER_BLOCK, SECRET_WORDS)
        acc = [((v ^ v >> 47) ^ key) * P32_1 & M64 for v, key in zip(acc, scramble_keys)]
    stripes = (n - 1 - blocks * BLOCK) // STRIPE
    _accumulate(acc, data, blocks * BLOCK, stripes, SECRET_WORDS)
    # The last stripe always ends with the input, overlapping the one before, under its own secret.
    _accumulate(acc, data, n - STRIPE, 1, struct.unpack_from("<8Q", SECRET, len(SECRET) - STRIPE - 7))
    h = n * P64_1
    for i in range(4):
        h += _fold(acc[2 * i] ^ u64(SECRET, 11 + 16 * i), acc[2 * i + 1] ^ u64(SECRET, 19 + 16 * i))
    return _avalanche(h & M64)


def xxh3_64(data):
    """XXH3-64 of a bytes object with seed 0."""
    n = len(data)
    if n == 0:
        return _avalanche_xxh64(u64(SECRET, 56) ^ u64(SECRET, 64))
    if n <= 3:
        combined = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return _avalanche_xxh64(combined ^ u32(SECRET, 0) ^ u32(SECRET, 4))
    if n <= 8:
        h = (u32(data, n - 4) + (u32(data, 0) << 32)) ^ u64(SECRET, 8) ^ u64(SECRET, 16)
        h ^= _rotl64(h, 49) ^ _rotl64(h, 24)
        h = h * 0x9FB21C651E98DF25 & M64
        h ^= (h >> 35) + n
        h = h * 0x9FB21C651E98DF25 & M64
        return h ^ h >> 28
    if n <= 16:
        low = u64(data, 0) ^ u64(SECRET, 24) ^ u64(SECRET, 32)
        high = u64(data, n - 8) ^ u64(SECRET, 40) ^ u64(SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((n + swapped + high + _fold(low, high)) & M64)
    if n <= 128:
        h = n * P64_1
        for i in range((n - 1) // 32 + 1):  # pairs from both ends towards the middle
            h += _mix16(data, 16 * i, 32 * i) + _mix16(data, n - 16 * (i + 1), 32 * i + 16)
        return _avalanche(h & M64)
    if n <= 240:
        h = n * P64_1 + sum(_mix16(data, 16 * i, 16 * i) for i in range(8))
        h = _avalanche(h & M64)
        h += sum(_mix16(data, 16 * i, 16 * (i - 8) + 3) for i in range(8, n // 16))
        h += _mix16(data, n - 16, 136 - 17)
        return _avalanche(h & M64)
    return _xxh3_long(data)
