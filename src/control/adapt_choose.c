/* Which level each layer gets, by the thread, and what ranks that agree do about it. */
#include "control/adapt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the choice ---- */

static double alpha_at(const gw_adapting *a, uint64_t step)
{
    double alpha = a->config.alpha;
    for (size_t i = 0; i < a->config.n_schedule && a->schedule[i].step <= step; i++) {
        alpha = a->schedule[i].alpha;
    }
    return alpha;
}

/* The problem of the layers that could be measured; the others keep their level. */
static size_t pose(gw_adapting *a)
{
    gw_step_decision *d = &a->next;
    size_t n = 0;
    for (uint32_t i = 0; i < a->control.n; i++) {
        const gw_control_layer *l = &a->control.layers[i];
        const double *table = a->control.mean + l->at;
        a->chosen[i] = l->level;
        if (!isfinite(table[0]) || table[0] == 0) {
            d->not_finite += table[0] != 0;
            d->without_gradient += table[0] == 0;
            continue;
        }
        const int critical = gw_adapt_is_critical(a->norms[i], table[0], a->config.eta);
        a->posed[n] = (gw_adapt_layer){.errors = table + 1,
                                       .bytes = l->bytes,
                                       .n = l->n,
                                       .uniform = critical ? l->milder : l->uniform};
        a->which[n++] = i;
    }
    return n;
}

/* Levels of the problem's layers, by what was chosen and what is in force. */
static void decide(gw_adapting *a, size_t n, const gw_adapt_choice *choice)
{
    gw_step_decision *d = &a->next;
    double error = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t level = a->control.layers[a->which[i]].level;
        error += a->posed[i].errors[level];
        bytes += a->posed[i].bytes[level];
        d->changed += choice->levels[i] != level;
    }
    const int forced =
        choice->outcome == GW_ADAPT_INFEASIBLE || choice->outcome == GW_ADAPT_NO_BUDGET;
    const int small = error <= choice->budget &&
                      (double)choice->bytes > (1 - a->config.least_gain) * (double)bytes;
    d->budget = choice->budget;
    d->lower_bound = choice->lower_bound;
    d->outcome = forced            ? GW_STEP_ADAPT_DEFAULT
                 : d->changed == 0 ? GW_STEP_ADAPT_SAME
                 : small           ? GW_STEP_ADAPT_SMALL_GAIN
                                   : GW_STEP_ADAPT_SWITCHED;
    d->changed = d->outcome == GW_STEP_ADAPT_SMALL_GAIN ? 0 : d->changed;
    d->error = d->changed != 0 ? choice->error : error;
    for (size_t i = 0; i < n && d->changed != 0; i++) {
        a->chosen[a->which[i]] = choice->levels[i];
    }
}

static gw_status choose(gw_control *c, gw_why *why)
{
    gw_adapting *a = gw_adapting_of(c);
    const gw_adapt_problem problem = {
        .layers = a->posed, .n_layers = pose(a), .alpha = a->next.alpha};
    gw_adapt_choice choice = {.levels = a->levels};
    size_t bytes = 0;
    if (problem.n_layers == 0) {
        a->next.outcome = GW_STEP_ADAPT_NOTHING;
        return GW_OK;
    }
    gw_status status = gw_adapt_workspace(&problem, &bytes);
    void *workspace = status == GW_OK ? malloc(bytes + 1) : NULL;
    if (workspace == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory to choose levels");
    }
    status = gw_adapt_choose(&problem, (gw_workspace){workspace, bytes}, &choice, why);
    if (status == GW_OK) {
        decide(a, problem.n_layers, &choice);
    }
    free(workspace);
    return status;
}

static void sum_up(gw_adapting *a)
{
    gw_step_decision *d = &a->next;
    for (uint32_t i = 0; i < a->control.n; i++) {
        const gw_control_layer *l = &a->control.layers[i];
        const double norm = a->control.mean[l->at];
        d->bytes += l->bytes[a->chosen[i]];
        d->bytes_before += l->bytes[l->level];
        d->uniform_bytes += l->bytes[l->uniform];
        if (d->lower_bound != 0 && (!isfinite(norm) || norm == 0)) {
            d->lower_bound += l->bytes[l->level];
        }
    }
}

