/* The least that a codec is: numbers in two bytes each, the upper half of their bits. */
#include "codec/codec_impl.h"

#include "base/little_endian.h"

static const gw_param_info params[] = {
    {"keep", "bytes of each number that are kept", 2, 2, 2, NULL, 0},
};

static uint32_t flags(const gw_params *p)
{
    (void)p;
    return GW_CODEC_FIXED_SIZE;
}

static size_t grain(const gw_params *p)
{
    (void)p;
    return 64;
}

static uint64_t bytes(const gw_params *p, uint64_t count)
{
    return count * gw_param(p, 0);
}

static void encode(const gw_coding *job, const float *x, size_t n, uint64_t first, uint8_t *payload,
                   gw_report *report)
{
    (void)job;
    (void)first;
    for (size_t i = 0; i < n; i++) {
        gw_put_u16(payload + 2 * i, (uint16_t)(gw_bits(x[i]) >> 16));
    }
    report->non_finite += gw_count_non_finite(x, n);
}

static void decode(const gw_coding *job, const uint8_t *payload, size_t n, gw_apply how, float *out)
{
    (void)job;
    for (size_t i = 0; i < n; i++) {
        const float x = gw_float((uint32_t)gw_get_u16(payload + 2 * i) << 16);
        out[i] = how == GW_ADD ? out[i] + x : x;
    }
}

extern const gw_codec gw_codec_toy;
const gw_codec gw_codec_toy = {
    .name = "toy",
    .doc = "the upper half of each number",
    .params = params,
    .n_params = 1,
    .flags = flags,
    .grain = grain,
    .bytes = bytes,
    .encode = encode,
    .decode = decode,
    .kernels = {NULL, params}, /* not NULL: scalar code is there */
};
