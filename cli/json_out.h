/* Results as JSON on stdout. */
#ifndef GW_CLI_JSON_OUT_H
#define GW_CLI_JSON_OUT_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

/* A number; null for NaN and infinities, which JSON does not know. Whole numbers up to 2^53 are
 * written as such. */
json_t *gw_cli_json_number(double value);
json_t *gw_cli_json_count(uint64_t value);
/* Prints and releases. False if `value` is NULL: memory ran out while it was built; said. */
bool gw_cli_json_print(json_t *value);

#endif