static void describe(gw_control *c, const gw_why *why)
{
    gw_adapting *a = gw_adapting_of(c);
    gw_step_decision *d = &a->next;
    char kept[96] = "";
    sum_up(a);
    if (d->not_finite != 0) {
        (void)snprintf(kept, sizeof kept, "; %u layers keep their level: NaN or infinity",
                       d->not_finite);
    } else if (d->without_gradient != 0) {
        (void)snprintf(kept, sizeof kept, "; %u layers keep their level: no gradient",
                       d->without_gradient);
    }
    char what[128];
    switch (d->outcome) {
    case GW_STEP_ADAPT_SWITCHED:
        (void)snprintf(what, sizeof what, "%u of %u layers have another level", d->changed,
                       a->control.n);
        break;
    case GW_STEP_ADAPT_SAME:
        (void)snprintf(what, sizeof what, "the levels are the best already");
        break;
    case GW_STEP_ADAPT_SMALL_GAIN:
        (void)snprintf(what, sizeof what, "nothing that saves %g %% of the bytes",
                       100 * a->config.least_gain);
        break;
    case GW_STEP_ADAPT_DEFAULT:
        (void)snprintf(what, sizeof what, "nothing keeps to the budget: the default");
        break;
    case GW_STEP_ADAPT_NOTHING:
        (void)snprintf(what, sizeof what, "no layer could be measured");
        break;
    default:
        (void)snprintf(what, sizeof what, "%.120s", why->text);
    }
    (void)snprintf(d->text, sizeof d->text, "%s%s", what, kept);
}

static void keep(gw_control *c)
{
    gw_adapting *a = gw_adapting_of(c);
    a->next.outcome = GW_STEP_ADAPT_FAILED;
    for (uint32_t i = 0; i < c->n; i++) {
        a->chosen[i] = c->layers[i].level;
    }
}

/* ---- a round ---- */

static gw_status plan(gw_control *c, uint32_t place, uint32_t level, gw_why *why)
{
    gw_control_layer *l = &c->layers[place];
    const gw_params *params = gw_route_encodes(&l->routes[level]) != 0 ? &l->levels[level] : NULL;
    const gw_status status = gw_step_set_plan(c->step, l->layer, params, &l->routes[level], why);
    l->level = status == GW_OK ? level : l->level;
    return status;
}

static gw_status start(gw_control *c, const void *config, gw_why *why)
{
    gw_status status = GW_OK;
    (void)config;
    for (uint32_t i = 0; i < c->n && status == GW_OK; i++) {
        status = plan(c, i, c->layers[i].uniform, why);
    }
    return status == GW_OK ? gw_step_agree(c->step, why) : status;
}

/* Offsets of a period's first step, before wait has begun its round. */
static gw_status posted(gw_control *c, uint32_t layer, uint32_t place, const gw_tensor *gradient,
                        gw_why *why)
{
    const uint64_t offset = c->step->number % gw_adapting_of(c)->config.every;
    (void)layer;
    if (place == UINT32_MAX || c->layers[place].share != offset || (offset != 0 && !c->live)) {
        return GW_OK;
    }
    return gw_control_copy(c, place, gradient, why);
}

static void stand(gw_adapting *a)
{
    const uint64_t step = a->control.start;
    a->next = (gw_step_decision){.step = step,
                                 .bound_at = step + gw_control_bound(&a->control) + 1,
                                 .alpha = alpha_at(a, step)};
}

static gw_status waited(gw_control *c, uint64_t number, gw_why *why)
{
    gw_adapting *a = gw_adapting_of(c);
    if (number % a->config.every == 0) {
        gw_control_begin_round(c, number, 0);
        stand(a);
    }
    return gw_control_go_on(c, number, why);
}

static uint64_t checksum(const gw_control *c)
{
    const gw_adapting *a = (const gw_adapting *)(const void *)c;
    return gw_payload_hash(a->chosen, c->n * sizeof *a->chosen, c->hash ^ c->start);
}

static gw_status bind(gw_control *c, uint64_t number, gw_why *why)
{
    gw_adapting *a = gw_adapting_of(c);
    gw_status status = GW_OK;
    (void)number;
    for (uint32_t i = 0; i < c->n && status == GW_OK; i++) {
        const double norm = c->mean[c->layers[i].at];
        a->norms[i] = norm == norm ? norm : a->norms[i];
        if (a->chosen[i] != c->layers[i].level) {
            status = plan(c, i, a->chosen[i], why);
        }
    }
    if (status == GW_OK) {
        status = gw_control_agree(c, why);
    }
    if (status == GW_OK) {
        a->next.measure_seconds = c->measure_seconds;
        a->next.solve_seconds = c->solve_seconds;
        a->next.waited = c->late;
        a->last = a->next;
    }
    return status;
}

