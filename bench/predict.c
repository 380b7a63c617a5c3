/* bench_predict JOB.json CLUSTER.json FOLDER RANDOM [SPEC]...: plans of a job as files in FOLDER, and what each is predicted to
 * take, a line each: name and milliseconds. The chosen one, dense, every spec for all along its everyday routes, and
 * RANDOM random ones, whose tensors go any way. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradwire/gradwire.h>
#include <gradwire/plan.h>
#include <jansson.h>

#include "files/cluster_file.h"
#include "files/job_file.h"

enum { MOST_SPECS = 16, FUSED = 8192 /* elements; smaller neighbours may travel together */ };

typedef struct scene {
    gw_job_file job;
    gw_cluster_file cluster;
    gw_params specs[MOST_SPECS];
    size_t n_specs;
    gw_route *routes;
    size_t n_routes;
    const char *folder;
    uint64_t state; /* of random numbers */
} scene;

static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench_predict: %s: %s\n", what, why);
    exit(1);
}

static uint64_t random_below(scene *s, uint64_t n)
{
    s->state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t x = s->state;
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return (x ^ x >> 31) % n;
}

static char *load(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *bytes = malloc(1 << 20);
    if (!file || !bytes) {
        die(path, "cannot open");
    }
    *size = fread(bytes, 1, 1 << 20, file);
    (void)fclose(file);
    return bytes;
}

/* ---- plans ---- */

static json_t *plan_json(const scene *s, const gw_plan_entry *entries, double seconds)
{
    static const char *const KEYS[] = {"dense_ms",       "bf16_ms",      "all_compressed_ms",
                                       "zero_cost_ms",   "step_high_ms", "dense_high_ms",
                                       "lower_bound_ms", "gap"};
    const gw_cluster *c = &s->cluster.cluster;
    json_t *predicted = json_pack("{s:f}", "step_ms", 1e3 * seconds), *tensors = json_array();
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++) {
        (void)json_object_set_new(predicted, KEYS[i], json_null());
    }
    for (size_t i = 0; i < s->job.job.n; i++) {
        char spec[256] = "dense", route[GW_ROUTE_TEXT];
        const gw_job_tensor *t = &s->job.job.tensors[entries[i].tensor];
        if (entries[i].params.codec) {
            (void)gw_params_print(&entries[i].params, spec, sizeof spec);
        }
        (void)gw_route_print(&entries[i].route, route, sizeof route);
        (void)json_array_append_new(tensors, json_pack("{s:s, s:I, s:s, s:s, s:I}", "name", t->name,
                                                       "elements", (json_int_t)t->elements, "spec",
                                                       spec, "route", route, "bucket",
                                                       (json_int_t)entries[i].bucket));
    }
    return json_pack("{s:s, s:{s:s, s:s}, s:{s:s, s:s, s:I, s:I}, s:o, s:o}", "format",
                     "gradwire.plan/1", "job", "name", s->job.job.name, "checksum", "none",
                     "cluster", "name", c->name, "checksum", "none", "nodes", (json_int_t)c->nodes,
                     "ranks_per_node", (json_int_t)c->ranks_per_node, "predicted", predicted,
                     "tensors", tensors);
}

static void say(const scene *s, const char *name, const gw_plan_entry *entries)
{
    double seconds = 0;
    char path[1024];
    gw_why why = {""};
    if (gw_plan_predict(&s->job.job, &s->cluster.cluster, entries, s->job.job.n, 0, &seconds,
                        &why) != GW_OK) {
        die(name, why.text);
    }
    (void)snprintf(path, sizeof path, "%s/%s.json", s->folder, name);
    json_t *json = plan_json(s, entries, seconds);
    if (json_dump_file(json, path, JSON_INDENT(1)) != 0) {
        die(path, "cannot write");
    }
    json_decref(json);
    (void)printf("%s %.3f\n", name, 1e3 * seconds);
}

static void chosen(const scene *s)
{
    gw_plan *plan = NULL;
    gw_why why = {""};
    const gw_plan_request request = {.specs = s->specs, .n_specs = s->n_specs};
    gw_plan_entry *entries = calloc(s->job.job.n, sizeof *entries);
    if (!entries ||
        gw_plan_create(&s->job.job, &s->cluster.cluster, &request, &plan, &why) != GW_OK) {
        die("plan", why.text);
    }
    for (size_t i = 0; i < s->job.job.n; i++) {
        (void)gw_plan_entry_at(plan, i, &entries[i]);
    }
    say(s, "chosen", entries);
    gw_plan_destroy(plan);
    free(entries);
}

