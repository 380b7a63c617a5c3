/* auto on ranks: a clock and a link that the test moves, real exchanges. Every rank decides the same, replicas stay
 * equal across every switch, and what goes wrong has its rule. */
#include "support/check.h"
#include "support/steps.h"

#include "control/auto.h"
#include "control/stored_state.h"

#include <math.h>

enum { RANKS = 3, LAYERS = 5 };
static const steps_layer layers[LAYERS] = {{17 * 900, NULL, NULL, 0},
                                           {17 * 600, NULL, NULL, 0},
                                           {17 * 120, NULL, NULL, GW_BF16},
                                           {500, NULL, NULL, 0},
                                           {17 * 80, NULL, NULL, 0}};

/* One rank's time, and what it is told. */
typedef struct fake {
    double now, rate; /* seconds, bytes a second */
    double compute;   /* of a layer */
} fake;

typedef struct job {
    steps ends[RANKS];
    fake fakes[RANKS];
    gw_step_auto_config config;
    const char *spec; /* instead */
    int alike;        /* ranks have nearly the same gradients */
    gw_auto_decision said[RANKS];
} job;

static double fake_clock(void *context)
{
    return ((fake *)context)->now;
}

static double fake_link(void *context, double bytes)
{
    return 0.0005 + bytes / ((fake *)context)->rate;
}

static gw_codec_cost costs[5];

/* Before the ranks begin. */
static void set_costs(void)
{
    static const char *const specs[] = {"dither:bits=4", "natural:bits=8", "cast:to=bf16",
                                        "topk:density=0.01", "lowrank:rank=1"};
    for (int i = 0; i < 5; i++) {
        (void)gw_params_parse(&costs[i].params, specs[i], NULL);
        costs[i].device = GW_DEVICE_CPU;
        costs[i].encode = (gw_cost_curve){.n = 1, .point = {{.bytes = 4096, .seconds = 1e-4}}};
        costs[i].decode = costs[i].encode;
    }
}

static gw_cluster cheap_coding(void)
{
    return (gw_cluster){.nodes = RANKS,
                        .ranks_per_node = 1,
                        .inter = {.rate = 1e9},
                        .cpu_workers = 1,
                        .codecs = costs,
                        .n_codecs = 5};
}

static gw_step_auto *of(const steps *s)
{
    return gw_auto_of(gw_control_of(s->step));
}

static void begin(job *j, uint32_t rank, gw_comm *comm)
{
    gw_why why = {""};
    steps *s = &j->ends[rank];
    const gw_step_config config = {
        .comm = comm, .lanes = 2, .seed = 5, .own_thread = 1, .timeout = 20};
    const gw_cluster cluster = cheap_coding();
    gw_step_auto_config own = j->config;
    own.cluster = &cluster;
    own.min_elements = 1000;
    steps_open(s, &config, layers, LAYERS);
    steps_agree(s);
    j->fakes[rank] = (fake){.now = 100, .rate = 2e6, .compute = 0.001};
    RANK_OK(j->spec != NULL ? gw_step_auto_begin_spec(s->step, j->spec, &why)
                            : gw_step_auto_begin(s->step, &own, &why),
            why.text);
    gw_step_auto *u = of(s);
    u->clock = fake_clock;
    u->link = fake_link;
    u->test_context = &j->fakes[rank];
}

static void fill(const job *j, steps *s, uint32_t l, uint64_t step)
{
    const uint32_t rank = s->rank;
    steps_fill(s, l, step + 1);
    /* rank 0's numbers, and a hundredth of one's own */
    if (j->alike && s->layers[l].dtype == GW_F32) {
        float *own = s->gradient[l], *kept = malloc(steps_bytes(s, l));
        memcpy(kept, own, steps_bytes(s, l));
        s->rank = 0;
        steps_fill(s, l, step + 1);
        s->rank = rank;
        for (uint64_t i = 0; i < layers[l].elements; i++) {
            own[i] += 0.01f * kept[i];
        }
        free(kept);
    }
}

/* `wait`: what the exchanges take beyond backward, on the fake clock. */
static gw_step_result take_step(job *j, uint32_t rank, double wait, int bad)
{
    gw_why why = {""};
    gw_step_result result;
    steps *s = &j->ends[rank];
    const uint64_t step = gw_step_number(s->step);
    for (uint32_t l = 0; l < LAYERS; l++) {
        fill(j, s, l, step);
        if (bad && rank == 1 && l == 0) {
            ((float *)s->gradient[l])[7] = NAN;
        }
        j->fakes[rank].now += j->fakes[rank].compute;
        steps_post(s, l);
    }
    j->fakes[rank].now += wait;
    RANK_OK(gw_step_wait(s->step, &result, &why), why.text);
    return result;
}

