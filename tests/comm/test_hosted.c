/* Messages that a host carries (hosts.h). */
#include "comm/exchange.h"
#include "comm/hosts.h"
#include "support/check.h"

enum { PATIENCE = 60, MOST = HOSTS_MOST };

typedef struct rank_of {
    gw_comm *comm;
    uint32_t rank;
    char said[512];
    void (*run)(struct rank_of *rank);
} rank_of;

#define EXPECT(rank, holds, ...)                                                                   \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            (void)snprintf((rank)->said, sizeof(rank)->said, __VA_ARGS__);                         \
            return;                                                                                \
        }                                                                                          \
    } while (0)

static void rank_main(uint32_t rank, gw_comm *comm, void *arg)
{
    rank_of *r = (rank_of *)arg + rank;
    r->rank = rank;
    r->comm = comm;
    r->run(r);
}

static void run(uint32_t n, void (*function)(rank_of *rank))
{
    rank_of ranks[MOST];
    for (uint32_t i = 0; i < n; i++) {
        ranks[i] = (rank_of){.run = function};
    }
    hosts_run(n, rank_main, ranks);
    for (uint32_t i = 0; i < n; i++) {
        CHECK(ranks[i].said[0] == 0, "%u ranks, rank %u: %s", n, i, ranks[i].said);
    }
}

static void many(rank_of *r, gw_comm *comm)
{
    enum { AT_ONCE = 24 };
    exchange x[AT_ONCE];
    for (uint32_t round = 0; round < 3; round++) {
        gw_why why = {""};
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            EXPECT(r, exchange_post(&x[i], comm, (i + i / 4) % KINDS, i, &why) == GW_OK, "%s",
                   why.text);
        }
        for (uint32_t i = AT_ONCE; i-- > 0;) {
            EXPECT(r, gw_comm_wait(comm, x[i].request, PATIENCE, &why) == GW_OK, "%s", why.text);
            EXPECT(r, exchange_arrived(&x[i], comm), "operation %u: wrong bytes", i);
        }
    }
}

static void in_groups(rank_of *r)
{
    gw_comm *all = NULL, *nodes = NULL, *across = NULL;
    gw_why why = {""};
    const gw_comm_table *t = r->comm->table;
    EXPECT(r, t->split(r->comm, 0, r->rank, &all, &why) == GW_OK, "%s", why.text);
    EXPECT(r, t->split(r->comm, r->rank / 2, r->rank, &nodes, &why) == GW_OK, "%s", why.text);
    EXPECT(r, t->split(r->comm, r->rank % 2, 99 - r->rank, &across, &why) == GW_OK, "%s", why.text);
    EXPECT(r, all->rank == r->rank && nodes->rank == r->rank % 2, "places in groups");
    EXPECT(r, across->rank == across->ranks - 1 - r->rank / 2, "the order is not that of the keys");
    /* something under way in every group, begun in an order of each rank's own */
    exchange a, b;
    gw_comm *first = r->rank % 2 == 0 ? nodes : across, *second = r->rank % 2 == 0 ? across : nodes;
    EXPECT(r, exchange_post(&a, first, TO_ALL, 5, &why) == GW_OK, "%s", why.text);
    EXPECT(r, exchange_post(&b, second, TO_ALL, 5, &why) == GW_OK, "%s", why.text);
    EXPECT(r, gw_comm_wait(second, b.request, PATIENCE, &why) == GW_OK, "%s", why.text);
    EXPECT(r, gw_comm_wait(first, a.request, PATIENCE, &why) == GW_OK, "%s", why.text);
    EXPECT(r, exchange_arrived(&a, first) && exchange_arrived(&b, second), "wrong bytes");
    many(r, all);
    many(r, nodes);
    many(r, across);
    t->close(across);
    t->close(nodes);
    t->close(all);
}

static void world(rank_of *r)
{
    many(r, r->comm);
}

static void every_operation_is_carried(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= MOST; n++) {
        run(n, world);
    }
}

static void groups_do_not_meet(void **state)
{
    (void)state;
    run(4, in_groups);
    run(6, in_groups);
}

static gw_step *silent[MOST];

