/* The search against trying everything, the paper's two algorithms and their counter-examples. */
#include "plan/instances.h"
#include "support/check.h"

#include <math.h>

#define G GW_TRACK_GPU
#define C GW_TRACK_CPU
#define N GW_TRACK_NIC

static const gw_timeline_rules PAPER = {.cpu_workers = 1, .one_channel = 1};

/* ---- problems by hand ---- */

enum { TENSORS = 4 };

typedef struct hand {
    gw_front front;
    gw_class classes[TENSORS];
    const gw_class *class_of[TENSORS];
} hand;

/* Each tensor: none, or the GPU, or the CPU, then a message; 0 ticks: not this one. */
static void make(hand *h, uint32_t n, const gw_ticks (*times)[5])
{
    *h = (hand){.front = {.n = 0}};
    for (uint32_t i = 0; i < n; i++) {
        const gw_ticks *t = times[i];
        gw_front_begin(&h->front, &PAPER);
        if (t[0] != 0) {
            assert_true(gw_front_offer(&h->front, &(gw_choice){.coding = GW_CODING_NONE},
                                       (gw_timed_op[]){{N, t[0]}}, 1, 0));
        }
        if (t[1] != 0) {
            assert_true(gw_front_offer(&h->front,
                                       &(gw_choice){.coding = GW_CODING_GPU, .variety = 1},
                                       (gw_timed_op[]){{G, t[1]}, {N, t[3]}}, 2, 0));
        }
        if (t[2] != 0) {
            assert_true(gw_front_offer(&h->front,
                                       &(gw_choice){.coding = GW_CODING_CPU, .variety = 1},
                                       (gw_timed_op[]){{C, t[2]}, {N, t[3]}}, 2, 0));
        }
        assert_true(gw_front_seal(&h->front, (uint64_t)t[4], &h->classes[i]));
        h->class_of[i] = &h->classes[i];
    }
}

static void release(hand *h)
{
    for (uint32_t i = 0; i < TENSORS; i++) {
        gw_class_free(&h->classes[i]);
    }
    gw_front_free(&h->front);
}

static gw_ticks search(const hand *h, const gw_ticks *compute, uint32_t n, gw_coding *coding)
{
    gw_search s;
    assert_int_equal(gw_search_create(&s, &PAPER, compute, h->class_of, n, NULL), GW_OK);
    gw_search_run(&s);
    const gw_ticks makespan = s.line.makespan;
    for (uint32_t i = 0; i < n; i++) {
        coding[i] = (gw_coding)h->classes[i].choice[s.pick[i]].coding;
    }
    gw_search_destroy(&s);
    return makespan;
}

/* Figure 2: CPU, none, GPU, which ends at 29. */
static void figure_2(void **state)
{
    (void)state;
    hand h;
    gw_coding coding[TENSORS];
    const gw_ticks times[3][5] = {{11, 4, 6, 3, 11}, {9, 4, 10, 3, 9}, {8, 3, 9, 3, 8}};
    make(&h, 3, times);
    assert_int_equal(search(&h, (gw_ticks[]){8, 8, 7}, 3, coding), 29);
    assert_int_equal(coding[0], GW_CODING_CPU);
    assert_int_equal(coding[1], GW_CODING_NONE);
    assert_int_equal(coding[2], GW_CODING_GPU);
    release(&h);
}

/* One of two must go to the CPU: the earliest is not the best. */
static void counter_example_18(void **state)
{
    (void)state;
    hand h;
    gw_coding coding[TENSORS];
    const gw_ticks first[2][5] = {{0, 0, 4, 5, 1}, {0, 2, 0, 5, 1}};
    const gw_ticks second[2][5] = {{0, 2, 0, 5, 1}, {0, 0, 4, 5, 1}};
    make(&h, 2, first);
    assert_int_equal(search(&h, (gw_ticks[]){5, 2}, 2, coding), 19);
    release(&h);
    make(&h, 2, second);
    assert_int_equal(search(&h, (gw_ticks[]){5, 2}, 2, coding), 18);
    release(&h);
}

/* The best subset to offload is no prefix. The prefixes alone reach 38. */
static void counter_example_37(void **state)
{
    (void)state;
    hand h;
    gw_coding coding[TENSORS];
    const gw_ticks times[4][5] = {
        {0, 1, 9, 5, 1}, {0, 1, 9, 5, 1}, {0, 1, 9, 5, 1}, {0, 1, 9, 5, 1}};
    const gw_ticks compute[4] = {9, 8, 2, 10};
    gw_search s;
    make(&h, 4, times);
    h.class_of[1] = h.class_of[2] = h.class_of[3] = &h.classes[0]; /* one group */
    assert_int_equal(gw_search_create(&s, &PAPER, compute, h.class_of, 4, NULL), GW_OK);
    gw_search_greedy(&s);
    gw_search_offload(&s);
    assert_int_equal(s.line.makespan, 38);
    gw_search_destroy(&s);
    assert_int_equal(search(&h, compute, 4, coding), 37);
    release(&h);
}

/* ---- random problems ---- */

enum { FIRST_SEED = 1000 };
/* A sample for slow builds; `all` as an argument: 1000 and 10000. */
static uint64_t instances = 100, many_instances = 500;

static gw_ticks everywhere(gw_search *s, gw_coding coding)
{
    gw_search_all(s, coding);
    return s->line.makespan;
}

/* Each tensor decides as if it were alone. */
static gw_ticks myopic(gw_search *s)
{
    gw_search_links(s);
    return s->line.makespan;
}