static uint64_t decisions(const steps *s)
{
    uint64_t n = 0;
    gw_auto_decision d;
    RANK_OK(gw_step_auto_last(s->step, &n, &d), "no decisions");
    return n;
}

/* Steps until one more decision, at most `most`; it is the same on all ranks, as is what they send. */
static gw_auto_decision next_decision(ranks *all, job *j, uint32_t rank, double wait, int most,
                                      double loss)
{
    steps *s = &j->ends[rank];
    const uint64_t before = decisions(s);
    uint64_t n = before;
    for (int i = 0; i < most && n == before; i++) {
        (void)take_step(j, rank, wait, 0);
        steps_equal_or_die(all, j->ends, rank);
        if (!isnan(loss)) {
            RANK_OK(gw_step_auto_loss(s->step, loss), "loss");
        }
        n = decisions(s);
    }
    RANK_TRUE(n == before + 1, "no decision in time");
    RANK_OK(gw_step_auto_last(s->step, &n, &j->said[rank]), "last");
    ranks_meet(all);
    const gw_auto_decision *mine = &j->said[rank], *first = &j->said[0];
    RANK_TRUE(mine->reason == first->reason && mine->outcome == first->outcome &&
                  mine->bound_at == first->bound_at && mine->bytes == first->bytes &&
                  mine->alpha == first->alpha &&
                  mine->predicted_seconds == first->predicted_seconds &&
                  mine->link_bytes_per_second == first->link_bytes_per_second &&
                  strcmp(mine->text, first->text) == 0,
              "ranks tell it differently");
    RANK_TRUE(mine->text[0] != '\0' && mine->bound_at == gw_step_number(s->step), "no words");
    RANK_TRUE(!(mine->predicted_seconds < (1 - 1e-9) * mine->bound_seconds),
              "a step is predicted to be shorter than its bound");
    ranks_meet(all);
    const gw_auto_decision d = j->said[rank];
    (void)take_step(j, rank, wait, 0); /* the first that goes by it */
    steps_equal_or_die(all, j->ends, rank);
    uint64_t sent = 0;
    for (uint32_t l = 0; l < LAYERS; l++) {
        gw_layer_stats stats;
        RANK_OK(gw_step_stats(s->step, l, &stats), "stats");
        sent += stats.bytes_sent[0] + stats.bytes_sent[1];
    }
    RANK_TRUE(rank != 0 || (double)sent <= 1.02 * (double)d.bytes + 64, "more bytes than it said");
    return d;
}

static const double NO_LOSS = (double)NAN;

static void run(ranks_main *main, gw_step_auto_config config, const char *spec)
{
    const gw_threads_config threads = {.ranks = RANKS, .ranks_per_node = 1};
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->config = config;
    j->spec = spec;
    set_costs();
    ranks_run(&threads, main, j);
    free(j);
}

/* ---- the first plan, and the link ---- */

