/* Operations of the NCCL backend: queued, launched one after the other on the group's stream, done when the event behind
 * them is. Groups are non-blocking ones: NCCL makes connections when they are first used, with the peers' help, and a
 * post must not wait for peers. */
#include "base/why.h"
#include "comm/nccl_job.h"

#include <stdio.h>
#include <stdlib.h>

static gw_nccl_operation *new_operation(gw_nccl_end *end, gw_status *status, gw_why *why)
{
    const gw_nccl *nccl = end->job->nccl;
    gw_nccl_operation *op = calloc(1, sizeof *op);
    gw_piece *pieces = calloc(end->comm.ranks, sizeof *pieces);
    gw_cuda_handle event = NULL;
    if (op == NULL || pieces == NULL || nccl->cuEventCreate(&event, GW_CUDA_EVENT_NO_TIMES) != 0) {
        free(op);
        free(pieces);
        *status = GW_FAIL(why, GW_ERR_MEMORY, "no memory for an operation");
        return NULL;
    }
    *op = (gw_nccl_operation){.made = end->made, .end = end, .pieces = pieces, .event = event};
    end->made = op;
    return op;
}

gw_nccl_operation *gw_nccl_operation_take(gw_nccl_end *end, gw_operation operation,
                                          gw_status *status, gw_why *why)
{
    gw_nccl_operation *op = end->idle;
    if (end->job->failed != GW_OK) {
        *status = gw_fail(why, end->job->failed, "%s", end->job->why.text);
        return NULL;
    }
    if (op != NULL) {
        end->idle = op->next;
    } else if ((op = new_operation(end, status, why)) == NULL) {
        return NULL;
    }
    op->next = NULL;
    op->operation = operation;
    op->state = GW_NCCL_QUEUED;
    op->buffer = NULL;
    op->count = 0;
    op->root = 0;
    *status = GW_OK;
    return op;
}

void gw_nccl_operation_give(gw_nccl_operation *op)
{
    op->next = op->end->idle;
    op->end->idle = op;
}

/* ---- what NCCL is told ---- */

/* All to all: its own piece a rank copies, the others' travel. */
static int launch_messages(const gw_nccl_operation *op)
{
    const gw_nccl_end *end = op->end;
    const gw_nccl *nccl = end->job->nccl;
    const uint32_t own = end->comm.rank, ranks = end->comm.ranks;
    int code = 0;
    for (uint32_t i = 1; i < ranks && code == 0; i++) {
        const uint32_t to = (own + i) % ranks, from = (own + ranks - i) % ranks;
        const gw_piece *out = &op->pieces[to], *in = &op->pieces[from];
        if (out->sent != 0) {
            code = nccl->ncclSend(out->from, out->sent, GW_NCCL_UINT8, (int)to, end->group,
                                  end->stream);
        }
        if (in->received != 0 && code == 0) {
            code = nccl->ncclRecv(in->to, in->received, GW_NCCL_UINT8, (int)from, end->group,
                                  end->stream);
        }
    }
    return code;
}

/* One broadcast a member: NCCL sends each over a ring, so that it crosses to another node once and not once a rank there.
 * Not its own allgather even where sizes are equal: members may put the pieces at other offsets than this one. */
static int launch_allgatherv(const gw_nccl_operation *op)
{
    const gw_nccl_end *end = op->end;
    int code = 0;
    for (uint32_t i = 0; i < end->comm.ranks && code == 0; i++) {
        const gw_piece *p = &op->pieces[i];
        if (p->received != 0) {
            code = end->job->nccl->ncclBroadcast(i == end->comm.rank ? p->from : p->to, p->to,
                                                 p->received, GW_NCCL_UINT8, (int)i, end->group,
                                                 end->stream);
        }
    }
    return code;
}

static int launch_one(const gw_nccl_operation *op)
{
    const gw_nccl_end *end = op->end;
    const gw_nccl *nccl = end->job->nccl;
    switch (op->operation) {
    case GW_ALLGATHERV:
        return launch_allgatherv(op);
    case GW_BROADCAST:
        return nccl->ncclBroadcast(op->buffer, op->buffer, op->count, GW_NCCL_UINT8, (int)op->root,
                                   end->group, end->stream);
    case GW_BARRIER:
    case GW_ALLREDUCE:
        return nccl->ncclAllReduce(op->buffer, op->buffer, op->count, GW_NCCL_FLOAT32, GW_NCCL_SUM,
                                   end->group, end->stream);
    default:
        return launch_messages(op);
    }
}

