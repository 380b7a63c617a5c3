/* Preloaded before libgradwire_pmpi: on rank 1 it changes a bit of the first large message, or does not send it.
 * BAD_WIRE=flip|lose; anything else: nothing. */
#include <mpi.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 10000 };

static atomic_int messages;

int MPI_Isend(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    int rank = 0;
    const char *how = getenv("BAD_WIRE");
    (void)PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (how == NULL || type != MPI_BYTE || count < LARGE || rank != 1 ||
        atomic_fetch_add(&messages, 1) != 0) {
        return PMPI_Isend(buffer, count, type, to, tag, comm, request);
    }
    if (strcmp(how, "lose") == 0) {
        *request = MPI_REQUEST_NULL;
        return MPI_SUCCESS;
    }
    char *copy = malloc((size_t)count); /* lives as long as the message, so it is not freed */
    memcpy(copy, buffer, (size_t)count);
    copy[count / 2] = (char)(copy[count / 2] ^ (strcmp(how, "flip") == 0 ? 4 : 0));
    return PMPI_Isend(copy, count, type, to, tag, comm, request);
}
