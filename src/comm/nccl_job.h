/* Inside the NCCL backend. */
#ifndef GW_COMM_NCCL_JOB_H
#define GW_COMM_NCCL_JOB_H

#include "comm/nccl_calls.h"
#include "comm/pieces.h"

#include <gradwire/nccl.h>

struct gw_nccl {
    void *nccl_library, *cuda_library;
    int version;
#define GW_POINTER(name, arguments) int(*name) arguments;
    GW_NCCL_CALLS(GW_POINTER)
    GW_CUDA_CALLS(GW_POINTER)
#undef GW_POINTER
    /* these two return words */
    const char *(*ncclGetErrorString)(int code);
    const char *(*ncclGetLastError)(gw_nccl_group group);
};

typedef struct gw_nccl_end gw_nccl_end;

/* An operation under way, or kept for the next. */
typedef struct gw_nccl_operation {
    struct gw_nccl_operation *next; /* in the queue, or among the idle */
    struct gw_nccl_operation *made; /* before this one */
    gw_nccl_end *end;
    gw_operation operation;
    uint64_t number;
    gw_piece *pieces; /* one a member; for what moves pieces */
    void *buffer;     /* for what does not: `count` bytes or numbers */
    size_t count;
    uint32_t root;
    enum { GW_NCCL_QUEUED, GW_NCCL_LAUNCHING, GW_NCCL_LAUNCHED, GW_NCCL_EMPTY } state;
    gw_cuda_handle event; /* behind it in the stream */
} gw_nccl_operation;

/* What a group and those split from it share: they fail together. */
typedef struct gw_nccl_job {
    const gw_nccl *nccl;
    gw_cuda_handle context;
    double timeout_seconds;
    uint32_t rank; /* of the whole group */
    gw_nccl_end *ends;
    gw_status failed; /* GW_OK, or why nothing works any more */
    gw_why why;
} gw_nccl_job;

struct gw_nccl_end {
    gw_comm comm;
    gw_nccl_job *job;
    gw_nccl_end *next;
    gw_nccl_group group;          /* NULL after an abort */
    gw_cuda_handle stream, after; /* after: an event, of gw_nccl_after */
    gw_cuda_address word;         /* on the device: what a barrier sums */
    uint64_t posted;
    uint32_t under_way;
    /* NCCL takes the next operation of a group when it has launched the one before: the rest wait here */
    gw_nccl_operation *first, *last, *idle, *made;
};

/* The calls of a group stand between these two: the device's context is current. */
gw_status gw_nccl_enter(gw_nccl_job *job, gw_why *why);
gw_status gw_nccl_leave(gw_nccl_job *job, gw_status status);

/* The first failure is kept; every group of the job is aborted, so that the device lets go of all buffers. */
__attribute__((format(printf, 4, 5))) gw_status gw_nccl_lost(gw_nccl_job *job, gw_status status,
                                                             gw_why *why, const char *format, ...);
gw_status gw_nccl_lost_by_nccl(gw_nccl_end *end, int code, const char *what, gw_why *why);
gw_status gw_nccl_lost_by_cuda(gw_nccl_job *job, int code, const char *what, gw_why *why);

/* An operation to fill in; NULL: *status says why. */
gw_nccl_operation *gw_nccl_operation_take(gw_nccl_end *end, gw_operation operation,
                                          gw_status *status, gw_why *why);
void gw_nccl_operation_give(gw_nccl_operation *op); /* back: it is over, or was not begun */
gw_status gw_nccl_operation_begin(gw_nccl_operation *op, gw_why *why);
gw_status gw_nccl_operation_test(gw_nccl_operation *op, int *done, gw_why *why);
/* Launches what NCCL will take. Also where the failure of a peer is heard of. */
gw_status gw_nccl_move_on(gw_nccl_end *end, gw_why *why);
void gw_nccl_operation_describe(const gw_nccl_operation *op, char *text, size_t size);

#endif
