/* Where ranks come from. */
#ifndef GW_CLI_ENGINE_H
#define GW_CLI_ENGINE_H

#include <stdbool.h>

#include <gradwire/comm.h>
#include <gradwire/route.h>

typedef struct gw_cli_engine {
    const char *name; /* "threads", "mpi" */
    gw_comm *comm;    /* this process's rank; NULL: ranks are threads, as many as asked for */
    gw_nodes *nodes;  /* with a comm: which ranks share a node, */
    uint32_t ranks_per_node; /* and gw_nodes_regular of it */
    /* The engine's own sum over all ranks, in place; NULL: it has none. */
    bool (*allreduce)(float *values, size_t count);
} gw_cli_engine;

#endif
