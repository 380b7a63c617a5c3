/* What one rank of a race does; see allreduce_race.h.
 *
 * A round runs every racer once, so that a slow moment of the machine hits all alike; a round before the
 * first warms up. Numbers are generated block by block, each block from its rank and number: every rank can
 * therefore check its share of the blocks against the exact sum, in double, without anything being sent. */
#include "cli/bench/allreduce_race.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/measure/generate.h"
#include "cli/measure/large_buffers.h"
#include "cli/say.h"
#include "cli/seconds.h"

enum { BLOCK = 1 << 16, TRIAL = 1 << 20 };
static const double TIMEOUT = 120; /* seconds */

typedef struct lane { /* one racer on this rank */
    gw_step *step;
    double *sent; /* codecs with feedback: all results so far, of this rank's share */
    double lost;  /* others: most squared error of the sum that the codec allows */
} lane;

/* What ranks tell one another after each sum. */
typedef struct record {
    double seconds, encode, decode;
    double error, size; /* squared, over the rank's share: of result - sum, and of the sum */
    uint64_t hash;      /* of the whole result */
    uint64_t sent[GW_LINKS];
} record;

typedef struct seat {
    gw_cli_race *race;
    gw_comm *comm;
    gw_cli_huge in, work;
    double *exact; /* the sum, of this rank's share */
    size_t first, count;
    double energy; /* Σ over ranks and elements of g² */
    double size;   /* Σ over elements of the sum squared */
    lane lanes[GW_CLI_RACE_MAX];
    record *records; /* of all ranks */
} seat;

static bool fine(const seat *s, gw_status status, const gw_why *why)
{
    if (status != GW_OK) {
        gw_cli_error("rank %u: %s", s->comm->rank,
                     why->text[0] ? why->text : gw_status_string(status));
    }
    return status == GW_OK;
}

/* ---- numbers ---- */

static void generate(uint32_t rank, size_t block, float *out, size_t count)
{
    gw_cli_generate(((uint64_t)rank + 1) << 32 | block, out, count);
}

static size_t blocks_of(const gw_cli_race *race)
{
    return (race->elements + BLOCK - 1) / BLOCK;
}

static size_t block_size(const gw_cli_race *race, size_t block)
{
    const size_t left = race->elements - block * BLOCK;
    return left < BLOCK ? left : BLOCK;
}

/* This rank's gradient, and its share of the exact sum. */
static void make_numbers(seat *s)
{
    const size_t blocks = blocks_of(s->race);
    const uint32_t ranks = s->comm->ranks, rank = s->comm->rank;
    float *in = s->in.data, *other = s->work.data; /* not in use yet */
    for (size_t b = 0; b < blocks; b++) {
        generate(rank, b, in + b * BLOCK, block_size(s->race, b));
    }
    for (size_t b = blocks * rank / ranks; b < blocks * (rank + 1) / ranks; b++) {
        const size_t n = block_size(s->race, b);
        double *sum = s->exact + (b * BLOCK - s->first);
        for (uint32_t r = 0; r < ranks; r++) {
            generate(r, b, other, n);
            for (size_t i = 0; i < n; i++) {
                sum[i] += (double)other[i];
            }
        }
    }
}

static double squared(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return sum;
}

/* ---- telling one another ---- */

static bool gather(seat *s, const record *own)
{
    gw_why why = {""};
    const gw_status status = gw_comm_gather(s->comm, own, sizeof *own, s->records, TIMEOUT, &why);
    return fine(s, status, &why);
}

static bool barrier(seat *s)
{
    gw_request request = NULL;
    gw_why why = {""};
    gw_status status = s->comm->table->barrier(s->comm, &request, &why);
    if (status == GW_OK) {
        status = gw_comm_wait(s->comm, request, TIMEOUT, &why);
    }
    return fine(s, status, &why);
}

/* ---- before the first round ---- */

