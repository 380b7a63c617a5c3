/* The timeline's rules: the drawings, what may not change a makespan, what may not lengthen it, and that a replay
 * from the middle is the whole. */
#include "plan/instances.h"
#include "support/check.h"

typedef struct drawing {
    const char *figure;
    uint32_t n;
    gw_timed_tensor tensor[3];
    int64_t makespan;
} drawing;

#define OPS(...)                                                                                   \
    (const gw_timed_op[]){__VA_ARGS__},                                                            \
        sizeof((const gw_timed_op[]){__VA_ARGS__}) / sizeof(gw_timed_op)
#define G GW_TRACK_GPU
#define C GW_TRACK_CPU
#define N GW_TRACK_NIC

static const gw_timeline_rules PAPER = {.cpu_workers = 1, .one_channel = 1};

static int64_t run(const gw_timed_tensor *tensors, size_t n, const gw_timeline_rules *rules)
{
    int64_t makespan = -1;
    gw_why why = {""};
    const gw_status status = gw_timeline_run(tensors, n, rules, &makespan, NULL, NULL, &why);
    CHECK(status == GW_OK, "%s", why.text);
    return makespan;
}

/* Figures 2, 5 and 9 of the paper, in units of its drawings. */
static void drawings(void **state)
{
    (void)state;
    const gw_timed_tensor three = {8, OPS({N, 11})};
    const drawing all[] = {
        {"2a", 3, {three, {8, OPS({N, 9})}, {7, OPS({N, 8})}}, 36},
        {"2b", 3, {three, {8, OPS({N, 9})}, {7, OPS({G, 3}, {N, 3})}}, 31},
        {"2c",
         3,
         {{8, OPS({G, 4}, {N, 3})}, {8, OPS({G, 4}, {N, 3})}, {7, OPS({G, 3}, {N, 3})}},
         37},
        {"2e", 3, {{8, OPS({C, 6}, {N, 3})}, {8, OPS({N, 9})}, {7, OPS({G, 3}, {N, 3})}}, 29},
        {"9a", 3, {{7, OPS({N, 5})}, {9, OPS({N, 12})}, {9, OPS({N, 12})}}, 40},
        {"9c", 3, {{7, OPS({N, 5})}, {9, OPS({N, 12})}, {9, OPS({G, 2}, {N, 4})}}, 32},
        {"5a1", 1, {{3, OPS({N, 12})}}, 15},
        {"5a2", 1, {{3, OPS({G, 1}, {N, 8}, {G, 1})}}, 13},
        {"5a3", 1, {{3, OPS({G, 1}, {N, 2}, {G, 1}, {G, 1}, {N, 2}, {G, 1})}}, 11},
        {"5b2", 2, {{3, OPS({G, 1}, {N, 8}, {G, 1})}, {8, OPS({N, 3})}}, 15},
        {"5b3",
         2,
         {{3, OPS({G, 1}, {N, 2}, {G, 1}, {G, 1}, {N, 2}, {G, 1})}, {8, OPS({N, 3})}},
         17},
        {"5c4", 2, {{3, OPS({N, 7}, {N, 7}, {N, 7})}, {12, OPS({N, 3}, {N, 3}, {N, 3})}}, 33},
        {"5c6",
         2,
         {{3, OPS({G, 1}, {N, 3}, {G, 1}, {G, 1}, {N, 3}, {G, 1}, {N, 7})},
          {12, OPS({N, 3}, {N, 3}, {N, 3})}},
         29},
        {"5d5",
         2,
         {{3, OPS({N, 7}, {G, 1}, {N, 3}, {G, 1}, {N, 7})}, {17, OPS({N, 3}, {N, 3}, {N, 3})}},
         31},
    };
    const gw_timeline_rules urgent = {.cpu_workers = 1, .one_channel = 1, .urgent_last_decode = 1};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const int64_t makespan = run(all[i].tensor, all[i].n, &PAPER);
        CHECK(makespan == all[i].makespan, "figure %s ends at %lld, not %lld", all[i].figure,
              (long long)makespan, (long long)all[i].makespan);
        /* without deferral only 5b3 changes */
        const int64_t expected = strcmp(all[i].figure, "5b3") == 0 ? 18 : all[i].makespan;
        assert_int_equal(run(all[i].tensor, all[i].n, &urgent), expected);
    }
}

