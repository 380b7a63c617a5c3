/* The random words: a pure function of stream and element index, docs/numerics.md section 2.
 * The key is mixed strongly once; the word of an element then costs two multiplications, in any
 * vector width, on any device. random_avx2.h and random_avx512.h restate gw_random_word. */
#ifndef GW_BASE_RANDOM_H
#define GW_BASE_RANDOM_H

#include "base/numeric.h"

#include <gradwire/codec.h>

#define GW_RANDOM_STEP 0x9E3779B9u
#define GW_RANDOM_MUL1 0x21F0AAADu
#define GW_RANDOM_MUL2 0xD35A2D97u

/* k0 enters before the first multiplication, k1 between the two; one pair per 2^32 elements. */
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

GW_HD static inline gw_random_pair gw_random_pair_at(uint64_t key, uint64_t index)
{
    const uint64_t k = gw_random_mix(key + (index >> 32) * 0xD1B54A32D192ED03u);
    const gw_random_pair pair = {(uint32_t)k, (uint32_t)(k >> 32)};
    return pair;
}

/* `index` is the low half of the element's index. */
GW_HD static inline uint32_t gw_random_word(gw_random_pair k, uint32_t index)
{
    uint32_t x = k.k0 + index * GW_RANDOM_STEP;
    x = (x ^ x >> 16) * GW_RANDOM_MUL1;
    return (x ^ x >> 15 ^ k.k1) * GW_RANDOM_MUL2;
}

/* The 23 bits that rounding uses. */
GW_HD static inline uint32_t gw_random_r23(gw_random_pair k, uint32_t index)
{
    return gw_random_word(k, index) >> 9;
}

#endif
