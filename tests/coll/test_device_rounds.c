/* One exchange of lowrank in a device's memory beside the same on the host, one rank, where no sum rounds: the same bits, from
 * step to step, with a store and without one. The device is emulated, or the library named as the first argument. */
#define _POSIX_C_SOURCE 200809L
#include "support/check.h"
#include "support/gen.h"

#include "base/numeric.h"
#include "coll/exchange.h"

#include <stdlib.h>
#include <string.h>

static gw_cuda *cuda;
static const gw_cuda_place host = {NULL, 0};

typedef struct lonely {
    gw_exchange *x;
    gw_lane lane;
    gw_cuda_place place;
    gw_workspace workspace;
    float *values;
} lonely;

enum { ROWS = 200, COLS = 192, COUNT = ROWS * COLS };

static void *memory_of(gw_cuda_place place, size_t bytes, int pinned)
{
    gw_why why = {""};
    void *p = NULL;
    if (place.cuda == NULL) {
        assert_int_equal(posix_memalign(&p, 256, bytes + 1), 0);
    } else {
        assert_int_equal(gw_cuda_allocate(place, bytes, pinned, &p, &why), GW_OK);
    }
    return p;
}

/* With a store, what is lost is fed back. */
static lonely open_lonely(gw_cuda_place place, gw_feedback *store)
{
    lonely l = {.place = place};
    gw_exchange_config config = {.ranks = 1,
                                 .ranks_per_node = 1,
                                 .elements = COUNT,
                                 .divisor = 4,
                                 .store = store,
                                 .place = place};
    gw_why why = {""};
    assert_int_equal(gw_params_parse(&config.params, "lowrank:rank=4,cols=192", &why), GW_OK);
    assert_int_equal(gw_route_parse(&config.route, "sum@gpu", &why), GW_OK);
    assert_int_equal(gw_exchange_create(&config, &l.x, &why), GW_OK);
    const size_t bytes = gw_exchange_workspace(l.x), there = gw_exchange_workspace_there(l.x);
    l.workspace = (gw_workspace){memory_of(place, bytes, 1), bytes};
    l.values = memory_of(place, COUNT * sizeof(float), 0);
    if (place.cuda != NULL) {
        l.lane.there = (gw_workspace){memory_of(place, there, 0), there};
        assert_int_equal(gw_cuda_stream_open(place, &l.lane.stream, &why), GW_OK);
        assert_int_equal(gw_cuda_event_open(place, &l.lane.begun, &why), GW_OK);
        assert_int_equal(gw_cuda_event_open(place, &l.lane.ended, &why), GW_OK);
    }
    return l;
}

static void copy_lonely(const lonely *l, void *to, const void *from)
{
    gw_why why = {""};
    if (l->place.cuda == NULL) {
        memcpy(to, from, COUNT * sizeof(float));
        return;
    }
    assert_int_equal(gw_cuda_copy(l->place, l->lane.stream, to, from, COUNT * sizeof(float), &why),
                     GW_OK);
    assert_int_equal(gw_cuda_wait(l->place, l->lane.stream, &why), GW_OK);
}

static void run_lonely(lonely *l, float *values, uint64_t step, int keep)
{
    const gw_stream stream = {.seed = 5, .step = step, .tensor = 1};
    gw_why why = {""};
    int done = 0, moved = 0;
    copy_lonely(l, l->values, values);
    assert_int_equal(gw_exchange_begin(l->x, &l->lane, l->values, &stream, l->workspace, &why),
                     GW_OK);
    while (!done) {
        assert_int_equal(gw_exchange_progress(l->x, &done, &moved, &why), GW_OK);
    }
    assert_true(gw_exchange_stats_of(l->x)->finite);
    assert_int_equal(gw_exchange_stats_of(l->x)->coded_on,
                     l->place.cuda != NULL ? GW_DEVICE_GPU : GW_DEVICE_CPU);
    assert_int_equal(keep ? gw_exchange_commit(l->x, &why) : gw_exchange_rollback(l->x, &why),
                     GW_OK);
    copy_lonely(l, values, l->values);
}

