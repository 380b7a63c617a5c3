/* The whole: a job and a cluster in, a plan and its report out. */
#include "plan/plan_struct.h"
#include "plan/predict.h"
#include "plan/search.h"

#include "base/why.h"

#include <math.h>
#include <stdlib.h>

/* Timeline events after which no new round of moves begins, for 4341 routes and for 174: half a second, and some
 * hundredths. */
#define EVENT_LIMIT            UINT64_C(10000000)
#define EVENT_LIMIT_ONE_DEVICE UINT64_C(400000)

static const double NEVER = 1e30; /* seconds */
/* With more sizes than these, routes that code on several devices are left out: each size is priced by itself. */
enum { MANY_SIZES = 256 };

typedef struct planner {
    const gw_job *job;
    const gw_cluster *cluster;
    const gw_plan_request *request;
    gw_params *specs; /* [0] is nothing */
    uint32_t n_specs;
    uint32_t
        given; /* the first of the caller's; before it bf16, for fp32 gradients in a build that has it */
    gw_pricer pricer;
    gw_class_store store;
    unsigned n_rules;
    gw_plan_report report;
    gw_ticks best; /* makespan of `entry` */
    gw_plan_entry *entry;
    gw_fusion_rule rule; /* that of the best */
    int some_plain;      /* the job has tensors that no codec may take */
    gw_route dense; /* the best for everything uncompressed: that of tensors no codec may take */
} planner;

/* ---- what is asked ---- */

static gw_status collect_specs(planner *p, gw_why *why)
{
    const gw_plan_request *r = p->request;
    p->specs = calloc(r->n_specs + 2, sizeof *p->specs);
    p->entry = calloc(p->job->n, sizeof *p->entry);
    if (p->specs == NULL || p->entry == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for a plan of %zu tensors", p->job->n);
    }
    const int casts = p->pricer.width == 4; /* else it would spare nothing */
    p->given = casts && gw_params_parse(&p->specs[1], "cast:to=bf16", NULL) == GW_OK ? 2 : 1;
    p->n_specs = p->given;
    for (size_t i = 0; i < r->n_specs; i++) {
        const int twice = p->given == 2 && gw_params_equal(&r->specs[i], &p->specs[1]);
        if (!twice) {
            p->specs[p->n_specs++] = r->specs[i];
        }
    }
    p->pricer.specs = p->specs;
    p->pricer.n_specs = p->n_specs;
    p->pricer.devices &= r->devices != 0 ? r->devices : UINT32_MAX;
    p->pricer.max_hops = r->max_hops;
    p->pricer.forbidden = r->forbidden;
    p->pricer.n_forbidden = r->n_forbidden;
    p->pricer.rules.one_channel = r->one_channel;
    return gw_pricer_check(&p->pricer, why);
}

/* ---- baselines ---- */

/* One spec along one route for every bucket, which is what baselines are of; kept if it is the fastest so far, with
 * those buckets uncompressed that no codec may take. */
static gw_status try_uniform(planner *p, gw_fusion_rule rule, const gw_params *spec,
                             const gw_route *route, double *fastest, gw_why *why)
{
    gw_ticks makespan = GW_NEVER;
    gw_uniform all = {spec, route, NULL};
    gw_status status = gw_predict_uniform(&p->pricer, p->job, rule, &all, &makespan, why);
    if (status != GW_OK) {
        return status;
    }
    p->report.evaluations++;
    const double step = gw_step_seconds(p->job, makespan);
    if (spec == NULL && step < *fastest) {
        p->dense = *route;
    }
    *fastest = step < *fastest ? step : *fastest;
    if (spec != NULL && p->some_plain) {
        all.plain = &p->dense;
        status = gw_predict_uniform(&p->pricer, p->job, rule, &all, &makespan, why);
        p->report.evaluations++;
    }
    if (status == GW_OK && makespan < p->best) {
        p->best = makespan;
        p->rule = rule;
        p->rule.mixed = all.plain == NULL;
        status = gw_entries_uniform(p->job, rule, &all, p->entry, why);
    }
    return status;
}

