#include "plan/joint_search.h"

#include "base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const gw_chain NO_CHAIN;

/* ---- state ---- */

typedef struct ranked {
    uint64_t elements;
    uint32_t bucket;
} ranked;

static int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->elements != y->elements) {
        return x->elements > y->elements ? -1 : 1;
    }
    return x->bucket > y->bucket ? -1 : 1;
}

static int sort_buckets(gw_joint_search *s)
{
    const uint32_t n = s->p->x.buckets;
    ranked *all = malloc((n + 1) * sizeof *all);
    if (all == NULL) {
        return 0;
    }
    for (uint32_t b = 0; b < n; b++) {
        all[b] = (ranked){s->p->x.elements[b], b};
    }
    qsort(all, n, sizeof *all, by_rank);
    for (uint32_t b = 0; b < n; b++) {
        s->order[b] = all[b].bucket;
    }
    free(all);
    return 1;
}

gw_status gw_joint_search_create(gw_joint_search *s, const gw_joint_problem *p,
                                 const gw_timeline_rules *rules, gw_why *why)
{
    const size_t room = (size_t)p->x.n + 1;
    *s =
        (gw_joint_search){.p = p, .best = GW_NEVER, .event_limit = UINT64_MAX, .until = UINT64_MAX};
    const gw_status status =
        gw_timeline_create(&s->line, rules, p->x.compute, p->x.n, GW_TIMELINE_MAX_OPS, why);
    if (status != GW_OK) {
        return status;
    }
    s->pick = calloc(room, sizeof *s->pick);
    s->order = calloc(room, sizeof *s->order);
    s->best_pick = calloc(room, sizeof *s->best_pick);
    s->spare = calloc(room, sizeof *s->spare);
    if (s->pick == NULL || s->order == NULL || s->best_pick == NULL || s->spare == NULL ||
        !sort_buckets(s)) {
        gw_joint_search_destroy(s);
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory to plan %u buckets", p->x.n);
    }
    return GW_OK;
}

void gw_joint_search_destroy(gw_joint_search *s)
{
    gw_timeline_destroy(&s->line);
    free(s->pick);
    free(s->order);
    free(s->best_pick);
    free(s->spare);
    *s = (gw_joint_search){.pick = NULL};
}

static const gw_option *option_of(const gw_joint_search *s, uint32_t bucket, uint32_t pick)
{
    return &s->p->menu[bucket].item[pick];
}

/* Draws s->pick, from bucket `from` on. */
static void commit(gw_joint_search *s, uint32_t from)
{
    gw_timeline_commit(&s->line, from);
    s->error = gw_joint_error_of(s->p, s->pick);
}

static void set(gw_joint_search *s, const uint32_t *pick)
{
    for (uint32_t b = 0; b < s->line.n; b++) {
        if (b < s->p->x.buckets) {
            s->pick[b] = pick[b];
            s->line.chain[b] = &option_of(s, b, pick[b])->of->chain;
        } else {
            s->line.chain[b] = &NO_CHAIN;
        }
    }
    commit(s, 0);
}

static void keep_best(gw_joint_search *s)
{
    if (s->error <= s->p->table->budget &&
        (s->line.makespan < s->best || (s->line.makespan == s->best && s->error < s->best_error))) {
        s->best = s->line.makespan;
        s->best_error = s->error;
        memcpy(s->best_pick, s->pick, s->p->x.buckets * sizeof *s->pick);
    }
}

static int is_done(const gw_joint_search *s)
{
    return s->line.events >= s->until || s->line.events >= s->event_limit;
}

/* ---- what is better ---- */

typedef struct score {
    gw_ticks makespan;
    double error;
} score;

/* A change of options, at most of two buckets, a before b. */
typedef struct change {
    uint32_t bucket[2], pick[2], n;
} change;

/* Near the budget the sum is made in full, so that rounding cannot pass it. */
static int fits(gw_joint_search *s, const change *c, double error)
{
    const double budget = s->p->table->budget, near = 1e-9 * budget;
    uint32_t before[2];
    if (!isfinite(budget) || error < budget - near || error > budget + near) {
        return error <= budget;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        before[i] = s->pick[c->bucket[i]];
        s->pick[c->bucket[i]] = c->pick[i];
    }
    const double exact = gw_joint_error_of(s->p, s->pick);
    for (uint32_t i = 0; i < c->n; i++) {
        s->pick[c->bucket[i]] = before[i];
    }
    return exact <= budget;
}

