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