/* Squared error of one coding of this rank's numbers, over their squared size; -1: said. */
static double lost_by_coding(const seat *s, const gw_params *params)
{
    const size_t n = s->race->elements < TRIAL ? s->race->elements : TRIAL;
    const gw_stream stream = {.seed = 77, .rank = s->comm->rank};
    const gw_tensor in = {s->in.data, n, GW_F32};
    gw_tensor out = {s->work.data, n, GW_F32};
    size_t bound = 0, bytes = 0, written = 0;
    gw_exec exec = {0};
    gw_status status = gw_payload_bound(params, n, &bound);
    if (status == GW_OK) {
        status = gw_codec_workspace(params, GW_F32, n, 0, 1, &bytes);
    }
    void *payload = malloc(bound + 1);
    exec.workspace = (gw_workspace){malloc(bytes + 1), bytes};
    if (status == GW_OK && (!payload || !exec.workspace.data)) {
        status = GW_ERR_MEMORY;
    }
    if (status == GW_OK) {
        status = gw_encode(params, &exec, &stream, &in, payload, bound, &written, NULL);
    }
    if (status == GW_OK) {
        status = gw_decode(params, &exec, payload, written, GW_SET, &out, NULL);
    }
    free(payload);
    free(exec.workspace.data);
    if (status != GW_OK) {
        gw_cli_error("cannot code a part: %s", gw_status_string(status));
        return -1;
    }
    const float *x = in.data, *y = out.data;
    double lost = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)x[i] - (double)y[i];
        lost += d * d;
    }
    const double size = squared(x, n);
    return size > 0 ? lost / size : 0;
}

static bool has_feedback(const gw_cli_racer *racer)
{
    return racer->params.codec != NULL &&
           (gw_params_flags(&racer->params) & GW_CODEC_WANTS_FEEDBACK) != 0;
}

/* What may be lost. Gradients of different ranks are independent here, and so are errors: each lossy hop
 * adds its share of the energy that passes it. Half as much again, for pieces are not all alike; and fp32's
 * own rounding. */
static bool allow(seat *s, const gw_cli_racer *racer, lane *l)
{
    const double hops = (double)gw_route_encodes(&racer->route), ranks = (double)s->comm->ranks;
    const double rounding = (1 + ranks) * 0x1p-24;
    double omega = 0;
    if (racer->params.codec != NULL && !has_feedback(racer)) {
        const record own = {.error = lost_by_coding(s, &racer->params)};
        if (own.error < 0 || !gather(s, &own)) {
            return false;
        }
        for (uint32_t r = 0; r < s->comm->ranks; r++) {
            omega = s->records[r].error > omega ? s->records[r].error : omega;
        }
    }
    l->lost = s->energy * (1.5 * (pow(1 + omega, hops) - 1) + ranks * rounding * rounding);
    return true;
}

static bool open_step(seat *s, const gw_cli_racer *racer, lane *l)
{
    const gw_cli_race *race = s->race;
    const gw_step_config config = {.comm = s->comm,
                                   .ranks_per_node = race->ranks_per_node,
                                   .node_of = race->nodes ? race->nodes->node_of : NULL,
                                   .seed = 1,
                                   .lanes = race->lanes,
                                   .piece = race->piece,
                                   .timeout = TIMEOUT};
    const uint64_t row = 1024, n = race->elements;
    const uint64_t dims[2] = {n % row == 0 ? n / row : n, row};
    gw_why why = {""};
    uint32_t layer = 0;
    gw_status status = gw_step_create(&config, &l->step, &why);
    if (status == GW_OK) {
        status = gw_step_add(l->step, "bench", dims, n % row == 0 ? 2 : 1, GW_F32, &layer, &why);
    }
    if (status == GW_OK) {
        status = gw_step_plan(l->step, layer, racer->params.codec ? &racer->params : NULL,
                              &racer->route, &why);
    }
    if (status == GW_OK) {
        status = gw_step_agree(l->step, &why);
    }
    return fine(s, status, &why);
}

static bool open_lane(seat *s, size_t i)
{
    const gw_cli_racer *racer = &s->race->racers[i];
    lane *l = &s->lanes[i];
    if (has_feedback(racer)) {
        l->sent = calloc(s->count + 1, sizeof *l->sent);
        if (!l->sent) {
            gw_cli_out_of_memory();
            return false;
        }
    }
    return allow(s, racer, l) && (racer->engine || open_step(s, racer, l));
}

