/* The whole: a job, a cluster and errors in, a plan within the budget and its report out. */
#include "plan/joint_alone.h"
#include "plan/joint_search.h"
#include "plan/plan_struct.h"
#include "plan/predict.h"

#include "base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Timeline events of one search. */
#define EVENT_LIMIT UINT64_C(6000000)
/* With more pairs of size and spec than these, routes that code on several devices are left out. */
enum { MANY_PRICES = 2048 };

typedef struct planner {
    const gw_job *job;
    const gw_cluster *cluster;
    const gw_joint_request *request;
    gw_joint_table table;
    gw_pricer pricer;
    gw_size_store store;
    uint32_t *level; /* of each tensor: the spec with which all together have the fewest bytes */
    gw_plan_entry *cut;
    unsigned n_rules;
    uint64_t evaluations;
    gw_joint_found best, levels, routes, trial;
    double dense; /* seconds of a step */
    int close;    /* the best is within a hundredth of a bound */
} planner;

/* ---- what is found ---- */

static int is_better(const gw_joint_found *a, const gw_joint_found *b)
{
    return a->makespan < b->makespan || (a->makespan == b->makespan && a->error < b->error);
}

static void keep(const planner *p, const gw_joint_found *found, gw_joint_found *as)
{
    if (found->makespan != GW_NEVER && found->error <= p->table.budget && is_better(found, as)) {
        as->makespan = found->makespan;
        as->error = found->error;
        memcpy(as->entry, found->entry, p->job->n * sizeof *as->entry);
    }
}

static double step_of(const planner *p, const gw_joint_found *found)
{
    return found->makespan == GW_NEVER ? (double)NAN : gw_step_seconds(p->job, found->makespan);
}

/* ---- cuts ---- */

/* Buckets of a rule in p->cut; with `level` only tensors of one level stay together. */
static gw_status cut(planner *p, gw_fusion_rule rule, const uint32_t *level, gw_why *why)
{
    gw_problem x;
    const gw_status status = gw_problem_create(&x, p->job, rule, why);
    if (status != GW_OK) {
        return status;
    }
    uint32_t bucket = 0;
    for (uint32_t b = 0; b < x.buckets; b++) {
        for (uint32_t i = x.first[b]; i < x.first[b + 1]; i++) {
            const int joins = i > x.first[b] && (level == NULL || level[i] == level[i - 1]);
            bucket += (uint32_t)(i > 0 && !joins);
            p->cut[i] = (gw_plan_entry){.tensor = i, .bucket = bucket};
        }
    }
    gw_problem_destroy(&x);
    return GW_OK;
}

static int same_cut(const planner *p, const gw_plan_entry *a, const gw_plan_entry *b)
{
    for (size_t i = 0; i < p->job->n; i++) {
        if (a[i].bucket != b[i].bucket) {
            return 0;
        }
    }
    return 1;
}

/* ---- alone ---- */

/* With the buckets of p->cut. */
static gw_status alone(planner *p, gw_alone kind, int whole, gw_joint_found *as, gw_why *why)
{
    gw_joint_problem problem;
    const gw_alone_rules rules = {.kind = kind,
                                  .level = p->level,
                                  .alpha = p->request->alpha,
                                  .whole = whole,
                                  .device = p->pricer.devices & GW_DEVICE_GPU ? GW_CODING_GPU
                                                                              : GW_CODING_CPU,
                                  .event_limit = EVENT_LIMIT};
    gw_status status =
        gw_joint_problem_create(&problem, p->job, p->cut, &p->table, &p->pricer, &p->store, why);
    if (status == GW_OK) {
        status = gw_joint_alone(&problem, &rules, &p->trial, &p->evaluations, why);
        gw_joint_problem_destroy(&problem);
    }
    if (status == GW_OK) {
        keep(p, &p->trial, as);
    }
    return status;
}

/* The way to fuse that a greedy pass likes best, and no fusion: both in full. */
static gw_status alone_best(planner *p, gw_alone look, gw_alone kind, gw_joint_found *as,
                            gw_why *why)
{
    const uint32_t *level = kind == GW_ALONE_LEVELS ? p->level : NULL;
    gw_ticks least = GW_NEVER;
    unsigned best = 0;
    gw_status status = GW_OK;
    for (unsigned i = 0; i < p->n_rules && p->n_rules > 1 && status == GW_OK; i++) {
        status = cut(p, GW_FUSION[i], level, why);
        status = status == GW_OK ? alone(p, look, 0, as, why) : status;
        if (status == GW_OK && p->trial.makespan < least) {
            least = p->trial.makespan;
            best = i;
        }
    }
    for (unsigned i = 0; i < 2 && status == GW_OK; i++) {
        if (i == 0 || best != 0) {
            status = cut(p, GW_FUSION[i == 0 ? 0 : best], level, why);
            status = status == GW_OK ? alone(p, kind, 1, as, why) : status;
        }
    }
    return status;
}

