/* Every codec × variant × dtype × shape × content: what each of them promises. A new codec is under
 * test as soon as codec/specs.h has settings for it. */
#include "support/check.h"
#include "support/gen.h"

#include "base/numeric.h"
#include "codec/specs.h"

#include <math.h>

enum { GUARD = 64, MAX_N = 20000 };

static uint64_t ran[256][GW_ISA_COUNT]; /* by wire id */
static uint64_t combinations;

/* One combination, and everything made for it. */
typedef struct combination {
    const char *spec;
    gw_params params;
    gw_isa isa;
    gw_dtype dtype;
    gen_content content;
    size_t n, bound, bytes; /* bytes: the payload's, at most bound */
    void *in;
    uint8_t *payload, *expected; /* payload has GUARD bytes of 0xEE behind it */
    gw_report report;
    gw_exec exec;
} combination;

#define CHECK_HERE(c, holds, what)                                                                 \
    CHECK(holds, "%s, %s, %s, %zu elements, %s: %s", (c)->spec, gw_isa_name((c)->isa),             \
          gw_dtype_name((c)->dtype), (c)->n, gen_content_name((c)->content), what)

static const gw_stream stream = {.seed = 1, .step = 2, .tensor = 3, .point = 4, .rank = 5};

static void *exact(size_t bytes)
{
    void *p = malloc(
        bytes + (bytes == 0)); /* exactly so many, so that AddressSanitizer sees one too many */
    assert_non_null(p);
    return p;
}

static int guard_holds(const uint8_t *p)
{
    for (int i = 0; i < GUARD; i++) {
        if (p[i] != 0xEE) {
            return 0;
        }
    }
    return 1;
}

static void check_encode(combination *c)
{
    const gw_tensor in = {c->in, c->n, c->dtype};
    size_t written = 12345;
    gw_report report = {0};
    memset(c->payload, 0x11, c->bound);
    memset(c->payload + c->bound, 0xEE, GUARD);
    gw_status status =
        gw_encode(&c->params, &c->exec, &stream, &in, c->payload, c->bound, &written, &report);
    CHECK_HERE(c, status == GW_OK && written == c->bytes, "encode failed");
    CHECK_HERE(c, guard_holds(c->payload + c->bound), "wrote behind the payload");
    CHECK_HERE(c, memcmp(c->payload, c->expected, c->bytes) == 0, "bytes differ from scalar's");
    CHECK_HERE(c, memcmp(&report, &c->report, sizeof report) == 0, "report differs from scalar's");
    memset(c->payload, 0x22, c->bound); /* what was there before must not matter */
    status = gw_encode(&c->params, &c->exec, &stream, &in, c->payload, c->bound, &written, NULL);
    CHECK_HERE(c, status == GW_OK && memcmp(c->payload, c->expected, c->bytes) == 0,
               "a second time gives other bytes");
    if (c->bound > 0) {
        written = 12345;
        status = gw_encode(&c->params, &c->exec, &stream, &in, c->payload, c->bound - 1, &written,
                           &report);
        CHECK_HERE(c, status == GW_ERR_CAPACITY && written == 12345,
                   "a short buffer is not refused");
    }
}

static float element(gw_dtype dtype, const void *p, size_t i)
{
    if (dtype == GW_F32) {
        return ((const float *)p)[i];
    }
    const uint16_t h = ((const uint16_t *)p)[i];
    return dtype == GW_F16 ? gw_f32_from_f16(h) : gw_f32_from_bf16(h);
}

static uint32_t narrowed(gw_dtype dtype, float v)
{
    return dtype == GW_F32   ? gw_bits(v)
           : dtype == GW_F16 ? gw_f16_from_f32(v)
                             : gw_bf16_from_f32(v);
}

/* Same bits, or both NaN. */
static int same(gw_dtype dtype, const void *p, size_t i, float want)
{
    const float got = element(dtype, p, i);
    const uint32_t bits =
        dtype == GW_F32 ? gw_bits(((const float *)p)[i]) : ((const uint16_t *)p)[i];
    return bits == narrowed(dtype, want) || (isnan(got) && isnan(want));
}

