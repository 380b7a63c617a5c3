/* What a test may tell the fake NCCL, besides the calls of NCCL's and the driver's that it exports. It is found with dlsym:
 * the library is the one that gw_nccl_open loads. */
#ifndef GW_TESTS_COMM_FAKE_NCCL_H
#define GW_TESTS_COMM_FAKE_NCCL_H

#include <stddef.h>

#define FAKE_API __attribute__((visibility("default")))

FAKE_API extern int fake_nccl_version;   /* what ncclGetVersion says */
FAKE_API extern int fake_nccl_fail_next; /* if not 0, the next ncclGroupEnd returns it */
FAKE_API int fake_nccl_live(void);       /* objects that nobody has destroyed */
FAKE_API void fake_nccl_hold(void *stream, int yes); /* 1: nothing of the stream happens */
/* For memory that only CUDA may touch, and streams that are CUDA's. If not NULL: copies are made by the first; the second
 * returns when all that a stream was given is done. */
FAKE_API extern void (*fake_nccl_copy)(void *to, const void *from, size_t bytes);
FAKE_API extern void (*fake_nccl_settle)(void *stream);
FAKE_API int fake_nccl_followed(void); /* how often a stream of the fake's followed one of CUDA's */

#endif
