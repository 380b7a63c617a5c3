#include "base/hash.h"

/* compiled with -mavx2, by which xxhash.h chooses its loops. With its own distance, in
 * bytes, numbers from memory are hashed at 0.9 of this speed. */
#define XXH_PREFETCH_DIST 2048
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t gw_hash_avx2(const void *bytes, size_t size, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, size, seed);
}
