/* Levels chosen during training: every rank the same, nothing lost on the way, and a rule for what goes wrong. */
#include "control/adapting.h"
#include "control/stored_state.h"

static const steps_layer ranks_of[] = {{17 * 400, "lowrank:rank=4", "sum", 0},
                                       {17 * 60, "lowrank:rank=4", "sum", 0},
                                       {17 * 120, "lowrank:rank=4", "sum", 0},
                                       {500, NULL, NULL, 0},
                                       {17 * 80, "lowrank:rank=4", "sum", 0}};

static uint32_t level_of(const steps *s, uint32_t place)
{
    return gw_control_of(s->step)->layers[place].level;
}

/* ---- every rank the same, also right after a switch ---- */

static void same_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    begin(s, j, comm, NULL);
    for (uint64_t step = 0; step < 2 * PERIOD + 2; step++) {
        take_step(j, s, step);
        steps_equal_or_die(all, j->ends, rank);
        if (step == BOUND - 1) {
            j->said[rank] = last(s, 1);
        }
        if (step == BOUND) { /* the first step that goes by it */
            uint64_t sent = 0;
            const gw_step_decision d = j->said[rank];
            for (uint32_t l = 0; l < LAYERS; l++) {
                gw_layer_stats stats;
                RANK_OK(gw_step_stats(s->step, l, &stats), "stats");
                sent += l != 3 ? stats.bytes_sent[0] + stats.bytes_sent[1] : 0;
            }
            if (rank == 0 && sent != d.bytes) {
                print_error("%llu bytes, not %llu\n", (unsigned long long)sent,
                            (unsigned long long)d.bytes);
            }
            RANK_TRUE(rank != 0 || sent == d.bytes, "other bytes than it said");
            RANK_TRUE(d.outcome == GW_STEP_ADAPT_SWITCHED && d.changed != 0, "nothing was chosen");
            RANK_TRUE(d.step == 0 && d.bound_at == BOUND, "other steps than the timetable's");
            RANK_TRUE(d.bytes < d.uniform_bytes && d.bytes_before == d.uniform_bytes &&
                          d.lower_bound <= d.bytes && d.lower_bound > 0,
                      "not fewer bytes");
            RANK_TRUE(d.error <= d.budget && d.error > 0, "above the budget");
        }
    }
    RANK_TRUE(last(s, 2).step == PERIOD, "no second decision");
    RANK_TRUE(j->said[rank].bytes == j->said[0].bytes && j->said[rank].error == j->said[0].error,
              "ranks tell it differently");
    steps_close(s);
}

static void ranks_choose_the_same(void **state)
{
    (void)state;
    run(dithers, "dither:bits=4", "dither:bits=4", same_main);
    run(topks, "topk:density=0.05", "topk:density=0.05", same_main);
    run(ranks_of, "lowrank:rank=4", "lowrank:rank=4", same_main);
    run(topks, "dither:bits=4", "topk:density=0.05", same_main);
}

/* ---- nothing is lost ---- */

