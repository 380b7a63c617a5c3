/* The chooser: within the budget, never worse than the default, the optimum where that can be known, and the same from
 * the same records. Numbers in brackets are checks of section 10 of our notes on L-GreCo. */
#include <math.h>

#include "adapt/tables.h"

#include "adapt/solver.h"

#include <fenv.h>

static table t, u; /* too large for a stack */
static answer a, b;

static void check_sums(const table *problem, const answer *got, double alpha, const char *what)
{
    uint64_t bytes;
    const double error = sums(problem, got->levels, &bytes);
    CHECK(got->c.bytes == bytes && got->c.error == error, "%s: sums are not those of the levels",
          what);
    if (got->c.outcome <= GW_ADAPT_UNIFORM) {
        CHECK(error <= got->c.budget, "%s: error %.17g above the budget %.17g", what, error,
              got->c.budget);
        CHECK(got->c.lower_bound <= bytes, "%s: bound %llu above %llu bytes", what,
              (unsigned long long)got->c.lower_bound, (unsigned long long)bytes);
    }
    if (alpha >= 1) {
        CHECK(got->c.outcome <= GW_ADAPT_UNIFORM, "%s: the default itself was found too bad", what);
        CHECK(bytes <= got->c.uniform_bytes, "%s: more bytes than the default", what);
    }
}

/* [1] [2] */
static void within_the_budget_and_never_worse(void **state)
{
    (void)state;
    gen g = {1};
    for (int i = 0; i < 10000; i++) {
        const int large = i % 100 == 99;
        const uint32_t levels = 1 + gen_below(&g, large ? 64 : 8);
        const size_t layers = 1 + gen_below(&g, large ? MOST_LAYERS : 12);
        const double alpha = i % 3 == 0 ? 1 : 3 * gen_uniform(&g);
        char what[64];
        (void)snprintf(what, sizeof what, "case %d, alpha %g", i, alpha);
        table_fill(&t, &g, (table_kind)(i % TABLE_KINDS), layers, levels);
        choose(&t, alpha, GW_ADAPT_DYNAMIC, large ? 1000 : 1 + gen_below(&g, 300), &a);
        check_sums(&t, &a, alpha, what);
        choose(&t, alpha, GW_ADAPT_FAST, 0, &b);
        check_sums(&t, &b, alpha, what);
        CHECK(a.c.bytes <= b.c.bytes, "%s: the programme is worse than the fast path", what);
        CHECK(a.c.outcome > GW_ADAPT_UNIFORM || b.c.lower_bound <= a.c.bytes,
              "%s: the fast path's bound is wrong", what);
    }
}

/* [3] */
static void optimum_of_small_tables(void **state)
{
    (void)state;
    gen g = {3};
    int wrong = 0, fast = 0, cases = 3000;
    for (int i = 0; i < cases; i++) {
        const double alpha = i % 2 == 0 ? 1 : 2 * gen_uniform(&g);
        table_fill(&t, &g, (table_kind)(i % TABLE_KINDS), 1 + gen_below(&g, 6),
                   1 + gen_below(&g, 5));
        choose(&t, alpha, GW_ADAPT_DYNAMIC, 10000, &a);
        const uint64_t best = search(&t, a.c.budget);
        CHECK((best == UINT64_MAX) == (a.c.outcome == GW_ADAPT_INFEASIBLE),
              "case %d: feasible or not?", i);
        if (best != UINT64_MAX) {
            choose(&t, alpha, GW_ADAPT_FAST, 0, &b);
            wrong += a.c.bytes != best;
            fast += b.c.bytes != best;
            CHECK(a.c.lower_bound <= best, "case %d: bound %llu, optimum %llu", i,
                  (unsigned long long)a.c.lower_bound, (unsigned long long)best);
        }
    }
    CHECK(wrong * 1000 <= cases, "%d of %d are not the optimum", wrong, cases);
    CHECK(fast * 20 <= cases, "%d of %d by the fast path are not the optimum", fast, cases);
}

