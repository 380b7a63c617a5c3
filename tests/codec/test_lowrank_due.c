/* What an exchange of low rank leaves due of its residual: taken off by the next one, or by whoever asks, to the same bits. */
#include "support/check.h"
#include "support/gen.h"

/* One rank's exchanges, one after the other, and all that is kept in between. */
typedef struct lone {
    gw_params params;
    gw_dtype dtype;
    gw_exec exec;
    size_t count, remembered, owed;
    void *gradient;
    float *residual[2], *memory[2], *due[2], *sum, *out;
    int owes;
    uint64_t step;
} lone;

static void *need(size_t bytes)
{
    void *data = calloc(bytes + 1, 1);
    assert_non_null(data);
    return data;
}

static lone lone_new(const char *spec, size_t count, gw_dtype dtype, gw_isa isa)
{
    lone l = {.params = params_of(spec), .dtype = dtype, .count = count, .exec = {.isa = isa}};
    assert_int_equal(gw_rounds_workspace(&l.params, count, &l.exec.workspace.size), GW_OK);
    assert_int_equal(gw_rounds_state(&l.params, count, &l.remembered), GW_OK);
    assert_int_equal(gw_rounds_due(&l.params, count, &l.owed), GW_OK);
    l.exec.workspace.data = need(l.exec.workspace.size);
    l.gradient = need(4 * count);
    l.sum = need(4 * count);
    l.out = need(4 * count);
    for (int i = 0; i < 2; i++) {
        l.residual[i] = need(4 * count);
        l.memory[i] = need(4 * l.remembered);
        l.due[i] = need(4 * l.owed);
    }
    return l;
}

static void lone_free(lone *l)
{
    void *const all[] = {
        l->exec.workspace.data, l->gradient,  l->sum,       l->out,    l->residual[0],
        l->residual[1],         l->memory[0], l->memory[1], l->due[0], l->due[1]};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

static void turn_over(float *pair[2])
{
    float *const first = pair[0];
    pair[0] = pair[1];
    pair[1] = first;
}

static void lone_exchange(lone *l, int leaves_due, int keep)
{
    const gw_stream stream = {.seed = 9, .step = l->step};
    const gw_tensor in = {l->gradient, l->count, l->dtype};
    gw_tensor out = {l->out, l->count, GW_F32};
    const gw_rounds x = {.params = &l->params,
                         .exec = &l->exec,
                         .stream = &stream,
                         .in = &in,
                         .residual = l->residual[0],
                         .residual_after = l->residual[1],
                         .due = l->owes ? l->due[0] : NULL,
                         .due_after = leaves_due ? l->due[1] : NULL,
                         .state = l->memory[0],
                         .state_after = l->memory[1]};
    size_t n = 0;
    for (unsigned i = 0; gw_rounds_elements(&l->params, l->count, i, &n) == GW_OK && n != 0; i++) {
        assert_int_equal(gw_rounds_make(&x, i, l->sum, NULL), GW_OK);
        assert_int_equal(gw_rounds_take(&x, i, l->sum), GW_OK);
    }
    assert_int_equal(gw_rounds_decode(&x, l->sum, GW_SET, &out), GW_OK);
    if (keep) {
        turn_over(l->residual);
        turn_over(l->memory);
        turn_over(l->due);
        l->owes = leaves_due && l->owed != 0;
        l->step++;
    }
}

/* Exchanges that leave something due beside exchanges that do not, some taken back, some settled in between: the same bits, whatever
 * the instruction set. */
static void compare_due(const char *spec, size_t count, gw_dtype dtype, gw_isa isa)
{
    lone whole = lone_new(spec, count, dtype, GW_ISA_SCALAR),
         due = lone_new(spec, count, dtype, isa);
    gen g = {31};
    for (int step = 0; step < 7; step++) {
        gen_fill(&g, GEN_NORMAL, dtype, whole.gradient, count);
        memcpy(due.gradient, whole.gradient, count * gw_dtype_size(dtype));
        lone_exchange(&whole, 0, step != 3);
        lone_exchange(&due, step != 5, step != 3);
        assert_memory_equal(whole.out, due.out, count * sizeof(float));
        if ((step == 2 || step == 6) && due.owes) {
            assert_int_equal(
                gw_rounds_settle(&due.params, &due.exec, due.due[0], due.residual[0], due.count),
                GW_OK);
            due.owes = 0;
        }
        if (!due.owes) {
            assert_memory_equal(whole.residual[0], due.residual[0], count * sizeof(float));
        }
    }
    assert_true(due.owed != 0 || strstr(spec, "rank=5") != NULL);
    lone_free(&whole);
    lone_free(&due);
}

static void what_is_left_due_changes_no_bit(void **state)
{
    (void)state;
    static const char *const specs[] = {"lowrank:rank=1,cols=80",   "lowrank:rank=2,cols=77",
                                        "lowrank:rank=3,cols=64",   "lowrank:rank=4,cols=31",
                                        "lowrank:rank=4,cols=1030", "lowrank:rank=5,cols=80"};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        for (int isa = GW_ISA_SCALAR; isa < GW_ISA_COUNT; isa++) {
            if (gw_isa_runs_here((gw_isa)isa)) {
                compare_due(specs[i], 9000, GW_F32, (gw_isa)isa);
                compare_due(specs[i], 9000, GW_BF16, (gw_isa)isa);
            }
        }
    }
    compare_due("lowrank:rank=4,cols=1040", (1 << 20) + 111, GW_F32,
                GW_ISA_AUTO); /* past the cache */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_due_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
