/* What profile finds on a device whose clock is made up: the times that were put in, and noise by its name. */
#include "support/check.h"

#include "cli/profile/profile.h"
#include "cuda/emulated/pace.h"

#include <dlfcn.h>

/* Of the device: found anew for every test, as the library is. */
static gw_emulated_times *pace;
static void *library;

static int set_up(void **state)
{
    gw_cuda *cuda = NULL;
    gw_why why = {""};
    CHECK(gw_cuda_open(GW_TESTS_EMULATED, &cuda, &why) == GW_OK, "%s", why.text);
    library = dlopen(GW_TESTS_EMULATED, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    pace = dlsym(library, GW_EMULATED_PACE);
    assert_non_null(pace);
    *pace = (gw_emulated_times){
        .made_up = 1, .launch = 2e-3, .latency = {8e-6, 9e-6}, .rate = {50e9, 40e9}};
    *state = cuda;
    return 0;
}

static int tear_down(void **state)
{
    gw_cuda_close(*state);
    return dlclose(library);
}

/* What the profile asks of the device, looked at on its way. */
static size_t due_encodings, other_encodings;
static const void *left; /* due_after of the last of the largest size */

gw_status __real_gw_cuda_encode(const gw_cuda *cuda, void *stream, const gw_params *params,
                                const gw_cuda_source *tensors, size_t n, gw_workspace workspace,
                                gw_why *why);
gw_status __wrap_gw_cuda_encode(const gw_cuda *cuda, void *stream, const gw_params *params,
                                const gw_cuda_source *tensors, size_t n, gw_workspace workspace,
                                gw_why *why);
gw_status __wrap_gw_cuda_encode(const gw_cuda *cuda, void *stream, const gw_params *params,
                                const gw_cuda_source *tensors, size_t n, gw_workspace workspace,
                                gw_why *why)
{
    if (tensors->due == NULL) {
        other_encodings++;
    } else {
        CHECK(left == NULL || tensors->in.count < 64 * 1024 || tensors->due == left,
              "a step reads %p, the last left %p", tensors->due, left);
        left = tensors->in.count == 64 * 1024 ? tensors->due_after : NULL;
        due_encodings++;
    }
    return __real_gw_cuda_encode(cuda, stream, params, tensors, n, workspace, why);
}

static double now(void *arg)
{
    (void)arg;
    return pace->now;
}

static double point(const json_t *codecs, size_t spec, size_t i, const char *key)
{
    const json_t *points = json_object_get(json_array_get(codecs, spec), "points");
    return json_number_value(json_object_get(json_array_get(points, i), key));
}

#define CHECK_NEAR(a, b) CHECK((a) > 0.999 * (b) && (a) < 1.001 * (b), "%g, not %g", (a), (b))

static void times_are_those_of_the_device(void **state)
{
    enum { MOST = 64 * 1024, N_SIZES = 5 };
    const char *const specs[] = {"cast:to=bf16", "randk:density=0.01"};
    gw_cli_meter m = {.clock = now};
    gw_cli_link_fit copies[2];
    gw_why why = {""};
    json_t *codecs = json_array();
    pace->block = 0.5e-3; /* few repeats: blocks are slow to emulate */
    const gw_status status =
        gw_cli_profile_cuda(&m, (gw_cuda_place){*state, 0}, specs, 2, MOST, codecs, copies, &why);
    CHECK(status == GW_OK, "%s", why.text);
    assert_int_equal(m.measured, 4 + 2 * 2 * N_SIZES);
    assert_ptr_equal(m.clock, now);
    assert_int_equal(json_array_size(codecs), 2);
    for (size_t i = 0; i < N_SIZES; i++) {
        CHECK_NEAR(point(codecs, 0, i, "bytes"), 1024.0 * (double)(1 << 2 * i));
    }
    CHECK_NEAR(point(codecs, 0, 0, "encode_us"), 2500.0); /* one launch of one block */
    CHECK_NEAR(point(codecs, 0, 0, "decode_us"), 2500.0);
    CHECK(point(codecs, 0, N_SIZES - 1, "encode_us") >= 2900, "more numbers, more blocks: %g us",
          point(codecs, 0, N_SIZES - 1, "encode_us"));
    const double one = point(codecs, 0, N_SIZES - 1, "encode_us"),
                 several = point(codecs, 1, N_SIZES - 1, "encode_us");
    CHECK(several > one + 2000, "another launch: %g us, one %g us", several, one);
    for (int way = 0; way < 2; way++) {
        CHECK_NEAR(copies[way].latency, pace->latency[way] + 1024 / pace->rate[way]);
        CHECK_NEAR(copies[way].rate, pace->rate[way]);
    }
    assert_int_equal(gw_cli_meter_verdict(&m, &why), GW_OK);
    json_decref(codecs);
}

/* As the runtime does: adacomp's r′ is settled by the next step, where it is large enough for that to pay. */
static void what_is_due_stays_due(void **state)
{
    const char *const spec = "adacomp";
    gw_cli_meter m = {.clock = now};
    gw_cli_link_fit copies[2];
    gw_why why = {""};
    json_t *codecs = json_array();
    gw_params params;
    size_t bytes = 0;
    pace->block = 0.5e-3;
    assert_int_equal(gw_params_parse(&params, spec, &why), GW_OK);
    assert_int_equal(gw_cuda_due_bytes(*state, &params, 64 * 1024, &bytes), GW_OK);
    assert_int_not_equal(bytes, 0);
    due_encodings = other_encodings = 0;
    left = NULL;
    const gw_status status = gw_cli_profile_cuda(&m, (gw_cuda_place){*state, 0}, &spec, 1,
                                                 64 * 1024, codecs, copies, &why);
    CHECK(status == GW_OK, "%s", why.text);
    CHECK(due_encodings > 10, "%zu encodings left something due, %zu not", due_encodings,
          other_encodings);
    json_decref(codecs);
}

static void a_noisy_device_is_named(void **state)
{
    const char *const spec = "cast:to=bf16";
    gw_cli_meter m = {.clock = now};
    gw_cli_link_fit copies[2];
    gw_why why = {""};
    json_t *codecs = json_array();
    pace->swing = 1;
    const gw_status status =
        gw_cli_profile_cuda(&m, (gw_cuda_place){*state, 0}, &spec, 1, 1024, codecs, copies, &why);
    CHECK(status == GW_OK, "%s", why.text);
    assert_int_equal(gw_cli_meter_verdict(&m, &why), GW_ERR_STATE);
    CHECK(strstr(why.text, "4 of 8 measurements") && strstr(why.text, "on the device"), "%s",
          why.text);
    json_decref(codecs);
}

static void what_fails_is_named(void **state)
{
    const char *const wrong = "cast:to=f99", *const fine = "cast:to=bf16";
    gw_cli_meter m = {.clock = now};
    gw_cli_link_fit copies[2];
    gw_why why = {""};
    json_t *codecs = json_array();
    const gw_cuda_place at = {*state, 0}, other = {*state, 1};
    CHECK(gw_cli_profile_cuda(&m, at, &wrong, 1, 1024, codecs, copies, &why) != GW_OK, "%s", wrong);
    CHECK(strstr(why.text, "f99"), "%s", why.text);
    CHECK(gw_cli_profile_cuda(&m, other, &fine, 1, 1024, codecs, copies, &why) != GW_OK,
          "a device %d", 1);
    CHECK(strstr(why.text, "device"), "%s", why.text);
    json_decref(codecs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(times_are_those_of_the_device, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_due_stays_due, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_noisy_device_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_fails_is_named, set_up, tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
