/* Operations of the MPI backend: an exchange of pieces is its receives and sends, all posted at once. Over
 * TCP that keeps every link busy both ways, which exchanges in pairs do not. */
#include "base/why.h"
#include "comm/mpi_job.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LARGEST = 1 << 30, /* bytes of one MPI message: counts are ints */
    TAGS = 32000, /* operations are told apart by number modulo this; MPI promises 32767 tags */
};

static gw_mpi_operation *new_operation(gw_mpi_end *end)
{
    gw_mpi_operation *op = calloc(1, sizeof *op);
    gw_piece *pieces = calloc(end->comm.ranks, sizeof *pieces);
    if (op == NULL || pieces == NULL) {
        free(op);
        free(pieces);
        return NULL;
    }
    op->end = end;
    op->pieces = pieces;
    return op;
}

gw_mpi_operation *gw_mpi_operation_take(gw_mpi_end *end, gw_operation operation)
{
    gw_mpi_operation *op = end->idle;
    if (op != NULL) {
        end->idle = op->next;
    } else if ((op = new_operation(end)) == NULL) {
        return NULL;
    }
    op->operation = operation;
    op->messages = op->finished = 0;
    return op;
}

void gw_mpi_operation_give(gw_mpi_operation *op)
{
    op->next = op->end->idle;
    op->end->idle = op;
}

void gw_mpi_operation_free(gw_mpi_operation *op)
{
    free(op->pieces);
    free(op->requests);
    free(op->about);
    free(op);
}

static size_t messages_of(const gw_mpi_operation *op, size_t bytes)
{
    if (bytes == 0) {
        return op->operation == GW_BARRIER;
    }
    return (bytes - 1) / LARGEST + 1;
}

/* 0: no memory, or too many. */
static int make_room_for(gw_mpi_operation *op, size_t wanted)
{
    if (wanted == 0 || wanted > INT_MAX || wanted <= (size_t)op->room) {
        return wanted <= INT_MAX;
    }
    free(op->requests);
    free(op->about);
    op->room = 0;
    op->requests = calloc(wanted, sizeof(MPI_Request));
    op->about = calloc(wanted, sizeof(gw_mpi_message));
    if (op->requests == NULL || op->about == NULL) {
        return 0;
    }
    op->room = (int)wanted;
    return 1;
}

static int make_room(gw_mpi_operation *op)
{
    size_t wanted = 0;
    for (uint32_t i = 0; i < op->end->comm.ranks; i++) {
        wanted += messages_of(op, op->pieces[i].sent) + messages_of(op, op->pieces[i].received);
    }
    return make_room_for(op, wanted);
}

int gw_mpi_operations_reserve(gw_mpi_end *end)
{
    for (int i = 0; i < GW_COMM_AT_ONCE; i++) {
        gw_mpi_operation *op = new_operation(end);
        if (op == NULL) {
            return 0;
        }
        gw_mpi_operation_give(op);
        if (!make_room_for(op, 2 * (size_t)end->comm.ranks)) {
            return 0;
        }
    }
    return 1;
}

/* All messages of one piece, in or out. MPI keeps those of one pair and tag in order. */
static int post_piece(gw_mpi_operation *op, uint32_t member, int incoming)
{
    const gw_piece *piece = &op->pieces[member];
    const size_t bytes = incoming ? piece->received : piece->sent;
    const int tag = 1 + (int)(op->number % TAGS), peer = (int)member;
    size_t at = 0;
    for (size_t n = messages_of(op, bytes); n > 0; n--) {
        const int part = bytes - at < LARGEST ? (int)(bytes - at) : LARGEST;
        MPI_Request *request = &op->requests[op->messages];
        const int code = incoming ? MPI_Irecv(part > 0 ? piece->to + at : NULL, part, MPI_BYTE,
                                              peer, tag, op->end->mpi, request)
                                  : MPI_Isend(part > 0 ? piece->from + at : NULL, part, MPI_BYTE,
                                              peer, tag, op->end->mpi, request);
        if (code != MPI_SUCCESS) {
            return code;
        }
        op->about[op->messages++] = (gw_mpi_message){member, incoming, part};
        at += (size_t)part;
    }
    return MPI_SUCCESS;
}

