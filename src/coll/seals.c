/* Seals of numbers. Numbers are sent from where they lie and received where they belong, so a seal cannot stand behind
 * them: it follows in a message of its own, two words a pair of ranks, next to the last message of a collective. Both ends
 * hash in blocks that are in cache anyway: the sum's, or those looked at for NaN and infinity. */
#include "coll/exchange.h"

#include "base/hash.h"

#include <string.h>

/* Which exchange, move and round: a message of another one has another seal. */
static uint64_t key_of(const gw_exchange *x)
{
    const uint64_t words[] = {x->stream.step, x->stream.tensor, x->config.first, x->move, x->round};
    return gw_hash(words, sizeof words, 0);
}

void gw_seals_begin(gw_exchange *x, const gw_move *m)
{
    const size_t words = (size_t)GW_SEALS * m->group.size;
    memset(x->seals.sent, 0, words * sizeof *x->seals.sent);
    memset(x->seals.found, 0, words * sizeof *x->seals.found);
    x->seals.key = key_of(x);
}

void gw_seal_block(const gw_exchange *x, uint64_t *seal, const void *numbers, size_t n)
{
    if (!x->sealed_below) {
        *seal = gw_hash_chain(*seal, gw_hash(numbers, n * x->width, 0));
    }
}

void gw_seal_result(const gw_exchange *x, uint64_t *seal, const void *numbers, size_t n)
{
    if (!x->sealed_below || x->hashes) {
        *seal = gw_hash_chain(*seal, gw_hash(numbers, n * x->width, 0));
    }
}

void gw_exchange_hash_block(gw_exchange *x, uint64_t place, const void *numbers, size_t n)
{
    x->stats.hash +=
        gw_hash_at(x->hash_key, x->config.first + place, gw_hash(numbers, n * x->width, 0));
}

void gw_seals_hash(gw_exchange *x, const gw_move *m)
{
    for (uint32_t i = 0; i < m->group.size; i++) {
        x->stats.hash +=
            gw_hash_at(x->seals.key, i, x->seals.found[(size_t)GW_SEALS * i + GW_SEAL_RESULT]);
    }
    x->hashed = 1;
}

uint64_t gw_seal_of(const gw_exchange *x, const void *numbers, uint64_t count)
{
    uint64_t seal = x->seals.key;
    for (uint64_t at = 0; at < count && !x->sealed_below; at += GW_SEAL_BLOCK) {
        const uint64_t left = count - at;
        gw_seal_block(x, &seal, (const uint8_t *)numbers + at * x->width,
                      left < GW_SEAL_BLOCK ? (size_t)left : GW_SEAL_BLOCK);
    }
    return seal;
}

/* A broadcast is sent by the root alone. */
static int sends(const gw_move *m, uint32_t from, uint32_t to)
{
    return from != to && (m->step.op != GW_OP_BROADCAST || from == 0);
}

gw_status gw_seals_post(gw_exchange *x, const gw_move *m, gw_why *why)
{
    if (x->sealed_below || x->memory[x->move]->device) {
        return GW_OK;
    }
    const size_t bytes = GW_SEALS * sizeof *x->seals.sent;
    const uint32_t own = m->group.member, members = m->group.size;
    size_t *send = x->seals.sizes, *receive = send + members, *at = receive + members;
    for (uint32_t i = 0; i < members; i++) {
        send[i] = sends(m, own, i) ? bytes : 0;
        receive[i] = sends(m, i, own) ? bytes : 0;
        at[i] = i * bytes;
        gw_exchange_count_sent(x, m, i, send[i]);
    }
    return x->comm->table->alltoallv(x->comm, x->seals.sent, send, at, x->seals.received, receive,
                                     at, &x->seals.request, why);
}

gw_status gw_seals_check(const gw_exchange *x, const gw_move *m, gw_why *why)
{
    if (x->sealed_below || x->memory[x->move]->device) {
        return GW_OK;
    }
    for (uint32_t i = 0; i < m->group.size; i++) {
        const uint64_t *said = x->seals.received + (size_t)GW_SEALS * i;
        const uint64_t *found = x->seals.found + (size_t)GW_SEALS * i;
        if (sends(m, i, m->group.member) && memcmp(said, found, GW_SEALS * sizeof *said) != 0) {
            return gw_fail(why, GW_ERR_CHECKSUM,
                           "numbers of rank %u were changed on their way, or are of another step "
                           "or tensor",
                           gw_group_rank(&m->group, i));
        }
    }
    return GW_OK;
}
