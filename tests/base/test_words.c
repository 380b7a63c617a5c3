/* Everything that can be said is said in words, and differently. */
#include "support/check.h"

static void every_status_has_its_own_words(void **state)
{
    (void)state;
    static const gw_status all[] = {
        GW_OK,           GW_ERR_ARG,     GW_ERR_UNSUPPORTED, GW_ERR_RANGE,    GW_ERR_UNKNOWN,
        GW_ERR_STATE,    GW_ERR_MEMORY,  GW_ERR_WORKSPACE,   GW_ERR_CAPACITY, GW_ERR_CORRUPT,
        GW_ERR_CHECKSUM, GW_ERR_VERSION, GW_ERR_TRUNCATED,   GW_ERR_TIMEOUT,  GW_ERR_PEER,
        GW_ERR_DISAGREE, GW_ERR_SYSTEM};
    enum { COUNT = sizeof all / sizeof all[0] };
    for (size_t i = 0; i < COUNT; i++) {
        assert_string_not_equal(gw_status_string(all[i]), "unknown status");
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(gw_status_string(all[i]), gw_status_string(all[j]));
        }
    }
    assert_string_equal(gw_status_string((gw_status)-99), "unknown status");
}

static void names_are_found_again(void **state)
{
    (void)state;
    for (int i = 0; i < GW_ISA_COUNT; i++) {
        gw_isa isa = GW_ISA_COUNT;
        assert_int_equal(gw_isa_find(gw_isa_name((gw_isa)i), &isa), GW_OK);
        assert_int_equal(isa, i);
    }
    gw_isa isa = GW_ISA_AVX2;
    assert_int_equal(gw_isa_find("sse9", &isa), GW_ERR_UNKNOWN);
    assert_int_equal(isa, GW_ISA_AVX2);
    assert_true(gw_isa_runs_here(GW_ISA_SCALAR));
    assert_true(gw_isa_runs_here(gw_isa_best()));
    assert_int_equal(gw_dtype_size(GW_F32), 4);
    assert_int_equal(gw_dtype_size(GW_BF16), 2);
    assert_int_equal(gw_dtype_size((gw_dtype)9), 0);
}

static void the_list_of_codecs_is_consistent(void **state)
{
    (void)state;
    assert_true(gw_codec_count() >= 4);
    for (size_t i = 0; i < gw_codec_count(); i++) {
        const gw_codec *c = gw_codec_at(i);
        assert_ptr_equal(gw_codec_find(gw_codec_name(c)), c);
        assert_ptr_equal(gw_codec_by_id(gw_codec_id(c)), c);
        assert_true(gw_codec_has_isa(c, GW_ISA_SCALAR));
        assert_true(gw_codec_param_count(c) <= GW_PARAMS_MAX);
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(gw_codec_id(c), gw_codec_id(gw_codec_at(j)));
        }
    }
    assert_null(gw_codec_at(gw_codec_count()));
    assert_null(gw_codec_find("nonsense"));
    assert_null(gw_codec_by_id(255));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_own_words),
        cmocka_unit_test(names_are_found_again),
        cmocka_unit_test(the_list_of_codecs_is_consistent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
