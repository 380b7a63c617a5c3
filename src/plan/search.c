/* State, order, greedy pass, offload. Moves to a local optimum are in moves.c. */
#include "plan/search.h"

#include "plan/moves.h"

#include "base/why.h"

#include <stdlib.h>
#include <string.h>

static const gw_chain NO_CHAIN;

static const gw_chain *chain_of(const gw_search *s, uint32_t tensor, uint32_t choice)
{
    const gw_class *c = s->class_of[tensor];
    return c->n == 0 ? &NO_CHAIN : &c->choice[choice].chain;
}

/* ---- order ---- */

typedef struct ranked {
    uint64_t elements;
    uint32_t tensor;
} ranked;

static int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->elements != y->elements) {
        return x->elements > y->elements ? -1 : 1;
    }
    return x->tensor > y->tensor ? -1 : 1;
}

static int sort_tensors(gw_search *s)
{
    const uint32_t n = s->line.n;
    ranked *all = malloc((n + 1) * sizeof *all);
    if (all == NULL) {
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        all[i] = (ranked){s->class_of[i]->elements, i};
    }
    qsort(all, n, sizeof *all, by_rank);
    for (uint32_t i = 0; i < n; i++) {
        s->order[i] = all[i].tensor;
    }
    free(all);
    return 1;
}

/* ---- state ---- */

gw_status gw_search_create(gw_search *s, const gw_timeline_rules *rules, const gw_ticks *compute,
                           const gw_class *const *class_of, uint32_t n, gw_why *why)
{
    *s = (gw_search){.class_of = class_of, .device = GW_CODING_GPU, .event_limit = UINT64_MAX};
    gw_status status = gw_timeline_create(&s->line, rules, compute, n, GW_TIMELINE_MAX_OPS, why);
    if (status != GW_OK) {
        return status;
    }
    s->pick = calloc((size_t)n + 1, sizeof *s->pick);
    s->order = calloc((size_t)n + 1, sizeof *s->order);
    s->best = calloc((size_t)n + 1, sizeof *s->best);
    s->room = calloc(3 * ((size_t)n + 1), sizeof *s->room);
    if (s->pick == NULL || s->order == NULL || s->best == NULL || s->room == NULL ||
        !sort_tensors(s)) {
        gw_search_destroy(s);
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory to plan %u tensors", n);
    }
    return GW_OK;
}

void gw_search_destroy(gw_search *s)
{
    gw_timeline_destroy(&s->line);
    free(s->pick);
    free(s->order);
    free(s->best);
    free(s->room);
    *s = (gw_search){0};
}

void gw_search_set(gw_search *s, const uint32_t *pick)
{
    for (uint32_t i = 0; i < s->line.n; i++) {
        s->pick[i] = pick[i];
        s->line.chain[i] = chain_of(s, i, pick[i]);
    }
    gw_timeline_commit(&s->line, 0);
}

/* The fastest alone of those that code so; of all where there is none. */
static uint32_t fastest_alone(const gw_class *c, gw_coding coding)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < c->n; i++) {
        const gw_choice *a = &c->choice[i], *b = &c->choice[best];
        const int fits = a->coding == (uint8_t)coding, fitted = b->coding == (uint8_t)coding;
        if (fits > fitted || (fits == fitted && gw_choice_alone(a) < gw_choice_alone(b))) {
            best = i;
        }
    }
    return best;
}

void gw_search_all(gw_search *s, gw_coding coding)
{
    for (uint32_t i = 0; i < s->line.n; i++) {
        s->pick[i] = fastest_alone(s->class_of[i], coding);
        s->line.chain[i] = chain_of(s, i, s->pick[i]);
    }
    gw_timeline_commit(&s->line, 0);
}

void gw_search_dense(gw_search *s)
{
    gw_search_all(s, GW_CODING_NONE);
}

/* ---- algorithm 1 ---- */

void gw_search_greedy(gw_search *s)
{
    gw_search_dense(s);
    for (uint32_t k = 0; k < s->line.n; k++) {
        const uint32_t i = s->order[k];
        if (gw_is_settled(s, i) || s->line.makespan <= s->goal) {
            continue;
        }
        (void)gw_move_one(s, i, s->device);
    }
}

/* ---- algorithm 2 ---- */

/* The tensors that had this choice of this class when the pass began, earliest first. */
typedef struct group {
    uint32_t *tensor;
    uint32_t n;
} group;

static group group_of(const gw_search *s, const uint32_t *before, uint32_t first, uint32_t *room)
{
    group g = {.tensor = room};
    for (uint32_t i = first; i < s->line.n; i++) {
        if (s->class_of[i] == s->class_of[first] && before[i] == before[first]) {
            g.tensor[g.n++] = i;
        }
    }
    return g;
}

