/* The one interpreter: walks the moves of a compiled route. Encodes and decodes are done at once; a collective
 * is posted, and the walk goes on when it has arrived. docs/routes.md says what each move does. */
#define _POSIX_C_SOURCE 200809L
#include "coll/exchange.h"

#include "base/divide.h"
#include "base/pool.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void gw_exchange_count_sent(gw_exchange *x, const gw_move *m, uint32_t member, size_t bytes)
{
    const uint32_t to = gw_group_rank(&m->group, member);
    if (to != x->config.rank) {
        const int near =
            gw_same_node(x->config.nodes, x->config.ranks_per_node, to, x->config.rank);
        x->stats.bytes_sent[near ? GW_LINK_INTRA : GW_LINK_INTER] += bytes;
    }
}

/* ---- create ---- */

gw_status gw_exchange_compile(gw_exchange *x, uint64_t numbers, gw_why *why)
{
    const gw_exchange_config *c = &x->config;
    const gw_route_job job = {.ranks = c->ranks,
                              .ranks_per_node = c->ranks_per_node,
                              .nodes = c->nodes,
                              .rank = c->rank,
                              .first = c->first,
                              .elements = c->elements,
                              .params = &c->params,
                              .numbers = numbers,
                              .width = (uint32_t)x->width};
    const gw_status status = gw_route_compile(&c->route, &job, &x->program, why);
    return status == GW_OK && c->sharded ? gw_exchange_halve(&x->program, why) : status;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void measure_operand(gw_exchange *x, const gw_operand *o, int stays)
{
    const size_t entries = (size_t)o->outer * o->inner * o->payloads;
    if (o->kind == GW_OPERAND_BUNDLE) {
        x->bundle_entries = larger(x->bundle_entries, entries);
    }
    if (o->kind == GW_OPERAND_BUNDLE && !stays) {
        x->bundle_bytes = larger(x->bundle_bytes, (size_t)o->bytes + entries * GW_SEAL_BYTES);
        const gw_range piece = gw_operand_piece(o, x->program.grain, 0); /* the largest */
        size_t bytes = 0;
        (void)gw_codec_workspace(&x->config.params, GW_F32, (size_t)piece.count, 1,
                                 gw_pool_threads(x->config.exec.pool), &bytes);
        x->codec_bytes = larger(x->codec_bytes, bytes);
    }
}

/* How much memory the moves of the program need. */
static void measure(gw_exchange *x)
{
    for (uint32_t i = 0; i < x->program.n_moves; i++) {
        const gw_move *m = &x->program.move[i];
        measure_operand(x, &m->before, x->stay.move[i]);
        measure_operand(x, &m->after, x->stay.move[i]);
        if (m->step.level == 0) {
            continue;
        }
        x->most_members = m->group.size > x->most_members ? m->group.size : x->most_members;
        if ((m->before.kind == GW_OPERAND_DENSE || m->before.kind == GW_OPERAND_NUMBERS) &&
            !x->stay.move[i]) {
            const gw_range piece = gw_range_cut(m->before.range, x->program.grain, m->parts, 0);
            x->bundle_bytes =
                larger(x->bundle_bytes, x->width * (size_t)piece.count * m->group.size);
        }
    }
}

static gw_status measure_additive(gw_exchange *x, gw_why *why)
{
    const gw_params *p = &x->config.params;
    const size_t count = (size_t)x->config.elements;
    gw_status status = GW_OK;
    if (!gw_exchange_has_rounds(x)) {
        measure(x);
        (void)gw_codec_workspace(p, GW_F32, count, 1, gw_pool_threads(x->config.exec.pool),
                                 &x->codec_bytes);
        return gw_payload_bound(p, count, &x->numbers_bytes);
    }
    size_t n = 0, state = 0;
    measure(x); /* groups of an empty tensor too: it has no round, and its seals are sent */
    for (unsigned round = 0; status == GW_OK; round++) {
        status = gw_rounds_elements(p, count, round, &n);
        if (n == 0 || status != GW_OK) {
            break;
        }
        status = gw_exchange_compile(x, n, why);
        measure(x);
        x->numbers_bytes = larger(x->numbers_bytes, 4 * n);
    }
    if (status == GW_OK) {
        status = gw_rounds_workspace(p, count, &x->rounds_bytes);
    }
    if (status == GW_OK) {
        status = gw_rounds_state(p, count, &state);
    }
    if (status != GW_OK) {
        return gw_fail(why, status, "%s", gw_status_string(status));
    }
    return gw_exchange_add_state(x, state, why);
}

static gw_status take_dtype(gw_exchange *x, gw_why *why)
{
    x->dtype = x->config.dtype != 0 ? x->config.dtype : GW_F32;
    x->width = gw_dtype_size(x->dtype);
    if (x->width == 0) {
        return gw_fail(why, GW_ERR_ARG, "unknown dtype %d", (int)x->dtype);
    }
    return x->dtype == GW_F32 || gw_route_encodes(&x->config.route) == 0
               ? GW_OK
               : gw_fail(why, GW_ERR_UNSUPPORTED, "a route that encodes takes f32 values, not %s",
                         gw_dtype_name(x->dtype));
}

gw_status gw_exchange_create(const gw_exchange_config *config, gw_exchange **out, gw_why *why)
{
    GW_REQUIRE(why, config != NULL && out != NULL, "no config, or no place for the exchange");
    gw_exchange *x = calloc(1, sizeof *x);
    if (x == NULL) {
        return gw_fail(why, GW_ERR_MEMORY, "no memory for an exchange");
    }
    x->config = *config;
    x->most_members = 1;
    x->seal_bytes = GW_SEAL_BYTES;
    for (int i = 0; i < GW_ROUTE_MAX_STEPS; i++) {
        x->slot[i] = GW_NO_SLOT;
    }
    x->state_slot = GW_NO_SLOT;
    const gw_isa isa = config->exec.isa != GW_ISA_AUTO ? config->exec.isa : gw_isa_best();
    x->convert = gw_convert_for(isa);
    gw_status status = x->convert != NULL
                           ? take_dtype(x, why)
                           : gw_fail(why, GW_ERR_UNSUPPORTED, "no such variant here");
    if (status == GW_OK) {
        status = gw_exchange_compile(x, 0, why);
    }
    if (status == GW_OK) {
        status = gw_stay_plan(x, why);
    }
    if (status == GW_OK) {
        x->fixed_size = (gw_params_flags(&config->params) & GW_CODEC_FIXED_SIZE) != 0;
        if (gw_exchange_is_additive(x)) {
            status = measure_additive(x, why);
        } else {
            measure(x);
        }
    }
    if (status == GW_OK) {
        status = gw_there_measure(x, why);
    }
    if (status == GW_OK) {
        status = gw_exchange_add_slots(x, why);
    }
    if (status == GW_OK) {
        status = gw_there_keep(x, why);
    }
    if (status == GW_OK) {
        status = gw_additive_keep(x, why);
    }
    x->config.before = NULL;
    if (status != GW_OK) {
        gw_exchange_destroy(x, 1);
        return status;
    }
    *out = x;
    return GW_OK;
}

void gw_exchange_destroy(gw_exchange *x, int retire)
{
    if (x == NULL) {
        return;
    }
    for (uint32_t i = 0; i < GW_ROUTE_MAX_STEPS; i++) {
        if (x->slot[i] != GW_NO_SLOT && retire) {
            (void)gw_feedback_retire(x->config.store, x->slot[i], NULL);
        } else if (x->slot[i] != GW_NO_SLOT) {
            (void)gw_feedback_keep(x->config.store, x->slot[i], NULL, NULL);
        }
    }
    if (retire && x->state_slot != GW_NO_SLOT) {
        (void)gw_feedback_retire(x->config.store, x->state_slot, NULL);
    } else if (x->state_slot != GW_NO_SLOT) {
        (void)gw_feedback_keep(x->config.store, x->state_slot, NULL, NULL);
    }
    gw_there_free(x);
    gw_additive_free(x);
    free(x->own_state);
    free(x);
}

/* ---- begin ---- */

static gw_bundle cut_bundle(gw_arena *arena, const gw_exchange *x)
{
    gw_bundle b = {0};
    b.bytes = gw_arena_take(arena, x->bundle_bytes, 1);
    b.at = gw_arena_take(arena, x->bundle_entries, sizeof *b.at);
    b.size = gw_arena_take(arena, x->bundle_entries, sizeof *b.size);
    return b;
}

/* Cuts, or measures; `there` is of a device's memory. */
static void cut(gw_arena *arena, gw_arena *there, gw_exchange *x)
{
    x->bundle = cut_bundle(arena, x);
    x->next = cut_bundle(arena, x);
    x->lengths = gw_arena_take(arena, 4 * x->bundle_entries, sizeof *x->lengths);
    x->payloads = gw_arena_take(arena, x->bundle_entries, sizeof *x->payloads);
    size_t **const lists[] = {&x->messages.send_size, &x->messages.send_at, &x->messages.size,
                              &x->messages.at};
    for (int i = 0; i < 4; i++) {
        *lists[i] = gw_arena_take(arena, x->most_members, sizeof **lists[i]);
    }
    const size_t seals = (size_t)GW_SEALS * x->most_members;
    x->seals.sent = gw_arena_take(arena, seals, sizeof *x->seals.sent);
    x->seals.received = gw_arena_take(arena, seals, sizeof *x->seals.received);
    x->seals.found = gw_arena_take(arena, seals, sizeof *x->seals.found);
    x->seals.sizes = gw_arena_take(arena, 3 * (size_t)x->most_members, sizeof *x->seals.sizes);
    x->codec_workspace = (gw_workspace){gw_arena_take(arena, x->codec_bytes, 1), x->codec_bytes};
    x->numbers = gw_arena_take(arena, x->numbers_bytes, 1);
    x->rounds_workspace = (gw_workspace){gw_arena_take(arena, x->rounds_bytes, 1), x->rounds_bytes};
    gw_there_cut(arena, there, x);
}

size_t gw_exchange_workspace(const gw_exchange *exchange)
{
    if (exchange == NULL) {
        return 0;
    }
    gw_exchange measured = *exchange;
    gw_arena arena = gw_arena_measuring(), there = gw_arena_measuring();
    cut(&arena, &there, &measured);
    return gw_arena_need(&arena);
}

size_t gw_exchange_workspace_there(const gw_exchange *exchange)
{
    if (exchange == NULL) {
        return 0;
    }
    gw_exchange measured = *exchange;
    gw_arena arena = gw_arena_measuring(), there = gw_arena_measuring();
    cut(&arena, &there, &measured);
    return exchange->config.place.cuda != NULL ? gw_arena_need(&there) : 0;
}

size_t gw_exchange_most_bytes(const gw_exchange *x)
{
    if (x == NULL) {
        return 0;
    }
    const size_t lengths = 2 * x->bundle_entries * sizeof *x->lengths;
    const size_t numbers = gw_exchange_is_additive(x) ? x->numbers_bytes
                           : x->bundle_entries == 0   ? x->width * (size_t)x->config.elements
                                                      : 0;
    return larger(larger(x->bundle_bytes, lengths), numbers);
}

const gw_program *gw_exchange_program(const gw_exchange *exchange)
{
    if (exchange == NULL) {
        return NULL;
    }
    return &exchange->program;
}

const gw_exchange_stats *gw_exchange_stats_of(const gw_exchange *exchange)
{
    if (exchange == NULL) {
        return NULL;
    }
    return &exchange->stats;
}

static void close_slots(gw_exchange *x)
{
    for (uint32_t i = 0; i < GW_ROUTE_MAX_STEPS; i++) {
        if (x->slot[i] != GW_NO_SLOT && x->residual[i] != NULL) {
            (void)gw_feedback_rollback(x->config.store, x->slot[i], NULL);
        }
        x->residual[i] = NULL;
        x->residual_after[i] = NULL;
    }
    if (x->state_slot != GW_NO_SLOT) {
        (void)gw_feedback_rollback(x->config.store, x->state_slot, NULL);
    }
}

/* Opens an encoding at every point, and the state. */
static gw_status open_slots(gw_exchange *x, gw_why *why)
{
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < x->program.n_moves && status == GW_OK; i++) {
        if (x->slot[i] != GW_NO_SLOT) {
            status = gw_feedback_begin(x->config.store, x->slot[i], &x->residual[i],
                                       &x->residual_after[i], why);
            if (status == GW_OK && x->there.codes[i]) {
                x->residual[i] = x->there.kept[i].r;
                x->residual_after[i] = x->there.kept[i].after;
            }
        }
    }
    if (status == GW_OK && x->state_slot != GW_NO_SLOT) {
        status = gw_feedback_begin(x->config.store, x->state_slot, &x->state, &x->state_after, why);
    }
    if (status != GW_OK) {
        close_slots(x);
    }
    return status;
}

