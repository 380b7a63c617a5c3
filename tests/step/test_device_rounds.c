/* lowrank of gradients in a device's memory: made and taken there, summed by the host's comm. Replicas are equal bit for bit,
 * also where some code on the device and some on the host; means are near the host's, and its bits where no sum rounds.
 * Residual and warm start go into checkpoints and to the host and back. The device is emulated, or the library named
 * as the first argument; with a second, an NCCL, ranks have a comm of the device's memory too. */
#include "support/check.h"
#include "support/device_comm.h"
#include "support/gen.h"
#include "support/steps.h"

#include "base/numeric.h"

#include <math.h>

enum { RANKS = 4 };
static gw_cuda *cuda;
static int by_nccl;

/* A rank's step; with a place its gradients lie on the device, `s` has what comes back. */
typedef struct end {
    steps s;
    gw_cuda_place place;
    gw_comm *comm, *device_comm;
    void *device[64], *stream;
} end;

typedef void fill(steps *s, uint32_t layer, uint64_t step);

static void open_end(end *e, gw_comm *comm, int on_device, const steps_layer *layers, uint32_t n)
{
    gw_why why = {""};
    gw_step_config config = {.comm = comm,
                             .seed = 11,
                             .ranks_per_node = comm->ranks == RANKS ? 2 : 1,
                             .lanes = 2,
                             .fuse_below = 1};
    *e = (end){.place = {on_device ? cuda : NULL, 0}, .comm = comm};
    config.place = e->place;
    if (on_device && by_nccl) {
        e->device_comm = config.device_comm = device_comm_join(comm);
    }
    steps_open(&e->s, &config, layers, n);
    for (uint32_t i = 0; i < n && on_device; i++) {
        RANK_OK(gw_cuda_allocate(e->place, steps_bytes(&e->s, i), 0, &e->device[i], &why),
                why.text);
    }
    if (on_device) {
        RANK_OK(gw_cuda_stream_open(e->place, &e->stream, &why), why.text);
    }
    steps_agree(&e->s);
}

static void close_end(end *e)
{
    steps_close(&e->s);
    if (e->device_comm != NULL) {
        e->device_comm->table->close(e->device_comm);
    }
    for (uint32_t i = 0; i < e->s.n; i++) {
        gw_cuda_free(e->place, e->device[i], 0);
    }
    gw_cuda_stream_close(e->place, e->stream);
}

static void copy(const end *e, void *to, const void *from, size_t bytes)
{
    gw_why why = {""};
    RANK_OK(gw_cuda_copy(e->place, e->stream, to, from, bytes, &why), why.text);
    RANK_OK(gw_cuda_wait(e->place, e->stream, &why), why.text);
}

/* A step of numbers, or of what `other` makes of them; the means are in e->s. */
static gw_step_result run(end *e, uint64_t step, fill *other)
{
    gw_why why = {""};
    gw_step_result result;
    for (uint32_t i = 0; i < e->s.n; i++) {
        steps_fill(&e->s, i, step);
        if (other != NULL) {
            other(&e->s, i, step);
        }
        if (e->place.cuda == NULL) {
            steps_post(&e->s, i);
            continue;
        }
        copy(e, e->device[i], e->s.gradient[i], steps_bytes(&e->s, i));
        const gw_tensor t = {e->device[i], e->s.layers[i].elements, e->s.layers[i].dtype};
        RANK_OK(gw_step_post_after(e->s.step, i, &t, e->stream, &why), why.text);
    }
    RANK_OK(gw_step_wait(e->s.step, &result, &why), why.text);
    for (uint32_t i = 0; i < e->s.n && e->place.cuda != NULL; i++) {
        copy(e, e->s.gradient[i], e->device[i], steps_bytes(&e->s, i));
    }
    return result;
}

