/* Whole files in, whole files out. A path of "-" is standard input or standard output. */
#ifndef GW_CLI_FILES_H
#define GW_CLI_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "files/read_file.h"

/* Reads a regular file into memory, or for "-" standard input to its end. A file that becomes shorter
 * while it is read, a pipe, a device: an error. On false `why`, of GW_FILE_WHY bytes, has the
 * reason, without the path. */
bool gw_cli_file_get(const char *path, gw_file_bytes *out, char *why);
/* The same, and prints the error. */
bool gw_cli_file_read(const char *path, gw_file_bytes *out);
void gw_cli_bytes_free(gw_file_bytes *bytes);

enum {
    GW_CLI_DURABLE = 1, /* the file is on the disk before it is renamed, its folder afterwards */
    GW_CLI_FOLLOW = 2   /* a link stays one: what it points to is replaced; else the link is */
};

/* Writes the pieces one after the other into a temporary file beside `path` and renames it: the file
 * is there whole, or after an error as it was before. Nobody can guess the temporary's name. "-": to
 * standard output. `flags` as above, `why` as of gw_cli_file_get. */
bool gw_cli_file_put(const char *path, const struct iovec *pieces, size_t n, unsigned flags,
                     char *why);
/* The same with both flags, and prints the error. */
bool gw_cli_file_write(const char *path, const struct iovec *pieces, size_t n);
/* Makes and opens a file beside `path` that nobody has; *name is malloc'd. -1: as above. */
int gw_cli_file_temporary(const char *path, char **name, char *why);

bool gw_cli_is_stream(const char *path); /* "-" */
/* True if the path ends in `.extension`. */
bool gw_cli_has_extension(const char *path, const char *extension);

#endif
