/* No caller asks why: operations of a step that adapts, or is on auto, fail in turn, with NULL for every reason. The
 * failure is returned on all ranks, and nothing reads a reason that is not there. */
#include "comm/faulty.h"
#include "support/check.h"
#include "support/steps.h"

#include <gradwire/step_adapt.h>
#include <gradwire/step_auto.h>

enum { RANKS = 3, LAYERS = 2, STEPS = 10, FAILS = 1 /* the rank */, FIRST = 8 /* operations */ };

static const steps_layer layers[LAYERS] = {{17 * 400, "topk:density=0.05", "gather", 0},
                                           {17 * 300, "topk:density=0.05", "gather", 0}};

typedef struct unasked {
    const char *spec;
    uint64_t fails_at;     /* operation; UINT64_MAX: none does */
    uint64_t begun, ended; /* operations before begin, and at the end; of rank FAILS */
} unasked;

static gw_status step_once(steps *s, uint64_t step)
{
    gw_status status = GW_OK;
    for (uint32_t l = 0; l < s->n && status == GW_OK; l++) {
        steps_fill(s, l, step + 1);
        const gw_tensor t = {s->gradient[l], s->layers[l].elements, GW_F32};
        status = gw_step_post(s->step, l, &t, NULL);
    }
    return status == GW_OK ? gw_step_wait(s->step, NULL, NULL) : status;
}

static void unasked_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    unasked *u = arg;
    const int fails = rank == FAILS && u->fails_at != UINT64_MAX;
    gw_comm *faulty =
        faulty_wrap(comm, (fault){fails ? FAULT_FAIL : FAULT_NONE, fails ? u->fails_at : 0, 0});
    const gw_step_config config = {.comm = faulty, .lanes = 1, .seed = 5, .timeout = 60};
    steps s;
    (void)all;
    steps_open(&s, &config, layers, LAYERS);
    steps_agree(&s);
    if (rank == FAILS) {
        u->begun = faulty_operations(faulty);
    }
    gw_status status = gw_auto_spec_is(u->spec) ? gw_step_auto_begin_spec(s.step, u->spec, NULL)
                                                : gw_step_adapt_begin_spec(s.step, u->spec, NULL);
    const uint64_t most =
        u->fails_at == UINT64_MAX ? STEPS : 2 * STEPS; /* until it is waited for */
    for (uint64_t step = 0; step < most && status == GW_OK; step++) {
        status = step_once(&s, step);
    }
    RANK_TRUE((status == GW_OK) == (u->fails_at == UINT64_MAX), gw_status_string(status));
    if (rank == FAILS) {
        u->ended = faulty_operations(faulty);
    }
    steps_close(&s);
    faulty->table->close(faulty);
}

/* The first operations, then every `every`th: auto takes a while to begin. */
static void operations_fail(const char *spec, uint64_t every)
{
    const gw_threads_config config = {.ranks = RANKS, .ranks_per_node = 1};
    unasked u = {.spec = spec, .fails_at = UINT64_MAX};
    ranks_run(&config, unasked_main, &u);
    const uint64_t from = u.begun, to = u.ended;
    assert_true(from < to);
    print_message("%s: operations %llu to %llu\n", spec, (unsigned long long)from,
                  (unsigned long long)to);
    for (u.fails_at = from; u.fails_at < to; u.fails_at += u.fails_at - from < FIRST ? 1 : every) {
        ranks_run(&config, unasked_main, &u);
    }
}

static void of_a_step_that_adapts(void **state)
{
    (void)state;
    operations_fail("adapt:period=8/topk:density=0.05", 1);
}

static void of_a_step_on_auto(void **state)
{
    (void)state;
    operations_fail("auto/topk:density=0.05", 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_a_step_that_adapts),
        cmocka_unit_test(of_a_step_on_auto),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