/* The programme without the search behind it or the fast path before it: bytes, and the bound. */
static uint64_t programme_alone(const table *problem, double alpha, uint32_t buckets,
                                uint64_t *bound, double *budget)
{
    static uint8_t memory[1 << 22];
    const gw_adapt_problem p = {problem->layers, problem->n, alpha, GW_ADAPT_DYNAMIC, buckets};
    gw_solver s = {.problem = &p, .best_bytes = UINT64_MAX};
    uint32_t trial[8], best[8];
    gw_arena arena = gw_arena_over((gw_workspace){memory, sizeof memory});
    for (size_t l = 0; l < problem->n; l++) {
        s.uniform_error += problem->layers[l].errors[problem->layers[l].uniform];
    }
    s.budget = alpha * s.uniform_error;
    s.trial = trial;
    s.best = best;
    gw_dynamic_measure(&s);
    gw_units_cut(&arena, &s);
    gw_dynamic_cut(&arena, &s);
    assert_false(arena.failed);
    assert_int_equal(gw_units_build(&s, NULL), GW_OK);
    gw_dynamic_solve(&s);
    *bound = s.lower_bound;
    *budget = s.budget;
    return s.best_bytes;
}

/* [4] and the bound of [3], with few buckets, where they matter */
static void guarantee_of_the_programme(void **state)
{
    (void)state;
    gen g = {4};
    int off = 0;
    for (int i = 0; i < 2000; i++) {
        const uint32_t buckets = 20 + gen_below(&g, 200);
        const double alpha = 0.3 + 2 * gen_uniform(&g);
        double budget = 0;
        uint64_t bound = 0;
        table_fill(&t, &g, (table_kind)(i % TABLE_KINDS), 1 + gen_below(&g, 5),
                   1 + gen_below(&g, 5));
        const uint64_t bytes = programme_alone(&t, alpha, buckets, &bound, &budget);
        if (budget == 0) {
            continue; /* not the programme's to solve */
        }
        const uint64_t best = search(&t, budget);
        const uint64_t promised = search(&t, budget * (1 - (double)t.n / buckets) * (1 - 1e-9));
        CHECK(bytes >= best, "case %d: better than the optimum", i);
        CHECK(bytes <= promised, "case %d: %llu bytes, promised %llu", i, (unsigned long long)bytes,
              (unsigned long long)promised);
        CHECK(bound <= best, "case %d: bound %llu, optimum %llu", i, (unsigned long long)bound,
              (unsigned long long)best);
        off += bytes != best;
    }
    CHECK(off > 0 && off <= 12, "%d of 2000 off the optimum: is it the programme that ran?", off);
}

/* [5] */
static void more_is_never_worse(void **state)
{
    (void)state;
    gen g = {5};
    for (int i = 0; i < 600; i++) {
        const uint32_t levels = 2 + gen_below(&g, 4);
        table_fill(&t, &g, (table_kind)(i % TABLE_KINDS), 1 + gen_below(&g, 6), levels);
        uint64_t before = UINT64_MAX;
        double alpha = 0.25;
        while (alpha < 4) {
            choose(&t, alpha, GW_ADAPT_DYNAMIC, 1000, &a);
            if (a.c.outcome <= GW_ADAPT_UNIFORM) {
                CHECK(a.c.bytes <= before, "case %d: more bytes at alpha %g", i, alpha);
                before = a.c.bytes;
            }
            alpha *= 1.001 + 0.3 * gen_uniform(&g);
        }
        const size_t l = gen_below(&g, (uint32_t)t.n);
        choose(&t, 1, GW_ADAPT_DYNAMIC, 1000, &a);
        t.errors[l][levels] = gen_uniform(&g) * t.errors[l][0];
        t.bytes[l][levels] = gen_below(&g, 100) * t.bytes[l][0] / 50;
        t.layers[l].n++;
        choose(&t, 1, GW_ADAPT_DYNAMIC, 1000, &b);
        CHECK(b.c.bytes <= a.c.bytes, "case %d: a level more, and more bytes", i);
        /* one that another beats */
        t.errors[l][levels] = t.errors[l][1] * 1.5 + 1;
        t.bytes[l][levels] = t.bytes[l][1] + 1;
        choose(&t, 1, GW_ADAPT_DYNAMIC, 1000, &b);
        assert_memory_equal(a.levels, b.levels, t.n * sizeof a.levels[0]);
    }
}

