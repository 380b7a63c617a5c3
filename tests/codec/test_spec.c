/* Spec strings: what is meant is read, what is not is refused by name. */
#include "support/check.h"

static void good_specs(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"natural", "natural:bits=8"},
        {"natural:bits=9", "natural:bits=9"},
        {"cast", "cast:to=bf16"},
        {"cast:to=f32", "cast:to=f32"},
        {"dither:bucket=128,bits=3", "dither:bits=3,bucket=128,norm=max,rounding=stochastic"},
        {"dither:rounding=nearest", "dither:bits=4,bucket=512,norm=max,rounding=nearest"},
        {"ndither:norm=max", "ndither:bits=4,bucket=512,norm=max"},
        {"topk:density=0.1", "topk:density=0.1,values=f32"},
        {"topk:density=0.00001,values=natural", "topk:density=0.00001,values=natural"},
        {"randk", "randk:density=0.01,values=f32"},
        {"adacomp:bin=50,factor=1.5", "adacomp:bin=50,factor=1.5,cap=0"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const gw_params p = params_of(pairs[i][0]);
        char text[128];
        assert_int_equal(gw_params_print(&p, text, sizeof text), GW_OK);
        assert_string_equal(text, pairs[i][1]);
        assert_int_equal(gw_params_print(&p, text, strlen(pairs[i][1])), GW_ERR_CAPACITY);
    }
}

/* What the shape decides, unless the spec says. */
static void specs_for_a_shape(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        size_t n_dims;
        const char *printed;
    } cases[] = {{"adacomp", 4, "adacomp:bin=50,factor=2,cap=0"},
                 {"adacomp", 3, "adacomp:bin=50,factor=2,cap=0"},
                 {"adacomp", 2, "adacomp:bin=500,factor=2,cap=0"},
                 {"adacomp", 0, "adacomp:bin=500,factor=2,cap=0"},
                 {"adacomp:factor=3", 4, "adacomp:bin=50,factor=3,cap=0"},
                 {"adacomp:bin=500", 4, "adacomp:bin=500,factor=2,cap=0"},
                 {"adacomp:bin=64", 2, "adacomp:bin=64,factor=2,cap=0"},
                 {"dither", 4, "dither:bits=4,bucket=512,norm=max,rounding=stochastic"}};
    const uint64_t dims[4] = {8, 8, 3, 3};
    gw_params p;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];
        gw_why why = {""};
        CHECK(gw_params_parse_for(&p, cases[i].spec, dims, cases[i].n_dims, &why) == GW_OK, "%s",
              why.text);
        assert_int_equal(gw_params_print(&p, text, sizeof text), GW_OK);
        assert_string_equal(text, cases[i].printed);
    }
    assert_int_equal(gw_params_parse_for(&p, "adacomp:bin=0", dims, 4, NULL), GW_ERR_RANGE);
    assert_int_equal(gw_params_parse_for(&p, "adacomp", NULL, 4, NULL), GW_ERR_ARG);
}

static void bad_specs(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *words;
        gw_status status;
    } cases[] = {
        {"", "no codec named '' (there are: cast, natural, ", GW_ERR_UNKNOWN},
        {"zip", "no codec named 'zip'", GW_ERR_UNKNOWN},
        {"natural:", "'' is not of the form key=value", GW_ERR_ARG},
        {"natural:bits", "'bits' is not of the form key=value", GW_ERR_ARG},
        {"natural:bits=8,", "'' is not of the form key=value", GW_ERR_ARG},
        {"natural:bitz=8", "no parameter 'bitz' (it has: bits)", GW_ERR_UNKNOWN},
        {"natural:bits=8,bits=9", "'bits' is given twice", GW_ERR_ARG},
        {"natural:bits=", "bits= is not a whole number", GW_ERR_ARG},
        {"natural:bits=8x", "bits=8x is not a whole number", GW_ERR_ARG},
        {"natural:bits=nan", "bits=nan is not a whole number", GW_ERR_ARG},
        {"natural:bits= 8", "is not a whole number", GW_ERR_ARG},
        {"natural:bits=1e1", "is not a whole number", GW_ERR_ARG},
        {"natural:bits=8888888888", "is not one of 8 to 9", GW_ERR_RANGE},
        {"natural:bits=8888888888888888", "is not a whole number", GW_ERR_ARG},
        {"natural:bits=8.0", "is not a whole number", GW_ERR_ARG},
        {"topk:density=.1", "is not a number", GW_ERR_ARG},
        {"topk:density=1.", "is not a number", GW_ERR_ARG},
        {"topk:density=0.0.1", "is not a number", GW_ERR_ARG},
        {"topk:density=0", "density=0 is not one of", GW_ERR_RANGE},
        {"topk:density=1.5", "density=1.5 is not one of", GW_ERR_RANGE},
        {"natural:bits=7", "bits=7 is not one of 8 to 9", GW_ERR_RANGE},
        {"dither:bits=9", "bits=9 is not one of 2 to 8", GW_ERR_RANGE},
        {"dither:bucket=32", "bucket=32 is not one of 64 to 8192", GW_ERR_RANGE},
        {"dither:bucket=500", "bucket=500 is not a power of two", GW_ERR_RANGE},
        {"dither:norm=l3", "norm=l3 is not one of max, l2", GW_ERR_UNKNOWN},
        {"dither:rounding=up", "rounding=up is not one of stochastic, nearest", GW_ERR_UNKNOWN},
        {"cast:to=f64", "to=f64 is not one of f32, f16, bf16", GW_ERR_UNKNOWN},
        {"ndither:rounding=nearest", "no parameter 'rounding'", GW_ERR_UNKNOWN}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_params p, before;
        gw_why why = {""};
        memset(&p, 0x5A, sizeof p);
        before = p;
        const gw_status status = gw_params_parse(&p, cases[i].spec, &why);
        CHECK(status == cases[i].status, "'%s': status %d", cases[i].spec, status);
        CHECK(strstr(why.text, cases[i].words) != NULL, "'%s': says '%s'", cases[i].spec, why.text);
        assert_memory_equal(&p, &before, sizeof p); /* untouched */
        assert_int_equal(gw_params_parse(&p, cases[i].spec, NULL), cases[i].status);
    }
    char long_spec[1000];
    gw_params p;
    memset(long_spec, 'a', sizeof long_spec);
    long_spec[sizeof long_spec - 1] = '\0';
    assert_int_equal(gw_params_parse(&p, long_spec, NULL), GW_ERR_ARG);
    assert_int_equal(gw_params_parse(&p, NULL, NULL), GW_ERR_ARG);
    p = params_of("dither");
    p.value[0] = 4.5; /* set by hand: checked by every call */
    size_t bytes = 0;
    assert_int_equal(gw_payload_bound(&p, 10, &bytes), GW_ERR_RANGE);
    assert_int_equal(gw_codec_grain(&p), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_specs),
        cmocka_unit_test(specs_for_a_shape),
        cmocka_unit_test(bad_specs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
