/* The rules of auto, fed with windows: no clock, no ranks. And its line of text. */
#include "support/check.h"

#include "control/auto.h"

#include <math.h>

static gw_auto_judge judge_of(double predicted, double lost)
{
    gw_auto_judge j;
    gw_auto_judge_begin(&j, 0.5, 1);
    gw_auto_judge_bound(&j, GW_AUTO_START, 1, predicted, lost);
    return j;
}

/* Windows of ten steps, noise and squared norm 1 unless told. */
static int feed(gw_auto_judge *j, uint64_t *step, double seconds, double loss)
{
    const gw_auto_seen w = {.step = *step += 10,
                            .seconds = seconds,
                            .loss = loss,
                            .told = !isnan(loss),
                            .noise = 1,
                            .squares = 1};
    return gw_auto_judge_window(j, &w, 0, 0);
}

static const double NONE = (double)NAN;

/* ---- time ---- */

static void first_window_calibrates_and_two_outside_say_so(void **state)
{
    (void)state;
    gw_auto_judge j = judge_of(0.010, 0);
    uint64_t step = 0;
    assert_int_equal(feed(&j, &step, 0.030, NONE), GW_AUTO_NO_REASON); /* three times: so be it */
    assert_int_equal(feed(&j, &step, 0.035, NONE), GW_AUTO_NO_REASON);
    assert_int_equal(feed(&j, &step, 0.037, NONE), GW_AUTO_NO_REASON);
    assert_int_equal(feed(&j, &step, 0.030, NONE), GW_AUTO_NO_REASON); /* one is none */
    assert_int_equal(feed(&j, &step, 0.037, NONE), GW_AUTO_NO_REASON);
    assert_int_equal(feed(&j, &step, 0.023, NONE), GW_AUTO_NO_REASON); /* nor two on either side */
    assert_int_equal(feed(&j, &step, 0.023, NONE), GW_AUTO_FASTER);
    gw_auto_judge_bound(&j, GW_AUTO_FASTER, 1, 0.010, 0);
    assert_int_equal(feed(&j, &step, 0.022, NONE), GW_AUTO_NO_REASON);
    assert_int_equal(feed(&j, &step, 0.030, NONE), GW_AUTO_NO_REASON);
    assert_int_equal(feed(&j, &step, 0.030, NONE), GW_AUTO_SLOWER);
}

/* Half as long again, or two thirds: the link has changed. */
static void far_outside_one_window_is_enough(void **state)
{
    (void)state;
    gw_auto_judge j = judge_of(0.010, 0);
    uint64_t step = 0;
    (void)feed(&j, &step, 0.020, NONE);
    assert_int_equal(feed(&j, &step, 0.031, NONE), GW_AUTO_SLOWER);
    gw_auto_judge_bound(&j, GW_AUTO_SLOWER, 0, 0.010, 0); /* in vain: now it takes two */
    (void)feed(&j, &step, 0.030, NONE);
    assert_int_equal(feed(&j, &step, 0.019, NONE), GW_AUTO_NO_REASON);
    assert_int_equal(feed(&j, &step, 0.019, NONE), GW_AUTO_FASTER);
}

static int feed_link(gw_auto_judge *j, uint64_t *step, double link)
{
    const gw_auto_seen w = {
        .step = *step += 10, .seconds = 0.02, .noise = 1, .squares = 1, .link = link};
    return gw_auto_judge_window(j, &w, 0, 0);
}

/* Though steps take what they took. */
static void a_link_three_times_as_fast_twice_says_so(void **state)
{
    (void)state;
    gw_auto_judge j = judge_of(0.010, 0);
    uint64_t step = 0;
    assert_int_equal(feed_link(&j, &step, 5), GW_AUTO_NO_REASON);
    assert_int_equal(feed_link(&j, &step, 2.9), GW_AUTO_NO_REASON); /* not in a row */
    assert_int_equal(feed_link(&j, &step, 5), GW_AUTO_NO_REASON);
    assert_int_equal(feed_link(&j, &step, 3), GW_AUTO_FASTER);
    gw_auto_judge_bound(&j, GW_AUTO_FASTER, 0, 0.010,
                        0); /* in vain: twice as often the next time */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(feed_link(&j, &step, 5), GW_AUTO_NO_REASON);
    }
    assert_int_equal(feed_link(&j, &step, 5), GW_AUTO_FASTER);
    gw_auto_judge_bound(&j, GW_AUTO_FASTER, 1, 0.010, 0);
    assert_int_equal(feed_link(&j, &step, 6), GW_AUTO_FASTER); /* so much once is enough */
}