gw_status gw_mpi_operation_begin(gw_mpi_operation *op, gw_why *why)
{
    gw_mpi_end *end = op->end;
    const uint32_t own = end->comm.rank, ranks = end->comm.ranks;
    if (!make_room(op)) {
        gw_mpi_operation_give(op);
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for an operation of %u ranks", ranks);
    }
    op->number = end->next++;
    op->next = end->job->under_way;
    end->job->under_way = op;
    int code = MPI_SUCCESS;
    for (uint32_t i = 1; i < ranks && code == MPI_SUCCESS; i++) {
        code = post_piece(op, (own + ranks - i) % ranks, 1);
    }
    for (uint32_t i = 1; i < ranks && code == MPI_SUCCESS; i++) {
        code = post_piece(op, (own + i) % ranks, 0);
    }
    if (code != MPI_SUCCESS) {
        return gw_mpi_fail(end->job, code, "MPI_Isend or MPI_Irecv", why);
    }
    const gw_piece *mine = &op->pieces[own]; /* while the others are on their way */
    if (mine->sent != 0 && mine->from != mine->to) {
        memcpy(mine->to, mine->from, mine->sent);
    }
    return GW_OK;
}

static gw_status check_message(gw_mpi_operation *op, const gw_mpi_message *m, int code,
                               const MPI_Status *status, gw_why *why)
{
    const gw_mpi_end *end = op->end;
    int class = MPI_SUCCESS, count = m->bytes;
    if (code != MPI_SUCCESS) {
        (void)MPI_Error_class(code, &class);
    } else if (m->incoming) {
        (void)MPI_Get_count(status, MPI_BYTE, &count);
    }
    gw_why reason;
    if (class == MPI_ERR_TRUNCATE || count != m->bytes) {
        (void)gw_fail(&reason, GW_ERR_DISAGREE,
                      "operation %llu (%s): rank %u receives %d bytes from rank %u, which sends %s",
                      (unsigned long long)op->number, gw_operation_name(op->operation),
                      end->ranks[end->comm.rank], m->bytes, end->ranks[m->member],
                      count < m->bytes ? "fewer" : "more");
        return gw_mpi_lost(end->job, GW_ERR_DISAGREE, &reason, why);
    }
    return class == MPI_SUCCESS ? GW_OK : gw_mpi_fail(end->job, code, "MPI_Test", why);
}

static void take_off(gw_mpi_operation *op)
{
    gw_mpi_operation **link = &op->end->job->under_way;
    while (*link != op) {
        link = &(*link)->next;
    }
    *link = op->next;
}

/* One after the other, up to the first that is not through: any call of MPI's moves all of them. */
gw_status gw_mpi_operation_test(gw_mpi_operation *op, int *done, gw_why *why)
{
    for (; op->finished < op->messages; op->finished++) {
        int through = 0;
        MPI_Status status;
        const int code = MPI_Test(&op->requests[op->finished], &through, &status);
        if (code == MPI_SUCCESS && !through) {
            return GW_OK;
        }
        const gw_status found = check_message(op, &op->about[op->finished], code, &status, why);
        if (found != GW_OK) {
            return found;
        }
    }
    *done = 1;
    take_off(op);
    gw_mpi_operation_give(op);
    return GW_OK;
}

static int is_missing(const gw_mpi_operation *op, uint32_t member, int incoming)
{
    for (int i = op->finished; i < op->messages; i++) {
        int through = 1;
        if (op->about[i].member == member && op->about[i].incoming == incoming) {
            (void)MPI_Request_get_status(op->requests[i], &through, MPI_STATUS_IGNORE);
        }
        if (!through) {
            return 1;
        }
    }
    return 0;
}

void gw_mpi_operation_describe(const gw_mpi_operation *op, char *text, size_t size)
{
    gw_rank_list received = {0}, sent = {0};
    for (uint32_t i = 0; i < op->end->comm.ranks; i++) {
        if (is_missing(op, i, 1)) {
            gw_rank_list_add(&received, op->end->ranks[i]);
        }
        if (is_missing(op, i, 0)) {
            gw_rank_list_add(&sent, op->end->ranks[i]);
        }
    }
    (void)snprintf(text, size, "operation %llu (%s):", (unsigned long long)op->number,
                   gw_operation_name(op->operation));
    gw_rank_list_say(&received, " not received from", text, size);
    gw_rank_list_say(&sent, received.n != 0 ? "; not sent to" : " not sent to", text, size);
}
