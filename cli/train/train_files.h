/* Files of a run folder: written whole and to the disk, or not at all. Failures are words, for all ranks to hear. */
#ifndef GW_CLI_TRAIN_FILES_H
#define GW_CLI_TRAIN_FILES_H

#include <stdbool.h>

#include <gradwire/base.h>

#include "cli/files/files.h"

/* "folder/name" into `path` of `size` bytes; too long is a failure. */
gw_status gw_cli_path(char *path, size_t size, const char *folder, const char *name, gw_why *why);
/* Makes the folder and those above it. */
gw_status gw_cli_folder_make(const char *path, gw_why *why);
/* Whether there is something in it; false if it is not there. */
bool gw_cli_folder_has_entries(const char *path);
/* A folder of plain files, with all of them; gone before is fine. */
gw_status gw_cli_folder_remove(const char *path, gw_why *why);
/* What a rename left is on the disk. */
gw_status gw_cli_folder_sync(const char *path, gw_why *why);

/* gw_cli_file_put, durable. A link that was planted is replaced, not followed. */
gw_status gw_cli_file_save(const char *path, const void *bytes, size_t size, gw_why *why);
/* Whether the folder takes a file of `size` bytes; it is gone afterwards. */
gw_status gw_cli_file_probe(const char *folder, size_t size, gw_why *why);
/* All of it; freed by the caller. */
gw_status gw_cli_file_load(const char *path, void **bytes, size_t *size, gw_why *why);

#endif
