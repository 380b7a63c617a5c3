/* Whole files in. */
#ifndef GW_FILES_READ_FILE_H
#define GW_FILES_READ_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gradwire/base.h>

typedef struct gw_file_bytes {
    uint8_t *
        data; /* aligned to 64 bytes or more; free() takes it; never NULL, also for an empty file */
    size_t size;
} gw_file_bytes;

enum { GW_FILE_WHY = 512 };

/* Reads a regular file into memory. A file that becomes shorter while it is read, a pipe, a device: an error, whose reason,
 * without the path, goes into `why`, of GW_FILE_WHY bytes. `of_pipes` is added to it if the file is a pipe. */
bool gw_file_get(const char *path, const char *of_pipes, gw_file_bytes *out, char *why);
/* The same; the reason goes into *why, behind the path. */
gw_status gw_file_open(const char *path, gw_file_bytes *out, gw_why *why);
/* Reads an open file to its end. */
bool gw_file_get_stream(int file, gw_file_bytes *out, char *why);

#endif
