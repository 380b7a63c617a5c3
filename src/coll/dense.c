/* Collectives of numbers, composed of bytes: pieces to their owners, an ordered sum there, the sums to
 * whom they belong. docs/routes.md, "Sums": ((x0 + x1) + x2) + …, in member order, whatever arrives first. */
#include "coll/exchange.h"

#include <string.h>

static uint64_t *seal_at(uint64_t *seals, uint32_t member, int which)
{
    return seals + (size_t)GW_SEALS * member + which;
}

static uint8_t *place(const gw_exchange *x, uint64_t first)
{
    return x->base + (first - x->base_first) * x->width;
}

static gw_range piece_of(const gw_exchange *x, const gw_move *m, gw_range range, uint32_t member)
{
    return gw_range_cut(range, x->program.grain, m->parts, member);
}

static void clear(gw_exchange *x, uint32_t members)
{
    const size_t bytes = members * sizeof(size_t);
    memset(x->messages.send_size, 0, bytes);
    memset(x->messages.send_at, 0, bytes);
    memset(x->messages.size, 0, bytes);
    memset(x->messages.at, 0, bytes);
}

static gw_status post_alltoall(gw_exchange *x, const gw_move *m, const void *send, void *receive,
                               gw_why *why)
{
    const gw_messages *v = &x->messages;
    for (uint32_t i = 0; i < m->group.size; i++) {
        gw_exchange_count_sent(x, m, i, v->send_size[i]);
    }
    const gw_status status = gw_exchange_turn_to_comm(x, why);
    return status != GW_OK ? status
                           : x->comm->table->alltoallv(x->comm, send, v->send_size, v->send_at,
                                                       receive, v->size, v->at, &x->request, why);
}

/* Everyone's pieces to their owners, whose copies land one behind the other in the spare buffer. */
static gw_status post_scatter(gw_exchange *x, const gw_move *m, gw_why *why)
{
    const uint32_t own = m->group.member;
    gw_seals_begin(x, m);
    const size_t mine = x->width * piece_of(x, m, m->before.range, own).count;
    clear(x, m->group.size);
    for (uint32_t i = 0; i < m->group.size; i++) {
        const gw_range piece = piece_of(x, m, m->before.range, i);
        x->messages.send_size[i] = i != own ? x->width * piece.count : 0;
        x->messages.send_at[i] = x->width * (piece.first - m->before.range.first);
        x->messages.size[i] = i != own ? mine : 0;
        x->messages.at[i] = i * mine;
    }
    /* hashed before they are sent: who copies them then finds them in cache */
    for (uint32_t i = 0; i < m->group.size && !x->memory[x->move]->device; i++) {
        const gw_range piece = piece_of(x, m, m->before.range, i);
        if (i != own) {
            *seal_at(x->seals.sent, i, GW_SEAL_PARTS) =
                gw_seal_of(x, place(x, piece.first), piece.count);
            *seal_at(x->seals.found, i, GW_SEAL_PARTS) = x->seals.key;
        }
    }
    return post_alltoall(x, m, place(x, m->before.range.first), x->next.bytes, why);
}

/* 1: a number is not finite. *seal: of the sums. */
static int sum_here(gw_exchange *x, const gw_move *m, gw_range piece, uint32_t divisor,
                    uint64_t *seal)
{
    int bad = 0;
    uint8_t *own = place(x, piece.first);
    float block[GW_SEAL_BLOCK] = {0};
    *seal = x->seals.key;
    for (uint64_t at = 0; at < piece.count; at += GW_SEAL_BLOCK) {
        const size_t n =
            piece.count - at < GW_SEAL_BLOCK ? (size_t)(piece.count - at) : GW_SEAL_BLOCK;
        const size_t offset = (size_t)at * x->width;
        for (uint32_t i = 0; i < m->group.size; i++) {
            const uint8_t *from =
                (i == m->group.member ? own : x->next.bytes + x->messages.at[i]) + offset;
            if (i == 0) {
                x->convert->widen(x->dtype, from, block, n);
            } else {
                x->convert->add(x->dtype, from, block, n);
            }
            if (i != m->group.member) {
                gw_seal_block(x, seal_at(x->seals.found, i, GW_SEAL_PARTS), from, n);
            }
        }
        bad |= gw_exchange_round(x, own + offset, block, n, divisor);
        gw_seal_result(x, seal, own + offset, n);
    }
    return bad;
}

/* An owner divides its piece of the last sum before it goes to all. Sums that are rounded to 16 bits are divided by the first: in
 * fp32, so that nothing is rounded twice on a flat route, and no sum of a node overflows whose mean would not. */
