/* Law 8: no step allocates or frees anything, from the first one after an agreement on. Every codec on every named route
 * that it fits, in one step object; on threads, and on messages that a host carries. */
#define _POSIX_C_SOURCE 200809L
#include "comm/hosts.h"
#include "support/allocations.h"
#include "support/check.h"
#include "support/gen.h"
#include "support/ranks.h"

#include "codec/specs.h"

#include <gradwire/step.h>

#include <math.h>
#include <pthread.h>

static const char *const route_names[] = {
    "dense",    "gather",       "sra",       "star", "hier-dense", "hier-gather",
    "hier-sra", "hier2-gather", "hier2-sra", "sum",  "hier-sum",
};
enum { ROUTES = sizeof route_names / sizeof route_names[0], RANKS = 4, STEPS = 4, CHECKED = 160 };
enum { MOST = ALL_SPECS * ROUTES + 16, SMALL = 1020, LARGE = 300000, TIMELINE = 1 << 16 };

/* What a step is made as. */
typedef struct variant {
    const char *name;
    int own_thread;
    unsigned threads;
    uint64_t fuse_below;
    uint64_t piece;
    int all_or_nothing;
} variant;

static const variant variants[] = {
    {"in wait", 0, 1, 0, 0, 0},
    {"with a thread, a pool, small layers together", 1, 2, 64, 40000, 0},
    {"all or nothing", 1, 1, 64, 0, 1},
};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

typedef struct job {
    const variant *variant;
    pthread_barrier_t barrier;
    uint32_t planned[RANKS];
    uint64_t seen;
    char where[300];
} job;

typedef struct end {
    gw_step *step;
    float *numbers; /* LARGE of them: what gradients begin with */
    gw_step_interval *timeline;
    void *gradient[MOST];
    uint64_t elements[MOST];
    gw_dtype dtype[MOST];
    uint32_t groups[MOST], buckets[MOST];
    uint32_t n, rank;
} end;

static void add(end *e, uint64_t elements, gw_dtype dtype, const gw_params *params,
                const gw_route *route, uint32_t group)
{
    char name[32];
    uint32_t layer = 0;
    gw_why why = {""};
    const uint64_t dims[2] = {elements / 17, 17};
    const int matrix = elements != 0 && elements % 17 == 0;
    RANK_TRUE(e->n < MOST, "too many layers");
    (void)snprintf(name, sizeof name, "layer.%u", e->n);
    RANK_OK(
        gw_step_add(e->step, name, matrix ? dims : &elements, matrix ? 2 : 1, dtype, &layer, &why),
        why.text);
    RANK_OK(gw_step_plan(e->step, layer, params, route, &why), why.text);
    e->elements[e->n] = elements;
    e->dtype[e->n] = dtype;
    e->groups[e->n] = group;
    e->gradient[e->n] = malloc(elements * sizeof(float) + 1);
    RANK_TRUE(e->gradient[e->n] != NULL, "no memory");
    e->n++;
}

static void add_by_words(end *e, uint64_t elements, gw_dtype dtype, const char *spec,
                         const char *words, uint32_t group)
{
    gw_params params;
    gw_route route;
    gw_why why = {""};
    RANK_OK(gw_params_parse(&params, spec, &why), why.text);
    RANK_OK(gw_route_parse(&route, words, &why), why.text);
    add(e, elements, dtype, &params, &route, group);
}

/* Every codec on every route, then layers of other kinds: cut, fused, empty, together, of other dtypes. */
static uint32_t add_all(end *e)
{
    uint32_t pairs = 0;
    for (size_t i = 0; i < ALL_SPECS; i++) {
        for (size_t r = 0; r < ROUTES; r++) {
            gw_params params;
            gw_route route;
            gw_why why = {""};
            RANK_OK(gw_params_parse(&params, all_specs[i], &why), why.text);
            RANK_OK(gw_route_parse(&route, route_names[r], &why), why.text);
            if (gw_route_fits(&route, &params, NULL) == GW_OK) {
                add(e, SMALL, GW_F32, &params, &route, 0);
                pairs++;
            }
        }
    }
    add_by_words(e, LARGE, GW_F32, "dither:bits=4", "sra", 0);
    add_by_words(e, LARGE, GW_F32, "cast:to=f32", "dense", 0);
    add_by_words(e, LARGE, GW_BF16, "adacomp:bin=50", "hier-gather", 0);
    add_by_words(e, SMALL, GW_F16, "natural:bits=8", "star", 0);
    add_by_words(e, 3, GW_F32, "cast:to=f32", "dense", 0);
    add_by_words(e, 5, GW_BF16, "cast:to=f32", "dense", 0);
    add_by_words(e, 0, GW_F32, "natural:bits=8", "gather", 0);
    for (int i = 0; i < 3; i++) {
        add_by_words(e, SMALL, GW_F32, "topk:density=0.01", "gather", 7);
    }
    for (int i = 0; i < 6; i++) { /* one bucket that is cut, one with feedback */
        add_by_words(e, i < 3 ? SMALL : LARGE / 6, GW_F32,
                     i < 3 ? "topk:density=0.01" : "natural:bits=8", i < 3 ? "gather" : "sra", 0);
        e->buckets[e->n - 1] = i < 3 ? 1 : 2;
    }
    return pairs;
}

