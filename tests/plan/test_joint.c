/* Error and time in one plan: against trying everything, against each alone, and what is refused. */
#include "plan/problem.h"
#include "support/check.h"
#include "support/gen.h"

#include <math.h>

enum { TENSORS = 4, SPECS = 3, ROUTES = 7, FIRST_SEED = 7000, ALL_ROUTES = 256 };

/* ---- small problems ---- */

typedef struct small {
    gw_job_tensor tensor[TENSORS];
    gw_job job;
    gw_codec_cost codecs[4];
    gw_cluster cluster;
    gw_params specs[SPECS];
    double errors[TENSORS][SPECS];
    gw_joint_tensor levels[TENSORS];
    gw_route kept[ROUTES]; /* the only ones that are allowed */
    uint32_t n_kept;
    gw_route forbidden[ALL_ROUTES];
    gw_joint_request request;
} small;

static double between(gen *g, double low, double high)
{
    return low + (high - low) * gen_uniform(g);
}

static gw_cost_curve curve_of(double rate, double launch)
{
    return (gw_cost_curve){
        .n = 2,
        .point = {{.bytes = 1, .seconds = launch}, {.bytes = 1e7, .seconds = launch + 1e7 / rate}}};
}

static void draw_cluster(small *x, gen *g)
{
    const int gpu = (int)gen_below(g, 2);
    x->cluster = (gw_cluster){
        .name = "drawn",
        .nodes = 2 + gen_below(g, 3),
        .ranks_per_node = 1 + gen_below(g, 2),
        .intra = {.latency = 1e-5, .message = 1e-6, .rate = between(g, 2e9, 3e10)},
        .inter = {.latency = 5e-5, .message = 1e-6, .rate = between(g, 5e7, 2e9), .shared = 1},
        .copy = {.latency = 1e-5, .rate = 1e10},
        .has_gpu = gpu,
        .cpu_workers = 1 + gen_below(g, 2),
        .codecs = x->codecs};
    const char *const names[2] = {"dither:bits=4", "topk:density=0.01"};
    for (unsigned i = 0; i < 2U + 2U * (unsigned)gpu; i++) {
        const double rate = i < 2 ? between(g, 5e8, 5e9) : between(g, 5e9, 1e11);
        x->codecs[x->cluster.n_codecs++] =
            (gw_codec_cost){.params = params_of(names[i % 2]),
                            .device = i < 2 ? GW_DEVICE_CPU : GW_DEVICE_GPU,
                            .encode = curve_of(rate, 1e-5),
                            .decode = curve_of(2 * rate, 1e-5)};
    }
    x->request.devices = gpu && gen_below(g, 2) ? GW_DEVICE_GPU : GW_DEVICE_CPU;
}