static void link_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    begin(j, rank, comm);
    j->fakes[rank].rate = rank == 2 ? 2e6 : 8e6; /* the slowest counts */
    gw_auto_decision d = next_decision(all, j, rank, 0.02, 14, NO_LOSS);
    RANK_TRUE(d.reason == GW_AUTO_START && d.outcome == GW_AUTO_SWITCHED && d.bound_at <= 12,
              "no first plan");
    RANK_TRUE(fabs(d.link_bytes_per_second / 2e6 - 1) < 0.01, "another link than the slowest");
    RANK_TRUE(d.predicted_seconds < d.dense_seconds && d.bound_seconds <= d.predicted_seconds &&
                  d.half_seconds > d.predicted_seconds && d.double_seconds < d.predicted_seconds,
              "times that cannot be");
    RANK_TRUE(d.error <= d.budget && d.error > 0 && d.noise_ratio > 0 && d.noise_ratio <= 0.5 &&
                  d.bytes < d.dense_bytes / 2,
              "errors or bytes that cannot be");
    const gw_auto_decision first = d;
    for (int i = 0; i < 11; i++) {
        (void)take_step(j, rank, 0.02, 0);
        steps_equal_or_die(all, j->ends, rank);
    }
    gw_auto_watch w;
    uint64_t n = 0;
    RANK_OK(gw_step_auto_watched(s->step, &n, &w), "watched");
    RANK_TRUE(w.predicted_seconds == first.predicted_seconds && isnan(w.expected_seconds),
              "something is expected before it was measured");
    d = next_decision(all, j, rank, 0.02, 70, NO_LOSS); /* the first period is short */
    RANK_TRUE((d.reason == GW_AUTO_PERIODIC || d.reason == GW_AUTO_QUIET) && d.step == 49,
              "no second look");
    const gw_auto_decision made = d.outcome == GW_AUTO_SWITCHED ? d : first;
    const uint64_t calm = decisions(s);
    for (int i = 0; i < 25; i++) { /* as predicted, or not: the first window calibrates */
        (void)take_step(j, rank, 0.02, 0);
        steps_equal_or_die(all, j->ends, rank);
    }
    RANK_TRUE(decisions(s) == calm, "a plan without a reason");
    RANK_OK(gw_step_auto_watched(s->step, &n, &w), "watched");
    RANK_TRUE(n >= 2 && fabs(w.measured_seconds - 0.025) < 1e-9, "another time than the clock's");
    RANK_TRUE(w.predicted_seconds == made.predicted_seconds, "not what was predicted of the plan");
    RANK_TRUE(fabs(w.expected_seconds - 0.025) < 1e-9 && w.predicted_seconds < 0.0249,
              "expected is what was measured, predicted is not");
    const uint64_t few = d.bytes;
    j->fakes[rank].rate = 2e9;
    uint64_t changed = gw_step_number(s->step);
    d = next_decision(all, j, rank, 0.002, 50, NO_LOSS);
    RANK_TRUE(d.reason == GW_AUTO_FASTER && d.outcome == GW_AUTO_SWITCHED &&
                  d.bound_at <= changed + 50,
              "a fast link goes unnoticed");
    RANK_TRUE(d.bytes > 2 * few && d.link_bytes_per_second > 1e9, "squeezed in vain");
    for (int i = 0; i < 12; i++) {
        (void)take_step(j, rank, 0.002, 0);
    }
    j->fakes[rank].rate = rank == 0 ? 1e6 : 2e6;
    changed = gw_step_number(s->step);
    d = next_decision(all, j, rank, 0.2, 50, NO_LOSS);
    RANK_TRUE(d.reason == GW_AUTO_SLOWER && d.outcome == GW_AUTO_SWITCHED &&
                  d.bound_at <= changed + 50,
              "so does a slow one");
    RANK_TRUE(fabs(d.link_bytes_per_second / 1e6 - 1) < 0.01 && d.error <= d.budget &&
                  d.bytes < 2 * few,
              "another link than there is");
    steps_close(s);
}

static void plans_follow_the_link(void **state)
{
    (void)state;
    gw_params families[2]; /* of which the default is not the best on a slow link */
    assert_int_equal(gw_params_parse(&families[0], "natural:bits=8", NULL), GW_OK);
    assert_int_equal(gw_params_parse(&families[1], "dither:bits=4", NULL), GW_OK);
    run(link_main,
        (gw_step_auto_config){
            .period = 1000, .uniform = families[0], .n_families = 2, .families = families},
        NULL);
}

/* Steps take as long as ever, hidden behind computing, say. */
static void hidden_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    begin(j, rank, comm);
    (void)next_decision(all, j, rank, 0.02, 14, NO_LOSS);
    (void)next_decision(all, j, rank, 0.02, 70, NO_LOSS);
    const uint64_t calm = decisions(&j->ends[rank]);
    j->fakes[rank].rate = 4e6; /* not enough to begin anew */
    for (int i = 0; i < 45; i++) {
        (void)take_step(j, rank, 0.02, 0);
    }
    RANK_TRUE(decisions(&j->ends[rank]) == calm, "a plan without a reason");
    j->fakes[rank].rate = rank == 1 ? 20e6 : 2e9; /* the slowest counts, once it is measured */
    const uint64_t changed = gw_step_number(j->ends[rank].step);
    const gw_auto_decision d = next_decision(all, j, rank, 0.02, 50, NO_LOSS);
    RANK_TRUE(d.reason == GW_AUTO_FASTER && strstr(d.text, "link") != NULL &&
                  d.bound_at <= changed + 50 && fabs(d.link_bytes_per_second / 20e6 - 1) < 0.01,
              "a fast link goes unnoticed");
    steps_close(&j->ends[rank]);
}

static void links_are_looked_at(void **state)
{
    (void)state;
    run(hidden_main, (gw_step_auto_config){.period = 1000}, NULL);
}

/* All measured by itself, in one line of text. */
static void measured_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    begin(j, rank, comm);
    of(&j->ends[rank])->clock = NULL;
    of(&j->ends[rank])->link = NULL;
    const gw_auto_decision d = next_decision(all, j, rank, 0, 14, NO_LOSS);
    RANK_TRUE(d.link_bytes_per_second > 0 && d.outcome != GW_AUTO_FAILED, d.text);
    steps_close(&j->ends[rank]);
}

static void begins_by_a_line_of_text(void **state)
{
    (void)state;
    run(measured_main, (gw_step_auto_config){0}, "auto");
    run(measured_main, (gw_step_auto_config){0}, "auto:alpha=2/dither:bits=4/sign");
}

