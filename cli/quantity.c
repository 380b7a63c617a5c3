/* Rates and times; see quantity.h. */
#include "quantity.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct unit {
    const char *name;
    double factor;
} unit;

/* Digits, at most one point among them, then one of the units. 0 needs none. */
static bool parse(const char *text, const unit *units, size_t n, double *out)
{
    char number[32];
    const size_t size = strspn(text, "0123456789.");
    const char *point = strchr(text, '.');
    if (size == 0 || size >= sizeof number || text[0] == '.' || text[size - 1] == '.' ||
        (point && memchr(point + 1, '.', size - (size_t)(point + 1 - text)))) {
        return false;
    }
    memcpy(number, text, size);
    number[size] = '\0';
    const double value = strtod(number, NULL);
    if (value == 0 && !text[size]) {
        *out = 0;
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        if (strcmp(text + size, units[i].name) == 0) {
            *out = value * units[i].factor;
            return true;
        }
    }
    return false;
}

bool gw_cli_rate_parse(const char *text, double *out)
{
    static const unit UNITS[] = {
        {"bit", 0.125}, {"kbit", 125}, {"mbit", 125e3}, {"gbit", 125e6}, {"tbit", 125e9}};
    return parse(text, UNITS, sizeof UNITS / sizeof UNITS[0], out);
}

bool gw_cli_time_parse(const char *text, double *out)
{
    static const unit UNITS[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
    return parse(text, UNITS, sizeof UNITS / sizeof UNITS[0], out);
}

bool gw_cli_real_parse(const char *text, double *out)
{
    char *end = NULL;
    if (text[0] == '\0' || text[strspn(text, "0123456789.eE+-")] != '\0') {
        return false; /* what strtod takes beside: blanks, hex, words */
    }
    const double value = strtod(text, &end);
    *out = value;
    return *end == '\0' && isfinite(value) && value >= 0;
}