/* Where steps take what they should, only a link that may have become faster is worth the time. */
static void a_period_measures_the_link_only_where_glances_ask_for_it(void **state)
{
    (void)state;
    gw_auto_judge j = judge_of(0.010, 0);
    uint64_t step = 0;
    assert_true(gw_auto_judge_wants_link(&j, GW_AUTO_START));
    assert_true(gw_auto_judge_wants_link(&j, GW_AUTO_PERIODIC)); /* nobody looked */
    (void)feed_link(&j, &step, 0);
    assert_true(gw_auto_judge_wants_link(&j, GW_AUTO_PERIODIC)); /* nor saw anything */
    (void)feed_link(&j, &step, 1.1);
    assert_false(gw_auto_judge_wants_link(&j, GW_AUTO_PERIODIC));
    (void)feed_link(&j, &step, 0.3);
    assert_false(gw_auto_judge_wants_link(&j, GW_AUTO_QUIET));
    assert_true(gw_auto_judge_wants_link(&j, GW_AUTO_SLOWER));
    assert_true(gw_auto_judge_wants_link(&j, GW_AUTO_FASTER));
    assert_true(gw_auto_judge_wants_link(&j, GW_AUTO_RECOVERED));
    assert_false(gw_auto_judge_wants_link(&j, GW_AUTO_ERROR));
    (void)feed_link(&j, &step, 2.9);
    assert_true(gw_auto_judge_wants_link(&j, GW_AUTO_PERIODIC));
    (void)feed_link(&j, &step, 1);
    assert_false(gw_auto_judge_wants_link(&j, GW_AUTO_PERIODIC));
}

/* Re-planning that changes nothing: twice as many windows each time, up to 16; a period halves it, a switch ends it. */
static void patience_grows_where_planning_is_in_vain(void **state)
{
    (void)state;
    static const int windows[] = {2, 4, 8, 16, 16};
    gw_auto_judge j = judge_of(0.010, 0);
    uint64_t step = 0;
    double seconds = 0.010;
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        (void)feed(&j, &step, seconds, NONE); /* calibrates */
        seconds *= 1.4;
        for (int k = 1; k < windows[i]; k++) {
            assert_int_equal(feed(&j, &step, seconds, NONE), GW_AUTO_NO_REASON);
        }
        assert_int_equal(feed(&j, &step, seconds, NONE), GW_AUTO_SLOWER);
        gw_auto_judge_bound(&j, GW_AUTO_SLOWER, 0, 0.010, 0);
    }
    assert_int_equal(j.patience, 8);
    (void)gw_auto_judge_period(&j);
    assert_int_equal(j.patience, 4);
    gw_auto_judge_bound(&j, GW_AUTO_SLOWER, 1, 0.010, 0);
    assert_int_equal(j.patience, 1);
}

/* A plan of times that were others' work: steps are longer than with the one before. */
static void a_plan_that_makes_steps_longer_is_seen(void **state)
{
    (void)state;
    gw_auto_judge j = judge_of(0.040, 0);
    uint64_t step = 0;
    (void)feed(&j, &step, 0.040, NONE);
    gw_auto_judge_bound(&j, GW_AUTO_PERIODIC, 1, 0.050, 0);
    assert_int_equal(feed(&j, &step, 0.050, NONE), GW_AUTO_NO_REASON);
    assert_int_equal(feed(&j, &step, 0.050, NONE), GW_AUTO_SLOWER);
    gw_auto_judge_bound(&j, GW_AUTO_ERROR, 1, 0.200, 0); /* less error may take longer */
    assert_int_equal(feed(&j, &step, 0.200, NONE), GW_AUTO_NO_REASON);
    assert_int_equal(feed(&j, &step, 0.200, NONE), GW_AUTO_NO_REASON);
}

/* ---- error ---- */

