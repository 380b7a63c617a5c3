/* The MPI backend: groups, and the table's functions. */
#include "base/why.h"
#include "comm/mpi_job.h"
#include "comm/operations.h"

#include <stdlib.h>

static gw_status post(gw_comm *comm, const gw_call *call, gw_request *request, gw_why *why)
{
    gw_mpi_end *end = (gw_mpi_end *)comm;
    gw_status status = gw_mpi_listen(end->job, why);
    if (status != GW_OK) {
        return status;
    }
    gw_mpi_operation *op = gw_mpi_operation_take(end, call->operation);
    if (op == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for an operation");
    }
    status = gw_call_pieces(call, comm, op->pieces, why);
    if (status != GW_OK) {
        gw_mpi_operation_give(op);
        return status;
    }
    *request = op;
    return gw_mpi_operation_begin(op, why);
}

static gw_status test(gw_comm *comm, gw_request request, int *done, gw_why *why)
{
    gw_mpi_end *end = (gw_mpi_end *)comm;
    *done = 0;
    const gw_status status = gw_mpi_listen(end->job, why);
    return status != GW_OK ? status : gw_mpi_operation_test(request, done, why);
}

static void free_end(gw_mpi_end *end)
{
    while (end->idle != NULL) {
        gw_mpi_operation *op = end->idle;
        end->idle = op->next;
        gw_mpi_operation_free(op);
    }
    free(end->ranks);
    free(end);
}

/* Which ranks of the job the members of a group are. */
static int name_members(gw_mpi_end *end)
{
    const int ranks = (int)end->comm.ranks;
    MPI_Group here, all;
    int *members = calloc((size_t)ranks * 2, sizeof *members), *of_job = members + ranks;
    if (members == NULL) {
        return MPI_ERR_NO_MEM;
    }
    for (int i = 0; i < ranks; i++) {
        members[i] = i;
    }
    (void)MPI_Comm_group(end->mpi, &here);
    (void)MPI_Comm_group(end->job->comm, &all);
    const int code = MPI_Group_translate_ranks(here, ranks, members, all, of_job);
    for (int i = 0; i < ranks; i++) {
        end->ranks[i] = (uint32_t)of_job[i];
    }
    (void)MPI_Group_free(&here);
    (void)MPI_Group_free(&all);
    free(members);
    return code;
}

/* An end of `mpi`, which it owns from then on. NULL: no memory, or MPI does not want. */
static gw_mpi_end *make_end(gw_mpi_job *job, MPI_Comm mpi, const gw_comm_table *table)
{
    int rank = 0, ranks = 0;
    (void)MPI_Comm_rank(mpi, &rank);
    (void)MPI_Comm_size(mpi, &ranks);
    (void)MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN);
    gw_mpi_end *end = calloc(1, sizeof *end);
    uint32_t *names = calloc((size_t)ranks, sizeof *names);
    if (end == NULL || names == NULL) {
        free(end);
        free(names);
        return NULL;
    }
    end->comm = (gw_comm){table, (uint32_t)rank, (uint32_t)ranks, NULL};
    end->mpi = mpi;
    end->job = job;
    end->ranks = names;
    if (name_members(end) != MPI_SUCCESS || !gw_mpi_operations_reserve(end)) {
        free_end(end);
        return NULL;
    }
    job->groups++;
    return end;
}

typedef struct mpi_wish {
    uint32_t colour, key;
} mpi_wish;

/* MPI_Comm_split waits for all members, and for ever. So they meet first, by messages that a rank's giving up ends; and
 * what MPI then made is compared with what they asked for, since its own messages carry no seals. */
static gw_status meet(gw_comm *comm, mpi_wish *all, uint32_t colour, uint32_t key, gw_why *why)
{
    const mpi_wish mine = {colour, key};
    gw_request request = NULL;
    gw_status status = gw_comm_gather(comm, &mine, sizeof mine, all, 0, why);
    if (status == GW_OK) { /* a rank that saw a changed byte does not come to this */
        status = barrier(comm, &request, why);
    }
    return status == GW_OK ? gw_comm_wait(comm, request, 0, why) : status;
}

static int is_as_asked(const gw_mpi_end *end, const gw_mpi_end *part, const mpi_wish *all)
{
    const uint32_t own = end->comm.rank;
    uint32_t members = 0;
    for (uint32_t i = 0; i < end->comm.ranks; i++) {
        uint32_t place = 0; /* by key, then by rank */
        if (all[i].colour != all[own].colour) {
            continue;
        }
        for (uint32_t j = 0; j < end->comm.ranks; j++) {
            place += all[j].colour == all[i].colour &&
                     (all[j].key < all[i].key || (all[j].key == all[i].key && j < i));
        }
        if (place >= part->comm.ranks || part->ranks[place] != end->ranks[i]) {
            return 0;
        }
        members++;
    }
    return members == part->comm.ranks;
}

