/* A plain MPI program with one call of MPI_Allreduce on floats: one_sum COUNT COUNT_OF_THE_LAST_RANK. Counts that differ are
 * an error, which MPI is left to find. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank = 0, ranks = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int count = argc > 2 ? atoi(argv[rank + 1 == ranks ? 2 : 1]) : 1;
    float *x = calloc((size_t)count, sizeof *x), *y = calloc((size_t)count, sizeof *y);
    for (int i = 0; i < count; i++) {
        x[i] = 1;
    }
    MPI_Allreduce(x, y, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d: the sum is %s\n", rank, (int)y[count / 2] == ranks ? "right" : "wrong");
    free(x);
    free(y);
    MPI_Finalize();
    return 0;
}