static void alpha_shrinks_and_grows_with_the_noise(void **state)
{
    (void)state;
    gw_auto_judge j = judge_of(0.010, 0.8);
    uint64_t step = 0;
    assert_int_equal(feed(&j, &step, 0.010, NONE), GW_AUTO_NO_REASON);
    assert_int_equal(feed(&j, &step, 0.010, NONE), GW_AUTO_ERROR);
    gw_auto_judge_act(&j, GW_AUTO_ERROR, step);
    assert_true(j.alpha == 0.5);
    gw_auto_judge_bound(&j, GW_AUTO_ERROR, 1, 0.010, 0.2); /* neither loud nor quiet */
    assert_int_equal(gw_auto_judge_period(&j), GW_AUTO_PERIODIC);
    gw_auto_judge_bound(&j, GW_AUTO_PERIODIC, 1, 0.010, 0.1);
    assert_int_equal(gw_auto_judge_period(&j), GW_AUTO_QUIET);
    assert_true(j.alpha == 0.75);
    assert_int_equal(gw_auto_judge_period(&j), GW_AUTO_QUIET); /* not back to what was too much */
    assert_true(j.alpha == 0.9);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(gw_auto_judge_period(&j), GW_AUTO_PERIODIC);
    }
    for (int i = 0; i < 20; i++) {
        (void)gw_auto_judge_period(&j);
    }
    assert_true(j.alpha == 4);
    j.lost = 1;
    for (int i = 0; i < 10; i++) {
        gw_auto_judge_act(&j, GW_AUTO_ERROR, step);
    }
    assert_true(j.alpha == 0.0625);
    assert_int_equal(feed(&j, &step, 0.010, NONE), GW_AUTO_NO_REASON); /* no less is to be had */
    assert_int_equal(feed(&j, &step, 0.010, NONE), GW_AUTO_NO_REASON);
}

/* Tables are old: errors grow with gradients. */
static void error_follows_the_gradients(void **state)
{
    (void)state;
    gw_auto_judge j = judge_of(0.010, 0.1);
    j.noise = j.squares = j.squares_then = 1;
    assert_true(gw_auto_noise_ratio(&j, 0.1) == 0.1);
    j.squares = 4;
    assert_true(gw_auto_noise_ratio(&j, 0.1) == 0.4);
    assert_true(gw_auto_noise_ratio(&j, 0) == 0);
}

/* ---- loss ---- */

/* Falls, with noise of a tenth of it, to 0.05 and stays. */
static double usual_loss(int window)
{
    static const double noise[] = {0.2, -0.3, 0.1, 0.3, -0.2, 0, -0.1, 0.25};
    return (0.05 + 2.2 * exp(-window / 4.0)) * (1 + noise[window % 8]);
}

static void noise_is_no_divergence(void **state)
{
    (void)state;
    gw_auto_judge j = judge_of(0.010, 0);
    uint64_t step = 0;
    for (int i = 0; i < 300; i++) {
        assert_int_equal(feed(&j, &step, 0.010, usual_loss(i)), GW_AUTO_NO_REASON);
    }
}

static void a_spike_falls_back_and_recovers(void **state)
{
    (void)state;
    gw_auto_judge j = judge_of(0.010, 0);
    uint64_t step = 0;
    for (int i = 0; i < 12; i++) {
        (void)feed(&j, &step, 0.010, usual_loss(i));
    }
    assert_int_equal(feed(&j, &step, 0.010, 3), GW_AUTO_NO_REASON);
    assert_int_equal(feed(&j, &step, 0.010, 2.5), GW_AUTO_DIVERGING);
    gw_auto_judge_act(&j, GW_AUTO_DIVERGING, step);
    gw_auto_judge_bound(&j, GW_AUTO_DIVERGING, 1, 0.1, 0);
    int windows = 0;
    while (feed(&j, &step, 0.1, 0.25) == GW_AUTO_NO_REASON) {
        windows++;
    }
    assert_in_range(windows, 1, 6);
    gw_auto_judge_act(&j, GW_AUTO_RECOVERED, step);
    assert_true(j.alpha == 0.5 && j.fallen == GW_AUTO_NO_REASON);
    assert_int_equal(feed(&j, &step, 0.1, 0.25), GW_AUTO_NO_REASON);
    assert_int_equal(feed(&j, &step, 0.1, 0.25), GW_AUTO_NO_REASON);
}

/* A loss that stays high is tried again after 100 steps, and then is the new measure. */
static void what_stays_high_is_tried_again(void **state)
{
    (void)state;
    gw_auto_judge j = judge_of(0.010, 0);
    uint64_t step = 0;
    for (int i = 0; i < 12; i++) {
        (void)feed(&j, &step, 0.010, 0.5);
    }
    (void)feed(&j, &step, 0.010, (double)INFINITY);
    assert_int_equal(feed(&j, &step, 0.010, (double)INFINITY), GW_AUTO_DIVERGING);
    gw_auto_judge_act(&j, GW_AUTO_DIVERGING, step);
    const uint64_t fell = step;
    while (feed(&j, &step, 0.010, 3) == GW_AUTO_NO_REASON) {
    }
    assert_int_equal(step, fell + 100);
    gw_auto_judge_act(&j, GW_AUTO_RECOVERED, step);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(feed(&j, &step, 0.010, 3), GW_AUTO_NO_REASON);
    }
}