/* Codecs that select: an element is sent as it is (or nearly, or as ±scale), or not at all. */
static void check_selected(const combination *c, const float *v)
{
    const char *name = gw_codec_name(c->params.codec);
    const int natural = strcmp(name, "adacomp") != 0 && c->params.value[1] == 1;
    uint64_t non_finite = 0, sent = 0;
    for (size_t i = 0; i < c->n; i++) {
        non_finite += isfinite(element(c->dtype, c->in, i)) ? 0 : 1;
    }
    CHECK_HERE(c, c->report.non_finite == non_finite, "non-finite inputs are miscounted");
    for (size_t i = 0; i < c->n; i++) {
        const double x = (double)element(c->dtype, c->in, i), y = (double)v[i];
        sent += y != 0;
        if (strcmp(name, "adacomp") == 0) {
            CHECK_HERE(c, non_finite != 0 ? isnan(y) : isfinite(y) && x * y >= 0,
                       "not as the page says");
        } else if (strcmp(name, "randk") == 0 && non_finite != 0) {
            CHECK_HERE(c, isnan(y) || y == 0,
                       "a tensor with a non-finite number sent a finite one");
        } else if (!isfinite(x)) {
            CHECK_HERE(c, !isfinite(y) || c->report.non_finite > sent,
                       "a non-finite number came out finite");
        } else if (natural) {
            CHECK_HERE(c,
                       y == 0 || (x * y > 0 && fabs(y) <= 2 * fabs(x)) ||
                           fabs(x) < 4, /* below the range */
                       "not a neighbouring power of two");
        } else {
            CHECK_HERE(c, y == 0 || y == x, "sent another number");
        }
    }
    if (non_finite != 0) {
        CHECK_HERE(c, sent > 0, "the non-finite number has gone");
    }
}

/* Low rank: the tensor itself, or its projection, which is orthogonal to what is left. One number that is not
 * finite, or a product that overflows, spoils all. */
static void check_projected(const combination *c, const float *v)
{
    uint64_t non_finite = 0, differ = 0, spoilt = 0;
    double xx = 0, xy = 0, yy = 0;
    for (size_t i = 0; i < c->n; i++) {
        const double x = (double)element(c->dtype, c->in, i), y = (double)v[i];
        non_finite += isfinite(x) ? 0 : 1;
        spoilt += isnan(y) ? 1 : 0;
        differ += !(x == y || (isnan(x) && isnan(y)));
        xx += x * x;
        xy += x * y;
        yy += y * y;
    }
    CHECK_HERE(c, c->report.non_finite == non_finite, "non-finite inputs are miscounted");
    if (c->bytes == 8 + 4 * c->n) { /* no factors of rank r have so many numbers */
        CHECK_HERE(c, differ == 0, "not sent as it is");
    } else if (non_finite != 0 || c->report.overflowed != 0) {
        CHECK_HERE(c, spoilt == c->n, "part of a spoilt tensor came out finite");
    } else {
        /* behind the end of a short last row the projection is not zero, and is not sent */
        CHECK_HERE(c, yy <= xy + 1e-4 * xx && xy <= xx * (1 + 1e-5), "not a projection");
    }
}