/* Two uncompressed routes and some compressed ones; all others are forbidden. */
static void draw_routes(small *x, gen *g)
{
    gw_route all[ALL_ROUTES];
    size_t n = 0, more = 0, n_forbidden = 0;
    assert_int_equal(gw_route_list(x->request.devices, 0, all, ALL_ROUTES, &n, NULL), GW_OK);
    assert_int_equal(
        gw_route_list(x->request.devices, 1, x->forbidden, ALL_ROUTES - n, &more, NULL), GW_OK);
    n_forbidden = more;
    uint8_t keep[ALL_ROUTES] = {0};
    for (unsigned plain = 0, coded = 0; plain < 2 || coded < ROUTES - 2;) {
        const uint32_t i = gen_below(g, (uint32_t)n);
        const uint32_t hops = gw_route_encodes(&all[i]);
        unsigned *count = hops == 0 ? &plain : &coded;
        if (!keep[i] && *count < (hops == 0 ? 2U : ROUTES - 2U) &&
            (hops <= 2 || gen_below(g, 4) == 0)) {
            keep[i] = 1;
            ++*count;
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (keep[i]) {
            x->kept[x->n_kept++] = all[i];
        } else {
            x->forbidden[n_forbidden++] = all[i];
        }
    }
    x->request.forbidden = x->forbidden;
    x->request.n_forbidden = n_forbidden;
}

static void draw_small(small *x, uint64_t seed)
{
    static const char *const NAMES[TENSORS] = {"a", "b", "c", "d"};
    static const char *const SPEC[SPECS] = {"dither:bits=2", "dither:bits=6", "topk:density=0.02"};
    gen g = {.state = seed};
    memset(x, 0, sizeof *x);
    x->job = (gw_job){.name = "drawn", .tensors = x->tensor, .n = 2 + gen_below(&g, TENSORS - 1)};
    draw_cluster(x, &g);
    draw_routes(x, &g);
    double ready = 0;
    for (unsigned k = 0; k < SPECS; k++) {
        x->specs[k] = params_of(SPEC[k]);
    }
    for (size_t i = 0; i < x->job.n; i++) {
        ready += between(&g, 0, 8e-3);
        x->tensor[i] = (gw_job_tensor){
            .name = NAMES[i], .elements = 1000 + gen_below(&g, 2000000), .ready = ready};
        const double norm = between(&g, 0.1, 1);
        x->errors[i][0] = norm * between(&g, 0.5, 1);
        x->errors[i][1] = norm * between(&g, 0.02, 0.1);
        x->errors[i][2] = norm * between(&g, 0.3, 0.9);
        x->levels[i] = (gw_joint_tensor){.levels = x->specs,
                                         .errors = x->errors[i],
                                         .n = SPECS,
                                         .uniform = gen_below(&g, SPECS)};
    }
    x->job.backward = ready;
    x->request.tensors = x->levels;
    x->request.n_tensors = x->job.n;
    x->request.alpha = between(&g, 0.3, 1.5);
    x->request.no_fusion = 1;
}

/* Everything that is allowed, dominated or not, of one tensor. */
typedef struct everything {
    gw_class of[TENSORS];
    double error[TENSORS][1 + SPECS * ROUTES + ROUTES];
} everything;

static void price_everything(const small *x, gw_pricer *p, everything *e)
{
    p->devices = x->request.devices;
    for (size_t i = 0; i < x->job.n; i++) {
        gw_front_begin(&p->front, &p->rules);
        for (unsigned k = 0; k <= SPECS; k++) {
            for (uint32_t r = 0; r < x->n_kept; r++) {
                const gw_params *spec = k == 0 ? NULL : &x->specs[k - 1];
                const uint32_t hops = gw_route_encodes(&x->kept[r]);
                if ((hops == 0) != (k == 0)) {
                    continue;
                }
                e->error[i][p->front.n] = k == 0 ? 0 : hops * x->errors[i][k - 1];
                assert_int_equal(gw_price_one(p, x->tensor[i].elements, spec, &x->kept[r], NULL),
                                 GW_OK);
            }
        }
        assert_true(gw_front_seal(&p->front, 0, &e->of[i]));
    }
}

/* The shortest step within the budget, over every combination. */
static double enumerate(const small *x, double budget)
{
    static everything e;
    gw_pricer p;
    gw_timeline line;
    gw_ticks compute[TENSORS], before = 0, best = GW_NEVER;
    uint32_t at[TENSORS] = {0};
    const uint32_t n = (uint32_t)x->job.n;
    assert_int_equal(gw_pricer_create(&p, &x->cluster, 0, NULL), GW_OK);
    price_everything(x, &p, &e);
    for (uint32_t i = 0; i < n; i++) {
        compute[i] = gw_ticks_of(x->tensor[i].ready) - before;
        before += compute[i];
    }
    assert_int_equal(gw_timeline_create(&line, &p.rules, compute, n, GW_TIMELINE_MAX_OPS, NULL),
                     GW_OK);
    for (int more = 1; more;) {
        double error = 0;
        for (uint32_t i = 0; i < n; i++) {
            line.chain[i] = &e.of[i].choice[at[i]].chain;
            error += e.error[i][at[i]];
        }
        if (error <= budget) {
            gw_timeline_commit(&line, 0);
            best = line.makespan < best ? line.makespan : best;
        }
        uint32_t i = 0;
        while (i < n && ++at[i] == e.of[i].n) {
            at[i++] = 0;
        }
        more = i < n;
    }
    gw_timeline_destroy(&line);
    for (uint32_t i = 0; i < n; i++) {
        gw_class_free(&e.of[i]);
    }
    gw_pricer_destroy(&p);
    return (double)best * 1e-9;
}

static double error_of(const small *x, const gw_plan *plan)
{
    double sum = 0;
    for (size_t i = 0; i < x->job.n; i++) {
        gw_plan_entry entry;
        assert_int_equal(gw_plan_entry_at(plan, i, &entry), GW_OK);
        for (unsigned k = 0; k < SPECS; k++) {
            if (gw_params_equal(&entry.params, &x->specs[k])) {
                sum += gw_route_encodes(&entry.route) * x->errors[i][k];
            }
        }
    }
    return sum;
}

static uint64_t instances = 200;

static void against_everything(void **state)
{
    (void)state;
    static small x;
    double sum = 0, worst = 0, gap = 0, gained = 0;
    uint64_t exact = 0;
    for (uint64_t seed = FIRST_SEED; seed < FIRST_SEED + instances; seed++) {
        gw_plan *plan = NULL;
        gw_joint_report r;
        gw_why why = {""};
        const unsigned long long shown = seed;
        draw_small(&x, seed);
        const gw_status status = gw_joint_create(&x.job, &x.cluster, &x.request, &plan, &r, &why);
        CHECK(status == GW_OK, "seed %llu: %s", shown, why.text);
        const double best = enumerate(&x, r.budget), error = error_of(&x, plan);
        CHECK(error <= r.budget && error == r.error, "seed %llu: error %g (%g said) of %g", shown,
              error, r.error, r.budget);
        CHECK(r.step >= best - 1e-12, "seed %llu: %g is below the best, %g", shown, r.step, best);
        CHECK(r.lower_bound <= best + 1e-12, "seed %llu: a bound of %g above the best, %g", shown,
              r.lower_bound, best);
        CHECK(!(r.step > r.levels_alone) && !(r.step > r.routes_alone) && r.step <= r.dense,
              "seed %llu: %g; levels alone %g, routes alone %g, dense %g", shown, r.step,
              r.levels_alone, r.routes_alone, r.dense);
        CHECK(!(r.levels_error > r.budget) && !(r.routes_error > r.budget), "seed %llu", shown);
        exact += r.step <= best + 1e-12;
        sum += r.step / best - 1;
        worst = fmax(worst, r.step / best - 1);
        gap += r.step / r.lower_bound - 1;
        gained += fmin(r.levels_alone, r.routes_alone) / r.step - 1;
        gw_plan_destroy(plan);
    }
    const double n = (double)instances;
    print_message("exact in %.1f %%, mean excess %.3f %%, worst %.2f %%; certified gap %.2f %%; "
                  "%.1f %% faster than the better of both alone\n",
                  100 * (double)exact / n, 100 * sum / n, 100 * worst, 100 * gap / n,
                  100 * gained / n);
    assert_true(sum / n <= 0.005);
    assert_true(worst <= 0.25); /* choices that are taken to be dominated are not tried */
    assert_true((double)exact >= 0.9 * n);
}

/* ---- what it is for ---- */

static void plan_small(const small *x, gw_plan **plan, gw_joint_report *r)
{
    gw_why why = {""};
    const gw_status status = gw_joint_create(&x->job, &x->cluster, &x->request, plan, r, &why);
    CHECK(status == GW_OK, "%s", why.text);
}

/* Two equal tensors, one hidden behind a long backward pass, and budget for one: the other gets it. */
static void hidden_is_not_squeezed(void **state)
{
    (void)state;
    static small x;
    draw_small(&x, FIRST_SEED);
    gw_plan *plan = NULL;
    gw_joint_report r;
    gw_plan_entry first, last;
    x.job.n = x.request.n_tensors = 2;
    x.tensor[0] = (gw_job_tensor){.name = "hidden", .elements = 1000000, .ready = 0.001};
    x.tensor[1] = (gw_job_tensor){.name = "exposed", .elements = 1000000, .ready = 10};
    x.job.backward = 10;
    x.request.n_forbidden = 0;
    x.request.alpha = 0.5;
    x.cluster.inter.rate = 1e8;
    for (unsigned i = 0; i < 2; i++) {
        x.levels[i] = (gw_joint_tensor){.levels = x.specs, .errors = x.errors[i], .n = 1};
        x.errors[i][0] = 1;
    }
    plan_small(&x, &plan, &r);
    assert_int_equal(gw_plan_entry_at(plan, 0, &first), GW_OK);
    assert_int_equal(gw_plan_entry_at(plan, 1, &last), GW_OK);
    assert_null(first.params.codec);
    assert_non_null(last.params.codec);
    assert_true(r.error == 1 && r.budget == 1 && r.step < r.dense);
    assert_true(r.step < r.routes_alone); /* whose tensors have half an error each */
    gw_plan_destroy(plan);
}

static void budgets(void **state)
{
    (void)state;
    static small x;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        gw_plan *plan = NULL;
        gw_joint_report none, all;
        draw_small(&x, seed);
        x.request.alpha = 0;
        plan_small(&x, &plan, &none);
        for (size_t i = 0; i < x.job.n; i++) {
            gw_plan_entry entry;
            assert_int_equal(gw_plan_entry_at(plan, i, &entry), GW_OK);
            assert_null(entry.params.codec);
        }
        assert_true(none.error == 0 && none.budget == 0);
        gw_plan_destroy(plan);
        x.request.alpha = (double)INFINITY;
        plan_small(&x, &plan, &all);
        gw_plan_destroy(plan);
        assert_true(isinf(all.budget) && all.step <= none.step);
        CHECK(fabs(all.step - enumerate(&x, all.budget)) < 1e-9, "seed %llu: no budget, %g",
              (unsigned long long)seed, all.step);
        for (size_t i = 0; i < x.job.n; i++) { /* what loses nothing may be used at no budget */
            x.errors[i][0] = 0;
        }
        x.request.alpha = 0;
        plan_small(&x, &plan, &all);
        gw_plan_destroy(plan);
        assert_true(all.error == 0 && all.step <= none.step);
    }
}

