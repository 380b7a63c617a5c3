/* topk's list of ascending indices (Elias–Fano, docs/wire-format.md 3.6), read and written by 64-bit words. Entry
 * j with index i is the set bit (i >> low_bits) + j of the high bits, and the low_bits at bit j · low_bits of the
 * low bits, which stand directly before the high bits. */
#ifndef GW_TOPK_LIST_H
#define GW_TOPK_LIST_H

#include "base/bits.h"
#include "codec/values/values_core.h"

/* Where a reading stands. `word` has the high bits at `at` … `at` + 63 that were not read yet. The low bits of
 * entries below `inside` can be read as a word, which does not reach beyond the end. */
typedef struct gw_list_reader {
    const uint8_t *low, *high, *end;
    uint64_t word, at, entry, mask, inside;
    uint32_t low_bits;
} gw_list_reader;

GW_INLINE gw_list_reader gw_list_begin(const gw_index_list *s, const uint8_t *payload)
{
    const uint8_t *low = payload + s->values_bytes, *high = low + s->low_bytes;
    const uint64_t bytes = s->low_bytes + s->high_bytes;
    return (gw_list_reader){.low = low,
                            .high = high,
                            .end = high + s->high_bytes,
                            .word = gw_word_at(high, high + s->high_bytes),
                            .mask = ((uint64_t)1 << s->low_bits) - 1,
                            .inside = bytes < 8          ? 0
                                      : s->low_bits == 0 ? s->kept
                                                         : 8 * (bytes - 7) / s->low_bits,
                            .low_bits = s->low_bits};
}

/* Goes to the next word that has a bit: there is one. */
GW_INLINE void gw_list_turn(gw_list_reader *r)
{
    while (r->word == 0) {
        r->at += 64;
        r->word = gw_word_at(r->high + r->at / 8, r->end);
    }
}

/* Whether all entries of the word, 64 at most, are inside. */
GW_INLINE int gw_list_inside(const gw_list_reader *r)
{
    return r->entry + 64 <= r->inside;
}

/* The index of the entry it stands at: word is not 0. */
GW_INLINE uint64_t gw_list_index(const gw_list_reader *r, int inside)
{
    const uint64_t high = r->at + (uint64_t)__builtin_ctzll(r->word) - r->entry;
    const uint64_t bit = r->entry * r->low_bits;
    uint64_t low;
    if (inside) {
        memcpy(&low, r->low + bit / 8, sizeof low);
    } else {
        low = gw_word_at(r->low + bit / 8, r->end);
    }
    return high << r->low_bits | (low >> bit % 8 & r->mask);
}

GW_INLINE void gw_list_next(gw_list_reader *r)
{
    r->word &= r->word - 1;
    r->entry++;
}

/* Passes the entries below `to`: by words as long as these have no others, then one by one. */
GW_INLINE void gw_list_skip(gw_list_reader *r, uint64_t kept, uint64_t to)
{
    while (r->entry < kept) {
        const uint64_t ones = gw_ones(r->word), zeros = r->at + 64 - (r->entry + ones);
        if (zeros >= to >> r->low_bits) { /* one more than the high bits of all before */
            break;
        }
        r->entry += ones;
        r->at += 64;
        r->word = gw_word_at(r->high + r->at / 8, r->end);
    }
    while (r->entry < kept) {
        gw_list_turn(r);
        if (gw_list_index(r, gw_list_inside(r)) >= to) {
            break;
        }
        gw_list_next(r);
    }
}

static inline void gw_list_write(const gw_index_list *s, const uint32_t *index, uint8_t *low,
                                 uint8_t *high)
{
    const uint64_t mask = ((uint64_t)1 << s->low_bits) - 1;
    uint64_t held = 0, word = 0, at = 0; /* low bits; high bits, of the word at bit `at` */
    uint32_t n_held = 0;                 /* bits, below 64 */
    memset(high, 0, s->high_bytes);
    for (uint64_t j = 0; j < s->kept; j++) {
        const uint64_t bit = ((uint64_t)index[j] >> s->low_bits) + j, code = index[j] & mask;
        if (bit - at >= 64) {
            memcpy(high + at / 8, &word, sizeof word);
            word = 0;
            at = bit / 64 * 64;
        }
        word |= (uint64_t)1 << bit % 64;
        held |= code << n_held;
        n_held += s->low_bits;
        if (n_held >= 64) {
            memcpy(low, &held, sizeof held);
            low += sizeof held;
            n_held -= 64;
            held = n_held != 0 ? code >> (s->low_bits - n_held) : 0;
        }
    }
    memcpy(low, &held, (n_held + 7) / 8);
    memcpy(high + at / 8, &word, s->high_bytes - at / 8 < 8 ? s->high_bytes - at / 8 : 8);
}

#endif
