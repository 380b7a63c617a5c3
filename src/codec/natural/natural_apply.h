/* Setting and adding are two loops, compiled apart. Included by each instruction set behind its any_non_finite, decode9_how
 * and decode8_how. */
static void decode9(const uint8_t *exponents, const uint8_t *signs, size_t n, gw_apply how,
                    float *out)
{
    if (how == GW_ADD) {
        decode9_how(exponents, signs, n, GW_ADD, out);
    } else {
        decode9_how(exponents, signs, n, GW_SET, out);
    }
}

static void decode8(const uint8_t *codes, size_t n, uint32_t base, gw_apply how, float *out)
{
    if (any_non_finite(codes, n)) {
        gw_natural_scalar.decode8(codes, n, base, how, out);
    } else if (how == GW_ADD) {
        decode8_how(codes, n, base, GW_ADD, out);
    } else {
        decode8_how(codes, n, base, GW_SET, out);
    }
}
