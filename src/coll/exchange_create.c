/* An exchange before its first run: the route is compiled, memory measured, residuals find their place, and every move gets the
 * operation that carries it out. */
#include "coll/device_exchange.h"

#include "base/pool.h"

#include <stdlib.h>

/* encode · flat:alltoall · decode, or flat:reduce_scatter: what follows gives the pieces back to all. */
static gw_status halve(gw_program *p, gw_why *why)
{
    const gw_move *m = p->move;
    if (m[0].step.op == GW_OP_ENCODE && p->n_moves > 2 && m[1].step.op == GW_OP_ALLTOALL &&
        m[1].step.level == GW_LEVEL_FLAT && m[2].step.op == GW_OP_DECODE) {
        p->n_moves = 3;
        return GW_OK;
    }
    if (m[0].step.op == GW_OP_REDUCE_SCATTER && m[0].step.level == GW_LEVEL_FLAT) {
        p->n_moves = 1;
        return GW_OK;
    }
    return gw_fail(why, GW_ERR_UNSUPPORTED,
                   "a sharded result needs a route that begins with encode, flat:alltoall or with "
                   "flat:reduce_scatter");
}

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
    return status == GW_OK && c->sharded ? halve(&x->program, why) : status;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* `stays`: in a device's memory. */
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
        const int stays = x->memory[i]->device;
        measure_operand(x, &m->before, stays);
        measure_operand(x, &m->after, stays);
        if (m->step.level == 0) {
            continue;
        }
        x->most_members = m->group.size > x->most_members ? m->group.size : x->most_members;
        if ((m->before.kind == GW_OPERAND_DENSE || m->before.kind == GW_OPERAND_NUMBERS) &&
            !stays) {
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
    if (!x->rounds) {
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

/* ---- the operations ---- */

/* Of a collective in a group of one. */
static gw_status nothing(gw_exchange *x, const gw_move *m, int *done, gw_why *why)
{
    (void)x;
    (void)m;
    (void)why;
    *done = 1;
    return GW_OK;
}

/* What carries out a move on the host. */
static gw_operation *operation_of(const gw_exchange *x, const gw_move *m)
{
    const int additive = gw_exchange_is_additive(x);
    if (m->step.op == GW_OP_ENCODE) {
        return x->rounds  ? gw_additive_encode_round
               : additive ? gw_additive_encode
                          : gw_bundle_encode;
    }
    if (m->step.op == GW_OP_DECODE) {
        return x->rounds  ? gw_additive_decode_round
               : additive ? gw_additive_decode
                          : gw_bundle_decode;
    }
    const gw_operand_kind before = m->before.kind;
    const int numbers = before == GW_OPERAND_DENSE || before == GW_OPERAND_NUMBERS ||
                        (before == GW_OPERAND_NONE && m->after.kind != GW_OPERAND_BUNDLE);
    return m->group.size == 1 ? nothing : numbers ? gw_dense_collective : gw_bundle_collective;
}

static void choose(gw_exchange *x)
{
    x->place = &gw_place_host;
    x->rounds =
        gw_exchange_is_additive(x) && (gw_params_flags(&x->config.params) & GW_CODEC_ROUNDS) != 0;
    x->hashes = x->config.hashed && x->config.place.cuda == NULL;
    for (uint32_t i = 0; i < GW_ROUTE_MAX_STEPS; i++) {
        x->operation[i] = operation_of(x, &x->program.move[i]);
        x->memory[i] = &gw_memory_host;
    }
}

/* Residuals come to the host, but those of moves that a device codes: the exchange before may have kept them elsewhere. */
static gw_status keep_here(gw_exchange *x, gw_why *why)
{
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < GW_ROUTE_MAX_STEPS && status == GW_OK; i++) {
        if (x->slot[i] != GW_NO_SLOT && (x->there == NULL || !x->there->codes[i])) {
            status = gw_feedback_keep(x->config.store, x->slot[i], NULL, why);
        }
    }
    return status;
}

/* Routes, memory, operations and residuals, of a device too. */
static gw_status prepare(gw_exchange *x, gw_why *why)
{
    const gw_exchange_config *c = &x->config;
    const int there = c->place.cuda != NULL || c->device_comm;
    gw_status status = gw_exchange_compile(x, 0, why);
    if (status == GW_OK) {
        choose(x);
        status = there ? gw_there_open(x, why) : GW_OK;
    }
    if (status == GW_OK) {
        x->fixed_size = (gw_params_flags(&c->params) & GW_CODEC_FIXED_SIZE) != 0;
        if (gw_exchange_is_additive(x)) {
            status = measure_additive(x, why);
        } else {
            measure(x);
        }
    }
    if (status == GW_OK && there) {
        status = gw_there_measure(x, why);
    }
    if (status == GW_OK) {
        status = gw_exchange_add_slots(x, why);
    }
    if (status == GW_OK) {
        status = keep_here(x, why);
    }
    if (status == GW_OK && there) {
        gw_there_choose(x);
        status = gw_there_keep(x, why);
    }
    return status == GW_OK && x->rounds && !(there && x->there->rounds) ? gw_additive_keep(x, why)
                                                                        : status;
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
    status = status == GW_OK ? prepare(x, why) : status;
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
    if (x->there != NULL) {
        gw_there_free(x);
    }
    gw_additive_free(x);
    free(x);
}

/* ---- how much memory ---- */

/* Bytes of the workspace on the host, and in a device's memory. */
static void measure_workspace(const gw_exchange *exchange, size_t *here, size_t *there)
{
    gw_exchange measured = *exchange;
    gw_there of_device;
    gw_staying staying;
    gw_arena arena = gw_arena_measuring(), device = gw_arena_measuring();
    if (exchange->there != NULL) { /* of which cutting writes, too */
        of_device = *exchange->there;
        staying = *exchange->stay;
        measured.there = &of_device;
        measured.stay = &staying;
    }
    gw_exchange_cut(&arena, &device, &measured);
    *here = gw_arena_need(&arena);
    *there = exchange->there != NULL ? gw_arena_need(&device) : 0;
}

size_t gw_exchange_workspace(const gw_exchange *exchange)
{
    size_t here = 0, there = 0;
    if (exchange != NULL) {
        measure_workspace(exchange, &here, &there);
    }
    return here;
}

size_t gw_exchange_workspace_there(const gw_exchange *exchange)
{
    size_t here = 0, there = 0;
    if (exchange != NULL) {
        measure_workspace(exchange, &here, &there);
    }
    return there;
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