/* By the default, which nothing is held back by, while all is measured. */
static void default_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    gw_params params;
    gw_route route;
    begin(j, rank, comm);
    for (int i = 0; i < 8; i++) {
        RANK_OK(gw_step_planned(j->ends[rank].step, 0, &params, &route), "planned");
        RANK_TRUE((params.codec != NULL) == (j->spec == NULL), "not by the default");
        (void)take_step(j, rank, 0.02, 0);
        steps_equal_or_die(all, j->ends, rank);
    }
    steps_close(&j->ends[rank]);
}

static void the_default_until_there_is_a_plan(void **state)
{
    (void)state;
    run(default_main, (gw_step_auto_config){0}, NULL);
    run(default_main, (gw_step_auto_config){0}, "auto/topk:density=0.01"); /* holds back */
}

/* Computing appears too long while steps are timed, because something else uses the cores. Whole steps are as short as before,
 * and the prediction of the plan in force does not exceed them. */
static void busy_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    begin(j, rank, comm);
    const gw_auto_decision first = next_decision(all, j, rank, 0.02, 14, NO_LOSS);
    const double whole = 0.005 + 0.02; /* on the clock of the test */
    const uint64_t before = decisions(s);
    while (decisions(s) == before) {
        RANK_TRUE(gw_step_number(s->step) < 80, "no second look");
        j->fakes[rank].compute = of(s)->timing ? 0.0048 : 0.001; /* of five layers */
        (void)take_step(j, rank, 0.02, 0);
        steps_equal_or_die(all, j->ends, rank);
    }
    gw_auto_decision d = first;
    uint64_t n = 0;
    RANK_OK(gw_step_auto_last(s->step, &n, &d), "last");
    RANK_TRUE(d.outcome == GW_AUTO_SAME || d.outcome == GW_AUTO_SMALL_GAIN, d.text);
    RANK_TRUE(d.predicted_seconds <= 1.001 * whole && d.predicted_seconds > 0.9 * whole,
              "a step is predicted to take longer than it takes");
    RANK_TRUE(d.bound_seconds <= d.predicted_seconds, "and so is its bound");
    steps_close(s);
}

static void whole_steps_limit_what_computing_takes(void **state)
{
    (void)state;
    run(busy_main, (gw_step_auto_config){.period = 1000, .limit = 0.2}, NULL);
}

/* ---- what comes late ---- */

/* How far the layer's result is from the mean of the gradients. */
static double apart(steps *s, uint32_t l, uint64_t step)
{
    const uint64_t n = layers[l].elements;
    const uint32_t own = s->rank;
    float *result = malloc(n * sizeof *result), *gradient = s->gradient[l];
    double *sum = calloc(n, sizeof *sum), most = 0;
    memcpy(result, gradient, n * sizeof *result);
    for (s->rank = 0; s->rank < RANKS; s->rank++) {
        steps_fill(s, l, step);
        for (uint64_t i = 0; i < n; i++) {
            sum[i] += (double)gradient[i] / RANKS;
        }
    }
    s->rank = own;
    for (uint64_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)result[i] - sum[i]));
    }
    memcpy(gradient, result, n * sizeof *result);
    free(result);
    free(sum);
    return most;
}

/* Between numbers that are rounded, and rounds that hold back. */
static void begin_late(ranks *all, job *j, uint32_t rank, gw_comm *comm, gw_params families[2])
{
    RANK_OK(gw_params_parse(&families[0], "natural:bits=8", NULL), "natural");
    RANK_OK(gw_params_parse(&families[1], "lowrank:rank=1", NULL), "lowrank");
    ranks_meet(all);
    if (rank == 0) {
        j->config = (gw_step_auto_config){
            .alpha = 4, .limit = 100, .period = 1000, .uniform = families[0], .n_families = 2};
        j->config.families = families;
    }
    ranks_meet(all);
    begin(j, rank, comm);
    ranks_meet(all); /* families are rank 0's */
}

/* To rounds on a slow link, back on a fast one; what was held back arrives with the first step that is as it is. */
static void late_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    gw_params families[2], params;
    gw_route route;
    begin_late(all, j, rank, comm, families);
    (void)next_decision(all, j, rank, 0.02, 14, NO_LOSS);
    RANK_OK(gw_step_planned(s->step, 0, &params, &route), "planned");
    RANK_TRUE(params.codec == families[1].codec, "what is a quarter as long is not chosen");
    (void)next_decision(all, j, rank, 0.02, 70, NO_LOSS);
    j->fakes[rank].rate = 2e9;
    RANK_OK(gw_step_planned(s->step, 0, &params, &route), "planned");
    while (params.codec != NULL) {
        (void)take_step(j, rank, 0.002, 0);
        steps_equal_or_die(all, j->ends, rank);
        RANK_TRUE(gw_step_number(s->step) < 160, "a fast link goes unnoticed");
        RANK_OK(gw_step_planned(s->step, 0, &params, &route), "planned");
    }
    const uint64_t step = gw_step_number(s->step);
    (void)take_step(j, rank, 0.002, 0);
    steps_equal_or_die(all, j->ends, rank);
    RANK_TRUE(apart(s, 0, step + 1) > 0.1, "what was held back is lost");
    (void)take_step(j, rank, 0.002, 0);
    RANK_TRUE(apart(s, 0, step + 2) < 1e-5, "something is held back");
    steps_close(s);
}