/* Nothing compressed, along each route that is allowed. */
static gw_status try_dense(planner *p, gw_why *why)
{
    gw_ticks least = GW_NEVER;
    for (unsigned i = 0; i < p->n_rules; i++) {
        for (uint32_t k = 0; k < p->pricer.n_skeletons; k++) {
            const gw_route *route = &p->pricer.skeleton[k];
            if (gw_route_encodes(route) != 0 || gw_price_forbidden(&p->pricer, route)) {
                continue;
            }
            const gw_uniform all = {.route = route};
            gw_status status =
                gw_predict_uniform(&p->pricer, p->job, GW_FUSION[i], &all, &p->trial.makespan, why);
            status = status == GW_OK
                         ? gw_entries_uniform(p->job, GW_FUSION[i], &all, p->trial.entry, why)
                         : status;
            if (status != GW_OK) {
                return status;
            }
            p->evaluations++;
            p->trial.error = 0;
            keep(p, &p->trial, &p->best);
            least = p->trial.makespan < least ? p->trial.makespan : least;
        }
    }
    p->trial.makespan = least;
    p->dense = step_of(p, &p->trial);
    return GW_OK;
}

/* ---- together ---- */

/* The option of bucket b that is nearest to what the entries say: the same, or else the quickest of no more error. */
static uint32_t option_like(const gw_joint_problem *x, uint32_t b, const gw_plan_entry *entry)
{
    const gw_menu *m = &x->menu[b];
    uint32_t best = 0;
    double error = 0;
    for (uint32_t i = x->x.first[b]; i < x->x.first[b + 1]; i++) {
        const gw_params *params = &entry[i].params;
        uint32_t spec = 0;
        while (params->codec != NULL && spec < x->table->n_specs &&
               !gw_params_equal(&x->table->specs[spec], params)) {
            spec++;
        }
        error += gw_route_encodes(&entry[i].route) *
                 x->table->error[(size_t)i * x->table->n_specs + spec];
    }
    const gw_plan_entry *first = &entry[x->x.first[b]];
    for (uint32_t k = 0; k < m->n && m->item[k].error <= error; k++) {
        const gw_choice *c = m->item[k].of;
        if (gw_route_equal(&c->route, &first->route) &&
            gw_params_equal(&x->table->specs[c->spec], &first->params)) {
            return k;
        }
        best = gw_choice_alone(c) < gw_choice_alone(m->item[best].of) ? k : best;
    }
    return best;
}

static void start_from(gw_joint_search *s, const gw_joint_found *found)
{
    if (found->makespan == GW_NEVER) {
        return;
    }
    for (uint32_t b = 0; b < s->p->x.buckets; b++) {
        s->spare[b] = option_like(s->p, b, found->entry);
    }
    s->until = s->line.events + s->event_limit / 10;
    gw_joint_try(s, s->spare);
}

static void write_best(planner *p, const gw_joint_search *s)
{
    p->trial.makespan = s->best;
    p->trial.error = s->best_error;
    for (uint32_t b = 0; b < s->p->x.buckets && s->best != GW_NEVER; b++) {
        const gw_choice *c = s->p->menu[b].item[s->best_pick[b]].of;
        for (uint32_t i = s->p->x.first[b]; i < s->p->x.first[b + 1]; i++) {
            p->trial.entry[i] = (gw_plan_entry){
                .tensor = i, .bucket = b, .params = p->table.specs[c->spec], .route = c->route};
        }
    }
    keep(p, &p->trial, &p->best);
}

static gw_status search(planner *p, gw_joint_problem *x, gw_why *why)
{
    gw_joint_search s;
    gw_status status = gw_joint_search_create(&s, x, &p->pricer.rules, why);
    if (status != GW_OK) {
        return status;
    }
    gw_joint_bound(x, p->pricer.rules.cpu_workers, &s.dual);
    s.event_limit = EVENT_LIMIT;
    const double price = s.dual.price > 0 ? s.dual.price
                         : isfinite(p->table.budget) && p->table.budget > 0
                             ? (double)s.dual.bound / p->table.budget
                             : 1;
    if (gw_joint_find_some(x, price)) {
        start_from(&s, &p->levels);
        start_from(&s, &p->routes);
        gw_joint_run(&s);
        write_best(p, &s);
        p->close |= p->best.makespan <= s.dual.bound + s.dual.bound / 100;
    } else {
        status = GW_FAIL(why, GW_ERR_MEMORY, "no memory to plan %u buckets", x->x.n);
    }
    p->evaluations += s.line.evaluations;
    gw_joint_search_destroy(&s);
    return status;
}

