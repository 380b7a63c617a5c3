/* Law 2, nothing is lost: what was sent and what is kept add up to the gradients, for every codec, step after
 * step; with the negative control that a residual thrown away is seen. */
#include "support/check.h"
#include "support/gen.h"

#include "base/numeric.h"
#include "codec/specs.h"

#include <math.h>

enum { N = 1500, STEPS = 1000 };

typedef struct loop {
    gw_params params;
    gw_exec exec;
    uint8_t *payload;
    size_t bound;
    float residual[N], after[N], gradient[N], sent[N];
    double sum_sent[N], sum_gradient[N], sum_size[N];
} loop;

static loop *loop_new(const char *spec)
{
    loop *l = calloc(1, sizeof *l);
    assert_non_null(l);
    l->params = params_of(spec);
    l->bound = bound_of(&l->params, N);
    l->payload = malloc(l->bound + 1);
    assert_int_equal(gw_codec_workspace(&l->params, GW_F32, N, 1, 1, &l->exec.workspace.size),
                     GW_OK);
    l->exec.workspace.data = malloc(l->exec.workspace.size + 1);
    assert_true(l->payload != NULL && l->exec.workspace.data != NULL);
    return l;
}

static void loop_free(loop *l)
{
    free(l->payload);
    free(l->exec.workspace.data);
    free(l);
}

/* One step: encode with feedback, decode, keep r′. Returns the payload's bytes. */
static size_t step(loop *l, uint64_t number, int in_place)
{
    const gw_stream stream = {.seed = 1, .step = number};
    const gw_tensor in = {l->gradient, N, GW_F32};
    gw_tensor out = {l->sent, N, GW_F32};
    size_t written = 0;
    for (int i = 0; i < N; i++) {
        l->sum_gradient[i] += (double)l->gradient[i];
        l->sum_size[i] += fabs((double)l->gradient[i]);
    }
    float *after = in_place ? l->gradient : l->after;
    assert_int_equal(gw_encode_feedback(&l->params, &l->exec, &stream, &in, l->residual, after,
                                        l->payload, l->bound, &written, NULL),
                     GW_OK);
    assert_int_equal(gw_decode(&l->params, &l->exec, l->payload, written, GW_SET, &out, NULL),
                     GW_OK);
    for (int i = 0; i < N; i++) {
        l->sum_sent[i] += (double)l->sent[i];
    }
    memcpy(l->residual, after, sizeof l->residual);
    return written;
}

/* Largest |Σ sent + r − Σ g| relative to Σ|g|. */
static double leak(const loop *l)
{
    double worst = 0;
    for (int i = 0; i < N; i++) {
        const double lost = fabs(l->sum_sent[i] + (double)l->residual[i] - l->sum_gradient[i]);
        worst = fmax(worst, lost / fmax(l->sum_size[i], 1e-300));
    }
    return worst;
}

static void sums_add_up_over_a_thousand_steps(void **state)
{
    (void)state;
    for (size_t s = 0; s < ALL_SPECS; s++) {
        if (strstr(all_specs[s], "norm=l2") != NULL) {
            continue; /* a variance above 1 is no contraction: its residual grows without bound */
        }
        loop *l = loop_new(all_specs[s]);
        gen g = {s + 31};
        for (uint64_t k = 0; k < STEPS; k++) {
            for (int i = 0; i < N; i++) { /* noise around a mean of its own */
                l->gradient[i] = (float)(1e-3 * gen_normal(&g) + 1e-4 * (i % 7 - 3));
            }
            (void)step(l, k, k % 3 == 0);
        }
        /* each step rounds g + r and G − y: 2^-24 of |r| and |g| twice; residuals stay within some ten
         * gradients for all of these codecs but the sparsest */
        CHECK(leak(l) < 1e-5, "%s leaks %.2g of what it was given", all_specs[s], leak(l));
        loop_free(l);
    }
}

/* Multiples of 2^-12 below 2^6 in a codec that sends powers of two or numbers as they are: no operation
 * rounds, so the sums are equal exactly. */
static void dyadic_sums_are_exact(void **state)
{
    (void)state;
    static const char *const exact[] = {"topk:density=0.05",
                                        "randk:density=0.1",
                                        "natural:bits=8",
                                        "natural:bits=9",
                                        "topk:density=0.02,values=natural",
                                        "cast:to=bf16"};
    for (size_t s = 0; s < sizeof exact / sizeof exact[0]; s++) {
        loop *l = loop_new(exact[s]);
        gen g = {s + 41};
        for (uint64_t k = 0; k < STEPS; k++) {
            for (int i = 0; i < N; i++) {
                l->gradient[i] = (float)((int)gen_below(&g, 257) - 128) * 0x1p-12f;
            }
            (void)step(l, k, 0);
        }
        CHECK(leak(l) == 0, "%s: %.3g, not 0", exact[s], leak(l));
        loop_free(l);
    }
}

