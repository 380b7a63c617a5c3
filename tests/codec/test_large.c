/* Tensors too large for the cache: their residuals are written around it, and topk goes by a sample, which is not
 * done for small ones. Every instruction set, r′ aligned, not aligned, and in the gradient's own place, against
 * the definition: the scalar variant's payload, and r′ = (g + r) − decoded. */
#include "support/check.h"
#include "support/gen.h"

#include "base/numeric.h"

enum { N = (4 << 20) + 77, ALIGN = 64 };

static const char *const specs[] = {"sign", "sign:bucket=64", "topk:density=0.01",
                                    "topk:density=0.001,values=natural", "natural:bits=8"};
/* EQUAL and ZEROS: more reach the limit that the sample gives than there is room for. */
static const gen_content contents[] = {GEN_NORMAL, GEN_SPARSE, GEN_EQUAL, GEN_ZEROS, GEN_ONE_INF};

typedef struct large {
    float *g, *r, *after, *lost; /* lost: (g + r) − decoded; after has room for one more */
    uint8_t *payload, *expected;
    size_t bound, size; /* of payload, of expected */
    gw_report report;
    gw_params params;
    gw_exec exec;
} large;

static void *take(size_t bytes)
{
    void *p = aligned_alloc(ALIGN, (bytes / ALIGN + 1) * ALIGN);
    assert_non_null(p);
    return p;
}

static size_t encode(large *l, gw_isa isa, const float *g, float *after, uint8_t *payload,
                     gw_report *report)
{
    const gw_stream stream = {.seed = 3};
    const gw_tensor in = {(void *)(uintptr_t)g, N, GW_F32};
    size_t written = 0;
    l->exec.isa = isa;
    assert_int_equal(gw_encode_feedback(&l->params, &l->exec, &stream, &in, l->r, after, payload,
                                        l->bound, &written, report),
                     GW_OK);
    return written;
}

/* The definition. */
static void expect(large *l)
{
    gw_tensor out = {l->lost, N, GW_F32};
    l->size = encode(l, GW_ISA_SCALAR, l->g, l->after, l->expected, &l->report);
    assert_int_equal(gw_decode(&l->params, &l->exec, l->expected, l->size, GW_SET, &out, NULL),
                     GW_OK);
    for (size_t i = 0; i < N; i++) {
        l->lost[i] = l->g[i] + l->r[i] - l->lost[i];
    }
}

static void check(large *l, gw_isa isa, int in_place, size_t shift, const char *what)
{
    float *after = l->after + shift;
    gw_report report = {0};
    if (in_place) {
        memcpy(after, l->g, N * sizeof *after);
    }
    const size_t written = encode(l, isa, in_place ? after : l->g, after, l->payload, &report);
    CHECK(written == l->size && memcmp(l->payload, l->expected, written) == 0,
          "%s by %s: not the scalar variant's bytes", what, gw_isa_name(isa));
    CHECK(report.non_finite == l->report.non_finite, "%s by %s: %llu non-finite", what,
          gw_isa_name(isa), (unsigned long long)report.non_finite);
    for (size_t i = 0; i < N; i++) {
        const float lost = l->lost[i];
        CHECK(gw_bits(lost) == gw_bits(after[i]) || (lost != lost && after[i] != after[i]),
              "%s by %s, in place %d, shifted by %zu: r' of %zu is %g, not %g", what,
              gw_isa_name(isa), in_place, shift, i, (double)after[i], (double)lost);
    }
}

static void what_was_lost_is_kept(void **state)
{
    (void)state;
    large l = {.g = take(N * sizeof(float)),
               .r = take(N * sizeof(float)),
               .after = take((N + 1) * sizeof(float)),
               .lost = take(N * sizeof(float))};
    for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
        l.params = params_of(specs[s]);
        l.bound = bound_of(&l.params, N);
        l.payload = take(l.bound);
        l.expected = take(l.bound);
        assert_int_equal(gw_codec_workspace(&l.params, GW_F32, N, 1, 1, &l.exec.workspace.size),
                         GW_OK);
        l.exec.workspace.data = take(l.exec.workspace.size);
        for (size_t c = 0; c < sizeof contents / sizeof contents[0]; c++) {
            char what[100];
            gen g = {81 + c};
            (void)snprintf(what, sizeof what, "%s, %s", specs[s], gen_content_name(contents[c]));
            gen_fill(&g, contents[c], GW_F32, l.g, N);
            gen_fill(&g, contents[c] == GEN_ONE_INF ? GEN_NORMAL : contents[c], GW_F32, l.r, N);
            expect(&l);
            for (int isa = GW_ISA_SCALAR; isa < GW_ISA_COUNT; isa++) {
                if (gw_codec_has_isa(l.params.codec, (gw_isa)isa) &&
                    gw_isa_runs_here((gw_isa)isa)) {
                    check(&l, (gw_isa)isa, 0, 0, what);
                    check(&l, (gw_isa)isa, 1, 0, what);
                    check(&l, (gw_isa)isa, 0, 1, what);
                }
            }
        }
        free(l.payload);
        free(l.expected);
        free(l.exec.workspace.data);
    }
    free(l.g);
    free(l.r);
    free(l.after);
    free(l.lost);
}

/* The same without feedback, where there is no r′ to be written. */
static void without_feedback(void **state)
{
    (void)state;
    static const char *const all[] = {"adacomp", "adacomp:bin=50", "topk:density=0.01",
                                      "natural:bits=8"};
    const gw_stream stream = {.seed = 3};
    const gw_tensor in = {take(N * sizeof(float)), N, GW_F32};
    gen g = {82};
    gen_fill(&g, GEN_NORMAL, GW_F32, in.data, N);
    for (size_t s = 0; s < sizeof all / sizeof all[0]; s++) {
        const gw_params p = params_of(all[s]);
        const size_t bound = bound_of(&p, N);
        uint8_t *payload = take(bound), *expected = take(bound);
        size_t written = 0, size = 0;
        gw_exec exec = {.isa = GW_ISA_SCALAR};
        assert_int_equal(gw_codec_workspace(&p, GW_F32, N, 0, 1, &exec.workspace.size), GW_OK);
        exec.workspace.data = take(exec.workspace.size);
        assert_int_equal(gw_encode(&p, &exec, &stream, &in, expected, bound, &size, NULL), GW_OK);
        for (int isa = GW_ISA_SCALAR; isa < GW_ISA_COUNT; isa++) {
            if (gw_codec_has_isa(p.codec, (gw_isa)isa) && gw_isa_runs_here((gw_isa)isa)) {
                exec.isa = (gw_isa)isa;
                assert_int_equal(gw_encode(&p, &exec, &stream, &in, payload, bound, &written, NULL),
                                 GW_OK);
                CHECK(written == size && memcmp(payload, expected, size) == 0,
                      "%s by %s: not the scalar variant's bytes", all[s], gw_isa_name((gw_isa)isa));
            }
        }
        free(payload);
        free(expected);
        free(exec.workspace.data);
    }
    free(in.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_lost_is_kept),
        cmocka_unit_test(without_feedback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