/* The page's non-finite contract, and how far a finite number may move. `v` are the decoded fp32. */
static void check_values(const combination *c, const float *v)
{
    const char *name = gw_codec_name(c->params.codec);
    if (strcmp(name, "lowrank") == 0) {
        check_projected(c, v);
        return;
    }
    if (gw_codec_grain(&c->params) == 0) {
        check_selected(c, v);
        return;
    }
    const int bucketed = strstr(name, "dither") != NULL, linear = strcmp(name, "dither") == 0;
    const int sign = strcmp(name, "sign") == 0;
    const size_t bucket = bucketed ? (size_t)c->params.value[1]
                          : sign   ? (size_t)c->params.value[0]
                                   : 1;
    const uint32_t levels = bucketed ? (1u << ((uint32_t)c->params.value[0] - 1)) - 1 : 0;
    uint64_t non_finite = 0;
    for (size_t at = 0; at < c->n; at += bucket) {
        const size_t m = c->n - at < bucket ? c->n - at : bucket;
        double top = 0, mean = 0, square = 0;
        int spoilt = 0;
        for (size_t i = at; i < at + m; i++) {
            const double x = fabs((double)element(c->dtype, c->in, i));
            spoilt |= !isfinite(x);
            non_finite += isfinite(x) ? 0 : 1;
            top = x > top ? x : top;
            square += x * x;
        }
        top = bucketed && c->params.value[2] == 1 ? sqrt(square) : top; /* norm=l2 */
        for (size_t i = at; i < at + m; i++) {
            const double x = (double)element(c->dtype, c->in, i), y = (double)v[i];
            if (spoilt) {
                CHECK_HERE(c, !isfinite(y), "a non-finite number, or its bucket, came out finite");
                continue;
            }
            if (sign) { /* one magnitude, the mean; every sign kept */
                CHECK_HERE(c, fabs(y) == fabs((double)v[at]) && x * y >= 0,
                           "sign or magnitude is off");
                mean += fabs(x) / (double)m;
                continue;
            }
            if (strcmp(name, "cast") == 0) {
                const double slack = fabs(x) * 0x1p-8 + 0x1p-25;
                CHECK_HERE(c, fabs(x - y) <= slack || fabs(x) >= 65520, "cast moved too far");
                continue;
            }
            /* a step of the grid around x; the smallest level where it rounds against zero */
            const double smallest = bucketed
                                        ? top * (linear ? 1.0 / levels : ldexp(1, 1 - (int)levels))
                                        : ldexp(1, -126) + ldexp(1, -126 + 128);
            const double step = linear ? smallest : fmax(fabs(x), bucketed ? smallest : 0x1p-126);
            CHECK_HERE(c, isfinite(y) && x * y >= 0, "changed sign or became non-finite");
            CHECK_HERE(c, fabs(x - y) <= step * (1 + 1e-5) || (!bucketed && fabs(x) < smallest),
                       "moved by more than a step");
            if (linear && c->params.value[3] == 1) {
                /* the lift of numerics.md, 2^-22 of x, is up to 127 · 2^-22 of a step */
                CHECK_HERE(c, fabs(x - y) <= step / 2 * (1 + 2e-4), "is not the nearest level");
            }
        }
        if (sign && !spoilt) { /* 8192 additions in 32 lanes, and subnormals are exact */
            CHECK_HERE(c, fabs(fabs((double)v[at]) - mean) <= mean * 1e-4 + 0x1p-149,
                       "is not the mean");
        }
    }
    CHECK_HERE(c, c->report.non_finite == non_finite, "non-finite inputs are miscounted");
}

static void check_decode(combination *c)
{
    const size_t width = gw_dtype_size(c->dtype);
    void *out = exact(c->n * width), *before = exact(c->n * width);
    float *values = exact(c->n * sizeof *values);
    const gw_exec scalar = {.isa = GW_ISA_SCALAR, .workspace = c->exec.workspace};
    gw_tensor as_f32 = {values, c->n, GW_F32}, t = {out, c->n, c->dtype};
    gw_why why = {""};
    gw_status status = gw_decode(&c->params, &scalar, c->expected, c->bytes, GW_SET, &as_f32, &why);
    CHECK_HERE(c, status == GW_OK, why.text);
    if (c->isa == GW_ISA_SCALAR) {
        check_values(c, values);
    }
    const int fixed = (gw_params_flags(&c->params) & GW_CODEC_FIXED_SIZE) != 0;
    gen g = {17};
    gen_fill(&g, GEN_NORMAL, c->dtype, before, c->n);
    memcpy(out, before, c->n * width);
    /* refused: one byte short, one too many; nothing is touched */
    if (c->bytes > 0) {
        status = gw_decode(&c->params, &c->exec, c->expected, c->bytes - 1, GW_ADD, &t, &why);
        CHECK_HERE(c, status == GW_ERR_TRUNCATED || (status == GW_ERR_CORRUPT && !fixed),
                   "a truncated payload is not refused");
    }
    status = gw_decode(&c->params, &c->exec, c->expected, c->bytes + 1, GW_SET, &t, &why);
    CHECK_HERE(c, status == GW_ERR_CORRUPT, "a payload too long is not refused");
    CHECK_HERE(c, c->n == 0 || memcmp(out, before, c->n * width) == 0,
               "a refused payload left its mark");
    status = gw_decode(&c->params, &c->exec, c->expected, c->bytes, GW_ADD, &t, &why);
    CHECK_HERE(c, status == GW_OK, why.text);
    for (size_t i = 0; i < c->n; i++) {
        const float sum = element(c->dtype, before, i) + values[i];
        CHECK_HERE(c, same(c->dtype, out, i, sum), "add is not set plus an addition");
    }
    memset(out, 0x77, c->n * width);
    status = gw_decode(&c->params, &c->exec, c->expected, c->bytes, GW_SET, &t, &why);
    CHECK_HERE(c, status == GW_OK, why.text);
    for (size_t i = 0; i < c->n; i++) {
        CHECK_HERE(c, same(c->dtype, out, i, values[i]), "decoded bits differ from scalar's");
    }
    free(out);
    free(before);
    free(values);
}

