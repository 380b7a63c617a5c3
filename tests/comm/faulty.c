#include "comm/faulty.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Shared by the groups that one was split into. */
typedef struct plan {
    fault fault;
    const gw_comm_table *table;
    uint64_t next, splits;
    int struck;
    unsigned groups;
    struct operation *under_way;
    faulty_sent *sent;
    void *with;
} plan;

typedef struct faulty {
    gw_comm comm;
    gw_comm *inner;
    plan *plan;
    uint64_t group;
} faulty;

typedef struct operation {
    fault fault; /* this one's; mostly none */
    gw_request inner;
    unsigned char *spoilt; /* the byte to change; NULL: nothing comes from others */
    unsigned char *lie;    /* what is sent instead */
    float *sum, *parts;    /* of an engine's own sum: where it goes, and every member's numbers */
    size_t count;
    struct operation *next;
} operation;

static int is_other(const faulty *f, uint32_t member)
{
    return member != f->comm.rank;
}

/* Takes the next number. NULL: no memory. */
static operation *begin(faulty *f, gw_request *request)
{
    operation *op = calloc(1, sizeof *op);
    const uint64_t number = f->plan->next++;
    const fault *planned = &f->plan->fault;
    if (op != NULL && planned->kind != FAULT_SPLIT &&
        (number == planned->operation ||
         (number > planned->operation && planned->kind == FAULT_STOP))) {
        op->fault = *planned;
    }
    if (op != NULL) {
        op->next = f->plan->under_way;
        f->plan->under_way = op;
    }
    *request = op;
    return op;
}

/* Nobody is sent nothing. */
static void note(const faulty *f, uint32_t distance, size_t bytes)
{
    if (f->plan->sent != NULL && bytes != 0) {
        f->plan->sent(f->plan->with, f->group, (f->comm.rank + distance) % f->comm.ranks, bytes);
    }
}

static void end_of(faulty *f, operation *op)
{
    operation **link = &f->plan->under_way;
    while (*link != op) {
        link = &(*link)->next;
    }
    *link = op->next;
    free(op->lie);
    free(op->parts);
    free(op);
}

/* What is sent: `send`, or a copy that lies. */
static const void *said(operation *op, const void *send, size_t bytes)
{
    if (op->fault.kind != FAULT_LIE || op->fault.amount >= bytes ||
        (op->lie = malloc(bytes)) == NULL) {
        return send;
    }
    memcpy(op->lie, send, bytes);
    op->lie[op->fault.amount] ^= 0x40;
    return op->lie;
}

static void aim(faulty *f, operation *op, void *receive, const size_t *sizes, const size_t *offsets)
{
    for (uint32_t i = 0; op->spoilt == NULL && i < f->comm.ranks; i++) {
        if (is_other(f, i) && sizes[i] != 0) {
            op->spoilt = (unsigned char *)receive + offsets[i] + op->fault.amount % sizes[i];
        }
    }
}

static gw_status allgatherv(gw_comm *comm, const void *send, size_t bytes, void *receive,
                            const size_t *sizes, const size_t *offsets, gw_request *request,
                            gw_why *why)
{
    faulty *f = (faulty *)comm;
    operation *op = begin(f, request);
    if (op == NULL || op->fault.kind == FAULT_STOP) {
        return op == NULL ? GW_ERR_MEMORY : GW_OK;
    }
    aim(f, op, receive, sizes, offsets);
    for (uint32_t i = 1; i < comm->ranks; i++) {
        note(f, i, bytes);
    }
    return f->inner->table->allgatherv(f->inner, said(op, send, bytes), bytes, receive, sizes,
                                       offsets, &op->inner, why);
}