/* Σ sent + residuals = Σ gradients, of every layer that feeds back. */
static void lossless_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    double *sent[LAYERS];
    const gw_step_adapt_config more = {.least_gain = 0};
    begin(s, j, comm, &more);
    for (uint32_t l = 0; l < LAYERS; l++) {
        sent[l] = calloc(s->layers[l].elements, sizeof *sent[l]);
        j->sums[rank][l] = calloc(s->layers[l].elements, sizeof(double));
    }
    uint32_t switches = 0;
    for (uint64_t step = 0; step < 4 * PERIOD; step++) {
        const uint64_t before = gw_control_of(s->step)->decisions;
        take_step(j, s, step);
        for (uint32_t l = 0; l < LAYERS; l++) {
            for (uint64_t i = 0; i < s->layers[l].elements; i++) {
                sent[l][i] += RANKS * (double)((float *)s->gradient[l])[i];
            }
        }
        if (gw_control_of(s->step)->decisions != before) {
            switches += last(s, before + 1).changed != 0;
            for (uint32_t l = 0; l < LAYERS; l++) { /* only the level changed: it stays in place */
                const gw_layer *layer = &s->step->layers[l];
                RANK_TRUE(layer->params.codec == NULL || j->family[0] != j->uniform[0] ||
                              gw_feedback_orphans(gw_step_feedback(s->step), layer->store_tensor) ==
                                  0,
                          "a residual went astray");
            }
        }
    }
    RANK_TRUE(switches > 1, "no switch to lose something in");
    for (uint32_t l = 0; l < LAYERS; l++) { /* this rank's residual, in the sum of all */
        gw_range range = {0};
        const gw_layer *layer = &s->step->layers[l];
        const float *r = gw_exchange_residual(layer->pieces[0], &range);
        for (uint64_t i = 0; r != NULL && i < range.count; i++) {
            j->sums[rank][l][range.first + i] -= (double)r[i];
        }
    }
    ranks_meet(all);
    for (uint32_t l = 0; l < LAYERS; l++) {
        double worst = 0, size = 0;
        for (uint64_t i = 0; i < s->layers[l].elements; i++) {
            double sum = 0;
            for (uint32_t r = 0; r < RANKS; r++) {
                sum += j->sums[r][l][i];
            }
            worst = fmax(worst, fabs(sum - sent[l][i]));
            size = fmax(size, fabs(sum));
        }
        RANK_TRUE(worst <= 1e-4 * size, "something was lost");
    }
    ranks_meet(all);
    for (uint32_t l = 0; l < LAYERS; l++) {
        free(sent[l]);
        free(j->sums[rank][l]);
    }
    steps_close(s);
}

static void nothing_is_lost_in_a_switch(void **state)
{
    (void)state;
    run(topks, "topk:density=0.05", "topk:density=0.05", lossless_main);
    run(ranks_of, "lowrank:rank=4", "lowrank:rank=4", lossless_main);
}

/* What a power step remembers of the columns that both ranks have. */
static void columns_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    const gw_step_config config = {.comm = comm, .seed = 5};
    (void)all;
    steps_open(s, &config, j->layers, LAYERS);
    steps_agree(s);
    for (uint64_t step = 0; step < 3; step++) {
        take_step(j, s, step);
    }
    static const char *const plans[] = {"lowrank:rank=2", "lowrank:rank=6"};
    float kept[2 * 17];
    for (int i = 0; i < 2; i++) {
        const gw_exchange *x = s->step->layers[0].pieces[0];
        memcpy(kept, gw_feedback_residual(x->config.store, x->state_slot), sizeof kept);
        steps_plan(s, 0, plans[i], "sum");
        steps_agree(s);
        x = s->step->layers[0].pieces[0];
        const float *state = gw_feedback_residual(x->config.store, x->state_slot);
        for (size_t k = 0; k < sizeof kept / sizeof kept[0]; k++) {
            RANK_TRUE(kept[k] == state[k], "columns were forgotten");
        }
        RANK_TRUE(kept[0] != 0 && (i == 0 || state[3 * 17] == 0), "no columns, or stale ones");
    }
    steps_close(s);
}

static void surviving_columns_are_kept(void **state)
{
    (void)state;
    run(ranks_of, "lowrank:rank=4", "lowrank:rank=4", columns_main);
}

/* ---- the same gradients again ---- */

static void again_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    const gw_exchange *pieces[LAYERS];
    (void)all;
    begin(s, j, comm, NULL);
    for (uint64_t step = 0; step < PERIOD + BOUND; step++) {
        if (step == PERIOD) {
            for (uint32_t l = 0; l < LAYERS; l++) {
                pieces[l] = s->step->layers[l].pieces[0];
            }
        }
        take_step(j, s, step);
    }
    const gw_step_decision d = last(s, 2);
    RANK_TRUE(d.outcome == GW_STEP_ADAPT_SAME && d.changed == 0, "another choice");
    RANK_TRUE(d.bytes == d.bytes_before && d.error <= d.budget, "other bytes");
    for (uint32_t l = 0; l < LAYERS; l++) {
        RANK_TRUE(pieces[l] == s->step->layers[l].pieces[0], "a layer was made anew");
    }
    steps_close(s);
}

static void equal_gradients_change_nothing(void **state)
{
    (void)state;
    run_with(dithers, "dither:bits=4", "dither:bits=4", again_main, 1);
}

/* ---- what goes wrong ---- */

