/* The eigenvalues of a small symmetric matrix, in fp64. */
#ifndef GW_ERRORS_EIGEN_H
#define GW_ERRORS_EIGEN_H

#include <stddef.h>

/* value[0 … n−1], the largest first, of the positive semidefinite a (n × n, overwritten), to about 1e-15 of the
 * largest; never below 0. `work` has 3n. */
void gw_eigenvalues(double *a, size_t n, double *value, double *work);

#endif
