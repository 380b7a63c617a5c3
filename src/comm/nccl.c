/* The NCCL backend: groups, their faults, and the table's functions. */
#define _POSIX_C_SOURCE 200809L
#include "base/clock.h"
#include "base/why.h"
#include "comm/nccl_job.h"
#include "comm/operations.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

gw_status gw_nccl_enter(gw_nccl_job *job, gw_why *why)
{
    const int code = job->nccl->cuCtxPushCurrent_v2(job->context);
    return code == 0 ? GW_OK : gw_nccl_lost_by_cuda(job, code, "the device's context", why);
}

gw_status gw_nccl_leave(gw_nccl_job *job, gw_status status)
{
    gw_cuda_handle context = NULL;
    (void)job->nccl->cuCtxPopCurrent_v2(&context);
    return status;
}

/* ---- faults ---- */

gw_status gw_nccl_lost(gw_nccl_job *job, gw_status status, gw_why *why, const char *format, ...)
{
    if (job->failed == GW_OK) {
        va_list args;
        va_start(args, format);
        gw_why_write(&job->why, format, args);
        va_end(args);
        job->failed = status;
        for (gw_nccl_end *end = job->ends; end != NULL; end = end->next) {
            if (end->group != NULL) {
                (void)job->nccl->ncclCommAbort(end->group);
            }
            end->group = NULL;
            end->first = end->last = NULL;
        }
    }
    if (why != NULL) {
        *why = job->why;
    }
    return job->failed;
}

gw_status gw_nccl_lost_by_nccl(gw_nccl_end *end, int code, const char *what, gw_why *why)
{
    const gw_nccl *nccl = end->job->nccl;
    const char *more = nccl->ncclGetLastError(end->group);
    return gw_nccl_lost(end->job, GW_ERR_PEER, why, "%s: %s%s%.120s", what,
                        nccl->ncclGetErrorString(code), more != NULL && *more != 0 ? ": " : "",
                        more != NULL ? more : "");
}

gw_status gw_nccl_lost_by_cuda(gw_nccl_job *job, int code, const char *what, gw_why *why)
{
    const char *words = NULL;
    (void)job->nccl->cuGetErrorString(code, &words);
    return gw_nccl_lost(job, GW_ERR_SYSTEM, why, "%s: CUDA says %s", what,
                        words != NULL ? words : "an error without a name");
}

/* ---- the table: operations ---- */

/* Every post begins here. NULL: *status says why, and nothing is left to do. */
static gw_nccl_operation *take(gw_comm *comm, gw_operation operation, gw_status *status,
                               gw_why *why)
{
    gw_nccl_end *end = (gw_nccl_end *)comm;
    if (end->job->failed != GW_OK) {
        *status = gw_fail(why, end->job->failed, "%s", end->job->why.text);
        return NULL;
    }
    *status = gw_nccl_enter(end->job, why);
    if (*status != GW_OK) {
        return NULL;
    }
    gw_nccl_operation *op = gw_nccl_operation_take(end, operation, status, why);
    if (op == NULL) {
        (void)gw_nccl_leave(end->job, *status);
    }
    return op;
}

/* And ends here. */
static gw_status begin(gw_nccl_operation *op, gw_status arguments, gw_request *request, gw_why *why)
{
    gw_nccl_job *job = op->end->job;
    if (arguments != GW_OK) {
        gw_nccl_operation_give(op);
        return gw_nccl_leave(job, arguments);
    }
    *request = op;
    return gw_nccl_leave(job, gw_nccl_operation_begin(op, why));
}

/* A broadcast and a barrier are calls of NCCL's, on one buffer that all have. */
static gw_status post(gw_comm *comm, const gw_call *call, gw_request *request, gw_why *why)
{
    gw_status status = GW_OK;
    gw_nccl_operation *op = take(comm, call->operation, &status, why);
    if (op == NULL) {
        return status;
    }
    status = gw_call_pieces(call, comm, op->pieces, why);
    if (call->operation == GW_BROADCAST) {
        op->buffer = call->receive;
        op->count = call->bytes;
        op->root = call->root;
    } else if (call->operation == GW_BARRIER) {
        op->buffer = (void *)(uintptr_t)op->end->word;
        op->count = 1;
    }
    return begin(op, status, request, why);
}