static void close_lonely(lonely *l)
{
    gw_exchange_destroy(l->x, 0);
    if (l->place.cuda == NULL) {
        free(l->workspace.data);
        free(l->values);
        return;
    }
    gw_cuda_free(l->place, l->workspace.data, 1);
    gw_cuda_free(l->place, l->values, 0);
    gw_cuda_free(l->place, l->lane.there.data, 0);
    gw_cuda_event_close(l->place, l->lane.begun);
    gw_cuda_event_close(l->place, l->lane.ended);
    gw_cuda_stream_close(l->place, l->lane.stream);
}

/* One power of two at most in every row and column. */
static void fill(float *x, uint64_t step)
{
    gen g = {step};
    memset(x, 0, COUNT * sizeof *x);
    for (uint64_t row = 0; row < (ROWS < COLS ? ROWS : COLS); row++) {
        x[row * COLS + (row + 3 * step) % COLS] =
            gw_float((117 + gen_below(&g, 20)) << GW_MANT_BITS | gen_below(&g, 2) << 31);
    }
}

static float *numbers(void)
{
    float *x = calloc(COUNT, sizeof *x);
    assert_non_null(x);
    return x;
}

/* Without a residual no sum rounds in any step: a warm start has the host's bits too. The second step is taken back. */
static void without_a_store(void **state)
{
    (void)state;
    lonely sides[2] = {open_lonely(host, NULL), open_lonely((gw_cuda_place){cuda, 0}, NULL)};
    float *const x[2] = {numbers(), numbers()};
    for (uint64_t step = 1; step <= 4; step++) {
        for (int i = 0; i < 2; i++) {
            fill(x[i], step);
            run_lonely(&sides[i], x[i], step, step != 2);
        }
        assert_memory_equal(x[0], x[1], COUNT * sizeof *x[0]);
    }
    for (int i = 0; i < 2; i++) {
        free(x[i]);
        close_lonely(&sides[i]);
    }
}

static gw_feedback_blob save(const gw_feedback *store)
{
    gw_why why = {""};
    size_t bytes = 0, written = 0;
    assert_int_equal(gw_feedback_save_bytes(store, &bytes, &why), GW_OK);
    void *blob = malloc(bytes + 1);
    assert_non_null(blob);
    assert_int_equal(gw_feedback_save(store, blob, bytes, &written, &why), GW_OK);
    return (gw_feedback_blob){blob, written};
}

/* Residual and state are the store's again when the exchange is gone. */
static void the_store_outlives_it(void **state)
{
    (void)state;
    gw_feedback_blob blob[2][2];
    float *x = numbers();
    gw_why why = {""};
    for (int i = 0; i < 2; i++) {
        gw_feedback *store = NULL;
        uint32_t tensor = 0;
        assert_int_equal(gw_feedback_create(GW_FEEDBACK_BESIDE, 0, 1, &store, &why), GW_OK);
        assert_int_equal(gw_feedback_add_tensor(store, "w", COUNT, &tensor, &why), GW_OK);
        lonely l = open_lonely(i == 0 ? host : (gw_cuda_place){cuda, 0}, store);
        fill(x, 1);
        run_lonely(&l, x, 1, 1);
        blob[i][0] = save(store);
        close_lonely(&l);
        void *where_it_was = malloc(sizeof(gw_exchange)); /* most often */
        assert_non_null(where_it_was);
        memset(where_it_was, 0xA5, sizeof(gw_exchange));
        blob[i][1] = save(store);
        free(where_it_was);
        gw_feedback_destroy(store);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(blob[i / 2][i % 2].size, blob[0][0].size);
        assert_memory_equal(blob[i / 2][i % 2].bytes, blob[0][0].bytes, blob[0][0].size);
    }
    for (int i = 0; i < 4; i++) {
        free((void *)(uintptr_t)blob[i / 2][i % 2].bytes);
    }
    free(x);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_store),
        cmocka_unit_test(the_store_outlives_it),
    };
    gw_why why = {""};
    if (gw_cuda_open(argc < 2 ? GW_TESTS_EMULATED : argv[1], &cuda, &why) != GW_OK) {
        print_error("%s\n", why.text);
        return 2;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    gw_cuda_close(cuda);
    return failed;
}
