/* What coding and links cost, measured by all ranks at once: what they share they share here too. Every number is agreed
 * before it counts. */
#define _POSIX_C_SOURCE 200809L
#include "control/auto.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- words with the other ranks ---- */

gw_status gw_auto_gather(gw_step_auto *u, const void *own, size_t bytes, void *all, gw_why *why)
{
    gw_request request = NULL;
    const gw_status status = gw_control_post(&u->control, own, bytes, u->room, &request, why);
    return status == GW_OK ? gw_control_arrive(&u->control, &request, u->room, bytes, all, why)
                           : status;
}

/* ---- coding ---- */

static const size_t SIZES[GW_AUTO_POINTS] = {1024, 32 * 1024, 256 * 1024};
static const double LONG_ENOUGH = 0.004; /* seconds of one measurement */

typedef struct coder {
    gw_params params;
    int feedback;
    float *in, *out, *residual, *after;
    uint8_t *payload;
    size_t bound, written;
    gw_workspace workspace;
} coder;

static gw_status open_coder(coder *c, const gw_params *params, gw_why *why)
{
    const size_t most = SIZES[GW_AUTO_POINTS - 1];
    size_t bytes = 0;
    *c = (coder){.params = *params, .feedback = gw_auto_comes_late(params)};
    gw_status status = gw_payload_bound(params, most, &c->bound);
    if (status == GW_OK) {
        status = gw_codec_workspace(params, GW_F32, most, c->feedback, 1, &bytes);
    }
    c->in = calloc(4 * most, sizeof *c->in);
    c->payload = malloc(c->bound + 1);
    c->workspace = (gw_workspace){malloc(bytes + 1), bytes};
    if (status != GW_OK || c->in == NULL || c->payload == NULL || c->workspace.data == NULL) {
        return GW_FAIL(why, status == GW_OK ? GW_ERR_MEMORY : status, "auto: cannot measure '%s'",
                       gw_codec_name(params->codec));
    }
    c->out = c->in + most;
    c->residual = c->out + most;
    c->after = c->residual + most;
    uint32_t state = 1;
    for (size_t i = 0; i < most; i++) { /* the sum of four: near enough to normal */
        for (int k = 0; k < 4; k++) {
            state = state * 1664525U + 1013904223U;
            c->in[i] += (float)(int32_t)state * 0x1p-31F;
        }
    }
    return GW_OK;
}

static void close_coder(coder *c)
{
    free(c->in);
    free(c->payload);
    free(c->workspace.data);
}

static gw_status code(coder *c, size_t n, int decodes, gw_why *why)
{
    static const gw_stream stream = {.seed = 1, .step = 2, .tensor = 3};
    const gw_exec exec = {.workspace = c->workspace};
    const gw_tensor in = {c->in, n, GW_F32};
    gw_tensor out = {c->out, n, GW_F32};
    return decodes       ? gw_decode(&c->params, &exec, c->payload, c->written, GW_ADD, &out, why)
           : c->feedback ? gw_encode_feedback(&c->params, &exec, &stream, &in, c->residual,
                                              c->after, c->payload, c->bound, &c->written, NULL)
                         : gw_encode(&c->params, &exec, &stream, &in, c->payload, c->bound,
                                     &c->written, NULL);
}

/* Seconds of one, on the average over a while: a core that is shared comes and goes. */
static gw_status time_coding(coder *c, size_t n, int decodes, double *seconds, gw_why *why)
{
    gw_status status = code(c, n, decodes, why); /* warms up */
    const double begin = gw_clock();
    uint32_t repeats = 0;
    for (; status == GW_OK && (repeats < 2 || gw_clock() - begin < LONG_ENOUGH); repeats++) {
        status = code(c, n, decodes, why);
    }
    *seconds = (gw_clock() - begin) / repeats;
    return status;
}

