/* `routes ROUTE` stands in its own file. */
#ifndef GW_CLI_ROUTES_H
#define GW_CLI_ROUTES_H

#include <gradwire/gradwire.h>

#include "cli/options.h"

/* What the steps of a route do to a tensor, on one rank. False: said. */
bool gw_cli_route_show(const gw_cli_args *args, const gw_route *route, const gw_route_job *job);

/* "cpu", "gpu,cpu": 0 if it is something else. */
uint32_t gw_cli_devices_of(const char *text);

#endif
