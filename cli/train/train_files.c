/* Files of a run folder; see train_files.h. */
#include "cli/train/train_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/train/train_record.h"
#include "cli/train/train_run.h"

/* The end of a long path says more than its beginning. */
static gw_status fail(gw_why *why, const char *path, const char *what, int error)
{
    const size_t size = strlen(path), most = 150;
    return gw_cli_train_fail(why, GW_ERR_SYSTEM, "%s%s: %s: %s", size > most ? "..." : "",
                             path + (size > most ? size - most : 0), what, strerror(error));
}

gw_status gw_cli_path(char *path, size_t size, const char *folder, const char *name, gw_why *why)
{
    const int length = snprintf(path, size, "%s/%s", folder, name);
    return length >= 0 && (size_t)length < size
               ? GW_OK
               : gw_cli_train_fail(why, GW_ERR_RANGE, "%.100s...: the path is too long", folder);
}

/* ---- folders ---- */

gw_status gw_cli_folder_make(const char *path, gw_why *why)
{
    char part[GW_CLI_RUN_PATH];
    struct stat stat_of;
    const size_t size = strlen(path);
    if (size == 0 || size >= sizeof part) {
        return gw_cli_train_fail(why, GW_ERR_RANGE, "a folder's name has 1 to %zu characters",
                                 sizeof part - 1);
    }
    memcpy(part, path, size + 1);
    for (size_t i = 1; i <= size; i++) {
        if (part[i] != '/' && part[i] != '\0') {
            continue;
        }
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST) {
            return fail(why, part, "cannot make this folder", errno);
        }
        part[i] = i < size ? '/' : '\0';
    }
    if (stat(path, &stat_of) != 0 || !S_ISDIR(stat_of.st_mode)) {
        return fail(why, path, "cannot make this folder", ENOTDIR);
    }
    return GW_OK;
}

static bool is_entry(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

bool gw_cli_folder_has_entries(const char *path)
{
    bool found = false;
    DIR *folder = opendir(path);
    for (struct dirent *e = folder ? readdir(folder) : NULL; e && !found; e = readdir(folder)) {
        found = is_entry(e);
    }
    if (folder) {
        (void)closedir(folder);
    }
    return found;
}

gw_status gw_cli_folder_remove(const char *path, gw_why *why)
{
    DIR *folder = opendir(path);
    if (!folder) {
        return errno == ENOENT ? GW_OK : fail(why, path, "cannot be removed", errno);
    }
    gw_status status = GW_OK;
    for (struct dirent *e = readdir(folder); e && status == GW_OK; e = readdir(folder)) {
        if (is_entry(e) && unlinkat(dirfd(folder), e->d_name, 0) != 0) {
            status = fail(why, path, "cannot be emptied", errno);
        }
    }
    (void)closedir(folder);
    if (status == GW_OK && rmdir(path) != 0) {
        status = fail(why, path, "cannot be removed", errno);
    }
    return status;
}

gw_status gw_cli_folder_sync(const char *path, gw_why *why)
{
    const int file = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0) {
        return fail(why, path, "cannot open", errno);
    }
    /* some file systems know no such thing */
    const int error = fsync(file) != 0 && errno != EINVAL ? errno : 0;
    (void)close(file);
    return error == 0 ? GW_OK : fail(why, path, "cannot write", error);
}

/* ---- files ---- */

/* In the words of files.c. */
static gw_status said(gw_why *why, const char *path, const char *reason)
{
    const size_t size = strlen(path), most = 110;
    return gw_cli_train_fail(why, GW_ERR_SYSTEM, "%s%s: %.130s", size > most ? "..." : "",
                             path + (size > most ? size - most : 0), reason);
}

gw_status gw_cli_file_save(const char *path, const void *bytes, size_t size, gw_why *why)
{
    char reason[GW_FILE_WHY];
    const struct iovec whole = {(void *)bytes, size};
    return gw_cli_file_put(path, &whole, 1, GW_CLI_DURABLE, reason) ? GW_OK
                                                                    : said(why, path, reason);
}

gw_status gw_cli_file_probe(const char *folder, size_t size, gw_why *why)
{
    char path[GW_CLI_RUN_PATH], reason[GW_FILE_WHY], *name = NULL;
    const gw_status status = gw_cli_path(path, sizeof path, folder, "probe", why);
    if (status != GW_OK) {
        return status;
    }
    const int file = gw_cli_file_temporary(path, &name, reason);
    if (file < 0) {
        return said(why, folder, reason);
    }
    const int error = posix_fallocate(file, 0, (off_t)size);
    (void)close(file);
    (void)unlink(name);
    free(name);
    if (error == 0) {
        return GW_OK;
    }
    char what[64];
    (void)snprintf(what, sizeof what, "no room for checkpoints, %.1f MB", 1e-6 * (double)size);
    return fail(why, folder, what, error);
}

gw_status gw_cli_file_load(const char *path, void **bytes, size_t *size, gw_why *why)
{
    char reason[GW_FILE_WHY];
    gw_file_bytes all;
    if (!gw_cli_file_get(path, &all, reason)) {
        return said(why, path, reason);
    }
    *bytes = all.data;
    *size = all.size;
    return GW_OK;
}
