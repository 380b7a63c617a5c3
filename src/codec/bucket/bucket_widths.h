/* Vector loops by width: each is compiled with every shift a constant. */

#define EACH_WIDTH(CASE) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8)

static void encode_codes(const gw_bucket *b, const float *x, size_t n, gw_random_pair k,
                         uint64_t index, uint8_t *out)
{
    if (b->nearest) {
        switch (b->bits) {
#define CASE(bits)                                                                                 \
    case bits:                                                                                     \
        encode_codes_bits(b, x, n, k, index, out, bits, 1);                                        \
        break;
            EACH_WIDTH(CASE)
#undef CASE
        }
    } else {
        switch (b->bits) {
#define CASE(bits)                                                                                 \
    case bits:                                                                                     \
        encode_codes_bits(b, x, n, k, index, out, bits, 0);                                        \
        break;
            EACH_WIDTH(CASE)
#undef CASE
        }
    }
}

static void decode_codes(const gw_bucket *b, const uint8_t *codes, size_t n, gw_apply how,
                         float *out)
{
    switch (b->bits) {
#define CASE(bits)                                                                                 \
    case bits:                                                                                     \
        if (how == GW_ADD) {                                                                       \
            decode_codes_bits(b, codes, n, GW_ADD, out, bits);                                     \
        } else {                                                                                   \
            decode_codes_bits(b, codes, n, GW_SET, out, bits);                                     \
        }                                                                                          \
        break;
        EACH_WIDTH(CASE)
#undef CASE
    }
}
