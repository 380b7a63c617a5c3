/* The loops that bucket_walk.h asks for, in scalar C. */

static uint32_t max_abs(const float *x, size_t n)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t a = gw_bits(x[i]) & GW_ABS_MASK;
        largest = a > largest ? a : largest;
    }
    return largest;
}

static void encode_codes(const gw_bucket *b, const float *x, size_t n, gw_random_pair k,
                         uint64_t index, uint8_t *out)
{
    encode_by_core(b, x, n, k, index, out);
}

static void decode_codes(const gw_bucket *b, const uint8_t *codes, size_t n, gw_apply how,
                         float *out)
{
    decode_by_core(b, codes, n, how, out);
}
