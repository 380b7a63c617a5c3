/* Routes: how one tensor goes from "mine" to "the sum over all ranks". A route is a short list of
 * steps, a plain value to copy and compare; planner, simulator, runtime, trace and plan file all use
 * this one. docs/routes.md: the grammar, and what each step does to its operand.
 *
 *     encode@cpu · flat:alltoall · decode@cpu · encode@cpu · flat:allgather · decode@cpu */
#ifndef GRADWIRE_ROUTE_H
#define GRADWIRE_ROUTE_H

#include "gradwire/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Values are pinned and never reused. */
typedef enum gw_op {
    GW_OP_ENCODE = 1,
    GW_OP_DECODE = 2,
    GW_OP_ALLREDUCE = 3,
    GW_OP_REDUCE_SCATTER = 4,
    GW_OP_REDUCE = 5,
    GW_OP_ALLGATHER = 6,
    GW_OP_BROADCAST = 7,
    GW_OP_ALLTOALL = 8,
    GW_OP_GATHER = 9
} gw_op;

/* Who takes part: all ranks, the ranks of a node, or those with the same place in each node. */
typedef enum gw_level { GW_LEVEL_FLAT = 1, GW_LEVEL_INTRA = 2, GW_LEVEL_INTER = 3 } gw_level;

/* Bits: a set of devices is their OR. */
typedef enum gw_device { GW_DEVICE_CPU = 1, GW_DEVICE_GPU = 2 } gw_device;

enum {
    GW_ROUTE_MAX_STEPS = 12,
    GW_ROUTE_MAX_POINTS = 4, /* encode points are numbered 0 … 3 */
    GW_ROUTE_TEXT = 256,     /* bytes that hold any route's text, NUL included */
    GW_ROUTE_MAX_RANKS = 1 << 14
};

typedef struct gw_route_step {
    uint8_t op;     /* gw_op */
    uint8_t level;  /* gw_level of a collective; 0 for encode and decode */
    uint8_t device; /* gw_device of an encode or decode; 0 for a collective */
} gw_route_step;

/* Steps past n_steps are zero, so that equal routes are equal bytes. */
typedef struct gw_route {
    uint8_t n_steps;
    gw_route_step step[GW_ROUTE_MAX_STEPS];
} gw_route;

typedef enum gw_route_kind {
    GW_ROUTE_UNCOMPRESSED = 1, /* no encode at all: 9 of them */
    GW_ROUTE_COMPRESSED = 2,
    GW_ROUTE_ADDITIVE =
        3 /* encode@d · <uncompressed> · decode@d: payloads are summed as they are */
} gw_route_kind;

/* ---- the grammar ---- */

/* GW_OK if it is a route; else `why` names the step and what could stand there. */
GW_API gw_status gw_route_check(const gw_route *route, gw_why *why);
/* Of a route that gw_route_check accepts. */
GW_API gw_route_kind gw_route_kind_of(const gw_route *route);
GW_API int gw_route_is_hierarchical(const gw_route *route);
GW_API uint32_t gw_route_encodes(const gw_route *route); /* lossy hops: 0 … 4 */
GW_API int gw_route_equal(const gw_route *a, const gw_route *b);
GW_API uint64_t gw_route_hash(const gw_route *route); /* the same on every machine */

/* All routes over a set of devices, in a fixed order: uncompressed and compressed ones, or additive ones.
 * With `routes` NULL only counts: 174 with one device, 4341 with two; additive 9 and 18. */
GW_API gw_status gw_route_list(uint32_t devices, int additive, gw_route *routes, size_t capacity,
                               size_t *n, gw_why *why);

/* ---- text ---- */

/* Steps between "·", "," or ".", blanks around them do not matter; or an everyday name: "dense", "sra",
 * "sra@gpu". A name without a device means @cpu. On failure *route is untouched. */
GW_API gw_status gw_route_parse(gw_route *route, const char *text, gw_why *why);
/* The one text form, steps between " · "; `size` includes the final NUL. */
GW_API gw_status gw_route_print(const gw_route *route, char *text, size_t size);
/* One step as its text, "inter:allgather", "encode@cpu"; "?" for what is none. */
enum { GW_ROUTE_STEP_TEXT = 32 };
GW_API void gw_route_step_print(gw_route_step step, char text[GW_ROUTE_STEP_TEXT]);

