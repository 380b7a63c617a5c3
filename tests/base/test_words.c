/* Everything that can be said is said in words, and differently. */
#include "base/why.h"
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

static void a_long_reason_keeps_its_ends(void **state)
{
    (void)state;
    enum { MOST = sizeof((gw_why *)NULL)->text - 1 };
    for (int n = 150; n < 700; n++) { /* of two bytes each, from 2 bytes before the limit */
        char filling[2 * 700 + 1] = "";
        for (int i = 0; i < n / 2; i++) {
            memcpy(filling + 2 * i, "\xC2\xB7", 3);
        }
        char whole[2048];
        const char *pad = n % 2 == 0 ? "" : "x";
        const int size =
            snprintf(whole, sizeof whole, "step 3, 'w': %s%s: the cause", pad, filling);
        gw_why why = {"?"};
        assert_int_equal(gw_fail(&why, GW_ERR_PEER, "%s", whole), GW_ERR_PEER);
        const size_t length = strlen(why.text);
        if (size <= MOST) {
            assert_string_equal(why.text, whole);
            continue;
        }
        assert_true(length <= MOST && length > MOST - 8);
        assert_int_equal(strncmp(why.text, "step 3, 'w': ", 13), 0);
        assert_string_equal(why.text + length - 11, ": the cause");
        const char *gap = strstr(why.text, " ... ");
        assert_non_null(gap);
        assert_int_equal((unsigned char)gap[-1], 0xB7); /* no half character */
        assert_int_equal((unsigned char)gap[5], 0xC2);
    }
    assert_int_equal(gw_fail(NULL, GW_ERR_PEER, "nobody listens"), GW_ERR_PEER);
}

static void the_rank_that_failed_first_is_named_once(void **state)
{
    (void)state;
    static const struct {
        const char *reason, *text;
    } cases[] = {
        {"out of coffee", "rank 3 gave up: out of coffee"},
        {NULL, "rank 3 gave up: no reason given"},
        {"step 7, 'b' (flat:alltoall): rank 1 gave up: step 7, 'a': the cause",
         "rank 1 gave up: step 7, 'a': the cause"},
        {"step 7, 'c': rank 0 gave up: step 7, 'b': rank 12 gave up: step 7, 'a': the cause",
         "rank 12 gave up: step 7, 'a': the cause"},
        {"rank x gave up: rank gave up: 4", "rank 3 gave up: rank x gave up: rank gave up: 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_why why = {"?"};
        assert_int_equal(gw_gave_up(&why, 3, cases[i].reason), GW_ERR_PEER);
        assert_string_equal(why.text, cases[i].text);
    }
    /* a reason that every rank passes on stays what the first one said */
    gw_why why;
    (void)gw_gave_up(&why, 0,
                     "step 7, 'a' (decode@cpu, step 6 of 6): rank 2's payload was changed");
    const gw_why said = why;
    for (uint32_t rank = 1; rank < 20; rank++) {
        gw_why step;
        (void)gw_fail(&step, GW_ERR_PEER,
                      "step 7, 'another layer' (flat:allgather, step 5 of 6): %s", why.text);
        (void)gw_gave_up(&why, rank, step.text);
    }
    assert_string_equal(why.text, said.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_own_words),
        cmocka_unit_test(names_are_found_again),
        cmocka_unit_test(the_list_of_codecs_is_consistent),
        cmocka_unit_test(a_long_reason_keeps_its_ends),
        cmocka_unit_test(the_rank_that_failed_first_is_named_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
