/* Low rank: exact where the matrix is of that rank, best where it is not, whole in its sums, and steady
 * when a matrix is of lower rank than its factors. */
#include "support/check.h"
#include "support/gen.h"

#include "base/numeric.h"

#include <math.h>

#define PI 3.14159265358979323846

enum { ROWS = 48, COLS = 80, COUNT = ROWS * COLS, MAX_RANKS = 3 };

/* One rank of a job, and all it keeps. */
typedef struct rank {
    float gradient[COUNT], residual[COUNT], after[COUNT], out[COUNT];
    float state[8 * COLS], state_after[8 * COLS], own[8 * COLS];
    void *workspace;
    gw_tensor in;
    gw_exec exec;
    gw_rounds rounds;
    gw_report report;
} rank;

typedef struct job {
    gw_params params;
    gw_stream stream;
    rank ranks[MAX_RANKS];
    int n;
} job;

static job *job_new(const char *spec, int n, int feedback)
{
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->params = params_of(spec);
    j->stream = (gw_stream){.seed = 7, .tensor = 3};
    j->n = n;
    for (int i = 0; i < n; i++) {
        rank *r = &j->ranks[i];
        size_t bytes = 0;
        assert_int_equal(gw_rounds_workspace(&j->params, COUNT, &bytes), GW_OK);
        r->workspace = malloc(bytes);
        assert_non_null(r->workspace);
        r->exec.workspace = (gw_workspace){r->workspace, bytes};
        r->in = (gw_tensor){r->gradient, COUNT, GW_F32};
        r->rounds = (gw_rounds){.params = &j->params,
                                .exec = &r->exec,
                                .stream = &j->stream,
                                .in = &r->in,
                                .residual = feedback ? r->residual : NULL,
                                .residual_after = feedback ? r->after : NULL,
                                .state = r->state,
                                .state_after = r->state_after};
    }
    return j;
}

static void job_free(job *j)
{
    for (int i = 0; i < j->n; i++) {
        free(j->ranks[i].workspace);
    }
    free(j);
}

/* One exchange, the sums in order of rank; keeps r′ and the state. */
static void exchange(job *j, int keep)
{
    static float sum[8 * COLS];
    size_t n = 0;
    for (unsigned round = 0; gw_rounds_elements(&j->params, COUNT, round, &n) == GW_OK && n != 0;
         round++) {
        memset(sum, 0, sizeof sum);
        for (int i = 0; i < j->n; i++) {
            rank *r = &j->ranks[i];
            gw_report report = {0};
            assert_int_equal(gw_rounds_make(&r->rounds, round, r->own, &report), GW_OK);
            r->report = round == 0 ? report : r->report;
            for (size_t e = 0; e < n; e++) {
                sum[e] += r->own[e];
            }
        }
        for (int i = 0; i < j->n; i++) {
            assert_int_equal(gw_rounds_take(&j->ranks[i].rounds, round, sum), GW_OK);
        }
    }
    for (int i = 0; i < j->n; i++) {
        rank *r = &j->ranks[i];
        gw_tensor out = {r->out, COUNT, GW_F32};
        assert_int_equal(gw_rounds_decode(&r->rounds, sum, GW_SET, &out), GW_OK);
        assert_memory_equal(r->out, j->ranks[0].out, sizeof r->out); /* law 1 */
        if (keep) {
            memcpy(r->residual, r->after, sizeof r->residual);
            memcpy(r->state, r->state_after, sizeof r->state);
        }
    }
    j->stream.step++;
}

/* Adds scale · u vᵀ with orthonormal cosines u and v of frequency k. */
static void add_mode(float *x, int k, double scale)
{
    for (int i = 0; i < ROWS; i++) {
        for (int c = 0; c < COLS; c++) {
            const double u = sqrt(2.0 / ROWS) * cos(PI * (i + 0.5) * (k + 1) / ROWS);
            const double v = sqrt(2.0 / COLS) * cos(PI * (c + 0.5) * (k + 1) / COLS);
            x[i * COLS + c] += (float)(scale * u * v);
        }
    }
}

static double distance2(const float *a, const float *b)
{
    double sum = 0;
    for (int i = 0; i < COUNT; i++) {
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    }
    return sum;
}

