/* Law 7 on MPI: seals.h under mpirun. */
#include "coll/seals.h"

#include "support/ranks.h"

#include <gradwire/mpi.h>

#include <stdio.h>

static void by_mpi(const seals_job *job, seals_result results[SEALS_RANKS])
{
    gw_comm *comm = NULL;
    gw_why why = {""};
    int rank = 0;
    seals_result mine;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    RANK_OK(gw_mpi_create(MPI_COMM_WORLD, &comm, &why), why.text);
    seals_rank(job, (uint32_t)rank, comm, &mine);
    MPI_Allgather(&mine, (int)sizeof mine, MPI_BYTE, results, (int)sizeof mine, MPI_BYTE,
                  MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int level = 0, rank = 0, count = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    RANK_TRUE(count == SEALS_RANKS && level >= MPI_THREAD_SERIALIZED, "four ranks");
    seals_check(&(seals_engine){"mpi", by_mpi, rank == 0, 1});
    MPI_Finalize();
    return 0;
}