static uint32_t divisor_here(const gw_exchange *x, const gw_move *m)
{
    if (x->dtype != GW_F32) {
        return x->divided ? 1 : gw_exchange_divisor(x);
    }
    return m->step.op == GW_OP_ALLREDUCE ? gw_exchange_last_divisor(x) : 1;
}

gw_status gw_dense_sum(gw_exchange *x, const gw_move *m, gw_range piece, uint32_t divisor,
                       gw_why *why)
{
    (void)why;
    uint64_t seal = 0;
    x->seen_bad = sum_here(x, m, piece, divisor, &seal);
    x->seen = x->divided && gw_exchange_at_last(x) ? piece : (gw_range){0};
    *seal_at(x->seals.found, m->group.member, GW_SEAL_RESULT) = seal;
    for (uint32_t i = 0; i < m->group.size; i++) {
        const int goes_there =
            m->step.op == GW_OP_ALLREDUCE || (m->step.op == GW_OP_REDUCE && i == 0);
        *seal_at(x->seals.sent, i, GW_SEAL_RESULT) = goes_there && i != m->group.member ? seal : 0;
    }
    return GW_OK;
}

static gw_status sum_in_order(gw_exchange *x, const gw_move *m, gw_why *why)
{
    const gw_range piece = piece_of(x, m, m->before.range, m->group.member);
    const uint32_t divisor = divisor_here(x, m);
    x->divided = divisor != 1 || x->dtype != GW_F32;
    return x->memory[x->move]->sum(x, m, piece, divisor, why);
}

/* Every member's piece of `range` to all. */
static gw_status post_gather(gw_exchange *x, const gw_move *m, gw_range range, gw_why *why)
{
    const gw_range mine = piece_of(x, m, range, m->group.member);
    for (uint32_t i = 0; i < m->group.size; i++) {
        const gw_range piece = piece_of(x, m, range, i);
        x->messages.size[i] = x->width * piece.count;
        x->messages.at[i] = x->width * (piece.first - range.first);
        gw_exchange_count_sent(x, m, i, x->width * mine.count);
    }
    const gw_status status = gw_exchange_turn_to_comm(x, why);
    return status != GW_OK
               ? status
               : x->comm->table->allgatherv(x->comm, place(x, mine.first), x->width * mine.count,
                                            place(x, range.first), x->messages.size, x->messages.at,
                                            &x->request, why);
}

/* Every member's piece of `range` to the root. */
static gw_status post_to_root(gw_exchange *x, const gw_move *m, gw_range range, gw_why *why)
{
    const uint32_t own = m->group.member;
    const gw_range mine = piece_of(x, m, range, own);
    clear(x, m->group.size);
    x->messages.send_size[0] = own != 0 ? x->width * mine.count : 0;
    for (uint32_t i = 1; i < m->group.size && own == 0; i++) {
        const gw_range piece = piece_of(x, m, range, i);
        x->messages.size[i] = x->width * piece.count;
        x->messages.at[i] = x->width * (piece.first - range.first);
    }
    return post_alltoall(x, m, place(x, mine.first), place(x, range.first), why);
}

static gw_status post_broadcast(gw_exchange *x, const gw_move *m, gw_why *why)
{
    const gw_range range = m->after.range;
    for (uint32_t i = 0; i < m->group.size && m->group.member == 0; i++) {
        gw_exchange_count_sent(x, m, i, x->width * range.count);
    }
    const gw_status status = gw_exchange_turn_to_comm(x, why);
    return status != GW_OK ? status
                           : x->comm->table->broadcast(x->comm, place(x, range.first),
                                                       x->width * range.count, 0, &x->request, why);
}

/* Numbers that are sent as they are: this rank's piece, or of a broadcast all of the root's. */
static gw_status post_as_is(gw_exchange *x, const gw_move *m, gw_why *why)
{
    const uint32_t own = m->group.member;
    const int broadcast = m->step.op == GW_OP_BROADCAST;
    const gw_range range = m->after.range;
    const gw_range mine = broadcast ? range : piece_of(x, m, range, own);
    gw_status status = broadcast ? post_broadcast(x, m, why) : post_gather(x, m, range, why);
    if (status != GW_OK || x->memory[x->move]->device) {
        return status;
    }
    gw_seals_begin(x, m);
    const uint64_t seal =
        !broadcast || own == 0 ? gw_seal_of(x, place(x, mine.first), mine.count) : 0;
    for (uint32_t i = 0; i < m->group.size; i++) {
        *seal_at(x->seals.sent, i, GW_SEAL_RESULT) = i != own ? seal : 0;
    }
    return gw_seals_post(x, m, why);
}

