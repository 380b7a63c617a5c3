/* Where an exchange keeps what outlives it: residuals of its encode points, and what a codec with rounds remembers.
 * An exchange that takes another's place goes on with what fits. */
#include "coll/exchange.h"

#include <stdlib.h>
#include <string.h>

/* Exchanges of one tensor share the four encode points of its route. */
enum { PIECE_SHIFT = 8, SHARED_POINT = 3 };
/* Where a codec with rounds keeps its state: beside the points, so that checkpoints have it too. The store drops
 * it where a residual would become an orphan. */
#define STATE_POINT (16u | GW_FEEDBACK_COPY)

/* Every encode that this rank runs has a residual, if the codec wants one. */
static void list_points(gw_exchange *x)
{
    const gw_exchange_config *c = &x->config;
    const int wants = x->program.kind != GW_ROUTE_UNCOMPRESSED &&
                      (gw_params_flags(&c->params) & GW_CODEC_WANTS_FEEDBACK) != 0;
    for (uint32_t i = 0; i < x->program.n_moves && wants && c->store != NULL; i++) {
        const gw_move *m = &x->program.move[i];
        if (m->step.op != GW_OP_ENCODE || !m->runs || m->before.range.count == 0) {
            continue;
        }
        const uint32_t share = m->owner != c->rank ? GW_FEEDBACK_COPY : GW_FEEDBACK_SHARED;
        x->point[i] = m->point | c->piece << PIECE_SHIFT | (m->point == SHARED_POINT ? share : 0);
        x->range[i] = m->before.range;
    }
}

/* Residuals of the same point and range stay where they are; others become orphans. */
static void take_over(gw_exchange *x, gw_exchange *before)
{
    for (uint32_t j = 0; j < GW_ROUTE_MAX_STEPS; j++) {
        for (uint32_t i = 0; i < GW_ROUTE_MAX_STEPS && before->slot[j] != GW_NO_SLOT; i++) {
            if (x->range[i].count != 0 && x->point[i] == before->point[j] &&
                x->range[i].first == before->range[j].first &&
                x->range[i].count == before->range[j].count) {
                x->slot[i] = before->slot[j];
                before->slot[j] = GW_NO_SLOT;
            }
        }
        if (before->slot[j] != GW_NO_SLOT) {
            (void)gw_feedback_retire(x->config.store, before->slot[j], NULL);
            before->slot[j] = GW_NO_SLOT;
        }
    }
}

gw_status gw_exchange_add_slots(gw_exchange *x, gw_why *why)
{
    const gw_exchange_config *c = &x->config;
    list_points(x);
    if (c->before != NULL && c->store != NULL) {
        take_over(x, c->before);
    }
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < GW_ROUTE_MAX_STEPS && status == GW_OK; i++) {
        if (x->range[i].count != 0 && x->slot[i] == GW_NO_SLOT) {
            status = gw_feedback_add(c->store, c->store_tensor, x->point[i], x->range[i].first,
                                     x->range[i].count, &x->slot[i], why);
        }
        x->keeps |= x->slot[i] != GW_NO_SLOT;
    }
    return status;
}

void gw_slots_rollback(gw_exchange *x)
{
    for (uint32_t i = 0; i < GW_ROUTE_MAX_STEPS; i++) {
        if (x->slot[i] != GW_NO_SLOT && x->residual[i] != NULL) {
            (void)gw_feedback_rollback(x->config.store, x->slot[i], NULL);
        }
        x->residual[i] = NULL;
        x->residual_after[i] = NULL;
    }
}

gw_status gw_slots_begin(gw_exchange *x, gw_why *why)
{
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < x->program.n_moves && status == GW_OK; i++) {
        if (x->slot[i] != GW_NO_SLOT) {
            status = gw_feedback_begin(x->config.store, x->slot[i], &x->residual[i],
                                       &x->residual_after[i], why);
        }
    }
    if (status != GW_OK) {
        gw_slots_rollback(x);
    }
    return status;
}

gw_status gw_slots_commit(gw_exchange *x, gw_why *why)
{
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < GW_ROUTE_MAX_STEPS && status == GW_OK; i++) {
        if (x->slot[i] != GW_NO_SLOT && x->residual[i] != NULL) {
            status = gw_feedback_commit_checked(x->config.store, x->slot[i], NULL, why);
        }
        if (status == GW_OK) {
            x->residual[i] = NULL;
            x->residual_after[i] = NULL;
        }
    }
    return status;
}

/* The floats that the state of `before` and the new one have in common, to be freed; NULL if none. */
static float *shared_state(gw_exchange *x, size_t *floats)
{
    gw_exchange *before = x->config.before;
    *floats = 0;
    if (before == NULL || before->state_slot == GW_NO_SLOT) {
        return NULL;
    }
    float *copy = NULL;
    if (before->config.elements == x->config.elements &&
        gw_rounds_shared_state(&before->config.params, &x->config.params,
                               (size_t)x->config.elements, floats) == GW_OK &&
        *floats != 0) {
        copy = malloc(*floats * sizeof *copy);
    }
    if (copy != NULL) {
        memcpy(copy, gw_feedback_residual(x->config.store, before->state_slot),
               *floats * sizeof *copy);
    }
    (void)gw_feedback_retire(x->config.store, before->state_slot, NULL);
    before->state_slot = GW_NO_SLOT;
    return copy;
}

gw_status gw_exchange_add_state(gw_exchange *x, size_t floats, gw_why *why)
{
    if (floats == 0 || x->config.store == NULL) {
        x->own_state = calloc(2 * (floats + 1), sizeof *x->own_state);
        x->state = x->own_state;
        x->state_after = x->own_state != NULL ? x->own_state + floats + 1 : NULL;
        return x->state != NULL ? GW_OK : gw_fail(why, GW_ERR_MEMORY, "no memory for an exchange");
    }
    size_t shared = 0;
    float *copy = shared_state(x, &shared);
    gw_status status = gw_feedback_add(x->config.store, x->config.store_tensor, STATE_POINT, 0,
                                       floats, &x->state_slot, why);
    if (status == GW_OK && copy != NULL) {
        const float *old = NULL;
        float *after = NULL;
        status = gw_feedback_begin(x->config.store, x->state_slot, &old, &after, why);
        if (status == GW_OK) { /* behind it zeros, which the codec draws anew */
            memcpy(after, copy, shared * sizeof *copy);
            status = gw_feedback_commit_checked(x->config.store, x->state_slot, NULL, why);
        }
    }
    free(copy);
    return status;
}

const float *gw_exchange_residual(const gw_exchange *x, gw_range *range)
{
    if (x == NULL || range == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < GW_ROUTE_MAX_STEPS; i++) {
        if (x->slot[i] != GW_NO_SLOT) {
            *range = x->range[i];
            return gw_feedback_residual(x->config.store, x->slot[i]);
        }
    }
    *range = (gw_range){0};
    return NULL;
}