static void same_again(void **state)
{
    (void)state;
    static small x;
    for (uint64_t seed = 50; seed < 55; seed++) {
        gw_plan *plan[2] = {NULL, NULL};
        gw_joint_report r[2];
        memset(r, 0, sizeof r);
        draw_small(&x, seed);
        x.request.no_fusion = 0;
        plan_small(&x, &plan[0], &r[0]);
        plan_small(&x, &plan[1], &r[1]);
        assert_memory_equal(&r[0], &r[1], sizeof r[0]);
        double seconds = 0;
        gw_plan_entry entries[TENSORS], other;
        for (size_t i = 0; i < x.job.n; i++) {
            assert_int_equal(gw_plan_entry_at(plan[0], i, &entries[i]), GW_OK);
            assert_int_equal(gw_plan_entry_at(plan[1], i, &other), GW_OK);
            assert_memory_equal(&entries[i], &other, sizeof other);
        }
        assert_int_equal(gw_plan_predict(&x.job, &x.cluster, entries, x.job.n, 0, &seconds, NULL),
                         GW_OK);
        CHECK(fabs(seconds - r[0].step) < 1e-9, "planned %g, predicted %g", r[0].step, seconds);
        assert_int_equal(
            gw_joint_bound_of(&x.job, &x.cluster, &x.request, entries, x.job.n, &seconds, NULL),
            GW_OK);
        CHECK(seconds == r[0].lower_bound, "bound %g, of the same buckets %g", r[0].lower_bound,
              seconds);
        gw_plan_destroy(plan[0]);
        gw_plan_destroy(plan[1]);
    }
}

