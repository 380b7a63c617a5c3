/* Costs to assume where nobody measured: processors as measured on one core of ours, GPUs as estimated. */
#ifndef GW_CLI_ASSUMED_COSTS_H
#define GW_CLI_ASSUMED_COSTS_H

#include <stdbool.h>

#include "files/cluster_file.h"

/* A cluster of so many nodes on a link of so many bytes a second, with or without GPUs, and no codecs. */
bool gw_cli_assume_cluster(uint32_t nodes, uint32_t ranks_per_node, double rate, bool on_gpu,
                           gw_cluster_file *out);
/* Adds what a codec costs on the devices for which the cluster says nothing; *added tells. False: no memory. */
bool gw_cli_assume_codec(gw_cluster_file *cluster, const gw_params *params, bool *added);

#endif
