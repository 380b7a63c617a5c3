/* From layers to units: groups are added up, levels that another one beats are dropped. */
#include "adapt/solver.h"

#include "base/why.h"

#include <math.h>

void gw_units_cut(gw_arena *arena, gw_solver *s)
{
    size_t levels = 0;
    for (size_t l = 0; l < s->problem->n_layers; l++) {
        levels += s->problem->layers[l].n;
    }
    s->units = gw_arena_take(arena, s->problem->n_layers, sizeof *s->units);
    s->unit_of = gw_arena_take(arena, s->problem->n_layers, sizeof *s->unit_of);
    gw_point *points = gw_arena_take(arena, levels, sizeof *points);
    uint32_t *hull = gw_arena_take(arena, levels, sizeof *hull);
    double *slopes = gw_arena_take(arena, levels, sizeof *slopes);
    for (size_t l = 0; l < s->problem->n_layers && !arena->failed && arena->base != NULL; l++) {
        s->units[l] = (gw_unit){.points = points, .hull = hull, .slopes = slopes};
        points += s->problem->layers[l].n;
        hull += s->problem->layers[l].n;
        slopes += s->problem->layers[l].n;
    }
}

static int usable(double error)
{
    return error >= 0 && isfinite(error);
}

static int is_allowed(const gw_adapt_layer *layer, uint32_t level)
{
    return level >= layer->first && (layer->allowed == 0 || level - layer->first < layer->allowed);
}

/* Adds a layer to its unit. A level that one member cannot have is lost to all: its error is infinite. */
static void add_layer(gw_solver *s, gw_unit *u, const gw_adapt_layer *layer)
{
    const int is_first = u->n == 0;
    u->n = layer->n;
    for (uint32_t i = 0; i < layer->n; i++) {
        gw_point *p = &u->points[i];
        if (is_first) {
            *p = (gw_point){.level = i};
        }
        s->unusable += !usable(layer->errors[i]);
        p->error += usable(layer->errors[i]) && is_allowed(layer, i) ? layer->errors[i] : INFINITY;
        p->bytes += layer->bytes[i];
    }
    if (is_first && is_allowed(layer, layer->uniform)) {
        u->stand_in = layer->uniform;
    } else if (is_first || u->stand_in != layer->uniform || !is_allowed(layer, u->stand_in)) {
        u->stand_in = UINT32_MAX; /* none that suits all members */
    }
}

static int comes_before(const gw_point *a, const gw_point *b)
{
    if (a->bytes != b->bytes) {
        return a->bytes < b->bytes;
    }
    return a->error != b->error ? a->error < b->error : a->level < b->level;
}

/* Shell's sort: lists are short, and mostly in order. */
static void sort(gw_point *points, uint32_t n)
{
    static const uint32_t gaps[] = {57, 23, 10, 4, 1};
    for (size_t g = 0; g < sizeof gaps / sizeof gaps[0]; g++) {
        for (uint32_t i = gaps[g]; i < n; i++) {
            const gw_point p = points[i];
            uint32_t at = i;
            for (; at >= gaps[g] && comes_before(&p, &points[at - gaps[g]]); at -= gaps[g]) {
                points[at] = points[at - gaps[g]];
            }
            points[at] = p;
        }
    }
}

static void prune(gw_unit *u)
{
    uint32_t kept = 0, finite = 0;
    for (uint32_t i = 0; i < u->n; i++) {
        if (usable(u->points[i].error)) {
            u->points[finite++] = u->points[i];
        }
    }
    sort(u->points, finite);
    for (uint32_t i = 0; i < finite; i++) {
        if (kept == 0 || u->points[i].error < u->points[kept - 1].error) {
            u->points[kept++] = u->points[i];
        }
    }
    u->n = kept;
}

/* Bytes paid per error saved, from one point to a later one. */
static double slope(const gw_point *a, const gw_point *b)
{
    return (double)(b->bytes - a->bytes) / (a->error - b->error);
}

static void find_hull(gw_unit *u)
{
    u->n_hull = 0;
    for (uint32_t i = 0; i < u->n; i++) {
        double s = 0;
        while (u->n_hull > 0) {
            s = slope(&u->points[u->hull[u->n_hull - 1]], &u->points[i]);
            if (u->n_hull == 1 || s > u->slopes[u->n_hull - 1]) {
                break;
            }
            u->n_hull--;
        }
        u->slopes[u->n_hull] = s;
        u->hull[u->n_hull++] = i;
    }
}

gw_status gw_units_build(gw_solver *s, gw_why *why)
{
    const size_t n = s->problem->n_layers;
    uint32_t *unit_of_group = s->best; /* not in use yet: group g at g − 1 */
    for (size_t g = 0; g < n; g++) {
        unit_of_group[g] = UINT32_MAX;
    }
    for (size_t l = 0; l < n; l++) {
        const gw_adapt_layer *layer = &s->problem->layers[l];
        uint32_t unit = layer->group != 0 ? unit_of_group[layer->group - 1] : UINT32_MAX;
        if (unit == UINT32_MAX) {
            /* its memory is that of a layer with as many levels: pieces stay in order of layers */
            unit = (uint32_t)s->n_units++;
            s->units[unit] = s->units[l];
        } else if (s->units[unit].n != layer->n) {
            return GW_FAIL(why, GW_ERR_ARG, "adapt: layer %zu has %u levels, its group %u", l,
                           layer->n, s->units[unit].n);
        }
        if (layer->group != 0) {
            unit_of_group[layer->group - 1] = unit;
        }
        s->unit_of[l] = unit;
        add_layer(s, &s->units[unit], layer);
    }
    for (size_t i = 0; i < s->n_units; i++) {
        gw_unit *u = &s->units[i];
        prune(u);
        find_hull(u);
        if (u->stand_in == UINT32_MAX && u->n != 0) {
            u->stand_in = u->points[u->n - 1].level;
        }
    }
    return GW_OK;
}