static gw_status split_as(gw_mpi_end *end, const mpi_wish *all, gw_comm **out, gw_why *why)
{
    const mpi_wish *mine = &all[end->comm.rank];
    MPI_Comm made = MPI_COMM_NULL;
    const int code = MPI_Comm_split(end->mpi, (int)mine->colour, (int)mine->key, &made);
    if (code != MPI_SUCCESS) {
        return gw_mpi_fail(end->job, code, "MPI_Comm_split", why);
    }
    gw_mpi_end *part = make_end(end->job, made, end->comm.table);
    if (part == NULL) {
        (void)MPI_Comm_free(&made);
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for a group");
    }
    if (!is_as_asked(end, part, all)) {
        gw_why reason;
        (void)gw_fail(&reason, GW_ERR_CHECKSUM,
                      "MPI_Comm_split made another group than the ranks asked for");
        return gw_mpi_lost(end->job, GW_ERR_CHECKSUM, &reason, why);
    }
    *out = &part->comm;
    return GW_OK;
}

static gw_status split(gw_comm *comm, uint32_t colour, uint32_t key, gw_comm **out, gw_why *why)
{
    gw_mpi_end *end = (gw_mpi_end *)comm;
    gw_status status = gw_mpi_listen(end->job, why);
    if (status != GW_OK) {
        return status;
    }
    if (colour > INT32_MAX || key > INT32_MAX) {
        return GW_FAIL(why, GW_ERR_RANGE, "split: colour %u, key %u: MPI's end at 2^31 - 1", colour,
                       key);
    }
    mpi_wish *all = calloc(comm->ranks, sizeof *all);
    if (all == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for a group");
    }
    status = meet(comm, all, colour, key, why);
    if (status == GW_OK) {
        status = split_as(end, all, out, why);
    }
    free(all);
    return status;
}

static void give_up(gw_comm *comm, const char *reason)
{
    gw_mpi_tell(((gw_mpi_end *)comm)->job, reason);
}

/* After a failure MPI may still hold what the operations under way name, and freeing a communicator is an
 * affair of all its members: both are left to MPI and the end of the process. */
static void close_end(gw_comm *comm)
{
    gw_mpi_end *end = (gw_mpi_end *)comm;
    gw_mpi_job *job = end->job;
    if (job->failed != GW_OK && job->end_job && end == job->whole) {
        gw_mpi_end_all(job);
    }
    if (job->failed == GW_OK) {
        (void)MPI_Comm_free(&end->mpi);
        if (--job->groups == 0) {
            (void)MPI_Comm_free(&job->comm);
            free(job);
        }
        free_end(end);
    }
}

static void describe(gw_comm *comm, gw_request request, char *text, size_t size)
{
    (void)comm;
    gw_mpi_operation_describe(request, text, size);
}

static const gw_comm_table table = {
    .size = sizeof(gw_comm_table),
    .name = "mpi",
    .allgatherv = allgatherv,
    .alltoallv = alltoallv,
    .broadcast = broadcast,
    .barrier = barrier,
    .test = test,
    .split = split,
    .abort = give_up,
    .close = close_end,
    .describe = describe,
};

gw_status gw_mpi_create(MPI_Comm parent, gw_comm **out, gw_why *why)
{
    int ready = 0, over = 0;
    if (out == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "gw_mpi_create: no place for the group");
    }
    (void)MPI_Initialized(&ready);
    (void)MPI_Finalized(&over);
    if (!ready || over) {
        return GW_FAIL(why, GW_ERR_STATE, "gw_mpi_create: before MPI_Init, or after MPI_Finalize");
    }
    gw_mpi_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for a group");
    }
    MPI_Comm whole = MPI_COMM_NULL;
    int code = MPI_Comm_dup(parent, &job->comm);
    if (code == MPI_SUCCESS) {
        (void)MPI_Comm_set_errhandler(job->comm, MPI_ERRORS_RETURN);
        (void)MPI_Comm_rank(job->comm, &job->rank);
        (void)MPI_Comm_size(job->comm, &job->ranks);
        code = MPI_Comm_dup(job->comm, &whole);
    }
    if (code != MPI_SUCCESS) {
        const gw_status status = gw_mpi_fail(job, code, "MPI_Comm_dup", why);
        free(job);
        return status;
    }
    gw_mpi_end *end = make_end(job, whole, &table);
    if (end == NULL) {
        (void)MPI_Comm_free(&whole);
        (void)MPI_Comm_free(&job->comm);
        free(job);
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for a group");
    }
    job->whole = end;
    *out = &end->comm;
    return GW_OK;
}

static int is_ours(const gw_comm *comm)
{
    return comm != NULL && comm->table == &table;
}

gw_status gw_mpi_end_job(gw_comm *comm, int yes)
{
    if (!is_ours(comm)) {
        return GW_ERR_ARG;
    }
    ((gw_mpi_end *)comm)->job->end_job = yes;
    return GW_OK;
}
