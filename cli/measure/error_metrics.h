/* How far decoded numbers are from the original ones. */
#ifndef GW_CLI_ERROR_METRICS_H
#define GW_CLI_ERROR_METRICS_H

#include <stdbool.h>

#include <gradwire/gradwire.h>

/* Sums over elements in their order, in double: of (x - y)^2, x^2, y^2 and x*y. */
typedef struct gw_cli_damage {
    double error, original, decoded, product;
} gw_cli_damage;

/* Adds all elements of two tensors of the same dtype and count. False: said. */
bool gw_cli_damage_add(gw_cli_damage *sums, const gw_tensor *original, const gw_tensor *decoded);
void gw_cli_damage_join(gw_cli_damage *sums, const gw_cli_damage *more);

/* |x - y|^2 / |x|^2, and the cosine of the angle between x and y. Zeros that are reproduced count
 * as perfect: 0 and 1. NaN or infinite where there is no answer. */
double gw_cli_rel_error(const gw_cli_damage *sums);
double gw_cli_cosine(const gw_cli_damage *sums);

#endif