/* The bound of given buckets is not above any plan with these buckets within the budget, whichever search made them. */
static void bounds_of_other_plans(void **state)
{
    (void)state;
    static small x;
    for (uint64_t seed = 70; seed < 90; seed++) {
        gw_plan *plan = NULL;
        gw_joint_report r;
        gw_plan_entry entries[TENSORS];
        double bound = 0, seconds = 0;
        draw_small(&x, seed);
        x.request.no_fusion = 0;
        plan_small(&x, &plan, &r);
        for (size_t i = 0; i < x.job.n; i++) {
            assert_int_equal(gw_plan_entry_at(plan, i, &entries[i]), GW_OK);
        }
        gw_plan_destroy(plan);
        x.request.no_fusion =
            1; /* of the plan that is found without it, and of that with buckets */
        assert_int_equal(
            gw_joint_bound_of(&x.job, &x.cluster, &x.request, entries, x.job.n, &bound, NULL),
            GW_OK);
        CHECK(bound <= r.step && bound > 0, "seed %llu: %g is above the plan's %g",
              (unsigned long long)seed, bound, r.step);
        plan_small(&x, &plan, &r);
        for (size_t i = 0; i < x.job.n; i++) {
            entries[i].bucket = (uint32_t)i;
        }
        gw_plan_destroy(plan);
        assert_int_equal(
            gw_joint_bound_of(&x.job, &x.cluster, &x.request, entries, x.job.n, &bound, NULL),
            GW_OK);
        seconds = enumerate(&x, r.budget); /* the best without fusion */
        CHECK(bound <= seconds + 1e-9, "seed %llu: %g is above the best, %g",
              (unsigned long long)seed, bound, seconds);
    }
    assert_int_equal(
        gw_joint_bound_of(&x.job, &x.cluster, &x.request, NULL, x.job.n, &(double){0}, NULL),
        GW_ERR_ARG);
}

