/* Payloads summed block by block give the bits of one decoding after the other. */
#include "support/check.h"
#include "support/gen.h"

#include "base/numeric.h"
#include "codec/specs.h"

#include <math.h>

enum { MAX_N = 40000, MOST = 65 };

typedef struct room {
    float in[MAX_N], want[MAX_N], got[MAX_N];
    gw_payload payloads[MOST];
    uint8_t *bytes[MOST];
    gw_exec exec;
} room;

/* `n` payloads of `count` elements, each of other numbers; returns what decodings in turn make of them. */
static void make(room *r, const gw_params *p, size_t n, size_t count, gen_content content,
                 float divisor)
{
    gen g = {count + n};
    const gw_tensor in = {r->in, count, GW_F32};
    gw_tensor want = {r->want, count, GW_F32};
    const size_t bound = bound_of(p, count);
    for (size_t i = 0; i < n; i++) {
        const gw_stream stream = {.seed = 1, .rank = (uint32_t)i};
        gen_fill(&g, i == n / 2 ? content : GEN_NORMAL, GW_F32, r->in, count);
        free(r->bytes[i]);
        r->bytes[i] = malloc(bound + 1);
        assert_non_null(r->bytes[i]);
        r->payloads[i].bytes = r->bytes[i];
        assert_int_equal(
            gw_encode(p, &r->exec, &stream, &in, r->bytes[i], bound, &r->payloads[i].size, NULL),
            GW_OK);
        assert_int_equal(gw_decode(p, &r->exec, r->bytes[i], r->payloads[i].size,
                                   i == 0 ? GW_SET : GW_ADD, &want, NULL),
                         GW_OK);
    }
    for (size_t i = 0; i < count; i++) {
        r->want[i] /= divisor;
    }
}

static int all_finite(const float *x, size_t n)
{
    size_t finite = 0;
    for (size_t i = 0; i < n; i++) {
        finite += isfinite(x[i]) ? 1 : 0;
    }
    return finite == n;
}

/* Same bits, any NaN being any other. */
static size_t differ(const float *a, const float *b, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += gw_bits(a[i]) != gw_bits(b[i]) && !(isnan(a[i]) && isnan(b[i]));
    }
    return count;
}

static void sums_are_decodings_in_turn(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 100, 16384, 16385, MAX_N};
    static const size_t numbers[] = {1, 3, MOST};
    static const gen_content contents[] = {GEN_NORMAL, GEN_HEAVY, GEN_ONE_NAN};
    room *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->exec.workspace = (gw_workspace){malloc(1 << 21), 1 << 21};
    assert_int_equal(gw_pool_create(3, &r->exec.pool), GW_OK);
    for (size_t i = 0; i < ALL_SPECS * 6 * 3; i++) {
        const char *spec = all_specs[i / 18];
        const size_t count = counts[i / 3 % 6], n = i / 3 % 6 < 4 ? numbers[i % 3] : 3;
        const gw_params p = params_of(spec);
        for (int isa = GW_ISA_SCALAR; isa < GW_ISA_COUNT; isa++) {
            if (!gw_codec_has_isa(p.codec, (gw_isa)isa) || !gw_isa_runs_here((gw_isa)isa)) {
                continue;
            }
            r->exec.isa = (gw_isa)isa;
            make(r, &p, n, count, contents[i % 3], (float)n);
            gw_tensor got = {r->got, count, GW_F32};
            int finite = -1;
            gw_why why = {""};
            const gw_status status =
                gw_decode_sum(&p, &r->exec, r->payloads, n, (uint32_t)n, &got, &finite, &why);
            CHECK(status == GW_OK, "%s: %s", spec, why.text);
            CHECK(differ(r->got, r->want, count) == 0, "%s, %zu payloads of %zu, %s", spec, n,
                  count, gw_isa_name((gw_isa)isa));
            CHECK(finite == all_finite(r->want, count), "%s: finite is told wrongly", spec);
        }
    }
    gw_pool_destroy(r->exec.pool);
    free(r->exec.workspace.data);
    for (size_t i = 0; i < MOST; i++) {
        free(r->bytes[i]);
    }
    free(r);
}

