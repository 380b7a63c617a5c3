/* One clock for every command. */
#ifndef GW_CLI_SECONDS_H
#define GW_CLI_SECONDS_H

double gw_cli_now(void); /* monotonic, in seconds */

#endif
