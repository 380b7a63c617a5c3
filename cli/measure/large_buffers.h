/* Large buffers to measure with: on huge pages where the system grants them. */
#ifndef GW_CLI_LARGE_BUFFERS_H
#define GW_CLI_LARGE_BUFFERS_H

#include <stddef.h>

typedef struct gw_cli_huge {
    void *data;
    void *mapping;
    size_t mapped;
} gw_cli_huge;

/* Touched, so that no page fault is timed. Buffers that begin alike compete for the same banks of memory:
 * each `number` begins elsewhere. `data` is NULL if there is no memory. */
gw_cli_huge gw_cli_huge_open(size_t bytes, size_t number);
void gw_cli_huge_close(gw_cli_huge *huge); /* accepts one that is zero */

#endif
