/* The preload's settings. They come from the environment, as nothing else reaches a program that does not know of
 * gradwire. */
#ifndef GW_PMPI_SETTINGS_H
#define GW_PMPI_SETTINGS_H

#include <gradwire/gradwire.h>

#include <stdint.h>

typedef struct gw_pmpi_settings {
    int on; /* 0: no codec is named, and every call passes; all else is unset then */
    gw_params params;
    int usual; /* no route is named: the usual one for the communicator's nodes */
    gw_route route;
    uint64_t least; /* bytes from which a sum is compressed */
    double timeout; /* seconds, of one sum */
    int verbose;
} gw_pmpi_settings;

/* On an error *name is the variable that is wrong. */
gw_status gw_pmpi_settings_read(gw_pmpi_settings *out, const char **name, gw_why *why);
/* One line on stderr: what is compressed from now on, or how to turn it on. */
void gw_pmpi_settings_say(const gw_pmpi_settings *settings);

#endif
