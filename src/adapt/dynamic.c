/* The dynamic programme: least bytes within every budget of 0 … B buckets, unit after unit. Rounding each error up
 * gives assignments that are within the budget; rounding down, a bound that none within it can beat, and
 * assignments to be checked. A unit of error is the default's, halved or doubled until alpha is within 1 and 2 of
 * it: so more budget means more buckets, not wider ones. */
#include "adapt/solver.h"

#include <math.h>

enum { CHOICES = GW_ADAPT_MOST_LEVELS, TILE = 512 };
/* A cell holds bytes · 256 + point: the least of these is the fewest bytes, ties to the first point. Exact below 2^53. */
static const double UNREACHABLE = 0x1p60;
/* Quotients within this of a whole number are that number: buckets of errors that are the same in other units. */
static const double NEARLY = 1e-8;

void gw_dynamic_measure(gw_solver *s)
{
    const uint32_t d = s->problem->buckets != 0 ? s->problem->buckets : GW_ADAPT_BUCKETS;
    int exponent = 0;
    const double half = frexp(s->problem->alpha, &exponent);
    /* rounded down, but not below what the bound's sum of nearly whole numbers may come to */
    const double spare = 1e-6 + 2 * NEARLY * (double)s->problem->n_layers;
    s->buckets = isfinite(half) ? (size_t)(2 * half * (double)d + spare) : 0;
    s->width = isfinite(half) ? ldexp(s->uniform_error, exponent - 1) / (double)d : 0;
}

void gw_dynamic_cut(gw_arena *arena, gw_solver *s)
{
    const size_t cells = s->buckets + 1;
    s->cost = gw_arena_take(arena, CHOICES, sizeof *s->cost);
    s->row[0] = gw_arena_take(arena, cells, sizeof *s->row[0]);
    s->row[1] = gw_arena_take(arena, cells, sizeof *s->row[1]);
    s->choices = gw_arena_take(arena, s->problem->n_layers, cells);
}

/* The points' errors in buckets. Of points that cost the same, the first has the fewest bytes. */
static void price(gw_solver *s, const gw_unit *u, int up)
{
    for (uint32_t k = 0; k < u->n; k++) {
        const double exact = u->points[k].error / s->width;
        const double whole = up ? ceil(exact - NEARLY) : floor(exact + NEARLY);
        s->cost[k] = whole <= (double)s->buckets ? (uint32_t)whole : UINT32_MAX;
    }
}

static void relax(double *restrict after, const double *restrict before, double bytes, size_t n)
{
    for (size_t b = 0; b < n; b++) {
        const double v = before[b] + bytes;
        after[b] = v < after[b] ? v : after[b];
    }
}

/* One unit: after[b] = the least over its points of before[b − cost] + bytes, a tile of b at a time. */
static void add_unit(const gw_solver *s, const gw_unit *u, const double *before, double *after)
{
    for (size_t begin = 0; begin <= s->buckets; begin += TILE) {
        const size_t end = begin + TILE <= s->buckets ? begin + TILE : s->buckets + 1;
        for (size_t b = begin; b < end; b++) {
            after[b] = UNREACHABLE;
        }
        for (uint32_t k = 0; k < u->n; k++) {
            const uint32_t cost = s->cost[k];
            if (cost >= end || (k > 0 && cost == s->cost[k - 1])) {
                continue;
            }
            const size_t from = cost > begin ? cost : begin;
            relax(after + from, before + from - cost,
                  (double)u->points[k].bytes * CHOICES + (double)k, end - from);
        }
    }
}

/* Takes the points out of the cells. */
static void settle(const gw_solver *s, double *cells, uint8_t *choices)
{
    for (size_t b = 0; b <= s->buckets; b++) {
        const double v = cells[b];
        const uint64_t key = v < 0x1p53 ? (uint64_t)v : 0;
        choices[b] = (uint8_t)(key % CHOICES);
        cells[b] = v < 0x1p53 ? (double)(key - key % CHOICES) : UNREACHABLE;
    }
}

/* Sets the trial to what the cell for budget b stands for. */
static void rebuild(gw_solver *s, size_t b, int up)
{
    for (size_t i = s->n_units; i-- > 0;) {
        const double error = s->units[i].points[s->choices[i * (s->buckets + 1) + b]].error;
        const double exact = error / s->width;
        s->trial[i] = s->choices[i * (s->buckets + 1) + b];
        b -= (size_t)(up ? ceil(exact - NEARLY) : floor(exact + NEARLY));
    }
}

/* Bytes of the best within each budget, in the row that is returned. */
static const double *run(gw_solver *s, int up)
{
    double *before = s->row[0], *after = s->row[1];
    for (size_t b = 0; b <= s->buckets; b++) {
        before[b] = 0;
    }
    for (size_t i = 0; i < s->n_units; i++) {
        price(s, &s->units[i], up);
        add_unit(s, &s->units[i], before, after);
        settle(s, after, s->choices + i * (s->buckets + 1));
        double *swap = before;
        before = after;
        after = swap;
    }
    return before;
}

void gw_dynamic_solve(gw_solver *s)
{
    if (!(s->width > 0) || !isfinite(s->width)) {
        return; /* beyond the range of doubles: the fast path has to do */
    }
    const double *up = run(s, 1);
    if (up[s->buckets] < UNREACHABLE) {
        rebuild(s, s->buckets, 1);
        gw_hull_fill(s);
    }
    const double *down = run(s, 0);
    const uint64_t bound =
        down[s->buckets] < UNREACHABLE ? (uint64_t)down[s->buckets] / CHOICES : 0;
    s->lower_bound = bound > s->lower_bound ? bound : s->lower_bound;
    /* A bucket a unit is all that rounding can have hidden. */
    for (size_t left = 0; left <= s->n_units && left <= s->buckets; left++) {
        const double bytes = down[s->buckets - left];
        if (bytes >= UNREACHABLE || (uint64_t)bytes / CHOICES >= s->best_bytes) {
            break;
        }
        rebuild(s, s->buckets - left, 0);
        if (gw_solver_offer(s)) {
            gw_hull_fill(s);
            break;
        }
    }
}