/* It goes on from a checkpoint. */
static void bring(end *to, gw_feedback_blob blob, uint64_t after_step)
{
    gw_why why = {""};
    gw_feedback_told told;
    gw_step_set_number(to->s.step, after_step);
    steps_agree(&to->s);
    RANK_OK(gw_feedback_load(gw_step_feedback(to->s.step), to->comm->ranks, &blob, 1, &told, &why),
            why.text);
    RANK_TRUE(told.adopted == 0 && told.at_zero == 0, "a residual or a state has no place");
}

static void release(gw_feedback_blob blob)
{
    free((void *)(uintptr_t)blob.bytes);
}

static void same_memory(end *a, end *b, const char *words)
{
    const gw_feedback_blob x = steps_save(&a->s), y = steps_save(&b->s);
    RANK_TRUE(steps_same(x, y), words);
    release(x);
    release(y);
}

static void same_means(const end *a, const end *b, const char *words)
{
    for (uint32_t l = 0; l < a->s.n; l++) {
        if (memcmp(a->s.gradient[l], b->s.gradient[l], steps_bytes(&a->s, l)) != 0) {
            print_error("layer %u: %s\n", l, words);
            RANK_TRUE(0, words);
        }
    }
}

static float number(const end *e, uint32_t layer, uint64_t i)
{
    const gw_dtype dtype = e->s.layers[layer].dtype;
    const uint16_t half = dtype != GW_F32 ? ((const uint16_t *)e->s.gradient[layer])[i] : 0;
    return dtype == GW_F32   ? ((const float *)e->s.gradient[layer])[i]
           : dtype == GW_F16 ? gw_f32_from_f16(half)
                             : gw_f32_from_bf16(half);
}

/* Within 1e-5 of the host's length; a number of fp16 or bf16 may fall to the other side besides. */
static void near_means(const end *here, const end *there)
{
    for (uint32_t l = 0; l < here->s.n; l++) {
        const gw_dtype dtype = here->s.layers[l].dtype;
        const double ulp = dtype == GW_F16 ? 0x1p-10 : dtype == GW_BF16 ? 0x1p-7 : 0;
        double wrong = 0, all = 0;
        for (uint64_t i = 0; i < here->s.layers[l].elements; i++) {
            const double x = (double)number(here, l, i), d = fabs((double)number(there, l, i) - x);
            wrong += d <= ulp * fabs(x) ? 0 : d * d;
            all += x * x;
        }
        if (sqrt(wrong) > 1e-5 * sqrt(all)) {
            print_error("layer %u: %g of the host's\n", l, sqrt(wrong / all));
            RANK_TRUE(0, "far from the host's means");
        }
    }
}

/* All ranks' device ends. */
static end *ends[RANKS];

static void equal_replicas(ranks *all, uint32_t rank, end *e)
{
    ends[rank] = e;
    ranks_meet(all);
    same_means(e, ends[0], "replicas differ");
    ranks_meet(all);
}

static uint32_t coded_on(const end *e, uint32_t layer)
{
    gw_layer_stats stats;
    RANK_OK(gw_step_stats(e->s.step, layer, &stats), "stats");
    return stats.coded_on;
}

static void run_ranks(uint32_t n, ranks_main *main, void *arg)
{
    const gw_threads_config config = {.ranks = n, .ranks_per_node = n == RANKS ? 2 : 1};
    ranks_run(&config, main, arg);
}

/* Two ends of a rank, on the heap: they are large. */
static end *open_two(gw_comm *comm, int first, int second, const steps_layer *layers, uint32_t n)
{
    end *e = calloc(2, sizeof *e);
    RANK_TRUE(e != NULL, "no memory");
    open_end(&e[0], comm, first, layers, n);
    open_end(&e[1], comm, second, layers, n);
    return e;
}

static void close_two(end *e)
{
    close_end(&e[0]);
    close_end(&e[1]);
    free(e);
}

/* ---- near the host's, and equal on all ranks ---- */

