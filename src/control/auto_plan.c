/* The plan, by the thread beside training: from tables, job and cluster that all ranks have alike. */
#include "control/auto.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double LEAST_GAIN = 0.03; /* of a step, below which nothing is touched */
static const double SLACK = 0.1;       /* of the budget: tables of one step differ from another's */
static const double RISK = 0.25; /* of a step, which codecs have to save whose errors come late */
/* A link so many times as fast or as slow is another one. Computing that appears so many times as long is not computing:
 * the link has changed. And the most a layer is offered, times its error by the default: norms do not tell that an lstm's
 * recurrent layer bears less than its share of them. docs/auto.md */
static const double TWICE = 2;
enum { HALVINGS = 12 }; /* finds the factor to within 0.5 / 4096 */

/* ---- what is asked ---- */

/* Of a layer's levels those whose error alone is within the limit and, unless it comes late, not far above the default's; the
 * default, and `besides`, if there is one. */
static void ask_layer(gw_step_auto *u, const gw_control_layer *l, int late,
                      const gw_params *besides, gw_joint_tensor *to, uint32_t *used)
{
    const double *errors = u->table + l->at + 1;
    *to = (gw_joint_tensor){.levels = u->levels + *used, .errors = u->errors + *used};
    for (uint32_t i = 0; i < l->n; i++) {
        const int waits = gw_auto_comes_late(&l->levels[i]);
        const int too_much = !(u->table[l->at] > 0) ||
                             errors[i] * errors[i] > u->config.limit * u->noise_then ||
                             (!waits && errors[i] > TWICE * errors[l->uniform]);
        const int there = besides != NULL && gw_params_equal(&l->levels[i], besides);
        if (i != l->uniform && !there && (too_much || (!late && waits))) {
            continue;
        }
        to->uniform = i == l->uniform ? to->n : to->uniform;
        u->levels[*used] = l->levels[i];
        u->errors[(*used)++] = errors[i];
        to->n++;
    }
}

/* A layer that was never measured is sent uncompressed. `besides`, if there are such, are ways that are allowed in any case. */
static void ask(gw_step_auto *u, int late, const gw_auto_way *besides)
{
    uint32_t used = 0;
    for (size_t i = 0; i < u->job.n; i++) {
        const uint32_t place = u->place_of[i];
        const gw_control_layer *l = place != UINT32_MAX ? &u->control.layers[place] : NULL;
        u->asked[i] = (gw_joint_tensor){.n = 0};
        const gw_params *own = l != NULL && besides != NULL ? &besides[place].params : NULL;
        const int coded = own != NULL && own->codec != NULL;
        if (l != NULL && (u->table[l->at] > 0 || coded)) {
            ask_layer(u, l, late, coded ? own : NULL, &u->asked[i], &used);
        }
    }
}

static gw_joint_request request_of(const gw_step_auto *u, int fuses)
{
    return (gw_joint_request){.tensors = u->asked,
                              .n_tensors = u->job.n,
                              .alpha = u->next.alpha * gw_route_encodes(&u->everyday),
                              .devices = GW_DEVICE_CPU,
                              .no_fusion = !fuses};
}

/* With links of `factor` times their rate. */
static gw_status solve(gw_step_auto *u, double factor, int fuses, gw_plan **plan,
                       gw_joint_report *report, gw_why *why)
{
    gw_cluster cluster = u->cluster;
    gw_cluster_link *link = cluster.nodes > 1 ? &cluster.inter : &cluster.intra;
    link->rate *= factor;
    const gw_joint_request request = request_of(u, fuses);
    return gw_joint_create(&u->job, &cluster, &request, plan, report, why);
}

static double step_with(gw_step_auto *u, double factor)
{
    gw_plan *plan = NULL;
    gw_joint_report report;
    const gw_status status = solve(u, factor, 1, &plan, &report, NULL);
    gw_plan_destroy(plan);
    return status == GW_OK ? report.step : (double)NAN;
}

