/* What collectives take, over sizes, composed as the runtime composes them: pieces to their owners, sums there, the sums to
 * whom they belong. */
#define _GNU_SOURCE /* SCHED_IDLE */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <gradwire/gradwire.h>
#include <gradwire/plan.h>

#include "cli/profile/profile.h"

/* Bytes of the operand. */
static const size_t SIZES[] = {256,        4 * 1024,    32 * 1024,      128 * 1024,
                               512 * 1024, 1024 * 1024, 4 * 1024 * 1024};
enum { N_SIZES = sizeof SIZES / sizeof SIZES[0], MOST = 4 * 1024 * 1024, TIMEOUT = 120 };
static const double LONG = 0.4; /* seconds; larger sizes go on as the last two say */

/* Operations are made of these, one after the other. */
enum { SCATTER = 1, SUM = 2, GATHER_ALL = 4, GATHER_ROOT = 8, BROADCAST = 16 };

static const struct kind {
    const char *op;
    int parts;
} KINDS[] = {{"alltoall", SCATTER},
             {"allgather", GATHER_ALL},
             {"reduce_scatter", SCATTER | SUM},
             {"allreduce", SCATTER | SUM | GATHER_ALL},
             {"reduce", SCATTER | SUM | GATHER_ROOT},
             {"gather", GATHER_ROOT},
             {"broadcast", BROADCAST}};
enum { N_KINDS = sizeof KINDS / sizeof KINDS[0] };

typedef struct group {
    gw_comm *comm;
    size_t piece; /* bytes that a member owns */
    int parts;
    char what[96]; /* is measured, in words */
    uint8_t *send, *receive;
    size_t *sizes, *at, *none, *send_at;
} group;

/* Sleeps between looks, as a step does, so that what is measured is what a step will see. */
static gw_status nap(const group *g, gw_request request, gw_why *why)
{
    const struct timespec length = {0, 50000};
    const double begun = gw_cli_meter_now(NULL);
    int done = 0;
    gw_status status = g->comm->table->test(g->comm, request, &done, why);
    while (status == GW_OK && !done && gw_cli_meter_now(NULL) - begun < TIMEOUT) {
        (void)nanosleep(&length, NULL);
        status = g->comm->table->test(g->comm, request, &done, why);
    }
    if (status == GW_OK && !done) { /* its words say which ranks are missing */
        gw_why which = {""};
        (void)gw_comm_wait(g->comm, request, 1e-3, &which);
        status = gw_cli_measure_fail(why, GW_ERR_TIMEOUT, "%s: %.160s", g->what, which.text);
    }
    return status;
}

static gw_status finish(const group *g, gw_status posted, gw_request *request, gw_why *why)
{
    return posted == GW_OK ? nap(g, *request, why) : posted;
}

static gw_status scatter(group *g, gw_why *why)
{
    gw_request request = NULL;
    return finish(g,
                  g->comm->table->alltoallv(g->comm, g->send, g->sizes, g->at, g->receive, g->sizes,
                                            g->at, &request, why),
                  &request, why);
}

static void sum(group *g)
{
    float *to = (float *)(void *)g->send;
    for (uint32_t i = 0; i < g->comm->ranks; i++) {
        const float *from = (const float *)(const void *)(g->receive + g->at[i]);
        for (size_t k = 0; k < g->piece / sizeof *to; k++) {
            to[k] += from[k];
        }
    }
}

static gw_status gather_all(group *g, gw_why *why)
{
    gw_request request = NULL;
    return finish(g,
                  g->comm->table->allgatherv(g->comm, g->send, g->piece, g->receive, g->sizes,
                                             g->at, &request, why),
                  &request, why);
}

/* Only the root receives. */
static gw_status gather_root(group *g, uint32_t root, gw_why *why)
{
    gw_request request = NULL;
    size_t *to = g->none; /* all zero but for the root */
    to[root] = g->piece;
    const gw_status posted = g->comm->table->alltoallv(
        g->comm, g->send, to, g->send_at, g->receive, g->comm->rank == root ? g->sizes : g->send_at,
        g->at, &request, why);
    const gw_status status = finish(g, posted, &request, why);
    to[root] = 0;
    return status;
}

static gw_status broadcast(group *g, uint32_t root, gw_why *why)
{
    gw_request request = NULL;
    return finish(
        g,
        g->comm->table->broadcast(g->comm, g->send, g->piece * g->comm->ranks, root, &request, why),
        &request, why);
}

/* Every repeat has another root: it cannot begin before it has its part of the one before, where a rank that only
 * sends would run ahead. */
