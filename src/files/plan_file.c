/* gradwire.plan/1 */
#define _POSIX_C_SOURCE 200809L
#include "base/why.h"
#include "files/read_file.h"
#include "files/strict.h"

#include <gradwire/files.h>
#include <gradwire/step_adapt.h>
#include <gradwire/step_auto.h>

#include <stdlib.h>
#include <string.h>

static const uint64_t MOST_ELEMENTS = (uint64_t)1 << 40;
static const double LONGEST_MS = 1e14;

/* The tensors that gw_plan_file points to, which are its own. */
static gw_plan_tensor *tensors_of(const gw_plan_file *plan)
{
    return (gw_plan_tensor *)(uintptr_t)plan->tensors;
}

void gw_plan_file_free(gw_plan_file *plan)
{
    for (size_t i = 0; plan && i < plan->n; i++) {
        free((void *)(uintptr_t)plan->tensors[i].name);
        free((void *)(uintptr_t)plan->tensors[i].spec);
        free((void *)(uintptr_t)plan->tensors[i].along);
    }
    if (plan) {
        free(tensors_of(plan));
        free((void *)(uintptr_t)plan->path);
    }
    free(plan);
}

const gw_plan_tensor *gw_plan_file_at(const gw_plan_file *plan, size_t index)
{
    return plan && index < plan->n ? &plan->tensors[index] : NULL;
}

/* ---- tensors ---- */

static bool is_chooser(const char *spec)
{
    return gw_adapt_spec_is(spec) || gw_auto_spec_is(spec);
}

/* Codec and route. */
static bool read_sending(const gw_json_place *at, gw_plan_tensor *out)
{
    gw_why why = {""};
    const bool dense = strcmp(out->spec, "dense") == 0;
    if (is_chooser(out->spec)) {
        return gw_json_fail(at, "spec",
                            "'%.60s': '%.60s': a plan has one codec for each tensor; levels are "
                            "not chosen beside it",
                            out->name, out->spec);
    }
    if (!dense && gw_params_parse(&out->params, out->spec, &why) != GW_OK) {
        return gw_json_fail(at, "spec", "'%.60s': %s", out->name, why.text);
    }
    if (gw_route_parse(&out->route, out->along, &why) != GW_OK) {
        return gw_json_fail(at, "route", "'%.60s': %s", out->name, why.text);
    }
    if (dense != (gw_route_encodes(&out->route) == 0)) {
        return gw_json_fail(at, NULL, "'%.60s': the route encodes %s, and the spec is %.40s",
                            out->name, dense ? "something" : "nothing", out->spec);
    }
    if (gw_route_fits(&out->route, dense ? NULL : &out->params, &why) != GW_OK) {
        return gw_json_fail(at, NULL, "'%.60s': %s", out->name, why.text);
    }
    return true;
}

static bool keep(const gw_json_place *at, const char *text, const char **out)
{
    *out = strdup(text);
    return *out || gw_json_fail(at, NULL, "out of memory");
}

static bool read_tensor(const gw_json_place *at, const json_t *value, gw_plan_tensor *out)
{
    const char *name = NULL, *spec = NULL, *route = NULL;
    uint64_t bucket = 0;
    *out = (gw_plan_tensor){0};
    if (!gw_json_object(at, value, "name elements spec route bucket") ||
        !gw_json_text(at, value, "name", &name) || !gw_json_text(at, value, "spec", &spec) ||
        !gw_json_text(at, value, "route", &route) || !keep(at, name, &out->name) ||
        !keep(at, spec, &out->spec) || !keep(at, route, &out->along) ||
        !gw_json_whole(at, value, "elements", 1, MOST_ELEMENTS, &out->elements) ||
        !gw_json_whole(at, value, "bucket", 0, GW_PLAN_MAX_TENSORS, &bucket) ||
        !read_sending(at, out)) {
        return false;
    }
    out->bucket = (uint32_t)bucket;
    return true;
}