/* [6] */
static void units_and_order_do_not_matter(void **state)
{
    (void)state;
    gen g = {6};
    static const double factors[] = {3.7, 1e-20, 1e20, 0x1p-40};
    for (int i = 0; i < 400; i++) {
        const table_kind kind = i % 2 == 0 ? TABLE_RANDOM : TABLE_SMOOTH;
        table_fill(&t, &g, kind, 1 + gen_below(&g, 30), 1 + gen_below(&g, 20));
        choose(&t, 1, GW_ADAPT_DYNAMIC, 2000, &a);
        for (size_t l = 0; l < t.n; l++) {
            const size_t to = t.n - 1 - l;
            u.layers[to] = t.layers[l];
            u.layers[to].errors = u.errors[to];
            u.layers[to].bytes = u.bytes[to];
            for (uint32_t k = 0; k < t.layers[l].n; k++) {
                u.errors[to][k] = t.errors[l][k];
                u.bytes[to][k] = t.bytes[l][k];
            }
        }
        u.n = t.n;
        choose(&u, 1, GW_ADAPT_DYNAMIC, 2000, &b);
        CHECK(a.c.bytes == b.c.bytes, "case %d: another order of layers, another choice", i);
        for (size_t l = 0; l < t.n; l++) {
            for (uint32_t k = 0; k < t.layers[l].n; k++) {
                t.errors[l][k] *= factors[i % 4];
                t.bytes[l][k] *= 3;
            }
        }
        choose(&t, 1, GW_ADAPT_DYNAMIC, 2000, &b);
        CHECK(memcmp(a.levels, b.levels, t.n * sizeof a.levels[0]) == 0 &&
                  b.c.bytes == 3 * a.c.bytes,
              "case %d: another unit of error, another choice", i);
    }
}

static uint64_t lossless_bytes(const table *problem)
{
    uint64_t sum = 0;
    for (size_t l = 0; l < problem->n; l++) {
        uint64_t least = UINT64_MAX;
        for (uint32_t k = 0; k < problem->layers[l].n; k++) {
            if (problem->errors[l][k] == 0 && problem->bytes[l][k] < least) {
                least = problem->bytes[l][k];
            }
        }
        sum += least;
    }
    return sum;
}

/* [7] */
static void no_budget_and_all_of_it(void **state)
{
    (void)state;
    gen g = {7};
    for (int i = 0; i < 200; i++) {
        table_fill(&t, &g, (table_kind)(i % TABLE_KINDS), 1 + gen_below(&g, 40),
                   2 + gen_below(&g, 9));
        choose(&t, INFINITY, GW_ADAPT_DYNAMIC, 0, &a);
        for (size_t l = 0; l < t.n; l++) {
            for (uint32_t k = 0; k < t.layers[l].n; k++) {
                CHECK(t.bytes[l][a.levels[l]] <= t.bytes[l][k], "case %d: not the smallest", i);
            }
            t.errors[l][1] = 0; /* lossless, and dear */
            t.bytes[l][1] = 1u << 30;
        }
        choose(&t, 0, GW_ADAPT_DYNAMIC, 0, &a);
        assert_true(a.c.outcome <= GW_ADAPT_UNIFORM && a.c.error == 0 && a.c.budget == 0);
        CHECK(a.c.bytes == lossless_bytes(&t), "case %d: not the smallest without loss", i);
    }
}

/* [8] */
static void errors_that_are_no_numbers(void **state)
{
    (void)state;
    gen g = {8};
    static const double bad[] = {NAN, INFINITY, -INFINITY, -1};
    for (int i = 0; i < 400; i++) {
        table_fill(&t, &g, TABLE_RANDOM, 1 + gen_below(&g, 5), 4);
        const size_t l = gen_below(&g, (uint32_t)t.n);
        t.layers[l].uniform = 0;
        t.errors[l][1 + gen_below(&g, 3)] = bad[i % 4];
        choose(&t, 1, GW_ADAPT_DYNAMIC, 500, &a);
        assert_int_equal(a.c.unusable, 1);
        CHECK(a.c.bytes == search(&t, a.c.budget), "case %d: an unusable level is no level", i);
        t.errors[l][0] = bad[i % 4]; /* the default's own */
        choose(&t, 1, GW_ADAPT_DYNAMIC, 500, &a);
        assert_int_equal(a.c.outcome, GW_ADAPT_NO_BUDGET);
        assert_int_equal(a.c.lower_bound, 0);
        for (size_t k = 0; k < t.n; k++) {
            assert_int_equal(a.levels[k], t.layers[k].uniform);
        }
    }
}

