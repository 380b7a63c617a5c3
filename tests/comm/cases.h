/* What every backend must do, as functions of a rank: one operation after the other, many at once, in groups. */
#ifndef GW_TESTS_COMM_CASES_H
#define GW_TESTS_COMM_CASES_H

#include "comm/exchange.h"
#include "comm/ranks.h"

enum { PATIENCE = 60 }; /* seconds; only a hang takes that long */

static const uint32_t some_ranks[] = {1, 2, 3, 4, 7, 8};
#define ALL_RANKS(P) for (size_t p_ = 0; p_ < 6 && ((P) = some_ranks[p_]) != 0; p_++)

static inline void one_after_the_other(rank_of *rank)
{
    for (uint32_t number = 0; number < 40; number++) {
        gw_why why = {""};
        exchange x;
        EXPECT(rank, exchange_post(&x, rank->comm, number % KINDS, number, &why) == GW_OK, "%s",
               why.text);
        EXPECT(rank, gw_comm_wait(rank->comm, x.request, PATIENCE, &why) == GW_OK, "%s", why.text);
        EXPECT(rank, exchange_arrived(&x, rank->comm), "operation %u: wrong bytes", number);
    }
}

/* All posted, then tested from the last to the first, twice over: slots are used again. */
static inline void all_at_once(rank_of *rank)
{
    enum { MANY = 50 };
    exchange x[MANY];
    for (uint32_t round = 0; round < 2; round++) {
        gw_why why = {""};
        for (uint32_t i = 0; i < MANY; i++) {
            EXPECT(rank, exchange_post(&x[i], rank->comm, (i + i / 4) % KINDS, i, &why) == GW_OK,
                   "%s", why.text);
        }
        for (uint32_t i = MANY; i-- > 0;) {
            EXPECT(rank, gw_comm_wait(rank->comm, x[i].request, PATIENCE, &why) == GW_OK, "%s",
                   why.text);
            EXPECT(rank, exchange_arrived(&x[i], rank->comm), "operation %u: wrong bytes", i);
        }
    }
}

/* Nodes of `arg`: intra in rank order, inter in reverse, by key. */
static inline void in_groups(rank_of *rank)
{
    const uint32_t per_node = *(const uint32_t *)rank->arg, own = rank->comm->rank;
    const uint32_t node = own / per_node, place = own % per_node;
    const uint32_t nodes = rank->comm->ranks / per_node;
    const gw_comm_table *t = rank->comm->table;
    gw_why why = {""};
    gw_comm *intra = NULL, *inter = NULL;
    EXPECT(rank, t->split(rank->comm, node, 0, &intra, &why) == GW_OK, "%s", why.text);
    EXPECT(rank, t->split(rank->comm, place, nodes - node, &inter, &why) == GW_OK, "%s", why.text);
    EXPECT(rank, intra->rank == place && intra->ranks == per_node, "intra: %u of %u", intra->rank,
           intra->ranks);
    EXPECT(rank, inter->rank == nodes - 1 - node && inter->ranks == nodes, "inter: %u of %u",
           inter->rank, inter->ranks);
    /* who is who: everybody's world rank */
    uint32_t seen[8] = {0};
    size_t sizes[8], offsets[8];
    for (uint32_t i = 0; i < 8; i++) {
        sizes[i] = sizeof own;
        offsets[i] = i * sizeof own;
    }
    gw_request request = NULL;
    EXPECT(rank,
           t->allgatherv(inter, &own, sizeof own, seen, sizes, offsets, &request, &why) == GW_OK,
           "%s", why.text);
    EXPECT(rank, gw_comm_wait(inter, request, PATIENCE, &why) == GW_OK, "%s", why.text);
    for (uint32_t i = 0; i < nodes; i++) {
        EXPECT(rank, seen[i] == (nodes - 1 - i) * per_node + place, "inter %u is %u", i, seen[i]);
    }
    /* operations of several groups under way at once */
    gw_comm *const groups[] = {intra, rank->comm, inter};
    exchange x[12];
    for (uint32_t i = 0; i < 12; i++) {
        EXPECT(rank, exchange_post(&x[i], groups[i % 3], i / 3 % KINDS, i, &why) == GW_OK, "%s",
               why.text);
    }
    for (uint32_t i = 12; i-- > 0;) {
        EXPECT(rank, gw_comm_wait(groups[i % 3], x[i].request, PATIENCE, &why) == GW_OK, "%s",
               why.text);
        EXPECT(rank, exchange_arrived(&x[i], groups[i % 3]), "operation %u: wrong bytes", i);
    }
    intra->table->close(intra);
    inter->table->close(inter);
}

#endif
