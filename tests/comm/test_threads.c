/* The threads backend: every operation, many at once, groups, faults, the virtual link. Run under the thread
 * sanitizer too. Times are only ever bounded from below: a link may not be faster than it says. */
#define _POSIX_C_SOURCE 200809L
#include "comm/cases.h"
#include "comm/faulty.h"

#include <sched.h>
#include <time.h>

static double seconds_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void every_operation(void **state)
{
    (void)state;
    uint32_t ranks = 0;
    ALL_RANKS(ranks)
    {
        ranks_run(&(gw_threads_config){.ranks = ranks}, one_after_the_other, NULL, NULL);
    }
    ranks_run(&(gw_threads_config){.ranks = 64}, one_after_the_other, NULL, NULL);
}

static void many_under_way(void **state)
{
    (void)state;
    uint32_t ranks = 0;
    const gw_link slow = {1e9, 20e-6};
    ALL_RANKS(ranks)
    {
        ranks_run(&(gw_threads_config){.ranks = ranks}, all_at_once, NULL, NULL);
        ranks_run(&(gw_threads_config){ranks, 2, slow, slow}, all_at_once, NULL, NULL);
    }
}

static void groups(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 8; ranks++) {
        for (uint32_t per_node = 1; per_node <= ranks; per_node++) {
            if (ranks % per_node == 0) {
                ranks_run(&(gw_threads_config){.ranks = ranks, .ranks_per_node = per_node},
                          in_groups, &per_node, NULL);
            }
        }
    }
}

/* The last rank gives up; the others wait for it in an operation, in another group, in a split. */
static void one_gives_up(rank_of *rank)
{
    gw_comm *comm = rank->comm, *half = NULL;
    gw_why why = {""};
    EXPECT(rank, comm->table->split(comm, comm->rank % 2, 0, &half, &why) == GW_OK, "%s", why.text);
    if (comm->rank == comm->ranks - 1) {
        comm->table->abort(comm, "out of coffee");
    }
    gw_comm *where = comm->rank % 2 != 0 ? comm : half;
    exchange x;
    gw_status status = GW_OK;
    if (comm->rank == 2) {
        gw_comm *never = NULL;
        status = comm->table->split(comm, 0, 0, &never, &why);
    } else {
        for (uint32_t i = 0; i < 3 && status == GW_OK; i++) {
            status = exchange_post(&x, where, BARRIER, i, &why);
            if (status == GW_OK) {
                status = gw_comm_wait(where, x.request, PATIENCE, &why);
            }
            exchange_free(&x);
        }
    }
    half->table->close(half);
    char wanted[64];
    (void)snprintf(wanted, sizeof wanted, "rank %u gave up: out of coffee", comm->ranks - 1);
    /* members of a group without the last may get through before they hear of it */
    const int may_pass = where == half && (comm->ranks - 1) % 2 != comm->rank % 2;
    EXPECT(rank, (may_pass && status == GW_OK) || status == GW_ERR_PEER, "status %d", status);
    EXPECT(rank, status == GW_OK || strcmp(why.text, wanted) == 0, "said: %s", why.text);
    status = exchange_post(&x, comm, BARRIER, 9, &why);
    if (status == GW_OK) {
        status = gw_comm_wait(comm, x.request, PATIENCE, &why);
    }
    exchange_free(&x);
    EXPECT(rank, status == GW_ERR_PEER, "afterwards: %d", status);
}

static void abort_reaches_all(void **state)
{
    (void)state;
    uint32_t ranks = 0;
    ALL_RANKS(ranks)
    {
        ranks_run(&(gw_threads_config){.ranks = ranks}, one_gives_up, NULL, NULL);
    }
}

