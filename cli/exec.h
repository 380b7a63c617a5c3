/* How a command runs codecs: instruction set, threads and workspace in a gw_exec. */
#ifndef GW_CLI_EXEC_H
#define GW_CLI_EXEC_H

#include <stdbool.h>

#include <gradwire/gradwire.h>

/* On false of any of these the error was said. */
bool gw_cli_exec_open(gw_isa isa, unsigned threads, gw_exec *out);
/* Sees that the workspace is large enough, and that the codec has the instruction set asked for. */
bool gw_cli_exec_fit(gw_exec *exec, const gw_params *params, gw_dtype dtype, uint64_t count,
                     bool feedback);
void gw_cli_exec_close(gw_exec *exec);

#endif