static bool open_seat(seat *s)
{
    const size_t bytes = s->race->elements * sizeof(float), blocks = blocks_of(s->race);
    const uint32_t ranks = s->comm->ranks, rank = s->comm->rank;
    const size_t end = blocks * (rank + 1) / ranks * BLOCK;
    s->first = blocks * rank / ranks * BLOCK;
    s->count = (end < s->race->elements ? end : s->race->elements) - s->first;
    s->in = gw_cli_huge_open(bytes, 2 * (size_t)rank);
    s->work = gw_cli_huge_open(bytes > BLOCK * sizeof(float) ? bytes : BLOCK * sizeof(float),
                               2 * (size_t)rank + 1);
    s->exact = calloc(s->count + 1, sizeof *s->exact);
    s->records = calloc(ranks, sizeof *s->records);
    if (!s->in.data || !s->work.data || !s->exact || !s->records) {
        gw_cli_out_of_memory();
        return false;
    }
    make_numbers(s);
    record own = {.error = squared(s->in.data, s->race->elements)};
    for (size_t i = 0; i < s->count; i++) {
        own.size += s->exact[i] * s->exact[i];
    }
    if (!gather(s, &own)) {
        return false;
    }
    for (uint32_t r = 0; r < ranks; r++) {
        s->energy += s->records[r].error;
        s->size += s->records[r].size;
    }
    for (size_t i = 0; i < s->race->n_racers; i++) {
        if (!open_lane(s, i)) {
            return false;
        }
    }
    return true;
}

static void close_seat(seat *s)
{
    for (size_t i = 0; i < s->race->n_racers; i++) {
        gw_step_destroy(s->lanes[i].step);
        free(s->lanes[i].sent);
    }
    gw_cli_huge_close(&s->in);
    gw_cli_huge_close(&s->work);
    free(s->exact);
    free(s->records);
}

/* ---- a round ---- */

static bool sum_up(seat *s, lane *l, record *own)
{
    gw_why why = {""};
    gw_layer_stats stats = {0};
    const gw_tensor t = {s->work.data, s->race->elements, GW_F32};
    if (!l->step) {
        const double begin = gw_cli_now();
        if (!s->race->engine->allreduce(s->work.data, s->race->elements)) {
            gw_cli_error("rank %u: %s's own allreduce failed", s->comm->rank,
                         s->race->engine->name);
            return false;
        }
        own->seconds = gw_cli_now() - begin;
        return true;
    }
    const double begin = gw_cli_now();
    gw_status status = gw_step_post(l->step, 0, &t, &why);
    if (status == GW_OK) {
        status = gw_step_wait(l->step, NULL, &why);
    }
    own->seconds = gw_cli_now() - begin;
    (void)gw_step_stats(l->step, 0, &stats);
    own->encode = stats.encode_seconds;
    own->decode = stats.decode_seconds;
    own->sent[0] = stats.bytes_sent[0];
    own->sent[1] = stats.bytes_sent[1];
    return fine(s, status, &why);
}

/* The result beside the exact sum, over this rank's share. The step's result is the mean. */
static void compare(seat *s, const lane *l, record *own)
{
    const float *result = (const float *)s->work.data + s->first;
    const double scale = l->step ? (double)s->comm->ranks : 1;
    for (size_t i = 0; i < s->count; i++) {
        const double sum = scale * (double)result[i], d = sum - s->exact[i];
        own->error += d * d;
        if (l->sent) {
            l->sent[i] += sum;
        }
    }
    own->hash = gw_payload_hash(s->work.data, s->race->elements * sizeof(float), 0);
}