/* Sums that are written around the cache: aligned, not aligned, by every kind of divisor. */
static void large_sums(void **state)
{
    (void)state;
    enum { N = (1 << 20) + 4097 };
    static const char *const specs[] = {"natural:bits=8", "dither:bits=4", "topk:density=0.01",
                                        "adacomp:bin=50", "cast:to=bf16"};
    float *in = malloc(N * sizeof *in), *want = malloc(N * sizeof *want),
          *got = aligned_alloc(64, (N / 16 + 2) * 64);
    gw_exec exec = {.workspace = {malloc(1 << 24), 1 << 24}};
    assert_true(in != NULL && want != NULL && got != NULL && exec.workspace.data != NULL);
    assert_int_equal(gw_pool_create(3, &exec.pool), GW_OK);
    gen g = {5};
    for (size_t c = 0; c < 5; c++) {
        const gw_params p = params_of(specs[c]);
        const size_t bound = bound_of(&p, N);
        uint8_t *bytes = malloc(2 * bound);
        assert_non_null(bytes);
        gw_payload payloads[2] = {{bytes, 0}, {bytes + bound, 0}};
        for (size_t i = 0; i < 2; i++) {
            const gw_stream stream = {.seed = 1, .rank = (uint32_t)i};
            const gw_tensor t = {in, N, GW_F32};
            gen_fill(&g, i == c % 2 ? GEN_NORMAL : GEN_SPARSE, GW_F32, in, N);
            assert_int_equal(gw_encode(&p, &exec, &stream, &t, bytes + i * bound, bound,
                                       &payloads[i].size, NULL),
                             GW_OK);
        }
        for (size_t k = 0; k < (size_t)GW_ISA_COUNT * 6; k++) {
            const gw_isa isa = (gw_isa)(k / 6);
            const uint32_t divisor = k % 3 == 2 ? 4 : (uint32_t)(1 + 2 * (k % 3));
            float *at = got + k / 3 % 2;
            gw_tensor out = {at, N, GW_F32}, turns = {want, N, GW_F32};
            int finite = -1;
            if (isa == GW_ISA_AUTO || !gw_codec_has_isa(p.codec, isa) || !gw_isa_runs_here(isa)) {
                continue;
            }
            exec.isa = isa;
            for (size_t i = 0; i < 2; i++) {
                assert_int_equal(gw_decode(&p, &exec, payloads[i].bytes, payloads[i].size,
                                           i == 0 ? GW_SET : GW_ADD, &turns, NULL),
                                 GW_OK);
            }
            for (size_t i = 0; i < N; i++) {
                want[i] /= (float)divisor;
            }
            assert_int_equal(gw_decode_sum(&p, &exec, payloads, 2, divisor, &out, &finite, NULL),
                             GW_OK);
            CHECK(differ(at, want, N) == 0 && finite == 1, "%s, by %u, %s%s", specs[c], divisor,
                  gw_isa_name(isa), at == got ? "" : ", not aligned");
        }
        free(bytes);
    }
    gw_pool_destroy(exec.pool);
    free(exec.workspace.data);
    free(in);
    free(want);
    free(got);
}

static void one_bad_payload_leaves_no_mark(void **state)
{
    (void)state;
    const gw_params p = params_of("natural:bits=8");
    float x[100];
    uint8_t good[101] = {1}, bad[101] = {0}; /* a base of 0 is corrupt */
    const gw_payload payloads[] = {{good, 101}, {bad, 101}};
    gw_tensor out = {x, 100, GW_F32};
    int finite = 0;
    memset(x, 0x77, sizeof x);
    assert_int_equal(gw_decode_sum(&p, NULL, payloads, 2, 1, &out, &finite, NULL), GW_ERR_CORRUPT);
    for (size_t i = 0; i < sizeof x; i++) {
        assert_int_equal(((const uint8_t *)x)[i], 0x77);
    }
    out.dtype = GW_F16;
    assert_int_equal(gw_decode_sum(&p, NULL, payloads, 1, 1, &out, &finite, NULL), GW_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_decodings_in_turn),
        cmocka_unit_test(large_sums),
        cmocka_unit_test(one_bad_payload_leaves_no_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
