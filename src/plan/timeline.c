/* Event by event: what ends at a moment, then what can begin. See timeline.h. */
#include "plan/timeline.h"

#include "base/why.h"

#include <stdlib.h>
#include <string.h>

/* ---- chains ---- */

static int is_link(unsigned track)
{
    return track == GW_TRACK_INTRA || track == GW_TRACK_NIC;
}

void gw_chain_build(const gw_timeline_rules *rules, const gw_timed_op *ops, uint32_t n_ops,
                    gw_op_time *out, gw_chain *chain)
{
    uint32_t n = 0, links = 0;
    *chain = (gw_chain){.op = out};
    for (uint32_t i = 0; i < n_ops; i++) {
        if (ops[i].ticks == 0) {
            continue;
        }
        const unsigned track =
            rules->one_channel && ops[i].track == GW_TRACK_INTRA ? GW_TRACK_NIC : ops[i].track;
        out[n] = (gw_op_time){.ticks = ops[i].ticks, .track = (uint8_t)track, .urgent = 1};
        out[n].first = is_link(track) && links == 0;
        links += (uint32_t)is_link(track);
        chain->work[track] += ops[i].ticks;
        n++;
    }
    for (uint32_t i = n; i-- > 0 && !is_link(out[i].track);) {
        out[i].urgent = (uint8_t)(rules->urgent_last_decode != 0);
    }
    chain->n = n;
}

/* ---- queues ---- */

/* In order of readiness; what is ready at the same moment in order of tensors. */
static void push(gw_moment *m, gw_entry *const *log, unsigned queue, gw_entry entry)
{
    gw_entry *q = log[queue];
    uint32_t at = m->tail[queue]++;
    for (; at > m->head[queue] && q[at - 1].ready == entry.ready && q[at - 1].tensor > entry.tensor;
         at--) {
        q[at] = q[at - 1];
    }
    q[at] = entry;
}

static void push_op(const gw_timeline *t, gw_moment *m, gw_entry *const *log, uint32_t tensor,
                    uint32_t op)
{
    const gw_chain *chain = t->chain[tensor];
    if (op < chain->n) {
        const gw_op_time *o = &chain->op[op];
        const unsigned queue =
            o->track == GW_TRACK_GPU && !o->urgent ? (unsigned)GW_QUEUE_DEFERRED : o->track;
        push(m, log, queue, (gw_entry){m->now, tensor, op});
    }
}

static void record(gw_timeline *t, unsigned server, const gw_entry *entry, gw_ticks begin,
                   gw_ticks end)
{
    if (t->interval == NULL || t->n_intervals == t->room || begin == end) {
        return;
    }
    const unsigned track = server < GW_TRACKS ? server : GW_TRACK_CPU;
    t->interval[t->n_intervals++] =
        (gw_interval){.tensor = entry->tensor,
                      .op = entry->op,
                      .track = (gw_track)track,
                      .worker = server < GW_TRACKS ? 0 : server - GW_TRACKS + 1,
                      .begin = begin,
                      .end = end};
}

/* ---- the GPU ---- */

static void pause_backward(gw_timeline *t, gw_moment *m)
{
    record(t, GW_TRACK_GPU, &(gw_entry){0, m->back, UINT32_MAX}, m->since[GW_TRACK_GPU], m->now);
    m->back_left -= m->now - m->since[GW_TRACK_GPU];
    m->in_back = 0;
    m->end[GW_TRACK_GPU] = GW_NEVER;
}

static void resume_backward(gw_moment *m)
{
    m->in_back = 1;
    m->since[GW_TRACK_GPU] = m->now;
    m->end[GW_TRACK_GPU] = m->now + m->back_left;
}