static gw_status measure_spec(const gw_params *params, double seconds[2 * GW_AUTO_POINTS],
                              gw_why *why)
{
    coder c;
    gw_status status = open_coder(&c, params, why);
    for (int i = 0; i < 2 * GW_AUTO_POINTS && status == GW_OK; i++) {
        status = time_coding(&c, SIZES[i / 2], i % 2, &seconds[i], why);
    }
    close_coder(&c);
    return status;
}

/* ---- cores ---- */

static void *work(void *stop)
{
    volatile double x = 1;
    while (!atomic_load_explicit((atomic_int *)stop, memory_order_relaxed)) {
        for (int i = 0; i < 1000; i++) {
            x = x * 1.0000001;
        }
    }
    return NULL;
}

static double compute(void)
{
    volatile double x = 1;
    const double begin = gw_clock();
    for (int i = 0; i < 3000000; i++) {
        x = x * 1.0000001;
    }
    return gw_clock() - begin;
}

/* How much longer a thread takes beside another one of each rank: from 1.5 times on they take turns on a core. */
static double crowded(void)
{
    atomic_int stop = 0;
    pthread_t thread;
    const double alone = compute();
    if (pthread_create(&thread, NULL, work, &stop) != 0) {
        return 2;
    }
    const double beside = compute();
    atomic_store(&stop, 1);
    (void)pthread_join(thread, NULL);
    return beside / alone;
}

/* ---- copies ---- */

/* Seconds a byte, of layers that are put together. */
static double time_copy(void)
{
    enum { BYTES = 4 << 20 };
    uint8_t *from = malloc(2 * (size_t)BYTES);
    double seconds = 0;
    if (from != NULL) {
        memset(from, 1, 2 * (size_t)BYTES);
        const double begin = gw_clock();
        uint32_t repeats = 0;
        for (; repeats < 2 || gw_clock() - begin < LONG_ENOUGH; repeats++) {
            memcpy(from + (repeats % 2) * (size_t)BYTES, from + (1 - repeats % 2) * (size_t)BYTES,
                   BYTES);
        }
        seconds = (gw_clock() - begin) / repeats / BYTES;
    }
    free(from);
    return seconds;
}

/* ---- the cluster ---- */

static gw_status check_given(const gw_step_auto *u, const gw_cluster *c, uint32_t near, gw_why *why)
{
    const uint32_t ranks = u->control.step->config.comm->ranks;
    if ((uint64_t)c->nodes * c->ranks_per_node != ranks || c->ranks_per_node != near ||
        c->has_gpu) {
        return GW_FAIL(why, GW_ERR_ARG,
                       "auto: the cluster has %u nodes of %u ranks%s; this step %u of %u, without",
                       c->nodes, c->ranks_per_node, c->has_gpu ? " with GPUs" : "", ranks / near,
                       near);
    }
    for (size_t i = 0; i < u->config.n_families; i++) {
        if (!gw_auto_is_priced(c, &u->families[i])) {
            return GW_FAIL(why, GW_ERR_ARG, "auto: the cluster does not say what '%s' costs",
                           gw_codec_name(u->families[i].codec));
        }
    }
    return GW_OK;
}

/* Levels whose costs stand for their family's: one, and of a codec with a density or a rank, on which they hang, the least, and ten
 * times that or all. */
static uint32_t list_coded(const gw_step_auto *u, gw_params *out)
{
    uint32_t n = 0;
    for (size_t i = 0; i < u->config.n_families; i++) {
        gw_params p = u->families[i];
        double *density = gw_auto_setting(&p, "density"), *rank = gw_auto_setting(&p, "rank");
        const double least = rank != NULL ? *rank : 0;
        out[n++] = p;
        if (density != NULL) {
            *density = fmin(10 * *density, 0.5);
            out[n++] = p;
        }
        for (int x = 2; rank != NULL && x <= 4 && x * least <= 256; x *= 2) {
            *rank = x * least;
            out[n++] = p;
        }
    }
    return n;
}

enum { MOST_PROBE = 1 << 20 };

