/* What a run that is resumed needs of auto: a list of 64-bit words, little-endian, the last a hash of the others. */
#include "control/auto.h"

#include "base/little_endian.h"

#include <gradwire/frame.h>

#include <math.h>
#include <string.h>

#define MAGIC UINT64_C(0x324F545541574700) /* "GWAUTO2" */
enum {
    HEAD_MAGIC,
    HEAD_SETTINGS,
    HEAD_NUMBER,
    HEAD_LAYERS,
    HEAD_TABLE,
    HEAD_KNOWN,
    HEAD_CODECS,
    HEAD
};

/* Numbers that are no list. */
enum { LINK = 2, RULES = 22, WORDS_OF_WAY = 3 + GW_PARAMS_MAX + GW_ROUTE_MAX_STEPS };
enum { CURVE = 1 + 2 * GW_COST_POINTS };

/* Goes over all numbers that are saved, in their order: writing, or reading. */
typedef struct walk {
    uint8_t *to;         /* NULL: reads */
    const uint8_t *from; /* NULL: writes */
} walk;

static void word(walk *w, uint64_t *value)
{
    if (w->to != NULL) {
        gw_put_u64(w->to, *value);
        w->to += 8;
    } else {
        *value = gw_get_u64(w->from);
        w->from += 8;
    }
}

static void numbers(walk *w, double *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        word(w, &bits);
        memcpy(&values[i], &bits, sizeof bits);
    }
}

static void small(walk *w, uint32_t *value)
{
    uint64_t wide = *value;
    word(w, &wide);
    *value = (uint32_t)wide;
}

static void rules(walk *w, gw_step_auto *u)
{
    gw_auto_judge *j = &u->judge;
    double *const of[] = {&j->alpha,        &j->noise,        &j->squares,   &j->squares_then,
                          &j->lost,         &j->failed_alpha, &j->smooth,    &j->least,
                          &j->before,       &j->rise,         &j->predicted, &u->noise_then,
                          &u->squares_then, &u->lost};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        numbers(w, of[i], 1);
    }
    uint32_t fallen = (uint32_t)(j->fallen + 1), first = (uint32_t)u->first;
    small(w, &j->patience);
    small(w, &j->calm);
    small(w, &j->losses);
    small(w, &j->clean);
    small(w, &fallen);
    small(w, &first);
    j->fallen = (int)fallen - 1;
    u->first = first != 0;
    word(w, &j->fallen_at);
    /* a round that is under way is begun again */
    uint64_t period_at = w->to != NULL && u->base->live ? u->step->number : u->period_at;
    word(w, &period_at);
    u->period_at = w->to != NULL ? u->period_at : period_at;
}

static void cluster(walk *w, gw_step_auto *u)
{
    gw_cluster *c = &u->cluster;
    numbers(w, &c->intra.latency, 1);
    numbers(w, &c->intra.rate, 1);
    numbers(w, &c->inter.latency, 1);
    numbers(w, &c->inter.rate, 1);
    numbers(w, &c->copy.rate, 1);
    small(w, &c->cpu_workers);
    for (size_t i = 0; i < c->n_codecs; i++) {
        gw_cost_curve *const curves[] = {&u->codecs[i].encode, &u->codecs[i].decode};
        for (int k = 0; k < 2; k++) {
            small(w, &curves[k]->n);
            for (int p = 0; p < GW_COST_POINTS; p++) {
                numbers(w, &curves[k]->point[p].bytes, 1);
                numbers(w, &curves[k]->point[p].seconds, 1);
            }
        }
    }
}

static void way(walk *w, gw_auto_way *x)
{
    uint64_t id = x->params.codec != NULL ? gw_codec_id(x->params.codec) : UINT64_MAX;
    uint64_t steps = x->route.n_steps;
    word(w, &id);
    numbers(w, x->params.value, GW_PARAMS_MAX);
    word(w, &steps);
    small(w, &x->with);
    x->params.codec = id <= UINT8_MAX ? gw_codec_by_id((uint8_t)id) : NULL;
    x->route.n_steps = (uint8_t)steps;
    for (int i = 0; i < GW_ROUTE_MAX_STEPS; i++) {
        gw_route_step *s = &x->route.step[i];
        uint64_t packed = (uint64_t)s->op | (uint64_t)s->level << 8 | (uint64_t)s->device << 16;
        word(w, &packed);
        *s = (gw_route_step){(uint8_t)packed, (uint8_t)(packed >> 8), (uint8_t)(packed >> 16)};
    }
}

static size_t words_of(const gw_step_auto *u)
{
    return HEAD + RULES + 6 + 2 * CURVE * u->cluster.n_codecs + (size_t)WORDS_OF_WAY * u->base->n +
           2 * u->base->table + 1;
}

/* All but the head and the ways. */
static void rest(walk *w, gw_step_auto *u)
{
    rules(w, u);
    cluster(w, u);
    numbers(w, u->table, u->base->table);
    numbers(w, u->base->own, u->base->table);
}

static gw_step_auto *auto_of(const gw_step *s)
{
    return gw_control_of(s) != NULL ? gw_control_of(s)->over : NULL;
}

