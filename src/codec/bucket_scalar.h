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

#define encode_codes encode_by_core
#define decode_codes decode_by_core
