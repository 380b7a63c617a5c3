/* Additive routes: the payload's numbers take the tensor's place, and are summed as they are; of a codec with rounds, round
 * after round. */
#include "coll/exchange.h"

#include <stdlib.h>

/* ---- what is due ---- */

static gw_status settle(void *exchange, float *r, uint64_t count, gw_why *why)
{
    gw_exchange *x = exchange;
    const gw_exchange_config *c = &x->config;
    const gw_status status =
        x->owes ? gw_rounds_settle(&c->params, &c->exec, x->due, r, (size_t)count) : GW_OK;
    x->owes = 0;
    return status == GW_OK ? GW_OK
                           : gw_fail(why, status, "what is due: %s", gw_status_string(status));
}

static gw_status forget(void *exchange, const float *r, uint64_t count, gw_why *why)
{
    (void)r;
    (void)count;
    (void)why;
    ((gw_exchange *)exchange)->owes = 0;
    return GW_OK;
}

gw_status gw_additive_keep(gw_exchange *x, gw_why *why)
{
    size_t floats = 0;
    if (x->slot[0] == GW_NO_SLOT ||
        gw_rounds_due(&x->config.params, (size_t)x->config.elements, &floats) != GW_OK ||
        floats == 0) {
        return GW_OK;
    }
    x->due = malloc(floats * sizeof *x->due);
    x->due_after = malloc(floats * sizeof *x->due);
    if (x->due == NULL || x->due_after == NULL) {
        return gw_fail(why, GW_ERR_MEMORY, "no memory for an exchange");
    }
    const gw_feedback_keeper keeper = {x, settle, forget, 1};
    return gw_feedback_keep(x->config.store, x->slot[0], &keeper, why);
}

gw_status gw_additive_begin(gw_exchange *x, gw_why *why)
{
    const gw_status status =
        x->state_slot != GW_NO_SLOT
            ? gw_feedback_begin(x->config.store, x->state_slot, &x->state, &x->state_after, why)
            : GW_OK;
    if (status != GW_OK && x->keeps) {
        gw_slots_rollback(x);
    }
    return status;
}

void gw_additive_rollback(gw_exchange *x)
{
    if (x->state_slot != GW_NO_SLOT) {
        (void)gw_feedback_rollback(x->config.store, x->state_slot, NULL);
    }
}

gw_status gw_additive_commit(gw_exchange *x, gw_why *why)
{
    if (x->state_slot != GW_NO_SLOT) {
        const gw_status status =
            gw_feedback_commit_checked(x->config.store, x->state_slot, NULL, why);
        if (status != GW_OK) {
            return status;
        }
    } else if (x->own_state != NULL) {
        const float *const state = x->state;
        x->state = x->state_after;
        x->state_after = x->own_state + (state - x->own_state);
    }
    float *const before = x->due;
    x->due = x->due_after;
    x->due_after = before;
    x->owes = x->due != NULL;
    return GW_OK;
}

void gw_additive_free(gw_exchange *x)
{
    free(x->due);
    free(x->due_after);
    free(x->own_state);
}

/* ---- a round ---- */

static gw_rounds rounds_of(gw_exchange *x, gw_exec *exec, gw_tensor *in)
{
    *exec = x->config.exec;
    exec->workspace = x->rounds_workspace;
    *in = (gw_tensor){x->values, (size_t)x->config.elements, GW_F32};
    return (gw_rounds){.params = &x->config.params,
                       .exec = exec,
                       .stream = &x->stream,
                       .in = in,
                       .residual = x->residual[0],
                       .residual_after = x->residual_after[0],
                       .due = x->owes ? x->due : NULL,
                       .due_after = x->due_after,
                       .state = x->state,
                       .state_after = x->state_after};
}

/* The buffer of the next round, and the route for so many numbers. */
static gw_status make_round(gw_exchange *x, gw_why *why)
{
    gw_exec exec;
    gw_tensor in;
    gw_report report = {0};
    size_t n = 0;
    const gw_rounds rounds = rounds_of(x, &exec, &in);
    gw_status status = gw_rounds_elements(&x->config.params, in.count, x->round, &n);
    if (status == GW_OK && n != 0) {
        status = gw_rounds_make(&rounds, x->round, x->numbers, &report);
    }
    if (status != GW_OK) {
        return gw_fail(why, status, "round %u: %s", x->round, gw_status_string(status));
    }
    x->stats.report = x->round == 0 ? report : x->stats.report;
    x->stats.payload_bytes += 4 * n;
    return gw_exchange_compile(x, n, why);
}

gw_status gw_additive_encode_round(gw_exchange *x, const gw_move *m, int *done, gw_why *why)
{
    (void)m;
    *done = 1;
    x->stats.coded_on |= GW_DEVICE_CPU;
    x->base_first = 0;
    x->base = (uint8_t *)x->numbers;
    return make_round(x, why);
}

gw_status gw_additive_decode_round(gw_exchange *x, const gw_move *m, int *done, gw_why *why)
{
    (void)m;
    gw_tensor in, out = {x->values, (size_t)x->config.elements, GW_F32};
    gw_exec exec;
    size_t n = 0;
    const gw_rounds rounds = rounds_of(x, &exec, &in);
    *done = 1;
    x->stats.coded_on |= GW_DEVICE_CPU;
    x->divided = x->looked = 0;
    gw_status status = in.count != 0 ? gw_rounds_take(&rounds, x->round, x->numbers) : GW_OK;
    if (status == GW_OK) {
        status = gw_rounds_elements(&x->config.params, in.count, x->round + 1, &n);
    }
    if (status == GW_OK && n != 0) {
        x->round++;
        x->again = 1;
        return make_round(x, why);
    }
    if (status == GW_OK) {
        status =
            gw_rounds_mean(&rounds, x->numbers, gw_exchange_divisor(x), &out, &x->stats.finite);
        x->divided = x->looked = 1;
    }
    return status == GW_OK
               ? GW_OK
               : gw_fail(why, status, "round %u: %s", x->round, gw_status_string(status));
}

/* ---- one payload ---- */

gw_status gw_additive_encode(gw_exchange *x, const gw_move *m, int *done, gw_why *why)
{
    *done = 1;
    x->stats.coded_on |= GW_DEVICE_CPU;
    x->base_first = 0;
    size_t written = 0, shared = 0;
    gw_exec exec = x->config.exec;
    exec.workspace = x->codec_workspace;
    const gw_tensor in = {x->values, (size_t)x->config.elements, GW_F32};
    const gw_stream stream = gw_program_stream(&x->program, m, 0, x->stream);
    gw_status status = gw_payload_bound(&x->config.params, 0, &shared);
    if (status == GW_OK) {
        status = gw_encode_feedback(&x->config.params, &exec, &stream, &in, x->residual[0],
                                    x->residual_after[0], x->numbers, x->numbers_bytes, &written,
                                    &x->stats.report);
    }
    x->base = (uint8_t *)x->numbers + shared;
    x->stats.payload_bytes = written;
    return status == GW_OK ? GW_OK
                           : gw_fail(why, status, "cannot encode: %s", gw_status_string(status));
}

gw_status gw_additive_decode(gw_exchange *x, const gw_move *m, int *done, gw_why *why)
{
    (void)m;
    gw_tensor out = {x->values, (size_t)x->config.elements, GW_F32};
    gw_exec exec = x->config.exec;
    exec.workspace = x->codec_workspace;
    *done = 1;
    x->stats.coded_on |= GW_DEVICE_CPU;
    x->divided = x->looked = 0;
    return gw_decode(&x->config.params, &exec, x->numbers, x->numbers_bytes, GW_SET, &out, why);
}
