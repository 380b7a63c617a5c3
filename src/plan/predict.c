#include "plan/predict.h"

#include "base/why.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *gw_text_join(char *text, size_t size, const char *name, const char *device)
{
    (void)snprintf(text, size, "%s@%s", name, device);
    return text;
}

/* Chains by what they are of, so that equal buckets are priced once. */
typedef struct priced {
    uint64_t elements;
    int together;
    const gw_plan_entry *like;
    uint32_t choice; /* in the pricer's front */
} priced;

typedef struct drawing {
    gw_problem x;
    gw_timeline line;
    uint32_t *choice; /* of each bucket */
    priced *known;
    uint32_t n_known;
    gw_class sealed;
} drawing;

static int same(const priced *k, uint64_t elements, int together, const gw_plan_entry *entry)
{
    return k->elements == elements && k->together == together &&
           gw_route_equal(&k->like->route, &entry->route) &&
           gw_params_equal(&k->like->params, &entry->params);
}

static gw_status price_bucket(drawing *d, gw_pricer *p, uint32_t b, const gw_plan_entry *entry,
                              gw_why *why)
{
    p->together = d->x.first[b + 1] - d->x.first[b] > 1;
    for (uint32_t i = 0; i < d->n_known; i++) {
        if (same(&d->known[i], d->x.elements[b], p->together, entry)) {
            d->choice[b] = d->known[i].choice;
            return GW_OK;
        }
    }
    const gw_params *params = entry->params.codec != NULL ? &entry->params : NULL;
    gw_status status = gw_price_one(p, d->x.elements[b], params, &entry->route, why);
    if (status == GW_OK) {
        d->choice[b] = p->front.n - 1;
        d->known[d->n_known++] = (priced){d->x.elements[b], p->together, entry, d->choice[b]};
    }
    return status;
}

static void run(drawing *d, gw_ticks *makespan, gw_interval *intervals, size_t *n_intervals)
{
    static const gw_chain NO_CHAIN;
    for (uint32_t b = 0; b < d->x.n; b++) {
        d->line.chain[b] = b < d->x.buckets ? &d->sealed.choice[d->choice[b]].chain : &NO_CHAIN;
    }
    d->line.interval = intervals;
    d->line.room = intervals != NULL ? *n_intervals : 0;
    gw_timeline_commit(&d->line, 0);
    *makespan = d->line.makespan;
    if (intervals != NULL) {
        *n_intervals = d->line.n_intervals;
        for (size_t i = 0; i < d->line.n_intervals; i++) {
            const uint32_t b = intervals[i].tensor;
            intervals[i].tensor = b < d->x.buckets ? d->x.first[b] : UINT32_MAX;
        }
    }
}

/* d->x is made; a bucket's entry is entries[first[b]], or entries[plain[b]] if `uniform`. The offers do not count. */
static gw_status draw(drawing *d, gw_pricer *p, const gw_plan_entry *entries, int uniform,
                      gw_ticks *makespan, gw_interval *intervals, size_t *n_intervals, gw_why *why)
{
    d->choice = calloc((size_t)d->x.buckets + 1, sizeof *d->choice);
    d->known = calloc((size_t)d->x.buckets + 1, sizeof *d->known);
    gw_status status = d->choice != NULL && d->known != NULL
                           ? GW_OK
                           : GW_FAIL(why, GW_ERR_MEMORY, "no memory to draw a plan");
    gw_front_begin(&p->front, &p->rules);
    for (uint32_t b = 0; b < d->x.buckets && status == GW_OK; b++) {
        status = price_bucket(d, p, b, &entries[uniform ? d->x.plain[b] : d->x.first[b]], why);
    }
    if (status == GW_OK && !gw_front_seal(&p->front, 0, &d->sealed)) {
        status = GW_FAIL(why, GW_ERR_MEMORY, "no memory to draw a plan");
    }
    double sum = 0;
    for (uint32_t b = 0; b < d->x.buckets && status == GW_OK; b++) {
        sum += (double)gw_choice_alone(&d->sealed.choice[d->choice[b]]) * 1e-9;
    }
    status = status == GW_OK ? gw_check_span(sum, why) : status;
    status = status == GW_OK ? gw_timeline_create(&d->line, &p->rules, d->x.compute, d->x.n,
                                                  GW_TIMELINE_MAX_OPS, why)
                             : status;
    if (status == GW_OK) {
        run(d, makespan, intervals, n_intervals);
        gw_timeline_destroy(&d->line);
    }
    gw_class_free(&d->sealed);
    free(d->choice);
    free(d->known);
    gw_problem_destroy(&d->x);
    return status;
}

/* [0]: of buckets that may be coded, [1]: of the others. */
static void uniform_entries(const gw_uniform *all, gw_plan_entry two[2])
{
    two[0] = (gw_plan_entry){.route = *all->route};
    if (all->spec != NULL) {
        two[0].params = *all->spec;
    }
    two[1] = all->plain != NULL ? (gw_plan_entry){.route = *all->plain} : two[0];
}

gw_status gw_predict_uniform(gw_pricer *p, const gw_job *job, gw_fusion_rule rule,
                             const gw_uniform *all, gw_ticks *makespan, gw_why *why)
{
    drawing d = {.n_known = 0};
    gw_plan_entry two[2];
    uniform_entries(all, two);
    rule.mixed = all->plain == NULL;
    const gw_status status = gw_problem_create(&d.x, job, rule, why);
    return status == GW_OK ? draw(&d, p, two, 1, makespan, NULL, NULL, why) : status;
}