static void a_sum_of_that_rank_arrives_whole(void **state)
{
    (void)state;
    job *j = job_new("lowrank:rank=3,cols=80", 3, 0);
    float sum[COUNT] = {0};
    for (int i = 0; i < 3; i++) {
        add_mode(j->ranks[i].gradient, i, 2.0 + i);
        add_mode(sum, i, 2.0 + i);
    }
    exchange(j, 0);
    CHECK(distance2(j->ranks[2].out, sum) < 1e-10 * 29, "off by %g",
          distance2(j->ranks[2].out, sum));
    job_free(j);
}

static void what_was_sent_and_what_is_kept_add_up(void **state)
{
    (void)state;
    static double total[COUNT], sent[COUNT], size[COUNT];
    memset(total, 0, sizeof total);
    memset(sent, 0, sizeof sent);
    memset(size, 0, sizeof size);
    job *j = job_new("lowrank:rank=2,cols=80", 3, 1);
    gen g = {11};
    for (int step = 0; step < 200; step++) {
        for (int i = 0; i < j->n; i++) {
            gen_fill(&g, GEN_NORMAL, GW_F32, j->ranks[i].gradient, COUNT);
            for (int e = 0; e < COUNT; e++) {
                total[e] += (double)j->ranks[i].gradient[e];
                size[e] += fabs((double)j->ranks[i].gradient[e]);
            }
        }
        exchange(j, 1);
        for (int e = 0; e < COUNT; e++) {
            sent[e] += (double)j->ranks[0].out[e];
        }
    }
    for (int e = 0; e < COUNT; e++) {
        double kept = 0;
        for (int i = 0; i < j->n; i++) {
            kept += (double)j->ranks[i].residual[e];
        }
        CHECK(fabs(sent[e] + kept - total[e]) <= 1e-5 * size[e], "element %d: %g + %g is not %g", e,
              sent[e], kept, total[e]);
    }
    job_free(j);
}

/* The power iteration goes on from step to step: after some, the error is the smallest possible. */
static void a_warm_start_finds_the_best_factors(void **state)
{
    (void)state;
    job *j = job_new("lowrank:rank=2,cols=80", 1, 0);
    double best = 0;
    for (int k = 0; k < 20; k++) {
        const double scale = pow(0.8, k);
        add_mode(j->ranks[0].gradient, k, scale);
        best += k >= 2 ? scale * scale : 0;
    }
    exchange(j, 0);
    const double cold = distance2(j->ranks[0].out, j->ranks[0].gradient);
    for (int step = 0; step < 30; step++) {
        exchange(j, 1);
    }
    const double warm = distance2(j->ranks[0].out, j->ranks[0].gradient);
    CHECK(warm < best * 1.001 && warm > best * 0.999, "warm %g, best %g", warm, best);
    CHECK(cold > best * 1.02, "cold %g, best %g: nothing to warm up", cold, best);
    job_free(j);
}

static void lower_rank_than_asked_for_does_no_harm(void **state)
{
    (void)state;
    job *j = job_new("lowrank:rank=4,cols=80", 2, 0);
    exchange(j, 1); /* zeros */
    for (int e = 0; e < COUNT; e++) {
        assert_true(j->ranks[0].out[e] == 0);
    }
    add_mode(j->ranks[0].gradient, 0, 3); /* rank one: three columns have nothing to say */
    exchange(j, 1);
    exchange(j, 1);
    CHECK(distance2(j->ranks[0].out, j->ranks[0].gradient) < 1e-10, "rank one comes out wrong");
    for (int k = 1; k < 4; k++) { /* and are there again when they have */
        add_mode(j->ranks[1].gradient, k, 1);
    }
    static float want[COUNT];
    memcpy(want, j->ranks[0].gradient, sizeof want);
    for (int e = 0; e < COUNT; e++) {
        want[e] += j->ranks[1].gradient[e];
    }
    exchange(j, 1);
    exchange(j, 1);
    CHECK(distance2(j->ranks[0].out, want) < 1e-9, "off by %g", distance2(j->ranks[0].out, want));
    job_free(j);
}