gw_status gw_exchange_begin(gw_exchange *x, const gw_lane *lane, void *values,
                            const gw_stream *stream, gw_workspace workspace, gw_why *why)
{
    GW_REQUIRE(why,
               x != NULL && lane != NULL && stream != NULL &&
                   (values != NULL || x->config.elements == 0),
               "no exchange, lane, values or stream");
    if (x->running) {
        return gw_fail(why, GW_ERR_STATE, "the exchange has begun already");
    }
    const int on_device = x->config.place.cuda != NULL;
    gw_arena arena = gw_arena_over(workspace), there = gw_arena_over(lane->there);
    x->values = on_device ? NULL : values;
    cut(&arena, &there, x);
    if (arena.failed || (on_device && there.failed)) {
        return gw_fail(why, GW_ERR_WORKSPACE, "the workspace of an exchange is too small");
    }
    x->lane = *lane;
    x->sealed_below = 1;
    for (uint32_t i = 0; i < x->program.n_moves; i++) {
        const gw_move *m = &x->program.move[i];
        if (m->step.level != 0 && m->runs && m->group.size > 1) {
            const gw_comm *comm = gw_exchange_comm(x, i);
            const int device = comm != NULL && (comm->table->flags & GW_COMM_DEVICE) != 0;
            if (comm == NULL || comm->ranks != m->group.size || comm->rank != m->group.member) {
                return gw_fail(why, GW_ERR_ARG, "the lane has not the groups of this route");
            }
            if (device != x->stay.move[i]) {
                return gw_fail(why, GW_ERR_UNSUPPORTED, "an exchange works in %s memory, %s in %s",
                               device ? "host" : "a device's", comm->table->name,
                               device ? "a device's" : "the host's");
            }
            x->sealed_below &= device || (comm->table->flags & GW_COMM_SEALED) != 0;
        }
    }
    x->seal_bytes = x->sealed_below ? 0 : GW_SEAL_BYTES;
    gw_status status = open_slots(x, why);
    if (status == GW_OK) {
        status = gw_stay_begin(x, why);
    }
    if (status != GW_OK) {
        return status;
    }
    x->stream = *stream;
    x->base = x->values;
    x->there.values = values;
    x->there.here = !on_device;
    x->there.waiting = 0;
    x->base_first = x->program.whole.first;
    x->move = x->phase = x->round = 0;
    x->under_way = 0;
    x->request = x->seals.request = NULL;
    x->stats = (gw_exchange_stats){.finite = 1};
    x->divided = x->looked = x->seen_bad = x->hashed = 0;
    x->seen = (gw_range){0};
    x->running = 1;
    return GW_OK;
}

