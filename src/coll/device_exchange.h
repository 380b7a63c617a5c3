/* An exchange whose values lie in a device's memory: device_values.c has its place and codes there, device_rounds.c makes rounds of
 * sums there, device_resident.c has payloads and sums that stay there too. None of it is on the way of values on the host. */
#ifndef GW_COLL_DEVICE_EXCHANGE_H
#define GW_COLL_DEVICE_EXCHANGE_H

#include "coll/exchange.h"

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

/* What an exchange has in a device's memory, and what it needs to work there. */
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

/* ---- values in a device's memory ---- */

/* Makes room for the two structs above; then chooses the place, and the operations of moves that the device codes. */
gw_status gw_there_open(gw_exchange *x, gw_why *why);
void gw_there_choose(gw_exchange *x);
/* Which moves the device codes, and how much memory they take. */
gw_status gw_there_measure(gw_exchange *x, gw_why *why);
/* Residuals of moves that the device codes go there, others come here. */
gw_status gw_there_keep(gw_exchange *x, gw_why *why);
void gw_there_free(gw_exchange *x);
gw_feedback_keeper gw_there_keeper(gw_kept *k);
/* One phase of a move that the device codes: *done, or it waits and goes on with the next phase. */
gw_operation gw_there_encode, gw_there_decode;
/* The divisor of a decode on the device. Notes what becomes of the result. */
uint32_t gw_there_divisor(gw_exchange *x);
/* The hash of the result, for config.hashed: launched, not waited for. */
gw_status gw_there_hash(gw_exchange *x, gw_why *why);

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
    return x->there->codes[move] || x->stay->move[move];
}

/* Rounds of sums: the same, of the codec's numbers. */
int gw_there_can_round(const gw_exchange *x);
gw_status gw_there_measure_rounds(gw_exchange *x, gw_why *why);
gw_status gw_there_keep_state(gw_exchange *x, gw_why *why);
gw_operation gw_there_encode_rounds, gw_there_decode_rounds;

/* ---- payloads and sums that stay there, with config.device_comm ---- */

extern const gw_memory gw_memory_resident;

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
gw_operation gw_stay_encode, gw_stay_decode;
/* Bytes of an entry whose payload has up to `bound`. */
size_t gw_stay_entry_bytes(size_t bound);
/* Divides what was not divided and looks at it. */
gw_status gw_stay_finish(gw_exchange *x, gw_why *why);
/* What happened to come here: *done when it was, or nothing was to. */
gw_status gw_resident_fetch(gw_exchange *x, int *done, gw_why *why);

#endif
