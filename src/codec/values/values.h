/* The k values that topk and randk send, in order of their elements: fp32, or natural:bits=8 (blocks of 4096
 * values). Shared by both, since the payloads differ only in how they name the elements. */
#ifndef GW_VALUES_H
#define GW_VALUES_H

#include "base/little_endian.h"
#include "codec/codec_impl.h"
#include "codec/values/values_core.h"

/* Parameters that both have, in this order. */
enum { GW_VALUES_DENSITY, GW_VALUES_KIND, GW_VALUES_PARAMS };
enum { GW_VALUES_F32, GW_VALUES_NATURAL };
extern const gw_param_info gw_values_params[GW_VALUES_PARAMS];

/* How many of `count` elements are sent. */
uint64_t gw_values_kept_at(double density, uint64_t count);
uint64_t gw_values_kept(const gw_params *p, uint64_t count);
uint64_t gw_values_bytes(const gw_params *p, uint64_t kept);
gw_status gw_values_validate(const gw_params *p, const uint8_t *payload, uint64_t kept,
                             gw_why *why);

/* Encodes value[0 … kept−1] of the elements index[…]. `index` may be NULL for f32. Overwrites each value by
 * what a decoder will make of it. */
void gw_values_encode(const gw_coding *job, float *value, const uint32_t *index, uint64_t kept,
                      uint8_t *payload, gw_report *report);

/* Value j. */
GW_INLINE float gw_values_at_as(int natural, const uint8_t *payload, uint64_t j)
{
    if (!natural) {
        return gw_float(gw_get_u32(payload + 4 * j));
    }
    const uint8_t *block = payload + j / GW_NATURAL_BLOCK * (GW_NATURAL_BLOCK + 1);
    return gw_natural_value8(block[1 + j % GW_NATURAL_BLOCK], block[0]);
}

static inline float gw_values_at(const gw_params *p, const uint8_t *payload, uint64_t j)
{
    return gw_values_at_as(p->value[GW_VALUES_KIND] != GW_VALUES_F32, payload, j);
}

#endif