typedef struct gw_route_name {
    const char *name, *doc;
    const char *steps; /* the text form without devices */
} gw_route_name;
GW_API size_t gw_route_name_count(void);
GW_API const gw_route_name *gw_route_name_at(size_t index); /* NULL past the end */
/* The everyday name, "sra@gpu" or "dense"; GW_ERR_UNKNOWN if this route has none. */
GW_API gw_status gw_route_name_of(const gw_route *route, char *text, size_t size);

/* ---- cutting ---- */

typedef struct gw_range {
    uint64_t first, count;
} gw_range;

/* Piece `index` of `pieces`, at least 1. Borders lie at whole.first plus multiples of `grain`; the first
 * (blocks mod pieces) pieces are one block longer, so that pieces may be empty at the end. */
GW_API gw_range gw_range_cut(gw_range whole, uint64_t grain, uint32_t pieces, uint32_t index);
/* Elements of the pieces that a step exchanges a tensor by, unless it is told: all of it where nothing can be cut (grain 0). */
GW_API uint64_t gw_cut_usual(uint64_t elements, uint64_t grain);
/* Elements of even pieces, whole grains each, of about `size` elements. */
GW_API uint64_t gw_cut_even(uint64_t elements, uint64_t grain, uint64_t size);

/* ---- nodes ---- */

/* Which ranks share a node. Nodes are numbered by their lowest rank; the ranks of a node have places 0, 1, … in rank order. */
typedef struct gw_nodes {
    uint32_t ranks, n;                  /* n: nodes */
    uint32_t least, most;               /* ranks of the smallest node, and of the largest */
    const uint32_t *node_of, *place_of; /* by rank */
    const uint32_t *first,
        *order;              /* node i has the ranks order[first[i]] … order[first[i + 1] - 1] */
    const uint32_t *columns; /* ranks at place p, ascending: columns[p * n] and on, for p < least */
} gw_nodes;
/* `node_of`: any number for each rank, the same for ranks of one node. */
GW_API gw_status gw_nodes_create(const uint32_t *node_of, uint32_t ranks, gw_nodes **out,
                                 gw_why *why);
GW_API void gw_nodes_destroy(gw_nodes *nodes); /* accepts NULL */
/* Ranks of each node, where all have equally many and are numbered node by node; else 0. NULL: 0. */
GW_API uint32_t gw_nodes_regular(const gw_nodes *nodes);
/* Without `nodes`, node i has ranks i · ranks_per_node and on; 0: every rank is a node of its own. */
static inline int gw_same_node(const gw_nodes *nodes, uint32_t ranks_per_node, uint32_t a,
                               uint32_t b)
{
    const uint32_t k = ranks_per_node != 0 ? ranks_per_node : 1;
    return nodes != NULL ? nodes->node_of[a] == nodes->node_of[b] : a / k == b / k;
}

/* Members in the order of every bundle and every sum, which is that of their ranks. Member 0 is the root. */
typedef struct gw_group {
    uint32_t first, stride, size, member; /* member: this rank's own place */
    const uint32_t *ranks;                /* of the members; NULL: first, first + stride, … */
} gw_group;
static inline uint32_t gw_group_rank(const gw_group *group, uint32_t member)
{
    return group->ranks != NULL ? group->ranks[member] : group->first + member * group->stride;
}

/* ---- a route for one rank and one tensor ---- */

typedef enum gw_operand_kind {
    GW_OPERAND_NONE = 0,   /* this rank holds nothing: another one is the root */
    GW_OPERAND_DENSE = 1,  /* elements of the tensor: fp32, or as wide as the job says */
    GW_OPERAND_BUNDLE = 2, /* payloads */
    GW_OPERAND_NUMBERS = 3 /* additive routes: fp32 numbers of a payload */
} gw_operand_kind;

/* A bundle's range is cut into `outer` pieces, each of these into `inner`; of each it has `payloads`
 * payloads, in rank order, which is the order of decode's sum. Empty pieces have none. */
typedef struct gw_operand {
    gw_operand_kind kind;
    gw_range range; /* elements, or numbers */
    uint32_t outer, inner, payloads;
    uint64_t bytes; /* of codecs without GW_CODEC_FIXED_SIZE at most */
} gw_operand;