static const steps_layer layers[] = {
    {17 * 60, "lowrank:rank=2", "sum@gpu", 0},
    {17 * 61, "lowrank:rank=1", "hier-sum@gpu", GW_BF16},
    {4003, "lowrank:rank=3,cols=62", "sum@gpu", GW_F16},  /* a short last row */
    {200 * 192, "lowrank:rank=4,cols=192", "sum@gpu", 0}, /* several blocks */
    {40, "lowrank:rank=4,cols=8", "sum@gpu", 0},          /* as it is */
    {0, "lowrank:rank=4", "sum@gpu", 0},
    {17 * 60, "lowrank:rank=2", "sum@cpu", 0},
};
enum { LAYERS = sizeof layers / sizeof layers[0], FIRST_ON_CPU = LAYERS - 1 };
/* Bytes: two seals for each peer and message; and the most that a layer's sums can have. */
enum { SEAL_PAIR = 16, SEALS = 3 * RANKS * SEAL_PAIR * 2 };

static void near_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    end *e = open_two(comm, 0, 1, layers, LAYERS), *here = &e[0], *there = &e[1];
    (void)arg;
    for (uint64_t step = 1; step <= 3; step++) {
        (void)run(here, step, NULL);
        const gw_step_result r = run(there, step, NULL);
        RANK_TRUE(r.non_finite == 0, "a finite gradient arrived non-finite");
        equal_replicas(all, rank, there);
        near_means(here, there);
        for (uint32_t l = 0; l < LAYERS; l++) {
            gw_layer_stats a, b;
            RANK_OK(gw_step_stats(here->s.step, l, &a), "stats");
            RANK_OK(gw_step_stats(there->s.step, l, &b), "stats");
            const uint32_t where = l < FIRST_ON_CPU ? GW_DEVICE_GPU : GW_DEVICE_CPU;
            RANK_TRUE(b.coded_on == where || layers[l].elements == 0, "coded elsewhere");
            RANK_TRUE(a.payload_bytes == b.payload_bytes, "other payloads");
            for (int i = 0; i < GW_LINKS; i++) {
                const uint64_t seals = a.bytes_sent[i] - b.bytes_sent[i]; /* none between devices */
                RANK_TRUE(seals == 0 || (by_nccl && seals <= SEALS && seals % SEAL_PAIR == 0),
                          "other bytes");
            }
            RANK_TRUE(l < FIRST_ON_CPU || memcmp(here->s.gradient[l], there->s.gradient[l],
                                                 steps_bytes(&here->s, l)) == 0,
                      "@cpu is not the host's");
        }
        const gw_feedback_blob blob = steps_save(&here->s); /* so that both begin alike again */
        bring(there, blob, step);
        same_memory(here, there, "a checkpoint of the host's is another one on the device");
        release(blob);
    }
    close_two(e);
}

static void near_the_host(void **state)
{
    (void)state;
    run_ranks(RANKS, near_main, NULL);
    run_ranks(1, near_main, NULL);
}

/* ---- where no sum rounds ---- */

/* One power of two at most in every row and column; ranks have different ones. */
static void exact(steps *s, uint32_t layer, uint64_t step)
{
    const uint64_t n = s->layers[layer].elements, cols = layer == 0 ? 17 : 192;
    gen g = {step * 100 + layer * 10 + s->rank};
    float *x = s->gradient[layer];
    memset(x, 0, n * sizeof *x);
    for (uint64_t row = 0; row < n / cols && row < cols; row++) {
        x[row * cols + (row + 3 * s->rank) % cols] =
            gw_float((117 + gen_below(&g, 20)) << GW_MANT_BITS | gen_below(&g, 2) << 31);
    }
}