gw_status gw_entries_uniform(const gw_job *job, gw_fusion_rule rule, const gw_uniform *all,
                             gw_plan_entry *entries, gw_why *why)
{
    gw_problem x;
    gw_plan_entry two[2];
    uniform_entries(all, two);
    rule.mixed = all->plain == NULL;
    const gw_status status = gw_problem_create(&x, job, rule, why);
    if (status != GW_OK) {
        return status;
    }
    for (uint32_t b = 0; b < x.buckets; b++) {
        for (uint32_t i = x.first[b]; i < x.first[b + 1]; i++) {
            entries[i] = two[x.plain[b]];
            entries[i].tensor = i;
            entries[i].bucket = b;
        }
    }
    gw_problem_destroy(&x);
    return GW_OK;
}

gw_status gw_predict_entries(gw_pricer *p, const gw_job *job, const gw_plan_entry *entries,
                             gw_ticks *makespan, gw_interval *intervals, size_t *n_intervals,
                             gw_why *why)
{
    drawing d = {.n_known = 0};
    const gw_status status = gw_problem_of(&d.x, job, entries, why);
    return status == GW_OK ? draw(&d, p, entries, 0, makespan, intervals, n_intervals, why)
                           : status;
}

/* ---- what exchanges take from the cores ---- */

gw_status gw_price_exchange(gw_pricer *p, const gw_job *job, gw_why *why)
{
    enum { HALVINGS = 24, LANES = 6 };
    if (job->beside <= 0 || p->cluster->has_gpu || p->cluster->cpu_workers > 0) {
        return GW_OK;
    }
    const gw_route dense = {.n_steps = 1, .step = {{GW_OP_ALLREDUCE, GW_LEVEL_FLAT, 0}}};
    const gw_uniform all = {.route = &dense};
    gw_job_tensor *tensors = calloc(job->n, sizeof *tensors);
    gw_job small = *job;
    gw_status status =
        tensors != NULL ? GW_OK : GW_FAIL(why, GW_ERR_MEMORY, "no memory to price exchanges");
    for (size_t i = 0; i < job->n && tensors != NULL; i++) {
        tensors[i] = job->tensors[i];
        tensors[i].elements = GW_BESIDE_ELEMENTS;
    }
    small.tensors = tensors;
    p->apart = 1;
    p->rules.cpu_workers = LANES;
    memset(p->rules.busy, 0, sizeof p->rules.busy); /* is part of what was measured */
    double low = 0, high = job->beside;
    for (int i = 0; i < HALVINGS && status == GW_OK; i++) {
        gw_ticks makespan = 0;
        p->exchange = (low + high) / 2;
        status = gw_predict_uniform(p, &small, GW_FUSION[0], &all, &makespan, why);
        if (job->forward + (double)makespan * 1e-9 < job->beside) {
            low = p->exchange;
        } else {
            high = p->exchange;
        }
    }
    p->exchange = low;
    free(tensors);
    return status;
}

/* ---- the public doors ---- */

static gw_status check(const gw_job *job, const gw_cluster *cluster, const gw_plan_entry *entries,
                       size_t n, gw_why *why)
{
    if (job == NULL || cluster == NULL || entries == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "no job, no cluster or no plan");
    }
    gw_status status = gw_job_check(job, why);
    status = status == GW_OK ? gw_cluster_check(cluster, why) : status;
    if (status == GW_OK && n != job->n) {
        return GW_FAIL(why, GW_ERR_ARG, "the plan has %zu tensors, the job %zu", n, job->n);
    }
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        const gw_params *params = entries[i].params.codec != NULL ? &entries[i].params : NULL;
        status = gw_route_fits(&entries[i].route, params, why);
        if (status == GW_OK && entries[i].tensor != i) {
            return GW_FAIL(why, GW_ERR_ARG, "entry %zu is of tensor %u", i, entries[i].tensor);
        }
    }
    return status;
}

static gw_status makespan_of(const gw_job *job, const gw_cluster *cluster,
                             const gw_plan_entry *entries, size_t n, int one_channel,
                             gw_ticks *makespan, gw_interval *intervals, size_t *n_intervals,
                             gw_why *why)
{
    gw_pricer p;
    gw_status status = check(job, cluster, entries, n, why);
    if (status != GW_OK) {
        return status;
    }
    status = gw_pricer_create(&p, cluster, job->dtype, why);
    p.rules.one_channel = one_channel;
    status = status == GW_OK ? gw_price_exchange(&p, job, why) : status;
    if (status == GW_OK) {
        status = gw_predict_entries(&p, job, entries, makespan, intervals, n_intervals, why);
    }
    gw_pricer_destroy(&p);
    return status;
}

gw_status gw_plan_draw(const gw_job *job, const gw_cluster *cluster, const gw_plan_entry *entries,
                       size_t n, int one_channel, gw_interval *intervals, size_t *n_intervals,
                       gw_why *why)
{
    gw_ticks makespan = 0;
    return makespan_of(job, cluster, entries, n, one_channel, &makespan, intervals, n_intervals,
                       why);
}

gw_status gw_plan_predict(const gw_job *job, const gw_cluster *cluster,
                          const gw_plan_entry *entries, size_t n, int one_channel, double *seconds,
                          gw_why *why)
{
    gw_ticks makespan = 0;
    const gw_status status =
        makespan_of(job, cluster, entries, n, one_channel, &makespan, NULL, NULL, why);
    if (status == GW_OK) {
        *seconds = gw_step_seconds(job, makespan);
    }
    return status;
}