/* Links that need the cores that compute: both last longer, as long as both last. */
static void links_share_cores(void **state)
{
    const drawing two[] = {
        {"short", 2, {{10, OPS({N, 8})}, {10, OPS({N, 4})}}, 28},
        {"long", 2, {{10, OPS({N, 100})}, {10, OPS({N, 4})}}, 119},
        {"coding", 2, {{10, OPS({G, 2}, {N, 8}, {G, 2})}, {10, OPS({N, 4})}}, 30}};
    const gw_timeline_rules half = {.cpu_workers = 1, .core_share = {[GW_TRACK_NIC] = 0.5}};
    (void)state;
    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++) {
        const int64_t makespan = run(two[i].tensor, two[i].n, &half);
        CHECK(makespan == two[i].makespan, "%s ends at %lld, not %lld", two[i].figure,
              (long long)makespan, (long long)two[i].makespan);
    }
}

/* What a link begins beside backward waits for its turn, at most until backward is through. */
static void links_wait_beside_backward(void **state)
{
    const gw_timed_tensor two[] = {{10, OPS({N, 3})}, {20, OPS({N, 4})}};
    (void)state;
    for (int64_t busy = 0; busy < 40; busy++) {
        const gw_timeline_rules rules = {.cpu_workers = 1, .busy = {[GW_TRACK_NIC] = busy}};
        const int64_t first = 10 + 3 + (busy < 20 ? busy : 20);
        assert_int_equal(run(two, 2, &rules), (first > 30 ? first : 30) + 4);
    }
}

/* ---- random timelines ---- */

enum { CASES = 2000, MOST = 12 };

typedef struct random_line {
    uint32_t n;
    gw_timed_tensor tensor[MOST];
    gw_timed_op op[MOST][GW_TIMELINE_MAX_OPS];
    gw_timeline_rules rules;
} random_line;

static uint64_t word(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static void draw_line(random_line *x, uint64_t *state, int links_only)
{
    *x = (random_line){.n = 1 + (uint32_t)(word(state) % (MOST - 1)),
                       .rules = {.cpu_workers = 1 + (uint32_t)(word(state) % 3),
                                 .one_channel = (int)(word(state) % 2),
                                 .core_share = {[GW_TRACK_NIC] = (double)(word(state) % 3) * 0.3}}};
    x->rules.busy[GW_TRACK_NIC] = x->rules.core_share[N] > 0 ? (int64_t)(word(state) % 3) : 0;
    for (uint32_t i = 0; i < x->n; i++) {
        x->tensor[i] = (gw_timed_tensor){(int64_t)(word(state) % 10), x->op[i],
                                         (uint32_t)(word(state) % (links_only ? 2 : 8))};
        for (uint32_t k = 0; k < x->tensor[i].n_ops; k++) {
            const gw_track track = links_only ? GW_TRACK_NIC : (gw_track)(word(state) % GW_TRACKS);
            x->op[i][k] = (gw_timed_op){track, 1 + (int64_t)(word(state) % 9)};
        }
    }
}

/* A backward job cut in two, an operation that takes no time, twice the unit. */
static void what_changes_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        uint64_t rng = seed;
        random_line x, y;
        draw_line(&x, &rng, 0);
        const int64_t before = run(x.tensor, x.n, &x.rules);

        y = x;
        const uint32_t at = (uint32_t)(word(&rng) % x.n);
        for (uint32_t i = y.n; i > at; i--) {
            y.tensor[i] = y.tensor[i - 1];
        }
        y.tensor[at] = (gw_timed_tensor){x.tensor[at].compute / 3, NULL, 0};
        y.tensor[at + 1].compute -= x.tensor[at].compute / 3;
        CHECK(run(y.tensor, x.n + 1, &x.rules) == before, "seed %llu: a cut",
              (unsigned long long)seed);

        draw_line(&y, &(uint64_t){seed}, 0);
        const uint32_t place = (uint32_t)(word(&rng) % (x.tensor[at].n_ops + 1));
        for (uint32_t k = x.tensor[at].n_ops; k > place; k--) {
            y.op[at][k] = y.op[at][k - 1];
        }
        y.op[at][place] = (gw_timed_op){(gw_track)(word(&rng) % GW_TRACKS), 0};
        y.tensor[at].n_ops++;
        CHECK(run(y.tensor, y.n, &x.rules) == before, "seed %llu: no time",
              (unsigned long long)seed);

        draw_line(&y, &(uint64_t){seed}, 0);
        for (uint32_t i = 0; i < y.n; i++) {
            y.tensor[i].compute *= 2;
            for (uint32_t k = 0; k < y.tensor[i].n_ops; k++) {
                y.op[i][k].ticks *= 2;
            }
        }
        /* sharing cores rounds to ticks */
        CHECK(x.rules.core_share[N] > 0 || run(y.tensor, y.n, &x.rules) == 2 * before,
              "seed %llu: unit", (unsigned long long)seed);
    }
}

