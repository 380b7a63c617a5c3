/* The hash of payloads on their way: XXH3-64, by wider loops where the processor has them. */
#include "wire/hash.h"

#include <gradwire/frame.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t gw_payload_hash(const void *payload, size_t bytes, uint64_t seed)
{
#if defined(GW_HAVE_AVX2)
    if (gw_isa_runs_here(GW_ISA_AVX2)) {
        return gw_hash_avx2(payload, bytes, seed);
    }
#endif
    return XXH3_64bits_withSeed(payload, bytes, seed);
}
