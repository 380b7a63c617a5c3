#define _POSIX_C_SOURCE 200809L
#include "files/cluster_file.h"

#include "base/why.h"
#include "files/read_file.h"
#include "files/strict.h"

#include <gradwire/files.h>

#include <stdlib.h>
#include <string.h>

enum { MOST_CODECS = 256, MOST_COLLECTIVES = 64 };
static const double LONGEST_US = 1e11;

void gw_cluster_file_free(gw_cluster_file *cluster)
{
    free(cluster->name);
    free(cluster->codecs);
    free(cluster->collectives);
    *cluster = (gw_cluster_file){0};
}

static gw_codec_cost *add_codec(gw_cluster_file *c)
{
    gw_codec_cost *codecs = realloc(c->codecs, (c->cluster.n_codecs + 1) * sizeof *codecs);
    if (!codecs) {
        return NULL;
    }
    c->codecs = codecs;
    c->cluster.codecs = codecs;
    codecs[c->cluster.n_codecs] = (gw_codec_cost){.device = GW_DEVICE_CPU};
    return &codecs[c->cluster.n_codecs++];
}

/* Constant as long as the launch lasts longer than the bytes. */
static gw_cost_curve launch_then_rate(double launch_us, double gbps)
{
    const double launch = launch_us > 0.001 ? launch_us * 1e-6 : 1e-9;
    return (gw_cost_curve){.n = 1, .point = {{.bytes = launch * gbps * 1e9, .seconds = launch}}};
}

bool gw_cluster_file_add(gw_cluster_file *cluster, const gw_params *params, gw_device device,
                         double launch_us, double encode_gbps, double decode_gbps)
{
    gw_codec_cost *cost = add_codec(cluster);
    if (cost) {
        *cost = (gw_codec_cost){*params, device, launch_then_rate(launch_us, encode_gbps),
                                launch_then_rate(launch_us, decode_gbps)};
    }
    return cost != NULL;
}

/* ---- links ---- */

static bool read_link(const gw_json_place *at, const json_t *json, const char *key,
                      gw_cluster_link *out)
{
    const json_t *value = json_object_get(json, key);
    const gw_json_place here = gw_json_at_key(at, key);
    double latency = 0, message = 0, gbit = 0, busy = 0;
    bool shared = false;
    if (!value) {
        return true;
    }
    if (!gw_json_object(&here, value,
                        "latency_us gbit_per_s ?message_us ?spread ?shared ?cpu_share ?busy_us") ||
        !gw_json_number(&here, value, "latency_us", 0, LONGEST_US, &latency) ||
        !gw_json_number(&here, value, "message_us", 0, LONGEST_US, &message) ||
        !gw_json_number(&here, value, "gbit_per_s", 1e-9, 1e9, &gbit) ||
        !gw_json_number(&here, value, "spread", 0, 10, &out->spread) ||
        !gw_json_number(&here, value, "cpu_share", 0, 1, &out->cpu_share) ||
        !gw_json_number(&here, value, "busy_us", 0, LONGEST_US, &busy) ||
        !gw_json_bool(&here, value, "shared", &shared)) {
        return false;
    }
    out->latency = latency * 1e-6;
    out->message = message * 1e-6;
    out->busy = busy * 1e-6;
    out->rate = gbit * 1e9 / 8;
    out->shared = shared;
    return true;
}

/* ---- curves ---- */

static bool read_samples(const gw_json_place *at, const json_t *value, uint32_t *out)
{
    uint64_t samples = 0;
    const bool fine = gw_json_whole(at, value, "samples", 0, 1000000000, &samples);
    *out = (uint32_t)samples;
    return fine;
}

