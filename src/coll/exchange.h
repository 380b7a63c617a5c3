/* An exchange, seen from inside: exchange.c walks the moves, bundle.c ships payloads, dense.c ships and
 * sums numbers, slots.c has what outlives it, device_values.c is for values that lie in a device's memory, device_rounds.c for rounds
 * of such, resident.c for payloads and sums that stay there too. */
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

/* A residual in a device's memory, of one move. What the codec leaves due of it lies beside: piece after piece, `due_step` bytes
 * each; 0: nothing ever is. */
typedef struct gw_kept {
    const gw_exchange *of;
    uint32_t move;
    float *r, *after;
    uint8_t *due, *due_after;
    size_t due_step;
} gw_kept;

/* Of payloads and sums that stay on the device. */
typedef struct gw_staying {
    uint8_t move[GW_ROUTE_MAX_STEPS]; /* by move, the same on all ranks: all of it happens there */
    uint32_t
        first_post[GW_ROUTE_MAX_STEPS + 1]; /* by move: posts on the device's groups before it */
    uint32_t first_result[GW_ROUTE_MAX_STEPS + 1];
    size_t bytes, results;

    /* the run */
    int inside;        /* x->bundle and x->next are the device's … */
    gw_bundle pair[2]; /* … and these the host's; or the other way round */
    uint8_t marked[GW_ROUTE_MAX_STEPS];
    int finished; /* the last result is of gw_stay_finish */
    enum { GW_RESULTS_NONE, GW_RESULTS_DUE, GW_RESULTS_ASKED, GW_RESULTS_TAKEN } state;
    gw_cuda_result *result, *result_here;
    gw_cuda_entry *entries;
} gw_staying;

/* What an exchange has in a device's memory, and what it needs to work there; all zero without one. */
typedef struct gw_there {
    uint8_t codes[GW_ROUTE_MAX_STEPS]; /* by move: the device codes it */
    gw_kept kept[GW_ROUTE_MAX_STEPS];  /* by move, as slots are */
    int rounds;                        /* the device makes and takes them: it codes every move */
    gw_kept state;                     /* then: what the codec remembers */
    size_t pieces, entries, bytes, codec_bytes, mirror_bytes;

    /* the run */
    uint8_t *values;
    int here;      /* the values lie on the host, in x->values; else here */
    int waiting;   /* for the lane's event `ended` … */
    double *clock; /* … after which its time is added to this */
    uint8_t *payloads;
    gw_cuda_result *results, *results_here;
    gw_cuda_source *sources;
    gw_cuda_sink *sinks;
    gw_cuda_payload *lists;
    gw_workspace codec_workspace;
    gw_params as_it_is; /* cast to x->dtype, by which numbers are summed there */
} gw_there;

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

    /* the run */
    gw_lane lane;
    gw_stream stream;
    void *values; /* of a device's exchange: the host's copy, as large as its moves need it */
    uint32_t move, phase, round;
    int running, under_way; /* the move has begun */
    gw_request request;
    gw_comm *comm;          /* of `request` */
    gw_bundle bundle, next; /* what the rank holds, and where a collective leaves it */
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
    gw_there there;
    gw_staying stay;
};

/* The comm of a move's group; NULL if the lane has none. */
static inline gw_comm *gw_exchange_comm(const gw_exchange *x, uint32_t move)
{
    const int level = x->program.move[move].step.level, stays = x->stay.move[move];
    return level == GW_LEVEL_FLAT    ? (stays ? x->lane.device_flat : x->lane.flat)
           : level == GW_LEVEL_INTRA ? (stays ? x->lane.device_intra : x->lane.intra)
                                     : (stays ? x->lane.device_inter : x->lane.inter);
}
/* x->comm for the move under way: what is posted next begins behind what the lane's stream was given. */
gw_status gw_exchange_turn_to_comm(gw_exchange *x, gw_why *why);

/* Bytes sent to member `member` of the move's group are counted. */
void gw_exchange_count_sent(gw_exchange *x, const gw_move *m, uint32_t member, size_t bytes);

static inline int gw_exchange_is_additive(const gw_exchange *x)
{
    return x->program.kind == GW_ROUTE_ADDITIVE;
}

