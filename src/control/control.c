/* The timetable of choosing during training, and what ranks tell each other. Everything here runs between steps, on the
 * caller's thread. */
#include "control/auto.h"

#include "base/huge_pages.h"
#include "base/numeric.h"

#include <gradwire/frame.h>

#include <stdlib.h>
#include <string.h>

/* ---- words with the other ranks ---- */

static gw_status fail_all(gw_step *s, gw_status status, gw_why *why)
{
    const gw_why said = *why;
    gw_step_fail(s, status, &said);
    return status;
}

static gw_status post(gw_step_adapt *a, const void *own, size_t bytes, gw_why *why)
{
    const gw_status status = gw_gather_post(a->step->side, own, bytes, a->room, &a->request, why);
    return status == GW_OK ? status : fail_all(a->step, status, why);
}

static gw_status arrive(gw_step_adapt *a, size_t bytes, void *all, gw_why *why)
{
    gw_comm *comm = a->step->side;
    gw_status status = gw_comm_wait(comm, a->request, a->step->config.timeout, why);
    a->request = NULL;
    if (status == GW_OK) {
        status = gw_gather_take(comm, a->room, bytes, all, why);
    }
    return status == GW_OK ? status : fail_all(a->step, status, why);
}

/* ---- the timetable ---- */

uint64_t gw_step_adapt_bound(const gw_step_adapt *a)
{
    return a->window + a->lag + a->rest;
}

void gw_step_adapt_resume(gw_step_adapt *a, uint64_t number, int live)
{
    (void)pthread_mutex_lock(&a->lock);
    a->handed = a->measured = 0;
    a->solve = a->solved = 0;
    (void)pthread_mutex_unlock(&a->lock);
    a->live = live;
    a->start = number;
    a->waited = 0;
    memset(a->own, 0, a->table * sizeof *a->own);
    a->next = (gw_step_decision){.step = number, .bound_at = number + gw_step_adapt_bound(a) + 1};
}

gw_status gw_step_adapt_send(gw_step_adapt *a, gw_why *why)
{
    a->waited |= (uint32_t)gw_step_adapt_idle(a);
    a->own[GW_TABLE_WAITED] = a->waited;
    return post(a, a->own, a->table * sizeof *a->own, why);
}

/* Means over ranks, summed in their order. */
gw_status gw_step_adapt_take(gw_step_adapt *a, gw_why *why)
{
    gw_status status =
        a->request == NULL ? gw_step_adapt_send(a, why) : GW_OK; /* resumed in between */
    status = status == GW_OK ? arrive(a, a->table * sizeof *a->own, a->all, why) : status;
    if (status != GW_OK) {
        return status;
    }
    const uint32_t ranks = a->step->config.comm->ranks, caller = gw_fp_enter();
    for (size_t i = 0; i < a->table; i++) {
        double sum = 0;
        for (uint32_t r = 0; r < ranks; r++) {
            sum += a->all[r * a->table + i];
        }
        a->mean[i] = sum / ranks;
    }
    for (uint32_t r = 0; r < ranks; r++) {
        const double seconds = a->all[r * a->table + GW_TABLE_SECONDS];
        a->next.measure_seconds =
            seconds > a->next.measure_seconds ? seconds : a->next.measure_seconds;
    }
    gw_fp_leave(caller);
    return GW_OK;
}

/* What ranks tell each other before a choice binds. */
enum { SAID_CHECKSUM, SAID_WAITED, SAID_SECONDS, SAID_FAILED, SAID_MORE, SAID = SAID_MORE + 2 };

/* If one rank could not choose, or ranks chose differently. If none could for the same reason, they agree: all stays. */
static gw_status compare_with_first(const gw_step_adapt *a, uint32_t r, gw_why *why)
{
    const double *said = a->said + (size_t)r * SAID;
    const char *who = a->over != NULL ? "auto" : "adapt";
    if (said[SAID_FAILED] != a->said[SAID_FAILED]) {
        const int other = said[SAID_FAILED] != GW_OK;
        const gw_status status = (gw_status)(other ? said[SAID_FAILED] : a->said[SAID_FAILED]);
        return gw_fail(why, status,
                       "%s: rank %u could not choose of the gradients of step %llu: %s", who,
                       other ? r : 0, (unsigned long long)a->next.step, gw_status_string(status));
    }
    uint64_t theirs, first;
    memcpy(&theirs, &said[SAID_CHECKSUM], sizeof theirs);
    memcpy(&first, &a->said[SAID_CHECKSUM], sizeof first);
    if (theirs != first) {
        return GW_FAIL(why, GW_ERR_DISAGREE,
                       "%s: of the gradients of step %llu rank %u chose other levels than rank 0",
                       who, (unsigned long long)a->next.step, r);
    }
    return GW_OK;
}

