/* gw_adapt_choose: checks, the easy ends of the budget, and what is done when there is no way. */
#include "adapt/solver.h"

#include "base/numeric.h"
#include "base/why.h"

#include <math.h>
#include <string.h>

double gw_solver_sums(const gw_solver *s, const uint32_t *levels, uint64_t *bytes)
{
    double error = 0;
    uint64_t sum = 0;
    for (size_t l = 0; l < s->problem->n_layers; l++) {
        const gw_unit *u = &s->units[s->unit_of[l]];
        const uint32_t level =
            levels != NULL ? levels[l] : u->points[s->trial[s->unit_of[l]]].level;
        error += s->problem->layers[l].errors[level];
        sum += s->problem->layers[l].bytes[level];
    }
    if (bytes != NULL) {
        *bytes = sum;
    }
    return error;
}

int gw_solver_offer(gw_solver *s)
{
    uint64_t bytes;
    const double error = gw_solver_sums(s, NULL, &bytes);
    if (!(error <= s->budget)) {
        return 0;
    }
    if (bytes < s->best_bytes || (bytes == s->best_bytes && error < s->best_error)) {
        s->best_bytes = bytes;
        s->best_error = error;
        for (size_t l = 0; l < s->problem->n_layers; l++) {
            s->best[l] = s->units[s->unit_of[l]].points[s->trial[s->unit_of[l]]].level;
        }
    }
    return 1;
}

/* ---- what is asked ---- */

static gw_status check_layer(const gw_adapt_problem *p, size_t l, uint64_t *most_bytes, gw_why *why)
{
    const gw_adapt_layer *layer = &p->layers[l];
    if (layer->errors == NULL || layer->bytes == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "adapt: layer %zu has no errors or no bytes", l);
    }
    if (layer->n == 0 || layer->n > GW_ADAPT_MOST_LEVELS || layer->uniform >= layer->n) {
        return GW_FAIL(why, GW_ERR_RANGE, "adapt: layer %zu: %u levels, default %u", l, layer->n,
                       layer->uniform);
    }
    if (layer->first >= layer->n || layer->allowed > layer->n - layer->first ||
        layer->group > p->n_layers) {
        return GW_FAIL(why, GW_ERR_RANGE,
                       "adapt: layer %zu: %u levels from %u on of %u, group %u of %zu layers", l,
                       layer->allowed, layer->first, layer->n, layer->group, p->n_layers);
    }
    uint64_t most = 0;
    for (uint32_t i = 0; i < layer->n; i++) {
        most = layer->bytes[i] > most ? layer->bytes[i] : most;
    }
    *most_bytes = most < ((uint64_t)1 << 45) ? *most_bytes + most : UINT64_MAX / 2;
    if (*most_bytes >= (uint64_t)1 << 45) { /* in units of 256 exact in a double */
        return GW_FAIL(why, GW_ERR_RANGE, "adapt: more than 2^45 bytes up to layer %zu", l);
    }
    return GW_OK;
}

static gw_status check(const gw_adapt_problem *p, gw_why *why)
{
    uint64_t most_bytes = 0;
    gw_status status = GW_OK;
    if (p == NULL || (p->layers == NULL && p->n_layers != 0)) {
        return GW_FAIL(why, GW_ERR_ARG, "adapt: no problem, or no layers");
    }
    if (!(p->alpha >= 0)) {
        return GW_FAIL(why, GW_ERR_RANGE, "adapt: alpha is %g, which is not 0 or more", p->alpha);
    }
    if (p->n_layers > GW_ADAPT_MOST_LAYERS || p->buckets > GW_ADAPT_MOST_BUCKETS ||
        (p->method != GW_ADAPT_DYNAMIC && p->method != GW_ADAPT_FAST)) {
        return GW_FAIL(why, GW_ERR_RANGE, "adapt: %zu layers, %u buckets, method %d", p->n_layers,
                       p->buckets, (int)p->method);
    }
    for (size_t l = 0; l < p->n_layers && status == GW_OK; l++) {
        status = check_layer(p, l, &most_bytes, why);
    }
    return status;
}

static void cut(gw_arena *arena, gw_solver *s)
{
    gw_units_cut(arena, s);
    s->trial = gw_arena_take(arena, s->problem->n_layers, sizeof *s->trial);
    s->best = gw_arena_take(arena, s->problem->n_layers, sizeof *s->best);
    if (s->problem->method == GW_ADAPT_DYNAMIC) {
        gw_dynamic_cut(arena, s);
        gw_exact_cut(arena, s);
    }
}

gw_status gw_adapt_workspace(const gw_adapt_problem *problem, size_t *bytes)
{
    gw_solver s = {.problem = problem};
    gw_arena arena = gw_arena_measuring();
    const gw_status status = check(problem, NULL);
    if (status != GW_OK || bytes == NULL) {
        return status != GW_OK ? status : GW_ERR_ARG;
    }
    gw_dynamic_measure(&s);
    cut(&arena, &s);
    if (arena.failed) {
        return GW_ERR_RANGE;
    }
    *bytes = gw_arena_need(&arena);
    return GW_OK;
}