/* ---- a checkpoint ---- */

/* Times and who waited are no part of it: equal runs leave equal bytes. */
static void walk_table(gw_walk *w, double *table, size_t n)
{
    double head[GW_TABLE_LAYERS] = {table[GW_TABLE_STATUS]};
    gw_walk_numbers(w, head, GW_TABLE_LAYERS);
    if (gw_walk_reads(w)) {
        memcpy(table, head, sizeof head);
    }
    gw_walk_numbers(w, table + GW_TABLE_LAYERS, n - GW_TABLE_LAYERS);
}

static void walk(gw_control *c, gw_walk *w)
{
    gw_adapting *a = gw_adapting_of(c);
    uint32_t live = (uint32_t)c->live;
    gw_walk_below(w, &live, 2);
    c->live = (int)live;
    gw_walk_same(w, c->n);
    gw_walk_same(w, c->table);
    for (uint32_t i = 0; i < c->n; i++) {
        gw_walk_below(w, &c->layers[i].level, c->layers[i].n);
    }
    gw_walk_numbers(w, a->norms, c->n);
    walk_table(w, c->own, c->table);
    walk_table(w, c->mean, c->table);
}

/* Where in the period it stands follows from the step's number. */
static gw_status resume(gw_control *c, gw_why *why)
{
    gw_adapting *a = gw_adapting_of(c);
    const uint64_t number = c->step->number, done = number % a->config.every;
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < c->n && status == GW_OK; i++) {
        status = plan(c, i, c->layers[i].level, why);
    }
    if (status != GW_OK) {
        return status;
    }
    gw_control_resume_round(c, number - done, c->live);
    stand(a);
    (void)pthread_mutex_lock(&c->lock);
    c->measured = c->handed = !c->live ? 0 : done < c->window ? done : c->window;
    (void)pthread_mutex_unlock(&c->lock);
    gw_control_hand(c, c->handed,
                    c->live && done > c->window + c->lag); /* the tables had arrived */
    return GW_OK;
}

/* ---- the caller ---- */

static const gw_policy policy = {.name = "adapt",
                                 .settings = "settings of adapt:",
                                 .size = sizeof(gw_adapting),
                                 .magic = UINT64_C(0x3154504144415747), /* "GWADAPT1" */
                                 .check = gw_adapting_check,
                                 .open = gw_adapting_open,
                                 .list = gw_adapting_list,
                                 .start = start,
                                 .posted = posted,
                                 .waited = waited,
                                 .decide = choose,
                                 .keep = keep,
                                 .describe = describe,
                                 .checksum = checksum,
                                 .bind = bind,
                                 .walk = walk,
                                 .resume = resume};

gw_status gw_step_adapt_begin(gw_step *s, const gw_step_adapt_config *config, gw_why *why)
{
    return gw_control_begin(s, &policy, config, why);
}

gw_status gw_step_adapt_last(const gw_step *s, uint64_t *n, gw_step_decision *decision)
{
    GW_REQUIRE(NULL, s != NULL && n != NULL && decision != NULL,
               "no step, or no place for the decision");
    const gw_control *c = gw_control_by(s, &policy);
    if (c == NULL) {
        return GW_ERR_STATE;
    }
    *n = c->decisions;
    if (*n != 0) {
        *decision = ((const gw_adapting *)(const void *)c)->last;
    }
    return GW_OK;
}

gw_status gw_step_adapt_save_bytes(const gw_step *s, size_t *bytes, gw_why *why)
{
    return gw_control_save_bytes(s, &policy, bytes, why);
}

gw_status gw_step_adapt_save(gw_step *s, void *buffer, size_t capacity, size_t *written,
                             gw_why *why)
{
    return gw_control_save(s, &policy, buffer, capacity, written, why);
}

gw_status gw_step_adapt_load(gw_step *s, const void *bytes, size_t size, gw_why *why)
{
    return gw_control_load(s, &policy, bytes, size, why);
}
