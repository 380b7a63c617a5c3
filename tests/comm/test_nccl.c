/* The NCCL backend over a fake NCCL: ranks are threads, device memory is the process's. What every backend must do, sums,
 * streams, and how it fails: a library that is not there or too old, a rank that gives up, sizes that differ. */
#define _POSIX_C_SOURCE 200809L
#include "comm/cases.h"
#include "comm/fake_nccl.h"

#include <gradwire/nccl.h>
#include <gradwire/step.h>

#include <dlfcn.h>
#include <math.h>

/* The fake, as the backend sees it. */
static struct fake {
    void *library;
    int *version, *fail_next;
    int (*live)(void);
    void (*hold)(void *stream, int yes);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*new_stream)(void **out, unsigned flags);
    int (*end_stream)(void *stream);
    int (*copy)(unsigned long long to, unsigned long long from, size_t bytes, void *stream);
} fake;

static void find(const char *name, void *pointer)
{
    void *symbol = dlsym(fake.library, name);
    assert_non_null(symbol);
    memcpy(pointer, &symbol, sizeof symbol);
}

static int load_fake(void **state)
{
    (void)state;
    fake.library = dlopen(GW_TESTS_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(fake.library);
    find("fake_nccl_version", &fake.version);
    find("fake_nccl_fail_next", &fake.fail_next);
    find("fake_nccl_live", &fake.live);
    find("fake_nccl_hold", &fake.hold);
    find("cuCtxPushCurrent_v2", &fake.push);
    find("cuCtxPopCurrent_v2", &fake.pop);
    find("cuStreamCreate", &fake.new_stream);
    find("cuStreamDestroy_v2", &fake.end_stream);
    find("cuMemcpyDtoDAsync_v2", &fake.copy);
    return 0;
}

/* ---- ranks on the fake ---- */

typedef struct scene {
    void (*run)(rank_of *rank);
    const void *arg;
    gw_nccl *nccl;
} scene;

/* Its device is current only while it creates: calls of a group bring their own context. */
static void on_nccl(rank_of *rank)
{
    const scene *s = rank->arg;
    gw_comm *comm = NULL;
    gw_why why = {""};
    void *context = NULL;
    (void)fake.push(NULL);
    EXPECT(rank, gw_nccl_create(s->nccl, rank->comm, PATIENCE, &comm, &why) == GW_OK, "%s",
           why.text);
    (void)fake.pop(&context);
    rank_of inner = {.world = rank->world, .comm = comm, .arg = s->arg, .run = s->run};
    EXPECT(rank, comm->rank == rank->comm->rank && comm->ranks == rank->comm->ranks, "%u of %u",
           comm->rank, comm->ranks);
    (void)rank_main(&inner); /* closes it */
    memcpy(rank->said, inner.said, sizeof rank->said);
    EXPECT(rank, rank->said[0] != 0 || fake.pop(&context) != 0, "a context was left current");
}

static void run_on_nccl(uint32_t ranks, void (*run)(rank_of *rank), const void *arg)
{
    scene s = {run, arg, NULL};
    gw_why why = {""};
    CHECK(gw_nccl_open(GW_TESTS_FAKE_NCCL, GW_TESTS_FAKE_NCCL, &s.nccl, &why) == GW_OK, "%s",
          why.text);
    ranks_run(&(gw_threads_config){.ranks = ranks}, on_nccl, &s, NULL);
    gw_nccl_close(s.nccl);
    CHECK(fake.live() == 0, "P = %u: %d objects were not destroyed", ranks, fake.live());
}

static void every_operation(void **state)
{
    (void)state;
    uint32_t ranks = 0;
    ALL_RANKS(ranks)
    {
        run_on_nccl(ranks, one_after_the_other, NULL);
        run_on_nccl(ranks, all_at_once, NULL);
    }
}

static void groups(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 8; ranks++) {
        for (uint32_t per_node = 1; per_node <= ranks; per_node++) {
            if (ranks % per_node == 0) {
                run_on_nccl(ranks, in_groups, &per_node);
            }
        }
    }
}

/* ---- sums ---- */

enum { NUMBERS = 37 };

static float number_of(uint32_t rank, size_t i)
{
    return (float)(rank + 1) * 0.25f + (float)i;
}

static float sum_of(uint32_t ranks, size_t i)
{
    float sum = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        sum += number_of(r, i);
    }
    return sum;
}

