/* The error tables against compression itself: every density, every bit width, every instruction set. */
#include "support/check.h"
#include "support/gen.h"

#include "base/numeric.h"

#include <math.h>

enum { MOST = 20000, TRIALS = 1000, TRIED = 2048 };

static const double densities[] = {0.01, 1e-6, 1,    0.5,   0.1,  0.01, 0.003, 0.25,
                                   0.9,  0.02, 5e-5, 0.999, 0.05, 0.33, 0.75};
enum { DENSITIES = sizeof densities / sizeof densities[0] };

typedef struct fixture {
    gw_workspace tables;              /* of the tables */
    uint8_t coding[1 << 20];          /* of gw_encode and gw_decode */
    uint8_t payload[8 * MOST + 4096]; /* of anything here */
    float x[MOST], g[MOST], residual[MOST], y[MOST];
    uint16_t half[MOST];
} fixture;

static fixture *fixture_new(void)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(gw_errors_workspace(DENSITIES, &f->tables.size), GW_OK);
    f->tables.data = malloc(f->tables.size);
    assert_non_null(f->tables.data);
    return f;
}

static void fixture_free(fixture *f)
{
    free(f->tables.data);
    free(f);
}

/* The error of one encoding of `in`, whose numbers in fp32 are x. */
static double measured(fixture *f, const gw_params *p, const gw_tensor *in, const float *x,
                       uint64_t seed)
{
    const gw_exec exec = {.workspace = {f->coding, sizeof f->coding}};
    const gw_stream stream = {.seed = seed};
    gw_tensor out = {f->y, in->count, GW_F32};
    size_t written = 0;
    assert_int_equal(
        gw_encode(p, &exec, &stream, in, f->payload, sizeof f->payload, &written, NULL), GW_OK);
    assert_int_equal(gw_decode(p, &exec, f->payload, written, GW_SET, &out, NULL), GW_OK);
    double sum = 0;
    for (size_t i = 0; i < in->count; i++) {
        const double d = (double)x[i] - (double)f->y[i];
        sum += d * d;
    }
    return sum;
}

/* Numbers of `content` as a tensor of `dtype`, and in fp32 in f->x. */
static gw_tensor tensor_of(fixture *f, gen *g, gen_content content, gw_dtype dtype, size_t n)
{
    if (dtype == GW_F32) {
        gen_fill(g, content, dtype, f->x, n);
        return (gw_tensor){f->x, n, dtype};
    }
    gen_fill(g, content, dtype, f->half, n);
    for (size_t i = 0; i < n; i++) {
        f->x[i] = dtype == GW_F16 ? gw_f32_from_f16(f->half[i]) : gw_f32_from_bf16(f->half[i]);
    }
    return (gw_tensor){f->half, n, dtype};
}

/* Some contents overflow, in fp16 most of all. */
static int all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            return 0;
        }
    }
    return 1;
}

static const gen_content contents[] = {GEN_NORMAL, GEN_HEAVY,    GEN_SPARSE,     GEN_EQUAL,
                                       GEN_POWERS, GEN_ZEROS,    GEN_TINY_LARGE, GEN_HUGE,
                                       GEN_LARGE,  GEN_DENORMAL, GEN_FINITE_BITS};
enum { CONTENTS = sizeof contents / sizeof contents[0] };

/* Check 9: at every density what topk itself loses; ties, zeros, one element, halves. */
static void topk_equals_compression(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 2, 33, 1000, MOST};
    fixture *f = fixture_new();
    gen g = {31};
    gw_params p = params_of("topk");
    const gw_exec exec = {.workspace = f->tables};
    int cases = 0;
    for (int c = 0; c < CONTENTS; c++) {
        for (gw_dtype dtype = GW_F32; dtype <= GW_BF16; dtype++) {
            for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++) {
                const gw_tensor in = tensor_of(f, &g, contents[c], dtype, counts[j]);
                if (!all_finite(f->x, in.count)) {
                    continue;
                }
                double table[DENSITIES];
                assert_int_equal(
                    gw_errors_topk(&p, &exec, &in, NULL, densities, DENSITIES, table, NULL), GW_OK);
                for (int i = 0; i < DENSITIES; i++) {
                    p.value[0] = densities[i];
                    const double want = measured(f, &p, &in, f->x, 0);
                    CHECK(fabs(table[i] - want) <= 1e-6 * want, "%s %s %zu density %g: %g not %g",
                          gen_content_name(contents[c]), gw_dtype_name(dtype), in.count,
                          densities[i], table[i], want);
                    cases++;
                }
            }
        }
    }
    assert_true(cases > 1500);
    fixture_free(f);
}

