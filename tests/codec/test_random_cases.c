/* Law 3, one formula: the same bytes and the same decoded bits from every instruction set, every number
 * of threads, every cut at grain borders and two runs, over at least 10,000 random cases.
 *     test_random_cases [SEED [CASES]] */
#include "support/check.h"
#include "support/gen.h"

#include "base/numeric.h"

#include <math.h>

enum { MAX_N = 300000, MAX_BYTES = 4 * MAX_N + MAX_N / 16 };

static uint64_t seed = 20261115, cases = 10000;
static uint64_t per_isa[GW_ISA_COUNT], per_threads[4];

/* Random settings, each parameter over its range. */
static gw_params random_params(gen *g)
{
    gw_params p;
    do {
        assert_int_equal(gw_params_init(&p, gw_codec_at(gen_below(g, (uint32_t)gw_codec_count()))),
                         GW_OK);
        for (size_t i = 0; i < gw_codec_param_count(p.codec); i++) {
            const gw_param_info *info = gw_codec_param(p.codec, i);
            p.value[i] = info->min + gen_below(g, (uint32_t)(uint64_t)(info->max - info->min) + 1);
            if (strcmp(info->name, "bucket") == 0) {
                p.value[i] = 64 << gen_below(g, 8);
            } else if (strcmp(info->name, "density") == 0) {
                p.value[i] = pow(10, -4 * gen_uniform(g));
            } else if (strcmp(info->name, "bin") == 0) {
                static const double bins[] = {1, 2, 48, 50, 63, 64, 500, 512, 16383};
                p.value[i] = bins[gen_below(g, 9)];
            } else if (strcmp(info->name, "factor") == 0) {
                p.value[i] = 1 + gen_below(g, 5) * 0.5;
            } else if (strcmp(info->name, "cap") == 0) {
                p.value[i] = gen_below(g, 2) * gen_below(g, 3000);
            }
        }
    } while (gw_params_check(&p, NULL) != GW_OK);
    return p;
}

typedef struct buffers {
    void *in, *out, *expected_out;
    float *residual, *after, *expected_after;
    uint8_t *payload, *expected, *expected_fed, *workspace;
    size_t workspace_bytes;
    gw_pool *pools[4]; /* of 1 … 4 threads; the first is none */
} buffers;

static int same_values(gw_dtype dtype, const void *a, const void *b, size_t n)
{
    if (dtype != GW_F32) {
        return memcmp(a, b, n * gw_dtype_size(dtype)) == 0;
    }
    const float *x = a, *y = b;
    for (size_t i = 0; i < n; i++) {
        if (gw_bits(x[i]) != gw_bits(y[i]) && !(isnan(x[i]) && isnan(y[i]))) {
            return 0;
        }
    }
    return 1;
}