/* ---- the answer ---- */

/* The default, or what stands in for it, as the best yet, if it is within the budget. */
static void start_from_default(gw_solver *s)
{
    for (size_t l = 0; l < s->problem->n_layers; l++) {
        const uint32_t level = s->units[s->unit_of[l]].stand_in;
        s->best[l] = level != UINT32_MAX ? level : s->problem->layers[l].first;
    }
    s->best_error = gw_solver_sums(s, s->best, &s->best_bytes);
}

/* Offers the least error everywhere. 0 if some unit has no level at all. */
static int offer_least_error(gw_solver *s)
{
    for (size_t i = 0; i < s->n_units; i++) {
        if (s->units[i].n == 0) {
            return 0;
        }
        s->trial[i] = s->units[i].n - 1;
    }
    (void)gw_solver_offer(s);
    return 1;
}

static void solve(gw_solver *s)
{
    memset(s->trial, 0, s->n_units * sizeof *s->trial);
    if (gw_solver_offer(s)) { /* the fewest bytes everywhere */
        s->lower_bound = s->best_bytes;
        return;
    }
    gw_hull_solve(s);
    if (s->problem->method == GW_ADAPT_DYNAMIC && s->budget > 0) {
        gw_dynamic_solve(s);
        if (s->lower_bound < s->best_bytes) {
            gw_exact_solve(s);
        }
    }
    s->lower_bound = s->lower_bound < s->best_bytes ? s->lower_bound : s->best_bytes;
}

static uint64_t checksum_of(const uint32_t *levels, size_t n)
{
    uint64_t hash = 0xCBF29CE484222325u; /* FNV-1a, four bytes a layer, the lowest first */
    for (size_t l = 0; l < n; l++) {
        for (int shift = 0; shift < 32; shift += 8) {
            hash = (hash ^ (levels[l] >> shift & 0xFF)) * 0x100000001B3u;
        }
    }
    return hash;
}

static gw_adapt_outcome find(gw_solver *s)
{
    start_from_default(s);
    if (!isfinite(s->uniform_error)) {
        return GW_ADAPT_NO_BUDGET;
    }
    const double start_error = s->best_error;
    const uint64_t start_bytes = s->best_bytes;
    if (!(start_error >= 0 && start_error <= s->budget)) {
        s->best_bytes = UINT64_MAX;
    }
    if (!offer_least_error(s) || s->best_bytes == UINT64_MAX) {
        start_from_default(s);
        return GW_ADAPT_INFEASIBLE;
    }
    solve(s);
    return s->best_bytes == start_bytes && s->best_error == start_error ? GW_ADAPT_UNIFORM
                                                                        : GW_ADAPT_FOUND;
}

static void fill_in(const gw_solver *s, gw_adapt_outcome outcome, gw_adapt_choice *choice)
{
    const gw_adapt_problem *p = s->problem;
    choice->outcome = outcome;
    choice->budget = s->budget;
    choice->uniform_error = s->uniform_error;
    choice->uniform_bytes = 0;
    for (size_t l = 0; l < p->n_layers; l++) {
        choice->levels[l] = s->best[l];
        choice->uniform_bytes += p->layers[l].bytes[p->layers[l].uniform];
    }
    choice->error = gw_solver_sums(s, s->best, &choice->bytes);
    choice->lower_bound = outcome <= GW_ADAPT_UNIFORM ? s->lower_bound : 0;
    choice->checksum = checksum_of(s->best, p->n_layers);
    choice->unusable = s->unusable;
}

gw_status gw_adapt_choose(const gw_adapt_problem *problem, gw_workspace workspace,
                          gw_adapt_choice *choice, gw_why *why)
{
    gw_solver s = {.problem = problem};
    gw_status status = check(problem, why);
    if (status != GW_OK) {
        return status;
    }
    if (choice == NULL || (choice->levels == NULL && problem->n_layers != 0)) {
        return GW_FAIL(why, GW_ERR_ARG, "adapt: no room for the choice");
    }
    const uint32_t caller = gw_fp_enter();
    for (size_t l = 0; l < problem->n_layers; l++) {
        const double error = problem->layers[l].errors[problem->layers[l].uniform];
        s.uniform_error += error >= 0 ? error : NAN;
    }
    s.budget = problem->alpha < INFINITY ? problem->alpha * s.uniform_error : INFINITY;
    gw_dynamic_measure(&s);
    gw_arena arena = gw_arena_over(workspace);
    cut(&arena, &s);
    if (arena.failed) {
        gw_fp_leave(caller);
        return GW_FAIL(why, GW_ERR_WORKSPACE, "adapt: the workspace is too small");
    }
    status = gw_units_build(&s, why);
    if (status == GW_OK) {
        fill_in(&s, find(&s), choice);
    }
    gw_fp_leave(caller);
    return status;
}