/* {bytes, NAME_us, NAME_deviation_us, samples} of one point. */
static bool read_point(const gw_json_place *at, const json_t *value, const char *time,
                       const char *deviation, gw_cost_point *out)
{
    double us = 0, deviation_us = 0;
    if (!gw_json_number(at, value, "bytes", 1, 1e18, &out->bytes) ||
        !gw_json_number(at, value, time, 0, LONGEST_US, &us) ||
        !gw_json_number(at, value, deviation, 0, LONGEST_US, &deviation_us) ||
        !read_samples(at, value, &out->samples)) {
        return false;
    }
    out->seconds = us * 1e-6;
    out->deviation = deviation_us * 1e-6;
    return true;
}

static bool ascend(const gw_json_place *at, const gw_cost_curve *curve, size_t i)
{
    return i == 0 || curve->point[i].bytes > curve->point[i - 1].bytes ||
           gw_json_fail(at, NULL, "bytes do not ascend from point to point");
}

static bool read_codec_points(const gw_json_place *at, const json_t *points, gw_codec_cost *out)
{
    const gw_json_place here = gw_json_at_key(at, "points");
    for (size_t i = 0; i < json_array_size(points); i++) {
        const gw_json_place item = gw_json_at_item(&here, i);
        const json_t *point = json_array_get(points, i);
        if (!gw_json_object(&item, point,
                            "bytes encode_us decode_us ?encode_deviation_us "
                            "?decode_deviation_us ?samples") ||
            !read_point(&item, point, "encode_us", "encode_deviation_us", &out->encode.point[i]) ||
            !read_point(&item, point, "decode_us", "decode_deviation_us", &out->decode.point[i]) ||
            !ascend(&item, &out->encode, i)) {
            return false;
        }
    }
    out->encode.n = out->decode.n = (uint32_t)json_array_size(points);
    return true;
}

static bool read_codec(const gw_json_place *at, const json_t *value, gw_codec_cost *out)
{
    const char *spec = NULL, *device = NULL;
    const json_t *points = NULL;
    double launch = 1, encode = 0, decode = 0;
    gw_why why = {""};
    if (!gw_json_object(at, value,
                        "spec device ?launch_us ?encode_gbps ?decode_gbps ?points ?source") ||
        !gw_json_text(at, value, "spec", &spec) || !gw_json_text(at, value, "device", &device) ||
        !gw_json_number(at, value, "launch_us", 0, LONGEST_US, &launch) ||
        !gw_json_number(at, value, "encode_gbps", 1e-6, 1e9, &encode) ||
        !gw_json_number(at, value, "decode_gbps", 1e-6, 1e9, &decode) ||
        !gw_json_array(at, value, "points", 1, GW_COST_POINTS, &points)) {
        return false;
    }
    if (gw_params_parse(&out->params, spec, &why) != GW_OK) {
        return gw_json_fail(at, NULL, "%s", why.text);
    }
    if (strcmp(device, "cpu") != 0 && strcmp(device, "gpu") != 0) {
        return gw_json_fail(at, NULL, "device '%.20s' is not cpu or gpu", device);
    }
    out->device = device[0] == 'c' ? GW_DEVICE_CPU : GW_DEVICE_GPU;
    if (points) {
        return read_codec_points(at, points, out);
    }
    if (encode == 0 || decode == 0) {
        return gw_json_fail(at, NULL, "needs encode_gbps and decode_gbps, or points");
    }
    out->encode = launch_then_rate(launch, encode);
    out->decode = launch_then_rate(launch, decode);
    return true;
}

/* ---- collectives ---- */

static const struct {
    const char *name;
    gw_op op;
} OPS[] = {{"allreduce", GW_OP_ALLREDUCE}, {"reduce_scatter", GW_OP_REDUCE_SCATTER},
           {"reduce", GW_OP_REDUCE},       {"allgather", GW_OP_ALLGATHER},
           {"broadcast", GW_OP_BROADCAST}, {"alltoall", GW_OP_ALLTOALL},
           {"gather", GW_OP_GATHER}};