/* ---- what it says ---- */

static double error_of(const gw_step_auto *u, uint32_t place, const gw_auto_way *way)
{
    const gw_control_layer *l = &u->control.layers[place];
    const double *errors = u->table + l->at + 1;
    for (uint32_t i = 0; i < l->n && gw_route_encodes(&way->route) != 0; i++) {
        if (gw_params_equal(&l->levels[i], &way->params)) {
            return errors[i];
        }
    }
    return 0;
}

/* Errors of all layers by these ways; *lost: their squares. */
static double errors_of(const gw_step_auto *u, const gw_auto_way *ways, double *lost)
{
    double sum = 0;
    *lost = 0;
    for (uint32_t i = 0; i < u->control.n; i++) {
        const double error = error_of(u, i, &ways[i]), hops = gw_route_encodes(&ways[i].route);
        sum += hops * error;
        *lost += hops * error * error;
    }
    return sum;
}

static int any_late(const gw_step_auto *u, const gw_auto_way *ways)
{
    int late = 0;
    for (uint32_t i = 0; i < u->control.n; i++) {
        late |= gw_auto_comes_late(&ways[i].params);
    }
    return late;
}

/* These ways as a plan of the job, in u->entries. */
static void entries_of(gw_step_auto *u, const gw_auto_way *ways)
{
    uint32_t with = UINT32_MAX, bucket = 0;
    for (size_t i = 0; i < u->job.n; i++) {
        const uint32_t place = u->place_of[i];
        const int joins = place != UINT32_MAX && ways[place].with == with;
        bucket += i != 0 && !joins;
        with = place != UINT32_MAX ? ways[place].with : UINT32_MAX;
        u->entries[i] = (gw_plan_entry){.tensor = (uint32_t)i, .bucket = bucket, .route = u->dense};
        if (place != UINT32_MAX) {
            u->entries[i].params = ways[place].params;
            u->entries[i].route = ways[place].route;
        }
    }
}

static gw_status predict(gw_step_auto *u, const gw_auto_way *ways, double *seconds, gw_why *why)
{
    entries_of(u, ways);
    return gw_plan_predict(&u->job, &u->cluster, u->entries, u->job.n, 0, seconds, why);
}

/* The lower bound of all plans with the buckets of these ways, with delayed errors or without, within the budget. Levels and
 * error of the ways themselves are allowed in any case: the plan in force may exceed the current budget and limits. */
static gw_status bound(gw_step_auto *u, const gw_auto_way *ways, double error, double *seconds,
                       gw_why *why)
{
    const double budget = u->next.budget;
    ask(u, 1, ways);
    gw_joint_request request = request_of(u, 1);
    if (error > budget) {
        request.alpha = budget > 0 ? request.alpha * (error / budget) * (1 + 1e-9) : INFINITY;
    }
    entries_of(u, ways);
    return gw_joint_bound_of(&u->job, &u->cluster, &request, u->entries, u->job.n, seconds, why);
}

/* Scales the job's times of computing. */
static void stretch(gw_step_auto *u, double times)
{
    u->job.forward *= times;
    u->job.backward *= times;
    for (size_t i = 0; i < u->job.n; i++) {
        u->tensors[i].ready = fmin(u->tensors[i].ready * times, u->job.backward);
    }
}

/* Computing is timed while errors are measured on the same cores, so it may appear too long. Whole steps were measured
 * without that. Where the plan in force is predicted to take longer than they did, computing is shortened until it is not. */
static gw_status fit_computing(gw_step_auto *u, gw_why *why)
{
    double seconds = 0, low = 1 / TWICE, high = 1, now = 1;
    gw_status status = predict(u, u->ways, &seconds, why);
    if (status != GW_OK || !(seconds > u->whole)) {
        return status;
    }
    for (int i = 0; i < HALVINGS && status == GW_OK; i++) {
        const double middle = (low + high) / 2;
        stretch(u, middle / now);
        now = middle;
        status = predict(u, u->ways, &seconds, why);
        low = seconds > u->whole ? low : middle;
        high = seconds > u->whole ? middle : high;
    }
    stretch(u, low / now);
    return status;
}

