/* The random numbers: a pure function of stream and element index, docs/numerics.md section 2. The key
 * is mixed strongly once; a word then costs two multiplications and serves two elements, sixteen
 * apart, so that any vector width and a GPU draw the same without moving data between lanes.
 * random_avx2.h, random_avx512.h and random_neon.h restate gw_random_r23. */
#ifndef GW_BASE_RANDOM_H
#define GW_BASE_RANDOM_H

#include "base/numeric.h"

#include <gradwire/base.h>

#define GW_RANDOM_STEP 0x9E3779B9u
#define GW_RANDOM_MUL1 0x21F0AAADu
#define GW_RANDOM_MUL2 0xD35A2D97u

/* k0 enters before the first multiplication, k1 between the two; one pair per 2^32 words, which are
 * 2^33 elements. */
typedef struct gw_random_pair {
    uint32_t k0, k1;
} gw_random_pair;

GW_HD static inline uint64_t gw_random_mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

GW_HD static inline uint64_t gw_random_key(const gw_stream *s)
{
    const uint64_t fields[4] = {s->seed, s->step, s->tensor, (uint64_t)s->point << 32 | s->rank};
    uint64_t key = 0;
    for (int i = 0; i < 4; i++) {
        key = gw_random_mix((key ^ fields[i]) + 0x9E3779B97F4A7C15u);
    }
    return key;
}

/* The pair that serves element `index` and its neighbours up to the next multiple of 2^33. */
GW_HD static inline gw_random_pair gw_random_pair_at(uint64_t key, uint64_t index)
{
    const uint64_t k = gw_random_mix(key + (index >> 33) * 0xD1B54A32D192ED03u);
    const gw_random_pair pair = {(uint32_t)k, (uint32_t)(k >> 32)};
    return pair;
}

/* The number, modulo 2^32, of the word that serves an element: elements j and j + 16 of every 32
 * share word j of their sixteen. */
GW_HD static inline uint32_t gw_random_number(uint64_t index)
{
    return (uint32_t)(index >> 5 << 4 | (index & 15));
}

GW_HD static inline uint32_t gw_random_word(gw_random_pair k, uint32_t number)
{
    uint32_t x = k.k0 + number * GW_RANDOM_STEP;
    x = (x ^ x >> 16) * GW_RANDOM_MUL1;
    x = (x ^ x >> 15 ^ k.k1) * GW_RANDOM_MUL2;
    return x ^ x >> 16;
}

/* The 23 bits with which element `index` is rounded: from the top of its word, or from its middle for
 * the second of the two. */
GW_HD static inline uint32_t gw_random_r23(gw_random_pair k, uint64_t index)
{
    const uint32_t word = gw_random_word(k, gw_random_number(index));
    return ((index & 16) == 0 ? word : word >> 16 | word << 16) >> 9;
}

#endif