static void against_everything(void **state)
{
    (void)state;
    static instance x;
    uint64_t enumerated = 0, evaluations = 0;
    int exact = 0;
    double sum = 0, worst = 0;
    for (uint64_t seed = FIRST_SEED; seed < FIRST_SEED + instances; seed++) {
        uint64_t tried = 0;
        gw_search s;
        instance_draw(&x, seed);
        const gw_ticks best = instance_enumerate(&x, &tried);
        assert_int_equal(gw_search_create(&s, &x.rules, x.compute, x.class_of, x.n, NULL), GW_OK);
        gw_search_greedy(&s);
        const gw_ticks greedy = s.line.makespan;
        gw_search_offload(&s);
        const gw_ticks algorithms = s.line.makespan;
        s.keep_before_bubbles = 1;
        gw_search_greedy(&s);
        CHECK(s.line.makespan >= greedy, "seed %llu: without removal %lld, with it %lld",
              (unsigned long long)seed, (long long)s.line.makespan, (long long)greedy);
        s.keep_before_bubbles = 0;
        s.line.evaluations = 0;
        gw_search_run(&s);
        const gw_ticks found = s.line.makespan;
        enumerated += tried;
        evaluations += s.line.evaluations;
        CHECK(found >= best, "seed %llu: better than the best", (unsigned long long)seed);
        CHECK(found <= algorithms, "seed %llu: worse than algorithms 1 and 2",
              (unsigned long long)seed);
        gw_search_dense(&s);
        CHECK(found <= s.line.makespan && found <= everywhere(&s, GW_CODING_GPU) &&
                  found <= everywhere(&s, GW_CODING_CPU) && found <= myopic(&s),
              "seed %llu: one choice for all is better", (unsigned long long)seed);
        const double excess = (double)found / (double)best - 1;
        exact += found == best;
        sum += excess;
        worst = excess > worst ? excess : worst;
        gw_search_destroy(&s);
        instance_free(&x);
    }
    print_message(
        "exact in %.1f %%, mean excess %.3f %%, worst %.2f %%, %.2f %% of the evaluations\n",
        100.0 * exact / (double)instances, 100 * sum / (double)instances, 100 * worst,
        100.0 * (double)evaluations / (double)enumerated);
    assert_true((uint64_t)exact * 100 >= instances * 95);
    assert_true(sum / (double)instances <= 0.003);
    assert_true(worst <= 0.0501);
    assert_true((double)evaluations <= 0.05 * (double)enumerated);
}

/* Never worse than one choice for all, on many more; twice the unit gives the same picks; so does another run. */
static void many(void **state)
{
    (void)state;
    static instance x;
    for (uint64_t seed = 0; seed < many_instances; seed++) {
        gw_search s, again;
        instance_draw(&x, seed ^ UINT64_C(0x5eed0000));
        assert_int_equal(gw_search_create(&s, &x.rules, x.compute, x.class_of, x.n, NULL), GW_OK);
        gw_search_run(&s);
        const gw_ticks found = s.line.makespan;
        uint32_t pick[INSTANCE_TENSORS];
        memcpy(pick, s.pick, x.n * sizeof *pick);
        gw_search_dense(&s);
        CHECK(found <= s.line.makespan && found <= everywhere(&s, GW_CODING_GPU) &&
                  found <= everywhere(&s, GW_CODING_CPU) && found <= myopic(&s),
              "seed %llu: one choice for all is better", (unsigned long long)seed);
        for (uint32_t i = 0; i < x.n; i++) {
            x.compute[i] *= 2;
            for (uint32_t k = 0; k < x.classes[i].n; k++) {
                gw_choice *c = &x.classes[i].choice[k];
                for (unsigned track = 0; track < GW_TRACKS; track++) {
                    c->chain.work[track] *= 2;
                }
                for (uint32_t op = 0; op < c->chain.n; op++) {
                    ((gw_op_time *)c->chain.op)[op].ticks *= 2;
                }
            }
        }
        assert_int_equal(gw_search_create(&again, &x.rules, x.compute, x.class_of, x.n, NULL),
                         GW_OK);
        gw_search_run(&again);
        CHECK(again.line.makespan == 2 * found && memcmp(pick, again.pick, x.n * sizeof *pick) == 0,
              "seed %llu: another unit, another choice", (unsigned long long)seed);
        gw_search_destroy(&s);
        gw_search_destroy(&again);
        instance_free(&x);
    }
}

/* Coding for nothing that saves nothing: no choice beats the cheapest uncompressed one. */
static void no_gain_no_choice(void **state)
{
    (void)state;
    hand h;
    gw_coding coding[TENSORS];
    h = (hand){.front = {.n = 0}};
    const gw_ticks compute[3] = {5, 1, 7};
    for (uint32_t i = 0; i < 3; i++) {
        gw_front_begin(&h.front, &PAPER);
        assert_true(gw_front_offer(&h.front, &(gw_choice){.coding = GW_CODING_NONE},
                                   (gw_timed_op[]){{N, 9 + i}}, 1, 0));
        assert_true(gw_front_offer(&h.front, &(gw_choice){.coding = GW_CODING_GPU, .variety = 1},
                                   (gw_timed_op[]){{G, 0}, {N, 9 + i}, {G, 0}}, 3, 0));
        assert_true(gw_front_seal(&h.front, i, &h.classes[i]));
        assert_int_equal(h.classes[i].n, 1); /* the second asks no less */
        h.class_of[i] = &h.classes[i];
    }
    (void)search(&h, compute, 3, coding);
    assert_int_equal(coding[0] + coding[1] + coding[2], 3 * GW_CODING_NONE);
    release(&h);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "all") == 0) {
        instances = 1000;
        many_instances = 10000;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(figure_2),
                                       cmocka_unit_test(counter_example_18),
                                       cmocka_unit_test(counter_example_37),
                                       cmocka_unit_test(against_everything),
                                       cmocka_unit_test(many),
                                       cmocka_unit_test(no_gain_no_choice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
