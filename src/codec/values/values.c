/* The values of values.h. */
#include "codec/values/values.h"

static const char *const kind_words[] = {"f32", "natural"};
const gw_param_info gw_values_params[GW_VALUES_PARAMS] = {
    {"density", "share of the elements that is sent", 1e-6, 1, 0.01, NULL, 1},
    {"values", "f32, or natural: powers of two in one byte", 0, 1, 0, kind_words, 0},
};

uint64_t gw_values_kept_at(double density, uint64_t count)
{
    const uint32_t caller = gw_fp_enter(); /* asked for outside of encode and decode, too */
    const uint64_t kept = gw_kept_of(density, count);
    gw_fp_leave(caller);
    return kept;
}

uint64_t gw_values_kept(const gw_params *p, uint64_t count)
{
    return gw_values_kept_at(p->value[GW_VALUES_DENSITY], count);
}

uint64_t gw_values_bytes(const gw_params *p, uint64_t kept)
{
    return gw_kept_bytes(gw_param(p, GW_VALUES_KIND) == GW_VALUES_NATURAL, kept);
}

gw_status gw_values_validate(const gw_params *p, const uint8_t *payload, uint64_t kept, gw_why *why)
{
    for (uint64_t j = 0; gw_param(p, GW_VALUES_KIND) == GW_VALUES_NATURAL && j < kept;
         j += GW_NATURAL_BLOCK) {
        const uint32_t base = payload[j + j / GW_NATURAL_BLOCK];
        if (base < 1 || base > 128) {
            return gw_fail(why, GW_ERR_CORRUPT,
                           "%s: values from %llu on have base %u, not 1 to 128", p->codec->name,
                           (unsigned long long)j, base);
        }
    }
    return GW_OK;
}

/* One block of at most 4096 values as base and codes. */
static void encode_natural(const gw_coding *job, float *value, const uint32_t *index, size_t n,
                           uint8_t *payload, gw_report *report)
{
    const uint32_t top = gw_natural_top(job->dtype == GW_F16);
    const gw_random_pair k = gw_random_pair_at(job->random_key, 0); /* indices are below 2^32 */
    uint32_t largest = 0;
    for (size_t j = 0; j < n; j++) {
        const uint32_t bits = gw_bits(value[j]), r = gw_random_r23(k, index[j]);
        const uint32_t e = gw_natural_exponent(bits, r, top);
        if (e != GW_NATURAL_NON_FINITE) {
            report->overflowed += ((bits & GW_ABS_MASK) + r) >> GW_MANT_BITS > top;
            largest = e > largest ? e : largest;
        }
    }
    const uint32_t base = gw_natural_base(largest);
    payload[0] = (uint8_t)base;
    for (size_t j = 0; j < n; j++) {
        payload[1 + j] = gw_natural_code(gw_bits(value[j]), gw_random_r23(k, index[j]), top, base);
        value[j] = gw_natural_value8(payload[1 + j], base);
    }
}

void gw_values_encode(const gw_coding *job, float *value, const uint32_t *index, uint64_t kept,
                      uint8_t *payload, gw_report *report)
{
    if (gw_param(job->params, GW_VALUES_KIND) == GW_VALUES_F32) {
        for (uint64_t j = 0; j < kept; j++) {
            gw_put_u32(payload + 4 * j, gw_bits(value[j]));
        }
        return;
    }
    for (uint64_t j = 0; j < kept; j += GW_NATURAL_BLOCK) {
        const size_t n = kept - j < GW_NATURAL_BLOCK ? (size_t)(kept - j) : GW_NATURAL_BLOCK;
        encode_natural(job, value + j, index + j, n, payload + j + j / GW_NATURAL_BLOCK, report);
    }
}