/* Numbers of a member that have arrived: hashed, and looked at where nothing happens to them any more. */
static void look_at(gw_exchange *x, uint32_t member, gw_range piece)
{
    uint64_t *found = seal_at(x->seals.found, member, GW_SEAL_RESULT);
    const int final = x->divided && gw_exchange_at_last(x);
    *found = x->seals.key;
    for (uint64_t at = 0; at < piece.count; at += GW_SEAL_BLOCK) {
        const uint64_t left = piece.count - at;
        const size_t n = left < GW_SEAL_BLOCK ? (size_t)left : GW_SEAL_BLOCK;
        const uint8_t *numbers = place(x, piece.first + at);
        gw_seal_result(x, found, numbers, n);
        x->seen_bad |= final && gw_exchange_any_bad(x, numbers, n);
    }
}

/* All messages of the move have arrived. */
static gw_status arrive(gw_exchange *x, const gw_move *m, gw_why *why)
{
    const uint32_t own = m->group.member;
    const gw_range range = m->step.op == GW_OP_ALLREDUCE || m->step.op == GW_OP_REDUCE
                               ? m->before.range
                               : m->after.range;
    if (x->memory[x->move]->device) {
        return GW_OK;
    }
    for (uint32_t i = 0; i < m->group.size; i++) {
        const int sent = m->step.op == GW_OP_BROADCAST ? i == 0
                         : m->step.op == GW_OP_REDUCE  ? own == 0
                                                       : 1;
        if (i != own && sent) {
            look_at(x, i, m->step.op == GW_OP_BROADCAST ? range : piece_of(x, m, range, i));
        }
    }
    if (m->step.op == GW_OP_ALLREDUCE && x->divided && gw_exchange_at_last(x)) {
        x->seen = range; /* its own piece when it was summed */
        if (x->hashes) {
            gw_seals_hash(x, m);
        }
    }
    return gw_seals_check(x, m, why);
}

/* An engine whose own sum is the same everywhere may do it: of fp32 numbers. */
static int engine_sums(const gw_exchange *x, const gw_move *m)
{
    const gw_comm_table *table = x->memory[x->move]->comm(&x->lane, m->step.level)->table;
    return x->dtype == GW_F32 && table->allreduce != NULL &&
           (table->flags & GW_COMM_SAME_BITS) != 0;
}

static gw_status post_engine_sum(gw_exchange *x, const gw_move *m, gw_why *why)
{
    const gw_range range = m->before.range;
    for (uint32_t i = 0; i < m->group.size; i++) { /* as a ring: 2 (m−1)/m of it, by m−1 */
        gw_exchange_count_sent(x, m, i, 8 * range.count / m->group.size);
    }
    const gw_status status = gw_exchange_turn_to_comm(x, why);
    return status != GW_OK
               ? status
               : x->comm->table->allreduce(x->comm, (float *)(void *)place(x, range.first),
                                           range.count, &x->request, why);
}

/* The last message of a move, and the seals of all of it. */
static gw_status post_sums(gw_exchange *x, const gw_move *m, gw_why *why)
{
    const gw_status status = m->step.op == GW_OP_ALLREDUCE ? post_gather(x, m, m->before.range, why)
                             : m->step.op == GW_OP_REDUCE ? post_to_root(x, m, m->before.range, why)
                                                          : GW_OK;
    return status == GW_OK ? gw_seals_post(x, m, why) : status;
}

gw_status gw_dense_collective(gw_exchange *x, const gw_move *m, int *done, gw_why *why)
{
    const int scatters = m->step.op == GW_OP_REDUCE_SCATTER;
    const int sums = m->step.op == GW_OP_ALLREDUCE || m->step.op == GW_OP_REDUCE || scatters;
    if (!sums) {
        *done = x->phase == 1;
        return *done ? arrive(x, m, why) : post_as_is(x, m, why);
    }
    if (m->step.op == GW_OP_ALLREDUCE && engine_sums(x, m)) {
        *done = x->phase == 1;
        return *done ? GW_OK : post_engine_sum(x, m, why);
    }
    if (x->phase == 0) {
        const gw_status status = post_scatter(x, m, why);
        return status == GW_OK && scatters ? gw_seals_post(x, m, why) : status;
    }
    if (x->phase == 1) {
        const gw_status status = sum_in_order(x, m, why);
        *done = scatters;
        return status != GW_OK ? status
               : scatters      ? gw_seals_check(x, m, why)
                               : post_sums(x, m, why);
    }
    *done = 1;
    return arrive(x, m, why);
}
