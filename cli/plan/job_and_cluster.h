/* What `plan` and `advise` work on: a job file and a cluster, from a file or from --nodes and --link. */
#ifndef GW_CLI_JOB_AND_CLUSTER_H
#define GW_CLI_JOB_AND_CLUSTER_H

#include <stdbool.h>

#include "cli/options.h"
#include "files/cluster_file.h"
#include "files/job_file.h"

/* The options both have; put GW_CLI_SCENE_OPTIONS(values, scene) in the table. */
typedef struct gw_cli_scene_args {
    const char *cluster;
    uint32_t nodes, ranks_per_node; /* 0: the file's; else 1 and 1 */
    double link;                    /* bytes a second; 0: the file's */
    gw_cli_texts specs;
} gw_cli_scene_args;

#define GW_CLI_SCENE_OPTIONS(type, member)                                                         \
    {"cluster",   0,                                                                               \
     GW_CLI_TEXT, offsetof(type, member.cluster),                                                  \
     "FILE",      "what links, devices and codecs cost (examples/clusters)"},                      \
        {"codec",      'c',                                                                        \
         GW_CLI_TEXTS, offsetof(type, member.specs),                                               \
         "SPEC",       "a codec and its settings to choose from; again for more"},                 \
        {"nodes", 0, GW_CLI_U32, offsetof(type, member.nodes), "N", "so many nodes"},              \
        {"ranks-per-node", 0, GW_CLI_U32, offsetof(type, member.ranks_per_node), "K",              \
         "ranks of a node"},                                                                       \
    {                                                                                              \
        "link", 0, GW_CLI_RATE, offsetof(type, member.link), "RATE",                               \
            "rate of a node's link to the others, as 10gbit"                                       \
    }
enum { GW_CLI_N_SCENE_OPTIONS = 5 };

typedef struct gw_cli_scene {
    gw_job_file job;
    gw_cluster_file cluster;
    gw_params *specs;
    size_t n_specs;
    uint64_t job_hash, cluster_hash; /* FNV-1a of the files; 0 without one */
} gw_cli_scene;

/* `wanted` has a cluster, or nodes and link. Says what went wrong and returns false. Costs that the cluster file lacks are assumed, and a note says so. */
bool gw_cli_scene_load(const gw_cli_args *args, const gw_cli_scene_args *wanted, gw_cli_scene *out);
void gw_cli_scene_free(gw_cli_scene *scene);

#endif
