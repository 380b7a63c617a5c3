/* Setting and adding are two loops, compiled apart. Included by each instruction set behind its decode_how. */
static void decode(const uint8_t *bits, size_t n, float scale, gw_apply how, float *out)
{
    if (how == GW_ADD) {
        decode_how(bits, n, scale, GW_ADD, out);
    } else {
        decode_how(bits, n, scale, GW_SET, out);
    }
}
