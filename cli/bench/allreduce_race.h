/* Ways to sum one tensor over all ranks, timed against one another in one run; every result is checked. */
#ifndef GW_CLI_ALLREDUCE_RACE_H
#define GW_CLI_ALLREDUCE_RACE_H

#include <stdbool.h>

#include <gradwire/gradwire.h>

#include "cli/engine.h"

enum { GW_CLI_RACE_MAX = 16, GW_CLI_RACE_MAX_ROUNDS = 101 };

typedef struct gw_cli_racer {
    const char *name; /* of its spec, for messages */
    gw_params params; /* codec NULL: numbers as they are */
    gw_route route;
    bool engine; /* the engine's own allreduce */
    /* what rank 0 found */
    double seconds[GW_CLI_RACE_MAX_ROUNDS]; /* of the slowest rank */
    uint64_t wire_bytes;                    /* sent to others by the rank that sends most */
    uint64_t near_bytes, far_bytes;        /* the same, by link; far: by the node that sends most */
    double encode_seconds, decode_seconds; /* of the slowest rank, last round */
    double rel_error; /* of the sum, last round: its distance squared over its size squared */
} gw_cli_racer;

typedef struct gw_cli_race {
    const gw_cli_engine *engine;
    size_t elements, rounds;
    uint32_t ranks, ranks_per_node, lanes; /* lanes, piece: 0 as gw_step_config has it */
    const gw_nodes *nodes;                 /* NULL: ranks_per_node says it */
    uint64_t piece;
    bool progress; /* on stderr */
    gw_cli_racer racers[GW_CLI_RACE_MAX];
    size_t n_racers;
} gw_cli_race;

/* One rank's part, called by all. False: said. */
bool gw_cli_race_run(gw_cli_race *race, gw_comm *comm);

#endif