static void run_combination(combination *c)
{
    const size_t width = gw_dtype_size(c->dtype);
    const gw_exec scalar = {.isa = GW_ISA_SCALAR, .workspace = c->exec.workspace};
    size_t written = 0;
    c->bound = bound_of(&c->params, c->n);
    c->in = exact(c->n * width);
    /* an odd offset: payloads have no alignment */
    uint8_t *payload = exact(c->bound + GUARD + 1), *expected = exact(c->bound + 1);
    c->payload = payload + 1;
    c->expected = expected + 1;
    gen g = {c->n + 1000u * (unsigned)c->content};
    gen_fill(&g, c->content, c->dtype, c->in, c->n);
    const gw_tensor in = {c->in, c->n, c->dtype};
    const gw_status status =
        gw_encode(&c->params, &scalar, &stream, &in, c->expected, c->bound, &written, &c->report);
    c->bytes = written;
    CHECK_HERE(c, status == GW_OK, "scalar encode failed");
    check_encode(c);
    check_decode(c);
    ran[gw_codec_id(c->params.codec)][c->isa]++;
    combinations++;
    free(c->in);
    free(payload);
    free(expected);
}

static void every_combination(void **state)
{
    (void)state;
    static const size_t shapes[] = {0,    1,    7,    15,   16,   17,   31,   32,
                                    33,   63,   64,   65,   127,  511,  512,  513,
                                    1023, 4095, 4096, 4097, 8191, 8192, 8193, MAX_N};
    static const gw_dtype dtypes[] = {GW_F32, GW_F16, GW_BF16};
    static _Alignas(64) uint8_t workspace[1 << 20];
    for (size_t s = 0; s < ALL_SPECS; s++) {
        combination c = {.spec = all_specs[s], .params = params_of(all_specs[s])};
        for (int isa = GW_ISA_SCALAR; isa < GW_ISA_COUNT; isa++) {
            if (!gw_codec_has_isa(c.params.codec, (gw_isa)isa) || !gw_isa_runs_here((gw_isa)isa)) {
                continue;
            }
            c.isa = (gw_isa)isa;
            for (int d = 0; d < 3; d++) {
                c.dtype = dtypes[d];
                size_t need = 0;
                assert_int_equal(gw_codec_workspace(&c.params, c.dtype, MAX_N, 1, 1, &need), GW_OK);
                assert_true(need <= sizeof workspace);
                if (gw_codec_grain(&c.params) != 0) { /* 64 KiB a thread without feedback */
                    size_t plain = 0;
                    assert_int_equal(gw_codec_workspace(&c.params, c.dtype, MAX_N, 0, 1, &plain),
                                     GW_OK);
                    assert_true(plain <= 65536);
                }
                c.exec = (gw_exec){.isa = c.isa, .workspace = {workspace, need}};
                for (size_t n = 0; n < sizeof shapes / sizeof shapes[0]; n++) {
                    c.n = shapes[n];
                    for (int content = 0; content < GEN_CONTENTS; content++) {
                        c.content = (gen_content)content;
                        run_combination(&c);
                    }
                }
            }
        }
    }
    print_message("%llu combinations\n", (unsigned long long)combinations);
}

