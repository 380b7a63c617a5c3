/* Whole files in, whole files out. */
#ifndef GW_CLI_FILES_H
#define GW_CLI_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

typedef struct gw_cli_map {
    uint8_t *data; /* never to be written; never NULL, also for an empty file */
    size_t size;
} gw_cli_map;

/* Maps a regular file. Says what went wrong and returns false if it cannot. */
bool gw_cli_map_open(const char *path, gw_cli_map *out);
void gw_cli_map_close(gw_cli_map *map);

/* Writes the pieces one after the other into a temporary file beside `path` and then renames it:
 * the file is there whole, or (after an error, which is said) as it was before. */
bool gw_cli_file_write(const char *path, const struct iovec *pieces, size_t n);

/* True if the path ends in `.extension`. */
bool gw_cli_has_extension(const char *path, const char *extension);

#endif
