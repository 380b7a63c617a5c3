/* Rates and times, as people write them. */
#ifndef GW_CLI_QUANTITY_H
#define GW_CLI_QUANTITY_H

#include <stdbool.h>
#include <stddef.h>

/* 1gbit, 200mbit, 2.5gbit, 64kbit, 9600bit, decimal: bytes a second; 0: no limit. */
bool gw_cli_rate_parse(const char *text, double *out);
/* 2s, 1ms, 50us, 300ns, 0: seconds. */
bool gw_cli_time_parse(const char *text, double *out);
/* 0.08, 5e-4, 3: finite, 0 or more, nothing behind it. */
bool gw_cli_real_parse(const char *text, double *out);

/* The same way out, to three digits: "1.01 Tbit/s", "0.95 Gbit/s", "200 Mbit/s" of bytes a second. */
void gw_cli_rate_words(double bytes_per_second, char *out, size_t size);
/* As an option takes it, to six digits: 1gbit, 2.5gbit, 200mbit. */
void gw_cli_rate_option(double bytes_per_second, char *out, size_t size);
/* "19.8 s", "92.1 ms", "3.2 h" of seconds. */
void gw_cli_time_words(double seconds, char *out, size_t size);

#endif
