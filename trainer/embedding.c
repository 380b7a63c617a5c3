#include "trainer/layer.h"

#include <string.h>

static void forward(layer *l, size_t rows, const float *input)
{
    const float *table = l->params[0].value;
    for (size_t i = 0; i < rows; i++) {
        memcpy(l->output + i * l->out, table + (size_t)input[i] * l->out, l->out * sizeof(float));
    }
}

static void gradients(layer *l, size_t rows, const float *input)
{
    float *table = l->params[0].gradient;
    memset(table, 0, l->params[0].count * sizeof *table);
    for (size_t i = 0; i < rows; i++) {
        float *row = table + (size_t)input[i] * l->out;
        for (size_t j = 0; j < l->out; j++) {
            row[j] += l->output_gradient[i * l->out + j];
        }
    }
}

/* Tokens have no gradient. */
static void back(layer *l, size_t rows, const float *input, float *input_gradient)
{
    (void)l;
    (void)input;
    memset(input_gradient, 0, rows * sizeof *input_gradient);
}

static const layer_table embedding = {forward, gradients, back};

layer *embedding_create(const char *name, size_t rows, size_t classes, size_t width)
{
    layer *l = layer_create(sizeof *l, &embedding, rows, 1, width, 0);
    if (l != NULL) {
        layer_param(l, PARAM_EMBEDDING, name, "weight", 1, (const uint64_t[4]){classes, width});
    }
    return l;
}