/* With the buckets of p->cut; `bound` NULL: search, else only the bound. */
static gw_status together(planner *p, gw_ticks *bound, gw_why *why)
{
    gw_joint_problem x;
    gw_status status =
        gw_joint_problem_create(&x, p->job, p->cut, &p->table, &p->pricer, &p->store, why);
    if (status != GW_OK) {
        return status;
    }
    status = gw_joint_fill(&x, why);
    if (status == GW_OK && bound != NULL) {
        gw_dual dual;
        gw_joint_bound(&x, p->pricer.rules.cpu_workers, &dual);
        *bound = dual.bound;
    } else if (status == GW_OK) {
        status = search(p, &x, why);
    }
    gw_joint_problem_destroy(&x);
    return status;
}

/* Without fusion, then with the buckets that the two found best, each once; then all other ways to fuse, unless the best is
 * known to be good. */
static gw_status search_cuts(planner *p, gw_why *why)
{
    const gw_joint_found *const from[] = {&p->levels, &p->routes};
    gw_status status = cut(p, GW_FUSION[0], NULL, why);
    status = status == GW_OK ? together(p, NULL, why) : status;
    for (unsigned i = 0; i < 2 && status == GW_OK; i++) {
        const int seen = from[i]->makespan == GW_NEVER ||
                         from[i]->entry[p->job->n - 1].bucket + 1 == p->job->n ||
                         (i == 1 && same_cut(p, from[0]->entry, from[1]->entry));
        if (!seen) {
            memcpy(p->cut, from[i]->entry, p->job->n * sizeof *p->cut);
            status = together(p, NULL, why);
        }
    }
    for (unsigned i = 1; i < p->n_rules && status == GW_OK && !p->close; i++) {
        status = cut(p, GW_FUSION[i], NULL, why);
        status = status == GW_OK ? together(p, NULL, why) : status;
    }
    return status;
}

/* ---- the whole ---- */

static gw_status prepare(planner *p, gw_why *why)
{
    const gw_joint_request *r = p->request;
    gw_status status = gw_joint_table_create(&p->table, p->job, r, why);
    status =
        status == GW_OK ? gw_pricer_create(&p->pricer, p->cluster, p->job->dtype, why) : status;
    size_t sizes = 0;
    status = status == GW_OK ? gw_price_exchange(&p->pricer, p->job, why) : status;
    status = status == GW_OK ? gw_job_sizes(p->job, &sizes, why) : status;
    if (status != GW_OK) {
        return status;
    }
    p->pricer.specs = p->table.specs;
    p->pricer.n_specs = p->table.n_specs;
    p->pricer.devices &= r->devices != 0 ? r->devices : UINT32_MAX;
    p->pricer.max_hops = r->max_hops;
    p->pricer.forbidden = r->forbidden;
    p->pricer.n_forbidden = r->n_forbidden;
    p->pricer.rules.one_channel = r->one_channel;
    p->pricer.one_device = sizes * p->table.n_specs > MANY_PRICES;
    p->n_rules = r->no_fusion ? 1 : GW_FUSIONS;
    p->level = calloc(p->job->n, sizeof *p->level);
    p->cut = calloc(p->job->n, sizeof *p->cut);
    gw_joint_found *const all[] = {&p->best, &p->levels, &p->routes, &p->trial};
    int fine = p->level != NULL && p->cut != NULL;
    for (unsigned i = 0; i < 4; i++) {
        *all[i] = (gw_joint_found){.makespan = GW_NEVER,
                                   .entry = calloc(p->job->n, sizeof *p->best.entry)};
        fine = fine && all[i]->entry != NULL;
    }
    return fine ? gw_pricer_check(&p->pricer, why)
                : GW_FAIL(why, GW_ERR_MEMORY, "no memory for a plan of %zu tensors", p->job->n);
}

static void release(planner *p)
{
    gw_joint_table_destroy(&p->table);
    gw_pricer_destroy(&p->pricer);
    gw_size_store_free(&p->store);
    free(p->level);
    free(p->cut);
    free(p->best.entry);
    free(p->levels.entry);
    free(p->routes.entry);
    free(p->trial.entry);
}

static void report(const planner *p, gw_ticks bound, gw_joint_report *r)
{
    *r = (gw_joint_report){.budget = p->table.budget,
                           .error = p->best.error,
                           .step = step_of(p, &p->best),
                           .dense = p->dense,
                           .levels_alone = step_of(p, &p->levels),
                           .levels_error = p->levels.error,
                           .routes_alone = step_of(p, &p->routes),
                           .routes_error = p->routes.error,
                           .evaluations = p->evaluations,
                           .candidates = p->pricer.front.offered};
    r->lower_bound = gw_step_seconds(p->job, bound);
    for (size_t i = 0; i < p->job->n; i++) {
        const int first = i == 0 || p->best.entry[i].bucket != p->best.entry[i - 1].bucket;
        r->buckets += (uint32_t)first;
        r->compressed += (uint32_t)(first && p->best.entry[i].params.codec != NULL);
    }
}