static gw_status finish(gw_comm *comm, gw_status posted, const gw_request *request, gw_why *why)
{
    return posted == GW_OK ? gw_comm_wait(comm, *request, PATIENCE, why) : posted;
}

static void sum(rank_of *rank)
{
    gw_comm *comm = rank->comm;
    float all[NUMBERS];
    gw_why why = {""};
    gw_request request = NULL;
    for (size_t i = 0; i < NUMBERS; i++) {
        all[i] = number_of(comm->rank, i);
    }
    gw_status status = comm->table->allreduce(comm, all, NUMBERS, &request, &why);
    EXPECT(rank, finish(comm, status, &request, &why) == GW_OK, "%s", why.text);
    for (size_t i = 0; i < NUMBERS; i++) {
        EXPECT(rank, all[i] == sum_of(comm->ranks, i), "allreduce: %g at %zu", (double)all[i], i);
    }
    status = comm->table->allreduce(comm, NULL, NUMBERS, &request, &why);
    EXPECT(rank, status == GW_ERR_ARG, "no buffer");
    status = comm->table->broadcast(comm, all, NUMBERS, comm->ranks, &request, &why);
    EXPECT(rank, status == GW_ERR_ARG, "root %u", comm->ranks);
}

static void sums(void **state)
{
    (void)state;
    uint32_t ranks = 0;
    ALL_RANKS(ranks)
    {
        run_on_nccl(ranks, sum, NULL);
    }
}

/* ---- streams ---- */

/* What is sent is still being made on another stream when it is posted. */
static void sent_when_made(rank_of *rank)
{
    gw_comm *comm = rank->comm;
    void *stream = NULL, *context = NULL;
    unsigned char source[64], buffer[64];
    memset(source, 0x5A, sizeof source);
    memset(buffer, 0, sizeof buffer);
    gw_why why = {""};
    gw_request request = NULL;
    (void)fake.push(NULL);
    EXPECT(rank, fake.new_stream(&stream, 0) == 0, "no stream");
    fake.hold(stream, 1);
    (void)fake.copy((unsigned long long)(uintptr_t)buffer, (unsigned long long)(uintptr_t)source,
                    sizeof buffer, stream);
    if (comm->rank == 0) {
        EXPECT(rank, gw_nccl_after(comm, stream, &why) == GW_OK, "%s", why.text);
    }
    EXPECT(rank, comm->table->broadcast(comm, buffer, sizeof buffer, 0, &request, &why) == GW_OK,
           "%s", why.text);
    for (int i = 0; i < 50; i++) {
        int done = 0;
        EXPECT(rank, comm->table->test(comm, request, &done, &why) == GW_OK, "%s", why.text);
        EXPECT(rank, !done || comm->rank != 0, "sent before it was made");
        if (done) {
            request = NULL;
            break;
        }
    }
    if (comm->rank == 0) {
        fake.hold(stream, 0);
    }
    EXPECT(rank, request == NULL || gw_comm_wait(comm, request, PATIENCE, &why) == GW_OK, "%s",
           why.text);
    for (size_t i = 0; i < sizeof buffer; i++) {
        EXPECT(rank, buffer[i] == 0x5A, "byte %zu is %u", i, buffer[i]);
    }
    (void)fake.end_stream(stream);
    (void)fake.pop(&context);
}

static void streams_are_respected(void **state)
{
    (void)state;
    run_on_nccl(3, sent_when_made, NULL);
    gw_threads *world = NULL;
    gw_comm *threads = NULL;
    gw_why why = {""};
    assert_int_equal(gw_threads_create(&(gw_threads_config){.ranks = 1}, &world, &why), GW_OK);
    assert_int_equal(gw_threads_comm(world, 0, &threads), GW_OK);
    assert_int_equal(gw_nccl_after(threads, NULL, &why), GW_ERR_ARG);
    threads->table->close(threads);
    gw_threads_destroy(world);
}

/* A request is used again: after the first operations nothing more is made. */
static void no_more_objects(rank_of *rank)
{
    int before = 0;
    for (uint32_t i = 0; i < 20; i++) {
        gw_why why = {""};
        gw_request request = NULL;
        const gw_status status = rank->comm->table->barrier(rank->comm, &request, &why);
        EXPECT(rank, finish(rank->comm, status, &request, &why) == GW_OK, "%s", why.text);
        before = i == 0 ? fake.live() : before;
    }
    EXPECT(rank, fake.live() == before, "%d objects, then %d", before, fake.live());
}