/* Ticks below which an end at this error is better than `best`. A gain that rounding could make is none. */
static gw_ticks limit_for(const gw_joint_search *s, const score *best, double error)
{
    if (s->price < 0) { /* the shorter; of equal ones that with less error */
        return best->makespan + (error < best->error * (1 - 1e-12));
    }
    const double room = (double)best->makespan + s->price * (best->error - error) - 1e-3 -
                        1e-12 * s->price * (best->error + error);
    return room <= 0 ? 0 : room >= 9e18 ? GW_NEVER : (gw_ticks)ceil(room);
}

static double error_with(const gw_joint_search *s, const change *c)
{
    double error = s->error;
    for (uint32_t i = 0; i < c->n; i++) {
        error += option_of(s, c->bucket[i], c->pick[i])->error -
                 option_of(s, c->bucket[i], s->pick[c->bucket[i]])->error;
    }
    return error;
}

static int try_change(gw_joint_search *s, const change *c, score *best)
{
    const double error = error_with(s, c);
    const gw_ticks limit = limit_for(s, best, error);
    const gw_chain *chains[2];
    if (limit <= 0 || (s->price < 0 && !fits(s, c, error))) {
        return 0;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        chains[i] = &option_of(s, c->bucket[i], c->pick[i])->of->chain;
    }
    const gw_ticks makespan = gw_timeline_try(&s->line, c->bucket, chains, c->n, limit);
    if (makespan >= limit) {
        return 0;
    }
    *best = (score){makespan, error};
    return 1;
}

static int take(gw_joint_search *s, const change *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        s->pick[c->bucket[i]] = c->pick[i];
        s->line.chain[c->bucket[i]] = &option_of(s, c->bucket[i], c->pick[i])->of->chain;
    }
    if (c->n > 0) {
        commit(s, c->bucket[0]);
    }
    return c->n > 0;
}

/* ---- moves ---- */

static int move_one(gw_joint_search *s, uint32_t bucket, int all)
{
    const gw_menu *m = &s->p->menu[bucket];
    score best = {s->line.makespan, s->error};
    change chosen = {.n = 0};
    for (uint32_t k = 0; k < (all ? m->n : m->n_some); k++) {
        const change c = {.bucket = {bucket}, .pick = {all ? k : m->some[k]}, .n = 1};
        if (c.pick[0] != s->pick[bucket] && try_change(s, &c, &best)) {
            chosen = c;
        }
    }
    return take(s, &chosen);
}

static void move_singles(gw_joint_search *s, int all)
{
    for (int moved = 1; moved && !is_done(s);) {
        moved = 0;
        for (uint32_t k = 0; k < s->p->x.buckets && !is_done(s); k++) {
            moved |= move_one(s, s->order[k], all);
        }
    }
}

static int move_two(gw_joint_search *s, uint32_t a, uint32_t b)
{
    const gw_menu *ma = &s->p->menu[a], *mb = &s->p->menu[b];
    score best = {s->line.makespan, s->error};
    change chosen = {.n = 0};
    for (uint32_t k = 0; k < ma->n_some * mb->n_some; k++) {
        const change c = {
            .bucket = {a, b}, .pick = {ma->some[k / mb->n_some], mb->some[k % mb->n_some]}, .n = 2};
        if (c.pick[0] != s->pick[a] && c.pick[1] != s->pick[b] && try_change(s, &c, &best)) {
            chosen = c;
        }
    }
    return take(s, &chosen);
}

/* Neighbours first, as long as events last. */
static int move_pairs(gw_joint_search *s)
{
    int any = 0;
    for (uint32_t distance = 1; distance < s->p->x.buckets; distance++) {
        for (uint32_t a = 0; a + distance < s->p->x.buckets; a++) {
            if (is_done(s)) {
                return any;
            }
            any |= move_two(s, a, a + distance);
        }
    }
    return any;
}

/* ---- starts ---- */

/* Within the budget from here on: first what is given up for nothing comes back, then it is spent. */
static void polish(gw_joint_search *s)
{
    keep_best(s);
    if (s->error <= s->p->table->budget) {
        s->price = -1;
        do {
            move_singles(s, 0);
        } while (!is_done(s) && s->line.makespan > s->dual.bound && move_pairs(s));
        keep_best(s);
    }
}

