/* A plain MPI program that has never heard of gradwire: least squares by gradient descent, the gradient summed by
 * MPI_Allreduce, and reductions of other kinds whose results it prints bit by bit. */
#include <mpi.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 300000, ROWS = 64, STEPS = 30 };

static uint32_t state;

static float uniform(void)
{
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 16777216.0f - 0.5f;
}

/* Rank's own rows touch N / ROWS columns each, so that a step costs N products. */
static double descend(int rank, int ranks, int in_place)
{
    float *x = calloc(N, sizeof *x), *g = malloc(N * sizeof *g), *own = malloc(N * sizeof *own);
    float *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);
    double loss = 0, first = 0;
    state = 12345u + (uint32_t)rank;
    for (int i = 0; i < N; i++) {
        a[i] = 0.75f + 0.5f * (uniform() + 0.5f);
    }
    for (int i = 0; i < N; i++) {
        b[i] = a[i] * (float)sin(0.001 * i);
    }
    for (int step = 0; step < STEPS; step++) {
        double part = 0;
        for (int i = 0; i < N; i++) {
            const float off = a[i] * x[i] - b[i];
            own[i] = a[i] * off;
            part += (double)off * (double)off;
        }
        if (in_place) {
            memcpy(g, own, N * sizeof *g);
            MPI_Allreduce(MPI_IN_PLACE, g, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        } else {
            MPI_Allreduce(own, g, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        }
        MPI_Allreduce(&part, &loss, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        first = step == 0 ? loss : first;
        for (int i = 0; i < N; i++) {
            x[i] -= 0.4f * g[i] / (float)ranks;
        }
    }
    free(x);
    free(g);
    free(own);
    free(a);
    free(b);
    return loss / first;
}

static void print_bits(const char *what, const void *data, size_t bytes)
{
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    }
    printf("%s %016llx\n", what, (unsigned long long)hash);
}

/* None of these may change by a bit. */
static void others(int rank)
{
    enum { M = 400000 };
    float *f = malloc(M * sizeof *f), *r = malloc(M * sizeof *r);
    double *d = malloc(M * sizeof *d);
    int *n = malloc(M * sizeof *n);
    state = 99u + (uint32_t)rank;
    for (int i = 0; i < M; i++) {
        f[i] = uniform();
        d[i] = (double)uniform();
        n[i] = (int)(uniform() * 1e6f);
    }
    MPI_Allreduce(f, r, M, MPI_FLOAT, MPI_MIN, MPI_COMM_WORLD);
    print_bits("min", r, M * sizeof *r);
    MPI_Allreduce(f, r, M, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
    print_bits("max", r, M * sizeof *r);
    MPI_Allreduce(f, r, 1000, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    print_bits("small", r, 1000 * sizeof *r);
    MPI_Allreduce(MPI_IN_PLACE, d, M, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    print_bits("double", d, M * sizeof *d);
    MPI_Allreduce(MPI_IN_PLACE, n, M, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    print_bits("int", n, M * sizeof *n);
    free(f);
    free(r);
    free(d);
    free(n);
}

int main(int argc, char **argv)
{
    int rank = 0, ranks = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const double two = descend(rank, ranks, 0), one = descend(rank, ranks, 1);
    if (rank == 0) {
        printf("converged %d %d\n", two < 1e-4, one < 1e-4);
        fprintf(stderr, "loss fell to %.3g and, in place, %.3g of the first\n", two, one);
        others(rank);
    } else {
        FILE *null = freopen("/dev/null", "w", stdout);
        others(rank);
        (void)null;
    }
    MPI_Finalize();
    return 0;
}
