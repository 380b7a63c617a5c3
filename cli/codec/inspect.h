/* `inspect` of a frame stands in its own file. */
#ifndef GW_CLI_INSPECT_H
#define GW_CLI_INSPECT_H

#include "cli/files/files.h"
#include "cli/options.h"

/* What is in the frame that was read from `path`; takes *file. False: said. */
bool gw_cli_inspect_frame(const gw_cli_args *args, const char *path, gw_file_bytes *file);

#endif