/* The everyday compressed routes, on each device that can. */
static gw_status try_everyday(planner *p, gw_fusion_rule rule, const gw_params *spec,
                              double *fastest, gw_why *why)
{
    static const char *const DEVICES[2] = {"gpu", "cpu"};
    for (size_t i = 0; i < 2 * gw_route_name_count(); i++) {
        const gw_device device = i % 2 == 0 ? GW_DEVICE_GPU : GW_DEVICE_CPU;
        char text[64];
        gw_route route;
        (void)gw_text_join(text, sizeof text, gw_route_name_at(i / 2)->name, DEVICES[i % 2]);
        if (!(p->pricer.devices & device) || gw_cluster_codec(p->cluster, spec, device) == NULL ||
            gw_route_parse(&route, text, NULL) != GW_OK ||
            gw_route_fits(&route, spec, NULL) != GW_OK ||
            (p->request->max_hops != 0 && gw_route_encodes(&route) > p->request->max_hops)) {
            continue;
        }
        const gw_status status = try_uniform(p, rule, spec, &route, fastest, why);
        if (status != GW_OK) {
            return status;
        }
    }
    return GW_OK;
}

static gw_status try_dense(planner *p, gw_fusion_rule rule, gw_why *why)
{
    for (uint32_t i = 0; i < p->pricer.n_skeletons; i++) {
        const gw_route *route = &p->pricer.skeleton[i];
        if (gw_route_encodes(route) != 0) {
            continue;
        }
        const gw_status status = try_uniform(p, rule, NULL, route, &p->report.dense, why);
        if (status != GW_OK) {
            return status;
        }
    }
    return GW_OK;
}

static gw_status try_baselines(planner *p, gw_why *why)
{
    p->report.dense = p->report.bf16 = p->report.all_compressed = NEVER;
    gw_status status = GW_OK;
    for (unsigned i = 0; i < p->n_rules && status == GW_OK; i++) {
        status = try_dense(p, GW_FUSION[i], why);
        status = status == GW_OK && p->given == 2
                     ? try_everyday(p, GW_FUSION[i], &p->specs[1], &p->report.bf16, why)
                     : status;
        for (uint32_t k = p->n_specs > p->given ? p->given : 1; k < p->n_specs && status == GW_OK;
             k++) {
            status = try_everyday(p, GW_FUSION[i], &p->specs[k], &p->report.all_compressed, why);
        }
    }
    return status;
}

/* ---- the search ---- */

static void keep_picks(planner *p, const gw_problem *x, const gw_search *s)
{
    for (uint32_t b = 0; b < x->buckets; b++) {
        const gw_choice *c = &x->class_of[b]->choice[s->pick[b]];
        for (uint32_t i = x->first[b]; i < x->first[b + 1]; i++) {
            p->entry[i] = (gw_plan_entry){.tensor = i, .bucket = b, .route = c->route};
            if (c->spec != 0) {
                p->entry[i].params = p->specs[c->spec];
            }
        }
    }
}

/* A greedy pass, or the whole search; kept if it is the best so far. */
static gw_status search_rule(planner *p, gw_fusion_rule rule, int whole, gw_ticks *reached,
                             gw_why *why)
{
    gw_problem x;
    gw_search s;
    gw_status status = gw_problem_create(&x, p->job, rule, why);
    if (status != GW_OK) {
        return status;
    }
    status = gw_problem_price(&x, &p->pricer, &p->store, why);
    if (status == GW_OK) {
        status = gw_search_create(&s, &p->pricer.rules, x.compute, x.class_of, x.n, why);
    }
    if (status == GW_OK) {
        s.device = p->pricer.devices & GW_DEVICE_GPU ? GW_CODING_GPU : GW_CODING_CPU;
        const int both = p->pricer.devices == (GW_DEVICE_CPU | GW_DEVICE_GPU);
        s.event_limit = (both ? EVENT_LIMIT : EVENT_LIMIT_ONE_DEVICE) / (p->n_rules > 1 ? 2 : 1);
        s.least_gain = p->best / 1000000;
        s.goal = gw_lower_bound(&x, p->pricer.rules.cpu_workers);
        if (whole) {
            gw_search_run(&s);
        } else {
            gw_search_greedy(&s);
        }
        *reached = s.line.makespan;
        p->report.evaluations += s.line.evaluations;
        p->report.untried += s.skipped;
        if (s.line.makespan < p->best) {
            p->best = s.line.makespan;
            p->rule = rule;
            keep_picks(p, &x, &s);
        }
        gw_search_destroy(&s);
    }
    gw_problem_destroy(&x);
    return status;
}

