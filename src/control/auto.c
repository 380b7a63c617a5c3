/* Rounds and windows. Everything here runs between steps, on the caller's thread. */
#include "control/auto.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- rounds ---- */

/* Steps for the thread to plan in, by how long it took last. */
static uint64_t rest_of(const gw_step_auto *u)
{
    const double steps = 1.5 * u->last.solve_seconds / u->watch.measured_seconds;
    return (uint64_t)fmin(fmax(steps, 2 * GW_AUTO_LAG), GW_AUTO_WINDOW); /* of NaN the least */
}

void gw_auto_begin_round(gw_step_auto *u, uint64_t start, gw_auto_reason reason, int quick)
{
    gw_control *c = &u->control;
    gw_control_begin_round(c, start, quick);
    c->window = quick ? GW_AUTO_TIMED : GW_AUTO_SHARES;
    c->lag = quick ? 0 : GW_AUTO_LAG;
    c->rest = rest_of(u);
    u->sketch = (gw_auto_sketch){0};
    u->n_timed = 0;
    if (!quick) {
        const uint64_t soon = 5 * GW_AUTO_WINDOW; /* the first times may be of other work's */
        u->period_at = start + (u->first && soon < u->config.period ? soon : u->config.period);
    }
    const double none = (double)NAN;
    u->next = (gw_auto_decision){.step = start > 0 ? start - 1 : 0,
                                 .reason = reason,
                                 .alpha = u->judge.alpha,
                                 .predicted_seconds = none,
                                 .dense_seconds = none,
                                 .bound_seconds = none,
                                 .half_seconds = none,
                                 .double_seconds = none,
                                 .budget = none,
                                 .noise_ratio = none};
    gw_auto_say_reason(u);
}

static gw_status taken(gw_control *c, gw_why *why)
{
    gw_step_auto *u = gw_auto_of(c);
    if (!c->quick) {
        gw_auto_keep_tables(u);
    }
    gw_auto_job_make(u);
    const gw_status status =
        gw_auto_judge_wants_link(&u->judge, u->next.reason) ? gw_auto_cluster_links(u, why) : GW_OK;
    u->next.link_bytes_per_second = gw_auto_link(u)->rate;
    u->next.latency_seconds = gw_auto_link(u)->latency;
    return status;
}

static uint64_t checksum(const gw_control *c)
{
    const gw_step_auto *u = (const gw_step_auto *)(const void *)c;
    uint64_t hash = c->hash ^ u->next.step;
    for (uint32_t i = 0; i < c->n; i++) {
        const gw_auto_way *w = &u->chosen[i];
        uint64_t words[3 + GW_PARAMS_MAX] = {w->params.codec != NULL ? gw_codec_id(w->params.codec)
                                                                     : UINT64_MAX,
                                             gw_route_hash(&w->route), w->with};
        memcpy(words + 3, w->params.value, sizeof w->params.value);
        hash = gw_payload_hash(words, sizeof words, hash);
    }
    return hash;
}

static gw_status plan_way(const gw_step_auto *u, uint32_t place, const gw_auto_way *w, gw_why *why)
{
    return gw_step_set_plan(u->control.step, u->control.layers[place].layer,
                            w->params.codec != NULL ? &w->params : NULL, &w->route, why);
}

/* Layers that are sent as one are a bucket of the step, by these ways; all others are one of their own. */
static void set_buckets(gw_step_auto *u, const gw_auto_way *ways)
{
    gw_step *s = u->control.step;
    for (uint32_t i = 0; i < u->control.n; i++) {
        gw_layer *l = &s->layers[u->control.layers[i].layer];
        const uint32_t bucket = u->control.layers[ways[i].with].layer + 1;
        s->agreed &= l->bucket == bucket;
        l->bucket = bucket;
    }
}