static void until_awaited(void *context, gw_control *a, int choice)
{
    (void)context;
    (void)pthread_mutex_lock(&a->lock);
    while (choice && !a->awaited && !a->stop) {
        (void)pthread_cond_wait(&a->changed, &a->lock);
    }
    (void)pthread_mutex_unlock(&a->lock);
}

static void late_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    begin(s, j, comm, NULL);
    gw_control_of(s->step)->hold = rank == 1 ? until_awaited : NULL;
    for (uint64_t step = 0; step <= BOUND; step++) {
        take_step(j, s, step);
        steps_equal_or_die(all, j->ends, rank);
    }
    const gw_step_decision d = last(s, 1);
    RANK_TRUE(d.waited >= 1 && d.outcome == GW_STEP_ADAPT_SWITCHED, "nobody was late");
    steps_close(s);
}

static void a_late_rank_is_waited_for(void **state)
{
    (void)state;
    run(dithers, "dither:bits=4", "dither:bits=4", late_main);
}

/* A NaN at rank 2 in layer 1, zeros everywhere in layer 4, at the time of the copies. */
static void bad_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    begin(s, j, comm, NULL);
    for (uint64_t step = 0; step <= BOUND; step++) {
        gw_why why = {""};
        gw_step_result result;
        for (uint32_t l = 0; l < LAYERS; l++) {
            fill(s, l, step);
            if (step == 0 && l == 1 && rank == 2) {
                ((float *)s->gradient[l])[7] = NAN;
            }
            if (step == 0 && l == 4) {
                memset(s->gradient[l], 0, steps_bytes(s, l));
            }
            steps_post(s, l);
        }
        RANK_OK(gw_step_wait(s->step, &result, &why), why.text);
        RANK_TRUE(result.non_finite == (step == 0), "what is not finite");
        steps_equal_or_die(all, j->ends, rank);
    }
    const gw_step_decision d = last(s, 1);
    RANK_TRUE(d.not_finite == 1 && d.without_gradient == 1, "nobody saw it");
    RANK_TRUE(strstr(d.text, "NaN") != NULL, "not in words");
    RANK_TRUE(level_of(s, 1) == gw_control_of(s->step)->layers[1].uniform &&
                  level_of(s, 3) == gw_control_of(s->step)->layers[3].uniform,
              "a layer without a table has another level");
    steps_close(s);
}

static void a_layer_without_numbers_keeps_its_level(void **state)
{
    (void)state;
    run(dithers, "dither:bits=4", "dither:bits=4", bad_main);
}

static void without_budget(void *context, gw_control *a, int choice)
{
    (void)context;
    for (uint32_t i = 0; choice && i < a->layers[0].n; i++) {
        a->mean[a->layers[0].at + 1 + i] = (double)NAN;
    }
}

static void infeasible_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    begin(s, j, comm, NULL);
    for (uint64_t step = 0; step <= PERIOD + BOUND; step++) {
        if (step == PERIOD) { /* the thread is idle */
            gw_control_of(s->step)->hold = without_budget;
        }
        take_step(j, s, step);
        steps_equal_or_die(all, j->ends, rank);
    }
    const gw_step_decision d = last(s, 2);
    RANK_TRUE(d.outcome == GW_STEP_ADAPT_DEFAULT && d.bytes == d.uniform_bytes, "not the default");
    steps_close(s);
}

static void without_a_choice_the_default(void **state)
{
    (void)state;
    run(dithers, "dither:bits=4", "dither:bits=4", infeasible_main);
}

/* ---- a rank that chose otherwise ---- */

static void another_table(void *context, gw_control *a, int choice)
{
    (void)context;
    for (uint32_t i = 0; choice && i < a->n; i++) { /* as if there were no gradients */
        a->mean[a->layers[i].at] = 0;
    }
}

static void disagree_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    gw_why why = {""};
    gw_step_result result;
    (void)all;
    begin(s, j, comm, NULL);
    gw_control_of(s->step)->hold = rank == 1 ? another_table : NULL;
    for (uint64_t step = 0; step < BOUND; step++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            fill(s, l, step);
            steps_post(s, l);
        }
        const gw_status status = gw_step_wait(s->step, &result, &why);
        RANK_TRUE((status == GW_OK) == (step < BOUND - 1), "not seen, or too early");
        RANK_TRUE(status == GW_OK || status == GW_ERR_DISAGREE, "another error");
    }
    RANK_TRUE(strstr(why.text, "rank 1 chose other levels than rank 0") != NULL, why.text);
    steps_close(s);
}