/* One case: scalar on one thread is the truth; then everything else. */
static void run_case(gen *g, buffers *b, uint64_t number)
{
    static const gw_dtype dtypes[] = {GW_F32, GW_F32, GW_F16, GW_BF16};
    const gw_params p = random_params(g);
    const gw_dtype dtype = dtypes[gen_below(g, 4)];
    const size_t n = gen_below(g, 20) == 0 ? gen_below(g, MAX_N) : gen_below(g, 12000);
    const size_t grain = gw_codec_grain(&p), bound = bound_of(&p, n);
    gw_stream stream = {gen_u64(g),           gen_u64(g),           gen_u64(g),
                        (uint32_t)gen_u64(g), (uint32_t)gen_u64(g), 0};
    if (grain != 0 && gen_below(g, 3) != 0) { /* a codec that selects has no pieces */
        stream.first = (gen_u64(g) >> gen_below(g, 40)) / 2 / grain * grain;
    }
    const gen_content content = (gen_content)gen_below(g, GEN_CONTENTS);
    char spec[128];
    assert_int_equal(gw_params_print(&p, spec, sizeof spec), GW_OK);
    gen_fill(g, content, dtype, b->in, n);
    const gw_tensor in = {b->in, n, dtype};
    const gw_workspace workspace = {b->workspace, b->workspace_bytes};
    const gw_exec truth = {.isa = GW_ISA_SCALAR, .workspace = workspace};
    gw_tensor expected_out = {b->expected_out, n, dtype}, out = {b->out, n, dtype};
    gw_report report, expected_report;
    size_t written = 0;
    assert_int_equal(
        gw_encode(&p, &truth, &stream, &in, b->expected, bound, &written, &expected_report), GW_OK);
    const size_t bytes = written;
    gw_why why = {""};
    const gw_status status = gw_decode(&p, &truth, b->expected, bytes, GW_SET, &expected_out, &why);
    CHECK(status == GW_OK, "%s %s n=%zu %s: %s", spec, gw_dtype_name(dtype), n,
          gen_content_name(content), why.text);
    const int feedback = gen_below(g, 2) == 0;
    size_t fed_bytes = 0;
    gen_fill(g, gen_below(g, 2) ? GEN_NORMAL : GEN_HEAVY, GW_F32, b->residual, n);
    if (feedback) {
        assert_int_equal(gw_encode_feedback(&p, &truth, &stream, &in, b->residual,
                                            b->expected_after, b->expected_fed, bound, &fed_bytes,
                                            NULL),
                         GW_OK);
    }
#define CASE_CHECK(holds, what)                                                                    \
    CHECK(holds, "seed %llu, case %llu: %s %s n=%zu %s isa=%s threads=%u: %s",                     \
          (unsigned long long)seed, (unsigned long long)number, spec, gw_dtype_name(dtype), n,     \
          gen_content_name(content), gw_isa_name((gw_isa)isa), threads + 1, what)
    for (int isa = GW_ISA_SCALAR; isa < GW_ISA_COUNT; isa++) {
        if (!gw_codec_has_isa(p.codec, (gw_isa)isa) || !gw_isa_runs_here((gw_isa)isa)) {
            continue;
        }
        const unsigned threads = gen_below(g, 4);
        const gw_exec exec = {(gw_isa)isa, b->pools[threads], workspace};
        memset(b->payload, 0x33, bound);
        assert_int_equal(gw_encode(&p, &exec, &stream, &in, b->payload, bound, &written, &report),
                         GW_OK);
        CASE_CHECK(written == bytes && memcmp(b->payload, b->expected, bytes) == 0, "bytes differ");
        CASE_CHECK(memcmp(&report, &expected_report, sizeof report) == 0, "reports differ");
        memset(b->out, 0x44, n * gw_dtype_size(dtype));
        assert_int_equal(gw_decode(&p, &exec, b->payload, bytes, GW_SET, &out, NULL), GW_OK);
        CASE_CHECK(same_values(dtype, b->out, b->expected_out, n), "decoded bits differ");
        if (feedback) {
            memset(b->after, 0x66, n * sizeof(float));
            assert_int_equal(gw_encode_feedback(&p, &exec, &stream, &in, b->residual, b->after,
                                                b->payload, bound, &written, &report),
                             GW_OK);
            CASE_CHECK(written == fed_bytes && memcmp(b->payload, b->expected_fed, written) == 0,
                       "bytes with feedback differ");
            CASE_CHECK(same_values(GW_F32, b->after, b->expected_after, n), "residuals differ");
        }
        per_isa[isa]++;
        per_threads[threads]++;
        /* in two pieces, cut at a grain border */
        if (grain != 0 && n > grain) {
            const size_t cut = (1 + gen_below(g, (uint32_t)((n - 1) / grain))) * grain;
            const size_t head = bound_of(&p, cut), width = gw_dtype_size(dtype);
            const gw_tensor a = {b->in, cut, dtype},
                            c = {(uint8_t *)b->in + cut * width, n - cut, dtype};
            gw_stream rest = stream;
            rest.first += cut;
            memset(b->payload, 0x55, bytes);
            assert_int_equal(
                gw_encode(&p, &exec, &rest, &c, b->payload + head, bytes - head, &written, NULL),
                GW_OK);
            assert_int_equal(gw_encode(&p, &exec, &stream, &a, b->payload, head, &written, NULL),
                             GW_OK);
            CASE_CHECK(memcmp(b->payload, b->expected, bytes) == 0,
                       "two pieces differ from the whole");
        }
    }
}

static void random_cases(void **state)
{
    (void)state;
    buffers b = {.workspace_bytes = 8 << 20};
    b.in = malloc(4 * MAX_N);
    b.out = malloc(4 * MAX_N);
    b.expected_out = malloc(4 * MAX_N);
    b.payload = malloc(MAX_BYTES);
    b.expected = malloc(MAX_BYTES);
    b.expected_fed = malloc(MAX_BYTES);
    b.residual = malloc(4 * MAX_N);
    b.after = malloc(4 * MAX_N);
    b.expected_after = malloc(4 * MAX_N);
    assert_true(b.expected_fed && b.residual && b.after && b.expected_after);
    b.workspace = malloc(b.workspace_bytes);
    assert_true(b.in && b.out && b.expected_out && b.payload && b.expected && b.workspace);
    for (unsigned t = 1; t < 4; t++) {
        assert_int_equal(gw_pool_create(t + 1, &b.pools[t]), GW_OK);
    }
    gen g = {seed};
    for (uint64_t i = 0; i < cases; i++) {
        run_case(&g, &b, i);
    }
    print_message("seed %llu: %llu random cases\n", (unsigned long long)seed,
                  (unsigned long long)cases);
    for (int isa = GW_ISA_SCALAR; isa < GW_ISA_COUNT; isa++) {
        print_message("  %-8s %llu\n", gw_isa_name((gw_isa)isa), (unsigned long long)per_isa[isa]);
        CHECK(per_isa[isa] > 0 || !gw_isa_runs_here((gw_isa)isa), "%s never ran",
              gw_isa_name((gw_isa)isa));
    }
    for (int t = 0; t < 4; t++) {
        print_message("  %d thread%s %llu\n", t + 1, t == 0 ? " " : "s",
                      (unsigned long long)per_threads[t]);
        gw_pool_destroy(b.pools[t]);
    }
    free(b.in);
    free(b.out);
    free(b.expected_out);
    free(b.payload);
    free(b.expected);
    free(b.expected_fed);
    free(b.residual);
    free(b.after);
    free(b.expected_after);
    free(b.workspace);
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : seed;
    cases = argc > 2 ? strtoull(argv[2], NULL, 0) : cases;
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