/* A variant that is in the library and that this processor runs, but that nothing above ran. */
static void every_compiled_variant_ran(void **state)
{
    (void)state;
    for (size_t i = 0; i < gw_codec_count(); i++) {
        const gw_codec *codec = gw_codec_at(i);
        for (int isa = GW_ISA_SCALAR; isa < GW_ISA_COUNT; isa++) {
            const uint64_t count = ran[gw_codec_id(codec)][isa];
            if (!gw_codec_has_isa(codec, (gw_isa)isa)) {
                continue;
            }
            if (!gw_isa_runs_here((gw_isa)isa)) {
                print_message("not run: %s %s, this processor lacks it\n", gw_codec_name(codec),
                              gw_isa_name((gw_isa)isa));
                continue;
            }
            CHECK(count > 0, "%s %s is compiled in, and never ran", gw_codec_name(codec),
                  gw_isa_name((gw_isa)isa));
        }
    }
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    float x[100] = {0};
    uint8_t payload[1000];
    size_t written = 0;
    const gw_params p = params_of("natural");
    gw_tensor in = {x, 100, GW_F32}, none = {NULL, 100, GW_F32}, odd = {x, 100, (gw_dtype)7};
    const gw_stream off = {.first = 100};
    const gw_exec bad_isa = {.isa = GW_ISA_COUNT};
    assert_int_equal(gw_encode(&p, NULL, NULL, &in, payload, 1000, &written, NULL), GW_ERR_ARG);
    assert_int_equal(gw_encode(&p, NULL, &off, &in, payload, 1000, &written, NULL), GW_ERR_RANGE);
    assert_int_equal(gw_encode(&p, NULL, &stream, &none, payload, 1000, &written, NULL),
                     GW_ERR_ARG);
    assert_int_equal(gw_encode(&p, NULL, &stream, &odd, payload, 1000, &written, NULL), GW_ERR_ARG);
    assert_int_equal(gw_encode(&p, NULL, &stream, NULL, payload, 1000, &written, NULL), GW_ERR_ARG);
    assert_int_equal(gw_encode(&p, NULL, &stream, &in, NULL, 1000, &written, NULL), GW_ERR_ARG);
    assert_int_equal(gw_encode(&p, NULL, &stream, &in, payload, 1000, NULL, NULL), GW_ERR_ARG);
    assert_int_equal(gw_encode(NULL, NULL, &stream, &in, payload, 1000, &written, NULL),
                     GW_ERR_ARG);
    assert_int_equal(gw_encode(&p, &bad_isa, &stream, &in, payload, 1000, &written, NULL),
                     GW_ERR_ARG);
    in.dtype = GW_F16; /* needs a workspace, and has none */
    in.count = 50;
    assert_int_equal(gw_encode(&p, NULL, &stream, &in, payload, 1000, &written, NULL),
                     GW_ERR_WORKSPACE);
    assert_int_equal(gw_decode(&p, NULL, payload, 51, (gw_apply)2, &none, NULL), GW_ERR_ARG);
    assert_int_equal(written, 0);
}

/* Rule 3 of numerics.md: a caller who flushes subnormals, or rounds down, gets the same bytes, and keeps
 * the setting. */
static void the_callers_floating_point_environment_does_not_matter(void **state)
{
    (void)state;
#if defined(__x86_64__)
    enum { N = 5000 };
    static float x[N], y[2][N];
    static uint8_t payload[2][4 * N + 16];
    static uint8_t workspace[1 << 19];
    const gw_exec exec = {.workspace = {workspace, sizeof workspace}};
    const uint32_t odd = 0x1F80 | 0x8040 | 0x2000; /* FTZ, DAZ, round down */
    for (size_t s = 0; s < ALL_SPECS; s++) {
        const gw_params p = params_of(all_specs[s]);
        for (int content = 0; content < GEN_CONTENTS; content++) {
            gen g = {19};
            size_t written = 0;
            gen_fill(&g, (gen_content)content, GW_F32, x, N);
            for (int k = 0; k < 2; k++) {
                const gw_tensor in = {x, N, GW_F32};
                gw_tensor out = {y[k], N, GW_F32};
                const uint32_t caller = _mm_getcsr();
                _mm_setcsr(k == 0 ? caller : odd);
                assert_int_equal(gw_encode(&p, &exec, &stream, &in, payload[k], sizeof payload[k],
                                           &written, NULL),
                                 GW_OK);
                assert_int_equal(gw_decode(&p, NULL, payload[k], written, GW_SET, &out, NULL),
                                 GW_OK);
                const uint32_t after = _mm_getcsr();
                _mm_setcsr(caller);
                assert_int_equal(after & 0xFFC0, (k == 0 ? caller : odd) & 0xFFC0);
            }
            CHECK(memcmp(payload[0], payload[1], written) == 0, "%s, %s", all_specs[s],
                  gen_content_name((gen_content)content));
            assert_memory_equal(y[0], y[1], sizeof y[0]);
        }
    }
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination),
        cmocka_unit_test(every_compiled_variant_ran),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(the_callers_floating_point_environment_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