static const struct {
    const char *name;
    gw_level level;
} LEVELS[] = {{"flat", GW_LEVEL_FLAT}, {"intra", GW_LEVEL_INTRA}, {"inter", GW_LEVEL_INTER}};

static bool read_collective(const gw_json_place *at, const json_t *value, gw_collective_cost *out)
{
    const char *op = NULL, *level = NULL;
    const json_t *points = NULL;
    if (!gw_json_object(at, value, "op level points") || !gw_json_text(at, value, "op", &op) ||
        !gw_json_text(at, value, "level", &level) ||
        !gw_json_array(at, value, "points", 1, GW_COST_POINTS, &points)) {
        return false;
    }
    for (size_t i = 0; i < sizeof OPS / sizeof OPS[0]; i++) {
        out->op = strcmp(op, OPS[i].name) == 0 ? OPS[i].op : out->op;
    }
    for (size_t i = 0; i < sizeof LEVELS / sizeof LEVELS[0]; i++) {
        out->level = strcmp(level, LEVELS[i].name) == 0 ? LEVELS[i].level : out->level;
    }
    if (out->op == 0 || out->level == 0) {
        return gw_json_fail(at, NULL, "no collective %.30s:%.30s", level, op);
    }
    const gw_json_place here = gw_json_at_key(at, "points");
    for (size_t i = 0; i < json_array_size(points); i++) {
        const gw_json_place item = gw_json_at_item(&here, i);
        const json_t *point = json_array_get(points, i);
        if (!gw_json_object(&item, point, "bytes us ?deviation_us ?samples") ||
            !read_point(&item, point, "us", "deviation_us", &out->curve.point[i]) ||
            !ascend(&item, &out->curve, i)) {
            return false;
        }
    }
    out->curve.n = (uint32_t)json_array_size(points);
    return true;
}

/* ---- the whole ---- */

static bool read_lists(const gw_json_place *root, const json_t *json, gw_cluster_file *out)
{
    const json_t *codecs = NULL, *collectives = NULL;
    if (!gw_json_array(root, json, "codecs", 0, MOST_CODECS, &codecs) ||
        !gw_json_array(root, json, "collectives", 0, MOST_COLLECTIVES, &collectives)) {
        return false;
    }
    gw_json_place here = gw_json_at_key(root, "codecs");
    for (size_t i = 0; i < json_array_size(codecs); i++) {
        const gw_json_place item = gw_json_at_item(&here, i);
        gw_codec_cost *cost = add_codec(out);
        if (!cost) {
            return gw_json_fail(root, NULL, "out of memory");
        }
        if (!read_codec(&item, json_array_get(codecs, i), cost)) {
            return false;
        }
    }
    out->collectives = calloc(json_array_size(collectives) + 1, sizeof *out->collectives);
    if (!out->collectives) {
        return gw_json_fail(root, NULL, "out of memory");
    }
    here = gw_json_at_key(root, "collectives");
    for (size_t i = 0; i < json_array_size(collectives); i++) {
        const gw_json_place item = gw_json_at_item(&here, i);
        if (!read_collective(&item, json_array_get(collectives, i), &out->collectives[i])) {
            return false;
        }
    }
    out->cluster.collectives = out->collectives;
    out->cluster.n_collectives = json_array_size(collectives);
    return true;
}

/* Which links a cluster needs depends on its shape. */
static bool check_links(const gw_json_place *root, const json_t *json, const gw_cluster *c)
{
    const struct {
        const char *key;
        bool needed;
    } links[] = {
        {"intra", c->ranks_per_node > 1}, {"inter", c->nodes > 1}, {"copy", c->has_gpu != 0}};
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        if (links[i].needed && !json_object_get(json, links[i].key)) {
            return gw_json_fail(root, NULL, "key '%s' is missing: %u nodes of %u ranks, %s",
                                links[i].key, c->nodes, c->ranks_per_node,
                                c->has_gpu ? "with GPUs" : "without GPUs");
        }
    }
    return true;
}