/* What a plan's own report can say of it. */
static gw_status hand_over(planner *p, const gw_joint_report *r, gw_plan *plan, gw_why *why)
{
    const double unknown = (double)NAN;
    gw_ticks makespan = 0;
    plan->report = (gw_plan_report){.step = r->step,
                                    .dense = r->dense,
                                    .bf16 = unknown,
                                    .all_compressed = unknown,
                                    .zero_cost = unknown,
                                    .lower_bound = r->lower_bound,
                                    .dense_high = unknown,
                                    .evaluations = r->evaluations,
                                    .candidates = r->candidates,
                                    .dominated = p->pricer.front.dropped,
                                    .buckets = r->buckets,
                                    .compressed = r->compressed};
    p->pricer.sigma = 1;
    const gw_status status =
        gw_predict_entries(&p->pricer, p->job, p->best.entry, &makespan, NULL, NULL, why);
    plan->report.step_high = gw_step_seconds(p->job, makespan);
    plan->entry = p->best.entry;
    plan->n = p->job->n;
    p->best.entry = NULL;
    return status;
}

static gw_status make(planner *p, gw_plan *plan, gw_joint_report *out, gw_why *why)
{
    gw_ticks bound = 0;
    gw_status status = prepare(p, why);
    status = status == GW_OK ? gw_joint_levels(p->job, &p->table, p->request->alpha, p->level, why)
                             : status;
    status = status == GW_OK ? try_dense(p, why) : status;
    status =
        status == GW_OK ? alone_best(p, GW_ALONE_LEVELS, GW_ALONE_LEVELS, &p->levels, why) : status;
    status = status == GW_OK ? alone_best(p, GW_ALONE_DEFAULT, GW_ALONE_ROUTES, &p->routes, why)
                             : status;
    if (status == GW_OK) {
        keep(p, &p->levels, &p->best);
        keep(p, &p->routes, &p->best);
        status = search_cuts(p, why);
    }
    if (status == GW_OK) {
        memcpy(p->cut, p->best.entry, p->job->n * sizeof *p->cut);
        status = together(p, &bound, why);
    }
    if (status == GW_OK) {
        report(p, bound, out);
        status = hand_over(p, out, plan, why);
    }
    release(p);
    return status;
}

static gw_status check(const gw_job *job, const gw_cluster *cluster, gw_why *why)
{
    const gw_status status = gw_job_check(job, why);
    return status == GW_OK ? gw_cluster_check(cluster, why) : status;
}

gw_status gw_joint_create(const gw_job *job, const gw_cluster *cluster,
                          const gw_joint_request *request, gw_plan **plan, gw_joint_report *out,
                          gw_why *why)
{
    if (job == NULL || cluster == NULL || request == NULL || plan == NULL || out == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "no job, no cluster or nothing asked");
    }
    gw_status status = check(job, cluster, why);
    if (status != GW_OK) {
        return status;
    }
    gw_plan *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for a plan");
    }
    planner p = {.job = job, .cluster = cluster, .request = request};
    gw_joint_report found;
    status = make(&p, made, &found, why);
    if (status != GW_OK) {
        gw_plan_destroy(made);
        return status;
    }
    *plan = made;
    *out = found;
    return GW_OK;
}

gw_status gw_joint_bound_of(const gw_job *job, const gw_cluster *cluster,
                            const gw_joint_request *request, const gw_plan_entry *entries, size_t n,
                            double *seconds, gw_why *why)
{
    if (job == NULL || cluster == NULL || request == NULL || entries == NULL || seconds == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "no job, no cluster, no plan or nothing asked");
    }
    gw_status status = check(job, cluster, why);
    if (status == GW_OK && n != job->n) {
        return GW_FAIL(why, GW_ERR_ARG, "the plan has %zu tensors, the job %zu", n, job->n);
    }
    if (status != GW_OK) {
        return status;
    }
    planner p = {.job = job, .cluster = cluster, .request = request};
    gw_ticks bound = 0;
    status = prepare(&p, why);
    if (status == GW_OK) {
        memcpy(p.cut, entries, n * sizeof *p.cut);
        status = together(&p, &bound, why);
    }
    if (status == GW_OK) {
        *seconds = gw_step_seconds(job, bound);
    }
    release(&p);
    return status;
}
