/* What a choice during training keeps to: budgets over time, a floor, and the line of text that says so. */
#include "control/adapting.h"

/* ---- the budget over time ---- */

static void budget_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    const gw_params milder = parsed("dither:bits=6");
    const gw_step_alpha schedule[] = {{PERIOD, 3}};
    double budgets[4] = {0};
    (void)all;
    for (int turn = 0; turn < 4; turn++) { /* all critical, none, another default, a schedule */
        const gw_step_adapt_config more = {.milder = turn < 2 ? &milder : NULL,
                                           .eta = turn == 0 ? 0 : (double)INFINITY,
                                           .schedule = turn == 3 ? schedule : NULL,
                                           .n_schedule = turn == 3};
        const job other = {.layers = j->layers,
                           .family = j->family,
                           .uniform = turn == 2 ? "dither:bits=6" : j->uniform,
                           .alpha = 1};
        begin(s, &other, comm, &more);
        for (uint64_t step = 0; step < PERIOD + BOUND; step++) {
            take_step(j, s, step);
            budgets[turn] = step == BOUND ? last(s, 1).budget : budgets[turn];
        }
        if (turn == 3) {
            RANK_TRUE(last(s, 2).alpha == 3 && fabs(last(s, 2).budget / budgets[3] - 3) < 1e-12,
                      "not the schedule's budget");
        }
        steps_close(s);
    }
    RANK_TRUE(budgets[0] == budgets[2] && budgets[1] == budgets[3] && budgets[0] < budgets[1],
              "not the budget of critical layers");
}

static void budgets_follow_their_policy(void **state)
{
    (void)state;
    run_with(dithers, "dither:bits=4", "dither:bits=4", budget_main, 1);
}

/* Without a floor some layer goes below half of its default's bytes; with one none does, and there is still something
 * to choose. */
static void floor_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    (void)all;
    for (int turn = 0; turn < 2; turn++) {
        const gw_step_adapt_config more = {.floor = turn == 0 ? 0 : 0.5};
        uint32_t below = 0;
        begin(s, j, comm, &more);
        for (uint64_t step = 0; step <= BOUND; step++) {
            take_step(j, s, step);
        }
        const gw_step_decision d = last(s, 1);
        RANK_TRUE(d.changed != 0 && d.bytes < d.uniform_bytes, "nothing was chosen");
        for (uint32_t i = 0; i < gw_control_of(s->step)->n; i++) {
            const gw_control_layer *l = &gw_control_of(s->step)->layers[i];
            below += 2 * l->bytes[l->level] < l->bytes[l->uniform];
        }
        RANK_TRUE((below != 0) == (turn == 0), "not the floor's levels");
        steps_close(s);
    }
}

static void no_layer_goes_below_the_floor(void **state)
{
    (void)state;
    run(topks, "topk:density=0.05", "topk:density=0.05", floor_main);
}

/* A line of text is the numbers it stands for: the same hash of all that a choice hangs on. */
static void spec_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    const job *j = arg;
    const job other = {
        .layers = j->layers, .family = j->family, .uniform = j->uniform, .alpha = 1.5};
    const gw_step_adapt_config more = {
        .floor = 0.25, .metric = GW_ADAPT_RELATIVE, .least_gain = 0.5};
    const gw_step_config config = {.comm = comm};
    steps s;
    gw_why why = {""};
    (void)all;
    (void)rank;
    begin(&s, &other, comm, &more);
    const uint64_t hash = gw_control_of(s.step)->hash;
    steps_close(&s);
    steps_open(&s, &config, j->layers, LAYERS);
    steps_agree(&s);
    RANK_OK(gw_step_adapt_begin_spec(s.step,
                                     "adapt:period=8,alpha=1.5,gain=0.5,floor=0.25,"
                                     "metric=relative/topk:density=0.05",
                                     &why),
            why.text);
    RANK_TRUE(gw_control_of(s.step)->hash == hash, "other settings than the text's");
    steps_close(&s);
}

static void text_is_a_config(void **state)
{
    gw_adapt_spec spec;
    gw_why why = {""};
    (void)state;
    run(topks, "topk:density=0.05", "topk:density=0.05", spec_main);
    assert_int_equal(gw_adapt_spec_parse("adapt/dither:bits=4/topk", &spec, &why), GW_OK);
    assert_string_equal(spec.uniform, "dither:bits=4");
    assert_true(spec.period == 100 && spec.alpha == 1 && spec.gain == 0.02 && spec.floor == 0.75 &&
                spec.metric == GW_ADAPT_NORMS && spec.n_families == 2);
    static const char *const wrong[] = {"adapt",
                                        "adapt:/",
                                        "dither:bits=4",
                                        "adapt:floor=2/dither:bits=4",
                                        "adapt:floor=/dither:bits=4",
                                        "adapt:metric=best/dither:bits=4",
                                        "adapt/dither:bits=4/dither:bits=5",
                                        "adapt/sign",
                                        "adapt:period=3/dither:bits=4"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        why.text[0] = '\0';
        const gw_status status = gw_adapt_spec_parse(wrong[i], &spec, &why);
        CHECK(status != GW_OK && why.text[0] != '\0', "'%s' was taken", wrong[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(budgets_follow_their_policy),
        cmocka_unit_test(no_layer_goes_below_the_floor),
        cmocka_unit_test(text_is_a_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
