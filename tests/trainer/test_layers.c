/* Every layer's backward against central differences of its forward, summed in fp64.
 *
 * The loss of a layer alone is the sum of its outputs times random numbers. For each param, and the input,
 * |differences - gradient| / |differences| stays below BOUND, the norms going over all elements; fp32 rounding and the
 * differences' own error are below 3e-4 here. What a wrong gradient looks like is tested too. */
#include "support/check.h"
#include "support/gen.h"

#include "trainer/few_rows_gemm.h"
#include "trainer/layer.h"
#include "trainer/loss.h"
#include "trainer/model.h"

#include <math.h>

static const double BOUND = 1e-3, MODEL_BOUND = 2e-2;
static const float H = 1e-2F;

enum { SEED = 7 };

static void random_fill(gen *g, float *x, size_t n, double size)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(size * gen_normal(g));
    }
}

/* ---- one layer ---- */

typedef struct bench {
    layer *l;
    size_t rows;
    float *input, *input_gradient;
    float *weights; /* of the loss */
} bench;

/* Params get values and gradients; gradients begin as rubbish, since backward sets them. */
static bench bench_of(layer *l, size_t rows, gen *g)
{
    assert_non_null(l);
    const size_t in = rows * l->in, out = rows * l->out;
    bench b = {.l = l, .rows = rows};
    b.input = calloc(in, sizeof(float));
    b.input_gradient = calloc(in, sizeof(float));
    b.weights = calloc(out, sizeof(float));
    assert_true(b.input != NULL && b.input_gradient != NULL && b.weights != NULL);
    random_fill(g, b.input, in, 1);
    random_fill(g, b.input_gradient, in, 1);
    random_fill(g, b.weights, out, 1);
    for (size_t i = 0; i < l->n_params; i++) {
        param *p = &l->params[i];
        p->value = calloc(p->count, sizeof(float));
        p->gradient = calloc(p->count, sizeof(float));
        assert_true(p->value != NULL && p->gradient != NULL);
        random_fill(g, p->value, p->count, 0.5);
        random_fill(g, p->gradient, p->count, 1);
    }
    return b;
}

static void bench_end(bench *b)
{
    for (size_t i = 0; i < b->l->n_params; i++) {
        free(b->l->params[i].value);
        free(b->l->params[i].gradient);
    }
    free(b->input);
    free(b->input_gradient);
    free(b->weights);
    layer_destroy(b->l);
}

static double loss_of(const bench *b)
{
    double sum = 0;
    b->l->table->forward(b->l, b->rows, b->input);
    for (size_t i = 0; i < b->rows * b->l->out; i++) {
        sum += (double)b->weights[i] * (double)b->l->output[i];
    }
    return sum;
}

static void backward(const bench *b)
{
    layer *l = b->l;
    (void)loss_of(b);
    memcpy(l->output_gradient, b->weights, b->rows * l->out * sizeof(float));
    if (l->table->gradients != NULL) {
        l->table->gradients(l, b->rows, b->input);
    }
    l->table->back(l, b->rows, b->input, b->input_gradient);
}

static double error_of(const bench *b, float *x, const float *gradient, size_t n)
{
    double wrong = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        const float keep = x[i];
        x[i] = keep + H;
        const double up = x[i], above = loss_of(b);
        x[i] = keep - H;
        const double down = x[i], below = loss_of(b);
        x[i] = keep;
        const double slope = (above - below) / (up - down), d = slope - (double)gradient[i];
        wrong += d * d;
        size += slope * slope;
    }
    return sqrt(wrong / size);
}

