/* Ranges cut into pieces, and the bytes of pieces, all by formula: no loop over ranks. */
#ifndef GW_ROUTE_CUT_H
#define GW_ROUTE_CUT_H

#include <gradwire/route.h>

/* How numbers become bytes. */
typedef struct gw_sizes {
    const gw_params *params; /* NULL: numbers of `width` bytes */
    uint64_t grain;
    uint32_t width;
} gw_sizes;

/* Bytes of pieces from … to - 1 of `count` elements cut into `pieces`, each cut further into `inner`
 * pieces that are payloads of their own. */
uint64_t gw_cut_bytes(const gw_sizes *sizes, uint64_t count, uint32_t pieces, uint32_t from,
                      uint32_t to, uint32_t inner);

#endif
