/* The parts of bucket.h that do not depend on levels or instruction set. */
#include "codec/bucket/bucket.h"

const char *const gw_bucket_norm_words[] = {"max", "l2"};

gw_status gw_bucket_check(const gw_params *p, gw_why *why)
{
    const uint32_t size = gw_param(p, GW_BUCKET_SIZE);
    if ((size & (size - 1)) != 0) {
        return gw_fail(why, GW_ERR_RANGE, "%s: bucket=%u is not a power of two", p->codec->name,
                       size);
    }
    return GW_OK;
}

size_t gw_bucket_grain(const gw_params *p)
{
    return gw_param(p, GW_BUCKET_SIZE);
}

uint64_t gw_bucket_bytes(const gw_params *p, uint64_t count)
{
    const uint64_t size = gw_param(p, GW_BUCKET_SIZE), bits = gw_param(p, GW_BUCKET_BITS);
    const uint64_t whole = count / size, rest = count % size;
    const uint64_t last = rest != 0 ? GW_BUCKET_HEADER + gw_ceil_div(rest * bits, 8) : 0;
    return whole * (GW_BUCKET_HEADER + size * bits / 8) + last;
}

gw_status gw_bucket_validate(const gw_params *p, const uint8_t *payload, size_t payload_bytes,
                             uint64_t count, gw_why *why)
{
    (void)payload_bytes; /* follows from count */
    const uint64_t size = gw_param(p, GW_BUCKET_SIZE), bits = gw_param(p, GW_BUCKET_BITS);
    const uint64_t stride = GW_BUCKET_HEADER + size * bits / 8;
    const uint8_t *at = payload;
    for (uint64_t i = 0; i < count; i += size, at += stride) {
        const uint32_t scale = gw_get_u32(at);
        if (scale >= GW_INF_BITS && scale != GW_NAN_BITS) {
            return gw_fail(why, GW_ERR_CORRUPT,
                           "%s: bucket at element %llu has a scale of pattern %08X", p->codec->name,
                           (unsigned long long)i, scale);
        }
    }
    const uint64_t used = count % size * bits % 8; /* in the last byte; 0 is all */
    if (used != 0 && payload[gw_bucket_bytes(p, count) - 1] >> used != 0) {
        return gw_fail(why, GW_ERR_CORRUPT, "%s: unused bits behind the last code are not zero",
                       p->codec->name);
    }
    return GW_OK;
}

void gw_bucket_encode(const gw_coding *job, const float *x, size_t n, uint64_t first,
                      uint8_t *payload, gw_report *report)
{
    ((const gw_bucket_kernels *)job->kernels)->encode(job, x, n, first, payload, report);
}

void gw_bucket_decode(const gw_coding *job, const uint8_t *payload, size_t n, gw_apply how,
                      float *out)
{
    ((const gw_bucket_kernels *)job->kernels)->decode(job, payload, n, how, out);
}