/* The gradient of tensor `back` is there, and those that need no time after it. */
static void finish_backward(gw_timeline *t, gw_moment *m, gw_entry *const *log)
{
    record(t, GW_TRACK_GPU, &(gw_entry){0, m->back, UINT32_MAX}, m->since[GW_TRACK_GPU], m->now);
    m->in_back = 0;
    m->end[GW_TRACK_GPU] = GW_NEVER;
    do {
        m->begun[GW_TRACK_GPU] += t->compute[m->back];
        push_op(t, m, log, m->back, 0);
        m->back++;
    } while (m->back < t->n && t->compute[m->back] == 0);
    m->back_left = m->back < t->n ? t->compute[m->back] : 0;
}

/* How much longer an operation of a link takes that begins beside backward. First it waits for its turn on the cores, at
 * most until they are free. Then, as long as both last, there is more to do than is done in the time, so both go
 * on at the same lower pace. */
static gw_ticks share_cores(const gw_timeline *t, gw_moment *m, unsigned track, gw_ticks ticks)
{
    const gw_ticks done = m->in_back ? m->now - m->since[GW_TRACK_GPU] : 0;
    const gw_ticks left = m->back_left - done + t->behind[m->back];
    const gw_ticks late = t->rules.busy[track] < left ? t->rules.busy[track] : left;
    const gw_ticks both = ticks < left - late ? ticks : left - late;
    const gw_ticks longer = (gw_ticks)(t->rules.core_share[track] * (double)both);
    m->back_left += longer;
    if (m->in_back) {
        m->end[GW_TRACK_GPU] += longer;
    }
    return late + longer;
}

/* ---- beginning ---- */

/* Nothing but the entry about to begin is under way or waits: what came before has no part in what follows. */
static int all_is_quiet(const gw_timeline *t, const gw_moment *m, unsigned track)
{
    for (unsigned q = 0; q < GW_TRACKS; q++) {
        if (m->tail[q] - m->head[q] > (q == track)) {
            return 0;
        }
    }
    for (unsigned s = 0; s < t->servers; s++) {
        if (m->end[s] != GW_NEVER && !(s == GW_TRACK_GPU && m->in_back)) {
            return 0;
        }
    }
    return 1;
}

/* False: the end is sure to be `limit` or later. */
static int begin(gw_timeline *t, gw_moment *m, gw_entry *const *log, unsigned server,
                 unsigned queue, gw_ticks limit)
{
    const unsigned track = server < GW_TRACKS ? server : GW_TRACK_CPU;
    const gw_entry entry = log[queue][m->head[queue]];
    const gw_op_time *op = &t->chain[entry.tensor]->op[entry.op];
    if (op->first && m->track_free[track] < m->now && all_is_quiet(t, m, track)) {
        m->bubble = entry.tensor;
    }
    m->head[queue]++;
    gw_ticks left = t->total[track] - m->begun[track];
    if (track == GW_TRACK_GPU && m->back < t->n) {
        left -= t->compute[m->back] - m->back_left;
    }
    m->begun[track] += op->ticks;
    m->end[server] = m->now + op->ticks;
    m->since[server] = m->now;
    m->entry[server] = entry;
    t->events++;
    if (m->back < t->n && track >= GW_TRACK_INTRA) {
        m->end[server] += share_cores(t, m, track, op->ticks);
    }
    return track == GW_TRACK_CPU || m->now + left < limit;
}

static int begin_gpu(gw_timeline *t, gw_moment *m, gw_entry *const *log, gw_ticks limit)
{
    if (m->end[GW_TRACK_GPU] != GW_NEVER && !m->in_back) {
        return 1;
    }
    if (m->head[GW_TRACK_GPU] != m->tail[GW_TRACK_GPU]) {
        if (m->in_back) {
            pause_backward(t, m);
        }
        return begin(t, m, log, GW_TRACK_GPU, GW_TRACK_GPU, limit);
    }
    if (m->back < t->n) {
        if (!m->in_back) {
            resume_backward(m);
        }
        return 1;
    }
    return m->head[GW_QUEUE_DEFERRED] == m->tail[GW_QUEUE_DEFERRED] ||
           begin(t, m, log, GW_TRACK_GPU, GW_QUEUE_DEFERRED, limit);
}

