/* One tensor along one route: a small machine that encodes, posts, tests and decodes, and never blocks.
 * Every route runs through this one. step.h runs many of them; most callers want that. */
#ifndef GRADWIRE_COLL_H
#define GRADWIRE_COLL_H

#include "gradwire/comm.h"
#include "gradwire/cuda.h"
#include "gradwire/feedback.h"
#include "gradwire/route.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The groups of one rank. Exchanges on the same lane run one after the other, in the same order on all
 * ranks; those on different lanes overlap. */
typedef struct gw_lane {
    gw_comm *flat, *intra, *inter; /* the last two may be NULL for flat routes */
    /* of exchanges in a device's memory: its own stream, two events, and device memory, aligned to 256 */
    void *stream, *begun, *ended;
    gw_workspace there;
    /* of exchanges with config.device_comm: groups with GW_COMM_DEVICE, which lanes may share, and two events a move */
    gw_comm *device_flat, *device_intra, *device_inter;
    void *marks[2 * GW_ROUTE_MAX_STEPS];
    /* Asked before an exchange posts on a device's group, until it says yes; NULL: always. `post`: the how many-th
     * of the exchange, from 0. Ranks must post on such groups in one order. */
    int (*may_post)(void *owner, uint32_t post);
    void *owner;
    /* of exchanges with config.hashed in a device's memory: one sum a tensor, which an exchange adds its hash to */
    uint64_t *hashes;
} gw_lane;

typedef struct gw_exchange gw_exchange;

typedef struct gw_exchange_config {
    gw_route route;
    gw_params params; /* of a route that encodes nothing: not looked at */
    uint32_t ranks, ranks_per_node, rank;
    const gw_nodes *nodes;    /* as in gw_route_job; must outlive the exchange */
    uint64_t first, elements; /* of the tensor; `first` is a multiple of the codec's grain */
    /* Of the values: 0 or GW_F32, or on uncompressed routes GW_F16 or GW_BF16. Such numbers are sent in 16 bits. A sum of
     * them is made in fp32 and rounded once; the first sum of a route divides. */
    gw_dtype dtype;
    gw_exec exec;     /* its workspace is not looked at: begin brings one */
    uint32_t divisor; /* the sum is divided by this in the end; 0 is 1 */
    /* Where residuals are kept, for codecs that want feedback; NULL: nothing is fed back. `piece` tells
     * apart the exchanges of one tensor that is cut (`first`). */
    gw_feedback *store;
    uint32_t store_tensor, piece;
    /* 1: half the route, as far as where every member of the flat group has the sum of its own piece */
    int sharded;
    /* Where the values lie. In a device's memory, steps @gpu code there and their residuals stay there; for all else, sums
     * of numbers and steps @cpu, values come to the host and go back. Bits are the same, but for the products of codecs with
     * rounds.h, which are near. More than GW_CUDA_MAX_PAYLOADS payloads are done as if @cpu:
     * gw_exchange_stats.coded_on says so. */
    gw_cuda_place place;
    /* 1, with a place: the lane has groups of a device's memory. Sums of numbers are then made on the device, and payloads
     * that are encoded and decoded there stay there; messages of all else are the host's. On all ranks alike. */
    int device_comm;
    /* 1: the exchange hashes its result while it writes it. Ranks with the same result get the same hash. Not with
     * `sharded`. */
    int hashed;
    /* NULL, or the exchange of the same tensor and piece whose place this one takes: residuals of the same encode
     * points and elements stay where they are, and what the codecs' states have in common goes on. It can only be
     * destroyed from then on, with `retire`. */
    gw_exchange *before;
} gw_exchange_config;

/* What the last exchange did. */
typedef struct gw_exchange_stats {
    double encode_seconds, decode_seconds; /* decode: sums of numbers too */
    uint64_t bytes_sent[GW_LINKS];         /* to other ranks, by link; seals and lengths included */
    uint64_t payload_bytes;                /* of this rank's own encodings */
    gw_report report;                      /* of this rank's own encodings */
    int finite;          /* 1: all of the result is, which every rank sees alike */
    uint32_t coded_on;   /* gw_device: where this rank encoded and decoded */
    double copy_seconds; /* values between host and device; payloads count as coding */
    /* When each move of the route began and ended on this rank, by a clock that only goes on (CLOCK_MONOTONIC);
     * of moves that are repeated (rounds.h) the last time; 0: this rank has no part in it. */
    double began[GW_ROUTE_MAX_STEPS], ended[GW_ROUTE_MAX_STEPS];
    uint64_t
        hash; /* of the result, with config.hashed; 0 in a device's memory: see gw_lane.hashes */
} gw_exchange_stats;

GW_API gw_status gw_exchange_create(const gw_exchange_config *config, gw_exchange **out,
                                    gw_why *why);
/* Residuals stay in the store, retired if `retire`: they are handed over with the next gradient. */
GW_API void gw_exchange_destroy(gw_exchange *exchange, int retire);
GW_API size_t gw_exchange_workspace(const gw_exchange *exchange); /* bytes; pinned for a device */
GW_API size_t gw_exchange_workspace_there(const gw_exchange *exchange); /* of a device's memory */
/* Most bytes that one of its collectives sends, counting once what goes to several, or receives. */
GW_API size_t gw_exchange_most_bytes(const gw_exchange *exchange);
GW_API const gw_program *gw_exchange_program(const gw_exchange *exchange);
/* What the first encode point holds, and of which elements; NULL: no residual. Valid until the next commit. */
GW_API const float *gw_exchange_residual(const gw_exchange *exchange, gw_range *range);

/* Of a device's exchange that is done, where the result also lies on the host; NULL: nowhere. */
GW_API const void *gw_exchange_values_here(const gw_exchange *exchange);

/* `values`: element `first` and on, of config.dtype, where config.place says; they become the sum over all ranks, over the divisor. `stream`: seed, step and tensor.
 * Lane, workspace and values are the exchange's until it is done and committed or rolled back. On a device it begins
 * behind what the lane's stream was given, and when it is done so is all work on the device. */
GW_API gw_status gw_exchange_begin(gw_exchange *exchange, const gw_lane *lane, void *values,
                                   const gw_stream *stream, gw_workspace workspace, gw_why *why);
/* Goes on as far as one piece of work; *done when the sum is there, *moved if anything happened. After a
 * failure `values` may be half written, and the exchange can only be rolled back. */
GW_API gw_status gw_exchange_progress(gw_exchange *exchange, int *done, int *moved, gw_why *why);
/* How many operations it has posted on groups of a device's, and how many there are. */
GW_API uint32_t gw_exchange_posted(const gw_exchange *exchange, uint32_t *of);
/* What it waits for, for messages: "operation 7 (alltoallv): not received from rank 2"; "" for nothing. */
GW_API void gw_exchange_waits_for(const gw_exchange *exchange, char *text, size_t size);
/* Where it stands, for messages: "flat:alltoall, step 2 of 6". */
GW_API void gw_exchange_where(const gw_exchange *exchange, char *text, size_t size);
/* Residuals and codec state of this exchange count from now on, or are what they were. */
GW_API gw_status gw_exchange_commit(gw_exchange *exchange, gw_why *why);
GW_API gw_status gw_exchange_rollback(gw_exchange *exchange, gw_why *why);
GW_API const gw_exchange_stats *gw_exchange_stats_of(const gw_exchange *exchange);

#ifdef __cplusplus
}
#endif
#endif