/* ---- the walk ---- */

gw_status gw_exchange_turn_to_comm(gw_exchange *x, gw_why *why)
{
    x->comm = gw_exchange_comm(x, x->move);
    return x->stay.inside ? x->comm->table->after(x->comm, x->lane.stream, why) : GW_OK;
}

static gw_status collective(gw_exchange *x, const gw_move *m, int *arrived, gw_why *why)
{
    const int numbers = m->before.kind == GW_OPERAND_DENSE ||
                        m->before.kind == GW_OPERAND_NUMBERS ||
                        (m->before.kind == GW_OPERAND_NONE && m->after.kind != GW_OPERAND_BUNDLE);
    if (m->group.size == 1) {
        *arrived = 1;
        return GW_OK;
    }
    return numbers ? gw_dense_collective(x, m, arrived, why)
                   : gw_bundle_collective(x, m, arrived, why);
}

uint32_t gw_exchange_divisor(const gw_exchange *x)
{
    return x->config.divisor != 0 ? x->config.divisor : 1;
}

int gw_exchange_at_last(const gw_exchange *x)
{
    uint32_t next = x->move + 1;
    while (next < x->program.n_moves && !x->program.move[next].runs) {
        next++;
    }
    return next == x->program.n_moves;
}

uint32_t gw_exchange_last_divisor(const gw_exchange *x)
{
    return !gw_exchange_is_additive(x) && gw_exchange_at_last(x) ? gw_exchange_divisor(x) : 1;
}

