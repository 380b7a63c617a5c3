/* As much of NCCL's and of the CUDA driver's interface as is called here, in words of our own: neither's headers are
 * needed to build. Both keep their binary interface within a major version. */
#ifndef GW_COMM_NCCL_CALLS_H
#define GW_COMM_NCCL_CALLS_H

#include <stddef.h>

enum {
    GW_NCCL_OLDEST = 21800, /* ncclCommSplit */
    GW_NCCL_FLOAT32 = 7,    /* ncclDataType_t */
    GW_NCCL_UINT8 = 1,
    GW_NCCL_SUM = 0, /* ncclRedOp_t */
    GW_NCCL_IN_PROGRESS = 7,
    GW_CUDA_NOT_READY = 600,
    GW_CUDA_STREAM_NON_BLOCKING = 1,
    GW_CUDA_EVENT_NO_TIMES = 2
};

typedef struct gw_nccl_id {
    char bytes[128];
} gw_nccl_id;

/* The head of ncclConfig_t: NCCL reads `size` bytes and takes the rest, and what is newer than `version`, as not set. */
typedef struct gw_nccl_settings {
    size_t size;
    unsigned magic, version;
    int blocking;
} gw_nccl_settings;
#define GW_NCCL_NON_BLOCKING                                                                       \
    {                                                                                              \
        sizeof(gw_nccl_settings), 0xcafebeefu, 21400, 0                                            \
    }

typedef void *gw_nccl_group;  /* ncclComm_t */
typedef void *gw_cuda_handle; /* a context, a stream, an event: the runtime's are the driver's */
typedef unsigned long long gw_cuda_address;

#define GW_NCCL_CALLS(X)                                                                           \
    X(ncclGetVersion, (int *version))                                                              \
    X(ncclGetUniqueId, (gw_nccl_id * id))                                                          \
    X(ncclCommInitRankConfig,                                                                      \
      (gw_nccl_group * out, int ranks, gw_nccl_id id, int rank, gw_nccl_settings *settings))       \
    X(ncclCommSplit,                                                                               \
      (gw_nccl_group group, int colour, int key, gw_nccl_group *out, gw_nccl_settings *settings))  \
    X(ncclCommUserRank, (gw_nccl_group group, int *rank))                                          \
    X(ncclCommCount, (gw_nccl_group group, int *ranks))                                            \
    X(ncclCommGetAsyncError, (gw_nccl_group group, int *code))                                     \
    X(ncclCommAbort, (gw_nccl_group group))                                                        \
    X(ncclCommDestroy, (gw_nccl_group group))                                                      \
    X(ncclGroupStart, (void))                                                                      \
    X(ncclGroupEnd, (void))                                                                        \
    X(ncclSend, (const void *from, size_t count, int type, int peer, gw_nccl_group group,          \
                 gw_cuda_handle stream))                                                           \
    X(ncclRecv,                                                                                    \
      (void *to, size_t count, int type, int peer, gw_nccl_group group, gw_cuda_handle stream))    \
    X(ncclBroadcast, (const void *from, void *to, size_t count, int type, int root,                \
                      gw_nccl_group group, gw_cuda_handle stream))                                 \
    X(ncclAllReduce, (const void *from, void *to, size_t count, int type, int op,                  \
                      gw_nccl_group group, gw_cuda_handle stream))

#define GW_CUDA_CALLS(X)                                                                           \
    X(cuInit, (unsigned flags))                                                                    \
    X(cuGetErrorString, (int code, const char **text))                                             \
    X(cuCtxGetCurrent, (gw_cuda_handle * context))                                                 \
    X(cuCtxPushCurrent_v2, (gw_cuda_handle context))                                               \
    X(cuCtxPopCurrent_v2, (gw_cuda_handle * context))                                              \
    X(cuStreamCreate, (gw_cuda_handle * stream, unsigned flags))                                   \
    X(cuStreamDestroy_v2, (gw_cuda_handle stream))                                                 \
    X(cuStreamWaitEvent, (gw_cuda_handle stream, gw_cuda_handle event, unsigned flags))            \
    X(cuEventCreate, (gw_cuda_handle * event, unsigned flags))                                     \
    X(cuEventDestroy_v2, (gw_cuda_handle event))                                                   \
    X(cuEventRecord, (gw_cuda_handle event, gw_cuda_handle stream))                                \
    X(cuEventQuery, (gw_cuda_handle event))                                                        \
    X(cuMemAlloc_v2, (gw_cuda_address * at, size_t bytes))                                         \
    X(cuMemFree_v2, (gw_cuda_address at))                                                          \
    X(cuMemcpyDtoDAsync_v2,                                                                        \
      (gw_cuda_address to, gw_cuda_address from, size_t bytes, gw_cuda_handle stream))

#endif
