/* The generator; see generate.h. Integers, and three exactly specified multiplications in double:
 * no libm, so the bits are the same everywhere. */
#include "cli/measure/generate.h"

/* SplitMix64's output function. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

void gw_cli_generate(uint64_t seed, float *out, size_t count)
{
    const uint64_t key = mix(seed + UINT64_C(0x9E3779B97F4A7C15));
    for (size_t i = 0; i < count; i++) {
        /* The sum of twelve 16-bit uniforms has mean 12 * 65535 / 2 and a deviation of 65536. */
        int64_t sum = -393210;
        uint64_t word = 0;
        for (uint64_t j = 0; j < 4; j++) {
            word = mix(key + (4 * (uint64_t)i + j) * UINT64_C(0x9E3779B97F4A7C15));
            for (int k = 0; j < 3 && k < 64; k += 16) {
                sum += (int64_t)(word >> k & 0xFFFF);
            }
        }
        uint64_t kind = word >> 60;
        double scale = kind < 12 ? 1.0 : kind < 15 ? 4.0 : 32.0;
        out[i] = (float)((double)sum / 65536 * scale * 1e-3);
    }
}