static void exact_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    static const steps_layer two[] = {{17 * 60, "lowrank:rank=2", "sum@gpu", 0},
                                      {200 * 192, "lowrank:rank=4,cols=192", "hier-sum@gpu", 0}};
    end *e = open_two(comm, 0, 1, two, 2);
    (void)arg;
    (void)run(&e[0], 1, exact);
    (void)run(&e[1], 1, exact);
    equal_replicas(all, rank, &e[1]);
    same_means(&e[0], &e[1], "the device has other means");
    same_memory(&e[0], &e[1], "the device has other residuals, or another state");
    close_two(e);
}

static void exact_where_no_sum_rounds(void **state)
{
    (void)state;
    run_ranks(RANKS, exact_main, NULL);
}

/* ---- checkpoints ---- */

static void resume_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    end *e = open_two(comm, 1, 1, layers, LAYERS), *through = &e[0], *resumed = &e[1];
    (void)arg;
    (void)run(through, 1, NULL);
    (void)run(through, 2, NULL);
    const gw_feedback_blob saved = steps_save(&through->s);
    bring(resumed, saved, 2);
    same_memory(through, resumed, "what was loaded is not what was saved");
    for (uint64_t step = 3; step <= 4; step++) {
        (void)run(through, step, NULL);
        (void)run(resumed, step, NULL);
        same_means(through, resumed, "a run that was resumed went another way");
    }
    same_memory(through, resumed, "a run that was resumed remembers other things");
    bring(through, saved, 2); /* back, in the same step object */
    (void)run(through, 3, NULL);
    (void)run(through, 4, NULL);
    same_means(through, resumed, "a run that went back went another way");
    equal_replicas(all, rank, through);
    release(saved);
    close_two(e);
}

static void resumed_bit_for_bit(void **state)
{
    (void)state;
    run_ranks(2, resume_main, NULL);
}

/* ---- what is not finite ---- */

/* One rank's, from step 3 on: a NaN; an infinity; numbers whose product overflows. Step 6 is sound again. */
static void spoil(steps *s, uint32_t layer, uint64_t step)
{
    float *x = s->gradient[layer];
    if (layer != 0 || s->rank != 1) {
        return;
    }
    if (step == 3 || step == 4) {
        x[333] = step == 3 ? (float)NAN : -(float)INFINITY;
    }
    for (uint64_t i = 0; step == 5 && i < s->layers[0].elements; i++) {
        x[i] = 3e38f;
    }
}

static void bad_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    static const steps_layer one[] = {{17 * 60, "lowrank:rank=2", "sum@gpu", 0}};
    end *e = open_two(comm, 1, 0, one, 1), *there = &e[0], *here = &e[1];
    (void)arg;
    (void)run(there, 1, NULL);
    (void)run(there, 2, NULL);
    const gw_feedback_blob kept = steps_save(&there->s);
    bring(here, kept, 2);
    for (uint64_t step = 3; step <= 5; step++) {
        gw_layer_stats a, b;
        const gw_step_result r = run(there, step, spoil), h = run(here, step, spoil);
        RANK_TRUE(r.non_finite == 1 && h.non_finite == 1, "a bad layer that is not seen");
        for (uint64_t i = 0; i < one[0].elements; i++) {
            RANK_TRUE(isnan(number(there, 0, i)), "a NaN did not arrive");
        }
        RANK_OK(gw_step_stats(here->s.step, 0, &a), "stats");
        RANK_OK(gw_step_stats(there->s.step, 0, &b), "stats");
        RANK_TRUE(a.non_finite == b.non_finite, "another count of what is not finite");
        RANK_TRUE((b.non_finite != 0) == (rank == 1 && step != 5), "whose fault it is");
        const gw_feedback_blob now = steps_save(&there->s);
        RANK_TRUE(steps_same(kept, now), "a step that never happened left something");
        release(now);
    }
    RANK_TRUE(run(there, 6, spoil).non_finite == 0, "a sound step is not");
    (void)run(here, 6, spoil);
    near_means(here, there);
    equal_replicas(all, rank, there);
    release(kept);
    close_two(e);
}

