/* Whole files in; see read_file.h. Files are read and not mapped: a file that becomes shorter while it is mapped kills its
 * reader. */
#define _DEFAULT_SOURCE /* madvise */
#include "files/read_file.h"

#include "base/why.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE = 64, HUGE_PAGE = 2 << 20, FIRST = 1 << 16 };

static bool fail(char *why, const char *what)
{
    (void)snprintf(why, GW_FILE_WHY, "%s: %s", what, strerror(errno));
    return false;
}

/* Memory for at least `size` bytes; of large files on huge pages, where the system has them. */
static uint8_t *reserve(size_t size)
{
    const size_t unit = size >= HUGE_PAGE ? HUGE_PAGE : LINE;
    if (size > SIZE_MAX - unit) {
        return NULL;
    }
    const size_t whole = size / unit * unit + unit;
    uint8_t *data = aligned_alloc(unit, whole);
    if (data && unit == HUGE_PAGE) {
        (void)madvise(data, whole, MADV_HUGEPAGE);
    }
    return data;
}

/* Up to `size` bytes; fewer only at the file's end. -1: an error, in errno. */
static ssize_t read_some(int file, uint8_t *data, size_t size)
{
    size_t done = 0;
    while (done < size) {
        const ssize_t got = read(file, data + done, size - done);
        if (got == 0) {
            break;
        }
        if (got < 0 && errno == EAGAIN) { /* a pipe that its other end made not to block */
            struct pollfd wait = {.fd = file, .events = POLLIN};
            (void)poll(&wait, 1, -1);
        } else if (got < 0 && errno != EINTR) {
            return -1;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return (ssize_t)done;
}

static bool read_regular(int file, size_t size, gw_file_bytes *out, char *why)
{
    uint8_t *data = reserve(size);
    if (!data) {
        (void)snprintf(why, GW_FILE_WHY, "no memory for its %zu bytes", size);
        return false;
    }
    const ssize_t done = read_some(file, data, size);
    if (done == (ssize_t)size) {
        *out = (gw_file_bytes){data, size};
        return true;
    }
    free(data);
    if (done < 0) {
        return fail(why, "cannot read");
    }
    (void)snprintf(why, GW_FILE_WHY, "became shorter while it was read: %zd bytes instead of %zu",
                   done, size);
    return false;
}

/* To the end, into memory that doubles. */
bool gw_file_get_stream(int file, gw_file_bytes *out, char *why)
{
    size_t room = FIRST, size = 0;
    uint8_t *data = reserve(room);
    while (data) {
        const ssize_t got = read_some(file, data + size, room - size);
        if (got < 0) {
            free(data);
            return fail(why, "cannot read");
        }
        size += (size_t)got;
        if (size < room) {
            *out = (gw_file_bytes){data, size};
            return true;
        }
        uint8_t *more = room <= SIZE_MAX / 2 ? reserve(2 * room) : NULL;
        if (more) {
            memcpy(more, data, size);
        }
        free(data);
        data = more;
        room *= 2;
    }
    (void)snprintf(why, GW_FILE_WHY, "no memory for %zu bytes", room);
    return false;
}

bool gw_file_get(const char *path, const char *of_pipes, gw_file_bytes *out, char *why)
{
    struct stat stat_of;
    bool fine = false;
    /* not blocking: the open of a pipe would wait for a writer */
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0) {
        return fail(why, "cannot open");
    }
    if (fstat(file, &stat_of) != 0) {
        (void)fail(why, "cannot look at");
    } else if (!S_ISREG(stat_of.st_mode)) {
        (void)snprintf(why, GW_FILE_WHY, "not a regular file%s",
                       S_ISFIFO(stat_of.st_mode) ? of_pipes : "");
    } else {
        fine = read_regular(file, (size_t)stat_of.st_size, out, why);
    }
    (void)close(file);
    return fine;
}

gw_status gw_file_open(const char *path, gw_file_bytes *out, gw_why *why)
{
    char reason[GW_FILE_WHY];
    return gw_file_get(path, "", out, reason) ? GW_OK
                                              : GW_FAIL(why, GW_ERR_SYSTEM, "%s: %s", path, reason);
}
