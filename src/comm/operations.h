/* The table's functions that move bytes, written once. A backend defines `post`, includes this file, and fills them in. */
#ifndef GW_COMM_OPERATIONS_H
#define GW_COMM_OPERATIONS_H

#include "comm/pieces.h"

/* Takes a place for an operation, fills it in by gw_call_pieces, and begins it. Nothing is posted on failure. */
static gw_status post(gw_comm *comm, const gw_call *call, gw_request *request, gw_why *why);

static inline gw_status allgatherv(gw_comm *comm, const void *send, size_t bytes, void *receive,
                                   const size_t *sizes, const size_t *offsets, gw_request *request,
                                   gw_why *why)
{
    const gw_call call = {.operation = GW_ALLGATHERV,
                          .send = send,
                          .bytes = bytes,
                          .receive = receive,
                          .receive_sizes = sizes,
                          .receive_offsets = offsets};
    return post(comm, &call, request, why);
}

static inline gw_status alltoallv(gw_comm *comm, const void *send, const size_t *send_sizes,
                                  const size_t *send_offsets, void *receive,
                                  const size_t *receive_sizes, const size_t *receive_offsets,
                                  gw_request *request, gw_why *why)
{
    const gw_call call = {.operation = GW_ALLTOALLV,
                          .send = send,
                          .send_sizes = send_sizes,
                          .send_offsets = send_offsets,
                          .receive = receive,
                          .receive_sizes = receive_sizes,
                          .receive_offsets = receive_offsets};
    return post(comm, &call, request, why);
}

static inline gw_status broadcast(gw_comm *comm, void *buffer, size_t bytes, uint32_t root,
                                  gw_request *request, gw_why *why)
{
    const gw_call call = {
        .operation = GW_BROADCAST, .bytes = bytes, .receive = buffer, .root = root};
    return post(comm, &call, request, why);
}

static inline gw_status barrier(gw_comm *comm, gw_request *request, gw_why *why)
{
    const gw_call call = {.operation = GW_BARRIER};
    return post(comm, &call, request, why);
}

#endif
