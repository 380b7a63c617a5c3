/* Law 6: no CUDA is an error with a name, and so is every wrong argument, before anything is launched. */
#include "support/check.h"

#include <gradwire/cuda.h>

static void an_absent_library_is_named(void **state)
{
    (void)state;
    gw_cuda *cuda = NULL;
    gw_why why = {""};
    assert_int_equal(gw_cuda_open("/nowhere/libgradwire_cuda.so", &cuda, &why), GW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "no CUDA"));
    assert_non_null(strstr(why.text, "/nowhere/libgradwire_cuda.so"));
    assert_int_equal(gw_cuda_open("libm.so.6", &cuda, &why), GW_ERR_VERSION);
    assert_non_null(strstr(why.text, "libm.so.6 is not a libgradwire_cuda"));
    assert_null(cuda);
    gw_cuda_close(NULL);
}

/* The real library, where it was built: with a device it opens, without it says so. */
static void an_absent_device_is_named(void **state)
{
    (void)state;
    gw_cuda *cuda = NULL;
    gw_why why = {""};
    if (strlen(GW_TESTS_CUDA) == 0) {
        print_message("skip: no nvcc, so no libgradwire_cuda\n");
        skip();
    }
    const gw_status status = gw_cuda_open(GW_TESTS_CUDA, &cuda, &why);
    if (status == GW_OK) {
        assert_true(gw_cuda_has(cuda, gw_codec_find("cast")));
    } else {
        assert_int_equal(status, GW_ERR_UNSUPPORTED);
        CHECK(strstr(why.text, "no CUDA device: ") == why.text, "said: %s", why.text);
    }
    gw_cuda_close(cuda);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    gw_cuda *cuda = NULL;
    gw_why why = {""};
    assert_int_equal(gw_cuda_open(GW_TESTS_EMULATED, &cuda, &why), GW_OK);
    enum { N = 100 };
    static float x[N], r[N], after[N];
    static uint8_t bytes[1000];
    gw_cuda_result result = {0};
    const gw_workspace none = {0};
    const gw_params p = params_of("cast:to=bf16");
    const gw_cuda_source good = {
        .in = {x, N, GW_F32}, .payload = bytes, .capacity = 2 * N, .result = &result};
    assert_int_equal(gw_cuda_encode(cuda, NULL, &p, &good, 1, none, &why), GW_OK);
    assert_int_equal(gw_cuda_encode(NULL, NULL, &p, &good, 1, none, &why), GW_ERR_ARG);
    assert_int_equal(gw_cuda_encode(cuda, NULL, NULL, &good, 1, none, &why), GW_ERR_ARG);
    assert_int_equal(gw_cuda_encode(cuda, NULL, &p, NULL, 1, none, &why), GW_ERR_ARG);
    assert_int_equal(gw_cuda_encode(cuda, NULL, &p, NULL, 0, none, &why), GW_OK);
    const struct {
        gw_cuda_source source;
        gw_status expected;
    } wrong[] = {
        {{.in = {x, N, GW_F32}, .payload = bytes, .capacity = 2 * N - 1, .result = &result},
         GW_ERR_CAPACITY},
        {{.in = {x, N, GW_F32}, .payload = NULL, .capacity = 2 * N, .result = &result}, GW_ERR_ARG},
        {{.in = {NULL, N, GW_F32}, .payload = bytes, .capacity = 2 * N, .result = &result},
         GW_ERR_ARG},
        {{.in = {(uint8_t *)x + 1, N - 1, GW_F32},
          .payload = bytes,
          .capacity = 2 * N,
          .result = &result},
         GW_ERR_ARG},
        {{.in = {x, N, (gw_dtype)9}, .payload = bytes, .capacity = 2 * N, .result = &result},
         GW_ERR_ARG},
        {{.in = {x, N, GW_F32}, .payload = bytes, .capacity = 2 * N, .result = NULL}, GW_ERR_ARG},
        {{.in = {x, N, GW_F32},
          .residual = r,
          .payload = bytes,
          .capacity = 2 * N,
          .result = &result},
         GW_ERR_ARG},
        {{.in = {x, N, GW_F32},
          .residual = r,
          .residual_after = r,
          .payload = bytes,
          .capacity = 2 * N,
          .result = &result},
         GW_ERR_ARG},
        {{.in = {x, N, GW_F32},
          .key = {.first = 100},
          .payload = bytes,
          .capacity = 2 * N,
          .result = &result},
         GW_ERR_RANGE},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const gw_status status = gw_cuda_encode(cuda, NULL, &p, &wrong[i].source, 1, none, &why);
        CHECK(status == wrong[i].expected, "case %zu: %s", i, gw_status_string(status));
    }
    /* a list must be of one kind */
    gw_cuda_source mixed[2] = {good, good};
    mixed[1].residual = r;
    mixed[1].residual_after = after;
    assert_int_equal(gw_cuda_encode(cuda, NULL, &p, mixed, 2, none, &why), GW_ERR_ARG);
    assert_non_null(strstr(why.text, "tensor 1"));
    const gw_cuda_payload payload = {bytes, 2 * N, NULL}, shorter = {bytes, 2 * N - 1, NULL},
                          longer = {bytes, 2 * N + 1, NULL};
    gw_cuda_sink sink = {&payload, 1, {x, N, GW_F32}, GW_SET, 1, &result};
    assert_int_equal(gw_cuda_decode(cuda, NULL, &p, &sink, 1, none, &why), GW_OK);
    sink.payloads = &shorter;
    assert_int_equal(gw_cuda_decode(cuda, NULL, &p, &sink, 1, none, &why), GW_ERR_TRUNCATED);
    sink.payloads = &longer;
    assert_int_equal(gw_cuda_decode(cuda, NULL, &p, &sink, 1, none, &why), GW_ERR_CORRUPT);
    sink.payloads = &payload;
    sink.divisor = 0;
    assert_int_equal(gw_cuda_decode(cuda, NULL, &p, &sink, 1, none, &why), GW_ERR_ARG);
    sink.divisor = 1;
    sink.n_payloads = GW_CUDA_MAX_PAYLOADS + 1;
    assert_int_equal(gw_cuda_decode(cuda, NULL, &p, &sink, 1, none, &why), GW_ERR_ARG);
    gw_cuda_close(cuda);
}