int gw_exchange_any_bad(const gw_exchange *x, const void *numbers, size_t n)
{
    return x->dtype == GW_F32 ? x->convert->largest(numbers, n) >= GW_INF_BITS
                              : gw_any_non_finite_of(x->dtype, numbers, n);
}

int gw_exchange_round(const gw_exchange *x, void *to, float *from, size_t n, uint32_t divisor)
{
    if (x->dtype == GW_F32) {
        return x->convert->divide(to, from, n, divisor, 0);
    }
    (void)x->convert->divide(from, from, n, divisor, 0);
    return x->convert->narrow(x->dtype, from, to, n) >= gw_overflow_bits(x->dtype);
}

/* 1: a number of a divided result is not finite. Of a sum, this rank has seen its own piece. */
static int any_bad(const gw_exchange *x, size_t n)
{
    const size_t first = x->seen.count != 0 ? (size_t)(x->seen.first - x->program.whole.first) : n;
    const size_t end = first + (size_t)x->seen.count;
    const uint8_t *values = x->values;
    return x->seen_bad || gw_exchange_any_bad(x, values, first) ||
           gw_exchange_any_bad(x, values + end * x->width, n - end);
}

/* Numbers of a sum that no move has divided: of one rank alone, and fp32 ones that came in two steps. */
static int divide_block(const gw_exchange *x, void *block, size_t n, uint32_t divisor)
{
    float wide[GW_SEAL_BLOCK];
    if (x->dtype == GW_F32) {
        return gw_exchange_round(x, block, block, n, divisor);
    }
    x->convert->widen(x->dtype, block, wide, n);
    return gw_exchange_round(x, block, wide, n, divisor);
}

