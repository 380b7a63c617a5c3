/* What the parts of the chooser share. A unit is what gets one level: a layer, or the layers of a group. Its points are
 * the levels worth looking at: bytes ascend, errors descend. */
#ifndef GW_ADAPT_SOLVER_H
#define GW_ADAPT_SOLVER_H

#include "base/arena.h"

#include <gradwire/adapt.h>

typedef struct gw_point {
    double error;
    uint64_t bytes;
    uint32_t level;
} gw_point;

typedef struct gw_unit {
    gw_point *points;
    uint32_t *hull; /* indices of the points on the lower convex hull */
    double *slopes; /* slopes[i]: bytes paid per error saved from hull[i − 1] to hull[i] */
    uint32_t n, n_hull;
    uint32_t stand_in; /* the level that stands for the default where nothing is chosen */
} gw_unit;

/* A partial assignment of exact.c: how it came about is in the nodes, back to the first unit. */
typedef struct gw_state {
    double error;
    uint64_t bytes;
    uint32_t node, point;
} gw_state;

typedef struct gw_node {
    uint32_t before, point;
} gw_node;

/* Least error, least bytes, least bytes + price · error of the units still to come. */
typedef struct gw_rest {
    double error, bytes, priced;
} gw_rest;

typedef struct gw_exact {
    gw_state *list[3];
    gw_node *nodes;
    gw_rest *rest;
    size_t capacity, node_capacity, n_nodes;
} gw_exact;

typedef struct gw_solver {
    const gw_adapt_problem *problem;
    double uniform_error, budget;
    gw_unit *units;
    uint32_t *unit_of; /* of each layer */
    size_t n_units;
    uint32_t *trial; /* of each unit a point: an assignment in the making */
    uint32_t *best;  /* of each layer a level: the best one yet */
    double best_error;
    uint64_t best_bytes; /* UINT64_MAX: none yet */
    uint64_t lower_bound;
    uint32_t unusable;
    double price; /* bytes per error, of the fast path */
    gw_exact exact;
    /* the dynamic programme */
    uint32_t *cost;   /* of each point of a unit, in buckets */
    double *row[2];   /* least bytes within each budget: before and after a unit */
    uint8_t *choices; /* of each unit and budget, a point */
    size_t buckets;
    double width;
} gw_solver;

/* units.c: points out of the problem's layers, and their hulls. */
void gw_units_cut(gw_arena *arena, gw_solver *s);
gw_status gw_units_build(gw_solver *s, gw_why *why);

/* hull.c: the fast path. Offers an assignment, raises the lower bound. */
void gw_hull_solve(gw_solver *s);
/* Spends what the trial left of the budget: the largest saving that still fits, again and again. */
void gw_hull_fill(gw_solver *s);

/* dynamic.c: width and number of the buckets; the programme, which offers assignments and raises the bound. */
void gw_dynamic_cut(gw_arena *arena, gw_solver *s);
void gw_dynamic_measure(gw_solver *s);
void gw_dynamic_solve(gw_solver *s);

/* exact.c: looks for what is better than the best; if it got to the end, the best is the optimum. */
void gw_exact_cut(gw_arena *arena, gw_solver *s);
void gw_exact_solve(gw_solver *s);

/* choose.c: the sums of an assignment, over the layers in order; of the trial if levels is NULL. */
double gw_solver_sums(const gw_solver *s, const uint32_t *levels, uint64_t *bytes);
/* Keeps the trial if it is within the budget and better than the best. Returns whether it is within. */
int gw_solver_offer(gw_solver *s);

#endif