static inline int gw_exchange_has_rounds(const gw_exchange *x)
{
    return gw_exchange_is_additive(x) &&
           (gw_params_flags(&x->config.params) & GW_CODEC_ROUNDS) != 0;
}

/* The route for this rank; `numbers` of an additive one, 0: as many as a payload has. */
gw_status gw_exchange_compile(gw_exchange *x, uint64_t numbers, gw_why *why);

uint32_t gw_exchange_divisor(const gw_exchange *x);
/* Behind the move under way none runs on this rank. */
int gw_exchange_at_last(const gw_exchange *x);
/* The divisor, if the move under way is the last and leaves the result; else 1. */
uint32_t gw_exchange_last_divisor(const gw_exchange *x);

/* Collectives, phase by phase: each either posts x->request, or sets *done. Called again when that request
 * is done, with x->phase one higher. */
gw_status gw_dense_collective(gw_exchange *x, const gw_move *m, int *done, gw_why *why);
gw_status gw_bundle_collective(gw_exchange *x, const gw_move *m, int *done, gw_why *why);

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

/* The hash of the result, for config.hashed: of values on the host. */
static inline int gw_exchange_hashes_here(const gw_exchange *x)
{
    return x->config.hashed && x->config.place.cuda == NULL;
}
uint64_t gw_exchange_hash_key(const gw_exchange *x);
void gw_exchange_hash_block(gw_exchange *x, uint64_t place, const void *numbers, size_t n);
/* The same of a result in a device's memory: launched, not waited for. */
gw_status gw_there_hash(gw_exchange *x, gw_why *why);
/* Of the seals that all ranks have of a divided sum: nothing is hashed twice. */
void gw_seals_hash(gw_exchange *x, const gw_move *m);

/* encode · flat:alltoall · decode, or flat:reduce_scatter: what follows gives the pieces back to all. */
gw_status gw_exchange_halve(gw_program *p, gw_why *why);
/* Slots of residuals and of the codec's state: those of config.before that fit, else new ones. */
gw_status gw_exchange_add_slots(gw_exchange *x, gw_why *why);
gw_status gw_exchange_add_state(gw_exchange *x, size_t floats, gw_why *why);

/* The residual of a codec with rounds stays in the store, but for what the last exchange left due. */
gw_status gw_additive_keep(gw_exchange *x, gw_why *why);
void gw_additive_commit(gw_exchange *x);
void gw_additive_free(gw_exchange *x);
/* encode and decode of an additive route; *again: another round follows */
gw_status gw_additive_encode(gw_exchange *x, const gw_move *m, gw_why *why);
gw_status gw_additive_decode(gw_exchange *x, int *again, gw_why *why);
/* encode and decode of a compressed route */
gw_status gw_bundle_encode(gw_exchange *x, const gw_move *m, gw_why *why);
/* `divisor` is 1 but for the last; what is not finite is noted in x->stats. */
gw_status gw_bundle_decode(gw_exchange *x, const gw_move *m, uint32_t divisor, gw_why *why);
/* The payloads of a piece whose seals are right, in x->payloads. */
gw_status gw_bundle_open(gw_exchange *x, uint32_t piece, gw_why *why);
/* Behind a payload at x->bundle's entry, whose size is still without it. */
void gw_bundle_seal(gw_exchange *x, uint32_t entry);
/* Most bytes of an entry of the bundle's piece `index`, seal included; 0 for an empty piece. */
/* The bundle that a coding step leaves, its entries still to be written: one payload a piece, one behind the other. */
gw_bundle *gw_bundle_begin(gw_exchange *x, const gw_move *m);
size_t gw_bundle_entry_bytes(const gw_exchange *x, const gw_operand *operand, uint32_t index);

/* ---- values in a device's memory: nothing to do without one ---- */

