/* A plain MPI program that needs exact sums: conjugate gradients in fp32. Every rank holds all of x, r and p, multiplies
 * its own rows of the matrix by p, and MPI_Allreduce puts the product together: each element is a number of one rank
 * plus zeros. The solver stops when the residual that it updates is small. It then prints this residual, the true one,
 * b - A x, and a hash of x. docs/mpi.md shows what a codec does to it. */
#include <mpi.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 300000, MOST = 200 };

static const double TOLERANCE = 1e-4;

/* Row i of a symmetric matrix with three diagonals, whose eigenvalues are between 1 and 4. */
static double row_times(const float *x, int i)
{
    const double diagonal = 2.5 + 0.5 * sin(0.001 * i);
    const double left = i > 0 ? (double)x[i - 1] : 0, right = i + 1 < N ? (double)x[i + 1] : 0;
    return diagonal * (double)x[i] - 0.5 * (left + right);
}

static double right_side(int i)
{
    return 1 + 0.5 * cos(0.0003 * i);
}

static double dot(const float *a, const float *b)
{
    double sum = 0;
    for (int i = 0; i < N; i++) {
        sum += (double)a[i] * (double)b[i];
    }
    return sum;
}

/* q = A p; each rank computes its own rows. */
static void multiply(const float *p, float *own, float *q, int rank, int ranks)
{
    const int from = (int)((int64_t)N * rank / ranks);
    const int to = (int)((int64_t)N * (rank + 1) / ranks);
    for (int i = 0; i < N; i++) {
        own[i] = i >= from && i < to ? (float)row_times(p, i) : 0;
    }
    MPI_Allreduce(own, q, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static double true_residual(const float *x)
{
    double off = 0, whole = 0;
    for (int i = 0; i < N; i++) {
        const double b = right_side(i), r = b - row_times(x, i);
        off += r * r;
        whole += b * b;
    }
    return sqrt(off / whole);
}

static uint64_t hash(const float *x)
{
    const unsigned char *bytes = (const unsigned char *)x;
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < N * sizeof *x; i++) {
        h = (h ^ bytes[i]) * 1099511628211u;
    }
    return h;
}

int main(int argc, char **argv)
{
    int rank = 0, ranks = 0, steps = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    float *all = calloc((size_t)5 * N, sizeof *all);
    float *x = all, *r = x + N, *p = r + N, *own = p + N, *q = own + N;
    for (int i = 0; i < N; i++) {
        r[i] = p[i] = (float)right_side(i);
    }
    const double first = dot(r, r);
    double square = first;
    while (sqrt(square / first) > TOLERANCE && steps < MOST) {
        multiply(p, own, q, rank, ranks);
        const double alpha = square / dot(p, q);
        for (int i = 0; i < N; i++) {
            x[i] += (float)(alpha * (double)p[i]);
            r[i] -= (float)(alpha * (double)q[i]);
        }
        const double before = square;
        square = dot(r, r);
        for (int i = 0; i < N; i++) {
            p[i] = r[i] + (float)(square / before) * p[i];
        }
        steps++;
    }
    if (rank == 0) {
        printf("CG: %d iterations, its own residual %.2e, true residual %.2e\n", steps,
               sqrt(square / first), true_residual(x));
        printf("x %016llx\n", (unsigned long long)hash(x));
    }
    free(all);
    MPI_Finalize();
    return 0;
}
