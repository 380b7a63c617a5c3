/* The grammar as a walk: where a tensor stands on its way, and which steps lead on from there. Check,
 * enumeration, parsing and compilation all take the same walk. */
#ifndef GW_ROUTE_GRAMMAR_H
#define GW_ROUTE_GRAMMAR_H

#include <gradwire/route.h>

/* Between two collectives. An encode may stand at any place but the last, so it names an encode point. */
typedef enum gw_place {
    GW_PLACE_START,        /* everyone has all of its own */
    GW_PLACE_FLAT_SECOND,  /* first flat collective done */
    GW_PLACE_INTER_FIRST,  /* summed or collected inside the nodes */
    GW_PLACE_INTER_SECOND, /* and, by a divisible scheme, between them */
    GW_PLACE_INTRA_SECOND, /* every node has all, in pieces or at its root */
    GW_PLACE_ARRIVED
} gw_place;

/* How a divisible scheme divides: among all members, or all to the root. */
typedef enum gw_pair { GW_PAIR_NONE = 0, GW_PAIR_SCATTER = 1, GW_PAIR_ROOT = 2 } gw_pair;

typedef struct gw_walk {
    gw_place place;
    int coded;            /* the operand is payloads */
    int fresh;            /* the last step was an encode */
    int additive;         /* payloads are summed as they are */
    uint8_t device;       /* additive: of its encode */
    gw_pair outer, inner; /* of the flat or intra collectives, of the inter ones */
} gw_walk;

/* Takes the step and returns 1, or stays and returns 0. A walk begins zeroed. `part` may be NULL. */
int gw_walk_take(gw_walk *walk, gw_route_step step, gw_part *part);
/* Whether a route may end here. */
int gw_walk_is_over(const gw_walk *walk);

/* Names by value; NULL for none. */
const char *gw_op_name(unsigned op);
const char *gw_level_name(unsigned level);
const char *gw_device_name(unsigned device);

static inline int gw_is_coding(unsigned op)
{
    return op == GW_OP_ENCODE || op == GW_OP_DECODE;
}

#endif
