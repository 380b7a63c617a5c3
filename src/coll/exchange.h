/* An exchange, seen from inside. exchange.c walks the moves; the operation of each move is in bundle.c (payloads are coded),
 * bundle_send.c (and sent), dense.c (numbers are sent and summed) or additive.c (routes that sum payloads). exchange_create.c chooses
 * them, slots.c has what outlives an exchange. What belongs to devices alone is in device_exchange.h. */
#ifndef GW_COLL_EXCHANGE_H
#define GW_COLL_EXCHANGE_H

#include "base/arena.h"
#include "base/convert.h"
#include "base/why.h"

#include <gradwire/coll.h>
#include <gradwire/rounds.h>

/* Behind every payload on its way: its hash. */
enum { GW_SEAL_BYTES = 8 };
#define GW_NO_SLOT UINT64_MAX

/* Payloads in a buffer. Entry piece · payloads + i is payload i of a piece; sizes include the seal and are
 * 0 for an empty piece. */
typedef struct gw_bundle {
    uint8_t *bytes;
    size_t *at, *size;
    uint32_t pieces, payloads;
    int packed; /* entries lie one behind the other, in order */
} gw_bundle;

/* Sizes and places of a collective's messages, one of each a member. */
typedef struct gw_messages {
    size_t *send_size, *send_at, *size, *at;
} gw_messages;

/* Two seals a member of a collective of numbers: of what it sends to be summed, and of what it sends as a result. 0: it
 * sends none. */
enum { GW_SEAL_PARTS, GW_SEAL_RESULT, GW_SEALS };
/* Numbers that are hashed, summed and looked at together: they stay in the first-level cache. Seals depend on it. */
enum { GW_SEAL_BLOCK = 2048 };

typedef struct gw_seals {
    uint64_t *sent, *received, *found; /* found: in what arrived. Entry GW_SEALS · member + which */
    size_t *sizes;                     /* room for the lists of a message */
    uint64_t key;
    gw_request request; /* under way next to the exchange's own */
} gw_seals;

/* Carries out the move under way, or one phase of it. *done when all of it is; else it has posted a request, or given work to a
 * device, and is called again when that has ended. */
typedef gw_status gw_operation(gw_exchange *x, const gw_move *m, int *done, gw_why *why);

/* Where the messages of a move lie: in the host's memory, or in a device's (device_resident.c). */
typedef struct gw_memory {
    int device; /* messages there have no seals here, and no lengths are sent */
    gw_comm *(*comm)(const gw_lane *lane, uint32_t level); /* NULL: the lane has none */
    /* Before every post; NULL: nothing. */
    gw_status (*turn)(gw_exchange *x, gw_why *why);
    /* Bytes of an entry whose payload has up to `bound`. */
    size_t (*entry_bytes)(const gw_exchange *x, size_t bound);
    gw_status (*copy)(gw_exchange *x, void *to, const void *from, size_t bytes, gw_why *why);
    /* The members' numbers in x->next and this rank's own become their sum over the divisor. */
    gw_status (*sum)(gw_exchange *x, const gw_move *m, gw_range piece, uint32_t divisor,
                     gw_why *why);
} gw_memory;
extern const gw_memory gw_memory_host;

/* What stands around the moves, by where the values lie: on the host, or in a device's memory (device_values.c). An entry that is
 * NULL does nothing. */
typedef struct gw_place_table {
    /* Its part of the two workspaces, of the host's and of the device's memory. */
    void (*cut)(gw_arena *here, gw_arena *there, gw_exchange *x);
    /* Behind everything else that begins an exchange. */
    gw_status (*begin)(gw_exchange *x, void *values, gw_why *why);
    /* *ready: what was under way there has ended, and the move, or the end, can go on. */
    gw_status (*before)(gw_exchange *x, int *ready, int *moved, gw_why *why);
    /* All moves are done: the result is divided and looked at, and goes where the values were. */
    gw_status (*end)(gw_exchange *x, int *done, int *moved, gw_why *why);
    void (*commit)(gw_exchange *x);
} gw_place_table;

extern const gw_place_table gw_place_host;