/* ---- what is refused ---- */

static void refuse(const small *x, gw_status expected, const char *words)
{
    gw_plan *plan = NULL;
    gw_joint_report r;
    gw_why why = {""};
    const gw_status status = gw_joint_create(&x->job, &x->cluster, &x->request, &plan, &r, &why);
    CHECK(status == expected && strstr(why.text, words) != NULL, "%d: '%s', without '%s'",
          (int)status, why.text, words);
    assert_null(plan);
}

static void refused(void **state)
{
    (void)state;
    static small good, x;
    draw_small(&good, 3);
    x = good;
    x.request.tensors = x.levels;
    x.job.tensors = x.tensor;
    x.cluster.codecs = x.codecs;
    x.request.forbidden = x.forbidden;
    for (unsigned i = 0; i < TENSORS; i++) {
        x.levels[i].levels = x.specs;
        x.levels[i].errors = x.errors[i];
    }
    x.errors[1][1] = (double)NAN;
    refuse(&x, GW_ERR_RANGE, "tensor 'b': the error of level 1 (dither) is");
    x.errors[1][1] = -1;
    refuse(&x, GW_ERR_RANGE, "is -1");
    x.errors[1][1] = (double)INFINITY;
    refuse(&x, GW_ERR_RANGE, "is inf");
    x.errors[1][1] = 0.1;
    x.request.alpha = (double)NAN;
    refuse(&x, GW_ERR_RANGE, "times the default's error");
    x.request.alpha = -1;
    refuse(&x, GW_ERR_RANGE, "the budget is -1 times");
    x.request.alpha = 1;
    x.request.n_tensors--;
    refuse(&x, GW_ERR_ARG, "the job has");
    x.request.n_tensors++;
    x.levels[0].uniform = SPECS;
    refuse(&x, GW_ERR_RANGE, "level 3 is the default, of 3");
    x.levels[0].uniform = 0;
    x.specs[1] = x.specs[0];
    refuse(&x, GW_ERR_ARG, "is there twice");
    x.specs[1] = params_of("sign");
    refuse(&x, GW_ERR_UNKNOWN, "does not say what sign costs");
    x.specs[1] = good.specs[1];
    for (uint32_t i = 0; i < x.n_kept; i++) { /* everything has to be compressed */
        if (gw_route_encodes(&x.kept[i]) == 0) {
            x.forbidden[x.request.n_forbidden++] = x.kept[i];
        }
    }
    x.request.alpha = 1e-3;
    refuse(&x, GW_ERR_RANGE, "budget");
    x.request.alpha = 0;
    refuse(&x, GW_ERR_RANGE, "keeps within the budget of 0");
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "all") == 0) {
        instances = 2000;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_everything),
                                       cmocka_unit_test(hidden_is_not_squeezed),
                                       cmocka_unit_test(budgets),
                                       cmocka_unit_test(same_again),
                                       cmocka_unit_test(bounds_of_other_plans),
                                       cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