gw_status gw_auto_go_by(gw_step_auto *u, gw_why *why)
{
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < u->control.n && status == GW_OK; i++) {
        status = plan_way(u, i, &u->ways[i], why);
    }
    memcpy(u->chosen, u->ways, u->control.n * sizeof *u->ways);
    set_buckets(u, u->ways);
    return status;
}

/* Bytes that rank 0 sends for what goes with this place; 0 unless it is the first of them. */
static gw_status bytes_of(const gw_step_auto *u, uint32_t place, uint64_t *bytes, gw_why *why)
{
    const gw_auto_way *w = &u->chosen[place];
    gw_layer all = u->control.step->layers[u->control.layers[place].layer];
    *bytes = 0;
    if (w->with != place) {
        return GW_OK;
    }
    all.elements = u->together[place];
    return gw_control_bytes_sent(u->control.step, &all, &w->params, &w->route, bytes, why);
}

/* What all layers go by from the next step on; u->next is told of. */
static gw_status apply(gw_step_auto *u, uint64_t number, gw_why *why)
{
    gw_step *s = u->control.step;
    gw_status status = GW_OK;
    u->next.bytes = u->next.dense_bytes = 0;
    memset(u->together, 0, u->control.n * sizeof *u->together);
    for (uint32_t i = 0; i < u->control.n; i++) {
        u->together[u->chosen[i].with] += s->layers[u->control.layers[i].layer].elements;
    }
    for (uint32_t i = 0; i < u->control.n && status == GW_OK; i++) {
        const gw_auto_way *w = &u->chosen[i];
        uint64_t bytes = 0;
        if (!gw_params_equal(&w->params, &u->ways[i].params) ||
            !gw_route_equal(&w->route, &u->ways[i].route)) {
            status = plan_way(u, i, w, why);
        }
        if (status == GW_OK) {
            status = bytes_of(u, i, &bytes, why);
        }
        u->next.bytes += bytes;
    }
    for (uint32_t l = 0; l < u->control.known; l++) {
        const uint64_t bytes = gw_step_dense_bytes(s, &s->layers[l]);
        u->next.dense_bytes += bytes;
        u->next.bytes += u->control.place_of[l] == UINT32_MAX ? bytes : 0;
    }
    set_buckets(u, u->chosen);
    if (status == GW_OK) {
        status = gw_control_agree(&u->control, why);
    }
    if (status != GW_OK) {
        return status;
    }
    memcpy(u->ways, u->chosen, u->control.n * sizeof *u->ways);
    u->next.bound_at = number + 1;
    if (u->next.outcome == GW_AUTO_SWITCHED || isnan(u->planned_rate)) {
        u->planned_rate = u->next.link_bytes_per_second;
    }
    if (u->next.outcome == GW_AUTO_SWITCHED || u->next.outcome == GW_AUTO_DENSE ||
        isnan(u->planned_seconds)) {
        u->planned_seconds = u->next.predicted_seconds;
    }
    u->last = u->next;
    return GW_OK;
}

/* Windows begin anew. */
static void open_window(gw_step_auto *u, uint64_t first)
{
    u->window_from = first;
    u->n_times = u->bad = u->told = 0;
    u->loss = 0;
    (void)pthread_mutex_lock(&u->control.lock);
    u->watching = (gw_auto_sketch){0};
    (void)pthread_mutex_unlock(&u->control.lock);
}

static gw_status bind(gw_control *c, uint64_t number, gw_why *why)
{
    gw_step_auto *u = gw_auto_of(c);
    u->next.measure_seconds = c->measure_seconds;
    u->next.solve_seconds = c->solve_seconds;
    u->next.waited = c->late;
    u->next.half_seconds = c->more[0];
    u->next.double_seconds = c->more[1];
    u->next.noise_ratio = u->lost == 0 ? 0 : u->lost / u->noise_then;
    const gw_status status = apply(u, number, why);
    if (status == GW_OK) {
        gw_auto_judge_bound(&u->judge, u->last.reason, u->last.outcome == GW_AUTO_SWITCHED,
                            u->last.predicted_seconds, u->lost);
        u->judge.squares_then = u->squares_then;
        u->judge.alpha = u->last.alpha;
        u->stale = 1;
        open_window(u, number + 1);
        u->first = 0;
    }
    return status;
}