static void check_params(const bench *b)
{
    for (size_t i = 0; i < b->l->n_params; i++) {
        const param *p = &b->l->params[i];
        const double error = error_of(b, p->value, p->gradient, p->count);
        CHECK(error < BOUND, "%s: gradient is wrong by %g", p->name, error);
        /* what a wrong one would say: another sign, one that was forgotten */
        p->gradient[0] = -p->gradient[0];
        CHECK(error_of(b, p->value, p->gradient, p->count) > 10 * BOUND, "%s: sign", p->name);
        memset(p->gradient, 0, p->count * sizeof *p->gradient);
        CHECK(error_of(b, p->value, p->gradient, p->count) > 0.9, "%s: forgotten", p->name);
    }
}

static void check_input(const bench *b, const char *name)
{
    const double error = error_of(b, b->input, b->input_gradient, b->rows * b->l->in);
    CHECK(error < BOUND, "%s: gradient of the input is wrong by %g", name, error);
}

static void check_layer(layer *l, size_t rows, const char *name)
{
    gen g = {SEED};
    bench b = bench_of(l, rows, &g);
    backward(&b);
    check_params(&b);
    check_input(&b, name);
    bench_end(&b);
}

static void linear_layer(void **state)
{
    (void)state;
    check_layer(linear_create("fc", 5, 7, 3), 5, "linear");
    check_layer(linear_create("fc", 5, 7, 3), 4, "linear, fewer rows than it has room for");
}

static void conv2d_layer(void **state)
{
    (void)state;
    check_layer(conv2d_create("conv", 2, (planes){2, 6, 5}, 3, 3), 2, "conv2d, 3 x 3");
    check_layer(conv2d_create("conv", 3, (planes){1, 4, 6}, 2, 5), 3, "conv2d, 5 x 5");
}

/* Away from 0, where there is no derivative. */
static void relu_layer(void **state)
{
    (void)state;
    gen g = {SEED};
    bench b = bench_of(relu_create(3, 20), 3, &g);
    for (size_t i = 0; i < 60; i++) {
        b.input[i] += b.input[i] > 0 ? 2 * H : -2 * H;
    }
    backward(&b);
    check_input(&b, "relu");
    bench_end(&b);
}

/* All numbers further apart than the differences reach. */
static void maxpool_layer(void **state)
{
    (void)state;
    gen g = {SEED};
    bench b = bench_of(maxpool_create(2, (planes){3, 4, 6}), 2, &g);
    for (size_t i = 0; i < 144; i++) {
        b.input[i] = (float)i * 3 * H;
    }
    for (uint32_t i = 144; i > 1; i--) {
        const uint32_t j = gen_below(&g, i);
        const float swap = b.input[i - 1];
        b.input[i - 1] = b.input[j];
        b.input[j] = swap;
    }
    backward(&b);
    check_input(&b, "maxpool");
    bench_end(&b);
}

static void embedding_layer(void **state)
{
    (void)state;
    gen g = {SEED};
    bench b = bench_of(embedding_create("table", 9, 4, 5), 9, &g);
    for (uint32_t i = 0; i < 9; i++) {
        b.input[i] = (float)(i * i % 4); /* 0 and 1: some twice, some never */
    }
    backward(&b);
    check_params(&b);
    bench_end(&b);
}

static void lstm_layer(void **state)
{
    (void)state;
    check_layer(lstm_create("lstm", 15, 5, 4, 3), 15, "lstm");
    check_layer(lstm_create("lstm", 16, 2, 3, 4), 12, "lstm, fewer sequences than it has room for");
}

/* ---- the loss ---- */