struct gw_exchange {
    gw_exchange_config config;
    gw_program program;
    const gw_convert *convert;
    gw_dtype dtype; /* of the values, and of numbers that are sent */
    size_t width;   /* its bytes */
    size_t bundle_bytes, bundle_entries, codec_bytes, numbers_bytes, rounds_bytes;
    uint32_t most_members;
    int fixed_size;
    int sealed_below;  /* all groups of the run have GW_COMM_SEALED: no seals here */
    size_t seal_bytes; /* behind every payload */
    uint64_t slot[GW_ROUTE_MAX_STEPS]; /* of the store, by move; GW_NO_SLOT: none */
    uint32_t point[GW_ROUTE_MAX_STEPS];
    gw_range range[GW_ROUTE_MAX_STEPS]; /* of each slot */
    /* what a codec with rounds remembers: in the store, or without one in memory of its own */
    uint64_t state_slot;
    float *own_state;
    const float *state;
    float *state_after;
    /* what such a codec leaves due of the residual in the store; NULL: it completes it */
    float *due, *due_after;
    int owes; /* `due` counts */

    /* chosen when it was created: by where the values lie, and of each move */
    const gw_place_table *place;
    gw_operation *operation[GW_ROUTE_MAX_STEPS];
    const gw_memory *memory[GW_ROUTE_MAX_STEPS]; /* where its messages lie */
    int keeps;                                   /* a residual, at least one */
    int rounds; /* of sums: the codec has them, and the route is additive */
    int hashes; /* the result is hashed here, for config.hashed */

    /* the run */
    gw_lane lane;
    gw_stream stream;
    void *values; /* of a device's exchange: the host's copy, as large as its moves need it */
    uint32_t move, phase, round;
    int running, under_way; /* the move has begun */
    int again;              /* another round follows: the walk goes back to move 1 */
    gw_request request;
    gw_comm *comm;          /* of `request` */
    gw_bundle bundle, next; /* what the rank holds, and where a collective leaves it */
    uint64_t hash_key;      /* of the result */
    uint64_t *lengths;      /* of payloads, each with its seal: own, then received */
    gw_messages messages;
    gw_seals seals;
    gw_payload *payloads; /* of one piece */
    int divided, looked;  /* the result was divided; was looked at for NaN and infinity too */
    int hashed;           /* config.hashed, and its hash is complete */
    gw_range seen;        /* of a divided result: the part that was looked at … */
    int seen_bad;         /* … and has one of these */
    uint8_t *base;        /* of dense operands: the tensor, or an additive payload's numbers */
    uint64_t base_first;
    float *numbers; /* additive routes */
    gw_workspace codec_workspace, rounds_workspace;
    const float *residual[GW_ROUTE_MAX_STEPS];
    float *residual_after[GW_ROUTE_MAX_STEPS]; /* of moves that a device codes, both are there */
    gw_exchange_stats stats;
    struct gw_there *there; /* device_exchange.h; NULL: the values lie on the host */
    struct gw_staying *stay;
};

/* x->comm for the move under way, before every post. */
gw_status gw_exchange_turn_to_comm(gw_exchange *x, gw_why *why);
/* Cuts the workspace, or measures it. */
void gw_exchange_cut(gw_arena *arena, gw_arena *there, gw_exchange *x);
/* Notes that the move under way has begun. */
void gw_exchange_begin_move(gw_exchange *x);
/* All moves are done: the result, on the host, is divided, looked at and hashed, as far as no move has done so. *moved: something was
 * left to do, which finish does. */
void gw_exchange_complete(gw_exchange *x, int *moved);
void gw_exchange_finish(gw_exchange *x);

/* Bytes sent to member `member` of the move's group are counted. */
void gw_exchange_count_sent(gw_exchange *x, const gw_move *m, uint32_t member, size_t bytes);

static inline int gw_exchange_is_additive(const gw_exchange *x)
{
    return x->program.kind == GW_ROUTE_ADDITIVE;
}

/* The route for this rank; `numbers` of an additive one, 0: as many as a payload has. */
gw_status gw_exchange_compile(gw_exchange *x, uint64_t numbers, gw_why *why);

uint32_t gw_exchange_divisor(const gw_exchange *x);
/* Behind the move under way none runs on this rank. */
int gw_exchange_at_last(const gw_exchange *x);
/* The divisor, if the move under way is the last and leaves the result; else 1. */
uint32_t gw_exchange_last_divisor(const gw_exchange *x);

/* The operations of moves on the host. Codes of compressed routes, of additive ones, and of those with rounds; collectives of
 * payloads and of numbers. When a request of a collective is done, x->phase is one higher. */
