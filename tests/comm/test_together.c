/* Several users of one group, whose operations go as one: everything arrives where it belongs, in as many operations of the group as
 * one user makes, also when some leave before others; room and calls are checked. */
#include "comm/exchange.h"
#include "comm/faulty.h"
#include "comm/ranks.h"

#include <gradwire/together.h>

#include <sched.h>

enum { USERS = 5, ROOM = 1 << 20 };

/* How many operations user u makes, at most 4: one none at all. */
static uint32_t operations_of(uint32_t u)
{
    return u == 2 ? 0 : 3 + u % 3;
}

/* The kinds of one round are mixed, which real users do not do: then nothing may be taken for sent to all alike. */
static exchange_kind kind_of(uint32_t u, uint32_t round, int mixed)
{
    return mixed ? (exchange_kind)((u + round) % BARRIER) : (exchange_kind)(round % BARRIER);
}

/* Tests users in a turn of their own on every rank, until all are through. */
static gw_status carry(gw_together *t, uint32_t rank, int mixed, gw_why *why)
{
    exchange x[USERS];
    uint32_t made[USERS] = {0}, left = 0;
    int under_way[USERS] = {0}, gone[USERS] = {0};
    gw_status status = GW_OK;
    memset(x, 0, sizeof x);
    gw_together_begin(t);
    for (uint32_t turn = rank; left < USERS && status == GW_OK; turn++) {
        const uint32_t u = turn % USERS;
        gw_comm *comm = gw_together_comm(t, u);
        int done = 0;
        if (under_way[u]) {
            status = comm->table->test(comm, x[u].request, &done, why);
        }
        if (status == GW_OK && done) {
            under_way[u] = 0;
            status = exchange_arrived(&x[u], comm) ? GW_OK : GW_ERR_CORRUPT;
        }
        if (status == GW_OK && !under_way[u] && !gone[u] && made[u] < operations_of(u)) {
            const exchange_kind kind = kind_of(u, made[u], mixed);
            status = exchange_post(&x[u], comm, kind, 100 * u + made[u]++, why);
            under_way[u] = 1;
        } else if (status == GW_OK && !under_way[u] && !gone[u]) {
            gone[u] = 1;
            left++;
            status = gw_together_leave(t, u, why);
        }
        if (turn % (4 * USERS) == 0) {
            (void)sched_yield();
        }
    }
    for (uint32_t u = 0; u < USERS; u++) {
        exchange_free(&x[u]);
    }
    return status;
}

static void everything_arrives(rank_of *rank)
{
    gw_comm *counted = faulty_wrap(rank->comm, (fault){.kind = FAULT_NONE});
    gw_together *t = NULL;
    gw_why why = {""};
    EXPECT(rank, counted != NULL, "no memory");
    EXPECT(rank, gw_together_create(counted, USERS, ROOM, &t, &why) == GW_OK, "%s", why.text);
    for (int round = 0; round < 4; round++) {
        const uint64_t before = faulty_operations(counted);
        EXPECT(rank, carry(t, rank->comm->rank, round % 2, &why) == GW_OK, "round %d: %s", round,
               why.text);
        EXPECT(rank, faulty_operations(counted) - before == 4,
               "%llu operations of the group, not 4",
               (unsigned long long)(faulty_operations(counted) - before));
    }
    gw_together_destroy(t);
    rank->comm = counted; /* whose closing closes it */
}

static void one_message_for_all(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 5; n++) {
        ranks_run(&(gw_threads_config){.ranks = n}, everything_arrives, NULL, NULL);
    }
}

/* ---- bytes on the wire ---- */

static void sends_its_pieces(rank_of *rank)
{
    gw_together *t = NULL;
    gw_why why = {""};
    EXPECT(rank, gw_together_create(rank->comm, USERS, ROOM, &t, &why) == GW_OK, "%s", why.text);
    EXPECT(rank, carry(t, rank->comm->rank, 0, &why) == GW_OK, "%s", why.text);
    gw_together_destroy(t);
}

static void not_a_byte_more(void **state)
{
    (void)state;
    uint64_t sent[4][2];
    ranks_run(&(gw_threads_config){.ranks = 4}, sends_its_pieces, NULL, sent);
    for (uint32_t from = 0; from < 4; from++) {
        uint64_t want = 0;
        for (uint32_t u = 0; u < USERS; u++) {
            for (uint32_t i = 0; i < operations_of(u); i++) {
                exchange x = {.kind = kind_of(u, i, 0), .number = 100 * u + i};
                x.root = x.number % 4;
                for (uint32_t to = 0; to < 4; to++) {
                    want += to != from ? exchange_size(&x, from, to) : 0;
                }
            }
        }
        for (uint32_t to = 0; to < 4; to++) { /* and a seal behind every message */
            for (uint32_t i = 0; i < 4; i++) {
                size_t bytes = 0;
                for (uint32_t u = 0; u < USERS; u++) {
                    exchange x = {.kind = kind_of(u, i, 0), .number = 100 * u + i};
                    x.root = x.number % 4;
                    bytes += to != from && i < operations_of(u) ? exchange_size(&x, from, to) : 0;
                }
                want += bytes != 0 ? GW_TOGETHER_SEAL : 0;
            }
        }
        assert_int_equal(sent[from][0] + sent[from][1], want);
    }
}

