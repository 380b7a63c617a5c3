#include "trainer/model.h"

#include "trainer/data_images.h"
#include "trainer/fail.h"
#include "trainer/random_draws.h"

#include <stdlib.h>
#include <string.h>

/* ---- the models ---- */

static void add(model *m, layer *l)
{
    m->layers[m->n_layers++] = l;
}

static void build_mlp(model *m, const dataset *data, size_t rows)
{
    add(m, linear_create("fc1", rows, data->width, 256));
    add(m, relu_create(rows, 256));
    add(m, linear_create("fc2", rows, 256, 128));
    add(m, relu_create(rows, 128));
    add(m, linear_create("fc3", rows, 128, data->classes));
}

/* A relu behind the pool says the same as one before it, of a quarter of the numbers. */
static void build_cnn(model *m, const dataset *data, size_t rows)
{
    enum { FIRST = 16, SECOND = 32, HIDDEN = 384 };
    const planes input = {1, IMAGE_SIDE, IMAGE_SIDE};
    const planes first = {FIRST, IMAGE_SIDE, IMAGE_SIDE};
    const planes between = {FIRST, IMAGE_SIDE / 2, IMAGE_SIDE / 2};
    const planes second = {SECOND, IMAGE_SIDE / 2, IMAGE_SIDE / 2};
    const size_t flat = (size_t)SECOND * IMAGE_PIXELS / 16;
    add(m, conv2d_create("conv1", rows, input, FIRST, 5));
    add(m, maxpool_create(rows, first));
    add(m, relu_create(rows, (size_t)FIRST * IMAGE_PIXELS / 4));
    add(m, conv2d_create("conv2", rows, between, SECOND, 3));
    add(m, maxpool_create(rows, second));
    add(m, relu_create(rows, flat));
    add(m, linear_create("fc1", rows, flat, HIDDEN));
    add(m, relu_create(rows, HIDDEN));
    add(m, linear_create("fc2", rows, HIDDEN, data->classes));
}

static void build_lstm(model *m, const dataset *data, size_t rows)
{
    enum { WIDTH = 64, UNITS = 256 };
    add(m, embedding_create("embedding", rows, data->classes, WIDTH));
    add(m, lstm_create("lstm", rows, data->rows, WIDTH, UNITS));
    add(m, linear_create("fc", rows, UNITS, data->classes));
}

static const struct known {
    const char *name;
    void (*build)(model *m, const dataset *data, size_t rows);
    size_t width; /* floats a row that it takes; 0: any */
} known[] = {{"mlp", build_mlp, 0}, {"cnn", build_cnn, IMAGE_PIXELS}, {"lstm", build_lstm, 1}};

/* ---- weights ---- */

/* Params begin at multiples of this many floats: a cache line. */
enum { APART = 16 };

static size_t room_of(const param *p)
{
    return (p->count + APART - 1) / APART * APART;
}

static void list_params(model *m)
{
    for (size_t i = m->n_layers; i-- > 0;) {
        for (size_t j = 0; j < m->layers[i]->n_params; j++) {
            param *p = &m->layers[i]->params[j];
            m->params[m->n_params++] = p;
            m->count += p->count;
            m->room += room_of(p);
        }
    }
}

static void place_params(model *m, uint64_t seed)
{
    size_t at = 0;
    for (size_t i = 0; i < m->n_params; i++) {
        param *p = m->params[i];
        p->value = m->weights + at;
        p->gradient = m->gradients + at;
        at += room_of(p);
        for (size_t j = 0; j < p->count && p->deviation > 0; j++) {
            p->value[j] = p->deviation * random_normal(seed, i, j);
        }
    }
}

static float *zeros(size_t n)
{
    float *all = aligned_alloc(APART * sizeof(float), n * sizeof(float));
    if (all != NULL) {
        memset(all, 0, n * sizeof(float));
    }
    return all;
}

gw_status model_create(const char *name, const dataset *data, size_t examples, uint64_t seed,
                       model **out, gw_why *why)
{
    const struct known *k = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        k = strcmp(known[i].name, name) == 0 ? &known[i] : k;
    }
    if (k == NULL) {
        return trainer_fail(why, GW_ERR_UNKNOWN, "no model '%.40s': there are mlp, cnn and lstm",
                            name);
    }
    if (k->width != 0 && k->width != data->width) {
        return trainer_fail(why, GW_ERR_UNSUPPORTED, "model %s takes %zu numbers a row, not %zu",
                            name, k->width, data->width);
    }
    model *m = calloc(1, sizeof *m);
    int complete = m != NULL;
    if (complete) {
        k->build(m, data, examples * data->rows);
        for (size_t i = 0; i < m->n_layers; i++) {
            complete &= m->layers[i] != NULL;
        }
    }
    if (complete) {
        list_params(m);
        m->weights = zeros(m->room);
        m->gradients = zeros(m->room);
        complete = m->weights != NULL && m->gradients != NULL;
    }
    if (!complete) {
        model_destroy(m);
        return trainer_fail(why, GW_ERR_MEMORY, "no memory for model %s", name);
    }
    place_params(m, seed);
    *out = m;
    return GW_OK;
}

void model_destroy(model *m)
{
    if (m == NULL) {
        return;
    }
    for (size_t i = 0; i < m->n_layers; i++) {
        layer_destroy(m->layers[i]);
    }
    free(m->weights);
    free(m->gradients);
    free(m);
}

/* ---- there and back ---- */

const float *model_forward(model *m, size_t rows, const float *x)
{
    for (size_t i = 0; i < m->n_layers; i++) {
        m->layers[i]->table->forward(m->layers[i], rows, x);
        x = m->layers[i]->output;
    }
    return x;
}

float *model_output_gradient(model *m)
{
    return m->layers[m->n_layers - 1]->output_gradient;
}

gw_status model_backward(model *m, size_t rows, const float *x, model_ready *ready, void *arg,
                         gw_why *why)
{
    size_t at = 0;
    for (size_t i = m->n_layers; i-- > 0;) {
        layer *l = m->layers[i], *before = i > 0 ? m->layers[i - 1] : NULL;
        const float *input = before != NULL ? before->output : x;
        if (l->table->gradients != NULL) {
            l->table->gradients(l, rows, input);
        }
        for (size_t j = 0; j < l->n_params; j++) {
            const gw_status status = ready(arg, at++, why);
            if (status != GW_OK) {
                return status;
            }
        }
        if (before != NULL) {
            l->table->back(l, rows, input, before->output_gradient);
        }
    }
    return GW_OK;
}
