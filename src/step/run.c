/* The step under way: every lane goes on with its exchange, and begins the next when its gradient is there.
 * One thread does this, the step's own or the one that waits. */
#define _POSIX_C_SOURCE 200809L
#include "step/step.h"

#include "base/priority.h"

#include <sched.h>
#include <time.h>

enum { FEW = 64 * 1024 }; /* elements */

/* A rank that is ahead of others keeps its large exchanges back until a small one of this step has ended, and so all have come to
 * it: its bytes would take the link from those of the step before, and make who is late later. Not where a small one takes long by
 * itself, nor where a step begins with a large one. docs/decisions/006 */
static int too_early(const gw_step *s, const gw_task *t)
{
    static const double LONG = 2e-3; /* seconds */
    int waits = 0;
    if (t->elements < FEW || s->quickest == 0 || s->quickest > LONG || s->gradients->ordered) {
        return 0;
    }
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        const gw_step_lane *lane = &s->lanes[i];
        if (lane->task >= s->n_lanes) { /* it has ended one */
            return 0;
        }
        waits |= lane->begun && s->tasks[lane->task].elements < FEW;
    }
    return waits;
}

/* Of those that need an answer of others, or who comes last would find everything there. */
static void time_task(gw_step *s, const gw_step_lane *lane, const gw_task *t)
{
    const gw_program *program = gw_exchange_program(t->exchange);
    const double seconds = gw_clock() - lane->since;
    uint32_t phases = 0;
    for (uint32_t i = 0; i < program->n_moves; i++) {
        const gw_move *m = &program->move[i];
        const int coding = m->step.op == GW_OP_ENCODE || m->step.op == GW_OP_DECODE;
        phases += coding || m->group.size < 2 ? 0 : m->step.op == GW_OP_ALLREDUCE ? 2 : 1;
    }
    if (t->elements < FEW && phases >= 2 && (s->quickest == 0 || seconds < s->quickest)) {
        s->quickest = seconds;
    }
}

static gw_status run_lane(gw_step *s, gw_step_lane *lane, int *moved, gw_why *why)
{
    gw_task *t = &s->tasks[lane->task];
    gw_why reason = {""};
    int done = 0;
    gw_status status = GW_OK;
    if (!lane->begun) {
        if (!gw_task_ready(s, t) || too_early(s, t)) {
            *moved = 0;
            return GW_OK;
        }
        status = gw_task_begin(s, lane, &reason);
    }
    if (status == GW_OK) {
        status = gw_task_progress(s, lane, &done, moved, &reason);
    }
    if (status == GW_OK && done) {
        *moved = 1;
        time_task(s, lane, t);
        lane->task += s->n_lanes;
        lane->begun = 0;
        status = gw_task_end(s, lane, t, &reason);
    }
    if (status != GW_OK) {
        gw_task_words task;
        gw_task_say(s, t, &task);
        return gw_fail(why, status, "step %llu, %s: %s", (unsigned long long)s->number, task.text,
                       reason.text[0] != '\0' ? reason.text : gw_status_string(status));
    }
    return GW_OK;
}

/* Lanes in turn, the one with the oldest task first, up to one that moved: coding takes long, and bytes of the others
 * only go on while the engine is asked about them. *idle if nothing is under way. */
static gw_status run_lanes(gw_step *s, int *moved, int *idle, gw_why *why)
{
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < s->n_lanes; i++) {
        if (s->lanes[i].task < s->lanes[oldest].task) {
            oldest = i;
        }
    }
    *moved = 0;
    *idle = 1;
    for (uint32_t i = 0; i < s->n_lanes && !*moved; i++) {
        gw_step_lane *lane = &s->lanes[(oldest + i) % s->n_lanes];
        if (lane->task >= s->n_tasks) {
            continue;
        }
        const gw_status status = run_lane(s, lane, moved, why);
        if (status != GW_OK) {
            return status;
        }
        *idle &= !lane->begun;
    }
    return GW_OK;
}

/* ---- the two who run it ---- */

/* Naps grow with what was waited already: on a fast engine an answer is near, on a slow link looking often costs the
 * processor that backward and the link's own protocol need. */
enum { NAP_SHARE = 4, LEAST_NAP = 25, MOST_NAP = 100, IDLE_NAP = 2000, TOLD_NAP = 50000 /* µs */ };

void gw_step_notify(void *step)
{
    gw_step *s = step;
    (void)pthread_mutex_lock(&s->lock);
    gw_step_wake(s);
    (void)pthread_mutex_unlock(&s->lock);
}

void gw_step_wake(gw_step *s)
{
    s->woken = 1;
    (void)pthread_cond_signal(&s->due);
}

/* Sleeps until something is posted or has arrived, or a little while. */
static void rest(gw_step *s, double since, int idle)
{
    const double share = 1e6 * (gw_clock() - since) / NAP_SHARE;
    const long nap = share < LEAST_NAP ? LEAST_NAP : share > MOST_NAP ? MOST_NAP : (long)share;
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 1000L * (s->told ? TOLD_NAP : idle ? IDLE_NAP : nap);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&s->lock);
    if (!s->stop && !s->woken) {
        (void)pthread_cond_timedwait(&s->due, &s->lock, &until);
    }
    s->woken = 0;
    (void)pthread_mutex_unlock(&s->lock);
}

/* *since: of the last movement. */
static gw_status run_once(gw_step *s, double *since)
{
    gw_why why = {""};
    int moved = 0, idle = 0;
    const uint32_t caller = gw_fp_enter(); /* sums must not hang on how a rank rounds */
    gw_status status = run_lanes(s, &moved, &idle, &why);
    gw_fp_leave(caller);
    if (moved || idle) {
        *since = gw_clock();
    }
    if (status == GW_OK && !moved && !idle && gw_clock() - *since > s->config.timeout) {
        status = gw_step_too_late(s, &why);
    }
    if (status != GW_OK) {
        gw_step_fail(s, status, &why);
        return status;
    }
    if (!moved) {
        rest(s, *since, idle);
    }
    return GW_OK;
}

void gw_step_run_all(gw_step *s)
{
    double since = gw_clock();
    const int before = s->gradients->use != NULL ? s->gradients->use(s, s->config.place.device) : 0;
    while (s->status == GW_OK && s->arrived < s->n_layers && run_once(s, &since) == GW_OK) {
    }
    if (s->gradients->use != NULL) {
        (void)s->gradients->use(s, before);
    }
}

void *gw_step_thread(void *step)
{
    gw_step *s = step;
    double since = gw_clock();
    gw_turn_soon();
    if (s->gradients->use != NULL) {
        (void)s->gradients->use(s, s->config.place.device);
    }
    (void)pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        if (s->status != GW_OK || s->posted == 0 || s->arrived == s->n_layers) {
            (void)pthread_cond_wait(&s->due, &s->lock);
            since = gw_clock();
            continue;
        }
        s->busy = 1;
        (void)pthread_mutex_unlock(&s->lock);
        (void)run_once(s, &since);
        (void)pthread_mutex_lock(&s->lock);
        s->busy = 0;
        if (s->status != GW_OK || s->arrived == s->n_layers) { /* what wait waits for */
            (void)pthread_cond_broadcast(&s->changed);
        }
    }
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}