gw_status gw_auto_cluster_open(gw_step_auto *u, const gw_cluster *given, gw_why *why)
{
    gw_control *c = &u->control;
    const gw_step_config *config = &c->step->config;
    const uint32_t ranks = config->comm->ranks, k = config->ranks_per_node;
    const uint32_t near = k != 0 && ranks % k == 0 ? k : 1;
    const gw_cluster_link none = {.rate = 1e12};
    gw_params coded[GW_AUTO_CODECS];
    gw_status status = given != NULL ? check_given(u, given, near, why) : GW_OK;
    if (status != GW_OK) {
        return status;
    }
    u->cluster = given != NULL ? *given
                               : (gw_cluster){.nodes = ranks / near,
                                              .ranks_per_node = near,
                                              .intra = none,
                                              .inter = none,
                                              .n_codecs = list_coded(u, coded)};
    u->cluster.name = "as measured";
    u->cluster.collectives = NULL; /* links are measured anew, as time goes on */
    u->cluster.n_collectives = 0;
    u->codecs = gw_control_memory(c, u->cluster.n_codecs, sizeof *u->codecs);
    u->probe = gw_control_memory(c, 2, MOST_PROBE + 64 * (size_t)ranks);
    u->probe_sizes = gw_control_memory(c, 2 * (size_t)ranks, sizeof *u->probe_sizes);
    u->probe_said = gw_control_memory(c, ranks, GW_AUTO_MOST_NUMBERS * sizeof(double));
    status = gw_control_has_memory(c, why);
    if (status != GW_OK) {
        return status;
    }
    memset(u->probe, 0x5A, MOST_PROBE + 64 * (size_t)ranks); /* what every probe sends */
    if (given != NULL) {
        memcpy(u->codecs, given->codecs, given->n_codecs * sizeof *u->codecs);
    }
    u->cluster.codecs = u->codecs;
    return GW_OK;
}

gw_status gw_auto_cluster_codecs(gw_step_auto *u, gw_why *why)
{
    enum { WIDTH = 2 * GW_AUTO_POINTS };
    const uint32_t ranks = u->control.step->config.comm->ranks;
    gw_params coded[GW_AUTO_CODECS];
    const size_t n = list_coded(u, coded), numbers = n * WIDTH + 2;
    double own[GW_AUTO_CODECS * WIDTH + 2] = {0};
    gw_status status = GW_OK;
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        status = measure_spec(&coded[i], own + i * WIDTH, why);
    }
    own[n * WIDTH] = crowded();
    own[n * WIDTH + 1] = time_copy();
    const gw_status others = gw_auto_gather(u, own, numbers * sizeof *own, u->probe_said, why);
    if (status != GW_OK || others != GW_OK) {
        return status != GW_OK ? status : others;
    }
    for (size_t i = 0; i < numbers; i++) {
        own[i] = 0;
        for (uint32_t r = 0; r < ranks; r++) {
            own[i] += u->probe_said[r * numbers + i] / ranks;
        }
    }
    u->cluster.cpu_workers = own[n * WIDTH] < 1.5 ? 1 : 0;
    u->cluster.copy.rate = own[n * WIDTH + 1] > 0 ? 1 / own[n * WIDTH + 1] : 0; /* 0: free */
    for (size_t i = 0; i < n; i++) {
        gw_codec_cost *c = &u->codecs[i];
        *c = (gw_codec_cost){.params = coded[i], .device = GW_DEVICE_CPU};
        c->encode.n = c->decode.n = GW_AUTO_POINTS;
        for (int k = 0; k < GW_AUTO_POINTS; k++) {
            const double bytes = 4 * (double)SIZES[k];
            c->encode.point[k] =
                (gw_cost_point){.bytes = bytes, .seconds = own[i * WIDTH + 2 * (size_t)k]};
            c->decode.point[k] =
                (gw_cost_point){.bytes = bytes, .seconds = own[i * WIDTH + 2 * (size_t)k + 1]};
        }
    }
    return GW_OK;
}

/* ---- links ---- */