/* The last rank posts nothing; the others' step names it, as far as it can be known. */
static void last_is_silent(rank_of *r)
{
    const uint64_t n = 5000;
    const uint32_t last = r->comm->ranks - 1;
    const gw_step_config config = {.comm = r->comm, .lanes = 1, .timeout = 0.2};
    static float values[MOST][5000];
    const gw_tensor gradient = {values[r->rank], (size_t)n, GW_F32};
    gw_why why = {""};
    gw_step *step = NULL;
    uint32_t layer = 0;
    EXPECT(r, gw_step_create(&config, &step, &why) == GW_OK, "%s", why.text);
    EXPECT(r, gw_step_add(step, "w", &n, 1, GW_F32, &layer, &why) == GW_OK, "%s", why.text);
    EXPECT(r, gw_step_agree(step, &why) == GW_OK, "%s", why.text);
    if (r->rank != last) {
        EXPECT(r, gw_step_post(step, layer, &gradient, &why) == GW_OK, "%s", why.text);
        const gw_status status = gw_step_wait(step, NULL, &why);
        EXPECT(r, status == GW_ERR_TIMEOUT || status == GW_ERR_PEER, "%d: %s", status, why.text);
        const char *found = strstr(why.text, "no answer for 0.2 s");
        const char *names = last == 1 ? ": rank 1 has not answered" : ": at least one of ranks ";
        EXPECT(r, found != NULL && strstr(found, names) != NULL, "%s", why.text);
    }
    if (r->rank != last) {
        gw_step_destroy(step);
    } else { /* would end the others' step before its time: it stays until the program ends */
        silent[last] = step;
    }
}

static void a_timeout_names_ranks(void **state)
{
    (void)state;
    run(2, last_is_silent);
    run(3, last_is_silent);
}

/* One rank alone, and the host's part played by hand. */
static void failures_have_words(void **state)
{
    (void)state;
    gw_hosted *host = NULL;
    gw_why why = {""};
    gw_hosted_work work;
    gw_request request = NULL, other = NULL;
    int done = 0;
    assert_int_equal(gw_hosted_create(2, 2, &host, &why), GW_ERR_ARG);
    assert_int_equal(gw_hosted_create(0, 2, &host, &why), GW_OK);
    gw_comm *comm = gw_hosted_comm(host);
    assert_int_equal(comm->table->barrier(comm, &request, &why), GW_OK);
    assert_int_equal(comm->table->barrier(comm, &other, &why), GW_OK);
    assert_int_equal(comm->table->test(comm, request, &done, &why), GW_OK);
    assert_int_equal(done, 0);
    assert_int_equal(gw_hosted_take(host, &work, &why), GW_OK);
    assert_int_equal(work.n_messages, 2);
    assert_int_equal(work.messages[0].peer, 1);
    assert_int_equal(gw_hosted_under_way(host), 1);
    assert_int_equal(gw_hosted_destroy(host), GW_ERR_STATE);
    assert_int_equal(gw_hosted_done(host, work.id, GW_ERR_PEER, "rank 1 is gone"), GW_OK);
    assert_int_equal(comm->table->test(comm, request, &done, &why), GW_ERR_PEER);
    assert_string_equal(why.text, "rank 1 is gone");
    assert_int_equal(comm->table->barrier(comm, &request, &why), GW_ERR_PEER);
    /* what the step says of it is what the host hears, once; nothing is left to carry */
    comm->table->abort(comm, "step 3, 'fc': rank 1 is gone");
    comm->table->abort(comm, "again");
    gw_hosted_stop(host); /* a close right after a failure does not keep it from the others */
    assert_int_equal(gw_hosted_take(host, &work, &why), GW_ERR_PEER);
    assert_string_equal(why.text, "step 3, 'fc': rank 1 is gone");
    assert_int_equal(gw_hosted_take(host, &work, &why), GW_ERR_STATE);
    assert_int_equal(gw_hosted_destroy(host), GW_OK);
    assert_int_equal(gw_hosted_destroy(NULL), GW_OK);
}

static void count(void *calls)
{
    ++*(int *)calls;
}

static void barrier_ends(gw_hosted *host, gw_status how)
{
    gw_comm *comm = gw_hosted_comm(host);
    gw_why why = {""};
    gw_hosted_work work;
    gw_request request = NULL;
    CHECK(comm->table->barrier(comm, &request, &why) == GW_OK, "%s", why.text);
    CHECK(gw_hosted_take(host, &work, &why) == GW_OK, "%s", why.text);
    assert_int_equal(gw_hosted_done(host, work.id, how, NULL), GW_OK);
}

/* Called when an operation is done or has failed, and not after it was called off. */
static void who_listens_is_told(void **state)
{
    (void)state;
    gw_hosted *host = NULL;
    gw_why why = {""};
    int calls = 0;
    assert_int_equal(gw_hosted_create(0, 2, &host, &why), GW_OK);
    gw_comm *comm = gw_hosted_comm(host);
    comm->table->notify(comm, count, &calls);
    assert_int_equal(calls, 0);
    barrier_ends(host, GW_OK);
    assert_int_equal(calls, 1);
    comm->table->notify(comm, NULL, NULL);
    barrier_ends(host, GW_OK);
    assert_int_equal(calls, 1);
    comm->table->notify(comm, count, &calls);
    barrier_ends(host, GW_ERR_PEER);
    assert_int_equal(calls, 2);
    gw_hosted_stop(host);
    assert_int_equal(gw_hosted_destroy(host), GW_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_is_carried), cmocka_unit_test(groups_do_not_meet),
        cmocka_unit_test(a_timeout_names_ranks),      cmocka_unit_test(failures_have_words),
        cmocka_unit_test(who_listens_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