static void no_way_keeps_the_default(void **state)
{
    (void)state;
    gen g = {9};
    table_fill(&t, &g, TABLE_SMOOTH, 5, 6);
    choose(&t, 1e-3, GW_ADAPT_DYNAMIC, 0, &a);
    assert_int_equal(a.c.outcome, GW_ADAPT_INFEASIBLE);
    for (size_t l = 0; l < t.n; l++) {
        assert_int_equal(a.levels[l], t.layers[l].uniform);
    }
    assert_true(a.c.bytes == a.c.uniform_bytes && a.c.error == a.c.uniform_error);
    /* every level of a layer is pinned away or unusable */
    t.layers[2].first = 3;
    t.layers[2].allowed = 1;
    t.layers[2].uniform = 1;
    t.errors[2][3] = NAN;
    choose(&t, 5, GW_ADAPT_DYNAMIC, 0, &a);
    assert_int_equal(a.c.outcome, GW_ADAPT_INFEASIBLE);
}

static void ends_of_the_range(void **state)
{
    (void)state;
    gen g = {10};
    table_fill(&t, &g, TABLE_SMOOTH, 4, 1); /* one level */
    choose(&t, 1, GW_ADAPT_DYNAMIC, 1, &a);
    assert_true(a.c.outcome == GW_ADAPT_UNIFORM && a.c.lower_bound == a.c.bytes);
    t.n = 0; /* zero layers */
    choose(&t, 1, GW_ADAPT_DYNAMIC, 0, &a);
    assert_true(a.c.outcome == GW_ADAPT_UNIFORM && a.c.bytes == 0 && a.c.error == 0);
    table_fill(&t, &g, TABLE_RANDOM, 3, 4); /* ties: the same level four times; the first of them */
    for (size_t l = 0; l < 3; l++) {
        for (uint32_t k = 1; k < 4; k++) {
            t.errors[l][k] = t.errors[l][0];
            t.bytes[l][k] = t.bytes[l][0];
        }
    }
    t.layers[0].uniform = t.layers[1].uniform = t.layers[2].uniform = 2;
    choose(&t, 2, GW_ADAPT_DYNAMIC, 0, &a);
    assert_int_equal(a.c.outcome, GW_ADAPT_UNIFORM);
    choose(&t, 2, GW_ADAPT_DYNAMIC, 0, &b);
    assert_true(a.c.checksum == b.c.checksum);
}

static void wrong_problems_are_refused(void **state)
{
    (void)state;
    gen g = {11};
    table_fill(&t, &g, TABLE_RANDOM, 3, 4);
    const gw_adapt_problem good = {t.layers, 3, 1, GW_ADAPT_DYNAMIC, 100};
    size_t size;
    gw_adapt_problem p = good;
    p.alpha = NAN;
    assert_int_equal(gw_adapt_workspace(&p, &size), GW_ERR_RANGE);
    p.alpha = -1;
    assert_int_equal(gw_adapt_workspace(&p, &size), GW_ERR_RANGE);
    p = good;
    p.buckets = GW_ADAPT_MOST_BUCKETS + 1;
    assert_int_equal(gw_adapt_workspace(&p, &size), GW_ERR_RANGE);
    p = good;
    t.layers[1].uniform = 4;
    assert_int_equal(gw_adapt_workspace(&p, &size), GW_ERR_RANGE);
    t.layers[1].uniform = 0;
    t.layers[1].first = 2;
    t.layers[1].allowed = 3;
    assert_int_equal(gw_adapt_workspace(&p, &size), GW_ERR_RANGE);
    t.layers[1].first = t.layers[1].allowed = 0;
    t.layers[1].group = 4; /* of three layers */
    assert_int_equal(gw_adapt_workspace(&p, &size), GW_ERR_RANGE);
    t.layers[1].group = 0;
    t.bytes[2][1] = (uint64_t)1 << 60;
    assert_int_equal(gw_adapt_workspace(&p, &size), GW_ERR_RANGE);
    t.bytes[2][1] = 5;
    assert_int_equal(gw_adapt_workspace(&p, &size), GW_OK);
    a.c.levels = a.levels;
    a.c.checksum = 77;
    gw_workspace w = {malloc(size), size - 64};
    assert_int_equal(gw_adapt_choose(&p, w, &a.c, NULL), GW_ERR_WORKSPACE);
    t.layers[0].group = t.layers[2].group = 1;
    t.layers[2].n = 3;
    t.layers[2].uniform = 0;
    w.size = size;
    gw_why why = {""};
    assert_int_equal(gw_adapt_choose(&p, w, &a.c, &why), GW_ERR_ARG);
    assert_non_null(strstr(why.text, "layer 2"));
    assert_int_equal(a.c.checksum, 77); /* untouched */
    free(w.data);
}