/* Rank 1 thinks of 100 bytes where rank 2 thinks of 96 and has no room for more. */
static void disagree_on_sizes(rank_of *rank)
{
    const uint32_t own = rank->comm->rank, more = *(const uint32_t *)rank->arg;
    size_t sizes_out[3] = {64, 64, 64}, sizes_in[3] = {64, 64, 64};
    const size_t offsets_out[3] = {0, 100, 200}, offsets_in[3] = {0, 64, 192};
    sizes_out[2] = own == 1 ? more : 64;
    sizes_in[1] = own == 2 ? 96 : 64;
    unsigned char out[300] = {0}, in[256];
    memset(in, UNTOUCHED, sizeof in);
    gw_why why = {""};
    gw_request request = NULL;
    const gw_comm_table *t = rank->comm->table;
    gw_status status = t->alltoallv(rank->comm, out, sizes_out, offsets_out, in, sizes_in,
                                    offsets_in, &request, &why);
    if (status == GW_OK) {
        status = gw_comm_wait(rank->comm, request, PATIENCE, &why);
    }
    if (own == 0 && status == GW_OK) { /* its own pieces were fine: it hears of it next time */
        status = t->barrier(rank->comm, &request, &why);
        if (status == GW_OK) {
            status = gw_comm_wait(rank->comm, request, PATIENCE, &why);
        }
    }
    EXPECT(rank, status == GW_ERR_DISAGREE, "status %d: %s", status, why.text);
    char wanted[100];
    (void)snprintf(wanted, sizeof wanted, "rank 1 sends %u bytes to rank 2, which receives 96",
                   more);
    EXPECT(rank, strstr(why.text, wanted) != NULL, "said: %s", why.text);
    for (size_t i = 160; i < 192; i++) {
        EXPECT(rank, in[i] == UNTOUCHED, "written past its piece");
    }
}

static void disagree_on_operations(rank_of *rank)
{
    exchange x;
    gw_why why = {""};
    const exchange_kind kind = rank->comm->rank == 1 ? BARRIER : GATHER;
    gw_status status = exchange_post(&x, rank->comm, kind, 1, &why);
    if (status == GW_OK) {
        status = gw_comm_wait(rank->comm, x.request, PATIENCE, &why);
    }
    exchange_free(&x);
    EXPECT(rank, status == GW_ERR_DISAGREE, "status %d: %s", status, why.text);
    EXPECT(rank, strstr(why.text, "barrier") != NULL && strstr(why.text, "allgatherv") != NULL,
           "said: %s", why.text);
}

static void disagreement_is_told(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {100, 95, 0};
    for (size_t i = 0; i < 3; i++) {
        ranks_run(&(gw_threads_config){.ranks = 3}, disagree_on_sizes, &sizes[i], NULL);
    }
    ranks_run(&(gw_threads_config){.ranks = 2}, disagree_on_operations, NULL, NULL);
}

/* Rank 1 stops before its second operation: the others' waits end, with its name. */
static void one_stops(rank_of *rank)
{
    gw_comm *comm =
        faulty_wrap(rank->comm, rank->comm->rank == 1 ? (fault){FAULT_STOP, 1, 0} : (fault){0});
    rank->comm = comm;
    for (uint32_t i = 0; i < 2; i++) {
        gw_why why = {""};
        exchange x;
        EXPECT(rank, exchange_post(&x, comm, BARRIER, i, &why) == GW_OK, "%s", why.text);
        const gw_status status = gw_comm_wait(comm, x.request, i == 0 ? PATIENCE : 0.05, &why);
        exchange_free(&x);
        if (i == 0) {
            EXPECT(rank, status == GW_OK, "%s", why.text);
        } else if (comm->rank != 1 && status != GW_ERR_PEER) { /* peer: another was faster */
            EXPECT(rank, status == GW_ERR_TIMEOUT, "status %d: %s", status, why.text);
            EXPECT(rank, strstr(why.text, "operation 1 (barrier): not called by rank 1") != NULL,
                   "said: %s", why.text);
        }
    }
    comm->table->abort(comm, "timeout");
}

static void timeout_is_told(void **state)
{
    (void)state;
    ranks_run(&(gw_threads_config){.ranks = 2}, one_stops, NULL, NULL);
}

static void close_early(rank_of *rank)
{
    exchange x;
    gw_why why = {""};
    if (rank->comm->rank == 1) {
        return; /* ranks_run closes */
    }
    gw_status status = exchange_post(&x, rank->comm, BARRIER, 1, &why);
    if (status == GW_OK) {
        status = gw_comm_wait(rank->comm, x.request, PATIENCE, &why);
    }
    exchange_free(&x);
    EXPECT(rank, status == GW_ERR_PEER && strstr(why.text, "rank 1 closed") != NULL, "%d, %s",
           status, why.text);
}