/* All dense, at once: there is nothing to measure. A round that is under way is given up. */
static gw_status fall_back(gw_step_auto *u, gw_auto_reason reason, const gw_auto_seen *w,
                           uint64_t number, gw_why *why)
{
    gw_control *c = &u->control;
    gw_status status = GW_OK;
    if (c->live) {
        (void)gw_control_idle(c);
        status = c->request != NULL ? gw_control_take(c, why) : GW_OK;
    }
    if (status != GW_OK) {
        return status;
    }
    const uint64_t period_at = u->period_at;
    gw_auto_begin_round(u, number + 1, reason, 1);
    u->period_at = period_at;
    gw_auto_describe_dense(u, w);
    u->next.outcome = GW_AUTO_DENSE;
    u->next.predicted_seconds = u->next.dense_seconds =
        u->control.decisions != 0 ? u->last.dense_seconds : (double)NAN;
    u->next.link_bytes_per_second = gw_auto_link(u)->rate;
    u->next.latency_seconds = gw_auto_link(u)->latency;
    u->next.noise_ratio = 0;
    u->next.budget = u->control.decisions != 0 ? u->last.budget : (double)NAN;
    for (uint32_t i = 0; i < c->n; i++) {
        u->chosen[i] = (gw_auto_way){.params = {.codec = NULL}, .route = u->dense, .with = i};
        u->next.changed += u->ways[i].params.codec != NULL;
    }
    status = apply(u, number, why);
    if (status == GW_OK) {
        gw_auto_judge_bound(&u->judge, reason, 1, u->last.predicted_seconds, 0);
        u->lost = 0;
        u->stale = 1;
        open_window(u, number + 1);
    }
    return status;
}

/* ---- windows ---- */

static gw_status send_window(gw_step_auto *u, uint64_t number, gw_why *why)
{
    double *say = u->say, link = 0;
    if (u->watched != 0 && u->control.decisions != 0 &&
        !u->control.live) { /* the same on all ranks */
        const gw_status looked = gw_auto_cluster_glance(u, &link, why);
        if (looked != GW_OK) {
            return looked;
        }
    }
    say[GW_SAY_LINK] = link;
    say[GW_SAY_SECONDS] = gw_auto_median(u->times, u->n_times >= 3 ? u->n_times : 0);
    say[GW_SAY_LOSS] = u->told != 0 ? u->loss / u->told : (double)NAN;
    say[GW_SAY_TOLD] = u->told != 0;
    say[GW_SAY_BAD] = u->bad;
    memcpy(say + GW_SAY_SKETCH, &u->watching, sizeof u->watching);
    const gw_status status =
        gw_control_post(&u->control, say, sizeof u->say, u->said_room, &u->request, why);
    u->said_at = number;
    u->said_predicted = u->planned_seconds;
    u->said_expected = u->judge.predicted * u->judge.calibration;
    u->stale = 0;
    open_window(u, number + 1);
    return status;
}

/* Where ranks wait for a core some see a link slower than it is, none sees it faster. */
static double faster_link(gw_step_auto *u)
{
    const uint32_t ranks = u->control.step->config.comm->ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        u->probe_said[r] = u->said[(size_t)r * GW_SAY + GW_SAY_LINK];
    }
    (void)gw_auto_median(u->probe_said, ranks);
    return u->probe_said[ranks / 2];
}