/* Floors, caps, pins and groups, against trying everything that keeps to them. */
static void limits_and_groups(void **state)
{
    (void)state;
    gen g = {12};
    for (int i = 0; i < 1500; i++) {
        const uint32_t levels = 2 + gen_below(&g, 4);
        table_fill(&t, &g, (table_kind)(i % TABLE_KINDS), 1 + gen_below(&g, 6), levels);
        for (size_t l = 0; l < t.n; l++) {
            gw_adapt_layer *layer = &t.layers[l];
            if (gen_below(&g, 3) == 0) {
                layer->first = gen_below(&g, levels);
                layer->allowed = gen_below(&g, levels - layer->first + 1);
            }
            layer->group = gen_below(&g, 2) == 0 ? 1 + gen_below(&g, (uint32_t)t.n) : 0;
        }
        choose(&t, 1.2, GW_ADAPT_DYNAMIC, 0, &a);
        const uint64_t best = search(&t, a.c.budget);
        CHECK((best == UINT64_MAX) == (a.c.outcome == GW_ADAPT_INFEASIBLE), "case %d: feasible?",
              i);
        CHECK(best == UINT64_MAX || a.c.bytes == best, "case %d: %llu bytes, optimum %llu", i,
              (unsigned long long)a.c.bytes, (unsigned long long)best);
        for (size_t l = 0; l < t.n && best != UINT64_MAX; l++) {
            CHECK(table_allows(&t.layers[l], a.levels[l]), "case %d: not allowed", i);
            for (size_t k = 0; k < l; k++) {
                CHECK(t.layers[l].group == 0 || t.layers[l].group != t.layers[k].group ||
                          a.levels[l] == a.levels[k],
                      "case %d: a group of two minds", i);
            }
        }
    }
}

/* [9 of section 9, 14]: the same records, the same choice, whatever the thread's rounding; another choice, another
 * checksum. */
static void same_records_same_choice(void **state)
{
    (void)state;
    gen g = {13};
    table_fill(&t, &g, TABLE_SMOOTH, 100, 30);
    choose(&t, 1, GW_ADAPT_DYNAMIC, 3000, &a);
    const int before = fegetround();
    assert_int_equal(fesetround(FE_UPWARD), 0);
    choose(&t, 1, GW_ADAPT_DYNAMIC, 3000, &b);
    (void)fesetround(before);
    assert_memory_equal(a.levels, b.levels, sizeof a.levels);
    assert_true(a.c.checksum == b.c.checksum && a.c.error == b.c.error &&
                a.c.lower_bound == b.c.lower_bound);
    choose(&t, 1.1, GW_ADAPT_DYNAMIC, 3000, &b);
    assert_true(a.c.checksum != b.c.checksum);
}

/* [17], but for the time: bench/adapt.c */
static void large_problem(void **state)
{
    (void)state;
    gen g = {14};
    size_t size = 0;
    table_fill(&t, &g, TABLE_SMOOTH, 400, 121);
    const gw_adapt_problem p = {t.layers, t.n, 1, GW_ADAPT_DYNAMIC, 10000};
    assert_int_equal(gw_adapt_workspace(&p, &size), GW_OK);
    CHECK(size <= 20 * 1000 * 1000, "%zu bytes of workspace", size);
    choose(&t, 1, GW_ADAPT_DYNAMIC, 10000, &a);
    check_sums(&t, &a, 1, "large");
    choose(&t, 1, GW_ADAPT_FAST, 0, &b);
    CHECK((double)b.c.bytes <= 1.01 * (double)a.c.bytes, "fast path: %llu bytes, programme: %llu",
          (unsigned long long)b.c.bytes, (unsigned long long)a.c.bytes);
    CHECK((double)a.c.lower_bound >= 0.999 * (double)a.c.bytes, "a loose bound");
    CHECK((double)a.c.bytes < 0.9 * (double)a.c.uniform_bytes, "hardly any gain");
}

