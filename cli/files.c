/* Files; see files.h. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "say.h"

static bool fail(const char *path, const char *what)
{
    gw_cli_error("%s: %s: %s", path, what, strerror(errno));
    return false;
}

bool gw_cli_map_open(const char *path, gw_cli_map *out)
{
    struct stat stat;
    bool fine = false;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return fail(path, "cannot open");
    }
    if (fstat(file, &stat) != 0) {
        (void)fail(path, "cannot look at");
    } else if (!S_ISREG(stat.st_mode)) {
        gw_cli_error("%s: not a regular file", path);
    } else if (stat.st_size == 0) { /* which mmap refuses */
        *out = (gw_cli_map){(uint8_t *)"", 0};
        fine = true;
    } else {
        void *data = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        fine = data != MAP_FAILED || fail(path, "cannot map");
        if (fine) {
            *out = (gw_cli_map){data, (size_t)stat.st_size};
        }
    }
    (void)close(file);
    return fine;
}

void gw_cli_map_close(gw_cli_map *map)
{
    if (map->size > 0) {
        (void)munmap(map->data, map->size);
    }
    *map = (gw_cli_map){0};
}

static bool write_all(int file, const uint8_t *data, size_t size)
{
    while (size > 0) {
        ssize_t done = write(file, data, size);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return false;
        }
        data += done;
        size -= (size_t)done;
    }
    return true;
}

static bool write_pieces(int file, const struct iovec *pieces, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!write_all(file, pieces[i].iov_base, pieces[i].iov_len)) {
            return false;
        }
    }
    return true;
}

/* What to rename to: the file a link points to, not the link. Anything that is there and is not a
 * regular file is refused, since a rename would put a file in place of a device. malloc'd. */
static char *resolve(const char *path)
{
    struct stat stat;
    if (lstat(path, &stat) != 0) {
        return strdup(path); /* it is new */
    }
    char *target = S_ISLNK(stat.st_mode) ? realpath(path, NULL) : strdup(path);
    if (!target || lstat(target, &stat) != 0) {
        (void)fail(path, "cannot resolve");
    } else if (!S_ISREG(stat.st_mode)) {
        gw_cli_error("%s: is there and is not a regular file", path);
    } else {
        return target;
    }
    free(target);
    return NULL;
}

bool gw_cli_file_write(const char *path, const struct iovec *pieces, size_t n)
{
    bool fine = false;
    char *target = resolve(path), *temporary = NULL;
    if (!target) {
        return false;
    }
    size_t size = strlen(target) + 32;
    temporary = malloc(size);
    if (!temporary) {
        gw_cli_out_of_memory();
        goto free_target;
    }
    (void)snprintf(temporary, size, "%s.%ld.tmp", target, (long)getpid());
    int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) {
        (void)fail(path, "cannot write");
        goto free_temporary;
    }
    bool written = write_pieces(file, pieces, n);
    int why = errno;
    if (close(file) != 0 && written) { /* the last chance of some systems to say "disk full" */
        written = false;
        why = errno;
    }
    errno = why;
    fine = written && rename(temporary, target) == 0;
    if (!fine) {
        (void)fail(path, "cannot write");
        (void)unlink(temporary);
    }
free_temporary:
    free(temporary);
free_target:
    free(target);
    return fine;
}

bool gw_cli_has_extension(const char *path, const char *extension)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    return dot && strcmp(dot + 1, extension) == 0;
}
