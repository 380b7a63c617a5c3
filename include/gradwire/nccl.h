/* Ranks with a CUDA device each, joined by NCCL: the table of comm.h with device memory for buffers.
 *
 * The core links neither NCCL nor CUDA. gw_nccl_open loads libnccl and the CUDA driver at run time; that one is not
 * there, or too old, is an error with a name. What NCCL can and cannot do of comm.h's contract: docs/comm.md. */
#ifndef GRADWIRE_NCCL_H
#define GRADWIRE_NCCL_H

#include "gradwire/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The loaded libraries. Immutable: any thread may use it. */
typedef struct gw_nccl gw_nccl;

/* Files of NCCL (2.18 or later) and of the CUDA driver, or NULL for libnccl.so.2 and libcuda.so.1 where the system looks
 * for libraries. GW_ERR_UNSUPPORTED: there is none, or no device; GW_ERR_VERSION: too old, or not what it should be. */
GW_API gw_status gw_nccl_open(const char *nccl_path, const char *cuda_path, gw_nccl **out,
                              gw_why *why);
/* After all groups are closed; accepts NULL. */
GW_API void gw_nccl_close(gw_nccl *nccl);
GW_API int gw_nccl_version(const gw_nccl *nccl); /* as NCCL counts: 22705 is 2.27.5 */

/* A group of the same ranks as `host`, on the device that is current on the calling thread; called by all of `host`. Blocks
 * until all are joined, at most `timeout_seconds` (0: any time), and so does split of it. `host` carries what NCCL must be
 * told once, and is not kept. Groups that were split from each other are called by one thread at a time. */
GW_API gw_status gw_nccl_create(const gw_nccl *nccl, gw_comm *host, double timeout_seconds,
                                gw_comm **out, gw_why *why);
/* Operations that are posted from now on begin only when all that `stream` (a cudaStream_t) was given so far is
 * done; the host does not wait. Without it, what is sent must be there when it is posted. */
GW_API gw_status gw_nccl_after(gw_comm *comm, void *stream, gw_why *why);

#ifdef __cplusplus
}
#endif
#endif