/* The way to fuse that a greedy pass likes best, and no fusion: both in full. */
static gw_status search_all(planner *p, gw_why *why)
{
    gw_ticks least = GW_NEVER, reached = 0;
    unsigned best = 0;
    gw_status status = GW_OK;
    for (unsigned i = 0; i < p->n_rules && status == GW_OK && p->n_rules > 1; i++) {
        status = search_rule(p, GW_FUSION[i], 0, &reached, why);
        if (reached < least) {
            least = reached;
            best = i;
        }
    }
    status = status == GW_OK ? search_rule(p, GW_FUSION[0], 1, &reached, why) : status;
    return status == GW_OK && best != 0 ? search_rule(p, GW_FUSION[best], 1, &reached, why)
                                        : status;
}

/* ---- bounds ---- */

/* The same problem with coding that takes no time, searched. */
static gw_status search_free(planner *p, gw_problem *x, gw_why *why)
{
    gw_class *classes = calloc((size_t)p->store.n + 1, sizeof *classes);
    gw_front front = {0};
    gw_search s;
    gw_status status =
        classes != NULL ? GW_OK : GW_FAIL(why, GW_ERR_MEMORY, "no memory for bounds");
    for (uint32_t i = 0; i < p->store.n && status == GW_OK; i++) {
        gw_front_begin(&front, &p->pricer.rules);
        if (!gw_class_free_coding(&front, p->store.item[i], &classes[i])) {
            status = GW_FAIL(why, GW_ERR_MEMORY, "no memory for bounds");
        }
    }
    for (uint32_t b = 0; b < x->buckets && status == GW_OK; b++) {
        for (uint32_t i = 0; i < p->store.n; i++) {
            if (classes[i].elements == x->elements[b] && p->store.item[i]->plain == x->plain[b]) {
                x->class_of[b] = &classes[i];
            }
        }
    }
    if (status == GW_OK) {
        status = gw_search_create(&s, &p->pricer.rules, x->compute, x->class_of, x->n, why);
    }
    if (status == GW_OK) {
        gw_search_links(&s);
        const gw_ticks least = s.line.makespan < p->best ? s.line.makespan : p->best;
        p->report.zero_cost = gw_step_seconds(p->job, least);
        gw_search_destroy(&s);
    }
    for (uint32_t i = 0; classes != NULL && i < p->store.n; i++) {
        gw_class_free(&classes[i]);
    }
    free(classes);
    gw_front_free(&front);
    return status;
}

/* For the buckets of the best plan. */
static gw_status bound(planner *p, gw_why *why)
{
    gw_problem x;
    gw_status status = gw_problem_create(&x, p->job, p->rule, why);
    if (status != GW_OK) {
        return status;
    }
    status = gw_problem_price(&x, &p->pricer, &p->store, why);
    if (status == GW_OK) {
        const gw_ticks least = gw_lower_bound(&x, p->pricer.rules.cpu_workers);
        p->report.lower_bound = gw_step_seconds(p->job, least);
        status = search_free(p, &x, why);
    }
    gw_problem_destroy(&x);
    return status;
}

/* Everything one deviation slower. */
static gw_status report_high(planner *p, gw_why *why)
{
    gw_ticks makespan = 0;
    p->pricer.sigma = 1;
    gw_status status = gw_predict_entries(&p->pricer, p->job, p->entry, &makespan, NULL, NULL, why);
    p->report.step_high = gw_step_seconds(p->job, makespan);
    const gw_plan_report before = p->report;
    const gw_ticks best = p->best;
    p->best = 0; /* nothing is to be kept */
    p->report.dense = NEVER;
    for (unsigned i = 0; i < p->n_rules && status == GW_OK; i++) {
        status = try_dense(p, GW_FUSION[i], why);
    }
    const double high = p->report.dense;
    p->report = before;
    p->report.dense_high = high;
    p->best = best;
    return status;
}

