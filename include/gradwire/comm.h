/* Bytes between ranks: a table of functions. Backends fill it in (threads.h, mpi.h, nccl.h); so may a host
 * framework. gradwire composes everything else out of it.
 *
 * Operations are posted and then tested. All ranks of a group post the same ones in the same order; several
 * may be under way. Buffers belong to the operation until it is done, arrays of sizes only during the
 * call. Sizes are in bytes; what one rank sends is what the other says it receives, else both are told
 * (GW_ERR_DISAGREE) or at least neither writes past its buffer. One thread at a time calls a group. */
#ifndef GRADWIRE_COMM_H
#define GRADWIRE_COMM_H

#include "gradwire/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_comm gw_comm;
/* An operation under way; the backend's own. */
typedef void *gw_request;

enum {
    /* Its own allreduce leaves the same bits on all ranks, every time. */
    GW_COMM_SAME_BITS = 1,
    /* Its buffers are a device's. The host can then not read a length without waiting for the device, so none
     * are exchanged first: payloads travel at their cap. */
    GW_COMM_DEVICE = 2,
    /* It notices changed bytes by itself: what arrives is what was sent, or the operation fails. gradwire then leaves
     * its own seals out. The same on all ranks. */
    GW_COMM_SEALED = 4
};

typedef struct gw_comm_table {
    size_t
        size; /* sizeof(gw_comm_table) where it was compiled; members are only ever added at the end */
    uint32_t flags;
    const char *name;

    /* receive[offsets[i] … + sizes[i]) = what member i sent; `bytes` is sizes[own rank]. */
    gw_status (*allgatherv)(gw_comm *comm, const void *send, size_t bytes, void *receive,
                            const size_t *sizes, const size_t *offsets, gw_request *request,
                            gw_why *why);
    /* Piece i of send goes to member i; member i's piece lands at piece i of receive. */
    gw_status (*alltoallv)(gw_comm *comm, const void *send, const size_t *send_sizes,
                           const size_t *send_offsets, void *receive, const size_t *receive_sizes,
                           const size_t *receive_offsets, gw_request *request, gw_why *why);
    gw_status (*broadcast)(gw_comm *comm, void *buffer, size_t bytes, uint32_t root,
                           gw_request *request, gw_why *why);
    gw_status (*barrier)(gw_comm *comm, gw_request *request, gw_why *why);
    /* Never blocks. Done: *done = 1 and the request is gone. On failure it is gone too, and so is the use
     * of the group. */
    gw_status (*test)(gw_comm *comm, gw_request request, int *done, gw_why *why);
    /* Ranks of the same colour form a group, in order of key. Called by all; blocks. */
    gw_status (*split)(gw_comm *comm, uint32_t colour, uint32_t key, gw_comm **out, gw_why *why);
    /* Every member's operations fail from now on (GW_ERR_PEER), with this reason, as far as they can be
     * reached; requests are gone. A backend that cannot reach them ends the job when asked to close. */
    void (*abort)(gw_comm *comm, const char *reason);
    void (*close)(gw_comm *comm);

    /* Optional; NULL: sums are composed of the above, in rank order. Sums fp32 numbers in place. Called only with
     * GW_COMM_SAME_BITS; sums of 16-bit numbers are always composed. */
    gw_status (*allreduce)(gw_comm *comm, float *values, size_t count, gw_request *request,
                           gw_why *why);

    /* Optional: what the operation still waits for, with the ranks as far as they are known: "operation 7 (alltoallv): not
     * received from rank 2". */
    void (*describe)(gw_comm *comm, gw_request request, char *text, size_t size);
    /* Optional: from now on call(with) happens whenever an operation of this group has become done or failed, on any
     * thread, and must not call the group; NULL: no more, and none is under way on return. Without it operations have to
     * be tested again and again. */
    void (*notify)(gw_comm *comm, void (*call)(void *with), void *with);
    /* With GW_COMM_DEVICE, else NULL: operations posted from now on begin only when all that `stream` was given so
     * far is done; the host does not wait. */
    gw_status (*after)(gw_comm *comm, void *stream, gw_why *why);
} gw_comm_table;

/* One rank's end of a group. Backends put more behind it. */
struct gw_comm {
    const gw_comm_table *table;
    uint32_t rank, ranks;
    void *lent; /* gradwire's; NULL at first. Memory that a failed operation may still name */
};

/* Tests until the operation is done: yields at first, then sleeps up to 200 µs at a time. After
 * `timeout_seconds` (0: never) GW_ERR_TIMEOUT, with what it waited for in words; the operation is then still
 * under way, and the caller aborts the group. */
GW_API gw_status gw_comm_wait(gw_comm *comm, gw_request request, double timeout_seconds,
                              gw_why *why);

/* What the operation still waits for, by the group's `describe`; "an operation" if it has none. `text` is at least 1 byte
 * long; GW_DESCRIBED are enough. */
enum { GW_DESCRIBED = 200 };
GW_API void gw_comm_describe(gw_comm *comm, gw_request request, char *text, size_t size);

/* Every rank's `bytes` at `all`, in rank order. Called by all ranks; blocks, as gw_comm_wait does. Messages are
 * sealed: a changed byte is GW_ERR_CHECKSUM, with the rank whose message it was. Not for groups of a device's
 * memory. */
GW_API gw_status gw_comm_gather(gw_comm *comm, const void *own, size_t bytes, void *all,
                                double timeout_seconds, gw_why *why);
/* For a backend's close, once no operation can touch memory any more: frees what gw_comm_gather left with operations that
 * failed. Accepts NULL. */
GW_API void gw_comm_let_go(gw_comm *comm);
/* gw_comm_gather in two halves, without an allocation. `room` holds gw_gather_room bytes, is aligned for a size_t, and
 * belongs to the operation until it is done (gw_comm_wait) and gw_gather_take has read it. */
GW_API size_t gw_gather_room(const gw_comm *comm, size_t bytes);
GW_API gw_status gw_gather_post(gw_comm *comm, const void *own, size_t bytes, void *room,
                                gw_request *request, gw_why *why);
GW_API gw_status gw_gather_take(const gw_comm *comm, const void *room, size_t bytes, void *all,
                                gw_why *why);
/* The root's `bytes` on every rank, sealed. Called by all ranks with the same root and bytes; blocks. */
GW_API gw_status gw_comm_share(gw_comm *comm, void *bytes, size_t size, uint32_t root,
                               double timeout_seconds, gw_why *why);

/* Which ranks share a node. All ranks call it. `node`: this rank's node by name; NULL: found out, by boot id and network
 * namespace. node_of[r] becomes the lowest rank on the node of rank r; it has room for all ranks. */
GW_API gw_status gw_comm_nodes(gw_comm *comm, const char *node, double timeout, uint32_t *node_of,
                               gw_why *why);

#ifdef __cplusplus
}
#endif
#endif