/* Moves the first u = 1, 2, … of a group; the best u stays. */
static void offload_group(gw_search *s, const group *g, uint32_t twin, uint32_t *pick)
{
    gw_ticks best = s->line.makespan;
    uint32_t moved = 0;
    memcpy(pick, s->pick, s->line.n * sizeof *pick);
    for (uint32_t u = 0; u < g->n; u++) {
        s->pick[g->tensor[u]] = twin;
        s->line.chain[g->tensor[u]] = chain_of(s, g->tensor[u], twin);
        gw_timeline_commit(&s->line, g->tensor[u]);
        if (s->line.makespan < best) {
            best = s->line.makespan;
            moved = u + 1;
        }
    }
    for (uint32_t u = moved; u < g->n; u++) {
        s->pick[g->tensor[u]] = pick[g->tensor[u]];
        s->line.chain[g->tensor[u]] = chain_of(s, g->tensor[u], pick[g->tensor[u]]);
    }
    gw_timeline_commit(&s->line, g->tensor[moved < g->n ? moved : g->n - 1]);
}

void gw_search_offload(gw_search *s)
{
    const uint32_t n = s->line.n;
    uint32_t *room = s->room, *before = room + n, *pick = before + n;
    if (s->device != GW_CODING_GPU) {
        return;
    }
    memcpy(before, s->pick, n * sizeof *before);
    for (uint32_t i = 0; i < n; i++) {
        const gw_class *c = s->class_of[i];
        int seen = c->n == 0 || c->choice[before[i]].coding != GW_CODING_GPU;
        for (uint32_t j = 0; j < i && !seen; j++) {
            seen = s->class_of[j] == c && before[j] == before[i];
        }
        const uint32_t twin = seen ? UINT32_MAX : gw_class_cpu_twin(c, before[i]);
        if (twin != UINT32_MAX) {
            const group g = group_of(s, before, i, room);
            offload_group(s, &g, twin, pick);
        }
    }
}

/* ---- all of it ---- */

/* What each tensor would do if it were alone: the least sum of weighted work. */
static void start_alone(gw_search *s, gw_ticks links, gw_ticks coding)
{
    for (uint32_t i = 0; i < s->line.n; i++) {
        const gw_class *c = s->class_of[i];
        gw_ticks least = GW_NEVER;
        for (uint32_t k = 0; k < c->n; k++) {
            const gw_ticks *work = c->choice[k].chain.work;
            const gw_ticks sum =
                links * (work[GW_TRACK_NIC] + work[GW_TRACK_INTRA]) +
                coding * (work[GW_TRACK_GPU] + work[GW_TRACK_CPU] + work[GW_TRACK_COPY]);
            if (sum < least) {
                least = sum;
                s->pick[i] = k;
            }
        }
        s->line.chain[i] = chain_of(s, i, s->pick[i]);
    }
    gw_timeline_commit(&s->line, 0);
}

void gw_search_links(gw_search *s)
{
    start_alone(s, 1, 1);
}

/* The best so far, and what it ends at. */
typedef struct best_picks {
    uint32_t *pick;
    gw_ticks makespan;
} best_picks;

static void keep_best(const gw_search *s, best_picks *best)
{
    if (s->line.makespan < best->makespan) {
        best->makespan = s->line.makespan;
        memcpy(best->pick, s->pick, s->line.n * sizeof *best->pick);
    }
}

/* What is simple must not be better: one kind of choice for all. */
static void start_simple(gw_search *s, best_picks *best)
{
    static const gw_coding CODINGS[] = {GW_CODING_GPU, GW_CODING_CPU, GW_CODING_NONE};
    for (unsigned i = 0; i <= sizeof CODINGS / sizeof CODINGS[0]; i++) {
        if (i == 0) {
            gw_search_links(s);
        } else {
            gw_search_all(s, CODINGS[i - 1]);
        }
        if (s->line.makespan < best->makespan) {
            gw_search_local(s);
            keep_best(s, best);
        }
    }
}

void gw_search_run(gw_search *s)
{
    static const gw_ticks WEIGHTS[][2] = {{1, 0}, {1, 2}, {2, 1}};
    best_picks best = {s->best, GW_NEVER};
    gw_search_greedy(s);
    gw_search_offload(s);
    gw_search_local(s);
    keep_best(s, &best);
    for (unsigned i = 0; i < sizeof WEIGHTS / sizeof WEIGHTS[0] && !gw_is_done(s); i++) {
        start_alone(s, WEIGHTS[i][0], WEIGHTS[i][1]);
        gw_search_local(s);
        keep_best(s, &best);
    }
    start_simple(s, &best);
    gw_search_set(s, best.pick);
}
