#ifndef GW_WIRE_HASH_H
#define GW_WIRE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t gw_hash_avx2(const void *bytes, size_t size, uint64_t seed);

#endif
