#define _POSIX_C_SOURCE 200809L
#include "cli/files/planread.h"

#include "cli/files/strict.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t MOST_ELEMENTS = (uint64_t)1 << 40;
static const double LONGEST_MS = 1e14;

void gw_cli_plan_free(gw_cli_plan_read *plan)
{
    for (size_t i = 0; i < plan->n; i++) {
        free(plan->tensors[i].name);
    }
    free(plan->tensors);
    *plan = (gw_cli_plan_read){0};
}

/* ---- tensors ---- */

static bool read_way(const gw_cli_place *at, const char *spec, const char *route,
                     gw_cli_plan_tensor *out)
{
    gw_why why = {""};
    const bool dense = strcmp(spec, "dense") == 0;
    if (!dense && gw_params_parse(&out->params, spec, &why) != GW_OK) {
        return gw_cli_place_fail(at, "spec: %s", why.text);
    }
    if (gw_route_parse(&out->route, route, &why) != GW_OK) {
        return gw_cli_place_fail(at, "route: %s", why.text);
    }
    if (dense != (gw_route_encodes(&out->route) == 0)) {
        return gw_cli_place_fail(at, "the route encodes %s, and the spec is %.40s",
                                 dense ? "something" : "nothing", spec);
    }
    if (gw_route_fits(&out->route, dense ? NULL : &out->params, &why) != GW_OK) {
        return gw_cli_place_fail(at, "%s", why.text);
    }
    return true;
}

static bool read_tensor(const gw_cli_place *at, const json_t *value, gw_cli_plan_tensor *out)
{
    const char *name = NULL, *spec = NULL, *route = NULL;
    uint64_t bucket = 0;
    if (!gw_cli_strict_object(at, value, "name elements spec route bucket") ||
        !gw_cli_strict_text(at, value, "name", &name) ||
        !gw_cli_strict_text(at, value, "spec", &spec) ||
        !gw_cli_strict_text(at, value, "route", &route) ||
        !gw_cli_strict_whole(at, value, "elements", 1, MOST_ELEMENTS, &out->elements) ||
        !gw_cli_strict_whole(at, value, "bucket", 0, GW_PLAN_MAX_TENSORS, &bucket) ||
        !read_way(at, spec, route, out)) {
        return false;
    }
    out->bucket = (uint32_t)bucket;
    return (out->name = strdup(name)) != NULL || gw_cli_place_fail(at, "out of memory");
}

