/* Timelines written out by hand: [{"figure": "2a", "tensors": [{"compute": 8, "ops": [["net", 11]]}],
 * "makespan": 36}]. Tracks: gpu, cpu, copy, intra, nic, or net, which is the one channel of a drawing. */
#ifndef GW_CLI_TIMELINEFILE_H
#define GW_CLI_TIMELINEFILE_H

#include <stdbool.h>
#include <stddef.h>

#include <gradwire/plan.h>

#define GW_CLI_TICKS_PER_UNIT 1000000 /* durations may have six digits behind the point */

typedef struct gw_cli_timeline {
    char *figure;
    gw_timed_tensor *tensors;
    size_t n;
    double expected; /* negative: the file does not say */
} gw_cli_timeline;

typedef struct gw_cli_timelines {
    gw_cli_timeline *items;
    size_t n;
} gw_cli_timelines;

/* False: the reason is in `why`, and *out is untouched. */
bool gw_cli_timelines_parse(const void *data, size_t size, gw_cli_timelines *out, char *why,
                            size_t why_size);
void gw_cli_timelines_free(gw_cli_timelines *timelines);

#endif
