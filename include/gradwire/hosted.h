/* Bytes between ranks, carried by a host framework (torch.distributed): every operation becomes messages, which the
 * host takes, sends and receives, and reports as done. The library never calls the host, so that no lock of the
 * host's (an interpreter's, say) is ever waited for, and nothing waits inside a callback.
 *
 *     gw_hosted_create, a thread that loops over gw_hosted_take, then gw_step_create with gw_hosted_comm
 *
 * take is called by one thread of the host's, done by any. */
#ifndef GRADWIRE_HOSTED_H
#define GRADWIRE_HOSTED_H

#include "gradwire/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_hosted gw_hosted;

typedef struct gw_hosted_message {
    uint32_t peer;     /* rank of the whole group */
    uint32_t incoming; /* 1: to be received */
    void *data;
    size_t bytes; /* never 0 */
} gw_hosted_message;

/* One operation's messages. All are to be begun before any is waited for. Messages between two ranks with the same
 * tag arrive in the order in which they were taken; those with different tags in any. */
typedef struct gw_hosted_work {
    void *id;
    uint32_t tag; /* at most two operations of a tag are under way, where a step posts */
    uint32_t n_messages;
    const gw_hosted_message *messages; /* until done is called */
} gw_hosted_work;

GW_API gw_status gw_hosted_create(uint32_t rank, uint32_t ranks, gw_hosted **out, gw_why *why);
/* All ranks. Split it as any other; closing it does nothing. */
GW_API gw_comm *gw_hosted_comm(gw_hosted *hosted);

/* The next operation, in the order of posts; blocks until there is one. GW_ERR_STATE: gw_hosted_stop was called.
 * GW_ERR_PEER, once, also after gw_hosted_stop: this rank has given up, and `why` is what the host should tell the
 * others, if it can. */
GW_API gw_status gw_hosted_take(gw_hosted *hosted, gw_hosted_work *work, gw_why *why);
/* All messages of an operation are through, or one failed: `text`, which may be NULL, then says which and why. The
 * first failure is that of the whole group. */
GW_API gw_status gw_hosted_done(gw_hosted *hosted, void *id, gw_status status, const char *text);
/* Operations that the host has been given and has not reported. Their memory must stay. */
GW_API uint32_t gw_hosted_under_way(gw_hosted *hosted);
/* The calling thread, and threads that it starts from now on, carry messages: where there are more threads than cores
 * they get their turn as soon as they wake. A wish; 0: as usual again. */
GW_API void gw_hosted_hurry(int hurry);
/* take returns from now on; posts fail. */
GW_API void gw_hosted_stop(gw_hosted *hosted);
/* After everything split from it is closed; accepts NULL. GW_ERR_STATE: something is under way, nothing was freed. */
GW_API gw_status gw_hosted_destroy(gw_hosted *hosted);

#ifdef __cplusplus
}
#endif
#endif
