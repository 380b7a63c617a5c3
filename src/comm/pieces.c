/* Operations as exchanges of pieces; their arguments are checked here. */
#include "comm/pieces.h"

#include "base/why.h"

#include <stdio.h>
#include <string.h>

const char *gw_operation_name(gw_operation operation)
{
    static const char *const names[] = {"allgatherv", "alltoallv", "broadcast",      "barrier",
                                        "allreduce",  "reduce",    "reduce_scatter", "gatherv"};
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

gw_status gw_pieces_allgatherv(gw_piece *pieces, const gw_comm *comm, const void *send,
                               size_t bytes, void *receive, const size_t *sizes,
                               const size_t *offsets, gw_why *why)
{
    if (sizes == NULL || offsets == NULL || (bytes != 0 && send == NULL)) {
        return no_buffer(GW_ALLGATHERV, why);
    }
    if (sizes[comm->rank] != bytes) {
        return GW_FAIL(why, GW_ERR_ARG, "allgatherv: rank %u sends %zu bytes, its own size is %zu",
                       comm->rank, bytes, sizes[comm->rank]);
    }
    for (uint32_t i = 0; i < comm->ranks; i++) {
        if (sizes[i] != 0 && receive == NULL) {
            return no_buffer(GW_ALLGATHERV, why);
        }
        pieces[i] = (gw_piece){part(send, 0, bytes), writable_part(receive, offsets[i], sizes[i]),
                               bytes, sizes[i]};
    }
    return GW_OK;
}

gw_status gw_pieces_alltoallv(gw_piece *pieces, const gw_comm *comm, const void *send,
                              const size_t *send_sizes, const size_t *send_offsets, void *receive,
                              const size_t *receive_sizes, const size_t *receive_offsets,
                              gw_why *why)
{
    if (send_sizes == NULL || send_offsets == NULL || receive_sizes == NULL ||
        receive_offsets == NULL) {
        return no_buffer(GW_ALLTOALLV, why);
    }
    const uint32_t own = comm->rank;
    if (send_sizes[own] != receive_sizes[own]) {
        return GW_FAIL(why, GW_ERR_ARG,
                       "alltoallv: rank %u sends %zu bytes to itself and receives %zu", own,
                       send_sizes[own], receive_sizes[own]);
    }
    for (uint32_t i = 0; i < comm->ranks; i++) {
        if ((send_sizes[i] != 0 && send == NULL) || (receive_sizes[i] != 0 && receive == NULL)) {
            return no_buffer(GW_ALLTOALLV, why);
        }
        pieces[i] = (gw_piece){part(send, send_offsets[i], send_sizes[i]),
                               writable_part(receive, receive_offsets[i], receive_sizes[i]),
                               send_sizes[i], receive_sizes[i]};
    }
    return GW_OK;
}

gw_status gw_pieces_gatherv(gw_piece *pieces, const gw_comm *comm, const void *send, size_t bytes,
                            void *receive, const size_t *sizes, const size_t *offsets,
                            uint32_t root, gw_why *why)
{
    const uint32_t own = comm->rank;
    if (root >= comm->ranks) {
        return GW_FAIL(why, GW_ERR_ARG, "gatherv: root %u of %u ranks", root, comm->ranks);
    }
    if ((bytes != 0 && send == NULL) || (own == root && (sizes == NULL || offsets == NULL))) {
        return no_buffer(GW_GATHERV, why);
    }
    memset(pieces, 0, comm->ranks * sizeof *pieces);
    pieces[root].from = send;
    pieces[root].sent = bytes;
    for (uint32_t i = 0; own == root && i < comm->ranks; i++) {
        if (sizes[i] != 0 && receive == NULL) {
            return no_buffer(GW_GATHERV, why);
        }
        pieces[i].to = writable_part(receive, offsets[i], sizes[i]);
        pieces[i].received = sizes[i];
    }
    return own != root || sizes[own] == bytes
               ? GW_OK
               : GW_FAIL(why, GW_ERR_ARG, "gatherv: rank %u sends %zu bytes, its own size is %zu",
                         own, bytes, sizes[own]);
}

gw_status gw_pieces_broadcast(gw_piece *pieces, const gw_comm *comm, void *buffer, size_t bytes,
                              uint32_t root, gw_why *why)
{
    if (root >= comm->ranks) {
        return GW_FAIL(why, GW_ERR_ARG, "broadcast: root %u of %u ranks", root, comm->ranks);
    }
    if (bytes != 0 && buffer == NULL) {
        return no_buffer(GW_BROADCAST, why);
    }
    memset(pieces, 0, comm->ranks * sizeof *pieces);
    if (comm->rank != root) {
        pieces[root].to = buffer;
        pieces[root].received = bytes;
        return GW_OK;
    }
    for (uint32_t i = 0; i < comm->ranks; i++) {
        if (i != root) {
            pieces[i].from = buffer;
            pieces[i].sent = bytes;
        }
    }
    return GW_OK;
}

void gw_pieces_barrier(gw_piece *pieces, const gw_comm *comm)
{
    memset(pieces, 0, comm->ranks * sizeof *pieces);
}