/* Which moves the device codes, and how much memory they take. */
gw_status gw_there_measure(gw_exchange *x, gw_why *why);
/* The parts of the two workspaces that only device work needs. */
void gw_there_cut(gw_arena *here, gw_arena *there, gw_exchange *x);
/* Residuals of moves that the device codes go there, others come here. */
gw_status gw_there_keep(gw_exchange *x, gw_why *why);
void gw_there_free(gw_exchange *x);
gw_feedback_keeper gw_there_keeper(gw_kept *k);
/* r′ is r from now on, and what is due of it with it. */
void gw_there_commit(gw_kept *k);
/* Values go where move `m` wants them; x->there.waiting if they are on their way. */
gw_status gw_there_move(gw_exchange *x, const gw_move *m, gw_why *why);
/* The whole result to the host, or from it; x->there.waiting. */
gw_status gw_there_bring(gw_exchange *x, gw_why *why);
gw_status gw_there_return(gw_exchange *x, gw_why *why);
/* *arrived: what was waited for is done. */
gw_status gw_there_test(gw_exchange *x, int *arrived, gw_why *why);
/* One phase of a move that the device codes: *done, or it waits and goes on with the next phase. */
gw_status gw_there_encode(gw_exchange *x, const gw_move *m, int *done, gw_why *why);
gw_status gw_there_decode(gw_exchange *x, const gw_move *m, uint32_t divisor, int *done,
                          gw_why *why);

/* A piece to encode, and to decode. */
gw_cuda_source gw_there_source(gw_exchange *x, const gw_move *m, gw_range piece, uint32_t index,
                               uint8_t *payload, size_t capacity, gw_cuda_result *result);
gw_cuda_sink gw_there_sink(gw_exchange *x, gw_range piece, uint32_t divisor,
                           const gw_cuda_payload *list, size_t payloads, gw_cuda_result *result);
/* After what was given to the stream since the lane's event `begun`, if that went well: waits, and adds the time to `clock`. */
gw_status gw_there_begin(gw_exchange *x, gw_why *why);
gw_status gw_there_end(gw_exchange *x, gw_status status, double *clock, gw_why *why);
gw_status gw_there_take_report(gw_exchange *x, const gw_cuda_result *result, gw_why *why);
/* The device can code the move with the host's bits, on any rank: rounds are another thing. */
int gw_there_can_code(const gw_exchange *x, const gw_move *m);
/* The move works on values that lie there. */
static inline int gw_there_works(const gw_exchange *x, uint32_t move)
{
    return x->there.codes[move] || x->stay.move[move];
}

/* Rounds of sums: the same, of the codec's numbers. */
int gw_there_can_round(const gw_exchange *x);
gw_status gw_there_measure_rounds(gw_exchange *x, gw_why *why);
gw_status gw_there_keep_state(gw_exchange *x, gw_why *why);
gw_status gw_there_encode_rounds(gw_exchange *x, int *done, gw_why *why);
/* *again: another round follows. */
gw_status gw_there_decode_rounds(gw_exchange *x, uint32_t divisor, int *done, int *again,
                                 gw_why *why);

/* ---- payloads and sums that stay there: nothing to do without config.device_comm ---- */

/* Which moves do, once the route is compiled; and how much memory they take. */
gw_status gw_stay_plan(gw_exchange *x, gw_why *why);
void gw_stay_measure(gw_exchange *x);
void gw_stay_cut(gw_arena *here, gw_arena *there, gw_exchange *x);
gw_status gw_stay_begin(gw_exchange *x, gw_why *why);
/* Bundles and the base of numbers are those that the move under way works on. */
void gw_stay_use(gw_exchange *x);
/* 1: the move under way would post on a device's group, and it is not its turn. */
int gw_stay_must_wait(const gw_exchange *x);
/* Launched, not waited for. */
gw_status gw_stay_encode(gw_exchange *x, const gw_move *m, gw_why *why);
gw_status gw_stay_decode(gw_exchange *x, const gw_move *m, uint32_t divisor, gw_why *why);
/* The members' numbers in x->next and this rank's own become their sum over the divisor. */
gw_status gw_stay_sum(gw_exchange *x, const gw_move *m, gw_range piece, uint32_t divisor,
                      gw_why *why);
gw_status gw_stay_copy(gw_exchange *x, void *to, const void *from, size_t bytes, gw_why *why);
/* Bytes of an entry whose payload has up to `bound`. */
size_t gw_stay_entry_bytes(size_t bound);
/* Divides what was not divided and looks at it. */
gw_status gw_stay_finish(gw_exchange *x, gw_why *why);
/* What happened to come here: *done when it was, or nothing was to. */
gw_status gw_stay_settle(gw_exchange *x, int *done, gw_why *why);

#endif
