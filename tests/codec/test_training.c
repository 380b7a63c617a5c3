/* Law 2 on real sequences: a small network is trained on what arrives, so that each gradient depends on all that
 * was sent before. After a thousand steps what was sent and what is kept add up to the gradients, for every codec
 * that wants feedback, and the network has learnt; with the negative control that one residual thrown away is seen. */
#include "support/check.h"
#include "support/gen.h"

#include "codec/specs.h"

#include <math.h>

/* 16 inputs, 64 tanh units, 6 linear outputs, trained towards a fixed smaller network of the same kind. */
enum { INPUTS = 16, HIDDEN = 64, OUTPUTS = 6, TEACHER = 12, BATCH = 16, STEPS = 1000 };
enum { W1 = 0, W2 = W1 + HIDDEN * (INPUTS + 1), N = W2 + OUTPUTS * (HIDDEN + 1) };
static const float RATE = 0.01f;

/* Weights of one layer: a row an output, its bias last. */
static void layer(const float *w, const float *in, int n_in, int n_out, float *out)
{
    for (int o = 0; o < n_out; o++, w += n_in + 1) {
        out[o] = w[n_in];
        for (int i = 0; i < n_in; i++) {
            out[o] += w[i] * in[i];
        }
    }
}

static void squash(float *x, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] = tanhf(x[i]);
    }
}

/* Adds delta · [in, 1]ᵀ to a layer's gradient. */
static void add_outer(const float *delta, const float *in, int n_in, int n_out, float *gradient)
{
    for (int o = 0; o < n_out; o++, gradient += n_in + 1) {
        for (int i = 0; i < n_in; i++) {
            gradient[i] += delta[o] * in[i];
        }
        gradient[n_in] += delta[o];
    }
}

typedef struct task {
    float first[TEACHER * (INPUTS + 1)], second[OUTPUTS * (TEACHER + 1)];
    gen g;
} task;

typedef struct run {
    gw_params params;
    gw_exec exec;
    uint8_t *payload;
    size_t bound;
    task task;
    float weights[N], gradient[N], sent[N], residual[N], after[N];
    double sum_sent[N], sum_gradient[N];
    double rounded[N]; /* Σ of the largest numbers that a step rounded */
} run;

/* Loss of one example; adds its gradient, of the mean over the batch. */
static double example(run *r)
{
    float x[INPUTS], inner[TEACHER], want[OUTPUTS], h[HIDDEN], y[OUTPUTS], back[HIDDEN] = {0};
    double loss = 0;
    for (int i = 0; i < INPUTS; i++) {
        x[i] = (float)gen_normal(&r->task.g);
    }
    layer(r->task.first, x, INPUTS, TEACHER, inner);
    squash(inner, TEACHER);
    layer(r->task.second, inner, TEACHER, OUTPUTS, want);
    layer(r->weights + W1, x, INPUTS, HIDDEN, h);
    squash(h, HIDDEN);
    layer(r->weights + W2, h, HIDDEN, OUTPUTS, y);
    for (int o = 0; o < OUTPUTS; o++) {
        y[o] -= want[o];
        loss += 0.5 * (double)y[o] * (double)y[o];
        y[o] /= BATCH;
        for (int i = 0; i < HIDDEN; i++) {
            back[i] += y[o] * r->weights[W2 + o * (HIDDEN + 1) + i];
        }
    }
    for (int i = 0; i < HIDDEN; i++) {
        back[i] *= 1 - h[i] * h[i];
    }
    add_outer(y, h, HIDDEN, OUTPUTS, r->gradient + W2);
    add_outer(back, x, INPUTS, HIDDEN, r->gradient + W1);
    return loss;
}

static void fill_normal(gen *g, float *w, int n, double deviation)
{
    for (int i = 0; i < n; i++) {
        w[i] = (float)(deviation * gen_normal(g));
    }
}