/* Buckets are of neighbours, which go one way. */
static bool check_bucket(const gw_json_place *at, const gw_plan_tensor *all, size_t i)
{
    const gw_plan_tensor *t = &all[i];
    if (i == 0) {
        return true;
    }
    if (t->bucket != t[-1].bucket) {
        return t->bucket > t[-1].bucket ||
               gw_json_fail(at, NULL, "bucket %u comes after bucket %u", t->bucket, t[-1].bucket);
    }
    const bool same =
        gw_params_equal(&t->params, &t[-1].params) && gw_route_equal(&t->route, &t[-1].route);
    return same || gw_json_fail(at, NULL, "bucket %u goes two ways", t->bucket);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool check_names(const gw_json_place *at, const gw_plan_file *plan)
{
    const char **names = calloc(plan->n + 1, sizeof *names);
    bool fine = true;
    if (!names) {
        return gw_json_fail(at, NULL, "out of memory");
    }
    for (size_t i = 0; i < plan->n; i++) {
        names[i] = plan->tensors[i].name;
    }
    qsort(names, plan->n, sizeof *names, by_name);
    for (size_t i = 1; fine && i < plan->n; i++) {
        fine = strcmp(names[i], names[i - 1]) != 0 ||
               gw_json_fail(at, NULL, "two tensors are named '%.60s'", names[i]);
    }
    free(names);
    return fine;
}

static bool read_tensors(const gw_json_place *root, const json_t *json, gw_plan_file *out)
{
    const json_t *tensors = NULL;
    if (!gw_json_array(root, json, "tensors", 1, GW_PLAN_MAX_TENSORS, &tensors)) {
        return false;
    }
    const gw_json_place here = gw_json_at_key(root, "tensors");
    gw_plan_tensor *all = calloc(json_array_size(tensors), sizeof *all);
    out->tensors = all;
    if (!all) {
        return gw_json_fail(root, NULL, "out of memory");
    }
    while (out->n < json_array_size(tensors)) {
        const gw_json_place item = gw_json_at_item(&here, out->n);
        const size_t i = out->n++;
        if (!read_tensor(&item, json_array_get(tensors, i), &all[i]) ||
            !check_bucket(&item, all, i)) {
            return false;
        }
    }
    return check_names(&here, out);
}

/* ---- the whole ---- */

/* What the plan was made from and for, and what it promises: a plan that was written by hand has none of it. */
static bool read_predicted(const gw_json_place *root, const json_t *json, gw_plan_file *out)
{
    const gw_json_place here = gw_json_at_key(root, "predicted");
    const json_t *value = json_object_get(json, "predicted");
    double step = 0;
    if (value && (!gw_json_object(&here, value,
                                  "step_ms dense_ms bf16_ms all_compressed_ms zero_cost_ms "
                                  "lower_bound_ms step_high_ms dense_high_ms gap") ||
                  !gw_json_number(&here, value, "step_ms", 0, LONGEST_MS, &step))) {
        return false;
    }
    out->step = step * 1e-3;
    return true;
}

static bool read_job(const gw_json_place *root, const json_t *json)
{
    const gw_json_place here = gw_json_at_key(root, "job");
    const json_t *value = json_object_get(json, "job");
    const char *text = NULL;
    return !value || (gw_json_object(&here, value, "name checksum") &&
                      gw_json_text(&here, value, "name", &text) &&
                      gw_json_text(&here, value, "checksum", &text));
}

static bool read_cluster(const gw_json_place *root, const json_t *json, gw_plan_file *out)
{
    const gw_json_place here = gw_json_at_key(root, "cluster");
    const json_t *value = json_object_get(json, "cluster");
    const char *text = NULL;
    uint64_t nodes = 0, ranks = 0;
    if (value && (!gw_json_object(&here, value, "name checksum nodes ranks_per_node") ||
                  !gw_json_text(&here, value, "name", &text) ||
                  !gw_json_text(&here, value, "checksum", &text) ||
                  !gw_json_whole(&here, value, "nodes", 1, GW_ROUTE_MAX_RANKS, &nodes) ||
                  !gw_json_whole(&here, value, "ranks_per_node", 1, GW_ROUTE_MAX_RANKS, &ranks))) {
        return false;
    }
    out->nodes = (uint32_t)nodes;
    out->ranks_per_node = (uint32_t)ranks;
    return true;
}

static bool read_plan(const void *data, size_t size, gw_plan_file *out, char *why, size_t why_size)
{
    const gw_json_place root = gw_json_root(why, why_size);
    json_t *json = gw_json_load(data, size, &root);
    const bool fine = json && gw_json_format(&root, json, "gradwire.plan/1") &&
                      gw_json_object(&root, json, "format ?job ?cluster ?predicted tensors") &&
                      read_job(&root, json) && read_cluster(&root, json, out) &&
                      read_predicted(&root, json, out) && read_tensors(&root, json, out);
    json_decref(json);
    return fine;
}

gw_status gw_plan_parse(const char *path, const void *bytes, size_t size, gw_plan_file **out,
                        gw_why *why)
{
    char reason[GW_FILE_WHY] = "";
    GW_REQUIRE(why, path != NULL && (bytes != NULL || size == 0) && out != NULL,
               "no path, no bytes, or no place for the plan");
    gw_plan_file *read = calloc(1, sizeof *read);
    if (!read || !(read->path = strdup(path))) {
        free(read);
        return GW_FAIL(why, GW_ERR_MEMORY, "%s: no memory for a plan", path);
    }
    if (!read_plan(bytes, size, read, reason, sizeof reason)) {
        gw_plan_file_free(read);
        return GW_FAIL(why, GW_ERR_CORRUPT, "%s: %s", path, reason);
    }
    *out = read;
    return GW_OK;
}

gw_status gw_plan_read(const char *path, gw_plan_file **out, gw_why *why)
{
    gw_file_bytes file;
    GW_REQUIRE(why, path != NULL && out != NULL, "no path, or no place for the plan");
    gw_status status = gw_file_open(path, &file, why);
    if (status == GW_OK) {
        status = gw_plan_parse(path, file.data, file.size, out, why);
        free(file.data);
    }
    return status;
}