static void loss_and_its_gradient(void **state)
{
    (void)state;
    enum { ROWS = 4, CLASSES = 6 };
    gen g = {SEED};
    float x[ROWS * CLASSES], gradient[ROWS * CLASSES];
    const int32_t labels[ROWS] = {0, 5, 2, 2};
    double wrong = 0, size = 0;
    random_fill(&g, x, ROWS * CLASSES, 2);
    const loss l = softmax_loss(ROWS, CLASSES, x, labels, gradient);
    for (size_t i = 0; i < ROWS * CLASSES; i++) {
        const float keep = x[i];
        x[i] = keep + H;
        const double above = softmax_loss(ROWS, CLASSES, x, labels, NULL).sum;
        x[i] = keep - H;
        const double below = softmax_loss(ROWS, CLASSES, x, labels, NULL).sum;
        x[i] = keep;
        const double slope = (above - below) / (2 * (double)H) / ROWS;
        wrong += pow(slope - (double)gradient[i], 2);
        size += slope * slope;
    }
    CHECK(sqrt(wrong / size) < BOUND, "gradient is wrong by %g", sqrt(wrong / size));
    assert_int_equal(l.rows, ROWS);
    /* no way to overflow, and counted right */
    const float sure[2 * 3] = {1000, 0, -1000, -1000, 0, 1000};
    const int32_t said[2] = {0, 0};
    const loss one = softmax_loss(2, 3, sure, said, NULL);
    CHECK(one.right == 1 && fabs(one.sum - 2000) < 1e-3, "%g, %llu right", one.sum,
          (unsigned long long)one.right);
}

/* ---- whole models ---- */

/* Rows of random numbers or characters. */
static void fill(const dataset *data, int test, const uint32_t *which, size_t n, float *x,
                 int32_t *labels)
{
    gen g = {SEED + (uint64_t)test};
    (void)which;
    for (size_t i = 0; i < n * data->rows; i++) {
        for (size_t j = 0; j < data->width; j++) {
            x[i * data->width + j] = data->width == 1
                                         ? (float)gen_below(&g, (uint32_t)data->classes)
                                         : (float)gen_normal(&g);
        }
        labels[i] = (int32_t)gen_below(&g, (uint32_t)data->classes);
    }
}

typedef struct order {
    const model *m;
    size_t next;
    float *seen; /* gradients as they were when each was said to be complete */
} order;

static gw_status note(void *arg, size_t index, gw_why *why)
{
    order *o = arg;
    const param *p = o->m->params[index];
    (void)why;
    CHECK(index == o->next, "param %zu is told of as number %zu", index, o->next);
    memcpy(o->seen + (p->gradient - o->m->gradients), p->gradient, p->count * sizeof(float));
    o->next++;
    return GW_OK;
}

static double model_loss(model *m, size_t rows, size_t classes, const float *x,
                         const int32_t *labels, float *gradient)
{
    const float *numbers = model_forward(m, rows, x);
    return softmax_loss(rows, classes, numbers, labels, gradient).sum / (double)rows;
}

/* The slope along each param's gradient is its length. */
static void check_slopes(model *m, size_t rows, size_t classes, const float *x,
                         const int32_t *labels)
{
    for (size_t i = 0; i < m->n_params; i++) {
        const param *p = m->params[i];
        float *keep = malloc(p->count * sizeof(float));
        assert_non_null(keep);
        memcpy(keep, p->value, p->count * sizeof(float));
        double length = 0, value[2];
        for (size_t j = 0; j < p->count; j++) {
            length += pow((double)p->gradient[j], 2);
        }
        length = sqrt(length);
        for (int side = 0; side < 2; side++) {
            const double by = (side == 0 ? 1 : -1) * 2e-3 / length;
            for (size_t j = 0; j < p->count; j++) {
                p->value[j] = (float)((double)keep[j] + by * (double)p->gradient[j]);
            }
            value[side] = model_loss(m, rows, classes, x, labels, NULL);
        }
        memcpy(p->value, keep, p->count * sizeof(float));
        free(keep);
        const double slope = (value[0] - value[1]) / 4e-3;
        CHECK(fabs(slope / length - 1) < MODEL_BOUND, "%s: slope %g, gradient %g", p->name, slope,
              length);
    }
}