/* What the last move has left to do. */
static void finish(gw_exchange *x)
{
    const double begin = now();
    const size_t n = (size_t)x->config.elements;
    const uint32_t divisor = x->divided ? 1 : gw_exchange_divisor(x);
    const int hashes = gw_exchange_hashes_here(x) && !x->hashed;
    int bad = x->divided && !x->looked ? any_bad(x, n) : 0;
    for (size_t at = 0; at < n && (hashes || !x->divided); at += GW_SEAL_BLOCK) {
        uint8_t *block = (uint8_t *)x->values + at * x->width;
        const size_t some = n - at < GW_SEAL_BLOCK ? n - at : GW_SEAL_BLOCK;
        bad |= !x->divided && divide_block(x, block, some, divisor);
        if (hashes) {
            gw_exchange_hash_block(x, at, block, some);
        }
    }
    x->stats.finite = x->looked ? x->stats.finite : !bad;
    x->divided = x->looked = x->hashed = 1;
    x->stats.decode_seconds += now() - begin;
}

static gw_status encode(gw_exchange *x, const gw_move *m, int *arrived, gw_why *why)
{
    if (x->there.codes[x->move]) {
        x->stats.coded_on |= GW_DEVICE_GPU;
        return x->stay.inside    ? gw_stay_encode(x, m, why)
               : x->there.rounds ? gw_there_encode_rounds(x, arrived, why)
                                 : gw_there_encode(x, m, arrived, why);
    }
    x->stats.coded_on |= GW_DEVICE_CPU;
    return gw_exchange_is_additive(x) ? gw_additive_encode(x, m, why) : gw_bundle_encode(x, m, why);
}

