/* Preloaded into an MPI program: flips one bit of one message that gradwire sends, and lets rank 0 hear late that another rank
 * gave up. Environment: FLIP_FROM, FLIP_TO (ranks), FLIP_LEAST (bytes), FLIP_AT (which of the messages that are like this, from
 * 0). It prints "flip: N bytes" on stderr. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int number(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : -1;
}

static int own_rank(void)
{
    int rank = -1;
    (void)PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

static int rank_of_job(MPI_Comm comm, int rank)
{
    MPI_Group here, all;
    int of_job = -1;
    (void)MPI_Comm_group(comm, &here);
    (void)MPI_Comm_group(MPI_COMM_WORLD, &all);
    (void)MPI_Group_translate_ranks(here, 1, &rank, all, &of_job);
    (void)MPI_Group_free(&here);
    (void)MPI_Group_free(&all);
    return of_job;
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    static int like_this;
    if (type != MPI_BYTE || count <= 0 || count < number("FLIP_LEAST") ||
        own_rank() != number("FLIP_FROM") || rank_of_job(comm, to) != number("FLIP_TO") ||
        like_this++ != number("FLIP_AT")) {
        return PMPI_Isend(data, count, type, to, tag, comm, request);
    }
    unsigned char *copy = malloc((size_t)count); /* MPI reads it until the end: it is never freed */
    if (copy == NULL) {
        return MPI_ERR_NO_MEM;
    }
    memcpy(copy, data, (size_t)count);
    copy[count / 2] ^= 0x10;
    (void)fprintf(stderr, "flip: %d bytes\n", count);
    return PMPI_Isend(copy, count, type, to, tag, comm, request);
}

/* gradwire asks with tag 0 whether a rank gave up. */
int MPI_Iprobe(int from, int tag, MPI_Comm comm, int *there, MPI_Status *status)
{
    enum { LATE = 100 };
    static int withheld;
    const int code = PMPI_Iprobe(from, tag, comm, there, status);
    if (code == MPI_SUCCESS && *there && tag == 0 && own_rank() == 0 && withheld++ < LATE) {
        *there = 0;
    }
    return code;
}