/* A link on which it is still the fastest, but by less than half of what it had to be. */
static void in_vain_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    gw_params families[2], params;
    gw_route route;
    begin_late(all, j, rank, comm, families);
    (void)next_decision(all, j, rank, 0.02, 14, NO_LOSS);
    (void)next_decision(all, j, rank, 0.02, 70, NO_LOSS);
    j->fakes[rank].rate = 17e6;
    const gw_auto_decision d = next_decision(all, j, rank, 0.02, 50, NO_LOSS);
    RANK_OK(gw_step_planned(s->step, 0, &params, &route), "planned");
    RANK_TRUE(d.outcome == GW_AUTO_SWITCHED && params.codec != families[1].codec,
              "errors come late in vain");
    steps_close(s);
}

/* Computing takes so long that lowrank would not be chosen again, but not so long that it is given up. The plan in force is then
 * not a candidate of the search, and must not be set beside the bound of that search. */
static void kept_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    gw_params families[2], params;
    gw_route route;
    begin_late(all, j, rank, comm, families);
    for (int i = 0; i < 2; i++) {
        (void)next_decision(all, j, rank, 0.02, 70, NO_LOSS);
        of(s)->last.solve_seconds = 0; /* the next round is as long, however busy this machine is */
    }
    j->fakes[rank].compute = 0.006;
    const gw_auto_decision d = next_decision(all, j, rank, 0.02, 80, NO_LOSS);
    RANK_OK(gw_step_planned(s->step, 0, &params, &route), "planned");
    RANK_TRUE(d.outcome == GW_AUTO_SMALL_GAIN && params.codec == families[1].codec, d.text);
    RANK_TRUE(d.bound_seconds > 0 && d.bound_seconds <= d.predicted_seconds, "no bound");
    steps_close(s);
}

static void run_late(ranks_main *main)
{
    if (gw_codec_find("lowrank") == NULL) {
        print_message("skip: no lowrank in this build\n");
        return;
    }
    run(main, (gw_step_auto_config){0}, NULL);
}

static void what_comes_late_has_to_go_on_paying(void **state)
{
    (void)state;
    run_late(in_vain_main);
}

static void a_plan_that_stays_is_not_below_its_bound(void **state)
{
    (void)state;
    run_late(kept_main);
}

static void what_came_late_is_handed_over(void **state)
{
    (void)state;
    run_late(late_main);
}

/* ---- the guard ---- */

static void noise_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    begin(j, rank, comm);
    (void)next_decision(all, j, rank, 0.02, 14, NO_LOSS);
    (void)next_decision(all, j, rank, 0.02, 70, NO_LOSS);
    const double alpha = of(&j->ends[rank])->judge.alpha;
    ranks_meet(all);
    if (rank == 0) {
        j->alike = 1;
    }
    ranks_meet(all);
    const gw_auto_decision d = next_decision(all, j, rank, 0.02, 100, NO_LOSS);
    RANK_TRUE(d.reason == GW_AUTO_ERROR && d.alpha <= alpha / 2, "too much error goes unnoticed");
    steps_close(&j->ends[rank]);
}

static void less_noise_means_less_error(void **state)
{
    (void)state;
    run(noise_main, (gw_step_auto_config){.period = 1000}, NULL);
}

static void quiet_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    begin(j, rank, comm);
    (void)next_decision(all, j, rank, 0.02, 14, NO_LOSS);
    const gw_auto_decision d = next_decision(all, j, rank, 0.02, 70, NO_LOSS);
    RANK_TRUE(d.reason == GW_AUTO_QUIET && d.alpha == 1.5 && d.step == 39, "alpha does not grow");
    steps_close(&j->ends[rank]);
}

static void far_below_the_limit_alpha_grows(void **state)
{
    (void)state;
    run(quiet_main, (gw_step_auto_config){.period = 40, .limit = 100, .alpha = 1}, NULL);
}