static void who_leaves_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        ranks_run(&(gw_threads_config){.ranks = 3}, close_early, NULL, NULL);
    }
}

static void split_without_all(rank_of *rank)
{
    gw_comm *part = NULL;
    gw_why why = {""};
    if (rank->comm->rank == 1) {
        for (int i = 0; i < *(const int *)rank->arg; i++) {
            (void)sched_yield();
        }
        return; /* ranks_run closes */
    }
    const gw_status status = rank->comm->table->split(rank->comm, 0, 0, &part, &why);
    EXPECT(rank, status == GW_ERR_PEER && strstr(why.text, "rank 1 closed") != NULL, "%d, %s",
           status, why.text);
}

/* Rank 1 leaves at once, up to long after the others have come. */
static void a_split_waits_for_no_one_who_left(void **state)
{
    (void)state;
    for (int turns = 0; turns < 1000; turns += 20) {
        ranks_run(&(gw_threads_config){.ranks = 3}, split_without_all, &turns, NULL);
    }
}

/* In an order that threads would only come upon by chance: rank 0 waits already when rank 1 closes. */
static void who_leaves_ends_waits(void **state)
{
    (void)state;
    gw_threads *world = NULL;
    gw_comm *ends[2] = {NULL, NULL};
    gw_why why = {""};
    gw_request request = NULL;
    int done = 0;
    assert_int_equal(gw_threads_create(&(gw_threads_config){.ranks = 2}, &world, &why), GW_OK);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(gw_threads_comm(world, i, &ends[i]), GW_OK);
    }
    assert_int_equal(ends[0]->table->barrier(ends[0], &request, &why), GW_OK);
    assert_int_equal(ends[0]->table->test(ends[0], request, &done, &why), GW_OK);
    assert_int_equal(done, 0);
    ends[1]->table->close(ends[1]);
    assert_int_equal(ends[0]->table->test(ends[0], request, &done, &why), GW_ERR_PEER);
    assert_string_equal(why.text, "rank 1 closed its end before operation 0 was done");
    ends[0]->table->close(ends[0]);
    gw_threads_destroy(world);
}

/* Corrupt, fail, delay: what other rooms' tests rely on. */
static void faults_do_what_they_say(rank_of *rank)
{
    const fault planned = *(const fault *)rank->arg;
    gw_comm *comm = rank->comm = faulty_wrap(rank->comm, planned);
    for (uint32_t number = 3; number < 6; number++) {
        const int spoilt = faulty_operations(comm) == planned.operation;
        gw_why why = {""};
        exchange x;
        EXPECT(rank, exchange_post(&x, comm, GATHER, number, &why) == GW_OK, "%s", why.text);
        int done = 0;
        for (size_t i = 0; spoilt && planned.kind == FAULT_DELAY && i < planned.amount; i++) {
            EXPECT(rank, comm->table->test(comm, x.request, &done, &why) == GW_OK && !done,
                   "early");
        }
        const gw_status status = gw_comm_wait(comm, x.request, PATIENCE, &why);
        const gw_status wanted = spoilt && planned.kind == FAULT_FAIL ? GW_ERR_SYSTEM : GW_OK;
        EXPECT(rank, status == wanted, "status %d", status);
        const int fine = exchange_arrived(&x, comm);
        EXPECT(rank, fine == !(spoilt && planned.kind == FAULT_CORRUPT), "operation %u", number);
    }
}

static void faulty_groups(void **state)
{
    (void)state;
    const fault planned[] = {
        {FAULT_NONE, 0, 0}, {FAULT_CORRUPT, 1, 77}, {FAULT_FAIL, 2, 0}, {FAULT_DELAY, 0, 9}};
    for (size_t i = 0; i < 4; i++) {
        ranks_run(&(gw_threads_config){.ranks = 4}, faults_do_what_they_say, &planned[i], NULL);
    }
}