/* *again: another round follows. */
static gw_status decode(gw_exchange *x, const gw_move *m, int *arrived, int *again, gw_why *why)
{
    const int last = x->move + 1 == x->program.n_moves;
    if (x->there.codes[x->move]) {
        x->looked = x->divided = last;
        x->stats.finite |= last; /* only the result counts */
        x->stats.coded_on |= GW_DEVICE_GPU;
        const uint32_t divisor =
            gw_exchange_is_additive(x) ? gw_exchange_divisor(x) : gw_exchange_last_divisor(x);
        return x->stay.inside    ? gw_stay_decode(x, m, divisor, why)
               : x->there.rounds ? gw_there_decode_rounds(x, divisor, arrived, again, why)
                                 : gw_there_decode(x, m, divisor, arrived, why);
    }
    x->looked = x->divided = !gw_exchange_is_additive(x) && last;
    x->stats.finite |= x->looked;
    x->stats.coded_on |= GW_DEVICE_CPU;
    return gw_exchange_is_additive(x) ? gw_additive_decode(x, again, why)
                                      : gw_bundle_decode(x, m, gw_exchange_last_divisor(x), why);
}

/* One move, or one phase of it. */
static gw_status go_on(gw_exchange *x, gw_why *why)
{
    const gw_move *m = &x->program.move[x->move];
    const double begin = now();
    int arrived = 1, again = 0;
    if (!x->under_way) {
        x->stats.began[x->move] = begin;
        x->under_way = 1;
    }
    gw_status status = gw_there_move(x, m, why);
    if (status != GW_OK || x->there.waiting) {
        return status;
    }
    gw_stay_use(x);
    if (m->step.op == GW_OP_ENCODE) {
        status = encode(x, m, &arrived, why);
        x->stats.encode_seconds += now() - begin;
    } else if (m->step.op == GW_OP_DECODE) {
        status = decode(x, m, &arrived, &again, why);
        x->stats.decode_seconds += now() - begin;
    } else {
        arrived = 0;
        status = collective(x, m, &arrived, why);
        x->stats.decode_seconds += now() - begin;
    }
    if (status == GW_OK && arrived) {
        x->stats.ended[x->move] = now();
        x->under_way = 0;
        x->move = again ? 1 : x->move + 1;
        x->phase = 0;
    }
    return status;
}

/* All moves are done: the result is divided and looked at, and goes where the values were. */
static gw_status end(gw_exchange *x, int *done, int *moved, gw_why *why)
{
    const int on_device = x->config.place.cuda != NULL;
    if (!x->looked && on_device && !x->there.here) {
        *moved = 1;
        return x->stay.move[x->program.n_moves - 1] ? gw_stay_finish(x, why)
                                                    : gw_there_bring(x, why);
    }
    if (!x->looked || (gw_exchange_hashes_here(x) && !x->hashed)) {
        finish(x);
        *moved = 1;
    }
    if (on_device && x->there.here) {
        *moved = 1;
        return gw_there_return(x, why);
    }
    gw_status status = gw_stay_settle(x, done, why);
    if (status == GW_OK && *done && on_device && x->config.hashed && !x->hashed) {
        *done = 0;
        status = gw_there_begin(x, why);
        status = status == GW_OK ? gw_there_hash(x, why) : status;
        status = gw_there_end(x, status, &x->stats.decode_seconds, why);
    }
    *moved |= !*done;
    return status;
}