/* Budget, noise and a slow link would have 2 bits everywhere. */
static void coarse_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    gw_params four;
    int coded = 0;
    RANK_OK(gw_params_parse(&four, "dither:bits=4", NULL), "dither");
    begin(j, rank, comm);
    (void)next_decision(all, j, rank, 0.02, 14, NO_LOSS);
    for (uint32_t l = 0; l < LAYERS; l++) {
        const gw_params *p = &j->ends[rank].step->layers[l].params;
        coded += p->codec == four.codec;
        RANK_TRUE(p->codec != four.codec || p->value[0] >= four.value[0],
                  "a layer has far more error than by the default");
    }
    RANK_TRUE(coded > 0, "nothing is dithered");
    steps_close(&j->ends[rank]);
}

static void no_layer_is_far_coarser_than_by_the_default(void **state)
{
    (void)state;
    gw_params four;
    assert_int_equal(gw_params_parse(&four, "dither:bits=4", NULL), GW_OK);
    run(coarse_main,
        (gw_step_auto_config){.period = 1000,
                              .limit = 100,
                              .alpha = 4,
                              .uniform = four,
                              .n_families = 1,
                              .families = &four},
        NULL);
}

static void is_dense_or_die(const steps *s)
{
    for (uint32_t l = 0; l < LAYERS; l++) {
        RANK_TRUE(s->step->layers[l].params.codec == NULL, "something is compressed");
    }
}

static void burst_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    begin(j, rank, comm);
    (void)next_decision(all, j, rank, 0.02, 14, NO_LOSS);
    const uint64_t before = decisions(s);
    for (int i = 0; i < 20 && decisions(s) == before; i++) {
        const gw_step_result r = take_step(j, rank, 0.02, i < 4);
        RANK_TRUE(r.non_finite == (i < 4), "a NaN got lost");
    }
    uint64_t n = 0;
    gw_auto_decision d = {0};
    RANK_OK(gw_step_auto_last(s->step, &n, &d), "last");
    RANK_TRUE(n == before + 1 && d.reason == GW_AUTO_NON_FINITE && d.outcome == GW_AUTO_DENSE,
              "a burst goes unnoticed");
    is_dense_or_die(s);
    d = next_decision(all, j, rank, 0.02, 70, NO_LOSS);
    RANK_TRUE(d.reason == GW_AUTO_RECOVERED && d.outcome == GW_AUTO_SWITCHED && d.alpha == 0.5,
              "it does not recover");
    steps_close(s);
}

static void a_burst_of_nan_falls_back_to_dense(void **state)
{
    (void)state;
    run(burst_main, (gw_step_auto_config){.period = 1000}, NULL);
}

static void spike_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    begin(j, rank, comm);
    (void)next_decision(all, j, rank, 0.02, 14, 1);
    (void)next_decision(all, j, rank, 0.02, 70, 0.95);
    const double alpha = of(s)->judge.alpha;
    for (int i = 0; i < 50; i++) {
        (void)take_step(j, rank, 0.02, 0);
        (void)gw_step_auto_loss(s->step, 0.9 + 0.05 * (i % 3 == 0) + 0.01 * rank);
    }
    gw_auto_decision d = next_decision(all, j, rank, 0.02, 40, 5);
    RANK_TRUE(d.reason == GW_AUTO_DIVERGING && d.outcome == GW_AUTO_DENSE,
              "a loss that rises goes unnoticed");
    is_dense_or_die(s);
    d = next_decision(all, j, rank, 0.02, 120, 0.9);
    RANK_TRUE(d.reason == GW_AUTO_RECOVERED && d.alpha == alpha / 2, "it does not recover");
    steps_close(s);
}

static void a_rising_loss_falls_back_to_dense(void **state)
{
    (void)state;
    run(spike_main, (gw_step_auto_config){.period = 1000}, NULL);
}

/* ---- what goes wrong ---- */

/* A layer that is waited for before the others are posted, while steps are timed. */
static void early_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    gw_why why = {""};
    const uint32_t first = 0;
    (void)all;
    begin(j, rank, comm);
    for (int i = 0; i < 3; i++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            fill(j, s, l, (uint64_t)i);
            steps_post(s, l);
            if (l == 0) {
                RANK_OK(gw_step_wait_layers(s->step, &first, 1, &why), why.text);
            }
        }
        RANK_OK(gw_step_wait(s->step, NULL, &why), why.text);
    }
    steps_close(s);
}

static void who_waits_early_is_not_held(void **state)
{
    (void)state;
    run(early_main, (gw_step_auto_config){0}, NULL);
}