static void count(planner *p)
{
    gw_plan_report *r = &p->report;
    r->step = gw_step_seconds(p->job, p->best);
    r->bf16 = p->pricer.width == 2 ? r->dense : r->bf16;
    r->bf16 = r->bf16 < NEVER ? r->bf16 : (double)NAN; /* nothing codes it within what is allowed */
    r->all_compressed = r->all_compressed < NEVER ? r->all_compressed : (double)NAN;
    r->candidates = p->pricer.front.offered;
    r->dominated = p->pricer.front.dropped;
    for (size_t i = 0; i < p->job->n; i++) {
        const int first = i == 0 || p->entry[i].bucket != p->entry[i - 1].bucket;
        r->buckets += (uint32_t)first;
        r->compressed += (uint32_t)(first && p->entry[i].params.codec != NULL);
    }
}

static gw_status make(planner *p, gw_plan *plan, gw_why *why)
{
    p->best = GW_NEVER;
    p->n_rules = p->request->no_fusion ? 1 : GW_FUSIONS;
    size_t sizes = 0;
    for (size_t i = 0; i < p->job->n; i++) {
        p->some_plain |= p->job->tensors[i].uncompressed;
    }
    gw_status status = gw_pricer_create(&p->pricer, p->cluster, p->job->dtype, why);
    status = status == GW_OK ? gw_job_sizes(p->job, &sizes, why) : status;
    p->pricer.one_device = sizes > MANY_SIZES;
    status = status == GW_OK ? gw_price_exchange(&p->pricer, p->job, why) : status;
    status = status == GW_OK ? collect_specs(p, why) : status;
    status = status == GW_OK ? try_baselines(p, why) : status;
    status = status == GW_OK ? search_all(p, why) : status;
    if (status == GW_OK) {
        count(p);
    }
    status = status == GW_OK ? bound(p, why) : status;
    status = status == GW_OK ? report_high(p, why) : status;
    if (status == GW_OK) {
        plan->report = p->report;
        plan->entry = p->entry;
        plan->n = p->job->n;
        p->entry = NULL;
    }
    gw_pricer_destroy(&p->pricer);
    gw_class_store_free(&p->store);
    free(p->specs);
    free(p->entry);
    return status;
}

gw_status gw_plan_create(const gw_job *job, const gw_cluster *cluster,
                         const gw_plan_request *request, gw_plan **out, gw_why *why)
{
    if (job == NULL || cluster == NULL || request == NULL || out == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "no job, no cluster or nothing asked");
    }
    gw_status status = gw_job_check(job, why);
    status = status == GW_OK ? gw_cluster_check(cluster, why) : status;
    if (status != GW_OK) {
        return status;
    }
    gw_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for a plan");
    }
    planner p = {.job = job, .cluster = cluster, .request = request};
    status = make(&p, plan, why);
    if (status != GW_OK) {
        free(plan);
        return status;
    }
    *out = plan;
    return GW_OK;
}

void gw_plan_destroy(gw_plan *plan)
{
    if (plan != NULL) {
        free(plan->entry);
        free(plan);
    }
}

gw_plan_report gw_plan_report_of(const gw_plan *plan)
{
    if (plan == NULL) {
        return (gw_plan_report){0};
    }
    return plan->report;
}

size_t gw_plan_count(const gw_plan *plan)
{
    if (plan == NULL) {
        return 0;
    }
    return plan->n;
}

gw_status gw_plan_entry_at(const gw_plan *plan, size_t index, gw_plan_entry *out)
{
    GW_REQUIRE(NULL, plan != NULL && out != NULL, "no plan, or no place for the entry");
    if (index >= plan->n) {
        return GW_ERR_RANGE;
    }
    *out = plan->entry[index];
    return GW_OK;
}
