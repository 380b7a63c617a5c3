/* What collectives take, over sizes, composed as the runtime composes them: pieces to their owners, sums there, the sums to
 * whom they belong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradwire/gradwire.h>

#include "profile.h"

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
    uint8_t *send, *receive;
    size_t *sizes, *at, *none, *send_at;
} group;

static gw_status finish(const group *g, gw_status posted, gw_request *request, gw_why *why)
{
    return posted == GW_OK ? gw_comm_wait(g->comm, *request, TIMEOUT, why) : posted;
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

/* Only member 0 receives. */
static gw_status gather_root(group *g, gw_why *why)
{
    gw_request request = NULL;
    const bool root = g->comm->rank == 0;
    size_t *to = g->none; /* all zero but for the root */
    to[0] = g->piece;
    const gw_status posted =
        g->comm->table->alltoallv(g->comm, g->send, to, g->send_at, g->receive,
                                  root ? g->sizes : g->send_at, g->at, &request, why);
    return finish(g, posted, &request, why);
}

static gw_status broadcast(group *g, gw_why *why)
{
    gw_request request = NULL;
    return finish(
        g, g->comm->table->broadcast(g->comm, g->send, g->piece * g->comm->ranks, 0, &request, why),
        &request, why);
}

static gw_status run(void *arg, uint32_t repeats, gw_why *why)
{
    group *g = arg;
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < repeats && status == GW_OK; i++) {
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
            status = gather_root(g, why);
        }
        if (status == GW_OK && g->parts & BROADCAST) {
            status = broadcast(g, why);
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
        char what[96];
        set_piece(g, SIZES[i]);
        bytes = busiest_bytes(g);
        (void)snprintf(what, sizeof what, "%s:%s of %.0f bytes", level, kind->op, bytes);
        status = gw_cli_measure(m, what, run, g, &found, why);
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