static void refused_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    gw_why why = {""};
    const gw_step_config config = {.comm = comm, .sharded = 1};
    (void)all;
    static const steps_layer shards[] = {{17 * 900, "dither:bits=4", "sra", 0}};
    steps_open(s, &config, shards, 1);
    RANK_TRUE(gw_step_auto_begin_spec(s->step, "auto", &why) == GW_ERR_STATE, "before an agree");
    steps_agree(s);
    RANK_TRUE(gw_step_auto_begin_spec(s->step, "auto", &why) == GW_ERR_UNSUPPORTED &&
                  strstr(why.text, "sharded") != NULL,
              "sharded");
    steps_close(s);
    begin(j, rank, comm);
    RANK_TRUE(gw_step_auto_begin_spec(s->step, "auto", &why) == GW_ERR_STATE, "twice");
    gw_route dense;
    (void)gw_route_parse(&dense, "dense", NULL);
    RANK_TRUE(gw_step_plan(s->step, 0, NULL, &dense, &why) == GW_ERR_STATE, "a layer of auto's");
    size_t bytes = 0;
    RANK_TRUE(gw_step_adapt_save_bytes(s->step, &bytes, &why) == GW_ERR_STATE, "not adapt's");
    steps_close(s);
    const gw_step_config plain = {.comm = comm};
    steps_open(s, &plain, layers, 2);
    steps_agree(s);
    RANK_TRUE(gw_step_auto_loss(s->step, 1) == GW_ERR_STATE, "a loss for nobody");
    gw_cluster other = cheap_coding();
    other.nodes = RANKS + 1;
    const gw_step_auto_config wrong = {.cluster = &other};
    RANK_TRUE(gw_step_auto_begin(s->step, &wrong, &why) == GW_ERR_ARG, "another cluster");
    steps_close(s);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    run(refused_main, (gw_step_auto_config){0}, NULL);
}

/* ---- checkpoints ---- */

/* Saved while the first plan is made, and with it in force; loaded, the same bits follow. */
static void resume_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    gw_why why = {""};
    size_t size = 0, written = 0;
    begin(j, rank, comm);
    (void)next_decision(all, j, rank, 0.02, 14, NO_LOSS);
    RANK_OK(gw_step_auto_save_bytes(s->step, &size, &why), why.text);
    uint8_t *bytes = malloc(size);
    RANK_OK(gw_step_auto_save(s->step, bytes, size, &written, &why), why.text);
    RANK_TRUE(gw_step_auto_save(s->step, bytes, size - 1, &written, &why) == GW_ERR_CAPACITY,
              "room");
    const uint64_t number = gw_step_number(s->step);
    gw_feedback_blob residuals = steps_save(s);
    (void)take_step(j, rank, 0.02, 0);
    float *kept = malloc(steps_bytes(s, 0));
    memcpy(kept, s->gradient[0], steps_bytes(s, 0));
    steps_close(s);

    begin(j, rank, comm);
    RANK_TRUE(gw_step_auto_load(s->step, bytes, size, &why) == GW_ERR_DISAGREE, "another step");
    gw_step_set_number(s->step, number);
    bytes[100] ^= 1;
    RANK_TRUE(gw_step_auto_load(s->step, bytes, size, &why) == GW_ERR_CORRUPT, "damaged");
    bytes[100] ^= 1;
    RANK_OK(gw_step_auto_load(s->step, bytes, size, &why), why.text);
    steps_agree(s);
    gw_feedback_told told;
    RANK_OK(gw_feedback_load(gw_step_feedback(s->step), RANKS, &residuals, 1, &told, &why),
            why.text);
    (void)take_step(j, rank, 0.02, 0);
    RANK_TRUE(memcmp(kept, s->gradient[0], steps_bytes(s, 0)) == 0, "other bits after a restart");
    RANK_TRUE(!of(s)->control.live && of(s)->judge.alpha == 1, "it begins anew");
    for (int i = 0; i < 25; i++) {
        (void)take_step(j, rank, 0.02, 0);
        steps_equal_or_die(all, j->ends, rank);
    }
    free(bytes);
    free(kept);
    free((void *)(uintptr_t)residuals.bytes);
    steps_close(s);
}

static void a_restart_goes_on(void **state)
{
    (void)state;
    run(resume_main, (gw_step_auto_config){.period = 1000}, NULL);
}

/* With the first plan in force. */
static void stored_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    uint32_t coded = 0;
    begin(j, rank, comm);
    stored_or_die(s->step, "auto-v2.state", gw_step_auto_load, gw_step_auto_save);
    for (uint32_t l = 0; l < LAYERS; l++) {
        coded += s->step->layers[l].params.codec != NULL;
    }
    RANK_TRUE(coded != 0, "no plan is in force");
    for (int i = 0; i < 25; i++) {
        (void)take_step(j, rank, 0.02, 0);
        steps_equal_or_die(all, j->ends, rank);
    }
    steps_close(s);
}

static void a_stored_checkpoint_loads(void **state)
{
    (void)state;
    gw_params families[2];
    assert_int_equal(gw_params_parse(&families[0], "natural:bits=8", NULL), GW_OK);
    assert_int_equal(gw_params_parse(&families[1], "dither:bits=4", NULL), GW_OK);
    run(stored_main,
        (gw_step_auto_config){
            .period = 1000, .uniform = families[0], .n_families = 2, .families = families},
        NULL);
}

