/* A plain MPI program with four threads, each of which sums on a communicator of its own, several sizes in turn. The sums
 * are of whole numbers, so that they are exact in any order. MPI is started by PMPI_Init_thread, which no preload sees: the
 * preload's set-up then happens in the first sum, in all threads at once. */
#include <mpi.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, ROUNDS = 6, SIZES = 3, MOST = 400000 };

static const int sizes[SIZES] = {300000, MOST, 270001};

typedef struct job {
    MPI_Comm comm;
    int number, wrong;
} job;

static void *work(void *argument)
{
    job *j = argument;
    int rank = 0, ranks = 0;
    (void)MPI_Comm_rank(j->comm, &rank);
    (void)MPI_Comm_size(j->comm, &ranks);
    float *x = malloc(MOST * sizeof *x), *y = malloc(MOST * sizeof *y);
    for (int round = 0; round < ROUNDS; round++) {
        const int n = sizes[(round + j->number) % SIZES];
        for (int i = 0; i < n; i++) {
            x[i] = (float)((i + 7 * rank + round) % 1000 + 1000 * j->number);
        }
        (void)MPI_Allreduce(x, y, n, MPI_FLOAT, MPI_SUM, j->comm);
        for (int i = 0; i < n; i++) {
            float sum = 0;
            for (int r = 0; r < ranks; r++) {
                sum += (float)((i + 7 * r + round) % 1000 + 1000 * j->number);
            }
            j->wrong += y[i] != sum;
        }
    }
    free(x);
    free(y);
    return NULL;
}

int main(int argc, char **argv)
{
    int level = 0, rank = 0, wrong = 0;
    job jobs[THREADS];
    pthread_t threads[THREADS];
    PMPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (level < MPI_THREAD_MULTIPLE) {
        printf("skip: this MPI has no MPI_THREAD_MULTIPLE\n");
        MPI_Finalize();
        return 0;
    }
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job){.number = i};
        MPI_Comm_dup(MPI_COMM_WORLD, &jobs[i].comm);
    }
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, work, &jobs[i]) != 0) {
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
        wrong += jobs[i].wrong;
        MPI_Comm_free(&jobs[i].comm);
    }
    printf("rank %d: %d wrong numbers\n", rank, wrong);
    MPI_Finalize();
    return wrong != 0;
}