static void one_bad_number_reaches_every_rank(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3; k++) {
        job *j = job_new("lowrank:rank=2,cols=80", 2, 1);
        gen g = {5};
        for (int i = 0; i < 2; i++) {
            gen_fill(&g, GEN_NORMAL, GW_F32, j->ranks[i].gradient, COUNT);
        }
        exchange(j, 1);
        rank before = j->ranks[0];
        j->ranks[1].gradient[1234] = bad[k];
        exchange(j, 0);
        assert_int_equal(j->ranks[0].report.non_finite, 0);
        assert_int_equal(j->ranks[1].report.non_finite, 1);
        for (int e = 0; e < COUNT; e++) {
            assert_true(isnan(j->ranks[0].out[e]) && isnan(j->ranks[1].out[e]));
        }
        /* not kept: both are bit for bit what they were */
        assert_memory_equal(before.residual, j->ranks[0].residual, sizeof before.residual);
        assert_memory_equal(before.state, j->ranks[0].state, sizeof before.state);
        job_free(j);
    }
}

/* A payload is the exchange of a job of one rank without a memory. */
static void alone_it_is_an_exchange_of_one(void **state)
{
    (void)state;
    job *j = job_new("lowrank:rank=3,cols=80", 1, 1);
    rank *r = &j->ranks[0];
    static float values[COUNT], after[COUNT];
    static uint8_t payload[8 * COUNT], workspace[1 << 20];
    const gw_exec exec = {.workspace = {workspace, sizeof workspace}};
    const gw_stream stream = j->stream;
    gw_tensor out = {values, COUNT, GW_F32};
    size_t written = 0;
    gen g = {6};
    gen_fill(&g, GEN_NORMAL, GW_F32, r->gradient, COUNT);
    gen_fill(&g, GEN_NORMAL, GW_F32, r->residual, COUNT);
    assert_int_equal(gw_encode_feedback(&j->params, &exec, &stream, &r->in, r->residual, after,
                                        payload, sizeof payload, &written, NULL),
                     GW_OK);
    assert_int_equal(written, 8 + 4 * 3 * (ROWS + COLS));
    assert_int_equal(gw_decode(&j->params, NULL, payload, written, GW_SET, &out, NULL), GW_OK);
    exchange(j, 0);
    assert_memory_equal(values, r->out, sizeof values);
    assert_memory_equal(after, r->after, sizeof after);
    job_free(j);
}

static void half_precision_and_in_place(void **state)
{
    (void)state;
    job *wide = job_new("lowrank:rank=2,cols=80", 1, 1),
        *half = job_new("lowrank:rank=2,cols=80", 1, 1),
        *place = job_new("lowrank:rank=2,cols=80", 1, 1);
    static uint16_t narrow[COUNT];
    gen g = {8};
    gen_fill(&g, GEN_LARGE, GW_F16, narrow, COUNT);
    gen_fill(&g, GEN_LARGE, GW_F32, wide->ranks[0].residual, COUNT);
    for (int e = 0; e < COUNT; e++) {
        wide->ranks[0].gradient[e] = place->ranks[0].gradient[e] = gw_f32_from_f16(narrow[e]);
        half->ranks[0].residual[e] = place->ranks[0].residual[e] = wide->ranks[0].residual[e];
    }
    half->ranks[0].in = (gw_tensor){narrow, COUNT, GW_F16};
    place->ranks[0].rounds.residual_after = place->ranks[0].gradient;
    exchange(wide, 0);
    exchange(half, 0);
    exchange(place, 0);
    assert_memory_equal(wide->ranks[0].out, half->ranks[0].out, sizeof wide->ranks[0].out);
    assert_memory_equal(wide->ranks[0].out, place->ranks[0].out, sizeof wide->ranks[0].out);
    assert_memory_equal(wide->ranks[0].after, half->ranks[0].after, sizeof wide->ranks[0].after);
    assert_memory_equal(wide->ranks[0].after, place->ranks[0].gradient,
                        sizeof wide->ranks[0].after);
    /* without feedback, and into halves */
    half->ranks[0].rounds.residual = NULL;
    half->ranks[0].rounds.residual_after = NULL;
    exchange(half, 0);
    job_free(wide);
    job_free(half);
    job_free(place);
}