void gw_joint_try(gw_joint_search *s, const uint32_t *pick)
{
    set(s, pick);
    polish(s);
}

/* What each bucket would do by itself at this price; those before `from` only keep their error low. */
static double pick_at(const gw_joint_search *s, const gw_ticks weight[GW_TRACKS], uint32_t from,
                      double price, uint32_t *pick)
{
    double error = 0;
    for (uint32_t b = 0; b < s->p->x.buckets; b++) {
        const gw_menu *m = &s->p->menu[b];
        pick[b] = b >= from ? gw_joint_cheapest(m, weight, 64 * price) : 0;
        error += m->item[pick[b]].error;
    }
    return error;
}

/* The lowest price, from the dual's up, at which all keep within the budget, found by halving; from there on by moves. */
static void start_priced(gw_joint_search *s, const gw_ticks weight[GW_TRACKS], uint32_t from)
{
    const double budget = s->p->table->budget;
    double low = 0, high = s->dual.price > 0 ? s->dual.price : 1;
    double error = pick_at(s, weight, from, 0, s->spare);
    for (int k = 0; k < 200 && error > budget; k++) {
        error = pick_at(s, weight, from, high, s->spare);
        low = error > budget ? high : low;
        high = error > budget ? 4 * high : high;
    }
    for (int k = 0; k < 20 && low > 0; k++) {
        const double middle = 0.5 * (low + high);
        if (pick_at(s, weight, from, middle, s->spare) > budget) {
            low = middle;
        } else {
            high = middle;
        }
    }
    if (low > 0) {
        (void)pick_at(s, weight, from, high, s->spare);
    }
    gw_joint_try(s, s->spare);
}

/* The price goes up until the timeline's own optimum is within the budget, and down again. */
static void start_lagrangian(gw_joint_search *s)
{
    enum { STEPS = 16 };
    const double budget = s->p->table->budget;
    double low = 0, high = -1;
    double price = s->dual.price > 0 ? s->dual.price : (double)s->line.makespan / budget;
    const uint32_t n = s->p->x.buckets;
    for (int k = 0; k < STEPS && s->line.events < s->event_limit; k++) {
        s->until = s->line.events + s->event_limit / 40;
        s->price = price;
        move_singles(s, 0);
        memcpy(s->spare, s->pick, n * sizeof *s->spare);
        if (s->error <= budget) {
            high = price;
            polish(s);
            set(s, s->spare);
        } else {
            low = price;
        }
        price = high < 0 ? 4 * price : low == 0 ? price / 4 : 0.5 * (low + high);
    }
}

static void start_all(gw_joint_search *s)
{
    static const gw_ticks WEIGHTS[][GW_TRACKS] = {
        {[GW_TRACK_NIC] = 64, [GW_TRACK_INTRA] = 64},
        {[GW_TRACK_NIC] = 64, [GW_TRACK_INTRA] = 64, [GW_TRACK_GPU] = 64, [GW_TRACK_CPU] = 64},
        {[GW_TRACK_NIC] = 64, [GW_TRACK_INTRA] = 64, [GW_TRACK_GPU] = 64}};
    const uint32_t from = s->dual.from;
    for (unsigned i = 0; i < 2 * sizeof WEIGHTS / sizeof WEIGHTS[0]; i++) {
        s->until = s->line.events + s->event_limit / 40;
        if (i % 2 == 0 || from > 0) {
            start_priced(s, WEIGHTS[i / 2], i % 2 == 0 ? 0 : from);
        }
    }
    s->until = s->line.events + s->event_limit / 40;
    memset(s->spare, 0, s->p->x.buckets * sizeof *s->spare); /* as little error as there is */
    gw_joint_try(s, s->spare);
}

void gw_joint_run(gw_joint_search *s)
{
    const double budget = s->p->table->budget;
    s->until = s->line.events + s->event_limit / 40;
    start_priced(s, s->dual.weight, s->dual.from);
    start_all(s);
    if (s->best > s->dual.bound && budget > 0 && isfinite(budget)) {
        set(s, s->best_pick);
        start_lagrangian(s);
    }
    s->until = UINT64_MAX;
    set(s, s->best_pick);
    s->price = -1;
    do {
        move_singles(s, 0);
        move_singles(s, 1);
    } while (!is_done(s) && s->line.makespan > s->dual.bound && move_pairs(s));
    keep_best(s);
    set(s, s->best_pick);
}
