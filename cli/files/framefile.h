/* A .gw file, checked and listed. */
#ifndef GW_CLI_FRAMEFILE_H
#define GW_CLI_FRAMEFILE_H

#include <gradwire/gradwire.h>

#include "cli/files/files.h"

typedef struct gw_cli_frame {
    gw_file_bytes file;
    gw_frame_info info;
    gw_segment *segments; /* info.segments of them; names lie in the file */
} gw_cli_frame;

/* The first bytes are a frame's. */
bool gw_cli_frame_is(const gw_file_bytes *file);
/* The frame may decode to max_bytes, as gw_frame_open_limited has it. On false the error was said. */
bool gw_cli_frame_open(const char *path, uint64_t max_bytes, gw_cli_frame *out);
/* The same of bytes that were read; takes *file in any case. `path` is for messages. */
bool gw_cli_frame_take(const char *path, uint64_t max_bytes, gw_file_bytes *file,
                       gw_cli_frame *out);
void gw_cli_frame_close(gw_cli_frame *frame);

#endif