static gw_status allreduce(gw_comm *comm, float *values, size_t count, gw_request *request,
                           gw_why *why)
{
    gw_status status = GW_OK;
    gw_nccl_operation *op = take(comm, GW_ALLREDUCE, &status, why);
    if (op == NULL) {
        return status;
    }
    if (count != 0 && values == NULL) {
        status = GW_FAIL(why, GW_ERR_ARG, "allreduce: %zu numbers, and no buffer", count);
    }
    memset(op->pieces, 0, comm->ranks * sizeof *op->pieces);
    op->buffer = values;
    op->count = count;
    return begin(op, status, request, why);
}

static gw_status test(gw_comm *comm, gw_request request, int *done, gw_why *why)
{
    gw_nccl_job *job = ((gw_nccl_end *)comm)->job;
    *done = 0;
    if (job->failed != GW_OK) {
        return gw_fail(why, job->failed, "%s", job->why.text);
    }
    const gw_status status = gw_nccl_enter(job, why);
    return status != GW_OK ? status
                           : gw_nccl_leave(job, gw_nccl_operation_test(request, done, why));
}

static void describe(gw_comm *comm, gw_request request, char *text, size_t size)
{
    (void)comm;
    gw_nccl_operation_describe(request, text, size);
}

static gw_status after(gw_comm *comm, void *stream, gw_why *why)
{
    gw_nccl_end *end = (gw_nccl_end *)comm;
    gw_nccl_job *job = end->job;
    if (job->failed != GW_OK) {
        return gw_fail(why, job->failed, "%s", job->why.text);
    }
    gw_status status = gw_nccl_enter(job, why);
    if (status != GW_OK) {
        return status;
    }
    int code = job->nccl->cuEventRecord(end->after, stream);
    code = code != 0 ? code : job->nccl->cuStreamWaitEvent(end->stream, end->after, 0);
    status = code == 0 ? GW_OK : gw_nccl_lost_by_cuda(job, code, "gw_nccl_after", why);
    return gw_nccl_leave(job, status);
}

/* ---- groups ---- */

/* Until NCCL has done with `group` what it was told, by asking `end`'s job how long. */
static gw_status wait_for(gw_nccl_end *end, gw_nccl_group group, const char *what, gw_why *why)
{
    gw_nccl_job *job = end->job;
    const double begun = gw_clock();
    for (;;) {
        int state = 0;
        const int code = job->nccl->ncclCommGetAsyncError(group, &state);
        if (code != 0 || (state != 0 && state != GW_NCCL_IN_PROGRESS)) {
            return gw_nccl_lost_by_nccl(end, code != 0 ? code : state, what, why);
        }
        if (state == 0) {
            return GW_OK;
        }
        if (job->timeout_seconds > 0 && gw_clock() - begun > job->timeout_seconds) {
            return gw_nccl_lost(job, GW_ERR_TIMEOUT, why,
                                "%s: rank %u waited %.3g s for the others", what, job->rank,
                                job->timeout_seconds);
        }
        const struct timespec pause = {0, 50000};
        (void)nanosleep(&pause, NULL);
    }
}

static void unlink_end(gw_nccl_end *end)
{
    gw_nccl_end **link = &end->job->ends;
    while (*link != end) {
        link = &(*link)->next;
    }
    *link = end->next;
}

/* With the context current. The last end takes the job along. */
static void free_end(gw_nccl_end *end)
{
    const gw_nccl *nccl = end->job->nccl;
    while (end->made != NULL) {
        gw_nccl_operation *op = end->made;
        end->made = op->made;
        (void)nccl->cuEventDestroy_v2(op->event);
        free(op->pieces);
        free(op);
    }
    if (end->after != NULL) {
        (void)nccl->cuEventDestroy_v2(end->after);
    }
    if (end->stream != NULL) {
        (void)nccl->cuStreamDestroy_v2(end->stream);
    }
    if (end->word != 0) {
        (void)nccl->cuMemFree_v2(end->word);
    }
    unlink_end(end);
    free(end);
}