/* ---- layers that are sent as one ---- */

static int is_fused(steps *s, uint32_t layer)
{
    gw_layer_stats stats;
    RANK_OK(gw_step_stats(s->step, layer, &stats), "stats");
    return stats.fused;
}

/* Where messages cost more than bytes layers go together; where bytes cost more each may have its own level. */
static void fused_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    gw_why why = {""};
    uint32_t fused = 0;
    begin(j, rank, comm);
    j->fakes[rank].compute = 1e-5; /* ready at once */
    j->fakes[rank].rate = 2e9;
    const gw_auto_decision d = next_decision(all, j, rank, 0.02, 14, NO_LOSS);
    RANK_TRUE(d.outcome == GW_AUTO_SWITCHED && d.predicted_seconds < d.dense_seconds, d.text);
    for (uint32_t l = 0; l < LAYERS; l++) {
        fused += (uint32_t)is_fused(s, l);
    }
    RANK_TRUE(fused >= 2 && !is_fused(s, 3), "short messages are sent apart");
    const uint32_t none[LAYERS] = {0};
    RANK_TRUE(gw_step_buckets(s->step, none, LAYERS, &why) == GW_ERR_UNSUPPORTED, why.text);
    /* the same again: its buckets are no tensors of the next plan */
    (void)next_decision(all, j, rank, 0.02, 70, NO_LOSS);
    uint32_t again = 0;
    for (uint32_t l = 0; l < LAYERS; l++) {
        again += (uint32_t)is_fused(s, l);
    }
    RANK_TRUE(again >= 2, "short messages are sent apart after a second look");
    RANK_TRUE(of(s)->job.n == LAYERS, "a bucket's layers are not looked at one by one");
    /* a restart has the same buckets */
    size_t size = 0, written = 0;
    RANK_OK(gw_step_auto_save_bytes(s->step, &size, &why), why.text);
    uint8_t *bytes = malloc(size);
    RANK_OK(gw_step_auto_save(s->step, bytes, size, &written, &why), why.text);
    const gw_feedback_blob residuals = steps_save(s);
    const uint64_t number = gw_step_number(s->step);
    (void)take_step(j, rank, 0.02, 0);
    float *kept = malloc(steps_bytes(s, 0));
    memcpy(kept, s->gradient[0], steps_bytes(s, 0));
    ranks_meet(all);
    steps_close(s);
    begin(j, rank, comm);
    gw_step_set_number(s->step, number);
    RANK_OK(gw_step_auto_load(s->step, bytes, size, &why), why.text);
    RANK_OK(gw_step_agree(s->step, &why), why.text);
    gw_feedback_told told;
    RANK_OK(gw_feedback_load(gw_step_feedback(s->step), RANKS, &residuals, 1, &told, &why),
            why.text);
    (void)take_step(j, rank, 0.02, 0);
    steps_equal_or_die(all, j->ends, rank);
    RANK_TRUE(memcmp(kept, s->gradient[0], steps_bytes(s, 0)) == 0, "other bits after a restart");
    for (uint32_t l = 0; l < LAYERS; l++) {
        again -= (uint32_t)is_fused(s, l);
    }
    RANK_TRUE(again == 0, "other buckets after a restart");
    free(bytes);
    free(kept);
    free((void *)(uintptr_t)residuals.bytes);
    steps_close(s);
}

static void layers_are_sent_as_one(void **state)
{
    (void)state;
    run(fused_main, (gw_step_auto_config){.period = 1000}, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_follow_the_link),
        cmocka_unit_test(begins_by_a_line_of_text),
        cmocka_unit_test(less_noise_means_less_error),
        cmocka_unit_test(links_are_looked_at),
        cmocka_unit_test(far_below_the_limit_alpha_grows),
        cmocka_unit_test(no_layer_is_far_coarser_than_by_the_default),
        cmocka_unit_test(the_default_until_there_is_a_plan),
        cmocka_unit_test(what_came_late_is_handed_over),
        cmocka_unit_test(what_comes_late_has_to_go_on_paying),
        cmocka_unit_test(a_plan_that_stays_is_not_below_its_bound),
        cmocka_unit_test(whole_steps_limit_what_computing_takes),
        cmocka_unit_test(a_burst_of_nan_falls_back_to_dense),
        cmocka_unit_test(a_rising_loss_falls_back_to_dense),
        cmocka_unit_test(who_waits_early_is_not_held),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(a_restart_goes_on),
        cmocka_unit_test(a_stored_checkpoint_loads),
        cmocka_unit_test(layers_are_sent_as_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
