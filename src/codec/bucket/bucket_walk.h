/* The walk over buckets, written once for both codecs and every instruction set. The including file
 * has included bucket_by_core.h and defines
 *   FACTOR(scale, levels)                  the core's h
 *   NEAREST(params)                        1 where r is the middle
 *   max_abs(x, n)                          the largest |bits|
 *   encode_codes(b, x, n, k, index, out)   codes of one bucket whose b->pre is 1
 *   decode_codes(b, codes, n, how, out)
 * Afterwards it has `encode` and `decode` for its gw_bucket_kernels. */

/* A bucket that is all zero or has a non-finite number: no codes to speak of. */
static void encode_special(const float *x, size_t n, uint32_t top, uint8_t *payload,
                           size_t codes_bytes, gw_report *report)
{
    gw_put_u32(payload, top == 0 ? 0 : GW_NAN_BITS);
    memset(payload + GW_BUCKET_HEADER, 0, codes_bytes);
    for (size_t i = 0; top != 0 && i < n; i++) {
        report->non_finite += (gw_bits(x[i]) & GW_ABS_MASK) >= GW_INF_BITS;
    }
}

static void encode(const gw_coding *job, const float *x, size_t n, uint64_t first, uint8_t *payload,
                   gw_report *report)
{
    const gw_params *p = job->params;
    const size_t size = gw_param(p, GW_BUCKET_SIZE);
    gw_bucket b = {.bits = gw_param(p, GW_BUCKET_BITS), .nearest = NEAREST(p)};
    b.levels = (1u << (b.bits - 1)) - 1;
    const int euclidean = gw_param(p, GW_BUCKET_NORM) == 1;
    const float most = gw_bucket_most(job->dtype);
    gw_random_pair k = gw_random_pair_at(job->random_key, first);
    uint32_t next_top = max_abs(x, n < size ? n : size);
    for (size_t at = 0; at < n; at += size) {
        const size_t left = n - at, m = left < size ? left : size;
        const size_t after = left - m < size ? left - m : size;
        const size_t codes_bytes = (m * b.bits + 7) / 8;
        const uint64_t index = first + at;
        const uint32_t top = next_top;
        if (index << 31 == 0) { /* a multiple of 2^33 */
            k = gw_random_pair_at(job->random_key, index);
        }
        if (top < GW_INF_BITS && top != 0) {
            b.scale = gw_bucket_scale(x + at, m, top, euclidean, most);
            b.pre = gw_bucket_pre(b.scale);
            b.factor = FACTOR(b.scale * b.pre, b.levels);
        }
        /* The next bucket's maximum fills the time in which this one's factor is divided out. */
        next_top = max_abs(x + at + m, after);
        if (top >= GW_INF_BITS || top == 0) {
            encode_special(x + at, m, top, payload, codes_bytes, report);
        } else {
            gw_put_u32(payload, gw_bits(b.scale));
            (b.pre == 1.0f ? encode_codes : encode_by_core)(&b, x + at, m, k, index,
                                                            payload + GW_BUCKET_HEADER);
        }
        payload += GW_BUCKET_HEADER + codes_bytes;
    }
}

static void decode(const gw_coding *job, const uint8_t *payload, size_t n, gw_apply how, float *out)
{
    const gw_params *p = job->params;
    const size_t size = gw_param(p, GW_BUCKET_SIZE);
    gw_bucket b = {.bits = gw_param(p, GW_BUCKET_BITS)};
    b.levels = (1u << (b.bits - 1)) - 1;
    for (size_t at = 0; at < n; at += size) {
        const size_t m = n - at < size ? n - at : size;
        b.scale = gw_float(gw_get_u32(payload));
        decode_codes(&b, payload + GW_BUCKET_HEADER, m, how, out + at);
        payload += GW_BUCKET_HEADER + (m * b.bits + 7) / 8;
    }
}
