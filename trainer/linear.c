#include "trainer/gemm.h"
#include "trainer/layer.h"

#include <math.h>
#include <string.h>

enum { BIAS, WEIGHT };

static void forward(layer *l, size_t rows, const float *input)
{
    for (size_t i = 0; i < rows; i++) {
        memcpy(l->output + i * l->out, l->params[BIAS].value, l->out * sizeof(float));
    }
    gemm(AS_IS, TURNED, rows, l->out, l->in, input, l->params[WEIGHT].value, 1, l->output);
}

static void gradients(layer *l, size_t rows, const float *input)
{
    column_sums(rows, l->out, l->output_gradient, l->params[BIAS].gradient);
    gemm(TURNED, AS_IS, l->out, l->in, rows, l->output_gradient, input, 0,
         l->params[WEIGHT].gradient);
}

static void back(layer *l, size_t rows, const float *input, float *input_gradient)
{
    (void)input;
    gemm(AS_IS, AS_IS, rows, l->in, l->out, l->output_gradient, l->params[WEIGHT].value, 0,
         input_gradient);
}

static const layer_table linear = {forward, gradients, back};

layer *linear_create(const char *name, size_t rows, size_t in, size_t out)
{
    layer *l = layer_create(sizeof *l, &linear, rows, in, out, 0);
    if (l != NULL) {
        layer_param(l, PARAM_BIAS, name, "bias", 0, (const uint64_t[4]){out});
        layer_param(l, PARAM_LINEAR, name, "weight", sqrtf(1 / (float)in),
                    (const uint64_t[4]){out, in});
    }
    return l;
}
