/* The rest of the way to the optimum, where it is short. Partial assignments, unit after unit, as a list in which none
 * beats another; dropped as soon as they cannot lead to fewer bytes than the best yet: by what the units to come
 * need at least, and by their bytes and errors at the fast path's price. The gap left by the dynamic programme is
 * small, and so are the lists; where they grow too long the search is given up. */
#include "adapt/solver.h"

#include <math.h>

enum { MOST_STATES = 1 << 14, MOST_NODES = 1 << 18, MOST_WORK = 1 << 21 };

void gw_exact_cut(gw_arena *arena, gw_solver *s)
{
    const size_t n = s->problem->n_layers;
    size_t states = 1;
    for (size_t l = 0; l < n && states < MOST_STATES; l++) {
        states *= s->problem->layers[l].n;
    }
    gw_exact *x = &s->exact;
    x->capacity = states < MOST_STATES ? states : MOST_STATES;
    x->node_capacity = x->capacity * n < MOST_NODES ? x->capacity * n : MOST_NODES;
    for (int i = 0; i < 3; i++) {
        x->list[i] = gw_arena_take(arena, x->capacity, sizeof *x->list[i]);
    }
    x->nodes = gw_arena_take(arena, x->node_capacity, sizeof *x->nodes);
    x->rest = gw_arena_take(arena, n + 1, sizeof *x->rest);
}

/* What the units from i on need at least. */
static void sum_up(gw_solver *s)
{
    gw_rest *rest = s->exact.rest;
    rest[s->n_units] = (gw_rest){0};
    for (size_t i = s->n_units; i-- > 0;) {
        const gw_unit *u = &s->units[i];
        double least = INFINITY;
        for (uint32_t k = 0; k < u->n; k++) {
            least = fmin(least, (double)u->points[k].bytes + s->price * u->points[k].error);
        }
        rest[i].error = rest[i + 1].error + u->points[u->n - 1].error;
        rest[i].bytes = rest[i + 1].bytes + (double)u->points[0].bytes;
        rest[i].priced = rest[i + 1].priced + least;
    }
}

/* Can a state with this error and these bytes, units from i on to come, still be better than the best? */
static int is_hopeful(const gw_solver *s, size_t i, double error, uint64_t bytes)
{
    const gw_rest *rest = &s->exact.rest[i];
    const double rounding = 0x1p-50 * (double)(s->n_units + 4);
    const double wanted = (double)s->best_bytes - 1;
    if (error + rest->error > s->budget * (1 + rounding) || (double)bytes + rest->bytes > wanted) {
        return 0;
    }
    const double paid = (double)bytes + rest->priced + s->price * error;
    const double owed = s->price * s->budget;
    return !(paid - owed > wanted + rounding * (paid + owed)); /* NaN: it may be */
}

/* Merges `states` + point k into *found, which stays free of states that another one beats. 0: too many. */
static int add_point(gw_solver *s, size_t unit, uint32_t k, const gw_state *states, size_t n,
                     gw_state **found, gw_state **spare, size_t *n_found)
{
    const gw_point *p = &s->units[unit].points[k];
    gw_state *out = *spare;
    size_t made = 0, old = 0;
    for (size_t i = 0; i < n || old < *n_found;) {
        gw_state next;
        if (i < n) {
            next = (gw_state){states[i].error + p->error, states[i].bytes + p->bytes,
                              states[i].node, k};
        }
        if (i == n || (old < *n_found &&
                       ((*found)[old].bytes < next.bytes || ((*found)[old].bytes == next.bytes &&
                                                             (*found)[old].error <= next.error)))) {
            next = (*found)[old++];
        } else {
            i++;
            if (!is_hopeful(s, unit + 1, next.error, next.bytes)) {
                continue;
            }
        }
        if (made > 0 && out[made - 1].error <= next.error) {
            continue;
        }
        if (made == s->exact.capacity) {
            return 0;
        }
        out[made++] = next;
    }
    *spare = *found;
    *found = out;
    *n_found = made;
    return 1;
}

/* Remembers how the states came about. 0: too many. */
static int keep(gw_exact *x, gw_state *states, size_t n)
{
    if (n > x->node_capacity - x->n_nodes) {
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        x->nodes[x->n_nodes] = (gw_node){states[i].node, states[i].point};
        states[i].node = (uint32_t)x->n_nodes++;
    }
    return 1;
}

void gw_exact_solve(gw_solver *s)
{
    gw_exact *x = &s->exact;
    gw_state *states = x->list[0], *found = x->list[1], *spare = x->list[2];
    size_t n = 1, work = 0;
    x->n_nodes = 0;
    states[0] = (gw_state){0};
    sum_up(s);
    for (size_t unit = 0; unit < s->n_units; unit++) {
        size_t n_found = 0;
        for (uint32_t k = 0; k < s->units[unit].n; k++) {
            work += n + n_found;
            if (work > MOST_WORK || !add_point(s, unit, k, states, n, &found, &spare, &n_found)) {
                return;
            }
        }
        if (!keep(x, found, n_found)) {
            return;
        }
        gw_state *swap = states;
        states = found;
        found = swap;
        n = n_found;
    }
    int is_better = 0;
    for (size_t i = 0; i < n && !is_better; i++) { /* the fewest bytes first */
        uint32_t node = states[i].node;
        for (size_t unit = s->n_units; unit-- > 0; node = x->nodes[node].before) {
            s->trial[unit] = x->nodes[node].point;
        }
        is_better = gw_solver_offer(s);
    }
    s->lower_bound = s->best_bytes; /* nothing was left out that could be better */
}
