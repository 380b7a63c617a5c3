/* The one interpreter: walks the moves of a compiled route. Encodes and decodes are done at once; a collective is posted, and the
 * walk goes on when it has arrived. docs/routes.md says what each move does. Which function carries out a move was chosen when the
 * exchange was created (exchange_create.c). */
#define _POSIX_C_SOURCE 200809L
#include "coll/exchange.h"

#include "base/hash.h"

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

/* ---- begin ---- */

static gw_bundle cut_bundle(gw_arena *arena, const gw_exchange *x)
{
    gw_bundle b = {0};
    b.bytes = gw_arena_take(arena, x->bundle_bytes, 1);
    b.at = gw_arena_take(arena, x->bundle_entries, sizeof *b.at);
    b.size = gw_arena_take(arena, x->bundle_entries, sizeof *b.size);
    return b;
}

void gw_exchange_cut(gw_arena *arena, gw_arena *there, gw_exchange *x)
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
    if (x->place->cut != NULL) {
        x->place->cut(arena, there, x);
    }
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

/* The lane has the groups of the route, each in the memory where its move works. */
static gw_status take_lane(gw_exchange *x, const gw_lane *lane, gw_why *why)
{
    x->lane = *lane;
    x->sealed_below = 1;
    for (uint32_t i = 0; i < x->program.n_moves; i++) {
        const gw_move *m = &x->program.move[i];
        if (m->step.level == 0 || !m->runs || m->group.size == 1) {
            continue;
        }
        const gw_comm *comm = x->memory[i]->comm(lane, m->step.level);
        const int device = comm != NULL && (comm->table->flags & GW_COMM_DEVICE) != 0;
        if (comm == NULL || comm->ranks != m->group.size || comm->rank != m->group.member) {
            return gw_fail(why, GW_ERR_ARG, "the lane has not the groups of this route");
        }
        if (device != x->memory[i]->device) {
            return gw_fail(why, GW_ERR_UNSUPPORTED, "an exchange works in %s memory, %s in %s",
                           device ? "host" : "a device's", comm->table->name,
                           device ? "a device's" : "the host's");
        }
        x->sealed_below &= device || (comm->table->flags & GW_COMM_SEALED) != 0;
    }
    x->seal_bytes = x->sealed_below ? 0 : GW_SEAL_BYTES;
    return GW_OK;
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
    gw_arena arena = gw_arena_over(workspace), there = gw_arena_over(lane->there);
    x->values = values;
    gw_exchange_cut(&arena, &there, x);
    if (arena.failed || there.failed) {
        return gw_fail(why, GW_ERR_WORKSPACE, "the workspace of an exchange is too small");
    }
    gw_status status = take_lane(x, lane, why);
    if (status == GW_OK && x->keeps) {
        status = gw_slots_begin(x, why);
    }
    if (status == GW_OK && x->rounds) {
        status = gw_additive_begin(x, why);
    }
    x->stream = *stream;
    const uint64_t key[] = {stream->step, stream->tensor};
    x->hash_key = gw_hash(key, sizeof key, 0);
    x->base = x->values;
    x->base_first = x->program.whole.first;
    x->move = x->phase = x->round = 0;
    x->under_way = x->again = 0;
    x->request = x->seals.request = NULL;
    x->stats = (gw_exchange_stats){.finite = 1};
    x->divided = x->looked = x->seen_bad = x->hashed = 0;
    x->seen = (gw_range){0};
    if (status == GW_OK && x->place->begin != NULL) {
        status = x->place->begin(x, values, why);
    }
    x->running = status == GW_OK;
    return status;
}

/* ---- the walk ---- */

static gw_comm *host_comm(const gw_lane *lane, uint32_t level)
{
    return level == GW_LEVEL_FLAT    ? lane->flat
           : level == GW_LEVEL_INTRA ? lane->intra
                                     : lane->inter;
}

static size_t host_entry_bytes(const gw_exchange *x, size_t bound)
{
    return bound + x->seal_bytes;
}

static gw_status host_copy(gw_exchange *x, void *to, const void *from, size_t bytes, gw_why *why)
{
    (void)x;
    (void)why;
    memcpy(to, from, bytes);
    return GW_OK;
}

