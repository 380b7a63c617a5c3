/* `gradwire profile`, and under mpirun `gradwire-mpi profile`: what this machine's codecs and links take. */
#ifndef GW_CLI_PROFILE_H
#define GW_CLI_PROFILE_H

#include "cli/engine.h"
#include "cli/measure/meter.h"

#include <gradwire/cuda.h>

#include <jansson.h>

int gw_cli_profile_on(const gw_cli_engine *engine, int argc, char **argv);

/* The parts; called by all ranks, each of which gets the same numbers. */

/* Numbers of the least tensor that is measured; each next one is four times as large. */
enum { GW_CLI_PROFILE_LEAST = 256 };

/* Adds gradwire.cluster/1 entries to `codecs`, of tensors of 256 to `most` numbers; rate of a memory copy, bytes a second, unless it is NULL. */
gw_status gw_cli_profile_codecs(gw_cli_meter *meter, const char *const *specs, size_t n_specs,
                                size_t most, json_t *codecs, double *copy_rate, gw_why *why);
/* One of their points. */
json_t *gw_cli_profile_point(size_t n, const gw_cli_measured *encode,
                             const gw_cli_measured *decode);
/* Whether a rank can code beside its backward pass: 1, or 0 where cores are as many as ranks or fewer. */
gw_status gw_cli_profile_workers(gw_cli_meter *meter, uint32_t *workers, gw_why *why);

/* How much longer a short exchange takes while every rank computes, seconds. */
gw_status gw_cli_profile_busy(gw_comm *comm, double *longer, gw_why *why);

typedef struct gw_cli_link_fit {
    double latency, rate, spread; /* seconds, bytes a second; rate 0: no such link */
    double cpu_share;             /* of the cores, taken while the link is busy */
    double busy;                  /* seconds more for a short operation while ranks compute */
} gw_cli_link_fit;
/* Adds entries to `collectives`, and fits the links. */
gw_status gw_cli_profile_links(gw_cli_meter *meter, uint32_t ranks_per_node, json_t *collectives,
                               gw_cli_link_fit *intra, gw_cli_link_fit *inter, gw_why *why);

/* The same entries of a CUDA device, and copies from pinned memory to it (0) and back (1), each waited for. */
gw_status gw_cli_profile_cuda(gw_cli_meter *meter, gw_cuda_place at, const char *const *specs,
                              size_t n_specs, size_t most, json_t *codecs,
                              gw_cli_link_fit copies[2], gw_why *why);

/* What one machine cannot measure of a cluster of GPUs. */
typedef struct gw_cli_said {
    const char *cluster;            /* a file that has it all; NULL: none */
    uint32_t nodes, ranks_per_node; /* 0: the file's, or 1 */
    double link, latency; /* of a node, bytes a second; seconds; 0: the file's, or assumed */
} gw_cli_said;
/* Sets nodes, ranks_per_node, intra and inter, and adds to `sources` where they are from. False after a message on stderr. */
bool gw_cli_profile_said(const gw_cli_said *said, json_t *cluster, json_t *sources);

#endif