static gw_status run(void *arg, uint32_t repeats, gw_why *why)
{
    group *g = arg;
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < repeats && status == GW_OK; i++) {
        const uint32_t root = i % g->comm->ranks;
        if (g->parts & SCATTER) {
            status = scatter(g, why);
        }
        if (g->parts & SUM) {
            sum(g);
        }
        if (status == GW_OK && g->parts & GATHER_ALL) {
            status = gather_all(g, why);
        }
        if (status == GW_OK && g->parts & GATHER_ROOT) {
            status = gather_root(g, root, why);
        }
        if (status == GW_OK && g->parts & BROADCAST) {
            status = broadcast(g, root, why);
        }
    }
    return status;
}

/* Sent or received by the busiest member. */
static double busiest_bytes(const group *g)
{
    const double others = (double)(g->comm->ranks - 1), piece = (double)g->piece;
    const int phases = ((g->parts & SCATTER) != 0) + ((g->parts & (GATHER_ALL | GATHER_ROOT)) != 0);
    return g->parts & BROADCAST ? others * piece * g->comm->ranks : phases * others * piece;
}

static void set_piece(group *g, size_t bytes)
{
    const uint32_t n = g->comm->ranks;
    g->piece = (bytes / n / 4 + 1) * 4;
    for (uint32_t i = 0; i < n; i++) {
        g->sizes[i] = g->piece;
        g->at[i] = i * g->piece;
    }
}

static gw_status open_group(group *g, gw_comm *comm, gw_why *why)
{
    const size_t n = comm->ranks, bytes = MOST + 8 * n;
    *g = (group){.comm = comm};
    g->send = calloc(1, bytes);
    g->receive = calloc(1, bytes);
    g->sizes = calloc(4 * n, sizeof *g->sizes);
    if (!g->send || !g->receive || !g->sizes) {
        return gw_cli_measure_fail(why, GW_ERR_MEMORY, "no memory to measure links");
    }
    g->at = g->sizes + n;
    g->none = g->at + n;
    g->send_at = g->none + n;
    return GW_OK;
}

static void close_group(group *g)
{
    free(g->send);
    free(g->receive);
    free(g->sizes);
}

/* One collective over sizes. *first and *last: bytes and seconds of the ends of the curve. */
static gw_status measure_kind(gw_cli_meter *m, group *g, const struct kind *kind, const char *level,
                              json_t *points, gw_cli_link_fit *fit, gw_why *why)
{
    double first = 0, bytes = 0, before = 0, first_bytes = 0;
    gw_cli_measured found = {0};
    gw_status status = GW_OK;
    g->parts = kind->parts;
    for (size_t i = 0; i < N_SIZES && status == GW_OK && found.seconds < LONG; i++) {
        set_piece(g, SIZES[i]);
        bytes = busiest_bytes(g);
        (void)snprintf(g->what, sizeof g->what, "%s:%s of %.0f bytes", level, kind->op, bytes);
        status = gw_cli_measure(m, g->what, run, g, &found, why);
        if (i == 0) {
            first = found.seconds;
            first_bytes = bytes;
        }
        /* more bytes do not take less: what comes out shorter is noise */
        before = found.seconds > before ? found.seconds : before;
        (void)json_array_append_new(points,
                                    json_pack("{s:f, s:f, s:f, s:I}", "bytes", bytes, "us",
                                              1e6 * before, "deviation_us", 1e6 * found.deviation,
                                              "samples", (json_int_t)found.samples));
    }
    if (status == GW_OK) {
        const double seconds = before > first ? before - first : 1e-9;
        *fit = (gw_cli_link_fit){.latency = first,
                                 .rate = (bytes - first_bytes) / seconds,
                                 .spread = before > 0 ? found.deviation / before : 0};
    }
    return status;
}

/* ---- cores ---- */

typedef struct counter {
    atomic_int stop;
    atomic_ullong count;
} counter;

/* Works when nothing else does. */
static void *count_idle(void *arg)
{
    counter *c = arg;
    volatile double x = 1;
#ifdef SCHED_IDLE
    const struct sched_param none = {0};
    (void)pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
#endif
    while (!atomic_load_explicit(&c->stop, memory_order_relaxed)) {
        for (int i = 0; i < 1000; i++) {
            x = x * 1.0000001;
        }
        (void)atomic_fetch_add_explicit(&c->count, 1, memory_order_relaxed);
    }
    return NULL;
}

/* What counts in a second beside `repeats` all-to-alls; beside none: beside a quarter of a second's sleep. */
static gw_status pace(group *g, counter *c, uint32_t repeats, double *out, gw_why *why)
{
    gw_request request = NULL;
    const struct timespec quarter = {0, 250000000};
    gw_status status = finish(g, g->comm->table->barrier(g->comm, &request, why), &request, why);
    const double begun = gw_cli_meter_now(NULL);
    const unsigned long long from = atomic_load(&c->count);
    if (repeats == 0) {
        (void)nanosleep(&quarter, NULL);
    } else if (status == GW_OK) {
        status = run(g, repeats, why);
    }
    *out = (double)(atomic_load(&c->count) - from) / (gw_cli_meter_now(NULL) - begun);
    return status;
}