enum { MEGABYTE = 1000000 };

/* Everybody sends a megabyte to its neighbour in the ring. */
static void one_megabyte(rank_of *rank)
{
    const double at_least = *(const double *)rank->arg;
    const uint32_t ranks = rank->comm->ranks, own = rank->comm->rank;
    size_t out_sizes[8] = {0}, in_sizes[8] = {0}, offsets[8] = {0};
    out_sizes[(own + 1) % ranks] = in_sizes[(own + ranks - 1) % ranks] = MEGABYTE;
    unsigned char *out = calloc(MEGABYTE, 1), *in = calloc(MEGABYTE, 1);
    gw_request request = NULL;
    gw_why why = {""};
    const double begun = seconds_now();
    gw_status status = rank->comm->table->alltoallv(rank->comm, out, out_sizes, offsets, in,
                                                    in_sizes, offsets, &request, &why);
    if (status == GW_OK) {
        status = gw_comm_wait(rank->comm, request, PATIENCE, &why);
    }
    const double took = seconds_now() - begun;
    free(out);
    free(in);
    EXPECT(rank, status == GW_OK, "%s", why.text);
    EXPECT(rank, took > at_least - 1e-6, "%g s, at least %g", took, at_least);
}

static void link_is_not_faster(void **state)
{
    (void)state;
    const gw_link near = {1e9, 2e-3}, far = {1e8, 5e-3};
    uint64_t sent[4][2];
    double at_least = 1e6 / 1e8 + 5e-3;
    ranks_run(&(gw_threads_config){2, 0, near, far}, one_megabyte, &at_least, sent);
    assert_int_equal(sent[0][0], 0);
    assert_int_equal(sent[0][1], MEGABYTE);
    at_least = 1e6 / 1e9 + 2e-3;
    ranks_run(&(gw_threads_config){2, 2, near, far}, one_megabyte, &at_least, sent);
    assert_int_equal(sent[0][0], MEGABYTE);
    assert_int_equal(sent[0][1], 0);
}

static void latency_of_a_barrier(rank_of *rank)
{
    gw_why why = {""};
    gw_request request = NULL;
    const double begun = seconds_now();
    EXPECT(rank, rank->comm->table->barrier(rank->comm, &request, &why) == GW_OK, "%s", why.text);
    EXPECT(rank, gw_comm_wait(rank->comm, request, PATIENCE, &why) == GW_OK, "%s", why.text);
    const double took = seconds_now() - begun;
    EXPECT(rank, took > 5e-3 - 1e-6, "%g s", took);
}

static void link_has_latency(void **state)
{
    (void)state;
    uint64_t sent[4][2];
    ranks_run(&(gw_threads_config){.ranks = 4, .far = {0, 5e-3}}, latency_of_a_barrier, NULL, sent);
    assert_int_equal(sent[3][0] + sent[3][1], 0);
}

/* Ranks of a node share its port: two messages of 10 ms each take 20 on the way out. */
static void port_is_shared(rank_of *rank)
{
    const uint32_t ranks = rank->comm->ranks, own = rank->comm->rank;
    size_t out_sizes[4] = {0}, in_sizes[4] = {0}, offsets[4] = {0};
    out_sizes[(own + 2) % ranks] = in_sizes[(own + 2) % ranks] = MEGABYTE;
    unsigned char *out = calloc(MEGABYTE, 1), *in = calloc(MEGABYTE, 1);
    gw_request request = NULL, together = NULL;
    gw_why why = {""};
    const gw_comm_table *t = rank->comm->table;
    const double begun = seconds_now();
    gw_status status = t->barrier(rank->comm, &together, &why); /* nobody sends before `begun` */
    if (status == GW_OK) {
        status = gw_comm_wait(rank->comm, together, PATIENCE, &why);
    }
    if (status == GW_OK) {
        status = t->alltoallv(rank->comm, out, out_sizes, offsets, in, in_sizes, offsets, &request,
                              &why);
    }
    if (status == GW_OK) {
        status = gw_comm_wait(rank->comm, request, PATIENCE, &why);
    }
    if (status == GW_OK) {
        status = t->barrier(rank->comm, &together, &why);
    }
    if (status == GW_OK) {
        status = gw_comm_wait(rank->comm, together, PATIENCE, &why);
    }
    const double took = seconds_now() - begun;
    free(out);
    free(in);
    EXPECT(rank, status == GW_OK, "%s", why.text);
    EXPECT(rank, took > 20e-3 - 1e-6, "%g s", took);
}

