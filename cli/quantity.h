/* Rates and times, as people write them. */
#ifndef GW_CLI_QUANTITY_H
#define GW_CLI_QUANTITY_H

#include <stdbool.h>

/* 1gbit, 200mbit, 2.5gbit, 64kbit, 9600bit, decimal: bytes a second; 0: no limit. */
bool gw_cli_rate_parse(const char *text, double *out);
/* 2s, 1ms, 50us, 300ns, 0: seconds. */
bool gw_cli_time_parse(const char *text, double *out);
/* 0.08, 5e-4, 3: finite, 0 or more, nothing behind it. */
bool gw_cli_real_parse(const char *text, double *out);

#endif
