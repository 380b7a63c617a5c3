/* Nodes, ranks and links that a single machine does not show: from a cluster file, from options, or assumed as `advise` does; and
 * the file says which. */
#include <stdio.h>
#include <string.h>

#include "cli/files/files.h"
#include "cli/plan/assumed_costs.h"
#include "cli/profile/profile.h"
#include "cli/say.h"
#include "files/cluster_file.h"

static void add_source(json_t *sources, const char *what, const char *how)
{
    (void)json_array_append_new(sources, json_pack("{s:s, s:s}", "what", what, "how", how));
}

static json_t *link_json(const gw_cluster_link *l)
{
    return json_pack("{s:f, s:f, s:f}", "latency_us", 1e6 * l->latency, "gbit_per_s",
                     8e-9 * l->rate, "message_us", 1e6 * l->message);
}

/* ---- a file ---- */

/* Its words on nodes and links come along. */
static void take_sources(const json_t *file, json_t *sources)
{
    static const char *const BEGINNINGS[] = {"nodes", "intra", "inter", "collectives"};
    size_t i;
    json_t *source;
    json_array_foreach(json_object_get(file, "sources"), i, source)
    {
        const char *what = json_string_value(json_object_get(source, "what"));
        for (size_t k = 0; what && k < sizeof BEGINNINGS / sizeof BEGINNINGS[0]; k++) {
            if (strncmp(what, BEGINNINGS[k], strlen(BEGINNINGS[k])) == 0) {
                (void)json_array_append(sources, source);
            }
        }
    }
}

static bool take_file(const char *path, json_t *cluster, json_t *sources)
{
    static const char *const KEYS[] = {"name",  "nodes", "ranks_per_node",
                                       "intra", "inter", "collectives"};
    gw_file_bytes bytes;
    char why[256] = "", text[320];
    gw_cluster_file read;
    if (!gw_cli_file_read(path, &bytes)) {
        return false;
    }
    const bool fine = gw_cluster_file_parse(bytes.data, bytes.size, &read, why, sizeof why);
    json_t *file = fine ? json_loadb((const char *)bytes.data, bytes.size, 0, NULL) : NULL;
    gw_cli_bytes_free(&bytes);
    if (!fine) {
        gw_cli_error("%s: %s", path, why);
        return false;
    }
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++) {
        json_t *value = json_object_get(file, KEYS[i]);
        if (value) {
            (void)json_object_set(cluster, KEYS[i], value);
        }
    }
    (void)snprintf(text, sizeof text,
                   "nodes and links are not measured, but those of the cluster file %.200s",
                   read.name);
    add_source(sources, "cluster", text);
    take_sources(file, sources);
    gw_cluster_file_free(&read);
    json_decref(file);
    return true;
}

/* ---- options ---- */

static bool assume(const gw_cli_said *said, json_t *cluster, json_t *sources)
{
    gw_cluster_file assumed;
    const uint32_t nodes = said->nodes ? said->nodes : 1;
    const uint32_t ranks = said->ranks_per_node ? said->ranks_per_node : 1;
    if (!gw_cli_assume_cluster(nodes, ranks, said->link, true, &assumed)) {
        gw_cli_out_of_memory();
        return false;
    }
    (void)json_object_set_new(cluster, "nodes", json_integer(nodes));
    (void)json_object_set_new(cluster, "ranks_per_node", json_integer(ranks));
    if (ranks > 1) {
        (void)json_object_set_new(cluster, "intra", link_json(&assumed.cluster.intra));
        add_source(sources, "intra", "assumed: NVLink; not measured");
    }
    if (said->link > 0) {
        (void)json_object_set_new(cluster, "inter", link_json(&assumed.cluster.inter));
        add_source(sources, "inter", "assumed but for what is said; not measured");
    }
    gw_cluster_file_free(&assumed);
    return true;
}

/* What was said goes before the file. Of a rate without a file 95 % is taken, as in `advise`. */
static void take_options(const gw_cli_said *said, json_t *cluster, json_t *sources)
{
    char text[160];
    json_t *inter = json_object_get(cluster, "inter");
    if (said->nodes || said->ranks_per_node || !said->cluster) {
        (void)snprintf(text, sizeof text, "said: %lld of %lld ranks",
                       (long long)json_integer_value(json_object_get(cluster, "nodes")),
                       (long long)json_integer_value(json_object_get(cluster, "ranks_per_node")));
        add_source(sources, "nodes, ranks_per_node", text);
    }
    if (said->link > 0) {
        (void)snprintf(text, sizeof text, "said: %.6g Gbit/s%s", 8e-9 * said->link,
                       said->cluster ? "" : ", of which 95 % are taken");
        add_source(sources, "inter: gbit_per_s", text);
    }
    if (said->latency > 0) {
        (void)snprintf(text, sizeof text, "said: %.6g us", 1e6 * said->latency);
        add_source(sources, "inter: latency_us", text);
        (void)json_object_set_new(inter, "latency_us", json_real(1e6 * said->latency));
    }
}

static bool override(const gw_cli_said *said, json_t *cluster)
{
    json_t *inter = json_object_get(cluster, "inter");
    if (said->nodes) {
        (void)json_object_set_new(cluster, "nodes", json_integer(said->nodes));
    }
    if (said->ranks_per_node) {
        (void)json_object_set_new(cluster, "ranks_per_node", json_integer(said->ranks_per_node));
    }
    if (said->nodes || said->ranks_per_node || said->link > 0 || said->latency > 0) {
        (void)json_object_del(cluster, "collectives"); /* they are of other links */
    }
    if (!inter && (said->link > 0 || said->latency > 0)) {
        gw_cli_error("%s has no link between nodes to change", said->cluster);
        return false;
    }
    if (said->link > 0) {
        (void)json_object_set_new(inter, "gbit_per_s", json_real(8e-9 * said->link));
    }
    return true;
}

static bool has_links(const gw_cli_said *said, const json_t *cluster)
{
    const json_int_t nodes = json_integer_value(json_object_get(cluster, "nodes"));
    const json_int_t ranks = json_integer_value(json_object_get(cluster, "ranks_per_node"));
    const bool fine = (nodes < 2 || json_object_get(cluster, "inter")) &&
                      (ranks < 2 || json_object_get(cluster, "intra"));
    if (!fine) {
        gw_cli_error("%s: its links do not fit %lld nodes of %lld ranks", said->cluster,
                     (long long)nodes, (long long)ranks);
    }
    return fine;
}

bool gw_cli_profile_said(const gw_cli_said *said, json_t *cluster, json_t *sources)
{
    const bool fine = said->cluster ? take_file(said->cluster, cluster, sources) &&
                                          override(said, cluster) && has_links(said, cluster)
                                    : assume(said, cluster, sources);
    if (fine) {
        take_options(said, cluster, sources);
    }
    return fine;
}
