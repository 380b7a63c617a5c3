/* The timetable of rounds. Everything here runs between steps, on the caller's thread. */
#include "control/control.h"

#include "base/huge_pages.h"
#include "base/numeric.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

typedef struct gw_control_block {
    struct gw_control_block *next;
    _Alignas(max_align_t) unsigned char bytes[];
} gw_control_block;

void *gw_control_memory(gw_control *c, size_t n, size_t item)
{
    gw_control_block *b = calloc(1, sizeof *b + n * item);
    c->no_memory |= b == NULL;
    if (b == NULL) {
        return NULL;
    }
    b->next = c->blocks;
    c->blocks = b;
    return b->bytes;
}

gw_status gw_control_has_memory(const gw_control *c, gw_why *why)
{
    return !c->no_memory ? GW_OK : GW_FAIL(why, GW_ERR_MEMORY, "no memory for %s", c->policy->name);
}

/* ---- rounds ---- */

uint64_t gw_control_bound(const gw_control *c)
{
    return c->window + c->lag + c->rest;
}

void gw_control_resume_round(gw_control *c, uint64_t start, int live)
{
    (void)pthread_mutex_lock(&c->lock);
    c->handed = c->measured = 0;
    c->solve = c->solved = 0;
    (void)pthread_mutex_unlock(&c->lock);
    c->live = live;
    c->start = start;
    c->waited = c->late = 0;
    c->measure_seconds = c->solve_seconds = 0;
    c->more[0] = c->more[1] = (double)NAN;
}

void gw_control_begin_round(gw_control *c, uint64_t start, int quick)
{
    gw_control_resume_round(c, start, 1);
    c->quick = quick;
    memset(c->own, 0, (quick ? GW_TABLE_LAYERS : c->table) * sizeof *c->own);
}

static gw_status take_tables(gw_control *c, gw_why *why)
{
    gw_status status = gw_control_take(c, why);
    if (status == GW_OK && c->policy->taken != NULL) {
        status = c->policy->taken(c, why);
    }
    if (status == GW_OK) {
        gw_control_hand(c, c->handed, 1);
    }
    return status;
}

static gw_status bind(gw_control *c, uint64_t number, gw_why *why)
{
    c->waited |= (uint32_t)gw_control_idle(c);
    const gw_status status = gw_control_compare(c, c->policy->checksum(c), why);
    return status == GW_OK ? c->policy->bind(c, number, why) : status;
}

gw_status gw_control_go_on(gw_control *c, uint64_t number, gw_why *why)
{
    if (!c->live || number < c->start) {
        return GW_OK;
    }
    const uint64_t offset = number - c->start;
    if (offset < c->window && !c->quick) {
        gw_control_hand(c, offset + 1, 0);
    }
    if (offset == c->window - 1 + c->lag) {
        return gw_control_send(c, why);
    }
    if (offset == c->window + c->lag) {
        return take_tables(c, why);
    }
    return offset == gw_control_bound(c) ? bind(c, number, why) : GW_OK;
}

gw_status gw_control_agree(gw_control *c, gw_why *why)
{
    const gw_status status = c->step->agreed ? GW_OK : gw_step_agree(c->step, why);
    if (status == GW_OK) {
        c->decisions++;
        c->live = 0;
    }
    return status;
}

/* ---- what the step calls ---- */

static gw_status posted(void *above, uint32_t layer, const gw_tensor *gradient, gw_why *why)
{
    gw_control *c = above;
    const uint32_t place = layer < c->known ? c->place_of[layer] : UINT32_MAX;
    return c->policy->posted(c, layer, place, gradient, why);
}

static gw_status waited(void *above, uint64_t number, gw_why *why)
{
    gw_control *c = above;
    gw_why own = {""};
    const uint32_t caller = gw_fp_enter();
    const gw_status status = c->policy->waited(c, number, gw_why_or(why, &own));
    gw_fp_leave(caller);
    return status;
}

static int plans(const void *above, uint32_t layer)
{
    const gw_control *c = above;
    return layer < c->known && c->place_of[layer] != UINT32_MAX;
}

static void end(void *above)
{
    gw_control *c = above;
    gw_step *s = c->step;
    if (c->request != NULL && s->status == GW_OK) { /* others may still read what is freed here */
        (void)gw_comm_wait(s->side, c->request, s->config.timeout, NULL);
    }
    if (c->has_thread) {
        (void)pthread_mutex_lock(&c->lock);
        c->stop = 1;
        (void)pthread_cond_broadcast(&c->changed);
        (void)pthread_mutex_unlock(&c->lock);
        (void)pthread_join(c->thread, NULL);
    }
    if (c->policy->close != NULL) {
        c->policy->close(c);
    }
    while (c->blocks != NULL) {
        gw_control_block *b = c->blocks;
        c->blocks = b->next;
        free(b);
    }
    gw_pages_free(c->copies);
    (void)pthread_cond_destroy(&c->changed);
    (void)pthread_mutex_destroy(&c->lock);
    free(c);
    s->hooks = NULL;
    s->above = NULL;
}

/* ---- begin ---- */

/* All ranks by the same settings. */
static gw_status open_all(gw_control *c, const void *config, gw_why *why)
{
    gw_step *s = c->step;
    const char *const names[] = {"library version", c->policy->settings};
    gw_status status = s->side == NULL ? gw_step_split(s, s->config.comm, 0, &s->side, why) : GW_OK;
    if (status == GW_OK) {
        status = c->policy->open(c, config, why);
    }
    if (status == GW_OK) {
        const uint64_t numbers[GW_STEP_NUMBERS] = {gw_version(), c->hash};
        status = gw_step_compare_numbers(s, s->side, numbers, names, 2, why);
    }
    if (status == GW_OK) {
        status = c->policy->start(c, config, why);
    }
    return status == GW_OK ? gw_control_run(c, why) : status;
}

gw_status gw_control_begin(gw_step *s, const gw_policy *policy, const void *config, gw_why *why)
{
    static const gw_step_hooks hooks = {posted, waited, plans, end};
    gw_why own = {""};
    why = gw_why_or(why, &own);
    gw_status status = gw_step_failure(s, why);
    if (status == GW_OK && (config == NULL || s->hooks != NULL || !s->agreed || s->posted != 0)) {
        status = GW_FAIL(why, GW_ERR_STATE,
                         "%s begins once, between steps, after gw_step_agree; a step has adapt or "
                         "auto, not both",
                         policy->name);
    }
    if (status == GW_OK) {
        status = policy->check(s, config, why);
    }
    gw_control *c = status == GW_OK ? calloc(1, policy->size) : NULL;
    if (c == NULL) {
        return status != GW_OK ? status
                               : GW_FAIL(why, GW_ERR_MEMORY, "no memory for %s", policy->name);
    }
    c->step = s;
    c->policy = policy;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->changed, NULL);
    s->above = c;
    s->hooks = &hooks;
    status = open_all(c, config, why);
    if (status != GW_OK) {
        end(c);
    }
    return status;
}
