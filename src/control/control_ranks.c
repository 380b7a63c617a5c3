/* What ranks give each other: tables of errors, and whether all chose the same. */
#include "control/control.h"

#include <string.h>

gw_status gw_control_post(gw_control *c, const void *own, size_t bytes, void *room,
                          gw_request *request, gw_why *why)
{
    const gw_status status = gw_gather_post(c->step->side, own, bytes, room, request, why);
    if (status != GW_OK) {
        const gw_why said = *why;
        gw_step_fail(c->step, status, &said);
    }
    return status;
}

gw_status gw_control_arrive(gw_control *c, gw_request *request, const void *room, size_t bytes,
                            void *all, gw_why *why)
{
    gw_comm *comm = c->step->side;
    gw_status status = gw_comm_wait(comm, *request, c->step->config.timeout, why);
    *request = NULL;
    if (status == GW_OK) {
        status = gw_gather_take(comm, room, bytes, all, why);
    }
    if (status != GW_OK) {
        const gw_why said = *why;
        gw_step_fail(c->step, status, &said);
    }
    return status;
}

gw_status gw_control_send(gw_control *c, gw_why *why)
{
    if (c->policy->complete != NULL) {
        c->policy->complete(c);
    }
    c->waited |= (uint32_t)gw_control_idle(c);
    c->own[GW_TABLE_WAITED] = c->waited;
    return gw_control_post(c, c->own, c->table * sizeof *c->own, c->room, &c->request, why);
}

gw_status gw_control_take(gw_control *c, gw_why *why)
{
    gw_status status =
        c->request == NULL ? gw_control_send(c, why) : GW_OK; /* resumed in between */
    if (status == GW_OK) {
        status = gw_control_arrive(c, &c->request, c->room, c->table * sizeof *c->own, c->all, why);
    }
    if (status != GW_OK) {
        return status;
    }
    const uint32_t ranks = c->step->config.comm->ranks;
    for (size_t i = 0; i < c->table; i++) {
        double sum = 0;
        for (uint32_t r = 0; r < ranks; r++) {
            sum += c->all[r * c->table + i];
        }
        c->mean[i] = sum / ranks;
    }
    for (uint32_t r = 0; r < ranks; r++) {
        const double seconds = c->all[r * c->table + GW_TABLE_SECONDS];
        c->measure_seconds = seconds > c->measure_seconds ? seconds : c->measure_seconds;
    }
    return GW_OK;
}

/* What a rank says before a choice binds. */
enum { SAID_CHECKSUM, SAID_WAITED, SAID_SECONDS, SAID_FAILED, SAID_MORE, SAID = SAID_MORE + 2 };

/* If one rank could not choose, or ranks chose differently. If none could for the same reason, they agree: all stays. */
static gw_status compare_with_first(const gw_control *c, uint32_t r, gw_why *why)
{
    const double *said = c->said + (size_t)r * SAID;
    if (said[SAID_FAILED] != c->said[SAID_FAILED]) {
        const int other = said[SAID_FAILED] != GW_OK;
        const gw_status status = (gw_status)(other ? said[SAID_FAILED] : c->said[SAID_FAILED]);
        return gw_fail(
            why, status, "%s: rank %u could not choose of the gradients of step %llu: %s",
            c->policy->name, other ? r : 0, (unsigned long long)c->start, gw_status_string(status));
    }
    uint64_t theirs, first;
    memcpy(&theirs, &said[SAID_CHECKSUM], sizeof theirs);
    memcpy(&first, &c->said[SAID_CHECKSUM], sizeof first);
    if (theirs != first) {
        return GW_FAIL(why, GW_ERR_DISAGREE,
                       "%s: of the gradients of step %llu rank %u chose other levels than rank 0",
                       c->policy->name, (unsigned long long)c->start, r);
    }
    return GW_OK;
}

/* All ranks see it: an abort could only overtake the reason. */
static gw_status refuse(gw_step *s, gw_status status, const gw_why *why)
{
    gw_feedback_refuse_saving(s->store, why->text);
    (void)pthread_mutex_lock(&s->lock);
    s->status = status;
    s->why = *why;
    (void)pthread_mutex_unlock(&s->lock);
    return status;
}

gw_status gw_control_compare(gw_control *c, uint64_t checksum, gw_why *why)
{
    const uint32_t ranks = c->step->side->ranks;
    double own[SAID] = {0};
    memcpy(&own[SAID_CHECKSUM], &checksum, sizeof checksum);
    own[SAID_WAITED] = c->waited;
    own[SAID_SECONDS] = c->solve_seconds;
    own[SAID_FAILED] = (double)c->failed;
    memcpy(own + SAID_MORE, c->more, sizeof c->more);
    gw_status status = gw_control_post(c, own, sizeof own, c->room, &c->request, why);
    if (status == GW_OK) {
        status = gw_control_arrive(c, &c->request, c->room, sizeof own, c->said, why);
    }
    if (status != GW_OK) {
        return status;
    }
    for (uint32_t r = 0; r < ranks && status == GW_OK; r++) {
        const double *said = c->said + (size_t)r * SAID;
        status = compare_with_first(c, r, why);
        c->late += said[SAID_WAITED] != 0;
        c->solve_seconds =
            said[SAID_SECONDS] > c->solve_seconds ? said[SAID_SECONDS] : c->solve_seconds;
    }
    for (uint32_t r = ranks; r-- > 0;) {
        for (int i = 0; i < 2; i++) {
            const double said = c->said[(size_t)r * SAID + SAID_MORE + (size_t)i];
            c->more[i] = said == said ? said : c->more[i];
        }
    }
    return status == GW_OK ? GW_OK : refuse(c->step, status, why);
}
