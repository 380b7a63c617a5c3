#include "cli/plan/plan_text.h"

#include <stdio.h>

#include "cli/json_out.h"
#include "cli/say.h"
#include "cli/table.h"

static const double GBITS[] = {0.1, 1, 10, 25, 100, 400};
static const uint32_t RANKS[] = {2, 8, 64, 512, 2048, 10000};

typedef struct cases {
    gw_cli_table *table;
    json_t *json;
    const gw_cli_scene *scene;
    const gw_plan_request *request;
} cases;

static bool one_case(const cases *x, uint32_t nodes, double rate)
{
    gw_cluster c = x->scene->cluster.cluster;
    gw_plan *plan = NULL;
    gw_why why = {""};
    c.nodes = nodes;
    c.inter.rate = rate;
    if (c.nodes > 1 && c.inter.rate == 0) {
        return true; /* a cluster of one node says nothing about a network */
    }
    if (gw_plan_create(&x->scene->job.job, &c, x->request, &plan, &why) != GW_OK) {
        gw_cli_error("%u nodes, %g Gbit/s: %s", nodes, rate * 8e-9, why.text);
        return false;
    }
    const gw_plan_report r = gw_plan_report_of(plan);
    gw_plan_destroy(plan);
    if (x->table) {
        gw_cli_table_cell(x->table, "%u", nodes);
        gw_cli_table_cell(x->table, "%u", nodes * c.ranks_per_node);
        gw_cli_table_cell(x->table, "%g", rate * 8e-9);
        gw_cli_table_cell(x->table, "%.2f", r.dense * 1e3);
        gw_cli_table_cell(x->table, "%.2f", r.bf16 * 1e3);
        gw_cli_table_cell(x->table, "%.2f", r.step * 1e3);
        gw_cli_table_cell(x->table, "%.2f", r.dense / r.step);
        gw_cli_table_cell(x->table, "%u of %u", r.compressed, r.buckets);
        return true;
    }
    json_array_append_new(x->json, json_pack("{s:o, s:o, s:f, s:f, s:f, s:f}", "nodes",
                                             gw_cli_json_count(nodes), "ranks",
                                             gw_cli_json_count((uint64_t)nodes * c.ranks_per_node),
                                             "gbit_per_s", rate * 8e-9, "dense_ms", r.dense * 1e3,
                                             "bf16_ms", r.bf16 * 1e3, "step_ms", r.step * 1e3));
    return true;
}

json_t *gw_cli_what_if(const gw_cli_scene *scene, const gw_plan_request *request, bool *fine)
{
    static const gw_cli_column COLUMNS[] = {
        {"nodes", true},   {"ranks", true},   {"Gbit/s", true},   {"dense ms", true},
        {"bf16 ms", true}, {"plan ms", true}, {"speed-up", true}, {"coded", true}};
    gw_cli_table table = {.columns = COLUMNS, .n_columns = 8};
    const gw_cluster *c = &scene->cluster.cluster;
    const cases x = {fine ? &table : NULL, fine ? NULL : json_array(), scene, request};
    bool good = true;
    for (size_t i = 0; good && i < sizeof GBITS / sizeof GBITS[0]; i++) {
        good = one_case(&x, c->nodes, GBITS[i] * 1e9 / 8);
    }
    for (size_t i = 0; good && i < sizeof RANKS / sizeof RANKS[0]; i++) {
        if (RANKS[i] / c->ranks_per_node > 0) {
            good = one_case(&x, RANKS[i] / c->ranks_per_node, c->inter.rate);
        }
    }
    if (fine) {
        (void)puts("");
        *fine = good && gw_cli_table_print(&table);
        if (!good) {
            gw_cli_table_free(&table);
        }
    }
    return x.json;
}