/* Mean over the ranks. */
static gw_status average(gw_comm *comm, double *number, gw_why *why)
{
    double all[GW_CLI_MOST_RANKS];
    const gw_status status = gw_cli_gather_numbers(comm, *number, all, why);
    *number = 0;
    for (uint32_t i = 0; i < comm->ranks && status == GW_OK; i++) {
        *number += all[i] / comm->ranks;
    }
    return status;
}

/* Of the time of cores that have nothing else to do, the share that a busy link takes: the median of a few. */
static gw_status measure_share(group *g, double seconds, double *share, gw_why *why)
{
    enum { ROUNDS = 5 };
    const uint32_t repeats = (uint32_t)ceil(0.25 / (seconds > 1e-6 ? seconds : 1e-6));
    double shares[ROUNDS];
    counter c = {0};
    pthread_t thread;
    gw_status status = GW_OK;
    if (pthread_create(&thread, NULL, count_idle, &c) != 0) {
        return gw_cli_measure_fail(why, GW_ERR_SYSTEM, "cannot start a thread");
    }
    for (int i = 0; i < ROUNDS && status == GW_OK; i++) {
        double alone = 0, beside = 0;
        g->parts = SCATTER;
        set_piece(g, MOST / 4);
        status = pace(g, &c, 0, &alone, why);
        status = status == GW_OK ? pace(g, &c, repeats, &beside, why) : status;
        shares[i] = alone > 0 ? 1 - beside / alone : 0;
        status = status == GW_OK ? average(g->comm, &shares[i], why) : status;
    }
    atomic_store(&c.stop, 1);
    (void)pthread_join(thread, NULL);
    if (status == GW_OK) {
        *share = fmin(fmax(gw_cli_median(shares, ROUNDS), 0), 1);
    }
    return status;
}

/* `keep`: all collectives, into the file; else only what the fit needs. */
static gw_status measure_level(gw_cli_meter *m, gw_comm *comm, const char *level, bool keep,
                               json_t *collectives, gw_cli_link_fit *fit, gw_why *why)
{
    group g;
    gw_status status = open_group(&g, comm, why);
    for (size_t i = 0; i < (keep ? N_KINDS : 1) && status == GW_OK; i++) {
        gw_cli_link_fit own;
        json_t *points = json_array();
        status = measure_kind(m, &g, &KINDS[i], level, points, &own, why);
        *fit = i == 0 && status == GW_OK ? own : *fit;
        json_t *entry =
            json_pack("{s:s, s:s, s:o}", "op", KINDS[i].op, "level", level, "points", points);
        if (keep) {
            (void)json_array_append_new(collectives, entry);
        } else {
            json_decref(entry);
        }
    }
    if (status == GW_OK) {
        (void)snprintf(g.what, sizeof g.what, "%s:alltoall beside computing", level);
        status = measure_share(&g, fit->latency + MOST / 4.0 / fit->rate, &fit->cpu_share, why);
    }
    if (status == GW_OK) {
        status = gw_cli_profile_busy(comm, &fit->busy, why);
    }
    close_group(&g);
    return status;
}

gw_status gw_cli_profile_links(gw_cli_meter *m, uint32_t per_node, json_t *collectives,
                               gw_cli_link_fit *intra, gw_cli_link_fit *inter, gw_why *why)
{
    gw_comm *world = m->comm, *near = NULL, *far = NULL;
    gw_cli_link_fit flat = {0};
    *intra = *inter = flat;
    if (!world || world->ranks < 2) {
        return GW_OK;
    }
    const uint32_t nodes = world->ranks / per_node;
    gw_status status = measure_level(m, world, "flat", true, collectives, &flat, why);
    if (status != GW_OK || per_node == 1 || nodes == 1) {
        *(nodes == 1 ? intra : inter) = flat;
        return status;
    }
    status = world->table->split(world, world->rank / per_node, world->rank, &near, why);
    if (status == GW_OK) {
        status = world->table->split(world, world->rank % per_node, world->rank, &far, why);
    }
    if (status == GW_OK) {
        status = measure_level(m, near, "intra", true, collectives, intra, why);
    }
    /* All ranks of a node at once. What one of them alone takes, a route may ask for too: of this level there is a
     * rate, which the node's ranks share, and no points. */
    if (status == GW_OK) {
        status = measure_level(m, far, "inter", false, collectives, inter, why);
        inter->rate *= per_node;
    }
    if (far) {
        far->table->close(far);
    }
    if (near) {
        near->table->close(near);
    }
    return status;
}