static void three_bad_steps_of_a_window_are_a_burst(void **state)
{
    (void)state;
    gw_auto_judge j = judge_of(0.010, 0.6);
    gw_auto_seen w = {
        .step = 10, .seconds = NONE, .loss = NONE, .bad = 2, .noise = NONE, .squares = NONE};
    assert_int_equal(gw_auto_judge_window(&j, &w, 0, 1), GW_AUTO_NO_REASON);
    w.bad = 3; /* also while a plan is made */
    assert_int_equal(gw_auto_judge_window(&j, &w, 0, 1), GW_AUTO_NON_FINITE);
    gw_auto_judge_act(&j, GW_AUTO_NON_FINITE, 10);
    w.bad = 1;
    assert_int_equal(gw_auto_judge_window(&j, &w, 0, 0), GW_AUTO_NO_REASON);
    w.bad = 0;
    assert_int_equal(gw_auto_judge_window(&j, &w, 0, 0), GW_AUTO_NO_REASON);
    assert_int_equal(gw_auto_judge_window(&j, &w, 0, 0), GW_AUTO_RECOVERED);
}

/* ---- text ---- */

static void a_line_of_text_says_all(void **state)
{
    (void)state;
    gw_auto_spec s;
    gw_why why = {""};
    assert_true(gw_auto_spec_is("auto") && gw_auto_spec_is("auto:period=40") &&
                gw_auto_spec_is("auto/dither") && !gw_auto_spec_is("automatic"));
    assert_int_equal(gw_auto_spec_parse("auto", &s, &why), GW_OK);
    assert_true(s.n_families == 0 && s.alpha == 0 && s.limit == 0 && s.period == 0);
    assert_int_equal(
        gw_auto_spec_parse("auto:alpha=2,limit=0.25,period=100/dither:bits=4/topk:density=0.01", &s,
                           &why),
        GW_OK);
    assert_true(s.n_families == 2 && s.alpha == 2 && s.limit == 0.25 && s.period == 100);
}

static void wrong_text_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } wrong[] = {{"auto:", "alpha="},
                 {"auto:alpha", "'alpha'"},
                 {"auto:alpha=5", "'alpha=5'"},
                 {"auto:alpha=nan", "'alpha=nan'"},
                 {"auto:limit=0", "'limit=0'"},
                 {"auto:period=39", "'period=39'"},
                 {"auto:period=40.5", "'period=40.5'"},
                 {"auto:speed=1", "'speed=1'"},
                 {"auto:alpha=1,", "''"},
                 {"auto/", "codec"},
                 {"auto/nothing", "nothing"},
                 {"auto/dither:bits=4/dither:bits=5", "twice"},
                 {"auto/lowrank:rank=0", "rank"},
                 {"autopilot", "autopilot"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        gw_auto_spec s;
        gw_why why = {""};
        if (gw_auto_spec_parse(wrong[i].text, &s, &why) == GW_OK ||
            strstr(why.text, wrong[i].says) == NULL) {
            print_error("'%s': '%s'\n", wrong[i].text, why.text);
            fail();
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_window_calibrates_and_two_outside_say_so),
        cmocka_unit_test(far_outside_one_window_is_enough),
        cmocka_unit_test(a_link_three_times_as_fast_twice_says_so),
        cmocka_unit_test(a_period_measures_the_link_only_where_glances_ask_for_it),
        cmocka_unit_test(patience_grows_where_planning_is_in_vain),
        cmocka_unit_test(a_plan_that_makes_steps_longer_is_seen),
        cmocka_unit_test(alpha_shrinks_and_grows_with_the_noise),
        cmocka_unit_test(error_follows_the_gradients),
        cmocka_unit_test(noise_is_no_divergence),
        cmocka_unit_test(a_spike_falls_back_and_recovers),
        cmocka_unit_test(what_stays_high_is_tried_again),
        cmocka_unit_test(three_bad_steps_of_a_window_are_a_burst),
        cmocka_unit_test(a_line_of_text_says_all),
        cmocka_unit_test(wrong_text_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