static void steady_state(void **state)
{
    (void)state;
    run_on_nccl(1, no_more_objects, NULL);
}

/* ---- failures ---- */

/* The last rank gives up; the others wait for it, in the whole group or in one without it: NCCL tells them that a peer is
 * gone, its words only it has. */
static void one_gives_up(rank_of *rank)
{
    gw_comm *comm = rank->comm, *half = NULL;
    gw_why why = {""};
    exchange x;
    EXPECT(rank, comm->table->split(comm, comm->rank % 2, 0, &half, &why) == GW_OK, "%s", why.text);
    gw_comm *host = NULL; /* all have split before one gives up */
    EXPECT(rank, gw_threads_comm(rank->world, comm->rank, &host) == GW_OK, "no host");
    gw_request request = NULL;
    gw_status status = host->table->barrier(host, &request, &why);
    EXPECT(rank, finish(host, status, &request, &why) == GW_OK, "%s", why.text);
    const int last = comm->rank == comm->ranks - 1;
    if (last) {
        comm->table->abort(half, "out of coffee");
        status = exchange_post(&x, comm, BARRIER, 1, &why);
        char wanted[64];
        (void)snprintf(wanted, sizeof wanted, "rank %u gave up: out of coffee", comm->rank);
        EXPECT(rank, status == GW_ERR_PEER && strcmp(why.text, wanted) == 0, "%d: %s", status,
               why.text);
    } else {
        status = exchange_post(&x, comm, BARRIER, 2, &why);
        if (status == GW_OK) {
            status = gw_comm_wait(comm, x.request, PATIENCE, &why);
            exchange_free(&x);
        }
        EXPECT(rank, status == GW_ERR_PEER, "%d: %s", status, why.text);
        EXPECT(rank, strstr(why.text, "remote process exited") != NULL, "said: %s", why.text);
    }
    status = exchange_post(&x, half, BARRIER, 3, &why);
    EXPECT(rank, status == GW_ERR_PEER, "afterwards: %d", status);
    gw_comm *none = NULL;
    EXPECT(rank, comm->table->split(comm, 0, 0, &none, &why) == GW_ERR_PEER, "splits afterwards");
    half->table->close(half);
}

static void abort_reaches_all(void **state)
{
    (void)state;
    for (uint32_t ranks = 2; ranks <= 5; ranks++) {
        run_on_nccl(ranks, one_gives_up, NULL);
    }
}

/* Rank 0 sends `arg` bytes where rank 1 waits for 100: the longer side hears of nothing, and gives up in time. */
static void disagree(rank_of *rank)
{
    const size_t sent = *(const size_t *)rank->arg;
    const uint32_t own = rank->comm->rank;
    const size_t sizes_out[2] = {0, own == 0 ? sent : 0}, sizes_in[2] = {own == 1 ? 100 : 0, 0};
    const size_t offsets[2] = {0, 0};
    unsigned char out[200] = {0}, in[200];
    memset(in, UNTOUCHED, sizeof in);
    gw_why why = {""};
    gw_request request = NULL;
    const gw_comm_table *t = rank->comm->table;
    gw_status status =
        t->alltoallv(rank->comm, out, sizes_out, offsets, in, sizes_in, offsets, &request, &why);
    const int longer = own == (sent > 100 ? 0 : 1);
    if (status == GW_OK) {
        status = gw_comm_wait(rank->comm, request, longer ? 0.05 : PATIENCE, &why);
    }
    for (size_t i = 100; i < sizeof in; i++) {
        EXPECT(rank, in[i] == UNTOUCHED, "written past its piece");
    }
    if (longer) {
        EXPECT(rank, status == GW_ERR_TIMEOUT, "%d: %s", status, why.text);
        EXPECT(rank, strstr(why.text, "operation 0 (alltoallv), which") != NULL, "said: %s",
               why.text);
        t->abort(rank->comm, why.text);
        return;
    }
    if (status == GW_OK) { /* its own side was through: it hears of it next time */
        status = finish(rank->comm, t->barrier(rank->comm, &request, &why), &request, &why);
    }
    EXPECT(rank, status == GW_ERR_PEER, "%d: %s", status, why.text);
}

