#include "trainer/layer.h"

static void forward(layer *l, size_t rows, const float *input)
{
    for (size_t i = 0; i < rows * l->out; i++) {
        l->output[i] = input[i] > 0 ? input[i] : 0;
    }
}

static void back(layer *l, size_t rows, const float *input, float *input_gradient)
{
    for (size_t i = 0; i < rows * l->in; i++) {
        input_gradient[i] = input[i] > 0 ? l->output_gradient[i] : 0;
    }
}

static const layer_table relu = {forward, NULL, back};

layer *relu_create(size_t rows, size_t width)
{
    return layer_create(sizeof(layer), &relu, rows, width, width, 0);
}