/* With a residual the table is of g + r, as gw_encode_feedback codes it. */
static void tables_read_the_residual(void **state)
{
    (void)state;
    fixture *f = fixture_new();
    gen g = {32};
    const gw_exec exec = {.workspace = f->tables};
    for (gw_dtype dtype = GW_F32; dtype <= GW_BF16; dtype++) {
        const gw_tensor made = tensor_of(f, &g, GEN_NORMAL, dtype, MOST);
        gen_fill(&g, GEN_NORMAL, GW_F32, f->residual, MOST);
        memcpy(f->g, f->x, sizeof f->g);
        const gw_tensor in = dtype == GW_F32 ? (gw_tensor){f->g, MOST, GW_F32} : made;
        for (int i = 0; i < MOST; i++) {
            f->x[i] += f->residual[i];
        }
        const gw_tensor sum = {f->x, MOST, GW_F32};
        gw_params p = params_of("topk");
        double a[DENSITIES], b[DENSITIES];
        assert_int_equal(gw_errors_topk(&p, &exec, &in, f->residual, densities, DENSITIES, a, NULL),
                         GW_OK);
        assert_int_equal(gw_errors_topk(&p, &exec, &sum, NULL, densities, DENSITIES, b, NULL),
                         GW_OK);
        assert_memory_equal(a, b, sizeof a);
        p = params_of("dither");
        assert_int_equal(gw_errors_dither(&p, &exec, &in, f->residual, a, NULL), GW_OK);
        assert_int_equal(gw_errors_dither(&p, &exec, &sum, NULL, b, NULL), GW_OK);
        assert_memory_equal(a, b, GW_ERRORS_WIDTHS * sizeof *a);
        assert_int_equal(gw_errors_natural(&exec, &in, f->residual, a, NULL), GW_OK);
        assert_int_equal(gw_errors_natural(&exec, &sum, NULL, b, NULL), GW_OK);
        assert_memory_equal(a, b, sizeof *a);
    }
    fixture_free(f);
}

/* rounding=nearest: the error itself, for scales of every size. */
static void nearest_equals_compression(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "dither:rounding=nearest", "dither:rounding=nearest,bucket=64",
        "dither:rounding=nearest,norm=l2,bucket=8192", "dither:rounding=nearest,norm=l2,bucket=64"};
    static const size_t counts[] = {1, 63, 1000, MOST};
    fixture *f = fixture_new();
    gen g = {33};
    const gw_exec exec = {.workspace = f->tables};
    for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
        gw_params p = params_of(specs[s]);
        for (int c = 0; c < CONTENTS * 3 * 4; c++) {
            const gen_content content = contents[c % CONTENTS];
            const gw_dtype dtype = (gw_dtype)(GW_F32 + c / CONTENTS % 3);
            const gw_tensor in = tensor_of(f, &g, content, dtype, counts[c / CONTENTS / 3]);
            if (!all_finite(f->x, in.count)) {
                continue;
            }
            double table[GW_ERRORS_WIDTHS];
            assert_int_equal(gw_errors_dither(&p, &exec, &in, NULL, table, NULL), GW_OK);
            for (int bits = 2; bits <= 8; bits++) {
                p.value[0] = bits;
                const double want = measured(f, &p, &in, f->x, 0);
                CHECK(fabs(table[bits - 2] - want) <= 1e-6 * want,
                      "%s %s %s %zu bits %d: %g not %g", specs[s], gen_content_name(content),
                      gw_dtype_name(dtype), in.count, bits, table[bits - 2], want);
            }
        }
    }
    fixture_free(f);
}

/* The mean of many encodings, within 1 % and five of its own deviations. */
static void expect_mean(fixture *f, const gw_params *p, const gw_tensor *in, double table)
{
    double sum = 0, squares = 0;
    for (uint64_t t = 0; t < TRIALS; t++) {
        const double e = measured(f, p, in, f->x, 1000 + t) / table;
        sum += e;
        squares += e * e;
    }
    const double mean = sum / TRIALS, deviation = sqrt((squares / TRIALS - mean * mean) / TRIALS);
    char spec[128];
    assert_int_equal(gw_params_print(p, spec, sizeof spec), GW_OK);
    CHECK(deviation < 0.004 && fabs(mean - 1) <= fmin(0.01, 5 * deviation + 1e-6),
          "%s: the mean of %d trials is %.6f ± %.6f of the table", spec, TRIALS, mean, deviation);
}