enum { SHORT = 64, REPEATS = 5 };
/* Of one exchange; all repeats of a link take as long as one more than there are. More of them tell more than longer ones: what others do on these cores comes and goes. */
static const double LONG_LOOK = 0.01;

/* As a step waits. */
static gw_status nap(gw_comm *comm, gw_request request, double timeout, gw_why *why)
{
    const struct timespec length = {0, 50000};
    const double begun = gw_clock();
    int done = 0;
    gw_status status = comm->table->test(comm, request, &done, why);
    while (status == GW_OK && !done) {
        if (gw_clock() - begun > timeout) {
            return GW_FAIL(why, GW_ERR_TIMEOUT, "auto: a link does not answer");
        }
        (void)nanosleep(&length, NULL);
        status = comm->table->test(comm, request, &done, why);
    }
    return status;
}

/* This thread's time on a core. */
static double spent_here(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* An all-to-all of so many bytes to each other member, begun together: this rank's seconds, and the part of them that it had a core for
 * it. */
static gw_status exchange(gw_step_auto *u, gw_comm *comm, size_t piece, double own[2], gw_why *why)
{
    const uint32_t ranks = u->control.step->config.comm->ranks;
    double zero = 0;
    gw_status status = gw_auto_gather(u, &zero, sizeof zero, u->probe_said, why); /* together */
    if (status != GW_OK) {
        return status;
    }
    gw_request request = NULL;
    size_t *sizes = u->probe_sizes, *at = sizes + comm->ranks;
    for (uint32_t i = 0; i < comm->ranks; i++) {
        sizes[i] = i == comm->rank ? 0 : piece;
        at[i] = i * piece;
    }
    uint8_t *receive = u->probe + MOST_PROBE + 64 * (size_t)ranks;
    const double begin = gw_clock(), spent = spent_here();
    status = comm->table->alltoallv(comm, u->probe, sizes, at, receive, sizes, at, &request, why);
    if (status == GW_OK) {
        status = nap(comm, request, u->control.step->config.timeout, why);
    }
    own[0] = gw_clock() - begin;
    own[1] = spent_here() - spent;
    for (uint32_t i = 0; i < comm->ranks && status == GW_OK; i++) { /* all ranks send the same */
        if (sizes[i] != 0 && memcmp(receive + at[i], u->probe, piece) != 0) {
            status =
                GW_FAIL(why, GW_ERR_CHECKSUM,
                        "a message that measures the link was changed on its way from rank %u", i);
        }
    }
    if (status != GW_OK) {
        const gw_why said = *why;
        gw_step_fail(u->control.step, status, &said);
        return status;
    }
    own[1] = u->link != NULL ? 0 : fmin(own[1] / own[0], 1);
    own[0] = u->link != NULL ? u->link(u->test_context, (double)piece * (comm->ranks - 1)) : own[0];
    return GW_OK;
}

/* Seconds of the slowest rank and of this one, mean share of all. */
static gw_status once(gw_step_auto *u, gw_comm *comm, size_t piece, double *seconds, double *mine,
                      double *share, gw_why *why)
{
    const uint32_t ranks = u->control.step->config.comm->ranks;
    double own[2] = {0};
    gw_status status = exchange(u, comm, piece, own, why);
    status = status == GW_OK ? gw_auto_gather(u, own, sizeof own, u->probe_said, why) : status;
    *seconds = *share = 0;
    *mine = own[0];
    for (uint32_t r = 0; r < ranks && status == GW_OK; r++) {
        *seconds = fmax(u->probe_said[2 * (size_t)r], *seconds);
        *share += u->probe_said[2 * (size_t)r + 1] / ranks;
    }
    return status;
}

/* Two sizes: how long next to nothing takes, and how much longer what takes long. All ranks go by the same numbers, so
 * that all make as many. */
static gw_status measure_link(gw_step_auto *u, gw_comm *comm, gw_cluster_link *link, gw_why *why)
{
    const size_t most = MOST_PROBE / comm->ranks;
    double few[REPEATS], many[REPEATS], own_few[REPEATS], own_many[REPEATS];
    double spent = 0, share = 0, shares = 0;
    size_t piece = most / 16 > SHORT ? most / 16 : 2 * SHORT;
    uint32_t n = 0;
    gw_status status = GW_OK;
    for (int i = 0; i < REPEATS && status == GW_OK; i++) {
        status = once(u, comm, SHORT, &few[i], &own_few[i], &share, why);
    }
    const double latency = status == GW_OK ? gw_auto_median(few, REPEATS) : 0;
    while (status == GW_OK && n < REPEATS && (n == 0 || spent < (REPEATS + 1) * LONG_LOOK)) {
        status = once(u, comm, piece, &many[n], &own_many[n], &share, why);
        spent += many[n];
        if (n == 0 && many[0] < 8 * latency && many[0] < LONG_LOOK && piece * 4 <= most) {
            piece *= 4;
            continue;
        }
        shares += share;
        n++;
    }
    if (status == GW_OK) {
        const double bytes = (double)(piece - SHORT) * (comm->ranks - 1);
        link->latency = latency;
        /* where a rank's threads take turns on a core, twice the part of what is its own */
        link->cpu_share = u->cluster.cpu_workers == 0 ? fmin(2 * shares / n, 1) : 0;
        link->rate = bytes / fmax(gw_auto_median(many, n) - latency, 1e-7);
        u->own_latency = gw_auto_median(own_few, REPEATS);
        u->own_rate = bytes / fmax(gw_auto_median(own_many, n) - u->own_latency, 1e-7);
    }
    return status;
}

gw_status gw_auto_cluster_links(gw_step_auto *u, gw_why *why)
{
    const gw_lane *lane = &u->control.step->lanes[0].groups;
    gw_cluster *c = &u->cluster;
    u->judge.link = (double)NAN;
    if (c->nodes == 1 || c->ranks_per_node == 1) {
        return lane->flat->ranks < 2
                   ? GW_OK
                   : measure_link(u, lane->flat, c->nodes == 1 ? &c->intra : &c->inter, why);
    }
    gw_status status = measure_link(u, lane->intra, &c->intra, why);
    if (status == GW_OK) {
        status = measure_link(u, lane->inter, &c->inter, why);
        c->inter.rate *= c->ranks_per_node; /* all of a node at once: they share it */
    }
    return status;
}

/* Of the bytes that take GLANCE of a window by the link as it is known, against what this rank saw when it was measured. */
gw_status gw_auto_cluster_glance(gw_step_auto *u, double *faster, gw_why *why)
{
    static const double GLANCE = 0.0025, MOST = 1000;
    const gw_lane *lane = &u->control.step->lanes[0].groups;
    const gw_cluster *c = &u->cluster;
    const int flat = c->nodes == 1 || c->ranks_per_node == 1;
    gw_comm *comm = flat ? lane->flat : lane->inter;
    const double rate = gw_auto_link(u)->rate / (flat ? 1 : c->ranks_per_node);
    const double others = comm->ranks - 1;
    const double wish = GLANCE * GW_AUTO_WINDOW * u->watch.measured_seconds * rate / others;
    *faster = 0;
    if (comm->ranks < 2 || !(wish > SHORT) || !(u->own_rate > 0)) {
        return GW_OK;
    }
    const size_t most = MOST_PROBE / comm->ranks, piece = wish < (double)most ? (size_t)wish : most;
    double own[2];
    const gw_status status = exchange(u, comm, piece, own, why);
    if (status == GW_OK) {
        const double expected = (double)(piece - SHORT) * others / u->own_rate;
        const double longer = own[0] - u->own_latency;
        *faster = MOST * longer > expected ? expected / longer : MOST;
    }
    return status;
}

const gw_cluster_link *gw_auto_link(const gw_step_auto *u)
{
    return u->cluster.nodes > 1 ? &u->cluster.inter : &u->cluster.intra;
}
