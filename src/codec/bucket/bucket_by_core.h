/* One bucket by the core, one number at a time: the scalar variant, and in every variant the tails and
 * the buckets whose scale is at the edge of fp32. The including file defines NAME(suffix) as the
 * core's function: gw_<codec>_level, gw_<codec>_fraction. */

/* Codes by the core, one at a time: tails, and buckets whose scale is at the edge of fp32. */
static inline void encode_by_core(const gw_bucket *b, const float *x, size_t n, gw_random_pair k,
                                  uint64_t index, uint8_t *out)
{
    gw_code_string string = {0, 0};
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = gw_bits(x[i]);
        const float size = gw_float(bits & GW_ABS_MASK) * b->pre;
        const uint32_t r = gw_bucket_random(b, k, index + i);
        const uint32_t level = NAME(level)(size, b->factor, b->levels, r);
        const uint32_t sign = level != 0 ? bits >> 31 : 0;
        out = gw_code_put(&string, out, b->bits, sign << (b->bits - 1) | level);
    }
    gw_code_flush(&string, out);
}

static inline void decode_by_core(const gw_bucket *b, const uint8_t *codes, size_t n, gw_apply how,
                                  float *out)
{
    gw_code_string string = {0, 0};
    for (size_t i = 0; i < n; i++) {
        const uint32_t code = gw_code_take(&string, &codes, b->bits);
        const float size = b->scale * NAME(fraction)(code & b->levels, b->levels);
        const float v = gw_float(gw_bits(size) | code >> (b->bits - 1) << 31);
        out[i] = how == GW_ADD ? out[i] + v : v;
    }
}
