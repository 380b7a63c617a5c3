/* One operation with known bytes, for any backend: posted, and what arrived is checked, the bytes between
 * the pieces too. */
#ifndef GW_TESTS_COMM_EXCHANGE_H
#define GW_TESTS_COMM_EXCHANGE_H

#include <gradwire/comm.h>

#include <stdlib.h>
#include <string.h>

enum { EXCHANGE_RANKS = 64, GAP = 3, UNTOUCHED = 0xA5 };
typedef enum exchange_kind { GATHER, TO_ALL, BROADCAST, BARRIER, KINDS } exchange_kind;

typedef struct exchange {
    exchange_kind kind;
    uint32_t number, root;
    size_t sizes_out[EXCHANGE_RANKS], offsets_out[EXCHANGE_RANKS];
    size_t sizes_in[EXCHANGE_RANKS], offsets_in[EXCHANGE_RANKS];
    size_t bytes_in;
    unsigned char *out, *in;
    gw_request request;
} exchange;

/* Uneven, a third of them empty. */
static inline size_t size_of(uint32_t number, uint32_t from, uint32_t to)
{
    const uint32_t mixed = (number * 977u + from * 613u + to * 251u) * 2654435761u >> 12;
    return mixed % 3 == 0 ? 0 : mixed % 2999;
}

static inline unsigned char byte_of(uint32_t number, uint32_t from, uint32_t to, size_t i)
{
    return (unsigned char)(number * 7 + from * 131 + to * 31 + i * 13 + (i >> 8));
}

/* `to` of what a member sends to all alike. */
static inline uint32_t told(const exchange *x, uint32_t to)
{
    return x->kind == TO_ALL ? to : 0;
}

static inline size_t exchange_size(const exchange *x, uint32_t from, uint32_t to)
{
    if (x->kind == BARRIER || (x->kind == BROADCAST && (from != x->root || to == from))) {
        return 0;
    }
    return size_of(x->number, from, told(x, to));
}

static inline void exchange_free(exchange *x)
{
    free(x->out);
    free(x->in);
    x->out = x->in = NULL;
}

static inline gw_status exchange_begin(exchange *x, gw_comm *comm, gw_why *why)
{
    const uint32_t own = comm->rank;
    const gw_comm_table *t = comm->table;
    const size_t whole = size_of(x->number, x->kind == BROADCAST ? x->root : own, 0);
    switch (x->kind) {
    case GATHER:
        return t->allgatherv(comm, x->out, whole, x->in, x->sizes_in, x->offsets_in, &x->request,
                             why);
    case TO_ALL:
        return t->alltoallv(comm, x->out, x->sizes_out, x->offsets_out, x->in, x->sizes_in,
                            x->offsets_in, &x->request, why);
    case BROADCAST:
        for (size_t k = 0; own == x->root && k < whole; k++) {
            x->out[k] = byte_of(x->number, own, 0, k); /* a group of one sends to nobody */
        }
        return t->broadcast(comm, own == x->root ? x->out : x->in + x->offsets_in[x->root], whole,
                            x->root, &x->request, why);
    default:
        return t->barrier(comm, &x->request, why);
    }
}

/* On failure nothing is left to free. */
static inline gw_status exchange_post(exchange *x, gw_comm *comm, exchange_kind kind,
                                      uint32_t number, gw_why *why)
{
    const uint32_t own = comm->rank, ranks = comm->ranks;
    *x = (exchange){.kind = kind, .number = number, .root = number % ranks};
    size_t bytes_out = 0, bytes_in = GAP;
    for (uint32_t i = 0; i < ranks; i++) {
        x->sizes_out[i] = exchange_size(x, own, i);
        x->offsets_out[i] = kind == TO_ALL ? bytes_out : 0;
        bytes_out = x->offsets_out[i] + x->sizes_out[i];
        x->sizes_in[i] = exchange_size(x, i, own);
        x->offsets_in[i] = bytes_in;
        bytes_in += x->sizes_in[i] + GAP;
    }
    x->bytes_in = bytes_in;
    x->out = malloc(3000 * (size_t)ranks);
    x->in = malloc(bytes_in);
    if (x->out == NULL || x->in == NULL) {
        exchange_free(x);
        return GW_ERR_MEMORY;
    }
    memset(x->in, UNTOUCHED, bytes_in);
    for (uint32_t i = 0; i < ranks; i++) {
        for (size_t k = 0; k < x->sizes_out[i]; k++) {
            x->out[x->offsets_out[i] + k] = byte_of(number, own, told(x, i), k);
        }
    }
    const gw_status status = exchange_begin(x, comm, why);
    if (status != GW_OK) {
        exchange_free(x);
    }
    return status;
}

/* 1 if exactly what was to arrive did; frees. */
static inline int exchange_arrived(exchange *x, const gw_comm *comm)
{
    int fine = 1;
    size_t at = 0;
    for (uint32_t i = 0; i < comm->ranks; i++) {
        for (; at < x->offsets_in[i]; at++) {
            fine &= x->in[at] == UNTOUCHED;
        }
        for (size_t k = 0; k < x->sizes_in[i]; k++) {
            fine &= x->in[at++] == byte_of(x->number, i, told(x, comm->rank), k);
        }
    }
    for (; at < x->bytes_in; at++) {
        fine &= x->in[at] == UNTOUCHED;
    }
    exchange_free(x);
    return fine;
}

#endif