static bool read_cluster(const gw_json_place *root, const json_t *json, gw_cluster_file *out)
{
    gw_cluster *c = &out->cluster;
    const char *name = NULL, *device = NULL;
    uint64_t nodes = 0, ranks = 0, workers = 0;
    if (!gw_json_format(root, json, "gradwire.cluster/1") ||
        !gw_json_object(root, json,
                        "format name nodes ranks_per_node device cpu_workers ?intra ?inter ?copy "
                        "codecs ?collectives ?sources ?measured_by ?measured_at") ||
        !gw_json_text(root, json, "name", &name) || !gw_json_text(root, json, "device", &device) ||
        !gw_json_whole(root, json, "nodes", 1, GW_ROUTE_MAX_RANKS, &nodes) ||
        !gw_json_whole(root, json, "ranks_per_node", 1, GW_ROUTE_MAX_RANKS, &ranks) ||
        !gw_json_whole(root, json, "cpu_workers", 0, GW_TIMELINE_MAX_WORKERS, &workers) ||
        !read_link(root, json, "intra", &c->intra) || !read_link(root, json, "inter", &c->inter) ||
        !read_link(root, json, "copy", &c->copy) || !read_lists(root, json, out)) {
        return false;
    }
    if (nodes * ranks > GW_ROUTE_MAX_RANKS) {
        return gw_json_fail(root, NULL, "more than %d ranks", GW_ROUTE_MAX_RANKS);
    }
    if (strcmp(device, "cpu") != 0 && strcmp(device, "gpu") != 0) {
        return gw_json_fail(root, NULL, "device '%.20s' is not cpu or gpu", device);
    }
    c->nodes = (uint32_t)nodes;
    c->ranks_per_node = (uint32_t)ranks;
    c->cpu_workers = (uint32_t)workers;
    c->has_gpu = device[0] == 'g';
    if (c->has_gpu && workers == 0) {
        return gw_json_fail(root, NULL, "cpu_workers is 0: with GPUs at least one");
    }
    out->name = strdup(name);
    c->name = out->name;
    return out->name ? check_links(root, json, c) : gw_json_fail(root, NULL, "out of memory");
}

bool gw_cluster_file_parse(const void *data, size_t size, gw_cluster_file *out, char *why,
                           size_t why_size)
{
    const gw_json_place root = gw_json_root(why, why_size);
    gw_cluster_file read = {.name = NULL};
    json_t *json = gw_json_load(data, size, &root);
    const bool fine = json && read_cluster(&root, json, &read);
    json_decref(json);
    if (fine) {
        *out = read;
    } else {
        gw_cluster_file_free(&read);
    }
    return fine;
}

/* ---- in C programs ---- */

gw_status gw_cluster_read(const char *path, gw_cluster **out, gw_why *why)
{
    gw_file_bytes file;
    char reason[GW_FILE_WHY] = "";
    GW_REQUIRE(why, path != NULL && out != NULL, "no path, or no place for the cluster");
    gw_cluster_file *read = calloc(1, sizeof *read);
    gw_status status = read ? gw_file_open(path, &file, why)
                            : GW_FAIL(why, GW_ERR_MEMORY, "%s: no memory for a cluster", path);
    if (status == GW_OK) {
        status = gw_cluster_file_parse(file.data, file.size, read, reason, sizeof reason)
                     ? GW_OK
                     : GW_FAIL(why, GW_ERR_CORRUPT, "%s: %s", path, reason);
        free(file.data);
    }
    if (status != GW_OK) {
        free(read);
        return status;
    }
    *out = &read->cluster;
    return GW_OK;
}

void gw_cluster_free(gw_cluster *cluster)
{
    gw_cluster_file *read = (gw_cluster_file *)cluster; /* its first member */
    if (read) {
        gw_cluster_file_free(read);
        free(read);
    }
}