const gw_memory gw_memory_host = {
    .comm = host_comm, .entry_bytes = host_entry_bytes, .copy = host_copy, .sum = gw_dense_sum};

gw_status gw_exchange_turn_to_comm(gw_exchange *x, gw_why *why)
{
    const gw_memory *memory = x->memory[x->move];
    x->comm = memory->comm(&x->lane, x->program.move[x->move].step.level);
    return memory->turn != NULL ? memory->turn(x, why) : GW_OK;
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

void gw_exchange_begin_move(gw_exchange *x)
{
    if (!x->under_way) {
        x->stats.began[x->move] = now();
        x->under_way = 1;
    }
}

/* One move, or one phase of it. */
static gw_status go_on(gw_exchange *x, gw_why *why)
{
    const gw_move *m = &x->program.move[x->move];
    const double begin = now();
    int done = 0;
    gw_exchange_begin_move(x);
    const gw_status status = x->operation[x->move](x, m, &done, why);
    const double seconds = now() - begin;
    x->stats.encode_seconds += m->step.op == GW_OP_ENCODE ? seconds : 0;
    x->stats.decode_seconds += m->step.op == GW_OP_ENCODE ? 0 : seconds;
    if (status == GW_OK && done) {
        x->stats.ended[x->move] = begin + seconds;
        x->under_way = 0;
        x->move = x->again ? 1 : x->move + 1;
        x->phase = 0;
        x->again = 0;
    }
    return status;
}

void gw_exchange_complete(gw_exchange *x, int *moved)
{
    if (!x->looked || (x->hashes && !x->hashed)) {
        const double begin = now();
        gw_exchange_finish(x);
        x->stats.decode_seconds += now() - begin;
        *moved = 1;
    }
}

static gw_status host_end(gw_exchange *x, int *done, int *moved, gw_why *why)
{
    (void)why;
    gw_exchange_complete(x, moved);
    *done = 1;
    return GW_OK;
}

const gw_place_table gw_place_host = {.end = host_end};

gw_status gw_exchange_progress(gw_exchange *x, int *done, int *moved, gw_why *why)
{
    GW_REQUIRE(why, x != NULL && done != NULL && moved != NULL,
               "no exchange, or no place for done and moved");
    gw_status status = GW_OK;
    int ready = 1;
    *done = *moved = 0;
    if (!x->running) {
        return gw_fail(why, GW_ERR_STATE, "the exchange has not begun");
    }
    if (x->request != NULL || x->seals.request != NULL) {
        status = test_requests(x, why);
        if (status != GW_OK || x->request != NULL || x->seals.request != NULL) {
            return status;
        }
        x->phase++;
        *moved = 1;
    }
    while (x->move < x->program.n_moves && !x->program.move[x->move].runs) {
        x->move++;
    }
    if (x->place->before != NULL) {
        status = x->place->before(x, &ready, moved, why);
    }
    if (status != GW_OK || !ready) {
        return status;
    }
    if (x->move < x->program.n_moves) {
        *moved = 1;
        return go_on(x, why);
    }
    return x->place->end(x, done, moved, why);
}

/* ---- the end ---- */

gw_status gw_exchange_commit(gw_exchange *x, gw_why *why)
{
    GW_REQUIRE(why, x != NULL, "no exchange");
    if (!x->running || x->move < x->program.n_moves) {
        return gw_fail(why, GW_ERR_STATE, "the exchange is not done");
    }
    gw_status status = x->keeps ? gw_slots_commit(x, why) : GW_OK;
    if (status == GW_OK && x->rounds) {
        status = gw_additive_commit(x, why);
    }
    if (status != GW_OK) {
        return status;
    }
    if (x->place->commit != NULL) {
        x->place->commit(x);
    }
    x->running = 0;
    return GW_OK;
}

gw_status gw_exchange_rollback(gw_exchange *x, gw_why *why)
{
    GW_REQUIRE(why, x != NULL, "no exchange");
    if (!x->running) {
        return gw_fail(why, GW_ERR_STATE, "the exchange has not begun");
    }
    if (x->keeps) {
        gw_slots_rollback(x);
    }
    if (x->rounds) {
        gw_additive_rollback(x);
    }
    x->running = 0;
    return GW_OK;
}
