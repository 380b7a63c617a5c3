/* Strings of bits, least significant bit first, 64 at a time. */
#ifndef GW_BASE_BITS_H
#define GW_BASE_BITS_H

#include "base/little_endian.h"
#include "base/numeric.h"

/* Eight bytes at p; those from `end` on are zeros. */
GW_INLINE uint64_t gw_word_at(const uint8_t *p, const uint8_t *end)
{
    uint64_t word = 0;
    if (end - p >= 8) {
        memcpy(&word, p, sizeof word);
    } else if (end > p) {
        memcpy(&word, p, (size_t)(end - p));
    }
    return word;
}

/* Bits that are set. A builtin is a call where the processor is not known to have the instruction. */
GW_INLINE uint64_t gw_ones(uint64_t w)
{
    w -= w >> 1 & 0x5555555555555555u;
    w = (w & 0x3333333333333333u) + (w >> 2 & 0x3333333333333333u);
    w = (w + (w >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
    return w * 0x0101010101010101u >> 56;
}

static inline uint64_t gw_count_ones(const uint8_t *string, uint64_t bytes)
{
    uint64_t ones = 0;
    for (uint64_t i = 0; i < bytes; i += 8) {
        ones += gw_ones(gw_word_at(string + i, string + bytes));
    }
    return ones;
}

#endif
