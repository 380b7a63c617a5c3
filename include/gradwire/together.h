/* Several users of one group whose operations are carried as one: each has a comm of its own, and what they send to a peer goes in one
 * message. A message costs the engine and the processor the same whatever it holds. */
#ifndef GRADWIRE_TOGETHER_H
#define GRADWIRE_TOGETHER_H

#include "gradwire/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_together gw_together;

/* On all ranks of `over` with the same number of users, who make the same operations in the same order on each. `bytes`: most that all
 * of them send, or receive, by one operation each. */
GW_API gw_status gw_together_create(gw_comm *over, uint32_t users, size_t bytes, gw_together **out,
                                    gw_why *why);
GW_API void gw_together_destroy(gw_together *together); /* accepts NULL */

/* All users are at work again. */
GW_API void gw_together_begin(gw_together *together);
/* allgatherv, alltoallv, broadcast and test; nothing else. An operation begins when every user who has not left has posted one. */
GW_API gw_comm *gw_together_comm(gw_together *together, uint32_t user); /* NULL: no such user */
/* Messages sent to a member since the last begin. Each ends with a seal of GW_TOGETHER_SEAL bytes. */
enum { GW_TOGETHER_SEAL = 8 };
GW_API uint32_t gw_together_sent(const gw_together *together, uint32_t member);
/* The user posts no more until the next begin. */
GW_API gw_status gw_together_leave(gw_together *together, uint32_t user, gw_why *why);

#ifdef __cplusplus
}
#endif
#endif
