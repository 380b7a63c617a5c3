/* topk's and randk's arithmetic: how many elements are sent, the shape of a list of indices, the element of a stratum.
 * docs/wire-format.md 3.6 and 3.7. */
#ifndef GW_VALUES_CORE_H
#define GW_VALUES_CORE_H

#include "base/random.h"
#include "codec/natural/natural_core.h"

#include <math.h>

/* How many of `count` elements are sent. */
GW_HD static inline uint64_t gw_kept_of(double density, uint64_t count)
{
    const uint64_t kept = (uint64_t)floor(density * (double)count + 0.5);
    const uint64_t some = kept > 1 ? kept : 1;
    return some < count ? some : count;
}

GW_HD static inline uint64_t gw_kept_bytes(int natural, uint64_t kept)
{
    return natural ? kept + (kept + GW_NATURAL_BLOCK - 1) / GW_NATURAL_BLOCK : 4 * kept;
}

/* topk's payload: values, low bits of the indices, high bits. */
typedef struct gw_index_list {
    uint64_t kept;
    uint32_t low_bits;
    uint64_t values_bytes, low_bytes, high_bits, high_bytes;
} gw_index_list;

GW_HD static inline gw_index_list gw_index_list_of(uint64_t kept, int natural, uint64_t count)
{
    gw_index_list s = {kept, 0, 0, 0, 0, 0};
    while (s.kept != 0 && s.kept << (s.low_bits + 1) <= count) {
        s.low_bits++;
    }
    s.values_bytes = gw_kept_bytes(natural, s.kept);
    s.low_bytes = (s.kept * s.low_bits + 7) / 8;
    s.high_bits = s.kept == 0 ? 0 : s.kept + ((count - 1) >> s.low_bits);
    s.high_bytes = (s.high_bits + 7) / 8;
    return s;
}

/* randk: k strata over n elements, of which the first n mod k have one element more. */
typedef struct gw_strata {
    uint64_t key, size, longer;
} gw_strata;

GW_HD static inline gw_strata gw_strata_of(uint64_t key, uint64_t kept, uint64_t count)
{
    const gw_strata s = {key, kept != 0 ? count / kept : 0, kept != 0 ? count % kept : 0};
    return s;
}

/* The element of stratum j. */
GW_HD static inline uint64_t gw_strata_element(const gw_strata *s, uint64_t j)
{
    const uint64_t begin = j * s->size + (j < s->longer ? j : s->longer);
    const uint64_t word = gw_random_word(gw_random_pair_at(s->key, j << 1), (uint32_t)j);
    return begin + (word * (s->size + (j < s->longer)) >> 32);
}

#endif
