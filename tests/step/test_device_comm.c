/* A step beside whose comm stands one of a device's memory (the fake NCCL, an emulated device): what is refused, heads that
 * are another's, a rank that leaves, and that nothing passes through the host. Its bits: step/device-nccl. */
#include "support/check.h"
#include "support/device_comm.h"
#include "support/steps.h"

static gw_cuda *cuda;

static void run_ranks(uint32_t n, ranks_main *main, void *arg)
{
    ranks_run(&(gw_threads_config){.ranks = n}, main, arg);
}

/* ---- refusals ---- */

static void refused_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    gw_step *step = NULL;
    gw_why why = {""};
    (void)arg;
    gw_comm *device = device_comm_join(comm);
    gw_step_config config = {.comm = comm, .device_comm = device};
    RANK_TRUE(gw_step_create(&config, &step, &why) == GW_ERR_ARG, "without a place");
    RANK_TRUE(strstr(why.text, "no place") != NULL, why.text);
    config.place = (gw_cuda_place){cuda, 0};
    config.device_comm = comm;
    RANK_TRUE(gw_step_create(&config, &step, &why) == GW_ERR_ARG, "a host's comm");
    RANK_TRUE(strstr(why.text, "threads, does not work in a device's memory") != NULL, why.text);
    gw_comm *alone = NULL;
    RANK_OK(comm->table->split(comm, rank, 0, &alone, &why), why.text);
    config.comm = alone;
    config.device_comm = device;
    RANK_TRUE(gw_step_create(&config, &step, &why) == GW_ERR_ARG, "other ranks");
    RANK_TRUE(strstr(why.text, "of 2 in the device_comm") != NULL, why.text);
    alone->table->close(alone);
    config.comm = comm;
    config.device_comm = rank == 0 ? device : NULL;
    RANK_TRUE(gw_step_create(&config, &step, &why) == GW_ERR_DISAGREE, "one with, one without");
    RANK_TRUE(strstr(why.text, "device comms: ") != NULL, why.text);
    ranks_meet(all);
    device->table->close(device);
}

static void what_cannot_be_is_said(void **state)
{
    (void)state;
    run_ranks(2, refused_main, NULL);
}

/* ---- heads ---- */

enum { HEADS = 200 };

static void heads_are_written_and_compared(void **state)
{
    const gw_cuda_place at = {cuda, 0};
    const gw_cuda_head head = {0, 7, 8, 9};
    static gw_cuda_result results[HEADS];
    static gw_cuda_head heads[HEADS];
    static gw_cuda_entry entries[HEADS];
    gw_why why = {""};
    void *memory = NULL, *there = NULL;
    (void)state;
    assert_int_equal(gw_cuda_allocate(at, sizeof heads, 0, &memory, &why), GW_OK);
    assert_int_equal(gw_cuda_allocate(at, sizeof results, 0, &there, &why), GW_OK);
    for (uint32_t i = 0; i < HEADS; i++) {
        results[i] = (gw_cuda_result){.written = 100 + i};
        entries[i] = (gw_cuda_entry){(gw_cuda_head *)memory + i, (gw_cuda_result *)there + i,
                                     i % 2 == 0 ? 100 + i : 0};
    }
    assert_int_equal(gw_cuda_copy(at, NULL, there, results, sizeof results, &why), GW_OK);
    assert_int_equal(gw_cuda_write_heads(at, NULL, &head, entries, HEADS, &why), GW_OK);
    assert_int_equal(gw_cuda_copy(at, NULL, heads, memory, sizeof heads, &why), GW_OK);
    assert_int_equal(gw_cuda_wait(at, NULL, &why), GW_OK);
    for (uint32_t i = 0; i < HEADS; i++) {
        assert_true(heads[i].size == 100 + i && heads[i].step == 7 && heads[i].tensor == 8 &&
                    heads[i].codec == 9);
    }
    heads[3].step++;
    heads[5].tensor++;
    heads[150].codec++;
    heads[160].size++; /* must be what it was; 161's may be anything */
    heads[161].size++;
    assert_int_equal(gw_cuda_copy(at, NULL, memory, heads, sizeof heads, &why), GW_OK);
    assert_int_equal(gw_cuda_check_heads(at, NULL, &head, entries, HEADS, &why), GW_OK);
    assert_int_equal(gw_cuda_copy(at, NULL, heads, memory, sizeof heads, &why), GW_OK);
    assert_int_equal(gw_cuda_copy(at, NULL, results, there, sizeof results, &why), GW_OK);
    assert_int_equal(gw_cuda_wait(at, NULL, &why), GW_OK);
    for (uint32_t i = 0; i < HEADS; i++) {
        const int wrong = i == 3 || i == 5 || i == 150 || i == 160;
        CHECK(results[i].status == (wrong ? GW_ERR_CHECKSUM : GW_OK), "head %u: %d", i,
              results[i].status);
        assert_true((heads[i].size == UINT64_MAX) == wrong);
    }
    entries[1].result = NULL;
    assert_int_equal(gw_cuda_check_heads(at, NULL, &head, entries, HEADS, &why), GW_ERR_ARG);
    gw_cuda_free(at, memory, 0);
    gw_cuda_free(at, there, 0);
}

/* ---- steps ---- */

typedef struct end {
    steps s;
    gw_comm *device;
    void *gradient[64];
} end;

static const steps_layer layers[] = {{5000, "natural:bits=8", "sra@gpu", 0},
                                     {3000, "adacomp:bin=50", "gather@gpu", 0},
                                     {3000, NULL, "dense", 0}};
enum { LAYERS = 3 };