/* Means over ranks. */
static gw_auto_seen sum_up_window(gw_step_auto *u)
{
    const uint32_t ranks = u->control.step->config.comm->ranks;
    double mean[GW_SAY_SKETCH] = {0}, noise = 0, squares = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        for (int i = 0; i < GW_SAY_SKETCH; i++) {
            mean[i] += u->said[(size_t)r * GW_SAY + (size_t)i] / ranks;
        }
    }
    gw_auto_noise(u, u->said + GW_SAY_SKETCH, GW_SAY, &noise, &squares);
    return (gw_auto_seen){.step = u->said_at,
                          .seconds = mean[GW_SAY_SECONDS],
                          .loss = mean[GW_SAY_LOSS],
                          .told = mean[GW_SAY_TOLD] == 1,
                          .bad = (uint32_t)u->said[GW_SAY_BAD],
                          .noise = noise,
                          .squares = squares,
                          .link = faster_link(u)};
}

/* What all ranks said of the window before this step. */
static gw_status take_window(gw_step_auto *u, gw_auto_seen *seen, int *reason, gw_why *why)
{
    const gw_status status =
        gw_control_arrive(&u->control, &u->request, u->said_room, sizeof u->say, u->said, why);
    if (status != GW_OK) {
        return status;
    }
    *seen = sum_up_window(u);
    *reason = gw_auto_judge_window(&u->judge, seen, u->stale, u->control.live);
    const gw_auto_judge *j = &u->judge;
    u->watch = (gw_auto_watch){.step = seen->step,
                               .measured_seconds = seen->seconds,
                               .predicted_seconds = u->said_predicted,
                               .expected_seconds = u->said_expected,
                               .error = u->last.error,
                               .budget = u->control.decisions != 0 ? u->last.budget : (double)NAN,
                               .noise_ratio = gw_auto_noise_ratio(j, j->lost),
                               .loss = seen->loss};
    u->watched++;
    return GW_OK;
}

static gw_status act(gw_step_auto *u, int reason, const gw_auto_seen *seen, uint64_t number,
                     gw_why *why)
{
    const gw_auto_reason what = (gw_auto_reason)reason;
    gw_auto_judge_act(&u->judge, what, number);
    if (what == GW_AUTO_DIVERGING || what == GW_AUTO_NON_FINITE) {
        return fall_back(u, what, seen, number, why);
    }
    gw_auto_begin_round(u, number + 1, what, what == GW_AUTO_ERROR); /* which is in a hurry */
    return GW_OK;
}

/* ---- after a step ---- */

static void note_step(gw_step_auto *u, uint64_t number)
{
    const double seconds = gw_auto_now(u) - u->ended;
    if (u->timing) {
        u->n_timed += isfinite(u->ended) ? 1 : 0;
    } else if (isfinite(seconds) && u->n_times < GW_AUTO_WINDOW && number >= u->window_from) {
        u->times[u->n_times++] = seconds;
    }
    u->bad += u->control.step->bad_layers != 0;
}

/* Steps whose times are taken: all of the first round's window, then three of each. */
static void prepare_next(gw_step_auto *u, uint64_t next)
{
    const gw_control *c = &u->control;
    const uint64_t timed = u->first ? GW_AUTO_SHARES : GW_AUTO_TIMED;
    u->timing = c->live && next >= c->start && next - c->start < timed;
    (void)pthread_mutex_lock(&u->control.step->lock);
    u->control.step->held = u->timing;
    (void)pthread_mutex_unlock(&u->control.step->lock);
    u->ended = gw_auto_now(u);
}

static gw_status go_on(gw_step_auto *u, uint64_t number, gw_why *why)
{
    int reason = GW_AUTO_NO_REASON;
    gw_auto_seen seen;
    gw_status status = u->request != NULL ? take_window(u, &seen, &reason, why) : GW_OK;
    if (status == GW_OK && number - u->window_from == GW_AUTO_WINDOW - 1) {
        status = send_window(u, number, why);
    }
    if (status == GW_OK && reason != GW_AUTO_NO_REASON) {
        status = act(u, reason, &seen, number, why);
    }
    if (status == GW_OK && !u->control.live && number + 1 >= u->period_at &&
        u->judge.fallen == GW_AUTO_NO_REASON && u->judge.outside == 0) {
        gw_auto_begin_round(u, number + 1, gw_auto_judge_period(&u->judge), 0);
    }
    return status == GW_OK ? gw_control_go_on(&u->control, number, why) : status;
}