static int begin_all(gw_timeline *t, gw_moment *m, gw_entry *const *log, gw_ticks limit)
{
    int go_on = begin_gpu(t, m, log, limit);
    for (unsigned s = GW_TRACK_GPU + 1; s < t->servers && go_on; s++) {
        const unsigned queue = s < GW_TRACKS ? s : GW_TRACK_CPU;
        if (m->head[queue] != m->tail[queue] && m->end[s] == GW_NEVER) {
            go_on = begin(t, m, log, s, queue, limit);
        }
    }
    return go_on;
}

/* ---- the loop ---- */

static gw_ticks next_end(const gw_timeline *t, const gw_moment *m)
{
    gw_ticks next = GW_NEVER;
    for (unsigned s = 0; s < t->servers; s++) {
        next = m->end[s] < next ? m->end[s] : next;
    }
    return next;
}

static void end_all(gw_timeline *t, gw_moment *m, gw_entry *const *log)
{
    for (unsigned s = 0; s < t->servers; s++) {
        if (m->end[s] != m->now) {
            continue;
        }
        if (s == GW_TRACK_GPU && m->in_back) {
            finish_backward(t, m, log);
            continue;
        }
        const gw_entry ended = m->entry[s];
        record(t, s, &ended, m->since[s], m->now);
        m->end[s] = GW_NEVER;
        m->track_free[s < GW_TRACKS ? s : GW_TRACK_CPU] = m->now;
        push_op(t, m, log, ended.tensor, ended.op + 1);
    }
}

/* Saves the moment for the tensors whose gradients come at the next one. */
static void save_moment(gw_timeline *t, const gw_moment *m)
{
    uint32_t i = m->back;
    do {
        t->moment[i++] = *m;
    } while (i < t->n && t->compute[i] == 0);
}

static gw_ticks run(gw_timeline *t, gw_moment *m, gw_entry *const *log, gw_ticks limit, int save)
{
    for (;;) {
        const gw_ticks next = next_end(t, m);
        if (next == GW_NEVER) {
            return m->now;
        }
        if (next >= limit) {
            return GW_NEVER;
        }
        if (save && m->in_back && m->end[GW_TRACK_GPU] == next) {
            save_moment(t, m);
        }
        m->now = next;
        end_all(t, m, log);
        if (!begin_all(t, m, log, limit)) {
            return GW_NEVER;
        }
    }
}

/* ---- the whole ---- */

static void start(gw_timeline *t, gw_moment *m)
{
    *m = (gw_moment){.back_left = t->compute[0]};
    for (unsigned s = 0; s < GW_SERVERS; s++) {
        m->end[s] = GW_NEVER;
    }
    memset(t->total, 0, sizeof t->total);
    for (uint32_t i = 0; i < t->n; i++) {
        t->total[GW_TRACK_GPU] += t->compute[i];
        for (unsigned track = 0; track < GW_TRACKS; track++) {
            t->total[track] += t->chain[i]->work[track];
        }
    }
    resume_backward(m);
}

void gw_timeline_commit(gw_timeline *t, uint32_t from)
{
    gw_moment m;
    start(t, &m);
    if (from > 0) {
        m = t->moment[from];
    }
    t->evaluations++;
    t->makespan = run(t, &m, t->log, GW_NEVER, 1);
    t->bubble = m.bubble;
}

/* Takes the chains, and gives back what was there. */
static void swap(gw_timeline *t, const uint32_t *tensors, const gw_chain **chains, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const gw_chain *before = t->chain[tensors[i]];
        for (unsigned track = 0; track < GW_TRACKS; track++) {
            t->total[track] += chains[i]->work[track] - before->work[track];
        }
        t->chain[tensors[i]] = chains[i];
        chains[i] = before;
    }
}

/* No timeline that goes on from here ends earlier: each track still has to do what is not begun. */
static gw_ticks least_end(const gw_timeline *t, const gw_moment *m)
{
    const gw_ticks next = next_end(t, m);
    /* backward of tensor `back` is under way and ends at the next moment */
    gw_ticks least = next + t->total[GW_TRACK_GPU] - m->begun[GW_TRACK_GPU] - t->compute[m->back];
    for (unsigned track = GW_TRACK_COPY; track < GW_TRACKS; track++) {
        const gw_ticks busy = m->end[track];
        const gw_ticks begins = busy != GW_NEVER ? busy : next;
        const gw_ticks end = begins + t->total[track] - m->begun[track];
        least = end > least ? end : least;
    }
    return least;
}