/* ---- what is refused ---- */

static void wrong_use(rank_of *rank)
{
    gw_together *t = NULL;
    gw_why why = {""};
    unsigned char bytes[64] = {0};
    size_t sizes[2] = {16, 16}, offsets[2] = {0, 16};
    gw_request request = NULL;
    EXPECT(rank, gw_together_create(NULL, 2, 24, &t, &why) == GW_ERR_ARG, "no comm");
    EXPECT(rank, gw_together_create(rank->comm, 0, 24, &t, &why) == GW_ERR_ARG, "no users");
    EXPECT(rank, gw_together_create(rank->comm, 2, 24, &t, &why) == GW_OK, "%s", why.text);
    gw_together_begin(t);
    EXPECT(rank, gw_together_comm(t, 2) == NULL, "a third of two users");
    EXPECT(rank, gw_together_leave(t, 2, &why) == GW_ERR_ARG, "a third of two users left");
    gw_comm *one = gw_together_comm(t, 0), *two = gw_together_comm(t, 1);
    EXPECT(rank,
           one->table->allgatherv(one, bytes, 16, bytes + 32, sizes, offsets, &request, &why) ==
               GW_OK,
           "%s", why.text);
    EXPECT(rank,
           one->table->allgatherv(one, bytes, 16, bytes + 32, sizes, offsets, &request, &why) ==
               GW_ERR_STATE,
           "a second operation of one user was taken: %s", why.text);
    EXPECT(rank, one->table->broadcast(one, bytes, 64, 0, &request, &why) == GW_ERR_STATE, "%s",
           why.text); /* nor does it change the first, which has 16 bytes and would then have 64 */
    EXPECT(rank,
           two->table->allgatherv(two, bytes, 16, bytes + 32, sizes, offsets, &request, &why) ==
               GW_ERR_CAPACITY,
           "32 bytes went through room for 24: %s", why.text);
    EXPECT(rank, strstr(why.text, "32 bytes to send") != NULL, "%s", why.text);
    gw_together_destroy(t);
}

static void too_much_and_too_many(void **state)
{
    (void)state;
    ranks_run(&(gw_threads_config){.ranks = 2}, wrong_use, NULL, NULL);
}

/* A peer gives up: the next test of any user says so. */
static void peer_gives_up(rank_of *rank)
{
    gw_together *t = NULL;
    gw_why why = {""};
    if (rank->comm->rank == 1) {
        rank->comm->table->abort(rank->comm, "no more");
        return;
    }
    EXPECT(rank, gw_together_create(rank->comm, USERS, ROOM, &t, &why) == GW_OK, "%s", why.text);
    const gw_status status = carry(t, 0, 0, &why);
    EXPECT(rank, status == GW_ERR_PEER && strstr(why.text, "no more") != NULL, "%d, %s",
           (int)status, why.text);
    gw_together_destroy(t);
}

static void a_peer_that_gives_up(void **state)
{
    (void)state;
    ranks_run(&(gw_threads_config){.ranks = 3}, peer_gives_up, NULL, NULL);
}

/* The group fails while all wait for it: whoever tests hears of it. */
static void group_fails(rank_of *rank)
{
    const int odd = rank->comm->rank == 1;
    const fault planned = {odd ? FAULT_FAIL : FAULT_NONE, 1, 0};
    gw_comm *faulty = faulty_wrap(rank->comm, planned);
    gw_together *t = NULL;
    gw_why why = {""};
    EXPECT(rank, faulty != NULL, "no memory");
    rank->comm = faulty;
    EXPECT(rank, gw_together_create(faulty, USERS, ROOM, &t, &why) == GW_OK, "%s", why.text);
    const gw_status status = carry(t, faulty->rank, 0, &why);
    faulty->table->abort(faulty, "no more");
    /* whom it sends nothing more may get through before it hears */
    EXPECT(rank, status == (odd ? GW_ERR_SYSTEM : GW_ERR_PEER) || (!odd && status == GW_OK),
           "%d, %s", (int)status, why.text);
    gw_together_destroy(t);
}

static void a_group_that_fails(void **state)
{
    (void)state;
    ranks_run(&(gw_threads_config){.ranks = 3}, group_fails, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_message_for_all),   cmocka_unit_test(not_a_byte_more),
        cmocka_unit_test(too_much_and_too_many), cmocka_unit_test(a_peer_that_gives_up),
        cmocka_unit_test(a_group_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
