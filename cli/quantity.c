/* Rates and times; see quantity.h. */
#include "cli/quantity.h"

#include <math.h>
#include <stdio.h>
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

/* The largest unit of which there are at least `least`; the last of any. Units descend. */
static const unit *unit_for(double value, double least, const unit *units, size_t n)
{
    size_t i = 0;
    while (i + 1 < n && value < least * units[i].factor) {
        i++;
    }
    return &units[i];
}

/* 0.95 Gbit/s is what 1 Gbit/s delivers, and keeps its unit. */
void gw_cli_rate_words(double bytes_per_second, char *out, size_t size)
{
    static const unit UNITS[] = {
        {"Tbit/s", 125e9}, {"Gbit/s", 125e6}, {"Mbit/s", 125e3}, {"kbit/s", 125}, {"bit/s", 0.125}};
    const unit *u = unit_for(bytes_per_second, 0.9, UNITS, sizeof UNITS / sizeof UNITS[0]);
    (void)snprintf(out, size, "%.*g %s", bytes_per_second / u->factor < 999.5 ? 3 : 6,
                   bytes_per_second / u->factor, u->name);
}

void gw_cli_rate_option(double bytes_per_second, char *out, size_t size)
{
    static const unit UNITS[] = {{"gbit", 125e6}, {"mbit", 125e3}, {"kbit", 125}, {"bit", 0.125}};
    const unit *u = unit_for(bytes_per_second, 1, UNITS, sizeof UNITS / sizeof UNITS[0]);
    (void)snprintf(out, size, "%.6g%s", bytes_per_second / u->factor, u->name);
}

void gw_cli_time_words(double seconds, char *out, size_t size)
{
    static const unit UNITS[] = {{"h", 3600}, {"min", 60}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}};
    const unit *u = seconds >= 7200  ? &UNITS[0]
                    : seconds >= 120 ? &UNITS[1]
                                     : unit_for(seconds, 0.9995, UNITS + 2, 3);
    const double value = seconds / u->factor;
    (void)snprintf(out, size, "%.*g %s", value < 999.5 ? 3 : 6, value, u->name);
}