/* Uncompressed tensors: a faster link or an earlier gradient never lengthens the step. */
static void faster_is_not_slower(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        uint64_t rng = seed;
        random_line x;
        draw_line(&x, &rng, 1);
        const int64_t before = run(x.tensor, x.n, &x.rules);
        const uint32_t at = (uint32_t)(word(&rng) % x.n);
        if (word(&rng) % 2 && x.tensor[at].n_ops > 0) {
            for (uint32_t i = 0; i < x.n; i++) { /* the link's rate, so all of them */
                x.op[i][0].ticks -= x.op[i][0].ticks / 3;
            }
        } else {
            x.tensor[at].compute /= 2;
        }
        CHECK(run(x.tensor, x.n, &x.rules) <= before, "seed %llu", (unsigned long long)seed);
    }
}

/* Trying and committing a change from the middle is the same as drawing it all anew. */
static void replays_are_whole(void **state)
{
    (void)state;
    static instance x;
    for (uint64_t seed = 0; seed < 300; seed++) {
        uint64_t rng = seed;
        gw_timeline line, fresh;
        instance_draw(&x, seed);
        const gw_ticks *compute = x.compute;
        assert_int_equal(
            gw_timeline_create(&line, &x.rules, compute, x.n, GW_TIMELINE_MAX_OPS, NULL), GW_OK);
        assert_int_equal(
            gw_timeline_create(&fresh, &x.rules, compute, x.n, GW_TIMELINE_MAX_OPS, NULL), GW_OK);
        for (uint32_t i = 0; i < x.n; i++) {
            line.chain[i] = fresh.chain[i] = &x.all[i][0];
        }
        gw_timeline_commit(&line, 0);
        for (int change = 0; change < 40; change++) {
            const uint32_t at = (uint32_t)(word(&rng) % (x.n > 0 ? x.n : 1));
            const gw_chain *chain = &x.all[at][word(&rng) % INSTANCE_CHOICES];
            const gw_ticks tried = gw_timeline_try(&line, &at, &chain, 1, GW_NEVER);
            fresh.chain[at] = chain;
            gw_timeline_commit(&fresh, 0);
            CHECK(tried == fresh.makespan, "seed %llu: tried %lld, is %lld",
                  (unsigned long long)seed, (long long)tried, (long long)fresh.makespan);
            /* a limit: reached or exceeded is never, below is exact */
            assert_int_equal(gw_timeline_try(&line, &at, &chain, 1, tried), GW_NEVER);
            assert_int_equal(gw_timeline_try(&line, &at, &chain, 1, tried + 1), tried);
            line.chain[at] = chain;
            gw_timeline_commit(&line, at);
            assert_int_equal(line.makespan, fresh.makespan);
            assert_int_equal(line.bubble, fresh.bubble);
        }
        gw_timeline_destroy(&line);
        gw_timeline_destroy(&fresh);
        instance_free(&x);
    }
}

