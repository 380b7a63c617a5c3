/* Inside the MPI backend. */
#ifndef GW_COMM_MPI_JOB_H
#define GW_COMM_MPI_JOB_H

#include "comm/pieces.h"

#include <gradwire/mpi.h>

typedef struct gw_mpi_end gw_mpi_end;

/* One message, or a part of one that is too large for MPI's int. */
typedef struct gw_mpi_message {
    uint32_t member;
    int incoming, bytes;
} gw_mpi_message;

/* An operation under way, or kept for the next. */
typedef struct gw_mpi_operation {
    struct gw_mpi_operation *next;
    gw_mpi_end *end;
    gw_operation operation;
    uint64_t number;
    gw_piece *pieces;      /* one a member */
    MPI_Request *requests; /* these two: `messages` of them, room for `room` */
    gw_mpi_message *about;
    int messages, room;
    int finished; /* the first so many are; of the others nobody has asked */
} gw_mpi_operation;

/* What a group and those split from it share: they fail together. */
typedef struct gw_mpi_job {
    MPI_Comm comm; /* for word of an abort, nothing else */
    int rank, ranks;
    uint32_t groups, tests;
    int end_job;       /* closing `whole` after a failure ends it */
    gw_mpi_end *whole; /* what gw_mpi_create made */
    gw_status failed;  /* GW_OK, or why nothing works any more */
    gw_why why;
    gw_why reason;     /* what this rank tells the others */
    MPI_Request *word; /* on its way to them, NULL: nothing was told */
    gw_mpi_operation *under_way;
} gw_mpi_job;

struct gw_mpi_end {
    gw_comm comm;
    MPI_Comm mpi;
    gw_mpi_job *job;
    uint64_t next;   /* number of the next operation */
    uint32_t *ranks; /* of the job */
    gw_mpi_operation *idle;
};

gw_status gw_mpi_fail(gw_mpi_job *job, int code, const char *call, gw_why *why);
/* The first failure is kept. Receives that nothing has come for are called off. */
gw_status gw_mpi_lost(gw_mpi_job *job, gw_status status, const gw_why *reason, gw_why *why);

/* Operations that exchanges can have under way at once, each with room for a message to and from every rank: posting
 * allocates nothing but for messages above 1 GiB. 0: no memory. */
int gw_mpi_operations_reserve(gw_mpi_end *end);
/* An operation to fill in; NULL: no memory. */
gw_mpi_operation *gw_mpi_operation_take(gw_mpi_end *end, gw_operation operation);
void gw_mpi_operation_give(gw_mpi_operation *op); /* back: it is over, or was not begun */
void gw_mpi_operation_free(gw_mpi_operation *op);
gw_status gw_mpi_operation_begin(gw_mpi_operation *op, gw_why *why);
gw_status gw_mpi_operation_test(gw_mpi_operation *op, int *done, gw_why *why);
void gw_mpi_operation_describe(const gw_mpi_operation *op, char *text, size_t size);

/* Has somebody given up? */
gw_status gw_mpi_listen(gw_mpi_job *job, gw_why *why);
void gw_mpi_tell(gw_mpi_job *job, const char *reason);
/* After a failure: MPI_Abort, when the other ranks have come as far or did not in time, so that each can report first. */
void gw_mpi_end_all(gw_mpi_job *job);

#endif