gw_status gw_step_auto_save_bytes(const gw_step *s, size_t *bytes, gw_why *why)
{
    GW_REQUIRE(why, s != NULL && bytes != NULL, "no step, or no place for the size");
    if (auto_of(s) == NULL) {
        return GW_FAIL(why, GW_ERR_STATE, "auto was not begun");
    }
    *bytes = 8 * words_of(auto_of(s));
    return GW_OK;
}

gw_status gw_step_auto_save(gw_step *s, void *buffer, size_t capacity, size_t *written, gw_why *why)
{
    GW_REQUIRE(why, s != NULL && written != NULL, "no step, or no place for the size");
    size_t bytes = 0;
    const gw_status status = gw_step_auto_save_bytes(s, &bytes, why);
    if (status != GW_OK) {
        return status;
    }
    if (buffer == NULL || capacity < bytes || s->posted != 0) {
        return GW_FAIL(why, GW_ERR_CAPACITY, "auto's state is saved between steps, in %zu bytes",
                       bytes);
    }
    gw_step_auto *u = auto_of(s);
    (void)gw_step_adapt_idle(u->base);
    uint64_t head[HEAD] = {MAGIC,          u->base->hash,  s->number,          u->base->n,
                           u->base->table, u->base->known, u->cluster.n_codecs};
    walk w = {.to = buffer};
    for (int i = 0; i < HEAD; i++) {
        word(&w, &head[i]);
    }
    for (uint32_t i = 0; i < u->base->n; i++) {
        way(&w, &u->ways[i]);
    }
    rest(&w, u);
    uint64_t hash = gw_payload_hash(buffer, bytes - 8, 0);
    word(&w, &hash);
    *written = bytes;
    return GW_OK;
}

/* ---- load ---- */

static gw_status check(const gw_step_auto *u, const uint8_t *from, size_t size, gw_why *why)
{
    const size_t bytes = 8 * words_of(u);
    const uint64_t number = u->step->number;
    if (size != bytes || gw_get_u64(from + 8 * HEAD_MAGIC) != MAGIC ||
        gw_get_u64(from + bytes - 8) != gw_payload_hash(from, bytes - 8, 0)) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "auto's state: %zu bytes, not %zu, or damaged", size,
                       bytes);
    }
    if (gw_get_u64(from + 8 * HEAD_SETTINGS) != u->base->hash ||
        gw_get_u64(from + 8 * HEAD_LAYERS) != u->base->n ||
        gw_get_u64(from + 8 * HEAD_TABLE) != u->base->table ||
        gw_get_u64(from + 8 * HEAD_KNOWN) != u->base->known ||
        gw_get_u64(from + 8 * HEAD_CODECS) != u->cluster.n_codecs) {
        return GW_FAIL(why, GW_ERR_DISAGREE, "auto's state is of other layers or settings");
    }
    if (gw_get_u64(from + 8 * HEAD_NUMBER) != number) {
        return GW_FAIL(why, GW_ERR_DISAGREE, "auto's state is of step %llu, not %llu",
                       (unsigned long long)gw_get_u64(from + 8 * HEAD_NUMBER),
                       (unsigned long long)number);
    }
    return GW_OK;
}

/* Where it stands: a round is begun anew, if there is no plan yet or one is due; the first window calibrates. */
static void resume(gw_step_auto *u)
{
    const uint64_t number = u->step->number;
    gw_step_adapt *a = u->base;
    u->window_from = number;
    u->ended = (double)NAN;
    u->judge.calibration = (double)NAN;
    u->judge.outside = 0;
    u->planned_seconds = u->judge.predicted;
    a->live = 0;
    if (u->first) {
        gw_auto_begin_round(u, number, GW_AUTO_START, 0);
    }
    u->timing = u->first;
    u->step->held = u->first;
}

gw_status gw_step_auto_load(gw_step *s, const void *bytes, size_t size, gw_why *why)
{
    GW_REQUIRE(why, s != NULL && bytes != NULL, "no step, or no bytes");
    gw_step_auto *u = auto_of(s);
    if (u == NULL || bytes == NULL || s->posted != 0) {
        return GW_FAIL(why, GW_ERR_STATE, "auto's state is loaded between steps, after begin");
    }
    gw_status status = check(u, bytes, size, why);
    if (status != GW_OK) {
        return status;
    }
    (void)gw_step_adapt_idle(u->base);
    walk w = {.from = (const uint8_t *)bytes + (size_t)8 * HEAD};
    for (uint32_t i = 0; i < u->base->n && status == GW_OK; i++) {
        way(&w, &u->ways[i]);
        if (u->ways[i].with >= u->base->n) {
            return GW_FAIL(why, GW_ERR_CORRUPT, "auto's state: layers are sent with layer %u of %u",
                           u->ways[i].with, u->base->n);
        }
        status = gw_step_set_plan(s, u->base->layers[i].layer,
                                  u->ways[i].params.codec != NULL ? &u->ways[i].params : NULL,
                                  &u->ways[i].route, why);
    }
    if (status != GW_OK) {
        return status;
    }
    memcpy(u->chosen, u->ways, u->base->n * sizeof *u->ways);
    gw_auto_set_buckets(u, u->ways);
    rest(&w, u);
    resume(u);
    return GW_OK;
}