/* Negative control: a residual that is forgotten once in a while. */
static void a_reset_residual_is_seen(void **state)
{
    (void)state;
    loop *l = loop_new("topk:density=0.01");
    gen g = {51};
    for (uint64_t k = 0; k < 100; k++) {
        gen_fill(&g, GEN_NORMAL, GW_F32, l->gradient, N);
        (void)step(l, k, 0);
        if (k == 50) {
            memset(l->residual, 0, sizeof l->residual);
        }
    }
    assert_true(leak(l) > 1e-2);
    loop_free(l);
}

/* r is only read, so a step with a NaN can be taken back; the payload shows it. */
static void a_non_finite_step_leaves_the_residual_alone(void **state)
{
    (void)state;
    for (size_t s = 0; s < ALL_SPECS; s++) {
        for (int inf = 0; inf < 2; inf++) {
            loop *l = loop_new(all_specs[s]);
            float before[N];
            gen g = {61};
            gw_report report = {0};
            size_t written = 0;
            const gw_stream stream = {.seed = 2};
            const gw_tensor in = {l->gradient, N, GW_F32};
            gw_tensor out = {l->sent, N, GW_F32};
            gen_fill(&g, GEN_NORMAL, GW_F32, l->residual, N);
            gen_fill(&g, GEN_NORMAL, GW_F32, l->gradient, N);
            memcpy(before, l->residual, sizeof before);
            l->gradient[777] = inf ? -INFINITY : NAN;
            assert_int_equal(gw_encode_feedback(&l->params, &l->exec, &stream, &in, l->residual,
                                                l->after, l->payload, l->bound, &written, &report),
                             GW_OK);
            assert_int_equal(report.non_finite, 1);
            assert_memory_equal(before, l->residual, sizeof before);
            assert_int_equal(
                gw_decode(&l->params, &l->exec, l->payload, written, GW_SET, &out, NULL), GW_OK);
            int seen = 0;
            for (int i = 0; i < N; i++) {
                seen += !isfinite(l->sent[i]);
            }
            CHECK(seen > 0, "%s: the non-finite number has gone", all_specs[s]);
            loop_free(l);
        }
    }
}

/* The table of docs/codecs.md: relative error of one encoding of Gaussian numbers, within 2 %. */
static void the_errors_of_the_page(void **state)
{
    (void)state;
    enum { MANY = 1 << 20 };
    static const struct {
        const char *spec;
        double error;
    } table[] = {{"cast:to=bf16", 2.8e-6},     {"natural:bits=9", 0.082},
                 {"natural:bits=8", 0.082},    {"sign", 0.363},
                 {"topk:density=0.01", 0.916}, {"randk:density=0.01", 0.99}};
    float *x = malloc(MANY * sizeof *x), *y = malloc(MANY * sizeof *y);
    uint8_t *payload = malloc(2 * MANY), *workspace = malloc(MANY);
    gen g = {71};
    assert_true(x != NULL && y != NULL && payload != NULL && workspace != NULL);
    for (int i = 0; i < MANY; i++) {
        x[i] = (float)gen_normal(&g);
    }
    for (size_t t = 0; t < sizeof table / sizeof table[0]; t++) {
        const gw_params p = params_of(table[t].spec);
        const gw_exec exec = {.workspace = {workspace, MANY}};
        const gw_stream stream = {.seed = 71};
        const gw_tensor in = {x, MANY, GW_F32};
        gw_tensor out = {y, MANY, GW_F32};
        size_t written = 0;
        double error = 0, norm = 0;
        assert_int_equal(gw_encode(&p, &exec, &stream, &in, payload, 2 * MANY, &written, NULL),
                         GW_OK);
        assert_int_equal(gw_decode(&p, &exec, payload, written, GW_SET, &out, NULL), GW_OK);
        for (int i = 0; i < MANY; i++) {
            error += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
            norm += (double)x[i] * (double)x[i];
        }
        CHECK(fabs(error / norm / table[t].error - 1) < 0.02,
              "%s: relative error %.4g, the page says %.4g", table[t].spec, error / norm,
              table[t].error);
    }
    free(x);
    free(y);
    free(payload);
    free(workspace);
}

static void wrong_residual_pointers_are_refused(void **state)
{
    (void)state;
    loop *l = loop_new("sign");
    const gw_tensor in = {l->gradient, N, GW_F32};
    size_t written = 0;
    assert_int_equal(gw_encode_feedback(&l->params, &l->exec, NULL, &in, l->residual, NULL,
                                        l->payload, l->bound, &written, NULL),
                     GW_ERR_ARG);
    assert_int_equal(gw_encode_feedback(&l->params, &l->exec, NULL, &in, l->residual, l->residual,
                                        l->payload, l->bound, &written, NULL),
                     GW_ERR_ARG);
    loop_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_add_up_over_a_thousand_steps),
        cmocka_unit_test(dyadic_sums_are_exact),
        cmocka_unit_test(a_reset_residual_is_seen),
        cmocka_unit_test(a_non_finite_step_leaves_the_residual_alone),
        cmocka_unit_test(the_errors_of_the_page),
        cmocka_unit_test(wrong_residual_pointers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