/* [13] */
static void accordion_moves_the_budget(void **state)
{
    (void)state;
    gen g = {15};
    enum { LOW = 1, HIGH = 4 };
    table_fill(&t, &g, TABLE_SMOOTH, 6, 6);
    for (int way = 0; way < 2; way++) {
        const double eta = way == 0 ? 0 : INFINITY;
        double expected = 0;
        for (size_t l = 0; l < t.n; l++) {
            const double old = l == 0 ? 0 : gen_uniform(&g);
            t.layers[l].uniform = gw_adapt_is_critical(old, gen_uniform(&g), eta) ? HIGH : LOW;
            expected += t.errors[l][way == 0 ? HIGH : LOW];
        }
        choose(&t, 1, GW_ADAPT_DYNAMIC, 0, &a);
        assert_true(a.c.budget == expected);
    }
    assert_true(gw_adapt_is_critical(0, 1, 0.5) && gw_adapt_is_critical(1, 2, 0.5));
    assert_false(gw_adapt_is_critical(1, 1.2, 0.5));
    assert_true(gw_adapt_is_critical(1, NAN, 0.5) && gw_adapt_is_critical(NAN, 1, 0.5));
}

/* ---- defects of the published code ---- */

/* 1: rounding made the default itself cost more than the budget. */
static void lgreco_1_the_default_is_within_its_own_budget(void **state)
{
    (void)state;
    gen g = {16};
    for (int i = 0; i < 200; i++) {
        table_fill(&t, &g, TABLE_SMOOTH, 1 + gen_below(&g, 50), 2);
        for (size_t l = 0; l < t.n;
             l++) { /* the default has the least error: nothing else is within */
            t.layers[l].uniform = 1;
        }
        choose(&t, 1, GW_ADAPT_DYNAMIC, 100, &a);
        assert_int_equal(a.c.outcome, GW_ADAPT_UNIFORM);
        assert_true(a.c.lower_bound == a.c.uniform_bytes || t.n > 20);
    }
}

/* 2: without a solution it walked marks of −1 and gave levels below the lowest. */
static void lgreco_2_no_solution_is_said(void **state)
{
    (void)state;
    gen g = {17};
    table_fill(&t, &g, TABLE_SMOOTH, 8, 5);
    choose(&t, 1e-9, GW_ADAPT_DYNAMIC, 0, &a);
    assert_int_equal(a.c.outcome, GW_ADAPT_INFEASIBLE);
    for (size_t l = 0; l < t.n; l++) {
        assert_true(a.levels[l] < t.layers[l].n);
    }
}

/* 3: a NaN became a large negative number of buckets, the best bargain of all. */
static void lgreco_3_a_nan_is_not_a_bargain(void **state)
{
    (void)state;
    gen g = {18};
    table_fill(&t, &g, TABLE_SMOOTH, 3, 5);
    t.layers[1].uniform = 2;
    t.errors[1][0] = NAN; /* and the fewest bytes */
    choose(&t, 1, GW_ADAPT_DYNAMIC, 0, &a);
    assert_true(a.c.outcome <= GW_ADAPT_UNIFORM && a.levels[1] != 0);
}

/* 16: halved ranks were fractions, and then indices. Here a default is an index, checked. */
static void lgreco_16_a_default_is_one_of_the_levels(void **state)
{
    (void)state;
    gen g = {19};
    table_fill(&t, &g, TABLE_SMOOTH, 3, 5);
    t.layers[1].uniform = 5;
    const gw_adapt_problem p = {t.layers, t.n, 1, GW_ADAPT_DYNAMIC, 0};
    a.c.levels = a.levels;
    gw_why why = {""};
    assert_int_equal(gw_adapt_choose(&p, (gw_workspace){0}, &a.c, &why), GW_ERR_RANGE);
    assert_non_null(strstr(why.text, "layer 1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(within_the_budget_and_never_worse),
        cmocka_unit_test(optimum_of_small_tables),
        cmocka_unit_test(guarantee_of_the_programme),
        cmocka_unit_test(more_is_never_worse),
        cmocka_unit_test(units_and_order_do_not_matter),
        cmocka_unit_test(no_budget_and_all_of_it),
        cmocka_unit_test(errors_that_are_no_numbers),
        cmocka_unit_test(no_way_keeps_the_default),
        cmocka_unit_test(ends_of_the_range),
        cmocka_unit_test(wrong_problems_are_refused),
        cmocka_unit_test(limits_and_groups),
        cmocka_unit_test(same_records_same_choice),
        cmocka_unit_test(large_problem),
        cmocka_unit_test(accordion_moves_the_budget),
        cmocka_unit_test(lgreco_1_the_default_is_within_its_own_budget),
        cmocka_unit_test(lgreco_2_no_solution_is_said),
        cmocka_unit_test(lgreco_3_a_nan_is_not_a_bargain),
        cmocka_unit_test(lgreco_16_a_default_is_one_of_the_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