/* More than goes through the cache, a last row that is shorter, a divisor whose reciprocal is not exact; over the gradient itself. */
static void a_mean_is_what_was_decoded_over_the_divisor(void **state)
{
    (void)state;
    enum { N = 1100 * 1000 + 37 };
    static const uint32_t divisors[] = {1, 3, 4};
    const gw_params p = params_of("lowrank:rank=3,cols=1100");
    const gw_stream stream = {.seed = 7};
    gw_exec exec = {0};
    size_t remembered = 0, numbers = 0;
    assert_int_equal(gw_rounds_workspace(&p, N, &exec.workspace.size), GW_OK);
    assert_int_equal(gw_rounds_state(&p, N, &remembered), GW_OK);
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    float *before = calloc(remembered, sizeof *before), *after = calloc(remembered, sizeof *after);
    float *sum = malloc(N * sizeof *sum);
    exec.workspace.data = malloc(exec.workspace.size);
    const void *const had[] = {x, y, before, after, sum, exec.workspace.data};
    for (size_t i = 0; i < sizeof had / sizeof had[0]; i++) {
        assert_non_null(had[i]);
    }
    for (int bad = 0; bad < 2; bad++) {
        for (size_t d = 0; d < sizeof divisors / sizeof divisors[0]; d++) {
            gen g = {4};
            gen_fill(&g, GEN_NORMAL, GW_F32, x, N);
            x[N - 5] = bad ? INFINITY : x[N - 5];
            gw_tensor in = {x, N, GW_F32}, out = {y, N, GW_F32};
            const gw_rounds r = {.params = &p,
                                 .exec = &exec,
                                 .stream = &stream,
                                 .in = &in,
                                 .state = before,
                                 .state_after = after};
            int finite = bad;
            for (unsigned i = 0; gw_rounds_elements(&p, N, i, &numbers) == GW_OK && numbers != 0;
                 i++) {
                assert_int_equal(gw_rounds_make(&r, i, sum, NULL), GW_OK);
                assert_int_equal(gw_rounds_take(&r, i, sum), GW_OK);
            }
            assert_int_equal(gw_rounds_decode(&r, sum, GW_SET, &out), GW_OK);
            assert_int_equal(gw_rounds_mean(&r, sum, divisors[d], &in, &finite), GW_OK);
            assert_int_equal(finite, !bad);
            for (size_t i = 0; i < N && !bad; i++) {
                assert_true(gw_bits(x[i]) == gw_bits(y[i] / (float)divisors[d]));
            }
            out.dtype = GW_F16;
            assert_int_equal(gw_rounds_mean(&r, sum, 1, &out, &finite), GW_ERR_ARG);
            assert_int_equal(gw_rounds_mean(&r, sum, 0, &in, &finite), GW_ERR_ARG);
        }
    }
    free(exec.workspace.data);
    free(sum);
    free(after);
    free(before);
    free(y);
    free(x);
}

static void small_tensors_go_as_they_are(void **state)
{
    (void)state;
    const gw_params p = params_of("lowrank:rank=4,cols=8");
    float x[64], y[64];
    uint8_t payload[8 + 4 * 64], workspace[256];
    gw_exec exec = {.workspace = {workspace, 0}};
    const gw_stream stream = {.seed = 1};
    gw_tensor in = {x, 64, GW_F32}, out = {y, 64, GW_F32};
    size_t written = 0, n = 0;
    gen g = {4};
    gen_fill(&g, GEN_BITS, GW_F32, x, 64);
    assert_int_equal(gw_codec_workspace(&p, GW_F32, 64, 0, 1, &exec.workspace.size), GW_OK);
    assert_true(exec.workspace.size <= sizeof workspace); /* a red zone at most */
    assert_int_equal(gw_encode(&p, &exec, &stream, &in, payload, sizeof payload, &written, NULL),
                     GW_OK);
    assert_int_equal(written, sizeof payload);
    assert_int_equal(gw_decode(&p, NULL, payload, written, GW_SET, &out, NULL), GW_OK);
    assert_memory_equal(x, y, sizeof x);
    assert_int_equal(gw_rounds_elements(&p, 64, 0, &n), GW_OK);
    assert_int_equal(n, 64);
    assert_int_equal(gw_rounds_elements(&p, 64, 1, &n), GW_OK);
    assert_int_equal(n, 0);
}

