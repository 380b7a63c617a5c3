/* The hash of a payload, by which frames and messages are sealed. */
#include <gradwire/frame.h>

#include "base/hash.h"

uint64_t gw_payload_hash(const void *payload, size_t bytes, uint64_t seed)
{
    if (payload == NULL && bytes != 0) {
        return 0;
    }
    return gw_hash(payload, bytes, seed);
}