static void open_end(end *e, gw_comm *comm)
{
    gw_why why = {""};
    e->device = device_comm_join(comm);
    const gw_step_config config = {.comm = comm,
                                   .place = {cuda, 0},
                                   .device_comm = e->device,
                                   .lanes = 2,
                                   .piece = 3000,
                                   .verify_every = GW_STEP_VERIFY_NEVER};
    steps_open(&e->s, &config, layers, LAYERS);
    steps_agree(&e->s);
    for (uint32_t i = 0; i < LAYERS; i++) {
        RANK_OK(gw_cuda_allocate(config.place, steps_bytes(&e->s, i), 0, &e->gradient[i], &why),
                why.text);
    }
}

static void close_end(end *e)
{
    steps_close(&e->s);
    e->device->table->close(e->device);
}

static void post(end *e, uint32_t layer)
{
    const gw_cuda_place at = {cuda, 0};
    gw_why why = {""};
    steps_fill(&e->s, layer, 1);
    const gw_tensor tensor = {e->gradient[layer], layers[layer].elements, GW_F32};
    RANK_OK(
        gw_cuda_copy(at, NULL, tensor.data, e->s.gradient[layer], steps_bytes(&e->s, layer), &why),
        why.text);
    RANK_OK(gw_step_post_after(e->s.step, layer, &tensor, NULL, &why), why.text);
    RANK_OK(gw_cuda_wait(at, NULL, &why), why.text);
}

/* The host's links carry nothing; every message on the device's begins behind a lane's stream. */
static void stays_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    end *e = calloc(1, sizeof *e);
    uint64_t before[2], after[2];
    gw_why why = {""};
    (void)arg;
    RANK_TRUE(e != NULL, "no memory");
    open_end(e, comm);
    ranks_meet(all);
    ranks_sent(all, rank, before);
    const int followed = device_comm_followed();
    ranks_meet(all);
    for (uint32_t i = 0; i < LAYERS; i++) {
        post(e, i);
    }
    RANK_OK(gw_step_wait(e->s.step, NULL, &why), why.text);
    ranks_meet(all);
    ranks_sent(all, rank, after);
    RANK_TRUE(before[0] == after[0] && before[1] == after[1], "bytes went through the host");
    /* two pieces of two messages, one of one, one of two; of every rank */
    RANK_TRUE(device_comm_followed() == followed + (int)comm->ranks * 7,
              "a message was not ordered");
    for (uint32_t i = 0; i < LAYERS; i++) {
        gw_layer_stats stats;
        RANK_OK(gw_step_stats(e->s.step, i, &stats), "stats");
        RANK_TRUE(stats.copy_seconds < 1 && stats.bytes_sent[GW_LINK_INTER] != 0, "other stats");
    }
    close_end(e);
    free(e);
}

static void nothing_passes_through_the_host(void **state)
{
    (void)state;
    run_ranks(3, stays_main, NULL);
}

/* Rank 1 destroys its step in the middle: the other's wait ends. */
static void leaves_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    end *e = calloc(1, sizeof *e);
    gw_why why = {""};
    (void)arg;
    RANK_TRUE(e != NULL, "no memory");
    open_end(e, comm);
    ranks_meet(all); /* all agreed, or who is left would hear of it too early */
    for (uint32_t i = 0; i < (rank == 0 ? LAYERS : 1); i++) {
        post(e, i);
    }
    if (rank == 0) {
        RANK_TRUE(gw_step_wait(e->s.step, NULL, &why) == GW_ERR_PEER, why.text);
        RANK_TRUE(strstr(why.text, "layer.0") != NULL, why.text);
    }
    close_end(e);
    free(e);
}

static void a_rank_that_leaves_is_heard_of(void **state)
{
    (void)state;
    run_ranks(2, leaves_main, NULL);
}

/* The message of another step: whoever gets it says so, and the others hear that all is over. */
static void spoiled_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    end *e = calloc(1, sizeof *e);
    gw_status *said = arg;
    gw_why why = {""};
    RANK_TRUE(e != NULL, "no memory");
    open_end(e, comm);
    ranks_meet(all);
    for (uint32_t i = 0; i < LAYERS; i++) {
        post(e, i);
    }
    said[rank] = gw_step_wait(e->s.step, NULL, &why);
    RANK_TRUE(said[rank] == GW_ERR_PEER || (said[rank] == GW_ERR_CHECKSUM &&
                                            strstr(why.text, "its head was changed") != NULL &&
                                            strstr(why.text, "layer.0") != NULL),
              why.text);
    ranks_meet(all);
    close_end(e);
    free(e);
}

static void a_head_of_another_step_is_refused(void **state)
{
    (void)state;
    gw_status said[2] = {GW_OK, GW_OK};
    device_comm_spoil(gw_codec_find("natural"));
    run_ranks(2, spoiled_main, said);
    device_comm_spoil(NULL);
    assert_true(said[0] == GW_ERR_CHECKSUM || said[1] == GW_ERR_CHECKSUM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_is_said),
        cmocka_unit_test(heads_are_written_and_compared),
        cmocka_unit_test(nothing_passes_through_the_host),
        cmocka_unit_test(a_rank_that_leaves_is_heard_of),
        cmocka_unit_test(a_head_of_another_step_is_refused),
    };
    gw_why why = {""};
    if (gw_cuda_open(GW_TESTS_EMULATED, &cuda, &why) != GW_OK) {
        print_error("%s\n", why.text);
        return 2;
    }
    device_comm_open(GW_TESTS_FAKE_NCCL, (gw_cuda_place){cuda, 0}, 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_comm_close();
    failed += device_comm_live() != 0;
    gw_cuda_close(cuda);
    return failed;
}