static void wrong_dues_are_refused(void **state)
{
    (void)state;
    gw_cuda *cuda = NULL;
    gw_why why = {""};
    assert_int_equal(gw_cuda_open(GW_TESTS_EMULATED, &cuda, &why), GW_OK);
    enum { N = 3000 };
    static float x[N], r[N], after[N];
    static _Alignas(256) uint8_t bytes[N], due[2][4096], room[1 << 16];
    gw_cuda_result result = {0};
    const gw_params p = params_of("adacomp:bin=255"), small = params_of("adacomp:bin=50"),
                    never = params_of("sign");
    size_t need = 0;
    assert_int_equal(gw_cuda_due_bytes(cuda, &p, N, &need), GW_OK);
    assert_true(need != 0 && need % 256 == 0 && need <= sizeof due[0]);
    assert_int_equal(gw_cuda_due_bytes(cuda, &small, N, &need), GW_OK);
    assert_int_equal(need, 0);
    assert_int_equal(gw_cuda_due_bytes(cuda, &never, N, &need), GW_OK);
    assert_int_equal(need, 0);
    assert_int_equal(gw_cuda_due_bytes(cuda, &p, SIZE_MAX, &need), GW_ERR_RANGE);
    assert_int_equal(gw_cuda_due_bytes(cuda, &p, N, NULL), GW_ERR_ARG);
    const gw_workspace workspace = {room, sizeof room};
    const gw_cuda_source good = {.in = {x, N, GW_F32},
                                 .residual = r,
                                 .residual_after = after,
                                 .payload = bytes,
                                 .capacity = sizeof bytes,
                                 .result = &result,
                                 .due = due[0],
                                 .due_after = due[1]};
    assert_int_equal(gw_cuda_encode(cuda, NULL, &p, &good, 1, workspace, &why), GW_OK);
    /* these leave nothing due */
    assert_int_equal(gw_cuda_encode(cuda, NULL, &small, &good, 1, workspace, &why), GW_ERR_ARG);
    assert_int_equal(gw_cuda_encode(cuda, NULL, &never, &good, 1, workspace, &why), GW_ERR_ARG);
    gw_cuda_source wrong[5] = {good, good, good, good, good};
    wrong[0].due = NULL;
    wrong[1].due_after = NULL;
    wrong[2].due_after = due[0];
    wrong[3].due = due[0] + 16;
    wrong[4].residual = wrong[4].residual_after = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const gw_status status = gw_cuda_encode(cuda, NULL, &p, &wrong[i], 1, workspace, &why);
        CHECK(status == GW_ERR_ARG, "case %zu: %s", i, gw_status_string(status));
    }
    gw_cuda_source mixed[2] = {good, good};
    mixed[1].due = mixed[1].due_after = NULL;
    assert_int_equal(gw_cuda_encode(cuda, NULL, &p, mixed, 2, workspace, &why), GW_ERR_ARG);
    assert_non_null(strstr(why.text, "tensor 1"));
    const gw_cuda_debt debt = {r, due[0], N}, nowhere = {r, NULL, N}, odd = {r, due[0] + 16, N};
    assert_int_equal(gw_cuda_settle(cuda, NULL, &p, &debt, 1, &why), GW_OK);
    assert_int_equal(gw_cuda_settle(cuda, NULL, &p, NULL, 0, &why), GW_OK);
    assert_int_equal(gw_cuda_settle(cuda, NULL, &p, NULL, 1, &why), GW_ERR_ARG);
    assert_int_equal(gw_cuda_settle(cuda, NULL, &p, &nowhere, 1, &why), GW_ERR_ARG);
    assert_int_equal(gw_cuda_settle(cuda, NULL, &p, &odd, 1, &why), GW_ERR_ARG);
    assert_int_equal(gw_cuda_settle(cuda, NULL, &never, &debt, 1, &why), GW_ERR_ARG);
    gw_cuda_close(cuda);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_absent_library_is_named),
        cmocka_unit_test(an_absent_device_is_named),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(wrong_dues_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
