/* Operations as exchanges of pieces; their arguments are checked here. */
#include "comm/pieces.h"

#include "base/why.h"

#include <stdio.h>
#include <string.h>

const char *gw_operation_name(gw_operation operation)
{
    static const char *const names[] = {"allgatherv", "alltoallv", "broadcast", "barrier",
                                        "allreduce"};
    return names[operation];
}

void gw_rank_list_add(gw_rank_list *list, uint32_t rank)
{
    enum { NAMED = 8 };
    const size_t used = list->n != 0 ? strlen(list->text) : 0;
    if (list->n++ < NAMED) {
        (void)snprintf(list->text + used, sizeof list->text - used, "%s%u", used != 0 ? ", " : "",
                       rank);
    } else {
        const char *more = strstr(list->text, " and ");
        const size_t named = more != NULL ? (size_t)(more - list->text) : used;
        (void)snprintf(list->text + named, sizeof list->text - named, " and %u more",
                       list->n - NAMED);
    }
}

void gw_rank_list_say(const gw_rank_list *list, const char *before, char *text, size_t size)
{
    const size_t used = strlen(text);
    if (list->n != 0 && used < size) {
        (void)snprintf(text + used, size - used, "%s rank%s %s", before, list->n > 1 ? "s" : "",
                       list->text);
    }
}

/* An empty piece may stand in a buffer that is not there. */
static const unsigned char *part(const void *buffer, size_t offset, size_t size)
{
    return size != 0 ? (const unsigned char *)buffer + offset : NULL;
}

static unsigned char *writable_part(void *buffer, size_t offset, size_t size)
{
    return size != 0 ? (unsigned char *)buffer + offset : NULL;
}

static gw_status no_buffer(gw_operation operation, gw_why *why)
{
    return GW_FAIL(why, GW_ERR_ARG, "%s: bytes to move, and no buffer or no list of sizes",
                   gw_operation_name(operation));
}

static gw_status fill_allgatherv(const gw_call *call, const gw_comm *comm, gw_piece *pieces,
                                 gw_why *why)
{
    const size_t *sizes = call->receive_sizes, *offsets = call->receive_offsets;
    if (sizes == NULL || offsets == NULL || (call->bytes != 0 && call->send == NULL)) {
        return no_buffer(GW_ALLGATHERV, why);
    }
    if (sizes[comm->rank] != call->bytes) {
        return GW_FAIL(why, GW_ERR_ARG, "allgatherv: rank %u sends %zu bytes, its own size is %zu",
                       comm->rank, call->bytes, sizes[comm->rank]);
    }
    for (uint32_t i = 0; i < comm->ranks; i++) {
        if (sizes[i] != 0 && call->receive == NULL) {
            return no_buffer(GW_ALLGATHERV, why);
        }
        pieces[i] =
            (gw_piece){part(call->send, 0, call->bytes),
                       writable_part(call->receive, offsets[i], sizes[i]), call->bytes, sizes[i]};
    }
    return GW_OK;
}

static gw_status fill_alltoallv(const gw_call *call, const gw_comm *comm, gw_piece *pieces,
                                gw_why *why)
{
    const size_t *out = call->send_sizes, *in = call->receive_sizes;
    if (out == NULL || call->send_offsets == NULL || in == NULL || call->receive_offsets == NULL) {
        return no_buffer(GW_ALLTOALLV, why);
    }
    const uint32_t own = comm->rank;
    if (out[own] != in[own]) {
        return GW_FAIL(why, GW_ERR_ARG,
                       "alltoallv: rank %u sends %zu bytes to itself and receives %zu", own,
                       out[own], in[own]);
    }
    for (uint32_t i = 0; i < comm->ranks; i++) {
        if ((out[i] != 0 && call->send == NULL) || (in[i] != 0 && call->receive == NULL)) {
            return no_buffer(GW_ALLTOALLV, why);
        }
        pieces[i] = (gw_piece){part(call->send, call->send_offsets[i], out[i]),
                               writable_part(call->receive, call->receive_offsets[i], in[i]),
                               out[i], in[i]};
    }
    return GW_OK;
}

static gw_status fill_broadcast(const gw_call *call, const gw_comm *comm, gw_piece *pieces,
                                gw_why *why)
{
    const uint32_t root = call->root;
    if (root >= comm->ranks) {
        return GW_FAIL(why, GW_ERR_ARG, "broadcast: root %u of %u ranks", root, comm->ranks);
    }
    if (call->bytes != 0 && call->receive == NULL) {
        return no_buffer(GW_BROADCAST, why);
    }
    memset(pieces, 0, comm->ranks * sizeof *pieces);
    if (comm->rank != root) {
        pieces[root].to = call->receive;
        pieces[root].received = call->bytes;
        return GW_OK;
    }
    for (uint32_t i = 0; i < comm->ranks; i++) {
        if (i != root) {
            pieces[i].from = call->receive;
            pieces[i].sent = call->bytes;
        }
    }
    return GW_OK;
}

gw_status gw_call_pieces(const gw_call *call, const gw_comm *comm, gw_piece *pieces, gw_why *why)
{
    switch (call->operation) {
    case GW_ALLGATHERV:
        return fill_allgatherv(call, comm, pieces, why);
    case GW_ALLTOALLV:
        return fill_alltoallv(call, comm, pieces, why);
    case GW_BROADCAST:
        return fill_broadcast(call, comm, pieces, why);
    default: /* a barrier has no bytes */
        memset(pieces, 0, comm->ranks * sizeof *pieces);
        return GW_OK;
    }
}
