#define _POSIX_C_SOURCE 200809L
#include "trainer/data.h"

#include "trainer/fail.h"
#include "trainer/random_draws.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static gw_status read_all(FILE *file, const char *path, unsigned char **bytes, size_t *size,
                          gw_why *why)
{
    size_t room = 1 << 20, n = 0;
    unsigned char *all = malloc(room);
    while (all != NULL) {
        n += fread(all + n, 1, room - n, file);
        if (n < room) {
            break;
        }
        unsigned char *more = realloc(all, room * 2);
        if (more == NULL) {
            free(all);
        }
        all = more;
        room *= 2;
    }
    if (all == NULL) {
        return trainer_fail(why, GW_ERR_MEMORY, "%s: no memory to read it", path);
    }
    if (ferror(file)) {
        free(all);
        return trainer_fail(why, GW_ERR_SYSTEM, "%s: cannot be read", path);
    }
    *bytes = all;
    *size = n;
    return GW_OK;
}

gw_status data_read_file(const char *path, const char *hint, unsigned char **bytes, size_t *size,
                         gw_why *why)
{
    struct stat stat_of;
    /* not blocking: the open of a pipe would wait for a writer */
    const int number = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (number >= 0 && (fstat(number, &stat_of) != 0 || !S_ISREG(stat_of.st_mode))) {
        (void)close(number);
        return trainer_fail(why, GW_ERR_SYSTEM, "%s: not a regular file", path);
    }
    FILE *file = number >= 0 ? fdopen(number, "rb") : NULL;
    if (file == NULL) {
        return trainer_fail(why, GW_ERR_SYSTEM, "%s: %s; %s", path, strerror(errno), hint);
    }
    const gw_status status = read_all(file, path, bytes, size, why);
    (void)fclose(file);
    return status;
}

/* ---- the order of examples ---- */

/* Streams of random numbers: one an epoch, apart from those of the weights. */
enum { STREAM_ORDER = 1 << 20 };

static void shuffle(sampler *s, uint64_t epoch)
{
    for (size_t i = 0; i < s->examples; i++) {
        s->order[i] = (uint32_t)i;
    }
    for (size_t i = s->examples; i > 1; i--) {
        const size_t j = random_below(random_at(s->seed, STREAM_ORDER + epoch, i), i);
        const uint32_t swap = s->order[i - 1];
        s->order[i - 1] = s->order[j];
        s->order[j] = swap;
    }
    s->epoch = epoch;
}

gw_status sampler_create(sampler *s, uint64_t seed, size_t examples, size_t batch, uint32_t ranks,
                         uint32_t rank, gw_why *why)
{
    *s =
        (sampler){.seed = seed, .examples = examples, .batch = batch, .ranks = ranks, .rank = rank};
    if (batch == 0 || ranks == 0 || rank >= ranks || examples >= UINT32_MAX ||
        sampler_steps(s) == 0) {
        return trainer_fail(why, GW_ERR_RANGE,
                            "%zu examples do not fill one batch of %zu on each of %u ranks",
                            examples, batch, ranks);
    }
    s->order = malloc(examples * sizeof *s->order);
    if (s->order == NULL) {
        return trainer_fail(why, GW_ERR_MEMORY, "no memory for the order of %zu examples",
                            examples);
    }
    shuffle(s, 0);
    return GW_OK;
}

void sampler_destroy(sampler *s)
{
    free(s->order);
    s->order = NULL;
}

uint64_t sampler_steps(const sampler *s)
{
    return s->examples / ((uint64_t)s->batch * s->ranks);
}

void sampler_pick(sampler *s, uint64_t step, uint32_t *which)
{
    const uint64_t epoch = step / sampler_steps(s), first = step % sampler_steps(s) * s->batch;
    if (epoch != s->epoch) {
        shuffle(s, epoch);
    }
    for (size_t i = 0; i < s->batch; i++) {
        which[i] = s->order[(first + i) * s->ranks + s->rank];
    }
}
