#include "cli/plan/planfile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/files/files.h"
#include "cli/json_out.h"
#include "cli/say.h"

void gw_cli_entry_spec(const gw_plan_entry *entry, char *text, size_t size)
{
    if (!entry->params.codec || gw_params_print(&entry->params, text, size) != GW_OK) {
        (void)snprintf(text, size, "dense");
    }
}

static json_t *tensors_json(const gw_cli_scene *scene, const gw_plan *plan)
{
    json_t *all = json_array();
    for (size_t i = 0; i < gw_plan_count(plan); i++) {
        gw_plan_entry entry;
        char spec[256], route[GW_ROUTE_TEXT];
        (void)gw_plan_entry_at(plan, i, &entry);
        gw_cli_entry_spec(&entry, spec, sizeof spec);
        (void)gw_route_print(&entry.route, route, sizeof route);
        const gw_job_tensor *tensor = &scene->job.job.tensors[entry.tensor];
        json_array_append_new(all, json_pack("{s:s, s:o, s:s, s:s, s:o}", "name", tensor->name,
                                             "elements", gw_cli_json_count(tensor->elements),
                                             "spec", spec, "route", route, "bucket",
                                             gw_cli_json_count(entry.bucket)));
    }
    return all;
}

static void set_times(json_t *json, const gw_plan_report *r)
{
    const struct {
        const char *key;
        double seconds;
    } times[] = {{"step_ms", r->step},           {"dense_ms", r->dense},
                 {"bf16_ms", r->bf16},           {"all_compressed_ms", r->all_compressed},
                 {"zero_cost_ms", r->zero_cost}, {"lower_bound_ms", r->lower_bound},
                 {"step_high_ms", r->step_high}, {"dense_high_ms", r->dense_high}};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        json_object_set_new(json, times[i].key, gw_cli_json_number(times[i].seconds * 1e3));
    }
    json_object_set_new(json, "gap", json_real(r->step / r->lower_bound - 1));
}

json_t *gw_cli_plan_report_json(const gw_cli_scene *scene, const gw_plan *plan, double select_ms)
{
    const gw_plan_report r = gw_plan_report_of(plan);
    json_t *json = json_object();
    set_times(json, &r);
    json_object_set_new(json, "select_ms", json_real(select_ms));
    json_object_set_new(json, "evaluations", gw_cli_json_count(r.evaluations));
    json_object_set_new(json, "candidates", gw_cli_json_count(r.candidates));
    json_object_set_new(json, "dominated", gw_cli_json_count(r.dominated));
    json_object_set_new(json, "untried", gw_cli_json_count(r.untried));
    json_object_set_new(json, "buckets", gw_cli_json_count(r.buckets));
    json_object_set_new(json, "compressed", gw_cli_json_count(r.compressed));
    json_object_set_new(json, "tensors", tensors_json(scene, plan));
    return json;
}

json_t *gw_cli_plan_json(const gw_cli_scene *scene, const gw_plan *plan)
{
    const gw_plan_report r = gw_plan_report_of(plan);
    char job[32], cluster[32];
    json_t *predicted = json_object();
    (void)snprintf(job, sizeof job, "fnv1a64:%016" PRIx64, scene->job_hash);
    (void)snprintf(cluster, sizeof cluster, "fnv1a64:%016" PRIx64, scene->cluster_hash);
    set_times(predicted, &r);
    const gw_cluster *c = &scene->cluster.cluster;
    return json_pack("{s:s, s:{s:s, s:s}, s:{s:s, s:s, s:o, s:o}, s:o, s:o}", "format",
                     "gradwire.plan/1", "job", "name", scene->job.job.name, "checksum", job,
                     "cluster", "name", c->name, "checksum", cluster, "nodes",
                     gw_cli_json_count(c->nodes), "ranks_per_node",
                     gw_cli_json_count(c->ranks_per_node), "predicted", predicted, "tensors",
                     tensors_json(scene, plan));
}

bool gw_cli_json_write(const char *path, json_t *json)
{
    char *text = json ? json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(json);
    if (!text) {
        gw_cli_out_of_memory();
        return false;
    }
    char newline[] = "\n";
    const struct iovec pieces[2] = {{text, strlen(text)}, {newline, 1}};
    const bool fine = gw_cli_file_write(path, pieces, 2);
    free(text);
    return fine;
}

/* ---- traces ---- */

static json_t *lane_name(unsigned lane, const char *name)
{
    return json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", "thread_name", "ph", "M", "pid", 0,
                     "tid", (int)lane, "args", "name", name);
}

static json_t *event_json(const gw_cli_scene *scene, const gw_interval *x)
{
    const unsigned lane = (unsigned)x->track + GW_TRACKS * x->worker;
    const char *tensor =
        x->tensor == UINT32_MAX ? "(rest of backward)" : scene->job.job.tensors[x->tensor].name;
    char name[160];
    (void)snprintf(name, sizeof name, "%s%.120s", x->op == UINT32_MAX ? "backward " : "", tensor);
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:{s:s, s:i}}", "name", name, "ph", "X",
                     "cat", x->op == UINT32_MAX ? "backward" : gw_track_name(x->track), "pid", 0,
                     "tid", (int)lane, "ts", (double)x->begin * 1e-3, "dur",
                     (double)(x->end - x->begin) * 1e-3, "args", "tensor", tensor, "operation",
                     x->op == UINT32_MAX ? -1 : (int)x->op);
}

static json_t *trace_json(const gw_cli_scene *scene, const gw_interval *all, size_t n)
{
    json_t *events = json_array();
    json_array_append_new(events, json_pack("{s:s, s:s, s:i, s:{s:s}}", "name", "process_name",
                                            "ph", "M", "pid", 0, "args", "name", "predicted"));
    for (unsigned track = 0; track < GW_TRACKS; track++) {
        json_array_append_new(events, lane_name(track, gw_track_name((gw_track)track)));
    }
    for (unsigned worker = 1; worker < scene->cluster.cluster.cpu_workers; worker++) {
        json_array_append_new(events, lane_name(GW_TRACK_CPU + GW_TRACKS * worker, "cpu"));
    }
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(events, event_json(scene, &all[i]));
    }
    return json_pack("{s:s, s:o}", "displayTimeUnit", "ms", "traceEvents", events);
}

bool gw_cli_trace_write(const char *path, const gw_cli_scene *scene, const gw_plan *plan,
                        bool one_channel)
{
    const size_t n = gw_plan_count(plan);
    size_t room = 0;
    gw_why why = {""};
    gw_plan_entry *entries = calloc(n, sizeof *entries);
    room = n * (size_t)2 * GW_TIMELINE_MAX_OPS;
    gw_interval *intervals = calloc(room, sizeof *intervals);
    bool fine = entries && intervals;
    if (!fine) {
        gw_cli_out_of_memory();
    }
    for (size_t i = 0; fine && i < n; i++) {
        (void)gw_plan_entry_at(plan, i, &entries[i]);
    }
    if (fine && gw_plan_draw(&scene->job.job, &scene->cluster.cluster, entries, n, one_channel,
                             intervals, &room, &why) != GW_OK) {
        gw_cli_error("%s", why.text);
        fine = false;
    }
    fine = fine && gw_cli_json_write(path, trace_json(scene, intervals, room));
    free(entries);
    free(intervals);
    return fine;
}
