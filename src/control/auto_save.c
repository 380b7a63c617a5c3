/* What a run that is resumed needs of auto. */
#include "control/auto.h"

#include <math.h>

static void rules(gw_walk *w, gw_step_auto *u)
{
    gw_auto_judge *j = &u->judge;
    double *const of[] = {&j->alpha,        &j->noise,        &j->squares,   &j->squares_then,
                          &j->lost,         &j->failed_alpha, &j->smooth,    &j->least,
                          &j->before,       &j->rise,         &j->predicted, &u->noise_then,
                          &u->squares_then, &u->lost};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        gw_walk_numbers(w, of[i], 1);
    }
    uint32_t fallen = (uint32_t)(j->fallen + 1), first = (uint32_t)u->first;
    uint32_t *const counts[] = {&j->patience, &j->calm, &j->losses, &j->clean, &fallen, &first};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        gw_walk_below(w, counts[i], (uint64_t)1 << 32);
    }
    j->fallen = (int)fallen - 1;
    u->first = first != 0;
    gw_walk_word(w, &j->fallen_at);
    /* a round that is under way is begun again */
    uint64_t period_at = u->control.live ? u->control.step->number : u->period_at;
    gw_walk_word(w, &period_at);
    u->period_at = gw_walk_reads(w) ? period_at : u->period_at;
}

static void cluster(gw_walk *w, gw_step_auto *u)
{
    gw_cluster *c = &u->cluster;
    gw_walk_numbers(w, &c->intra.latency, 1);
    gw_walk_numbers(w, &c->intra.rate, 1);
    gw_walk_numbers(w, &c->inter.latency, 1);
    gw_walk_numbers(w, &c->inter.rate, 1);
    gw_walk_numbers(w, &c->copy.rate, 1);
    gw_walk_below(w, &c->cpu_workers, (uint64_t)1 << 32);
    for (size_t i = 0; i < c->n_codecs; i++) {
        gw_cost_curve *const curves[] = {&u->codecs[i].encode, &u->codecs[i].decode};
        for (int k = 0; k < 2; k++) {
            gw_walk_below(w, &curves[k]->n, GW_COST_POINTS + 1);
            for (int p = 0; p < GW_COST_POINTS; p++) {
                gw_walk_numbers(w, &curves[k]->point[p].bytes, 1);
                gw_walk_numbers(w, &curves[k]->point[p].seconds, 1);
            }
        }
    }
}

static void way(gw_walk *w, gw_auto_way *x, uint32_t ways)
{
    uint64_t id = x->params.codec != NULL ? gw_codec_id(x->params.codec) : UINT64_MAX;
    uint32_t steps = x->route.n_steps;
    gw_walk_word(w, &id);
    gw_walk_numbers(w, x->params.value, GW_PARAMS_MAX);
    gw_walk_below(w, &steps, GW_ROUTE_MAX_STEPS + 1);
    gw_walk_below(w, &x->with, ways);
    x->params.codec = id <= UINT8_MAX ? gw_codec_by_id((uint8_t)id) : NULL;
    x->route.n_steps = (uint8_t)steps;
    for (int i = 0; i < GW_ROUTE_MAX_STEPS; i++) {
        gw_route_step *s = &x->route.step[i];
        uint64_t packed = (uint64_t)s->op | (uint64_t)s->level << 8 | (uint64_t)s->device << 16;
        gw_walk_word(w, &packed);
        *s = (gw_route_step){(uint8_t)packed, (uint8_t)(packed >> 8), (uint8_t)(packed >> 16)};
    }
}

void gw_auto_walk(gw_control *c, gw_walk *w)
{
    gw_step_auto *u = gw_auto_of(c);
    gw_walk_same(w, c->n);
    gw_walk_same(w, c->table);
    gw_walk_same(w, c->known);
    gw_walk_same(w, u->cluster.n_codecs);
    for (uint32_t i = 0; i < c->n; i++) {
        way(w, &u->ways[i], c->n);
    }
    rules(w, u);
    cluster(w, u);
    gw_walk_numbers(w, u->table, c->table);
    gw_walk_numbers(w, c->own, c->table);
}

/* A round is begun again, if there is no plan yet or one is due; the first window calibrates. */
gw_status gw_auto_resume(gw_control *c, gw_why *why)
{
    gw_step_auto *u = gw_auto_of(c);
    gw_step *s = c->step;
    const gw_status status = gw_auto_go_by(u, why);
    if (status != GW_OK) {
        return status;
    }
    u->window_from = s->number;
    u->ended = (double)NAN;
    u->judge.calibration = (double)NAN;
    u->judge.outside = 0;
    u->planned_seconds = u->judge.predicted;
    c->live = 0;
    if (u->first) {
        gw_auto_begin_round(u, s->number, GW_AUTO_START, 0);
    }
    u->timing = u->first;
    s->held = u->first;
    return GW_OK;
}
