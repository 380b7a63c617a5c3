#include "base/hash.h"

/* compiled with -mavx512f and more, by which xxhash.h chooses its loops. With its own distance, in
 * bytes, numbers from memory are hashed at 0.8 of this speed. */
#define XXH_PREFETCH_DIST 2048
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t gw_hash_avx512(const void *bytes, size_t size, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, size, seed);
}
