/* An allocation that fails anywhere in the life of a step, on either of two ranks: the rank gets GW_ERR_MEMORY with a
 * reason, the other one that or word that its peer is gone, nobody waits for the timeout, and nothing leaks. */
#define _POSIX_C_SOURCE 200809L
#include "support/allocations.h"
#include "support/check.h"
#include "support/gen.h"

#include <gradwire/step_adapt.h>
#include <gradwire/threads.h>

#include <pthread.h>

enum { RANKS = 2, LAYERS = 10, ELEMENTS = 17 * 20, CHECKPOINT = 1 << 16, PATIENCE = 60 };

typedef struct layer {
    uint64_t elements;
    const char *spec, *route;
    gw_dtype dtype;
    uint32_t group;
} layer;

static const layer layers[LAYERS] = {
    {ELEMENTS, "cast:to=f32", "dense", GW_F32, 0},
    {ELEMENTS, "topk:density=0.05", "gather", GW_F32, 0},
#ifdef GW_TESTS_NO_BLAS
    {ELEMENTS, "randk:density=0.1", "sum", GW_F32, 0},
#else
    {ELEMENTS, "lowrank:rank=2", "sum", GW_F32, 0},
#endif
    {ELEMENTS, "adacomp:bin=50", "hier-gather", GW_BF16, 0},
    {ELEMENTS, "dither:bits=4", "sra", GW_F32, 3},
    {ELEMENTS, "dither:bits=4", "sra", GW_F32, 3},
    {5, "cast:to=f32", "dense", GW_F32, 0},
    {7, "cast:to=f32", "dense", GW_F32, 0},
    {ELEMENTS, "topk:density=0.1", "gather", GW_F32, 0}, /* these two are one bucket */
    {ELEMENTS, "topk:density=0.1", "gather", GW_F32, 0},
};

typedef struct job job;

typedef struct end {
    job *of;
    gw_comm *comm;
    uint32_t rank;
    gw_step *step;
    gw_status status;
    gw_why why;
    float gradient[LAYERS][ELEMENTS];
    unsigned char checkpoint[CHECKPOINT];
    size_t bytes;
} end;

typedef gw_status life(end *e);

struct job {
    life *live;
    end ends[RANKS];
};

/* Ends a life at the first failure; the reason is in e->why. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        const gw_status status_ = (call);                                                          \
        if (status_ != GW_OK) {                                                                    \
            return status_;                                                                        \
        }                                                                                          \
    } while (0)

static gw_status open_step(end *e)
{
    const gw_step_config config = {.comm = e->comm,
                                   .seed = 3,
                                   .lanes = 2,
                                   .threads = 2,
                                   .ranks_per_node = RANKS,
                                   .fuse_below = 8,
                                   .timeout = PATIENCE,
                                   .own_thread = 1};
    uint32_t groups[LAYERS], buckets[LAYERS] = {0};
    TRY(gw_step_create(&config, &e->step, &e->why));
    for (uint32_t i = 0; i < LAYERS; i++) {
        const layer *l = &layers[i];
        const uint64_t dims[2] = {l->elements / 17, 17};
        const int matrix = l->elements % 17 == 0;
        char name[16];
        uint32_t number = 0;
        gw_params params;
        gw_route route;
        (void)snprintf(name, sizeof name, "layer.%u", i);
        TRY(gw_step_add(e->step, name, matrix ? dims : &l->elements, matrix ? 2 : 1, l->dtype,
                        &number, &e->why));
        TRY(gw_params_parse(&params, l->spec, &e->why));
        TRY(gw_route_parse(&route, l->route, &e->why));
        TRY(gw_step_plan(e->step, number, &params, &route, &e->why));
        groups[i] = l->group;
    }
    buckets[LAYERS - 2] = buckets[LAYERS - 1] = 1;
    TRY(gw_step_buckets(e->step, buckets, LAYERS, &e->why));
    return gw_step_ready_together(e->step, groups, LAYERS, &e->why);
}

static gw_status one_step(end *e, uint64_t number)
{
    gw_step_result result;
    gen g = {number * 10 + e->rank};
    for (uint32_t i = 0; i < LAYERS; i++) {
        for (uint32_t k = 0; k < ELEMENTS; k++) {
            const uint32_t half = (uint32_t)(gen_u64(&g) & 0x8fff) | 0x3000;
            const uint32_t bits = half << 16 | half;
            memcpy(&e->gradient[i][k], &bits, sizeof bits);
        }
        const gw_tensor t = {e->gradient[i], layers[i].elements, layers[i].dtype};
        TRY(gw_step_post(e->step, i, &t, &e->why));
    }
    return gw_step_wait(e->step, &result, &e->why);
}

static gw_status save(end *e)
{
    return gw_feedback_save(gw_step_feedback(e->step), e->checkpoint, CHECKPOINT, &e->bytes,
                            &e->why);
}

/* Create, agree, step, another plan, save. */
static gw_status first_life(end *e)
{
    const uint32_t order[LAYERS] = {1, 0, 2, 3, 4, 5, 7, 6, 9, 8};
    gw_params params;
    gw_route route;
    TRY(open_step(e));
    TRY(gw_step_agree(e->step, &e->why));
    TRY(one_step(e, 0));
    TRY(gw_params_parse(&params, "sign:bucket=64", &e->why));
    TRY(gw_route_parse(&route, "sra", &e->why));
    TRY(gw_step_plan(e->step, 1, &params, &route, &e->why));
    TRY(gw_step_order(e->step, order, LAYERS, &e->why));
    TRY(gw_step_agree(e->step, &e->why));
    TRY(one_step(e, 1));
    return save(e);
}