static gw_status waited(gw_control *c, uint64_t number, gw_why *why)
{
    gw_step_auto *u = gw_auto_of(c);
    note_step(u, number);
    const gw_status status = go_on(u, number, why);
    prepare_next(u, number + 1);
    return status;
}

/* ---- the caller ---- */

static void release(gw_control *c)
{
    gw_step_auto *u = gw_auto_of(c);
    gw_step *s = c->step;
    s->held = 0;
    if (u->request != NULL && s->status == GW_OK) { /* others may still read what is freed */
        (void)gw_comm_wait(s->side, u->request, s->config.timeout, NULL);
    }
}

static const gw_policy policy = {.name = "auto",
                                 .settings = "settings of auto:",
                                 .size = sizeof(gw_step_auto),
                                 .magic = UINT64_C(0x324F545541574700), /* "GWAUTO2" */
                                 .check = gw_auto_check,
                                 .open = gw_auto_open,
                                 .list = gw_auto_list,
                                 .start = gw_auto_start,
                                 .posted = gw_auto_posted,
                                 .waited = waited,
                                 .complete = gw_auto_complete,
                                 .taken = taken,
                                 .decide = gw_auto_decide,
                                 .keep = gw_auto_keep,
                                 .describe = gw_auto_describe,
                                 .checksum = checksum,
                                 .bind = bind,
                                 .walk = gw_auto_walk,
                                 .resume = gw_auto_resume,
                                 .close = release};

gw_status gw_step_auto_begin(gw_step *s, const gw_step_auto_config *config, gw_why *why)
{
    return gw_control_begin(s, &policy, config, why);
}

/* NULL: it is not on auto. */
static gw_step_auto *auto_of(const gw_step *s)
{
    return gw_auto_of(gw_control_by(s, &policy));
}

gw_status gw_step_auto_loss(gw_step *s, double loss)
{
    GW_REQUIRE(NULL, s != NULL, "no step");
    gw_step_auto *u = auto_of(s);
    if (u == NULL) {
        return GW_ERR_STATE;
    }
    u->loss += loss;
    u->told++;
    return GW_OK;
}

gw_status gw_step_auto_last(const gw_step *s, uint64_t *n, gw_auto_decision *decision)
{
    GW_REQUIRE(NULL, s != NULL && n != NULL && decision != NULL,
               "no step, or no place for the decision");
    const gw_step_auto *u = auto_of(s);
    if (u == NULL) {
        return GW_ERR_STATE;
    }
    *n = u->control.decisions;
    if (*n != 0) {
        *decision = u->last;
    }
    return GW_OK;
}

gw_status gw_step_auto_watched(const gw_step *s, uint64_t *n, gw_auto_watch *watch)
{
    GW_REQUIRE(NULL, s != NULL && n != NULL && watch != NULL,
               "no step, or no place for what was watched");
    const gw_step_auto *u = auto_of(s);
    if (u == NULL) {
        return GW_ERR_STATE;
    }
    *n = u->watched;
    if (*n != 0) {
        *watch = u->watch;
    }
    return GW_OK;
}

gw_status gw_step_auto_save_bytes(const gw_step *s, size_t *bytes, gw_why *why)
{
    return gw_control_save_bytes(s, &policy, bytes, why);
}

gw_status gw_step_auto_save(gw_step *s, void *buffer, size_t capacity, size_t *written, gw_why *why)
{
    return gw_control_save(s, &policy, buffer, capacity, written, why);
}

gw_status gw_step_auto_load(gw_step *s, const void *bytes, size_t size, gw_why *why)
{
    return gw_control_load(s, &policy, bytes, size, why);
}