static void stochastic_equals_the_mean(void **state)
{
    (void)state;
    static const char *const specs[] = {"dither",          "dither:norm=l2",   "ndither",
                                        "ndither:norm=l2", "dither:bucket=64", "ndither:bucket=64"};
    fixture *f = fixture_new();
    gen g = {34};
    const gw_exec exec = {.workspace = f->tables};
    for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
        gw_params p = params_of(specs[s]);
        const gw_tensor in = tensor_of(f, &g, GEN_NORMAL, s % 2 == 0 ? GW_F32 : GW_F16, TRIED);
        double table[GW_ERRORS_WIDTHS];
        assert_int_equal(gw_errors_dither(&p, &exec, &in, NULL, table, NULL), GW_OK);
        for (int bits = 2; bits <= 8; bits++) {
            p.value[0] = bits;
            expect_mean(f, &p, &in, table[bits - 2]);
        }
    }
    for (int bits = 8; bits <= 9; bits++) {
        gw_params p = params_of("natural");
        const gw_tensor in = tensor_of(f, &g, GEN_NORMAL, GW_F32, TRIED);
        double table;
        p.value[0] = bits;
        assert_int_equal(gw_errors_natural(&exec, &in, NULL, &table, NULL), GW_OK);
        expect_mean(f, &p, &in, table);
    }
    gw_params p = params_of("topk:values=natural");
    const gw_tensor in = tensor_of(f, &g, GEN_NORMAL, GW_F32, TRIED);
    double table[DENSITIES];
    assert_int_equal(gw_errors_topk(&p, &exec, &in, NULL, densities, DENSITIES, table, NULL),
                     GW_OK);
    for (int i = 0; i < DENSITIES; i++) {
        p.value[0] = densities[i];
        expect_mean(f, &p, &in, table[i]);
    }
    fixture_free(f);
}

/* Ranks must not disagree because their processors do. */
static void every_instruction_set_gives_the_same(void **state)
{
    (void)state;
    static const char *const specs[] = {"dither", "dither:norm=l2,bucket=64", "ndither:bucket=8192",
                                        "dither:rounding=nearest,bucket=128"};
    fixture *f = fixture_new();
    gen g = {35};
    for (int c = 0; c < CONTENTS; c++) {
        const gw_tensor in = tensor_of(f, &g, contents[c], GW_F32, MOST - 3);
        if (!all_finite(f->x, in.count)) {
            continue;
        }
        for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
            const gw_params p = params_of(specs[s]);
            double scalar[GW_ERRORS_WIDTHS], other[GW_ERRORS_WIDTHS];
            gw_exec exec = {GW_ISA_SCALAR, NULL, f->tables};
            assert_int_equal(gw_errors_dither(&p, &exec, &in, NULL, scalar, NULL), GW_OK);
            for (exec.isa = GW_ISA_AUTO; exec.isa < GW_ISA_COUNT; exec.isa++) {
                const gw_status status = gw_errors_dither(&p, &exec, &in, NULL, other, NULL);
                if (exec.isa != GW_ISA_AUTO && !gw_isa_runs_here(exec.isa)) {
                    assert_int_equal(status, GW_ERR_UNSUPPORTED);
                    continue;
                }
                assert_int_equal(status, GW_OK);
                assert_memory_equal(scalar, other, sizeof scalar);
            }
        }
    }
    fixture_free(f);
}

/* Refused in words that name the element; the table stays as it was. */
static void refusals(void **state)
{
    (void)state;
    fixture *f = fixture_new();
    gen g = {36};
    const gw_exec exec = {.workspace = f->tables};
    const gw_params topk = params_of("topk"), dither = params_of("dither");
    double table[DENSITIES] = {-7, -7};
    gw_why why;
    tensor_of(f, &g, GEN_NORMAL, GW_F32, MOST);
    f->x[12345] = -INFINITY;
    f->x[12350] = NAN;
    gw_tensor in = {f->x, MOST, GW_F32};
    assert_int_equal(gw_errors_topk(&topk, &exec, &in, NULL, densities, DENSITIES, table, &why),
                     GW_ERR_RANGE);
    assert_non_null(strstr(why.text, "12345"));
    memset(&why, 0, sizeof why);
    assert_int_equal(gw_errors_dither(&dither, &exec, &in, NULL, table, &why), GW_ERR_RANGE);
    assert_non_null(strstr(why.text, "12345"));
    memset(&why, 0, sizeof why);
    assert_int_equal(gw_errors_natural(&exec, &in, NULL, table, &why), GW_ERR_RANGE);
    assert_non_null(strstr(why.text, "12345"));
    in.count = 1000; /* without them */
    assert_int_equal(gw_errors_dither(&topk, &exec, &in, NULL, table, &why), GW_ERR_UNSUPPORTED);
    assert_int_equal(gw_errors_topk(&dither, &exec, &in, NULL, densities, 1, table, &why),
                     GW_ERR_UNSUPPORTED);
    assert_int_equal(gw_errors_topk(&topk, &exec, &in, NULL, NULL, 1, table, &why), GW_ERR_ARG);
    assert_int_equal(gw_errors_dither(&dither, &exec, NULL, NULL, table, &why), GW_ERR_ARG);
    assert_int_equal(gw_errors_dither(&dither, &exec, &in, NULL, NULL, &why), GW_ERR_ARG);
    const double wrong[] = {0, 1.5, NAN, -0.1};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(gw_errors_topk(&topk, &exec, &in, NULL, wrong + i, 1, table, &why),
                         GW_ERR_RANGE);
    }
    const gw_exec small = {.workspace = {f->tables.data, f->tables.size - 200}};
    assert_int_equal(gw_errors_topk(&topk, &small, &in, NULL, densities, DENSITIES, table, &why),
                     GW_ERR_WORKSPACE);
    assert_int_equal(gw_errors_dither(&dither, NULL, &in, NULL, table, &why), GW_ERR_WORKSPACE);
    assert_true(table[0] == -7 && table[1] == -7);
    in.count = 0;
    assert_int_equal(gw_errors_topk(&topk, &exec, &in, NULL, densities, 2, table, &why), GW_OK);
    assert_true(table[0] == 0 && table[1] == 0);
    fixture_free(f);
}