/* Goes on from what first_life has left in e->checkpoint. */
static gw_status second_life(end *e)
{
    gw_feedback_told told;
    const gw_feedback_blob blob = {e->checkpoint, e->bytes};
    TRY(open_step(e));
    TRY(gw_step_agree(e->step, &e->why));
    TRY(gw_feedback_load(gw_step_feedback(e->step), RANKS, &blob, 1, &told, &e->why));
    return one_step(e, 2);
}

/* Levels are chosen after every fourth step. */
static gw_status adapting_life(end *e)
{
    TRY(open_step(e));
    TRY(gw_step_agree(e->step, &e->why));
    TRY(gw_step_adapt_begin_spec(e->step, "adapt:period=4,gain=0/dither:bits=4/topk:density=0.05",
                                 &e->why));
    for (uint64_t number = 0; number < 10; number++) {
        TRY(one_step(e, number));
    }
    TRY(gw_step_adapt_save(e->step, e->checkpoint, CHECKPOINT, &e->bytes, &e->why));
    return GW_OK;
}

static void *rank_main(void *arg)
{
    end *e = arg;
    e->step = NULL;
    e->why = (gw_why){""};
    e->status = e->of->live(e);
    gw_step_destroy(e->step);
    e->comm->table->close(e->comm);
    return NULL;
}

/* The worst of the ranks': a failure that is not said to be one of memory, else GW_ERR_MEMORY if any is. */
static gw_status all_ranks(void *arg, gw_why *why)
{
    job *j = arg;
    gw_threads *world = NULL;
    pthread_t threads[RANKS];
    gw_status status = gw_threads_create(
        &(gw_threads_config){.ranks = RANKS, .ranks_per_node = RANKS}, &world, why);
    if (status != GW_OK) {
        return status;
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        end *e = &j->ends[i];
        e->of = j;
        e->rank = i;
        assert_int_equal(gw_threads_comm(world, i, &e->comm), GW_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, rank_main, e), 0);
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    gw_threads_destroy(world);
    for (uint32_t i = 0; i < RANKS; i++) {
        const end *e = &j->ends[i];
        if (e->status != GW_OK) {
            CHECK(e->status == GW_ERR_MEMORY || e->status == GW_ERR_PEER,
                  "%s: rank %u: status %d, %s", allocations_where(), i, (int)e->status,
                  e->why.text);
            CHECK(e->why.text[0] != '\0', "%s: rank %u: status %d without a reason",
                  allocations_where(), i, (int)e->status);
        }
        if (e->status == GW_ERR_MEMORY || status == GW_OK) {
            status = e->status;
            *why = e->why;
        }
    }
    return status;
}

static job scene; /* too large for a stack */

static void a_step_is_made_and_saved(void **state)
{
    (void)state;
    scene.live = first_life;
    const uint64_t n = allocations_try("a step", all_ranks, &scene);
    print_message("%llu allocations\n", (unsigned long long)n);
    assert_true(n > 200);
}

static void a_step_goes_on(void **state)
{
    (void)state;
    gw_why why = {""};
    scene.live = first_life;
    CHECK(all_ranks(&scene, &why) == GW_OK, "%s", why.text);
    scene.live = second_life;
    const uint64_t n = allocations_try("a load", all_ranks, &scene);
    print_message("%llu allocations\n", (unsigned long long)n);
    assert_true(n > 200);
}

static void levels_are_chosen(void **state)
{
    (void)state;
    scene.live = adapting_life;
    const uint64_t n = allocations_try("adapt", all_ranks, &scene);
    print_message("%llu allocations\n", (unsigned long long)n);
    assert_true(n > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_made_and_saved),
        cmocka_unit_test(a_step_goes_on),
        cmocka_unit_test(levels_are_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