/* An end without a group yet. */
static gw_nccl_end *new_end(gw_nccl_job *job, const gw_comm_table *table, gw_status *status,
                            gw_why *why)
{
    const gw_nccl *nccl = job->nccl;
    gw_nccl_end *end = calloc(1, sizeof *end);
    if (end == NULL) {
        *status = GW_FAIL(why, GW_ERR_MEMORY, "no memory for a group");
        return NULL;
    }
    end->comm.table = table;
    end->job = job;
    end->next = job->ends;
    job->ends = end;
    int code = nccl->cuStreamCreate(&end->stream, GW_CUDA_STREAM_NON_BLOCKING);
    code = code != 0 ? code : nccl->cuEventCreate(&end->after, GW_CUDA_EVENT_NO_TIMES);
    code = code != 0 ? code : nccl->cuMemAlloc_v2(&end->word, sizeof(float));
    if (code != 0) {
        *status = gw_nccl_lost_by_cuda(job, code, "a stream, an event and a word of memory", why);
        free_end(end);
        return NULL;
    }
    *status = GW_OK;
    return end;
}

static gw_status name_rank(gw_nccl_end *end, gw_why *why)
{
    const gw_nccl *nccl = end->job->nccl;
    int rank = 0, ranks = 0;
    int code = nccl->ncclCommUserRank(end->group, &rank);
    code = code != 0 ? code : nccl->ncclCommCount(end->group, &ranks);
    if (code != 0) {
        return gw_nccl_lost_by_nccl(end, code, "the ranks of a group", why);
    }
    end->comm.rank = (uint32_t)rank;
    end->comm.ranks = (uint32_t)ranks;
    return GW_OK;
}

/* NCCL names the new group only when it is through with the old one, and then makes it ready. Both inherit that they do
 * not block. Operations that still wait to be launched go before. */
static gw_status split_group(gw_nccl_end *end, gw_nccl_end *part, int colour, int key, gw_why *why)
{
    gw_status status = GW_OK;
    while (end->first != NULL && status == GW_OK) {
        status = wait_for(end, end->group, "split", why);
        status = status != GW_OK ? status : gw_nccl_move_on(end, why);
    }
    if (status != GW_OK) {
        return status;
    }
    const int code = end->job->nccl->ncclCommSplit(end->group, colour, key, &part->group, NULL);
    if (code != 0 && code != GW_NCCL_IN_PROGRESS) {
        return gw_nccl_lost_by_nccl(end, code, "split", why);
    }
    status = wait_for(end, end->group, "split", why);
    status = status != GW_OK ? status : wait_for(end, part->group, "split", why);
    return status != GW_OK ? status : name_rank(part, why);
}

static gw_status split(gw_comm *comm, uint32_t colour, uint32_t key, gw_comm **out, gw_why *why)
{
    gw_nccl_end *end = (gw_nccl_end *)comm;
    gw_nccl_job *job = end->job;
    if (job->failed != GW_OK) {
        return gw_fail(why, job->failed, "%s", job->why.text);
    }
    if (colour > INT_MAX || key > INT_MAX) {
        return GW_FAIL(why, GW_ERR_RANGE, "split: colour %u, key %u: NCCL's end at 2^31 - 1",
                       colour, key);
    }
    gw_status status = gw_nccl_enter(job, why);
    if (status != GW_OK) {
        return status;
    }
    gw_nccl_end *part = new_end(job, comm->table, &status, why);
    if (part != NULL) {
        status = split_group(end, part, (int)colour, (int)key, why);
        if (status == GW_OK) {
            *out = &part->comm;
        } else {
            free_end(part);
        }
    }
    return gw_nccl_leave(job, status);
}

static void give_up(gw_comm *comm, const char *reason)
{
    gw_nccl_job *job = ((gw_nccl_end *)comm)->job;
    if (gw_nccl_enter(job, NULL) == GW_OK) {
        gw_why words;
        (void)gw_gave_up(&words, job->rank, reason);
        (void)gw_nccl_lost(job, GW_ERR_PEER, NULL, "%s", words.text);
        (void)gw_nccl_leave(job, GW_OK);
    }
}

static void close_end(gw_comm *comm)
{
    gw_nccl_end *end = (gw_nccl_end *)comm;
    gw_nccl_job *job = end->job;
    const gw_status entered = gw_nccl_enter(job, NULL);
    if (end->group != NULL) {
        (void)(end->under_way == 0 ? job->nccl->ncclCommDestroy(end->group)
                                   : job->nccl->ncclCommAbort(end->group));
    }
    free_end(end);
    if (entered == GW_OK) {
        (void)gw_nccl_leave(job, GW_OK);
    }
    if (job->ends == NULL) {
        free(job);
    }
}

