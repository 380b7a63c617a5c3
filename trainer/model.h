/* A network: layers one behind the other, their weights in one piece of memory. */
#ifndef TRAINER_MODEL_H
#define TRAINER_MODEL_H

#include "trainer/data.h"
#include "trainer/layer.h"

enum { MODEL_MAX_LAYERS = 16, MODEL_MAX_PARAMS = 32 };

typedef struct model {
    layer *layers[MODEL_MAX_LAYERS];
    size_t n_layers;
    /* In the order in which backward completes their gradients: the last layer's first. */
    param *params[MODEL_MAX_PARAMS];
    size_t n_params;
    size_t count; /* weights in all */
    /* All params' values and gradients, in that order. Gaps that keep params apart hold zeros; with them it is
     * `room` floats. */
    float *weights, *gradients;
    size_t room;
} model;

/* Names are "mlp", "cnn" and "lstm"; the data says what goes in and how many classes come out. Weights are a function
 * of the seed. For at most `examples` examples at a time. */
gw_status model_create(const char *name, const dataset *data, size_t examples, uint64_t seed,
                       model **out, gw_why *why);
void model_destroy(model *m); /* accepts NULL */

/* The last layer's output: rows × classes. */
const float *model_forward(model *m, size_t rows, const float *x);
/* Where the gradient of that output goes before backward. */
float *model_output_gradient(model *m);
/* Params' gradients, of the batch that forward saw last; `ready` is told of each as soon as it is complete, while
 * those of earlier layers are still to come. A failure of `ready` ends it. */
typedef gw_status model_ready(void *arg, size_t param, gw_why *why);
gw_status model_backward(model *m, size_t rows, const float *x, model_ready *ready, void *arg,
                         gw_why *why);

#endif
