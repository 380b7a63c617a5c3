/* The one hash of the project: XXH3-64. */
#ifndef GW_BASE_HASH_H
#define GW_BASE_HASH_H

#include "base/numeric.h"

#include <stddef.h>
#include <stdint.h>

uint64_t gw_hash(const void *bytes, size_t size, uint64_t seed);
/* Of all bytes, seed 0, the eight at `at` taken as zero: where the hash itself stands. */
uint64_t gw_hash_around(const uint8_t *bytes, size_t size, size_t at);
/* gw_hash by wider loops. */
uint64_t gw_hash_avx2(const void *bytes, size_t size, uint64_t seed);
uint64_t gw_hash_avx512(const void *bytes, size_t size, uint64_t seed);

/* Adds a block's hash to those of the blocks before it. The order of blocks counts. */
static inline uint64_t gw_hash_chain(uint64_t chain, uint64_t block)
{
    return ((chain << 23 | chain >> 41) ^ block) * 0x9E3779B97F4A7C15u;
}

/* What a block adds to a sum of hashes. `place` is where the block is, `key` what it is part of. Blocks may be added in
 * any order. */
GW_HD static inline uint64_t gw_hash_at(uint64_t key, uint64_t place, uint64_t block)
{
    uint64_t h = (block ^ key) + place * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
    return h ^ h >> 32;
}

#endif