static void nodes_share_ports(void **state)
{
    (void)state;
    uint64_t sent[4][2];
    ranks_run(&(gw_threads_config){4, 2, {0, 0}, {1e8, 0}}, port_is_shared, NULL, sent);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(sent[i][0], 0);
        assert_int_equal(sent[i][1], MEGABYTE);
    }
}

static void bytes_are_counted(void **state)
{
    (void)state;
    enum { P = 6, K = 3 };
    uint64_t sent[P][2], wanted[P][2] = {{0}};
    ranks_run(&(gw_threads_config){.ranks = P, .ranks_per_node = K}, one_after_the_other, NULL,
              sent);
    for (uint32_t number = 0; number < 40; number++) {
        const exchange x = {.kind = number % KINDS, .number = number, .root = number % P};
        for (uint32_t i = 0; i < P; i++) {
            for (uint32_t j = 0; j < P; j++) {
                wanted[i][i / K != j / K] += i != j ? exchange_size(&x, i, j) : 0;
            }
        }
    }
    assert_memory_equal(sent, wanted, sizeof sent);
}

static void arguments(void **state)
{
    (void)state;
    gw_threads *world = NULL;
    gw_comm *comm = NULL;
    gw_why why;
    const double nan = strtod("nan", NULL);
    assert_int_equal(gw_threads_create(NULL, &world, &why), GW_ERR_ARG);
    assert_int_equal(gw_threads_create(&(gw_threads_config){0}, &world, &why), GW_ERR_ARG);
    assert_int_equal(gw_threads_create(&(gw_threads_config){.ranks = 257}, &world, &why),
                     GW_ERR_ARG);
    assert_int_equal(
        gw_threads_create(&(gw_threads_config){.ranks = 2, .far = {nan, 0}}, &world, &why),
        GW_ERR_RANGE);
    assert_int_equal(
        gw_threads_create(&(gw_threads_config){.ranks = 2, .near = {0, -1}}, &world, &why),
        GW_ERR_RANGE);
    assert_int_equal(gw_threads_create(&(gw_threads_config){.ranks = 1}, &world, &why), GW_OK);
    assert_int_equal(gw_threads_comm(world, 1, &comm), GW_ERR_ARG);
    assert_int_equal(gw_threads_comm(world, 0, &comm), GW_OK);
    gw_request request = NULL;
    unsigned char byte = 7;
    const size_t size = 2, offset = 0;
    assert_int_equal(comm->table->allgatherv(comm, &byte, 1, &byte, &size, &offset, &request, &why),
                     GW_ERR_ARG);
    assert_int_equal(comm->table->broadcast(comm, &byte, 1, 1, &request, &why), GW_ERR_ARG);
    assert_int_equal(comm->table->broadcast(comm, NULL, 1, 0, &request, &why), GW_ERR_ARG);
    assert_int_equal(gw_comm_wait(comm, NULL, -1, &why), GW_ERR_ARG);
    comm->table->close(comm);
    gw_threads_destroy(world);
    gw_threads_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation),
        cmocka_unit_test(many_under_way),
        cmocka_unit_test(groups),
        cmocka_unit_test(abort_reaches_all),
        cmocka_unit_test(disagreement_is_told),
        cmocka_unit_test(timeout_is_told),
        cmocka_unit_test(who_leaves_is_named),
        cmocka_unit_test(a_split_waits_for_no_one_who_left),
        cmocka_unit_test(faulty_groups),
        cmocka_unit_test(link_is_not_faster),
        cmocka_unit_test(link_has_latency),
        cmocka_unit_test(nodes_share_ports),
        cmocka_unit_test(bytes_are_counted),
        cmocka_unit_test(who_leaves_ends_waits),
        cmocka_unit_test(arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