static void disagreement_ends(void **state)
{
    (void)state;
    static const size_t sizes[] = {150, 60};
    for (size_t i = 0; i < 2; i++) {
        run_on_nccl(2, disagree, &sizes[i]);
    }
}

/* NCCL refuses an operation. */
static void refused(rank_of *rank)
{
    unsigned char byte = 1;
    gw_why why = {""};
    gw_request request = NULL;
    *fake.fail_next = 3;
    const gw_status status =
        finish(rank->comm,
               rank->comm->table->allgatherv(rank->comm, &byte, 1, &byte, &(size_t){1},
                                             &(size_t){0}, &request, &why),
               request, &why);
    EXPECT(rank, status == GW_ERR_PEER, "%d", status);
    EXPECT(rank, strcmp(why.text, "allgatherv: internal error: fake words") == 0, "said: %s",
           why.text);
}

static void refusal_is_told(void **state)
{
    (void)state;
    run_on_nccl(1, refused, NULL);
}

/* Rank 1 has no device: nobody is left waiting for it in NCCL. */
static void no_device(rank_of *rank)
{
    const scene *s = rank->arg;
    gw_comm *comm = NULL;
    gw_why why = {""};
    void *context = NULL;
    if (rank->comm->rank != 1) {
        (void)fake.push(NULL);
    }
    const gw_status status = gw_nccl_create(s->nccl, rank->comm, PATIENCE, &comm, &why);
    if (rank->comm->rank != 1) {
        (void)fake.pop(&context);
    }
    EXPECT(rank, status == GW_ERR_STATE, "%d: %s", status, why.text);
    EXPECT(rank, strstr(why.text, "rank 1: no CUDA device is current") != NULL, "said: %s",
           why.text);
}

static void all_need_a_device(void **state)
{
    (void)state;
    scene s = {NULL, NULL, NULL};
    assert_int_equal(gw_nccl_open(GW_TESTS_FAKE_NCCL, GW_TESTS_FAKE_NCCL, &s.nccl, NULL), GW_OK);
    ranks_run(&(gw_threads_config){.ranks = 3}, no_device, &s, NULL);
    gw_nccl_close(s.nccl);
    assert_int_equal(fake.live(), 0);
}

/* A split that not all call ends in time, and with it the group. */
static void split_alone(rank_of *rank)
{
    const scene *s = rank->arg;
    gw_comm *comm = NULL, *part = NULL;
    gw_why why = {""};
    void *context = NULL;
    (void)fake.push(NULL);
    EXPECT(rank, gw_nccl_create(s->nccl, rank->comm, 1, &comm, &why) == GW_OK, "%s", why.text);
    if (rank->comm->rank == 0) {
        const gw_status status = comm->table->split(comm, 0, 0, &part, &why);
        EXPECT(rank, status == GW_ERR_TIMEOUT, "%d: %s", status, why.text);
        EXPECT(rank, strcmp(why.text, "split: rank 0 waited 1 s for the others") == 0, "said: %s",
               why.text);
    } else { /* ends when rank 0 has given up */
        gw_request request = NULL;
        const gw_status status =
            finish(comm, comm->table->barrier(comm, &request, &why), &request, &why);
        EXPECT(rank, status == GW_ERR_PEER, "%d: %s", status, why.text);
    }
    comm->table->close(comm);
    (void)fake.pop(&context);
}

static void split_has_a_limit(void **state)
{
    (void)state;
    scene s = {NULL, NULL, NULL};
    assert_int_equal(gw_nccl_open(GW_TESTS_FAKE_NCCL, GW_TESTS_FAKE_NCCL, &s.nccl, NULL), GW_OK);
    ranks_run(&(gw_threads_config){.ranks = 2}, split_alone, &s, NULL);
    gw_nccl_close(s.nccl);
    assert_int_equal(fake.live(), 0);
}