/* Piece i of a bundle, 0 … outer · inner - 1, in ascending order of elements. */
GW_API gw_range gw_operand_piece(const gw_operand *bundle, uint64_t grain, uint32_t index);

/* What a collective is at its level. */
typedef enum gw_part {
    GW_PART_NONE = 0,  /* encode, decode */
    GW_PART_WHOLE = 1, /* all there is: allreduce, or allgather of everyone's payloads */
    GW_PART_FIRST = 2, /* leaves each member a piece, or the root everything */
    GW_PART_SECOND = 3 /* gives it back to all: allgather or broadcast */
} gw_part;

enum { GW_LINK_INTRA = 0, GW_LINK_INTER = 1, GW_LINKS = 2 };

/* One step on one rank. Several ranks may encode the very same operand (at point 3 every node does): they
 * must do it alike, so they draw the random numbers of `owner`, the lowest of them, and only its residual
 * counts. Elsewhere a rank is its own owner. */
typedef struct gw_move {
    gw_route_step step;
    gw_part part;
    int runs;       /* 0: nothing to do here, for a collective not by any of its group */
    uint32_t point; /* encode: number of the encode point, whose residual covers `before.range` */
    uint32_t owner; /* encode: see above */
    gw_group group; /* collectives */
    uint32_t
        parts; /* collectives: pieces that a range is cut into; members from `parts` on get none */
    gw_operand before, after;
    uint64_t sent[GW_LINKS], received[GW_LINKS]; /* bytes, to and from other ranks */
} gw_move;

typedef struct gw_route_job {
    uint32_t ranks; /* 1 … GW_ROUTE_MAX_RANKS */
    /* Without `nodes`: node n has ranks n · ranks_per_node and on; 0: not known, all other ranks are far. */
    uint32_t ranks_per_node;
    uint32_t rank;
    uint64_t first; /* 0; of a piece of a tensor (pipelining) its place, a multiple of the grain */
    uint64_t elements;
    const gw_params *params; /* not looked at by uncompressed routes */
    uint64_t numbers;        /* additive routes: how many to sum; 0: as many as a payload has */
    uint32_t width; /* uncompressed routes: bytes of a number, 2 or 4; 0 is 4. Others send fp32 */
    const gw_nodes *
        nodes; /* NULL, or of all ranks; must outlive the program. ranks_per_node does not count then */
} gw_route_job;

typedef struct gw_program {
    gw_route route;
    gw_route_kind kind;
    uint32_t ranks, ranks_per_node, rank;
    const gw_nodes *nodes;
    gw_range whole;   /* elements */
    uint64_t grain;   /* of all cuts */
    int piece_points; /* 1: pieces draw by point, not by element (gw_program_stream) */
    uint32_t n_moves;
    gw_move move[GW_ROUTE_MAX_STEPS];
    uint32_t encodes;                            /* lossy hops on the way of every contribution */
    uint64_t sent[GW_LINKS], received[GW_LINKS]; /* sums over the moves */
    uint64_t largest_bundle;                     /* bytes */
} gw_program;

/* Whether the codec may take this route; `params` may be NULL for an uncompressed one. */
GW_API gw_status gw_route_fits(const gw_route *route, const gw_params *params, gw_why *why);
/* GW_ERR_UNSUPPORTED for a hierarchical route without known nodes, and where nodes of different sizes would mix payloads: a
 * route must then decode between its intra and its inter steps. On failure *out is untouched. */
GW_API gw_status gw_route_compile(const gw_route *route, const gw_route_job *job, gw_program *out,
                                  gw_why *why);
/* The route for a codec (NULL: uncompressed) where the user names none. Several nodes, some with several ranks: sums inside a
 * node are uncompressed, and what goes between nodes is compressed once. `device` codes. Of the job only ranks and nodes count. */
GW_API gw_status gw_route_usual(const gw_params *params, const gw_route_job *job, gw_device device,
                                gw_route *out, gw_why *why);
/* The random stream of piece `piece` of an encode move: sets point, rank and first of `stream`, whose
 * seed, step and tensor are the caller's. */
GW_API gw_stream gw_program_stream(const gw_program *program, const gw_move *encode, uint32_t piece,
                                   gw_stream stream);

#ifdef __cplusplus
}
#endif
#endif