gw_ticks gw_timeline_try(gw_timeline *t, const uint32_t *tensors, const gw_chain *const *chains,
                         uint32_t n, gw_ticks limit)
{
    t->events++;
    const gw_chain *swapped[GW_TRY_MAX];
    gw_ticks makespan = GW_NEVER;
    memcpy(swapped, chains, n * sizeof(void *));
    swap(t, tensors, swapped, n);
    gw_moment m = t->moment[tensors[0]];
    if (least_end(t, &m) < limit) {
        for (unsigned q = 0; q < GW_QUEUES; q++) {
            const uint32_t head = m.head[q];
            memcpy(t->trial_log[q] + head, t->log[q] + head, (m.tail[q] - head) * sizeof(gw_entry));
        }
        t->evaluations++;
        makespan = run(t, &m, t->trial_log, limit, 0);
    }
    swap(t, tensors, swapped, n);
    return makespan;
}

gw_status gw_timeline_create(gw_timeline *t, const gw_timeline_rules *rules,
                             const gw_ticks *compute, uint32_t n, uint32_t max_ops, gw_why *why)
{
    if (rules->cpu_workers == 0 || rules->cpu_workers > GW_TIMELINE_MAX_WORKERS) {
        return GW_FAIL(why, GW_ERR_RANGE, "%u CPU workers: 1 to %d", rules->cpu_workers,
                       GW_TIMELINE_MAX_WORKERS);
    }
    for (unsigned track = 0; track < GW_TRACKS; track++) {
        const int link = track == GW_TRACK_INTRA || track == GW_TRACK_NIC;
        if (rules->busy[track] < 0 || (rules->busy[track] > 0 && !link)) {
            return GW_FAIL(why, GW_ERR_RANGE, "a track is late by %lld: 0 or more, of a link",
                           (long long)rules->busy[track]);
        }
        if (!(rules->core_share[track] >= 0 && rules->core_share[track] <= link)) {
            return GW_FAIL(why, GW_ERR_RANGE, "a track takes %g of the cores: 0 to 1, of a link",
                           rules->core_share[track]);
        }
    }
    *t = (gw_timeline){.rules = *rules, .n = n, .servers = GW_TRACKS + rules->cpu_workers - 1};
    const size_t log = (size_t)n * max_ops + 1;
    t->compute = calloc((size_t)n + 1, sizeof *t->compute);
    t->behind = calloc((size_t)n + 1, sizeof *t->behind);
    t->chain = calloc((size_t)n + 1, sizeof(void *));
    t->moment = calloc((size_t)n + 1, sizeof *t->moment);
    int fine = t->compute != NULL && t->behind != NULL && t->chain != NULL && t->moment != NULL;
    for (unsigned q = 0; q < GW_QUEUES; q++) {
        t->log[q] = malloc(log * sizeof(gw_entry));
        t->trial_log[q] = malloc(log * sizeof(gw_entry));
        fine = fine && t->log[q] != NULL && t->trial_log[q] != NULL;
    }
    if (!fine) {
        gw_timeline_destroy(t);
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for a timeline of %u tensors", n);
    }
    memcpy(t->compute, compute, n * sizeof *compute);
    for (uint32_t i = n; i-- > 1;) {
        t->behind[i - 1] = t->behind[i] + compute[i];
    }
    return GW_OK;
}

void gw_timeline_destroy(gw_timeline *t)
{
    free(t->compute);
    free(t->behind);
    free(t->chain);
    free(t->moment);
    for (unsigned q = 0; q < GW_QUEUES; q++) {
        free(t->log[q]);
        free(t->trial_log[q]);
    }
    *t = (gw_timeline){0};
}