static int descending(const void *a, const void *b)
{
    const float x = fabsf(*(const float *)a), y = fabsf(*(const float *)b);
    return (x < y) - (x > y);
}

/* Tensors from 2^20 elements on go by other digits; sorted here. Some numbers are equal, at the border too. */
static void topk_of_a_large_tensor(void **state)
{
    (void)state;
    enum { LARGE = (1 << 20) + 77 };
    fixture *f = fixture_new();
    float *x = malloc(LARGE * sizeof *x);
    double squared[DENSITIES];
    gen g = {20};
    assert_non_null(x);
    gen_fill(&g, GEN_HEAVY, GW_F32, x, LARGE);
    for (size_t i = 0; i < LARGE; i += 3) {
        x[i] = x[i % 300];
    }
    const gw_params p = params_of("topk");
    const gw_exec exec = {.workspace = f->tables};
    const gw_tensor in = {x, LARGE, GW_F32};
    assert_int_equal(gw_errors_topk(&p, &exec, &in, NULL, densities, DENSITIES, squared, NULL),
                     GW_OK);
    qsort(x, LARGE, sizeof *x, descending);
    for (size_t d = 0; d < DENSITIES; d++) {
        const size_t kept = (size_t)(densities[d] * LARGE + 0.5);
        double tail = 0;
        for (size_t i = LARGE; i-- > (kept > 1 ? kept : 1);) {
            tail += (double)x[i] * (double)x[i];
        }
        CHECK(fabs(squared[d] - tail) <= 1e-9 * tail, "density %g: %.12g, sorted %.12g",
              densities[d], squared[d], tail);
    }
    free(x);
    fixture_free(f);
}

/* ‖G‖², of gradient and residual in any type; and its refusal. */
static void norm_of_both(void **state)
{
    (void)state;
    fixture *f = fixture_new();
    gen g = {21};
    double squared = -1, expected = 0;
    gen_fill(&g, GEN_LARGE, GW_F32, f->residual, MOST);
    gen_fill(&g, GEN_LARGE, GW_F16, f->half, MOST);
    const gw_exec exec = {.workspace = f->tables};
    const gw_tensor in = {f->half, MOST - 3, GW_F16};
    for (size_t i = 0; i < in.count; i++) {
        const float sum = gw_f32_from_f16(f->half[i]) + f->residual[i];
        expected += (double)sum * (double)sum;
    }
    assert_int_equal(gw_errors_norm(&exec, &in, f->residual, &squared, NULL), GW_OK);
    assert_true(fabs(squared - expected) <= 1e-12 * expected);
    f->half[MOST - 4] = 0x7C00;
    gw_why why = {""};
    squared = 5;
    assert_int_equal(gw_errors_norm(&exec, &in, NULL, &squared, &why), GW_ERR_RANGE);
    assert_true(squared == 5 && strstr(why.text, "19996") != NULL);
    fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(topk_equals_compression),
        cmocka_unit_test(tables_read_the_residual),
        cmocka_unit_test(nearest_equals_compression),
        cmocka_unit_test(stochastic_equals_the_mean),
        cmocka_unit_test(every_instruction_set_gives_the_same),
        cmocka_unit_test(refusals),
        cmocka_unit_test(topk_of_a_large_tensor),
        cmocka_unit_test(norm_of_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
