#define _XOPEN_SOURCE 700 /* realpath */
#include "cli/files/files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/say.h"

enum { LINE = 64, HUGE_PAGE = 2 << 20, FIRST = 1 << 16, TRIES = 100 };

static bool fail(char *why, const char *what)
{
    (void)snprintf(why, GW_FILE_WHY, "%s: %s", what, strerror(errno));
    return false;
}

bool gw_cli_is_stream(const char *path)
{
    return strcmp(path, "-") == 0;
}

/* ---- in ---- */

bool gw_cli_file_get(const char *path, gw_file_bytes *out, char *why)
{
    return gw_cli_is_stream(path)
               ? gw_file_get_stream(STDIN_FILENO, out, why)
               : gw_file_get(path, " but a pipe; '-' reads standard input", out, why);
}

bool gw_cli_file_read(const char *path, gw_file_bytes *out)
{
    char why[GW_FILE_WHY];
    const bool fine = gw_cli_file_get(path, out, why);
    if (!fine) {
        gw_cli_error("%s: %s", path, why);
    }
    return fine;
}

void gw_cli_bytes_free(gw_file_bytes *bytes)
{
    free(bytes->data);
    *bytes = (gw_file_bytes){0};
}

/* ---- out ---- */

static bool write_all(int file, const uint8_t *data, size_t size)
{
    while (size > 0) {
        const ssize_t done = write(file, data, size);
        if (done < 0 && errno == EAGAIN) {
            struct pollfd wait = {.fd = file, .events = POLLOUT};
            (void)poll(&wait, 1, -1);
        } else if (done < 0 && errno != EINTR) {
            return false;
        }
        data += done > 0 ? done : 0;
        size -= done > 0 ? (size_t)done : 0;
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

/* What to rename to: of a link that is followed the file it points to. Anything else that is there and
 * is not a regular file is refused, since a rename would put a file in place of a device. malloc'd. */
static char *resolve(const char *path, bool follow, char *why)
{
    struct stat stat_of;
    (void)snprintf(why, GW_FILE_WHY, "out of memory");
    if (lstat(path, &stat_of) != 0) {
        return strdup(path); /* it is new */
    }
    if (S_ISLNK(stat_of.st_mode) && !follow) {
        return strdup(path);
    }
    char *target = S_ISLNK(stat_of.st_mode) ? realpath(path, NULL) : strdup(path);
    if (!target || lstat(target, &stat_of) != 0) {
        (void)fail(why, "cannot resolve");
    } else if (!S_ISREG(stat_of.st_mode)) {
        (void)snprintf(why, GW_FILE_WHY, "is there and is not a regular file");
    } else {
        return target;
    }
    free(target);
    return NULL;
}

int gw_cli_file_temporary(const char *path, char **name, char *why)
{
    static const char LETTERS[] = "0123456789abcdefghijklmnopqrstuv";
    const size_t size = strlen(path) + sizeof ".XXXXXXXX.tmp";
    char *made = malloc(size);
    int file = -1;
    errno = ENOMEM;
    for (int i = 0; made && file < 0 && i < TRIES; i++) {
        uint8_t dice[8];
        char text[sizeof dice + 1] = "";
        if (getentropy(dice, sizeof dice) != 0) {
            break;
        }
        for (size_t k = 0; k < sizeof dice; k++) {
            text[k] = LETTERS[dice[k] % (sizeof LETTERS - 1)];
        }
        (void)snprintf(made, size, "%s.%s.tmp", path, text);
        file = open(made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file < 0 && errno != EEXIST) {
            break;
        }
    }
    if (file < 0) {
        if (errno == EEXIST) {
            (void)snprintf(why, GW_FILE_WHY, "cannot write: '%.400s' is in the way", made);
        } else {
            (void)fail(why, "cannot write");
        }
        free(made);
        made = NULL;
    }
    *name = made;
    return file;
}

/* The folder's entry is on the disk too; some file systems know no such thing. */
static void sync_folder_of(char *path)
{
    char *slash = strrchr(path, '/');
    const char *folder = slash == path ? "/" : slash ? path : ".";
    if (slash && slash != path) {
        *slash = '\0';
    }
    const int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file >= 0) {
        (void)fsync(file);
        (void)close(file);
    }
    if (slash) {
        *slash = '/';
    }
}

/* Closes `file`. */
static bool fill(int file, const struct iovec *pieces, size_t n, bool durable)
{
    bool fine = write_pieces(file, pieces, n);
    fine = fine && (!durable || fsync(file) == 0 || errno == EINVAL);
    const int error = errno;
    if (close(file) != 0 && fine) { /* the last chance of some systems to say "disk full" */
        return false;
    }
    errno = error;
    return fine;
}

bool gw_cli_file_put(const char *path, const struct iovec *pieces, size_t n, unsigned flags,
                     char *why)
{
    const bool durable = (flags & GW_CLI_DURABLE) != 0;
    if (gw_cli_is_stream(path)) {
        return (fflush(stdout) == 0 && write_pieces(STDOUT_FILENO, pieces, n)) ||
               fail(why, "cannot write");
    }
    char *target = resolve(path, (flags & GW_CLI_FOLLOW) != 0, why), *temporary = NULL;
    const int file = target ? gw_cli_file_temporary(target, &temporary, why) : -1;
    bool fine = file >= 0;
    if (fine && !(fill(file, pieces, n, durable) && rename(temporary, target) == 0)) {
        fine = fail(why, "cannot write");
        (void)unlink(temporary);
    }
    if (fine && durable) {
        sync_folder_of(target);
    }
    free(temporary);
    free(target);
    return fine;
}

bool gw_cli_file_write(const char *path, const struct iovec *pieces, size_t n)
{
    char why[GW_FILE_WHY];
    const bool fine = gw_cli_file_put(path, pieces, n, GW_CLI_DURABLE | GW_CLI_FOLLOW, why);
    if (!fine) {
        gw_cli_error("%s: %s", path, why);
    }
    return fine;
}

bool gw_cli_has_extension(const char *path, const char *extension)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    return dot && strcmp(dot + 1, extension) == 0;
}