static void intervals_fill_their_tracks(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        uint64_t rng = seed;
        random_line x;
        gw_interval interval[512];
        size_t n = 512;
        int64_t makespan = 0, work[GW_TRACKS] = {0}, last = 0, backward = 0;
        draw_line(&x, &rng, 0);
        x.rules.busy[N] = 0;
        x.rules.core_share[N] = 0; /* backward would last longer than it works */
        assert_int_equal(gw_timeline_run(x.tensor, x.n, &x.rules, &makespan, interval, &n, NULL),
                         GW_OK);
        for (uint32_t i = 0; i < x.n; i++) {
            work[GW_TRACK_GPU] += x.tensor[i].compute;
            for (uint32_t k = 0; k < x.tensor[i].n_ops; k++) {
                const gw_track track = x.op[i][k].track == GW_TRACK_INTRA && x.rules.one_channel
                                           ? GW_TRACK_NIC
                                           : x.op[i][k].track;
                work[track] += x.op[i][k].ticks;
            }
        }
        for (size_t i = 0; i < n; i++) {
            work[interval[i].track] -= interval[i].end - interval[i].begin;
            last = interval[i].end > last ? interval[i].end : last;
            backward += interval[i].op == UINT32_MAX;
            for (size_t k = 0; k < i; k++) {
                const int same = interval[k].track == interval[i].track &&
                                 interval[k].worker == interval[i].worker;
                CHECK(!same || interval[k].end <= interval[i].begin, "seed %llu: overlap",
                      (unsigned long long)seed);
            }
        }
        assert_int_equal(last, makespan);
        for (uint32_t i = 0; i < x.n; i++) {
            backward -= x.tensor[i].compute > 0; /* each at least once */
        }
        assert_true(backward >= 0);
        for (int track = 0; track < GW_TRACKS; track++) {
            CHECK(work[track] == 0, "seed %llu, track %d: %lld left", (unsigned long long)seed,
                  track, (long long)work[track]);
        }
    }
}

static void refused(void **state)
{
    (void)state;
    int64_t makespan = 7;
    gw_why why;
    const gw_timed_tensor negative = {-1, NULL, 0}, endless = {INT64_MAX, NULL, 0};
    const gw_timed_tensor strange = {1, OPS({(gw_track)9, 1})}, back = {1, OPS({N, -1})};
    const gw_timeline_rules none = {0};
    const struct {
        const gw_timed_tensor *tensor;
        size_t n;
        const gw_timeline_rules *rules;
        const char *words;
    } cases[] = {{&negative, 1, &PAPER, "tensor 0: compute is negative"},
                 {&endless, 1, &PAPER, "tensor 0: compute is too long"},
                 {&strange, 1, &PAPER, "tensor 0, operation 0: no such track"},
                 {&back, 1, &PAPER, "tensor 0, operation 0: negative time"},
                 {&back, 0, &PAPER, "0 tensors: 1 to 65536"},
                 {&(gw_timed_tensor){1, NULL, 0}, 1, &none, "0 CPU workers: 1 to 16"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(gw_timeline_run(cases[i].tensor, cases[i].n, cases[i].rules, &makespan,
                                         NULL, NULL, &why),
                         GW_ERR_RANGE);
        assert_string_equal(why.text, cases[i].words);
        assert_int_equal(makespan, 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(drawings),
                                       cmocka_unit_test(links_share_cores),
                                       cmocka_unit_test(links_wait_beside_backward),
                                       cmocka_unit_test(what_changes_nothing),
                                       cmocka_unit_test(faster_is_not_slower),
                                       cmocka_unit_test(replays_are_whole),
                                       cmocka_unit_test(intervals_fill_their_tracks),
                                       cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