static void another_choice_is_named(void **state)
{
    (void)state;
    run(dithers, "dither:bits=4", "dither:bits=4", disagree_main);
}

/* ---- restarts ---- */

static void restart_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank], *other = &j->others[rank];
    gw_why why = {""};
    (void)all;
    for (uint64_t at = 1; at <= PERIOD + BOUND; at++) {
        begin(s, j, comm, NULL);
        begin(other, j, comm, NULL);
        for (uint64_t step = 0; step < at; step++) {
            take_step(j, s, step);
        }
        size_t bytes = 0, written = 0;
        RANK_OK(gw_step_adapt_save_bytes(s->step, &bytes, &why), why.text);
        uint8_t *saved = malloc(bytes);
        RANK_OK(gw_step_adapt_save(s->step, saved, bytes, &written, &why), why.text);
        const gw_feedback_blob blob = steps_save(s);
        gw_step_set_number(other->step, at);
        saved[9] ^= 1;
        RANK_TRUE(gw_step_adapt_load(other->step, saved, written, &why) == GW_ERR_CORRUPT,
                  "a damaged state was taken");
        saved[9] ^= 1;
        RANK_OK(gw_step_adapt_load(other->step, saved, written, &why), why.text);
        steps_agree(other);
        gw_feedback_told told;
        RANK_OK(gw_feedback_load(gw_step_feedback(other->step), RANKS, &blob, 1, &told, &why),
                why.text);
        RANK_TRUE(told.adopted == 0 && told.at_zero == 0, told.text);
        for (uint64_t step = at; step < 2 * PERIOD + BOUND + 1; step++) {
            take_step(j, s, step);
            take_step(j, other, step);
            for (uint32_t l = 0; l < LAYERS; l++) {
                RANK_TRUE(memcmp(s->gradient[l], other->gradient[l], steps_bytes(s, l)) == 0,
                          "it does not go on bit for bit");
            }
        }
        RANK_TRUE(last(s, 3).bytes == gw_adapting_of(gw_control_of(other->step))->last.bytes,
                  "another choice");
        free(saved);
        free((void *)(uintptr_t)blob.bytes);
        steps_close(other);
        steps_close(s);
    }
}

static void a_restart_goes_on_bit_for_bit(void **state)
{
    (void)state;
    run(topks, "topk:density=0.05", "topk:density=0.05", restart_main);
}

/* In the middle of a period, with levels from the one before. */
static void stored_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    uint32_t others = 0;
    begin(s, j, comm, NULL);
    stored_or_die(s->step, "adapt-v1.state", gw_step_adapt_load, gw_step_adapt_save);
    for (uint32_t i = 0; i < gw_control_of(s->step)->n; i++) {
        others += level_of(s, i) != gw_control_of(s->step)->layers[i].uniform;
    }
    RANK_TRUE(others != 0, "no level but the default's");
    for (uint64_t step = gw_step_number(s->step); step <= 2 * PERIOD; step++) {
        take_step(j, s, step);
        steps_equal_or_die(all, j->ends, rank);
    }
    RANK_TRUE(last(s, 1).step == PERIOD, "the period is not ended");
    steps_close(s);
}

static void a_stored_checkpoint_loads(void **state)
{
    (void)state;
    run(dithers, "dither:bits=4", "dither:bits=4", stored_main);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_choose_the_same),
        cmocka_unit_test(nothing_is_lost_in_a_switch),
        cmocka_unit_test(surviving_columns_are_kept),
        cmocka_unit_test(equal_gradients_change_nothing),
        cmocka_unit_test(a_late_rank_is_waited_for),
        cmocka_unit_test(a_layer_without_numbers_keeps_its_level),
        cmocka_unit_test(without_a_choice_the_default),
        cmocka_unit_test(another_choice_is_named),
        cmocka_unit_test(a_restart_goes_on_bit_for_bit),
        cmocka_unit_test(a_stored_checkpoint_loads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
