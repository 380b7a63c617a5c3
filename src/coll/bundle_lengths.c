/* Lengths of payloads whose size depends on the numbers: sent before the payloads, each with its seal. */
#include "coll/exchange.h"

void gw_bundle_put_lengths(gw_exchange *x, int holds)
{
    const uint32_t own = holds ? x->bundle.pieces * x->bundle.payloads : 0;
    for (uint32_t e = 0; e < own; e++) {
        uint64_t *length = x->lengths + GW_LENGTH * (size_t)e;
        length[0] = x->bundle.size[e];
        length[1] = gw_bundle_seal_of(x, (const uint8_t *)length, sizeof *length);
    }
}

gw_status gw_bundle_take_length(const gw_exchange *x, uint32_t member, size_t entry, size_t *bytes,
                                gw_why *why)
{
    const uint64_t *length = x->lengths + GW_LENGTH * (x->bundle_entries + entry);
    const uint64_t size = length[0];
    const size_t most = *bytes;
    if (!x->sealed_below &&
        length[1] != gw_bundle_seal_of(x, (const uint8_t *)length, sizeof *length)) {
        return gw_fail(why, GW_ERR_CHECKSUM,
                       "the length of a payload of member %u was changed on its way", member);
    }
    if (size > most || (most != 0 && size < x->seal_bytes)) {
        return gw_fail(why, GW_ERR_CORRUPT,
                       "member %u says it sends a payload of %llu bytes; at most %zu", member,
                       (unsigned long long)size, most);
    }
    *bytes = (size_t)size;
    return GW_OK;
}
