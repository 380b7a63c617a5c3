/* Clusters: what links, devices and codecs cost. Reads gradwire.cluster/1. docs/plan.md, "Files". */
#ifndef GW_CLI_CLUSTERFILE_H
#define GW_CLI_CLUSTERFILE_H

#include <stdbool.h>
#include <stddef.h>

#include <gradwire/plan.h>

/* `cluster` points into the other members. */
typedef struct gw_cli_cluster {
    gw_cluster cluster;
    char *name;
    gw_codec_cost *codecs;
    gw_collective_cost *collectives;
} gw_cli_cluster;

/* False: the reason is in `why`, and *out is untouched. */
bool gw_cli_cluster_parse(const void *data, size_t size, gw_cli_cluster *out, char *why,
                          size_t why_size);
void gw_cli_cluster_free(gw_cli_cluster *cluster);

/* Adds a codec's cost; false: no memory. A launch, then so many bytes of fp32 a second. */
bool gw_cli_cluster_add(gw_cli_cluster *cluster, const gw_params *params, gw_device device,
                        double launch_us, double encode_gbps, double decode_gbps);

#endif