/* A step of its own may have neither matrices together, whose errors are not those of each, nor layers with those that it sends
 * together itself: such a bucket is parted, and *parted set. */
static gw_status take(gw_step_auto *u, const gw_plan *plan, int *parted, gw_why *why)
{
    uint32_t before = UINT32_MAX, bucket = UINT32_MAX;
    *parted = 0;
    for (size_t i = 0; i < gw_plan_count(plan); i++) {
        gw_plan_entry e;
        const gw_status status = gw_plan_entry_at(plan, i, &e);
        if (status != GW_OK) {
            return GW_FAIL(why, status, "auto: a plan without entry %zu", i);
        }
        const uint32_t place = u->place_of[e.tensor];
        const int coded = gw_route_encodes(&e.route) != 0, joins = e.bucket == bucket;
        const int may = place != UINT32_MAX && before != UINT32_MAX &&
                        !(coded && (gw_params_flags(&e.params) & GW_CODEC_ROUNDS) != 0);
        *parted |= joins && !may;
        if (place != UINT32_MAX) {
            u->chosen[place] =
                (gw_auto_way){.params = coded ? e.params : (gw_params){.codec = NULL},
                              .route = e.route,
                              .with = joins && may ? u->chosen[before].with : place};
        }
        before = place;
        bucket = e.bucket;
    }
    return GW_OK;
}

/* The best plan that can be run, and how long its step is. */
static gw_status solve_and_take(gw_step_auto *u, int fuses, int *parted, gw_joint_report *report,
                                gw_why *why)
{
    gw_plan *plan = NULL;
    gw_status status = solve(u, 1, fuses, &plan, report, why);
    if (status == GW_OK) {
        status = take(u, plan, parted, why);
    }
    gw_plan_destroy(plan);
    if (status == GW_OK && *parted) {
        status = predict(u, u->chosen, &report->step, why);
    }
    return status;
}

/* With buckets, or without where what is left of them is no better. */
static gw_status best_of_both(gw_step_auto *u, gw_joint_report *report, gw_why *why)
{
    const size_t size = u->control.n * sizeof *u->chosen;
    gw_joint_report alone;
    int parted = 0, none = 0;
    gw_status status = solve_and_take(u, 1, &parted, report, why);
    if (status != GW_OK || !parted) {
        return status;
    }
    memcpy(u->parted, u->chosen, size);
    status = solve_and_take(u, 0, &none, &alone, why);
    if (status == GW_OK && report->step < alone.step) {
        memcpy(u->chosen, u->parted, size);
        report->dense = alone.dense; /* with the buckets as they were it cannot be run either */
    } else {
        *report = alone;
    }
    return status;
}

static int same_way(const gw_auto_way *a, const gw_auto_way *b)
{
    return gw_params_equal(&a->params, &b->params) && gw_route_equal(&a->route, &b->route) &&
           a->with == b->with;
}