static gw_status alltoallv(gw_comm *comm, const void *send, const size_t *send_sizes,
                           const size_t *send_offsets, void *receive, const size_t *receive_sizes,
                           const size_t *receive_offsets, gw_request *request, gw_why *why)
{
    faulty *f = (faulty *)comm;
    operation *op = begin(f, request);
    if (op == NULL || op->fault.kind == FAULT_STOP) {
        return op == NULL ? GW_ERR_MEMORY : GW_OK;
    }
    aim(f, op, receive, receive_sizes, receive_offsets);
    size_t bytes = 0;
    for (uint32_t i = 0; i < comm->ranks; i++) {
        const size_t end = send_sizes[i] != 0 ? send_offsets[i] + send_sizes[i] : 0;
        bytes = end > bytes ? end : bytes;
    }
    for (uint32_t i = 1; i < comm->ranks; i++) {
        note(f, i, send_sizes[(comm->rank + i) % comm->ranks]);
    }
    return f->inner->table->alltoallv(f->inner, said(op, send, bytes), send_sizes, send_offsets,
                                      receive, receive_sizes, receive_offsets, &op->inner, why);
}

static gw_status broadcast(gw_comm *comm, void *buffer, size_t bytes, uint32_t root,
                           gw_request *request, gw_why *why)
{
    faulty *f = (faulty *)comm;
    operation *op = begin(f, request);
    if (op == NULL || op->fault.kind == FAULT_STOP) {
        return op == NULL ? GW_ERR_MEMORY : GW_OK;
    }
    if (is_other(f, root) && bytes != 0) {
        op->spoilt = (unsigned char *)buffer + op->fault.amount % bytes;
    }
    for (uint32_t i = 1; i < comm->ranks && comm->rank == root; i++) {
        note(f, i, bytes);
    }
    return f->inner->table->broadcast(f->inner, buffer, bytes, root, &op->inner, why);
}

static gw_status barrier(gw_comm *comm, gw_request *request, gw_why *why)
{
    faulty *f = (faulty *)comm;
    operation *op = begin(f, request);
    if (op == NULL || op->fault.kind == FAULT_STOP) {
        return op == NULL ? GW_ERR_MEMORY : GW_OK;
    }
    return f->inner->table->barrier(f->inner, &op->inner, why);
}

enum { MOST_MEMBERS = 64 };

static gw_status allreduce(gw_comm *comm, float *values, size_t count, gw_request *request,
                           gw_why *why)
{
    faulty *f = (faulty *)comm;
    operation *op = begin(f, request);
    size_t sizes[MOST_MEMBERS], offsets[MOST_MEMBERS];
    if (op == NULL || comm->ranks > MOST_MEMBERS ||
        (op->parts = calloc(comm->ranks * count + 1, sizeof *op->parts)) == NULL) {
        return GW_ERR_MEMORY;
    }
    for (uint32_t i = 0; i < comm->ranks; i++) {
        sizes[i] = count * sizeof *values;
        offsets[i] = i * sizes[i];
    }
    op->sum = values;
    op->count = count;
    op->spoilt = count != 0 ? (unsigned char *)values + op->fault.amount % sizes[0] : NULL;
    return f->inner->table->allgatherv(f->inner, values, sizes[0], op->parts, sizes, offsets,
                                       &op->inner, why);
}

static void sum_parts(const faulty *f, operation *op)
{
    for (size_t i = 0; i < op->count; i++) {
        float sum = op->parts[i];
        for (uint32_t m = 1; m < f->comm.ranks; m++) {
            sum += op->parts[m * op->count + i];
        }
        op->sum[i] = sum;
    }
}

static gw_status test(gw_comm *comm, gw_request request, int *done, gw_why *why)
{
    faulty *f = (faulty *)comm;
    operation *op = request;
    *done = 0;
    if (op->fault.kind == FAULT_STOP) {
        return GW_OK;
    }
    if (op->fault.kind == FAULT_DELAY && op->fault.amount > 0) {
        op->fault.amount--;
        return GW_OK;
    }
    gw_status status = f->inner->table->test(f->inner, op->inner, done, why);
    if (status == GW_OK && *done && op->parts != NULL) {
        sum_parts(f, op);
    }
    if (status == GW_OK && *done && op->fault.kind == FAULT_CORRUPT && op->spoilt != NULL) {
        *op->spoilt ^= 0x40;
        f->plan->struck = 1;
    }
    if (status == GW_OK && *done && op->fault.kind == FAULT_FAIL) {
        status = GW_ERR_SYSTEM;
        if (why != NULL) {
            (void)snprintf(why->text, sizeof why->text, "operation %llu fails on purpose",
                           (unsigned long long)op->fault.operation);
        }
    }
    if (status != GW_OK || *done) {
        end_of(f, op);
    }
    return status;
}

