#include "cli/plan/plan_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plan/planfile.h"
#include "cli/say.h"
#include "cli/table.h"

/* ---- summary ---- */

static void print_times(const gw_plan_report *r, gw_dtype dtype)
{
    const bool half = dtype == GW_F16 || dtype == GW_BF16;
    const struct {
        const char *name;
        double seconds;
        const char *meaning;
    } lines[] = {
        {"plan", r->step, "what was chosen"},
        {"dense", r->dense, "no compression: the best uncompressed route and fusion for all"},
        {"bf16", r->bf16,
         half ? "gradients have 16 bits already"
              : "cast:to=bf16 for all, along its best everyday route"},
        {"all compressed", r->all_compressed,
         "one of the codecs for all, along its best everyday route"},
        {"free coding", r->zero_cost, "if coding took no time"},
        {"bound", r->lower_bound, "no plan with these buckets can be faster"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        if (isnan(lines[i].seconds)) { /* nothing may code */
            continue;
        }
        (void)printf("%-15s %10.3f ms  %6.2fx  %s\n", lines[i].name, lines[i].seconds * 1e3,
                     r->dense / lines[i].seconds, lines[i].meaning);
    }
}

typedef struct way {
    gw_plan_entry like;
    size_t tensors, buckets;
    uint64_t elements;
} way;

static bool same_way(const gw_plan_entry *a, const gw_plan_entry *b)
{
    return gw_route_equal(&a->route, &b->route) && gw_params_equal(&a->params, &b->params);
}

static int by_elements(const void *a, const void *b)
{
    const way *x = a, *y = b;
    return x->elements != y->elements
               ? (x->elements < y->elements) - (x->elements > y->elements)
               : memcmp(&x->like.route, &y->like.route, sizeof x->like.route);
}

bool gw_cli_plan_ways(const gw_cli_scene *scene, const gw_plan *plan)
{
    static const gw_cli_column COLUMNS[] = {{"tensors", true},
                                            {"sent as", true},
                                            {"elements", true},
                                            {"spec", false},
                                            {"route", false}};
    gw_cli_table table = {.columns = COLUMNS, .n_columns = 5};
    const size_t n = gw_plan_count(plan);
    way *ways = calloc(n, sizeof *ways);
    size_t n_ways = 0;
    uint32_t last = UINT32_MAX;
    if (!ways) {
        gw_cli_out_of_memory();
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        gw_plan_entry entry;
        size_t w = 0;
        (void)gw_plan_entry_at(plan, i, &entry);
        while (w < n_ways && !same_way(&ways[w].like, &entry)) {
            w++;
        }
        n_ways += w == n_ways;
        ways[w].like = entry;
        ways[w].tensors++;
        ways[w].buckets += entry.bucket != last;
        ways[w].elements += scene->job.job.tensors[i].elements;
        last = entry.bucket;
    }
    qsort(ways, n_ways, sizeof *ways, by_elements);
    for (size_t w = 0; w < n_ways; w++) {
        char spec[256], route[GW_ROUTE_TEXT];
        gw_cli_entry_spec(&ways[w].like, spec, sizeof spec);
        (void)gw_route_print(&ways[w].like.route, route, sizeof route);
        gw_cli_table_cell(&table, "%zu", ways[w].tensors);
        gw_cli_table_cell(&table, "%zu", ways[w].buckets);
        gw_cli_table_cell(&table, "%llu", (unsigned long long)ways[w].elements);
        gw_cli_table_cell(&table, "%s", spec);
        gw_cli_table_cell(&table, "%s", route);
    }
    free(ways);
    return gw_cli_table_print(&table);
}

bool gw_cli_plan_summary(const gw_cli_scene *scene, const gw_plan *plan, double select_ms)
{
    const gw_plan_report r = gw_plan_report_of(plan);
    const gw_cluster *c = &scene->cluster.cluster;
    (void)printf("%s: %zu tensors on %s, %u nodes of %u ranks\n\n", scene->job.job.name,
                 scene->job.job.n, c->name, c->nodes, c->ranks_per_node);
    print_times(&r, scene->job.job.dtype);
    (void)printf("\nAt most %.2f %% above the fastest plan there is. One deviation slower: plan "
                 "%.3f ms, dense "
                 "%.3f ms.\nSelected in %.1f ms: %llu candidates, %llu of them dominated, %llu "
                 "timelines, %llu "
                 "moves not worth one.\n\n",
                 (r.step / r.lower_bound - 1) * 100, r.step_high * 1e3, r.dense_high * 1e3,
                 select_ms, (unsigned long long)r.candidates, (unsigned long long)r.dominated,
                 (unsigned long long)r.evaluations, (unsigned long long)r.untried);
    return gw_cli_plan_ways(scene, plan);
}

/* ---- why ---- */

typedef struct explainer {
    const gw_cli_scene *scene;
    const gw_plan_request *request;
    gw_plan_entry *entries, *changed;
    size_t n;
} explainer;

typedef struct bucket {
    size_t first, n;
    uint64_t elements;
} bucket;

static int by_size(const void *a, const void *b)
{
    const bucket *x = a, *y = b;
    return x->elements != y->elements ? (x->elements < y->elements) - (x->elements > y->elements)
                                      : (x->first > y->first) - (x->first < y->first);
}

/* The step if this bucket went that way; a negative number if it cannot. */
static double step_if(const explainer *x, const bucket *b, const gw_params *params,
                      const gw_route *route)
{
    double seconds = -1;
    memcpy(x->changed, x->entries, x->n * sizeof *x->entries);
    for (size_t i = b->first; i < b->first + b->n; i++) {
        x->changed[i].route = *route;
        x->changed[i].params = params ? *params : (gw_params){.codec = NULL};
    }
    return gw_plan_predict(&x->scene->job.job, &x->scene->cluster.cluster, x->changed, x->n,
                           x->request->one_channel, &seconds, NULL) == GW_OK
               ? seconds
               : -1;
}

/* The fastest step with this spec for the bucket, over the everyday routes and devices. */
static double best_if(const explainer *x, const bucket *b, const gw_params *params, char *name,
                      size_t size)
{
    double best = -1;
    for (size_t i = 0; i < 2 * gw_route_name_count(); i++) {
        char text[64];
        gw_route route;
        const char *device = i % 2 ? "@gpu" : "@cpu";
        (void)snprintf(text, sizeof text, "%s%s", gw_route_name_at(i / 2)->name,
                       params ? device : "");
        if (gw_route_parse(&route, text, NULL) != GW_OK ||
            gw_route_fits(&route, params, NULL) != GW_OK) {
            continue;
        }
        const double step = step_if(x, b, params, &route);
        if (step >= 0 && (best < 0 || step < best)) {
            best = step;
            (void)snprintf(name, size, "%s", text);
        }
    }
    return best;
}

static void explain_bucket(const explainer *x, const bucket *b, double step)
{
    const gw_plan_entry *e = &x->entries[b->first];
    char spec[256], route[GW_ROUTE_TEXT], name[64] = "";
    gw_cli_entry_spec(e, spec, sizeof spec);
    (void)gw_route_print(&e->route, route, sizeof route);
    (void)printf("\n%s", x->scene->job.job.tensors[b->first].name);
    if (b->n > 1) {
        (void)printf(" and %zu more", b->n - 1);
    }
    (void)printf(", %llu elements: %s\n  %s\n", (unsigned long long)b->elements, spec, route);
    const double dense = best_if(x, b, NULL, name, sizeof name);
    (void)printf("  uncompressed (%s) the step would take %+.3f ms\n", name, (dense - step) * 1e3);
    for (size_t i = 0; i < x->request->n_specs; i++) {
        const double other = best_if(x, b, &x->request->specs[i], name, sizeof name);
        char text[256] = "";
        (void)gw_params_print(&x->request->specs[i], text, sizeof text);
        if (other >= 0) {
            (void)printf("  %s (%s): %+.3f ms\n", text, name, (other - step) * 1e3);
        }
    }
}

static size_t buckets_of(const explainer *x, bucket *out)
{
    size_t n = 0;
    for (size_t i = 0; i < x->n; i++) {
        if (i == 0 || x->entries[i].bucket != x->entries[i - 1].bucket) {
            out[n++] = (bucket){.first = i};
        }
        out[n - 1].n++;
        out[n - 1].elements += x->scene->job.job.tensors[i].elements;
    }
    qsort(out, n, sizeof *out, by_size);
    return n;
}

bool gw_cli_plan_explain(const gw_cli_scene *scene, const gw_plan_request *request,
                         const gw_plan *plan)
{
    explainer x = {.scene = scene, .request = request, .n = gw_plan_count(plan)};
    const double step = gw_plan_report_of(plan).step;
    bucket *buckets = calloc(x.n, sizeof *buckets);
    x.entries = calloc(x.n, sizeof *x.entries);
    x.changed = calloc(x.n, sizeof *x.changed);
    const bool fine = buckets && x.entries && x.changed;
    if (fine) {
        for (size_t i = 0; i < x.n; i++) {
            (void)gw_plan_entry_at(plan, i, &x.entries[i]);
        }
        const size_t n = buckets_of(&x, buckets);
        for (size_t i = 0; i < n && i < 10; i++) {
            explain_bucket(&x, &buckets[i], step);
        }
    } else {
        gw_cli_out_of_memory();
    }
    free(buckets);
    free(x.entries);
    free(x.changed);
    return fine;
}
