/* Clusters: what links, devices and codecs cost. Reads gradwire.cluster/1. docs/plan.md, "Files". */
#ifndef GW_FILES_CLUSTER_FILE_H
#define GW_FILES_CLUSTER_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include <gradwire/plan.h>

/* `cluster` points into the other members. */
typedef struct gw_cluster_file {
    gw_cluster cluster;
    char *name;
    gw_codec_cost *codecs;
    gw_collective_cost *collectives;
} gw_cluster_file;

/* False: the reason is in `why`, and *out is untouched. */
bool gw_cluster_file_parse(const void *data, size_t size, gw_cluster_file *out, char *why,
                           size_t why_size);
void gw_cluster_file_free(gw_cluster_file *cluster);

/* Adds a codec's cost; false: no memory. A launch, then so many bytes of fp32 a second. */
bool gw_cluster_file_add(gw_cluster_file *cluster, const gw_params *params, gw_device device,
                         double launch_us, double encode_gbps, double decode_gbps);

#endif