/* Every rank sees the same records, so all agree on the verdict; rank 0 says it. */
static bool judge(const seat *s, size_t i, double *error)
{
    const lane *l = &s->lanes[i];
    const bool says = s->comm->rank == 0;
    const char *name = s->race->racers[i].name;
    *error = 0;
    for (uint32_t r = 0; r < s->comm->ranks; r++) {
        *error += s->records[r].error;
        if (l->step && s->records[r].hash != s->records[0].hash) {
            if (says) {
                gw_cli_error("%s: ranks 0 and %u have different results", name, r);
            }
            return false;
        }
    }
    if (!l->sent && !(*error <= l->lost)) {
        if (says) {
            gw_cli_error("%s: the sum is off by %.3g of its size, more than %.3g that its "
                         "codec may lose",
                         name, sqrt(*error / s->size), sqrt(l->lost / s->size));
        }
        return false;
    }
    return true;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void keep(const seat *s, gw_cli_racer *racer, double error, double *seconds)
{
    *seconds = racer->encode_seconds = racer->decode_seconds = 0;
    racer->wire_bytes = racer->near_bytes = racer->far_bytes = 0;
    for (uint32_t r = 0; r < s->comm->ranks; r++) {
        const record *one = &s->records[r];
        const uint64_t near = one->sent[GW_LINK_INTRA], far = one->sent[GW_LINK_INTER];
        uint64_t node = 0;
        for (uint32_t q = 0; q < s->comm->ranks; q++) {
            node += gw_same_node(s->race->nodes, s->race->ranks_per_node, q, r)
                        ? s->records[q].sent[GW_LINK_INTER]
                        : 0;
        }
        *seconds = fmax(*seconds, one->seconds);
        racer->encode_seconds = fmax(racer->encode_seconds, one->encode);
        racer->decode_seconds = fmax(racer->decode_seconds, one->decode);
        racer->wire_bytes = larger(racer->wire_bytes, near + far);
        racer->near_bytes = larger(racer->near_bytes, near);
        racer->far_bytes = larger(racer->far_bytes, node);
    }
    racer->rel_error = s->size > 0 ? error / s->size : error;
}

static bool run_racer(seat *s, size_t i, double *seconds)
{
    record own = {0};
    double error = 0;
    memcpy(s->work.data, s->in.data, s->race->elements * sizeof(float));
    if (!barrier(s) || !sum_up(s, &s->lanes[i], &own)) {
        return false;
    }
    compare(s, &s->lanes[i], &own);
    if (!gather(s, &own) || !judge(s, i, &error)) {
        return false;
    }
    if (s->comm->rank == 0) {
        keep(s, &s->race->racers[i], error, seconds);
    }
    return true;
}

/* Codecs with feedback lose nothing over all rounds: when the residuals come out, in a last step of zeros
 * that goes uncompressed, all results together are as many times the sum as there were rounds. */
static bool settle(seat *s, size_t i)
{
    lane *l = &s->lanes[i];
    gw_why why = {""};
    gw_route dense;
    record own = {0}, last = {0};
    double error = 0;
    const double rounds = (double)(s->race->rounds + 1);
    gw_status status = gw_route_parse(&dense, "dense", &why);
    if (status == GW_OK) {
        status = gw_step_plan(l->step, 0, NULL, &dense, &why);
    }
    if (status == GW_OK) {
        status = gw_step_agree(l->step, &why);
    }
    memset(s->work.data, 0, s->race->elements * sizeof(float));
    if (!fine(s, status, &why) || !sum_up(s, l, &last)) {
        return false;
    }
    compare(s, l, &last); /* adds to what was sent */
    for (size_t e = 0; e < s->count; e++) {
        const double d = l->sent[e] - rounds * s->exact[e];
        own.error += d * d;
    }
    if (!gather(s, &own)) {
        return false;
    }
    for (uint32_t r = 0; r < s->comm->ranks; r++) {
        error += s->records[r].error;
    }
    const double most = 1e-5 * rounds; /* of rounding, over so many rounds */
    if (!(error <= most * most * s->energy) && s->comm->rank == 0) {
        gw_cli_error("%s: results and residuals of %g rounds are off by %.3g of the sum",
                     s->race->racers[i].name, rounds, sqrt(error / s->size) / rounds);
    }
    return error <= most * most * s->energy;
}

static bool run_rounds(seat *s)
{
    gw_cli_race *race = s->race;
    double warm_up = 0;
    for (size_t round = 0; round <= race->rounds; round++) {
        if (race->progress && s->comm->rank == 0) {
            (void)fprintf(stderr, "\rround %zu of %zu ", round, race->rounds);
        }
        for (size_t i = 0; i < race->n_racers; i++) {
            double *seconds = round == 0 ? &warm_up : &race->racers[i].seconds[round - 1];
            if (!run_racer(s, i, seconds)) {
                return false;
            }
        }
    }
    if (race->progress && s->comm->rank == 0) {
        (void)fputs("\r                    \r", stderr);
    }
    for (size_t i = 0; i < race->n_racers; i++) {
        if (s->lanes[i].sent && !settle(s, i)) {
            return false;
        }
    }
    return true;
}

bool gw_cli_race_run(gw_cli_race *race, gw_comm *comm)
{
    seat s = {.race = race, .comm = comm};
    const bool done = open_seat(&s) && run_rounds(&s);
    if (!done) {
        comm->table->abort(comm, "its benchmark failed");
    }
    close_seat(&s);
    return done;
}