static gw_comm *wrap(gw_comm *inner, plan *shared);

static gw_status split(gw_comm *comm, uint32_t colour, uint32_t key, gw_comm **out, gw_why *why)
{
    faulty *f = (faulty *)comm;
    gw_comm *inner = NULL;
    if (f->plan->splits++ == f->plan->fault.operation && f->plan->fault.kind == FAULT_SPLIT) {
        if (why != NULL) {
            (void)snprintf(why->text, sizeof why->text, "a split fails on purpose");
        }
        return GW_ERR_CHECKSUM;
    }
    const gw_status status = f->inner->table->split(f->inner, colour, key, &inner, why);
    if (status != GW_OK) {
        return status;
    }
    *out = wrap(inner, f->plan);
    if (*out == NULL) {
        return GW_ERR_MEMORY;
    }
    ((faulty *)*out)->group = f->plan->splits;
    return GW_OK;
}

static void give_up(gw_comm *comm, const char *reason)
{
    faulty *f = (faulty *)comm;
    f->inner->table->abort(f->inner, reason);
}

static void close_all(gw_comm *comm)
{
    faulty *f = (faulty *)comm;
    f->inner->table->close(f->inner);
    gw_comm_let_go(comm);
    if (--f->plan->groups == 0) {
        while (f->plan->under_way != NULL) {
            end_of(f, f->plan->under_way);
        }
        free(f->plan);
    }
    free(f);
}

static void describe(gw_comm *comm, gw_request request, char *text, size_t size)
{
    faulty *f = (faulty *)comm;
    const operation *op = request;
    if (op->fault.kind == FAULT_STOP || f->inner->table->describe == NULL) {
        (void)snprintf(text, size, "an operation that this rank stopped at");
        return;
    }
    f->inner->table->describe(f->inner, op->inner, text, size);
}

#define FAULTY_TABLE(flags_, sums_)                                                                \
    {                                                                                              \
        .size = sizeof(gw_comm_table), .flags = (flags_), .name = "faulty",                        \
        .allgatherv = allgatherv, .alltoallv = alltoallv, .broadcast = broadcast,                  \
        .barrier = barrier, .test = test, .split = split, .abort = give_up, .close = close_all,    \
        .allreduce = (sums_), .describe = describe,                                                \
    }
static const gw_comm_table table = FAULTY_TABLE(0, NULL);
static const gw_comm_table table_unsealed = FAULTY_TABLE(GW_COMM_SEALED, NULL);
static const gw_comm_table table_engine = FAULTY_TABLE(GW_COMM_SAME_BITS, allreduce);

static gw_comm *wrap(gw_comm *inner, plan *shared)
{
    faulty *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return NULL;
    }
    shared->groups++;
    *f = (faulty){{shared->table, inner->rank, inner->ranks, NULL}, inner, shared, 0};
    return &f->comm;
}

static gw_comm *wrap_as(gw_comm *inner, fault planned, const gw_comm_table *as)
{
    plan *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return NULL;
    }
    p->fault = planned;
    p->table = as;
    gw_comm *wrapped = wrap(inner, p);
    if (wrapped == NULL) {
        free(p);
    }
    return wrapped;
}

gw_comm *faulty_wrap(gw_comm *inner, fault planned)
{
    return wrap_as(inner, planned, &table);
}

gw_comm *faulty_wrap_unsealed(gw_comm *inner, fault planned)
{
    return wrap_as(inner, planned, &table_unsealed);
}

gw_comm *faulty_wrap_engine(gw_comm *inner, fault planned)
{
    return wrap_as(inner, planned, &table_engine);
}

int faulty_struck(const gw_comm *comm)
{
    return ((const faulty *)comm)->plan->struck;
}

uint64_t faulty_operations(const gw_comm *comm)
{
    return ((const faulty *)comm)->plan->next;
}

void faulty_listen(gw_comm *comm, faulty_sent *sent, void *with)
{
    plan *p = ((faulty *)comm)->plan;
    p->sent = sent;
    p->with = with;
}