gw_status gw_step_adapt_compare(gw_step_adapt *a, uint64_t checksum, gw_why *why)
{
    const gw_comm *comm = a->step->side;
    double own[SAID] = {0};
    memcpy(&own[SAID_CHECKSUM], &checksum, sizeof checksum);
    own[SAID_WAITED] = a->waited;
    own[SAID_SECONDS] = a->next.solve_seconds;
    own[SAID_FAILED] = (double)a->failed;
    memcpy(own + SAID_MORE, a->more, sizeof a->more);
    gw_status status = post(a, own, sizeof own, why);
    status = status == GW_OK ? arrive(a, sizeof own, a->said, why) : status;
    const int heard = status == GW_OK;
    for (uint32_t r = 0; r < comm->ranks && status == GW_OK; r++) {
        const double *said = a->said + (size_t)r * SAID;
        status = compare_with_first(a, r, why);
        a->next.waited += said[SAID_WAITED] != 0;
        a->next.solve_seconds =
            said[SAID_SECONDS] > a->next.solve_seconds ? said[SAID_SECONDS] : a->next.solve_seconds;
    }
    for (uint32_t r = comm->ranks; r-- > 0 && status == GW_OK;) {
        for (int i = 0; i < 2; i++) {
            const double said = a->said[(size_t)r * SAID + SAID_MORE + (size_t)i];
            a->more[i] = said == said ? said : a->more[i];
        }
    }
    if (heard && status != GW_OK) { /* all ranks see it: an abort could only overtake the words */
        gw_feedback_refuse_saving(a->step->store, why != NULL ? why->text : "");
        (void)pthread_mutex_lock(&a->step->lock);
        a->step->status = status;
        a->step->why = *why;
        (void)pthread_mutex_unlock(&a->step->lock);
    }
    return status;
}

gw_status gw_step_adapt_plan(gw_step_adapt *a, uint32_t place, uint32_t level, gw_why *why)
{
    gw_adapted *l = &a->layers[place];
    const gw_params *params = gw_route_encodes(&l->routes[level]) != 0 ? &l->levels[level] : NULL;
    const gw_status status = gw_step_set_plan(a->step, l->layer, params, &l->routes[level], why);
    l->level = status == GW_OK ? level : l->level;
    return status;
}

static gw_status bind(gw_step_adapt *a, gw_why *why)
{
    a->waited |= (uint32_t)gw_step_adapt_idle(a);
    const uint64_t checksum =
        gw_payload_hash(a->chosen, a->n * sizeof *a->chosen, a->hash ^ a->next.step);
    gw_status status = gw_step_adapt_compare(a, checksum, why);
    for (uint32_t i = 0; i < a->n && status == GW_OK; i++) {
        const double norm = a->mean[a->layers[i].at];
        a->norms[i] = norm == norm ? norm : a->norms[i];
        if (a->chosen[i] != a->layers[i].level) {
            status = gw_step_adapt_plan(a, i, a->chosen[i], why);
        }
    }
    if (status == GW_OK && !a->step->agreed) {
        status = gw_step_agree(a->step, why);
    }
    if (status != GW_OK) {
        return status;
    }
    a->last = a->next;
    a->decisions++;
    a->live = 0;
    return GW_OK;
}

static gw_status go_on(void *adapt, uint64_t number, gw_why *why)
{
    gw_why own = {""};
    gw_step_adapt *a = adapt;
    why = gw_why_or(why, &own);
    if (a->over != NULL) {
        return gw_step_auto_go_on(a->over, number, why);
    }
    const uint64_t offset = number % a->config.every;
    if (offset == 0) {
        gw_step_adapt_resume(a, number, 1);
    }
    if (!a->live) {
        return GW_OK;
    }
    if (offset < a->window) {
        gw_step_adapt_hand(a, offset + 1);
    }
    if (offset == a->window - 1 + a->lag) {
        return gw_step_adapt_send(a, why);
    }
    if (offset == a->window + a->lag) {
        const gw_status status = gw_step_adapt_take(a, why);
        if (status == GW_OK) {
            gw_step_adapt_ask(a);
        }
        return status;
    }
    return offset == gw_step_adapt_bound(a) ? bind(a, why) : GW_OK;
}

static int plans(const void *adapt, uint32_t layer)
{
    const gw_step_adapt *a = adapt;
    return layer < a->known && a->place_of[layer] != UINT32_MAX;
}

gw_status gw_step_adapt_last(const gw_step *s, uint64_t *n, gw_step_decision *decision)
{
    GW_REQUIRE(NULL, s != NULL && n != NULL && decision != NULL,
               "no step, or no place for the decision");
    if (gw_control_of(s) == NULL) {
        return GW_ERR_STATE;
    }
    *n = gw_control_of(s)->decisions;
    if (*n != 0) {
        *decision = gw_control_of(s)->last;
    }
    return GW_OK;
}

void gw_step_adapt_end(void *adapt)
{
    gw_step_adapt *a = adapt;
    gw_step *s = a->step;
    if (a->request != NULL && s->status == GW_OK) { /* others may still read what is freed here */
        (void)gw_comm_wait(s->side, a->request, s->config.timeout, NULL);
    }
    if (a->has_thread) {
        (void)pthread_mutex_lock(&a->lock);
        a->stop = 1;
        (void)pthread_cond_broadcast(&a->changed);
        (void)pthread_mutex_unlock(&a->lock);
        (void)pthread_join(a->thread, NULL);
    }
    for (uint32_t i = 0; a->layers != NULL && i < a->n; i++) {
        free(a->layers[i].levels);
        free(a->layers[i].routes);
        free(a->layers[i].bytes);
    }
    void *const all[] = {
        a->layers,   a->place_of,       a->own,          a->all,           a->mean,
        a->norms,    a->room,           a->chosen,       a->said,          a->families,
        a->schedule, a->workspace.data, a->trial.values, a->trial.payload, a->trial.workspace.data};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
    gw_pages_free(a->copies);
    gw_step_auto_end(a->over);
    (void)pthread_cond_destroy(&a->changed);
    (void)pthread_mutex_destroy(&a->lock);
    free(a);
    s->hooks = NULL;
    s->above = NULL;
}

const gw_step_hooks gw_control_hooks = {
    .posted = gw_step_adapt_copy, .waited = go_on, .plans = plans, .close = gw_step_adapt_end};