static void check_model(const char *name, size_t rows, size_t width, size_t least, size_t most)
{
    enum { EXAMPLES = 3 };
    const dataset data = {.rows = rows, .width = width, .classes = 10, .fill = fill};
    model *m = NULL;
    gw_why why = {""};
    CHECK(model_create(name, &data, EXAMPLES, SEED, &m, &why) == GW_OK, "%s", why.text);
    CHECK(m->count >= least && m->count <= most, "%s: %zu weights", name, m->count);
    float *x = calloc(EXAMPLES * rows * width, sizeof *x);
    int32_t *labels = calloc(EXAMPLES * rows, sizeof *labels);
    order o = {m, 0, calloc(m->room, sizeof(float))};
    assert_true(x != NULL && labels != NULL && o.seen != NULL);
    data.fill(&data, 0, NULL, EXAMPLES, x, labels);
    (void)model_loss(m, EXAMPLES * rows, 10, x, labels, model_output_gradient(m));
    assert_int_equal(model_backward(m, EXAMPLES * rows, x, note, &o, &why), GW_OK);
    assert_int_equal(o.next, m->n_params);
    assert_memory_equal(o.seen, m->gradients, m->room * sizeof(float));
    check_slopes(m, EXAMPLES * rows, 10, x, labels);
    free(x);
    free(labels);
    free(o.seen);
    model_destroy(m);
}

static void whole_models(void **state)
{
    (void)state;
    check_model("mlp", 1, 784, 200 * 1000, 300 * 1000);
    check_model("cnn", 1, 784, 300 * 1000, 1500 * 1000);
    check_model("lstm", 8, 1, 300 * 1000, 1500 * 1000);
    const dataset data = {.rows = 1, .width = 5, .classes = 10};
    model *m = NULL;
    gw_why why = {""};
    assert_int_equal(model_create("gpt", &data, 1, SEED, &m, &why), GW_ERR_UNKNOWN);
    assert_non_null(strstr(why.text, "cnn"));
    assert_int_equal(model_create("cnn", &data, 1, SEED, &m, &why), GW_ERR_UNSUPPORTED);
}

/* Of sizes with and without whole groups of rows and panels, against sums in fp64. */
static void few_rows_are_products(void **state)
{
    (void)state;
    enum { M = 19, N = 70, K = 37 };
    static float a[M * K], b[K * N], turned_b[N * K], before[M * N];
    gen g = {SEED};
    random_fill(&g, a, M * K, 1);
    random_fill(&g, b, K * N, 1);
    random_fill(&g, before, M * N, 1);
    for (size_t m = 1; m <= M; m += 3) {
        for (size_t n = 1; n <= N; n += n < 30 ? 7 : 1) {
            float *c = calloc(m * n, sizeof *c);
            float *packed = malloc(few_rows_room(n, K) * sizeof *packed);
            assert_true(c != NULL && packed != NULL);
            for (size_t i = 0; i < K * n; i++) {
                turned_b[i % n * K + i / n] = b[i];
            }
            for (int turn = 0; turn < 2; turn++) {
                memcpy(c, before, m * n * sizeof *c);
                few_rows_pack(turn ? TURNED : AS_IS, n, K, turn ? turned_b : b, packed);
                few_rows(m, n, K, a, packed, c);
                for (size_t i = 0; i < m * n; i++) {
                    double sum = (double)before[i];
                    for (size_t p = 0; p < K; p++) {
                        sum += (double)a[i / n * K + p] * (double)b[p * n + i % n];
                    }
                    if (!(fabs(sum - (double)c[i]) < 1e-4)) {
                        fail_msg("%zu x %zu, turned %d, element %zu: %g, not %g", m, n, turn, i,
                                 (double)c[i], sum);
                    }
                }
            }
            free(packed);
            free(c);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_layer),  cmocka_unit_test(few_rows_are_products),
        cmocka_unit_test(conv2d_layer),  cmocka_unit_test(relu_layer),
        cmocka_unit_test(maxpool_layer), cmocka_unit_test(embedding_layer),
        cmocka_unit_test(lstm_layer),    cmocka_unit_test(loss_and_its_gradient),
        cmocka_unit_test(whole_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