static void libraries(void **state)
{
    (void)state;
    gw_nccl *nccl = NULL;
    gw_why why = {""};
    const char *real = GW_TESTS_FAKE_NCCL;
    assert_int_equal(gw_nccl_open(real, real, NULL, &why), GW_ERR_ARG);
    assert_int_equal(gw_nccl_open("/nowhere/libnccl.so.2", real, &nccl, &why), GW_ERR_UNSUPPORTED);
    CHECK(strncmp(why.text, "no NCCL: /nowhere/libnccl.so.2:", 31) == 0, "%s", why.text);
    assert_int_equal(gw_nccl_open(real, "/nowhere/libcuda.so.1", &nccl, &why), GW_ERR_UNSUPPORTED);
    CHECK(strstr(why.text, "/nowhere/libcuda.so.1") != NULL, "%s", why.text);
    assert_int_equal(gw_nccl_open("libm.so.6", real, &nccl, &why), GW_ERR_VERSION);
    CHECK(strcmp(why.text, "libm.so.6 has no ncclGetVersion: too old, or another library") == 0,
          "%s", why.text);
    *fake.version = 2708;
    assert_int_equal(gw_nccl_open(real, real, &nccl, &why), GW_ERR_VERSION);
    CHECK(strstr(why.text, "is NCCL 2.7.8; 2.18 is the oldest that will do") != NULL, "%s",
          why.text);
    *fake.version = 21703;
    assert_int_equal(gw_nccl_open(real, real, &nccl, &why), GW_ERR_VERSION);
    CHECK(strstr(why.text, "is NCCL 2.17.3;") != NULL, "%s", why.text);
    *fake.version = 22705;
    assert_int_equal(gw_nccl_open(real, real, &nccl, &why), GW_OK);
    assert_int_equal(gw_nccl_version(nccl), 22705);
    assert_int_equal(gw_nccl_version(NULL), 0);
    assert_int_equal(gw_nccl_create(nccl, NULL, 0, NULL, &why), GW_ERR_ARG);
    gw_nccl_close(nccl);
    gw_nccl_close(NULL);
}

/* Ranks agree in host memory, and exchanges without a place work there: they say so, and do not hand it to NCCL. */
static void no_step_of_it(rank_of *rank)
{
    gw_step *step = NULL;
    gw_why why = {""};
    EXPECT(rank, (rank->comm->table->flags & GW_COMM_DEVICE) != 0, "flags");
    const gw_status status = gw_step_create(&(gw_step_config){.comm = rank->comm}, &step, &why);
    EXPECT(rank, status == GW_ERR_UNSUPPORTED, "%d", status);
    EXPECT(rank,
           strcmp(why.text, "ranks agree in host memory, nccl works in a device's: give it as "
                            "device_comm, beside a comm of the host's") == 0,
           "said: %s", why.text);
}

static void no_exchange_of_it(rank_of *rank)
{
    gw_exchange_config config = {.ranks = 2, .rank = rank->comm->rank, .elements = 8};
    gw_exchange *x = NULL;
    gw_why why = {""};
    float values[8] = {0};
    static const gw_stream stream = {0};
    EXPECT(rank, gw_route_parse(&config.route, "dense", &why) == GW_OK, "%s", why.text);
    EXPECT(rank, gw_exchange_create(&config, &x, &why) == GW_OK, "%s", why.text);
    const gw_workspace space = {aligned_alloc(64, gw_exchange_workspace(x) / 64 * 64 + 64),
                                gw_exchange_workspace(x)};
    const gw_status status =
        gw_exchange_begin(x, &(gw_lane){.flat = rank->comm}, values, &stream, space, &why);
    gw_exchange_destroy(x, 0);
    free(space.data);
    EXPECT(rank, status == GW_ERR_UNSUPPORTED, "%d: %s", status, why.text);
    EXPECT(rank, strcmp(why.text, "an exchange works in host memory, nccl in a device's") == 0,
           "said: %s", why.text);
}

static void steps_refuse_it(void **state)
{
    (void)state;
    run_on_nccl(1, no_step_of_it, NULL);
    run_on_nccl(2, no_exchange_of_it, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation),
        cmocka_unit_test(groups),
        cmocka_unit_test(sums),
        cmocka_unit_test(streams_are_respected),
        cmocka_unit_test(steady_state),
        cmocka_unit_test(abort_reaches_all),
        cmocka_unit_test(disagreement_ends),
        cmocka_unit_test(refusal_is_told),
        cmocka_unit_test(all_need_a_device),
        cmocka_unit_test(split_has_a_limit),
        cmocka_unit_test(libraries),
        cmocka_unit_test(steps_refuse_it),
    };
    return cmocka_run_group_tests(tests, load_fake, NULL);
}