/* What is chosen binds, or what is in force stays. */
static gw_status decide(gw_step_auto *u, const gw_joint_report *report, gw_why *why)
{
    gw_auto_decision *d = &u->next;
    double now = 0, lost = 0;
    gw_status status = predict(u, u->ways, &now, why);
    if (status == GW_OK) {
        status = predict(u, u->chosen, &d->predicted_seconds, why); /* as it will run */
    }
    const double error = errors_of(u, u->ways, &lost);
    d->error = errors_of(u, u->chosen, &u->lost);
    d->changed = 0;
    for (uint32_t i = 0; i < u->control.n; i++) {
        d->changed += !same_way(&u->ways[i], &u->chosen[i]);
    }
    d->budget = report->budget;
    d->dense_seconds = report->dense;
    const int above = error > (1 + SLACK) * d->budget;
    /* where the link is another, what is made for it is better by any gain */
    const double moved = d->link_bytes_per_second / u->planned_rate;
    const double least = moved > TWICE || moved < 1 / TWICE ? 0 : LEAST_GAIN;
    /* errors that come late and no longer buy even half of what they had to */
    const int in_vain = any_late(u, u->ways) && !any_late(u, u->chosen) &&
                        now > (1 - RISK / 2) * d->predicted_seconds;
    const int small = !above && !in_vain && d->predicted_seconds >= (1 - least) * now;
    d->outcome = d->changed == 0 ? GW_AUTO_SAME : small ? GW_AUTO_SMALL_GAIN : GW_AUTO_SWITCHED;
    if (d->outcome != GW_AUTO_SWITCHED) {
        memcpy(u->chosen, u->ways, u->control.n * sizeof *u->ways);
        d->changed = 0;
        d->predicted_seconds = now;
        d->error = error;
        u->lost = lost;
    }
    return status;
}

/* The best plan that the noise bears, into u->chosen. */
static gw_status look(gw_step_auto *u, int late, double alpha, gw_joint_report *report, gw_why *why)
{
    gw_status status = GW_OK;
    ask(u, late, NULL);
    u->next.alpha = alpha;
    for (int again = 1; again && status == GW_OK;) {
        status = best_of_both(u, report, why);
        double lost = 0;
        (void)errors_of(u, u->chosen, &lost);
        again = lost > u->config.limit * u->noise_then && u->next.alpha > GW_AUTO_LEAST_ALPHA;
        u->next.alpha =
            again ? fmax((1 - GW_AUTO_BAND) * u->next.alpha, GW_AUTO_LEAST_ALPHA) : u->next.alpha;
    }
    return status;
}

/* Tables do not tell all that comes of errors that come late: such codecs have to buy much. */
static gw_status look_twice(gw_step_auto *u, gw_joint_report *report, gw_why *why)
{
    const size_t size = u->control.n * sizeof *u->chosen;
    const double alpha = u->next.alpha;
    gw_joint_report other;
    gw_status status = look(u, 1, alpha, report, why);
    if (status != GW_OK || !any_late(u, u->chosen) || gw_auto_comes_late(&u->config.uniform)) {
        return status;
    }
    const double lowered = u->next.alpha;
    memcpy(u->riskier, u->chosen, size);
    status = look(u, 0, alpha, &other, why);
    if (status == GW_OK && report->step < (1 - RISK) * other.step) {
        memcpy(u->chosen, u->riskier, size);
        u->next.alpha = lowered;
        ask(u, 1, NULL);
    } else {
        *report = other;
    }
    return status;
}

gw_status gw_auto_decide(gw_control *c, gw_why *why)
{
    gw_step_auto *u = gw_auto_of(c);
    gw_joint_report report;
    gw_status status = fit_computing(u, why);
    if (status == GW_OK) {
        status = look_twice(u, &report, why);
    }
    if (status == GW_OK) {
        status = decide(u, &report, why);
    }
    if (status == GW_OK && (u->next.outcome == GW_AUTO_SWITCHED || c->decisions == 0)) {
        const gw_comm *comm = c->step->config.comm; /* one rank is enough for each */
        c->more[0] = comm->rank == 1 % comm->ranks ? step_with(u, 0.5) : (double)NAN;
        c->more[1] = comm->rank == 2 % comm->ranks ? step_with(u, 2) : (double)NAN;
    }
    return status == GW_OK ? bound(u, u->chosen, u->next.error, &u->next.bound_seconds, why)
                           : status;
}

void gw_auto_keep(gw_control *c)
{
    gw_step_auto *u = gw_auto_of(c);
    u->next.outcome = GW_AUTO_FAILED;
    u->next.changed = 0;
    memcpy(u->chosen, u->ways, c->n * sizeof *u->ways);
    u->next.error = errors_of(u, u->ways, &u->lost);
}