static gw_status launch(gw_nccl_operation *op, gw_why *why)
{
    gw_nccl_end *end = op->end;
    const gw_nccl *nccl = end->job->nccl;
    const gw_piece *mine = &op->pieces[end->comm.rank];
    if (op->operation == GW_ALLTOALLV && mine->sent != 0 && mine->from != mine->to) {
        const int code = nccl->cuMemcpyDtoDAsync_v2((gw_cuda_address)(uintptr_t)mine->to,
                                                    (gw_cuda_address)(uintptr_t)mine->from,
                                                    mine->sent, end->stream);
        if (code != 0) {
            return gw_nccl_lost_by_cuda(end->job, code, "a copy on the device", why);
        }
    }
    op->state = GW_NCCL_LAUNCHING;
    int code = nccl->ncclGroupStart();
    if (code == 0) {
        const int told = launch_one(op), ended = nccl->ncclGroupEnd();
        code = told != 0 && told != GW_NCCL_IN_PROGRESS ? told : ended;
    }
    return code == 0 || code == GW_NCCL_IN_PROGRESS
               ? GW_OK
               : gw_nccl_lost_by_nccl(end, code, gw_operation_name(op->operation), why);
}

gw_status gw_nccl_move_on(gw_nccl_end *end, gw_why *why)
{
    const gw_nccl *nccl = end->job->nccl;
    for (;;) {
        gw_nccl_operation *op = end->first;
        int state = 0;
        const int code = nccl->ncclCommGetAsyncError(end->group, &state);
        if (code != 0 || (state != 0 && state != GW_NCCL_IN_PROGRESS)) {
            return gw_nccl_lost_by_nccl(end, code != 0 ? code : state, "NCCL says of this group",
                                        why);
        }
        if (op == NULL || state == GW_NCCL_IN_PROGRESS) {
            return GW_OK;
        }
        if (op->state == GW_NCCL_QUEUED) {
            const gw_status status = launch(op, why);
            if (status != GW_OK) {
                return status;
            }
            continue;
        }
        const int recorded = nccl->cuEventRecord(op->event, end->stream);
        if (recorded != 0) {
            return gw_nccl_lost_by_cuda(end->job, recorded, "an event", why);
        }
        op->state = GW_NCCL_LAUNCHED;
        end->first = op->next;
        end->last = end->first != NULL ? end->last : NULL;
    }
}

/* ---- posted, tested ---- */

/* Nothing to send and nothing to receive; each operation looks at what all its members know alike, or at its messages. */
static int is_empty(const gw_nccl_operation *op)
{
    const uint32_t ranks = op->end->comm.ranks;
    size_t bytes = op->count;
    for (uint32_t i = 0; op->buffer == NULL && i < ranks; i++) {
        bytes |= op->pieces[i].sent | op->pieces[i].received;
    }
    return bytes == 0 || (op->operation == GW_BROADCAST && ranks == 1);
}

gw_status gw_nccl_operation_begin(gw_nccl_operation *op, gw_why *why)
{
    gw_nccl_end *end = op->end;
    op->number = end->posted++;
    end->under_way++;
    if (is_empty(op)) {
        op->state = GW_NCCL_EMPTY;
        return GW_OK;
    }
    if (end->last != NULL) {
        end->last->next = op;
    } else {
        end->first = op;
    }
    end->last = op;
    return gw_nccl_move_on(end, why);
}

gw_status gw_nccl_operation_test(gw_nccl_operation *op, int *done, gw_why *why)
{
    gw_nccl_end *end = op->end;
    const gw_status status = gw_nccl_move_on(end, why);
    if (status != GW_OK) {
        return status;
    }
    int code = 0;
    if (op->state != GW_NCCL_EMPTY) {
        code = op->state == GW_NCCL_LAUNCHED ? end->job->nccl->cuEventQuery(op->event)
                                             : GW_CUDA_NOT_READY;
    }
    if (code == GW_CUDA_NOT_READY) {
        return GW_OK;
    }
    if (code != 0) {
        return gw_nccl_lost_by_cuda(end->job, code, gw_operation_name(op->operation), why);
    }
    *done = 1;
    end->under_way--;
    gw_nccl_operation_give(op);
    return GW_OK;
}

void gw_nccl_operation_describe(const gw_nccl_operation *op, char *text, size_t size)
{
    static const char *const states[] = {"waits for the one before it", "waits for a connection",
                                         "is under way on the device", "is empty"};
    (void)snprintf(text, size, "operation %llu (%s), which %s; NCCL does not say for whom",
                   (unsigned long long)op->number, gw_operation_name(op->operation),
                   states[op->state]);
}
