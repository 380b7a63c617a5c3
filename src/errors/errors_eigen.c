/* Householder's reflections make the matrix tridiagonal, Sturm's count of signs says how many eigenvalues lie below a
 * number, and bisection finds each: no iteration that might not converge, and no LAPACK. */
#include "errors/errors_eigen.h"

#include <float.h>
#include <math.h>

static double dot(const double *a, const double *b, size_t n)
{
    double lane[4] = {0};
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        for (size_t j = 0; j < 4; j++) {
            lane[j] += a[i + j] * b[i + j];
        }
    }
    for (; i < n; i++) {
        lane[0] += a[i] * b[i];
    }
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

/* Reflects row k behind its diagonal onto one number, which it returns, and the rest of the matrix with it. The row
 * then holds the reflection's vector v. `p` has n. */
static double reflect(double *a, size_t n, size_t k, double *p)
{
    double *v = a + k * n;
    const double head = v[k + 1], rest = dot(v + k + 2, v + k + 2, n - k - 2);
    if (rest == 0) {
        return head;
    }
    const double length = sqrt(head * head + rest), made = head > 0 ? -length : length;
    v[k + 1] = head - made;
    const double beta = 2 / (v[k + 1] * v[k + 1] + rest);
    for (size_t i = k + 1; i < n; i++) {
        p[i] = beta * dot(a + i * n + k + 1, v + k + 1, n - k - 1);
    }
    const double half = beta / 2 * dot(p + k + 1, v + k + 1, n - k - 1);
    for (size_t i = k + 1; i < n; i++) {
        p[i] -= half * v[i];
    }
    for (size_t i = k + 1; i < n; i++) {
        for (size_t j = k + 1; j < n; j++) {
            a[i * n + j] -= v[i] * p[j] + p[i] * v[j];
        }
    }
    return made;
}

/* How many eigenvalues of the tridiagonal matrix are below x. */
static size_t below(const double *diagonal, const double *beside_squared, size_t n, double x)
{
    size_t count = 0;
    double q = 1;
    for (size_t i = 0; i < n; i++) {
        q = diagonal[i] - x - (i > 0 ? beside_squared[i - 1] / q : 0);
        q = fabs(q) < DBL_MIN ? -DBL_MIN : q;
        count += q < 0;
    }
    return count;
}

void gw_eigenvalues(double *a, size_t n, double *value, double *work)
{
    double *diagonal = work, *beside = work + n, *p = work + 2 * n;
    double bound = 0;
    for (size_t k = 0; k < n; k++) {
        beside[k] = k + 2 < n ? reflect(a, n, k, p) : k + 2 == n ? a[k * n + k + 1] : 0;
        diagonal[k] = a[k * n + k];
        const double radius = fabs(beside[k]) + (k > 0 ? fabs(beside[k - 1]) : 0);
        bound = fmax(bound, diagonal[k] + radius);
    }
    for (size_t k = 0; k < n; k++) {
        beside[k] *= beside[k];
    }
    for (size_t i = 0; i < n; i++) { /* the i-th largest has n − 1 − i below it */
        double low = 0, high = i == 0 ? bound : value[i - 1];
        for (int step = 0; step < 64 && low < high; step++) {
            const double middle = low + (high - low) / 2;
            if (below(diagonal, beside, n, middle) <= n - 1 - i) {
                low = middle;
            } else {
                high = middle;
            }
        }
        value[i] = low;
    }
}
