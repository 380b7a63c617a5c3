"""The random numbers."""

from .numbers import M32, M64


def _mix(z):
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 & M64
    z ^= z >> 27
    z = z * 0x94D049BB133111EB & M64
    return z ^ z >> 31


def random_key(seed, step, tensor, point, rank):
    key = 0
    for v in (seed, step, tensor, point << 32 | rank):
        key = _mix(((key ^ v) + 0x9E3779B97F4A7C15) & M64)
    return key


def word(key, t):
    """The 32-bit word number t in the stream of this key."""
    k = _mix((key + (t >> 32) * 0xD1B54A32D192ED03) & M64)
    k0, k1 = k & M32, k >> 32
    x = (k0 + (t & M32) * 0x9E3779B9) & M32
    x ^= x >> 16
    x = x * 0x21F0AAAD & M32
    x ^= x >> 15
    x ^= k1
    x = x * 0xD35A2D97 & M32
    return x ^ x >> 16


def words(key, count, first=0):
    """word(first), word(first + 1) ...: as many, and faster than one by one."""
    out = []
    t, end = first, first + count
    while t < end:
        stop = min(end, ((t >> 32) + 1) << 32)  # k stays the same up to there
        k = _mix((key + (t >> 32) * 0xD1B54A32D192ED03) & M64)
        k1 = k >> 32
        x = (k + (t & M32) * 0x9E3779B9) & M32
        for _ in range(t, stop):
            y = (x ^ x >> 16) * 0x21F0AAAD & M32
            y = (y ^ y >> 15 ^ k1) * 0xD35A2D97 & M32
            out.append(y ^ y >> 16)
            x = x + 0x9E3779B9 & M32
        t = stop
    return out


def r23(key, i):
    """The 23 random bits of element i."""
    x = word(key, (i >> 5) * 16 + i % 16)
    if i % 32 >= 16:
        x = x >> 16 | (x & 0xFFFF) << 16
    return x >> 9


class Stream:
    """The random numbers of one encoding."""

    def __init__(self, seed=0, step=0, tensor=0, point=0, rank=0):
        self.key = random_key(seed, step, tensor, point, rank)

    def r(self, i):
        return r23(self.key, i)