/* A NaN in the last but one step, on one rank, in every third layer. */
static void one_step(end *e, uint64_t number)
{
    gw_why why = {""};
    gw_step_result result;
    gw_layer_stats stats;
    size_t intervals = 0;
    const int spoilt = number == STEPS - 2;
    for (uint32_t i = 0; i < e->n; i++) {
        const size_t size = e->dtype[i] == GW_F32 ? sizeof(float) : sizeof(uint16_t);
        memcpy(e->gradient[i], e->numbers, e->elements[i] * size);
        if (spoilt && e->rank == 1 && i % 3 == 0 && e->elements[i] != 0) {
            memset(e->gradient[i], 0xff, size);
        }
        const gw_tensor t = {e->gradient[i], e->elements[i], e->dtype[i]};
        RANK_OK(gw_step_post(e->step, i, &t, &why), why.text);
    }
    RANK_OK(gw_step_wait(e->step, &result, &why), why.text);
    RANK_TRUE((result.non_finite != 0) == spoilt, "a NaN did not arrive, or nobody sent it");
    RANK_OK(gw_step_stats(e->step, 0, &stats), "no statistics");
    RANK_OK(gw_step_timeline(e->step, e->timeline, TIMELINE, &intervals), "no timeline");
}

static void rank_main(uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    static end ends[RANKS];
    end *e = &ends[rank];
    gen g = {rank + 1};
    gw_why why = {""};
    const gw_step_config config = {.comm = comm,
                                   .seed = 7,
                                   .ranks_per_node = 2,
                                   .own_thread = j->variant->own_thread,
                                   .threads = j->variant->threads,
                                   .fuse_below = j->variant->fuse_below,
                                   .piece = j->variant->piece,
                                   .all_or_nothing = j->variant->all_or_nothing};
    *e = (end){.rank = rank,
               .numbers = malloc(LARGE * sizeof *e->numbers),
               .timeline = malloc(TIMELINE * sizeof *e->timeline)};
    RANK_TRUE(e->numbers != NULL && e->timeline != NULL, "no memory");
    for (size_t i = 0; i < LARGE; i++) { /* also as halves of numbers: finite */
        const uint16_t half = (uint16_t)((gen_u64(&g) & 0x8fff) | 0x3000);
        const uint32_t bits = (uint32_t)half << 16 | half;
        memcpy(&e->numbers[i], &bits, sizeof bits);
    }
    RANK_OK(gw_step_create(&config, &e->step, &why), why.text);
    j->planned[rank] = add_all(e);
    RANK_OK(gw_step_ready_together(e->step, e->groups, e->n, &why), why.text);
    RANK_OK(gw_step_buckets(e->step, e->buckets, e->n, &why), why.text);
    RANK_OK(gw_step_agree(e->step, &why), why.text);
    (void)pthread_barrier_wait(&j->barrier);
    if (rank == 0) {
        allocations_watch(1);
    }
    (void)pthread_barrier_wait(&j->barrier);
    for (uint64_t step = 0; step < STEPS; step++) {
        one_step(e, step);
    }
    (void)pthread_barrier_wait(&j->barrier);
    if (rank == 0) {
        allocations_watch(0);
        j->seen = allocations_seen();
        (void)snprintf(j->where, sizeof j->where, "%s", allocations_where());
    }
    (void)pthread_barrier_wait(&j->barrier);
    gw_step_destroy(e->step);
    for (uint32_t i = 0; i < e->n; i++) {
        free(e->gradient[i]);
    }
    free(e->numbers);
    free(e->timeline);
}

static void thread_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    rank_main(rank, comm, arg);
}

static void check(const char *engine)
{
    for (size_t v = 0; v < VARIANTS; v++) {
        job j = {.variant = &variants[v]};
        assert_int_equal(pthread_barrier_init(&j.barrier, NULL, RANKS), 0);
        if (strcmp(engine, "threads") == 0) {
            ranks_run(&(gw_threads_config){.ranks = RANKS, .ranks_per_node = 2}, thread_main, &j);
        } else {
            hosts_run(RANKS, rank_main, &j);
        }
        (void)pthread_barrier_destroy(&j.barrier);
        CHECK(j.planned[0] >= CHECKED, "only %u codecs on routes", j.planned[0]);
        CHECK(j.seen == 0, "%s, %s: %llu allocations in %d steps, the first: %s", engine,
              variants[v].name, (unsigned long long)j.seen, STEPS, j.where);
        print_message("%s, %s: %u codecs on routes, %d steps, no allocation\n", engine,
                      variants[v].name, j.planned[0], STEPS);
    }
}

static void on_threads(void **state)
{
    (void)state;
    check("threads");
}

static void on_hosts(void **state)
{
    (void)state;
    check("hosted");
}

/* What is allocated, and freed, is counted. */
static void control(void **state)
{
    (void)state;
    void *(*volatile allocate)(size_t) = malloc; /* no compiler leaves it out */
    allocations_watch(1);
    free(allocate(100));
    allocations_watch(0);
    assert_int_equal(allocations_seen(), 2);
    CHECK(strstr(allocations_where(), "addr2line") != NULL, "%s", allocations_where());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control),
        cmocka_unit_test(on_threads),
        cmocka_unit_test(on_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