gw_operation gw_bundle_encode, gw_bundle_decode, gw_additive_encode, gw_additive_decode,
    gw_additive_encode_round, gw_additive_decode_round, gw_bundle_collective, gw_dense_collective;
/* The sum of gw_memory_host. */
gw_status gw_dense_sum(gw_exchange *x, const gw_move *m, gw_range piece, uint32_t divisor,
                       gw_why *why);

/* Seals of numbers, move by move: begin, then post next to the move's last message, and check when all has arrived. */
void gw_seals_begin(gw_exchange *x, const gw_move *m);
gw_status gw_seals_post(gw_exchange *x, const gw_move *m, gw_why *why);
gw_status gw_seals_check(const gw_exchange *x, const gw_move *m, gw_why *why);
/* `n` fp32 numbers over the divisor become numbers of a result at `to`, each rounded once to x->dtype. 1: one is not finite there.
 * `from` may be `to`; of 16-bit numbers it is overwritten. */
int gw_exchange_round(const gw_exchange *x, void *to, float *from, size_t n, uint32_t divisor);
/* 1: one of `n` numbers of x->dtype is not finite. */
int gw_exchange_any_bad(const gw_exchange *x, const void *numbers, size_t n);
/* A seal begins with the key; every block of GW_SEAL_BLOCK numbers is added to it, the last one may be shorter. Groups
 * that seal by themselves need no seals here. */
void gw_seal_block(const gw_exchange *x, uint64_t *seal, const void *numbers, size_t n);
uint64_t gw_seal_of(const gw_exchange *x, const void *numbers, uint64_t count);
/* The same for numbers of a result. They are also hashed for config.hashed. */
void gw_seal_result(const gw_exchange *x, uint64_t *seal, const void *numbers, size_t n);

void gw_exchange_hash_block(gw_exchange *x, uint64_t place, const void *numbers, size_t n);
/* Of the seals that all ranks have of a divided sum: nothing is hashed twice. */
void gw_seals_hash(gw_exchange *x, const gw_move *m);

/* Slots of residuals and of the codec's state: those of config.before that fit, else new ones. */
gw_status gw_exchange_add_slots(gw_exchange *x, gw_why *why);
/* An encoding is open at every one of them, from begin to commit or rollback. */
gw_status gw_slots_begin(gw_exchange *x, gw_why *why);
gw_status gw_slots_commit(gw_exchange *x, gw_why *why);
void gw_slots_rollback(gw_exchange *x);
gw_status gw_exchange_add_state(gw_exchange *x, size_t floats, gw_why *why);

/* The residual of a codec with rounds stays in the store, but for what the last exchange left due; and what the codec remembers. */
gw_status gw_additive_keep(gw_exchange *x, gw_why *why);
gw_status gw_additive_begin(gw_exchange *x, gw_why *why);
gw_status gw_additive_commit(gw_exchange *x, gw_why *why);
void gw_additive_rollback(gw_exchange *x);
void gw_additive_free(gw_exchange *x);
/* The payloads of a piece whose seals are right, in x->payloads. */
gw_status gw_bundle_open(gw_exchange *x, uint32_t piece, gw_why *why);
/* Behind a payload at x->bundle's entry, whose size is still without it. */
void gw_bundle_seal(gw_exchange *x, uint32_t entry);
/* A length on its way is a number and its seal. Those of the bundle's entries, if this rank holds one; and that of an entry which
 * `member` will send: *bytes is the most that it may be, then what it is. */
enum { GW_LENGTH = 2 };
void gw_bundle_put_lengths(gw_exchange *x, int holds);
gw_status gw_bundle_take_length(const gw_exchange *x, uint32_t member, size_t entry, size_t *bytes,
                                gw_why *why);
/* The seal of a payload, or of a length. */
uint64_t gw_bundle_seal_of(const gw_exchange *x, const uint8_t *payload, size_t bytes);
/* The bundle that a coding step leaves, its entries still to be written: one payload a piece, one behind the other. */
gw_bundle *gw_bundle_begin(gw_exchange *x, const gw_move *m);
/* Most bytes of an entry of the bundle's piece `index`, seal included; 0 for an empty piece. */
size_t gw_bundle_entry_bytes(const gw_exchange *x, const gw_operand *operand, uint32_t index);

#endif