/* No GW_COMM_SAME_BITS: NCCL does not promise it. */
static const gw_comm_table table = {
    .size = sizeof(gw_comm_table),
    .flags = GW_COMM_DEVICE,
    .name = "nccl",
    .allgatherv = allgatherv,
    .alltoallv = alltoallv,
    .broadcast = broadcast,
    .barrier = barrier,
    .test = test,
    .split = split,
    .abort = give_up,
    .close = close_end,
    .allreduce = allreduce,
    .describe = describe,
    .after = after,
};

/* What each rank tells all: that it can, or why it cannot; and rank 0 how to meet. */
typedef struct card {
    int32_t status;
    gw_nccl_id id;
    gw_why why;
} card;

static void write_card(const gw_nccl *nccl, uint32_t rank, gw_cuda_handle *context, card *mine)
{
    memset(mine, 0, sizeof *mine);
    if (nccl->cuCtxGetCurrent(context) != 0 || *context == NULL) {
        mine->status = gw_fail(&mine->why, GW_ERR_STATE,
                               "no CUDA device is current on this thread (cudaSetDevice)");
    } else if (rank == 0) {
        const int code = nccl->ncclGetUniqueId(&mine->id);
        if (code != 0) {
            mine->status = gw_fail(&mine->why, GW_ERR_SYSTEM, "ncclGetUniqueId: %s",
                                   nccl->ncclGetErrorString(code));
        }
    }
}

/* Over the host's group. A rank that cannot is everybody's failure, before anybody waits in NCCL for it. */
static gw_status meet(gw_comm *host, double timeout_seconds, const card *mine, gw_nccl_id *id,
                      gw_why *why)
{
    const size_t ranks = host->ranks;
    card *all = calloc(ranks, sizeof *all);
    gw_status status = all != NULL
                           ? gw_comm_gather(host, mine, sizeof *mine, all, timeout_seconds, why)
                           : GW_FAIL(why, GW_ERR_MEMORY, "no memory for a group");
    for (size_t i = 0; i < ranks && status == GW_OK; i++) {
        all[i].why.text[sizeof all[i].why.text - 1] = 0;
        if (all[i].status != GW_OK) {
            status = gw_fail(why, (gw_status)all[i].status, "rank %zu: %s", i, all[i].why.text);
        }
    }
    if (status == GW_OK) {
        *id = all[0].id;
    }
    free(all);
    return status;
}

static gw_status join(gw_nccl_end *end, const gw_comm *host, gw_nccl_id id, gw_why *why)
{
    gw_nccl_settings settings = GW_NCCL_NON_BLOCKING;
    const int code = end->job->nccl->ncclCommInitRankConfig(&end->group, (int)host->ranks, id,
                                                            (int)host->rank, &settings);
    if (code != 0 && code != GW_NCCL_IN_PROGRESS) {
        return gw_nccl_lost_by_nccl(end, code, "ncclCommInitRankConfig", why);
    }
    const gw_status status = wait_for(end, end->group, "joining a group", why);
    return status != GW_OK ? status : name_rank(end, why);
}

gw_status gw_nccl_create(const gw_nccl *nccl, gw_comm *host, double timeout_seconds, gw_comm **out,
                         gw_why *why)
{
    if (nccl == NULL || host == NULL || out == NULL || !(timeout_seconds >= 0)) {
        return GW_FAIL(why, GW_ERR_ARG, "gw_nccl_create: no library, no group, or no patience");
    }
    card mine;
    gw_nccl_id id;
    gw_cuda_handle context = NULL;
    write_card(nccl, host->rank, &context, &mine);
    gw_status status = meet(host, timeout_seconds, &mine, &id, why);
    if (status != GW_OK) {
        return status;
    }
    gw_nccl_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for a group");
    }
    *job = (gw_nccl_job){nccl, context, timeout_seconds, host->rank, NULL, GW_OK, {""}};
    gw_nccl_end *end = new_end(job, &table, &status, why);
    if (end != NULL) {
        status = join(end, host, id, why);
        if (status == GW_OK) {
            *out = &end->comm;
            return GW_OK;
        }
        free_end(end);
    }
    free(job);
    return status;
}

gw_status gw_nccl_after(gw_comm *comm, void *stream, gw_why *why)
{
    if (comm == NULL || comm->table != &table) {
        return GW_FAIL(why, GW_ERR_ARG, "gw_nccl_after: not a group of NCCL's");
    }
    return after(comm, stream, why);
}