static void what_is_not_finite(void **state)
{
    (void)state;
    run_ranks(2, bad_main, NULL);
}

/* ---- ranks and plans that code here and there ---- */

/* Even ranks have their gradients on the device, odd ones on the host. */
static void mixed_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    end *e = calloc(1, sizeof *e);
    (void)arg;
    RANK_TRUE(e != NULL, "no memory");
    open_end(e, comm, rank % 2 == 0, layers, LAYERS);
    for (uint64_t step = 1; step <= 3; step++) {
        RANK_TRUE(run(e, step, NULL).non_finite == 0, "a finite gradient arrived non-finite");
        RANK_TRUE(coded_on(e, 0) == (rank % 2 == 0 ? GW_DEVICE_GPU : GW_DEVICE_CPU), "where");
        equal_replicas(all, rank, e);
    }
    close_end(e);
    free(e);
}

static void some_ranks_on_the_host(void **state)
{
    (void)state;
    if (by_nccl) { /* which all ranks have, or none */
        skip();
    }
    run_ranks(RANKS, mixed_main, NULL);
}

/* Residual and warm start come to the host with a plan for it, and go back with another; of another rank, the columns that
 * both have. */
static void plans_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    static const steps_layer one[] = {{17 * 60, "lowrank:rank=2", "sum@gpu", 0}};
    static const char *const plans[][2] = {{"lowrank:rank=2", "sum@cpu"},
                                           {"lowrank:rank=2", "sum@gpu"},
                                           {"lowrank:rank=3", "hier-sum@gpu"},
                                           {"lowrank:rank=1", "sum@gpu"},
                                           {NULL, "dense"},
                                           {"lowrank:rank=2", "sum@gpu"}};
    end *e = open_two(comm, 0, 1, one, 1), *here = &e[0], *there = &e[1];
    (void)arg;
    (void)run(there, 1, NULL);
    (void)run(here, 1, NULL);
    for (uint64_t p = 0; p < sizeof plans / sizeof plans[0]; p++) {
        const gw_feedback_blob before = steps_save(&there->s);
        bring(here, before, p + 1);
        steps_plan(&here->s, 0, plans[p][0], plans[p][1]);
        steps_plan(&there->s, 0, plans[p][0], plans[p][1]);
        steps_agree(&here->s);
        steps_agree(&there->s);
        same_memory(here, there, "another plan takes over other things");
        (void)run(here, p + 2, NULL);
        (void)run(there, p + 2, NULL);
        near_means(here, there);
        equal_replicas(all, rank, there);
        if (plans[p][0] == NULL || strstr(plans[p][1], "@cpu") != NULL) {
            same_means(here, there, "on the host it has other bits");
            same_memory(here, there, "on the host it leaves other things");
        }
        release(before);
    }
    close_two(e);
}

static void plans_move_what_is_kept(void **state)
{
    (void)state;
    run_ranks(RANKS, plans_main, NULL);
}

/* test_step_device_rounds [LIBRARY [NCCL]]: `emulated` is the emulated one. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_the_host),          cmocka_unit_test(exact_where_no_sum_rounds),
        cmocka_unit_test(resumed_bit_for_bit),    cmocka_unit_test(what_is_not_finite),
        cmocka_unit_test(some_ranks_on_the_host), cmocka_unit_test(plans_move_what_is_kept),
    };
    gw_why why = {""};
    const int emulated = argc < 2 || strcmp(argv[1], "emulated") == 0;
    if (gw_cuda_open(emulated ? GW_TESTS_EMULATED : argv[1], &cuda, &why) != GW_OK) {
        print_error("%s\n", why.text);
        return 2;
    }
    by_nccl = argc > 2;
    if (by_nccl) {
        device_comm_open(argv[2], (gw_cuda_place){cuda, 0}, emulated);
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (by_nccl) {
        device_comm_close();
        failed += device_comm_live() != 0;
    }
    gw_cuda_close(cuda);
    return failed;
}
