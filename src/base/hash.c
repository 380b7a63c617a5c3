/* XXH3-64, by wider loops where the processor has them. */
#include "base/hash.h"

#include <gradwire/base.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t gw_hash(const void *bytes, size_t size, uint64_t seed)
{
#if defined(GW_HAVE_AVX512)
    if (gw_isa_runs_here(GW_ISA_AVX512)) {
        return gw_hash_avx512(bytes, size, seed);
    }
#endif
#if defined(GW_HAVE_AVX2)
    if (gw_isa_runs_here(GW_ISA_AVX2)) {
        return gw_hash_avx2(bytes, size, seed);
    }
#endif
    return XXH3_64bits_withSeed(bytes, size, seed);
}

uint64_t gw_hash_around(const uint8_t *bytes, size_t size, size_t at)
{
    static const uint8_t zero[8] = {0};
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, bytes, at);
    XXH3_64bits_update(&state, zero, sizeof zero);
    XXH3_64bits_update(&state, bytes + at + sizeof zero, size - at - sizeof zero);
    return XXH3_64bits_digest(&state);
}
