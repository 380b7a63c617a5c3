/* A map of ranks to nodes. */
#include "base/why.h"

#include <gradwire/route.h>

#include <stdlib.h>

/* Lists of one map, all in one block of memory behind it. */
typedef struct lists {
    uint32_t *node_of, *place_of, *first, *order, *columns;
} lists;

static lists lists_of(gw_nodes *nodes, uint32_t ranks)
{
    uint32_t *at = (uint32_t *)(nodes + 1);
    return (lists){at, at + ranks, at + 2 * (size_t)ranks, at + 3 * (size_t)ranks + 1,
                   at + 4 * (size_t)ranks + 1};
}

/* Numbers nodes by their lowest rank, whatever the caller called them. */
static uint32_t number_nodes(const uint32_t *node_of, uint32_t ranks, uint32_t *out)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t before = 0;
        while (node_of[before] != node_of[r]) {
            before++;
        }
        out[r] = before < r ? out[before] : n++;
    }
    return n;
}

static void list_ranks(gw_nodes *nodes, const lists *l)
{
    uint32_t at = 0;
    nodes->least = nodes->ranks;
    for (uint32_t node = 0; node < nodes->n; node++) {
        l->first[node] = at;
        for (uint32_t r = 0; r < nodes->ranks; r++) {
            if (l->node_of[r] == node) {
                l->place_of[r] = at - l->first[node];
                l->order[at++] = r;
            }
        }
        const uint32_t size = at - l->first[node];
        nodes->least = size < nodes->least ? size : nodes->least;
        nodes->most = size > nodes->most ? size : nodes->most;
    }
    l->first[nodes->n] = at;
}

/* Of each place that every node has, the ranks at it in ascending order. */
static void list_columns(const gw_nodes *nodes, const lists *l)
{
    for (uint32_t place = 0; place < nodes->least; place++) {
        uint32_t n = 0;
        for (uint32_t r = 0; r < nodes->ranks; r++) {
            if (l->place_of[r] == place) {
                l->columns[(size_t)place * nodes->n + n++] = r;
            }
        }
    }
}

gw_status gw_nodes_create(const uint32_t *node_of, uint32_t ranks, gw_nodes **out, gw_why *why)
{
    if (node_of == NULL || out == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "gw_nodes_create: no map, or no place for the result");
    }
    if (ranks == 0 || ranks > GW_ROUTE_MAX_RANKS) {
        return GW_FAIL(why, GW_ERR_RANGE, "a map of %u ranks to nodes: 1 to %d", ranks,
                       GW_ROUTE_MAX_RANKS);
    }
    /* columns hold at most one entry a rank */
    gw_nodes *nodes = calloc(1, sizeof *nodes + (5 * (size_t)ranks + 1) * sizeof(uint32_t));
    if (nodes == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for a map of %u ranks to nodes", ranks);
    }
    const lists l = lists_of(nodes, ranks);
    nodes->ranks = ranks;
    nodes->n = number_nodes(node_of, ranks, l.node_of);
    nodes->node_of = l.node_of;
    nodes->place_of = l.place_of;
    nodes->first = l.first;
    nodes->order = l.order;
    nodes->columns = l.columns;
    list_ranks(nodes, &l);
    list_columns(nodes, &l);
    *out = nodes;
    return GW_OK;
}

uint32_t gw_nodes_regular(const gw_nodes *nodes)
{
    if (nodes == NULL || nodes->least != nodes->most) {
        return 0;
    }
    for (uint32_t r = 0; r < nodes->ranks; r++) {
        if (nodes->order[r] != r) {
            return 0;
        }
    }
    return nodes->least;
}

void gw_nodes_destroy(gw_nodes *nodes)
{
    free(nodes);
}
