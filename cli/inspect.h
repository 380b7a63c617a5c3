/* `inspect` of a frame stands in its own file. */
#ifndef GW_CLI_INSPECT_H
#define GW_CLI_INSPECT_H

#include "options.h"

/* What is in the frame at `path`. False: said. */
bool gw_cli_inspect_frame(const gw_cli_args *args, const char *path);

#endif