static run *run_new(const char *spec)
{
    run *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->params = params_of(spec);
    r->bound = bound_of(&r->params, N);
    assert_int_equal(gw_codec_workspace(&r->params, GW_F32, N, 1, 1, &r->exec.workspace.size),
                     GW_OK);
    r->payload = malloc(r->bound + 1);
    r->exec.workspace.data = malloc(r->exec.workspace.size + 1);
    assert_true(r->payload != NULL && r->exec.workspace.data != NULL);
    r->task.g = (gen){81};
    fill_normal(&r->task.g, r->task.first, TEACHER * (INPUTS + 1), 0.5);
    fill_normal(&r->task.g, r->task.second, OUTPUTS * (TEACHER + 1), 0.5);
    fill_normal(&r->task.g, r->weights + W1, W2 - W1, 0.25);
    fill_normal(&r->task.g, r->weights + W2, N - W2, 0.1);
    return r;
}

static void run_free(run *r)
{
    free(r->payload);
    free(r->exec.workspace.data);
    free(r);
}

/* One step on what arrives. Returns the mean loss of its batch. */
static double step(run *r, uint64_t number)
{
    const gw_stream stream = {.seed = 9, .step = number};
    const gw_tensor in = {r->gradient, N, GW_F32};
    gw_tensor out = {r->sent, N, GW_F32};
    size_t written = 0;
    double loss = 0;
    memset(r->gradient, 0, sizeof r->gradient);
    for (int b = 0; b < BATCH; b++) {
        loss += example(r) / BATCH;
    }
    assert_int_equal(gw_encode_feedback(&r->params, &r->exec, &stream, &in, r->residual, r->after,
                                        r->payload, r->bound, &written, NULL),
                     GW_OK);
    assert_int_equal(gw_decode(&r->params, &r->exec, r->payload, written, GW_SET, &out, NULL),
                     GW_OK);
    for (int i = 0; i < N; i++) {
        r->sum_gradient[i] += (double)r->gradient[i];
        r->sum_sent[i] += (double)r->sent[i];
        r->rounded[i] +=
            fabs((double)r->gradient[i] + (double)r->residual[i]) + fabs((double)r->after[i]);
        r->weights[i] -= RATE * r->sent[i];
    }
    memcpy(r->residual, r->after, sizeof r->residual);
    return loss;
}

/* Largest |Σ sent + r − Σ g| in units of what rounding may cost: a step rounds G = g + r and r′ = G − y, each by
 * at most 2^-24 of its result (these are no subnormals). Sums here are in fp64, whose own rounding is below
 * 2^-28 of that. So at most 1, and a little. */
static double leak(const run *r)
{
    double worst = 0;
    for (int i = 0; i < N; i++) {
        const double lost = fabs(r->sum_sent[i] + (double)r->residual[i] - r->sum_gradient[i]);
        worst = fmax(worst, lost / (0x1p-24 * r->rounded[i] + 1e-300));
    }
    return worst;
}

static void what_trains_adds_up(void **state)
{
    (void)state;
    int tried = 0;
    for (size_t s = 0; s < ALL_SPECS; s++) {
        run *r = run_new(all_specs[s]);
        if (gw_params_flags(&r->params) & GW_CODEC_WANTS_FEEDBACK) {
            double first = 0, last = 0;
            for (uint64_t k = 0; k < STEPS; k++) {
                const double loss = step(r, k);
                first += k < 20 ? loss / 20 : 0;
                last += k >= STEPS - 20 ? loss / 20 : 0;
            }
            CHECK(leak(r) <= 1.001, "%s leaks %.3g times what rounding may", all_specs[s], leak(r));
            CHECK(last < 0.25 * first, "%s does not train: loss %.4f, at first %.4f", all_specs[s],
                  last, first);
            tried++;
        }
        run_free(r);
    }
    assert_true(tried >= 9);
}

/* Negative control: a residual that is forgotten once, half way. */
static void a_dropped_residual_is_seen(void **state)
{
    (void)state;
    run *r = run_new("topk:density=0.01");
    for (uint64_t k = 0; k < 200; k++) {
        (void)step(r, k);
        if (k == 100) {
            memset(r->residual, 0, sizeof r->residual);
        }
    }
    CHECK(leak(r) > 1000, "leak %.3g", leak(r));
    run_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_trains_adds_up),
        cmocka_unit_test(a_dropped_residual_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