/* Those that are done become NULL; after a failure all are gone. */
static gw_status test_requests(gw_exchange *x, gw_why *why)
{
    gw_request *const under_way[] = {&x->request, &x->seals.request};
    for (int i = 0; i < 2; i++) {
        int arrived = 0;
        if (*under_way[i] == NULL) {
            continue;
        }
        const gw_status status = x->comm->table->test(x->comm, *under_way[i], &arrived, why);
        if (status != GW_OK) {
            x->request = x->seals.request = NULL;
            return status;
        }
        *under_way[i] = arrived ? NULL : *under_way[i];
    }
    return GW_OK;
}

gw_status gw_exchange_progress(gw_exchange *x, int *done, int *moved, gw_why *why)
{
    GW_REQUIRE(why, x != NULL && done != NULL && moved != NULL,
               "no exchange, or no place for done and moved");
    *done = *moved = 0;
    if (!x->running) {
        return gw_fail(why, GW_ERR_STATE, "the exchange has not begun");
    }
    if (x->there.waiting) {
        const gw_status status = gw_there_test(x, moved, why);
        if (status != GW_OK || !*moved) {
            return status;
        }
    }
    if (x->request != NULL || x->seals.request != NULL) {
        const gw_status status = test_requests(x, why);
        if (status != GW_OK || x->request != NULL || x->seals.request != NULL) {
            return status;
        }
        x->phase++;
        *moved = 1;
    }
    while (x->move < x->program.n_moves && !x->program.move[x->move].runs) {
        x->move++;
    }
    if (x->move < x->program.n_moves && gw_stay_must_wait(x)) {
        return GW_OK;
    }
    if (x->move < x->program.n_moves) {
        *moved = 1;
        return go_on(x, why);
    }
    return end(x, done, moved, why);
}

/* ---- the end ---- */

gw_status gw_exchange_commit(gw_exchange *x, gw_why *why)
{
    GW_REQUIRE(why, x != NULL, "no exchange");
    if (!x->running || x->move < x->program.n_moves) {
        return gw_fail(why, GW_ERR_STATE, "the exchange is not done");
    }
    for (uint32_t i = 0; i < GW_ROUTE_MAX_STEPS; i++) {
        if (x->slot[i] != GW_NO_SLOT && x->residual[i] != NULL) {
            const gw_status status =
                gw_feedback_commit_checked(x->config.store, x->slot[i], NULL, why);
            if (status != GW_OK) {
                return status;
            }
        }
        if (x->slot[i] != GW_NO_SLOT && x->there.codes[i] && x->residual[i] != NULL) {
            gw_there_commit(&x->there.kept[i]);
        }
        x->residual[i] = NULL;
        x->residual_after[i] = NULL;
    }
    if (x->state_slot != GW_NO_SLOT) {
        const gw_status status =
            gw_feedback_commit_checked(x->config.store, x->state_slot, NULL, why);
        if (status != GW_OK) {
            return status;
        }
    } else if (x->own_state != NULL) {
        const float *const state = x->state;
        x->state = x->state_after;
        x->state_after = x->own_state + (state - x->own_state);
    }
    if (x->there.rounds) {
        gw_there_commit(&x->there.state);
    }
    gw_additive_commit(x);
    x->running = 0;
    return GW_OK;
}

gw_status gw_exchange_rollback(gw_exchange *x, gw_why *why)
{
    GW_REQUIRE(why, x != NULL, "no exchange");
    if (!x->running) {
        return gw_fail(why, GW_ERR_STATE, "the exchange has not begun");
    }
    close_slots(x);
    x->running = 0;
    return GW_OK;
}