/* All tensors one way; NULL: uncompressed. */
static void uniform(const scene *s, const gw_params *spec, const char *route)
{
    gw_why why = {""};
    char name[128], text[64] = "dense";
    gw_plan_entry *entries = calloc(s->job.job.n, sizeof *entries);
    gw_route way;
    if (!entries || gw_route_parse(&way, route, &why) != GW_OK) {
        die(route, why.text);
    }
    if (spec && gw_route_fits(&way, spec, NULL) != GW_OK) {
        free(entries);
        return;
    }
    for (uint32_t i = 0; i < s->job.job.n; i++) {
        entries[i] = (gw_plan_entry){.tensor = i, .bucket = i, .route = way};
        if (spec) {
            entries[i].params = *spec;
        }
    }
    if (spec) {
        (void)snprintf(text, sizeof text, "%s", gw_codec_name(spec->codec));
    }
    (void)snprintf(name, sizeof name, "%s-%s", text, route);
    say(s, spec ? name : route, entries);
    free(entries);
}

/* A spec, or none, and a route that goes with it. */
static void any_way(scene *s, gw_plan_entry *e)
{
    do {
        const uint64_t which = random_below(s, s->n_specs + 1);
        e->params = which == 0 ? (gw_params){0} : s->specs[which - 1];
        e->route = s->routes[random_below(s, s->n_routes)];
    } while ((e->params.codec == NULL) != (gw_route_encodes(&e->route) == 0) ||
             (e->params.codec && gw_route_fits(&e->route, &e->params, NULL) != GW_OK));
}

static void at_random(scene *s, uint32_t number)
{
    char name[32];
    gw_plan_entry *entries = calloc(s->job.job.n, sizeof *entries);
    if (!entries) {
        die("plan", "no memory");
    }
    for (uint32_t i = 0; i < s->job.job.n; i++) {
        const gw_job_tensor *t = &s->job.job.tensors[i];
        const int joins =
            i > 0 && t->elements < FUSED && t[-1].elements < FUSED && random_below(s, 2) == 0;
        entries[i] = joins ? entries[i - 1] : (gw_plan_entry){.bucket = i};
        entries[i].tensor = i;
        if (!joins) {
            any_way(s, &entries[i]);
        }
    }
    (void)snprintf(name, sizeof name, "random-%u", number);
    say(s, name, entries);
    free(entries);
}

int main(int argc, char **argv)
{
    scene s = {.state = 1};
    char why[256] = "";
    gw_why reason = {""};
    size_t size = 0;
    if (argc < 5 || argc - 5 > MOST_SPECS) {
        die("usage", "bench_predict JOB.json CLUSTER.json FOLDER RANDOM [SPEC]...");
    }
    char *bytes = load(argv[1], &size);
    if (!gw_job_file_parse(bytes, size, &s.job, why, sizeof why)) {
        die(argv[1], why);
    }
    free(bytes);
    bytes = load(argv[2], &size);
    if (!gw_cluster_file_parse(bytes, size, &s.cluster, why, sizeof why)) {
        die(argv[2], why);
    }
    free(bytes);
    s.folder = argv[3];
    for (int i = 5; i < argc; i++) {
        if (gw_params_parse(&s.specs[s.n_specs++], argv[i], &reason) != GW_OK) {
            die(argv[i], reason.text);
        }
    }
    (void)gw_route_list(GW_DEVICE_CPU, 0, NULL, 0, &s.n_routes, NULL);
    s.routes = calloc(s.n_routes, sizeof *s.routes);
    if (!s.routes ||
        gw_route_list(GW_DEVICE_CPU, 0, s.routes, s.n_routes, &s.n_routes, &reason) != GW_OK) {
        die("routes", reason.text);
    }
    chosen(&s);
    uniform(&s, NULL, "dense");
    for (size_t i = 0; i < s.n_specs; i++) {
        uniform(&s, &s.specs[i], "sra");
        uniform(&s, &s.specs[i], "gather");
    }
    for (uint32_t i = 1; i <= (uint32_t)strtoul(argv[4], NULL, 10); i++) {
        at_random(&s, i);
    }
    free(s.routes);
    gw_job_file_free(&s.job);
    gw_cluster_file_free(&s.cluster);
    return 0;
}
