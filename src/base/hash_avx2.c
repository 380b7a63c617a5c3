#include "base/hash.h"

/* compiled with -mavx2, by which xxhash.h chooses its loops */
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t gw_hash_avx2(const void *bytes, size_t size, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, size, seed);
}