static void wrong_rank_or_shape_is_refused_in_words(void **state)
{
    (void)state;
    static float x[COUNT], y[COUNT];
    static uint8_t payload[8 * COUNT], workspace[1 << 20];
    const gw_exec exec = {.workspace = {workspace, sizeof workspace}};
    const gw_stream stream = {.seed = 1};
    gw_tensor in = {x, COUNT, GW_F32}, out = {y, COUNT, GW_F32};
    size_t written = 0;
    gw_why why = {""};
    gen g = {4};
    gen_fill(&g, GEN_NORMAL, GW_F32, x, COUNT);
    const gw_params made = params_of("lowrank:rank=3,cols=80");
    assert_int_equal(gw_encode(&made, &exec, &stream, &in, payload, sizeof payload, &written, NULL),
                     GW_OK);
    const gw_params more = params_of("lowrank:rank=4,cols=80");
    assert_int_equal(gw_decode(&more, NULL, payload, written, GW_SET, &out, &why),
                     GW_ERR_TRUNCATED);
    const gw_params turned = params_of("lowrank:rank=3,cols=48"); /* as many bytes */
    assert_int_equal(gw_decode(&turned, NULL, payload, written, GW_SET, &out, &why),
                     GW_ERR_CORRUPT);
    assert_string_equal(why.text,
                        "lowrank: payload of rank 3 with 80 columns, not of rank 3 with 48");
    const uint32_t infinity = GW_INF_BITS;
    memcpy(payload + 8 + 4 * 77, &infinity, 4);
    assert_int_equal(gw_decode(&made, NULL, payload, written, GW_SET, &out, &why), GW_ERR_CORRUPT);
    assert_string_equal(why.text, "lowrank: 1 of 384 factor elements are not finite");
    for (int i = 0; i < COUNT; i++) {
        assert_true(y[i] == 0); /* untouched */
    }
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    size_t n = 0;
    const gw_params natural = params_of("natural");
    assert_int_equal(gw_rounds_elements(&natural, 10, 0, &n), GW_ERR_UNSUPPORTED);
    job *j = job_new("lowrank:rank=3,cols=80", 1, 1);
    rank *r = &j->ranks[0];
    gw_rounds x = r->rounds;
    x.state_after = NULL;
    assert_int_equal(gw_rounds_make(&x, 0, r->own, NULL), GW_ERR_ARG);
    x = r->rounds;
    x.residual_after = r->residual; /* could not be taken back */
    assert_int_equal(gw_rounds_make(&x, 0, r->own, NULL), GW_ERR_ARG);
    x = r->rounds;
    x.stream = NULL;
    assert_int_equal(gw_rounds_make(&x, 0, r->own, NULL), GW_ERR_ARG);
    float due[3 * (ROWS + COLS)];
    x = r->rounds;
    x.due = x.due_after = due; /* neither could it */
    assert_int_equal(gw_rounds_make(&x, 0, r->own, NULL), GW_ERR_ARG);
    x.due = NULL;
    x.residual = x.residual_after = NULL; /* of what? */
    assert_int_equal(gw_rounds_make(&x, 0, r->own, NULL), GW_ERR_ARG);
    assert_int_equal(gw_rounds_settle(&j->params, NULL, NULL, r->residual, COUNT), GW_ERR_ARG);
    assert_int_equal(gw_rounds_settle(&natural, NULL, due, r->residual, COUNT), GW_ERR_UNSUPPORTED);
    r->exec.workspace.size /= 2;
    assert_int_equal(gw_rounds_make(&r->rounds, 0, r->own, NULL), GW_ERR_WORKSPACE);
    job_free(j);
}

static void a_row_is_all_but_the_first_dim(void **state)
{
    (void)state;
    static const struct {
        uint64_t dims[4];
        size_t n;
        double cols;
    } cases[] = {{{64, 3, 7, 7}, 4, 147}, {{10, 20}, 2, 20}, {{30}, 1, 30}, {{0}, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_params p = params_of("lowrank");
        assert_int_equal(gw_params_fit_shape(&p, cases[i].dims, cases[i].n), GW_OK);
        assert_true(p.value[1] == cases[i].cols);
        p = params_of("lowrank:cols=5"); /* told already */
        assert_int_equal(gw_params_fit_shape(&p, cases[i].dims, cases[i].n), GW_OK);
        assert_true(p.value[1] == 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_of_that_rank_arrives_whole),
        cmocka_unit_test(what_was_sent_and_what_is_kept_add_up),
        cmocka_unit_test(a_warm_start_finds_the_best_factors),
        cmocka_unit_test(lower_rank_than_asked_for_does_no_harm),
        cmocka_unit_test(one_bad_number_reaches_every_rank),
        cmocka_unit_test(alone_it_is_an_exchange_of_one),
        cmocka_unit_test(half_precision_and_in_place),
        cmocka_unit_test(a_mean_is_what_was_decoded_over_the_divisor),
        cmocka_unit_test(small_tensors_go_as_they_are),
        cmocka_unit_test(wrong_rank_or_shape_is_refused_in_words),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(a_row_is_all_but_the_first_dim),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