/* Buckets are of neighbours, which go one way. */
static bool check_bucket(const gw_cli_place *at, const gw_cli_plan_tensor *all, size_t i)
{
    const gw_cli_plan_tensor *t = &all[i];
    if (i == 0) {
        return true;
    }
    if (t->bucket != t[-1].bucket) {
        return t->bucket > t[-1].bucket ||
               gw_cli_place_fail(at, "bucket %u comes after bucket %u", t->bucket, t[-1].bucket);
    }
    bool same = t->params.codec == t[-1].params.codec && gw_route_equal(&t->route, &t[-1].route);
    for (size_t k = 0; k < GW_PARAMS_MAX; k++) {
        same = same && t->params.value[k] == t[-1].params.value[k];
    }
    return same || gw_cli_place_fail(at, "bucket %u goes two ways", t->bucket);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool check_names(const gw_cli_place *at, const gw_cli_plan_read *plan)
{
    const char **names = calloc(plan->n + 1, sizeof *names);
    bool fine = true;
    if (!names) {
        return gw_cli_place_fail(at, "out of memory");
    }
    for (size_t i = 0; i < plan->n; i++) {
        names[i] = plan->tensors[i].name;
    }
    qsort(names, plan->n, sizeof *names, by_name);
    for (size_t i = 1; fine && i < plan->n; i++) {
        fine = strcmp(names[i], names[i - 1]) != 0 ||
               gw_cli_place_fail(at, "two tensors are named '%.60s'", names[i]);
    }
    free(names);
    return fine;
}

static bool read_tensors(const gw_cli_place *root, const json_t *json, gw_cli_plan_read *out)
{
    const json_t *tensors = NULL;
    if (!gw_cli_strict_array(root, json, "tensors", 1, GW_PLAN_MAX_TENSORS, &tensors)) {
        return false;
    }
    const gw_cli_place here = gw_cli_place_key(root, "tensors");
    out->tensors = calloc(json_array_size(tensors), sizeof *out->tensors);
    if (!out->tensors) {
        return gw_cli_place_fail(root, "out of memory");
    }
    while (out->n < json_array_size(tensors)) {
        const gw_cli_place item = gw_cli_place_item(&here, out->n);
        const size_t i = out->n++;
        if (!read_tensor(&item, json_array_get(tensors, i), &out->tensors[i]) ||
            !check_bucket(&item, out->tensors, i)) {
            return false;
        }
    }
    return check_names(&here, out);
}

/* ---- the whole ---- */

static bool read_predicted(const gw_cli_place *root, const json_t *json, gw_cli_plan_read *out)
{
    const gw_cli_place here = gw_cli_place_key(root, "predicted");
    const json_t *value = json_object_get(json, "predicted");
    double step = 0;
    if (!gw_cli_strict_object(&here, value,
                              "step_ms dense_ms bf16_ms all_compressed_ms zero_cost_ms "
                              "lower_bound_ms step_high_ms dense_high_ms gap") ||
        !gw_cli_strict_number(&here, value, "step_ms", 0, LONGEST_MS, &step)) {
        return false;
    }
    out->step = step * 1e-3;
    return true;
}

static bool read_origin(const gw_cli_place *root, const json_t *json, gw_cli_plan_read *out)
{
    const gw_cli_place job = gw_cli_place_key(root, "job");
    const gw_cli_place cluster = gw_cli_place_key(root, "cluster");
    const json_t *of_job = json_object_get(json, "job");
    const json_t *of_cluster = json_object_get(json, "cluster");
    const char *text = NULL;
    uint64_t nodes = 0, ranks = 0;
    if (!gw_cli_strict_object(&job, of_job, "name checksum") ||
        !gw_cli_strict_text(&job, of_job, "name", &text) ||
        !gw_cli_strict_text(&job, of_job, "checksum", &text) ||
        !gw_cli_strict_object(&cluster, of_cluster, "name checksum nodes ranks_per_node") ||
        !gw_cli_strict_text(&cluster, of_cluster, "name", &text) ||
        !gw_cli_strict_text(&cluster, of_cluster, "checksum", &text) ||
        !gw_cli_strict_whole(&cluster, of_cluster, "nodes", 1, GW_ROUTE_MAX_RANKS, &nodes) ||
        !gw_cli_strict_whole(&cluster, of_cluster, "ranks_per_node", 1, GW_ROUTE_MAX_RANKS,
                             &ranks)) {
        return false;
    }
    out->nodes = (uint32_t)nodes;
    out->ranks_per_node = (uint32_t)ranks;
    return true;
}

bool gw_cli_plan_parse(const void *data, size_t size, gw_cli_plan_read *out, char *why,
                       size_t why_size)
{
    const gw_cli_place root = gw_cli_place_root(why, why_size);
    gw_cli_plan_read read = {0};
    json_t *json = gw_cli_strict_load(data, size, &root);
    const bool fine = json && gw_cli_strict_format(&root, json, "gradwire.plan/1") &&
                      gw_cli_strict_object(&root, json, "format job cluster predicted tensors") &&
                      read_origin(&root, json, &read) && read_predicted(&root, json, &read) &&
                      read_tensors(&root, json, &read);
    json_decref(json);
    if (fine) {
        *out = read;
    } else {
        gw_cli_plan_free(&read);
    }
    return fine;
}
