/* Measurements by a clock that is made up: what is steady is taken, what is not is named. */
#include "support/check.h"

#include "cli/measure/meter.h"

/* Each work takes what the script says, over and over; between works no time passes. */
typedef struct script {
    const double *seconds;
    size_t n, at;
    double now;
} script;

static double now(void *arg)
{
    return ((script *)arg)->now;
}

static gw_status work(void *arg, uint32_t repeats, gw_why *why)
{
    script *s = arg;
    (void)why;
    s->now += repeats * s->seconds[s->at++ % s->n];
    return GW_OK;
}

static gw_cli_measured measure(gw_cli_meter *m, script *s, const char *what)
{
    gw_cli_measured out;
    gw_why why = {""};
    m->clock = now;
    m->arg = s;
    const gw_status status = gw_cli_measure(m, what, work, s, &out, &why);
    CHECK(status == GW_OK, "%s", why.text);
    return out;
}

static void steady_is_taken(void **state)
{
    const double one[] = {0.010},
                 odd[] = {0.010, 0.011, 0.010, 0.010, 0.200, 0.010, 0.011, 0.010, 0.009};
    gw_cli_meter m = {0};
    script s = {one, 1, 0, 0};
    gw_why why = {""};
    (void)state;
    gw_cli_measured found = measure(&m, &s, "a");
    CHECK(found.seconds > 0.0099 && found.seconds < 0.0101, "%g s", found.seconds);
    assert_int_equal(found.samples, GW_CLI_SAMPLES);
    s = (script){odd, 9, 0, 0}; /* one outlier among many */
    found = measure(&m, &s, "b");
    CHECK(found.seconds > 0.0099 && found.seconds < 0.0101, "%g s", found.seconds);
    CHECK(found.deviation > 0.01, "the outlier is in the deviation: %g", found.deviation);
    assert_int_equal(gw_cli_meter_verdict(&m, &why), GW_OK);
    assert_int_equal(m.measured, 2);
}

static void noise_is_refused_by_name(void **state)
{
    const double one[] = {0.010}, noise[] = {0.010, 0.020, 0.010, 0.020, 0.030};
    gw_cli_meter m = {0};
    script s = {one, 1, 0, 0};
    gw_why why = {""};
    (void)state;
    (void)measure(&m, &s, "the quiet one");
    s = (script){noise, 5, 0, 0};
    (void)measure(&m, &s, "the loud one");
    assert_int_equal(gw_cli_meter_verdict(&m, &why), GW_ERR_STATE);
    CHECK(strstr(why.text, "1 of 2 measurements") && strstr(why.text, "the loud one") &&
              strstr(why.text, "--force") && !strstr(why.text, "quiet one"),
          "%s", why.text);
}

/* One of ten may vary by a third, two may not, and none by half. */
static void a_little_noise_is_taken(void **state)
{
    const double one[] = {0.010}, third[] = {0.0100, 0.0100, 0.0135, 0.0135, 0.0120},
                 much[] = {0.010, 0.010, 0.018, 0.018, 0.014};
    gw_why why = {""};
    (void)state;
    for (int wild = 0; wild < 2; wild++) {
        gw_cli_meter m = {0};
        script s = {one, 1, 0, 0};
        for (int i = 0; i < 18; i++) {
            (void)measure(&m, &s, "a quiet one");
        }
        s = wild ? (script){much, 5, 0, 0} : (script){third, 5, 0, 0};
        (void)measure(&m, &s, "the first");
        assert_int_equal(gw_cli_meter_verdict(&m, &why), wild ? GW_ERR_STATE : GW_OK);
        s = (script){third, 5, 0, 0};
        (void)measure(&m, &s, "the second");
        (void)measure(&m, &s, "the third");
        assert_int_equal(gw_cli_meter_verdict(&m, &why), GW_ERR_STATE);
    }
}

/* The first try is noise, the second is not: it counts. */
static void a_quiet_moment_is_enough(void **state)
{
    double seconds[1 + 2 * GW_CLI_SAMPLES];
    gw_cli_meter m = {0};
    gw_why why = {""};
    (void)state;
    for (size_t i = 0; i < 1 + 2 * GW_CLI_SAMPLES; i++) {
        seconds[i] = i > GW_CLI_SAMPLES ? 0.010 : i % 2 ? 0.05 : 0.01;
    }
    script s = {seconds, 1 + 2 * GW_CLI_SAMPLES, 0, 0};
    const gw_cli_measured found = measure(&m, &s, "a");
    CHECK(found.seconds > 0.0099 && found.seconds < 0.0101, "%g s", found.seconds);
    assert_int_equal(gw_cli_meter_verdict(&m, &why), GW_OK);
    assert_int_equal(s.at, 1 + 2 * GW_CLI_SAMPLES); /* and no third */
}

/* What is too short for the clock is repeated within a sample; what is long is sampled less. */
static void samples_fit_what_is_measured(void **state)
{
    const double brief[] = {1e-6}, lasting[] = {0.5};
    gw_cli_meter m = {0};
    script s = {brief, 1, 0, 0};
    (void)state;
    gw_cli_measured found = measure(&m, &s, "brief");
    CHECK(found.seconds > 0.9e-6 && found.seconds < 1.1e-6, "%g s", found.seconds);
    CHECK(s.now > GW_CLI_SAMPLES * 0.9e-3, "samples of %g s", s.now / GW_CLI_SAMPLES);
    s = (script){lasting, 1, 0, 0};
    found = measure(&m, &s, "lasting");
    CHECK(found.samples >= 5 && found.samples < GW_CLI_SAMPLES, "%u samples", found.samples);
}

/* Twice as long or not: nobody waits for 20 µs. */
static void what_is_brief_may_vary(void **state)
{
    const double brief[] = {20e-6, 40e-6, 20e-6, 40e-6, 60e-6};
    gw_cli_meter m = {0};
    script s = {brief, 5, 0, 0};
    gw_why why = {""};
    (void)state;
    (void)measure(&m, &s, "brief");
    assert_int_equal(gw_cli_meter_verdict(&m, &why), GW_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steady_is_taken),          cmocka_unit_test(noise_is_refused_by_name),
        cmocka_unit_test(a_little_noise_is_taken),  cmocka_unit_test(what_is_brief_may_vary),
        cmocka_unit_test(a_quiet_moment_is_enough), cmocka_unit_test(samples_fit_what_is_measured)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
