/* A layer of a network: rows of floats in, rows of floats out. One file a layer. */
#ifndef TRAINER_LAYER_H
#define TRAINER_LAYER_H

#include <stddef.h>
#include <stdint.h>

typedef enum param_kind {
    PARAM_BIAS,
    PARAM_LINEAR,
    PARAM_CONV,
    PARAM_LSTM,
    PARAM_EMBEDDING
} param_kind;

/* Weights that are learnt together and go on the wire as one tensor. */
typedef struct param {
    char name[32]; /* "conv1.weight" */
    param_kind kind;
    uint64_t dims[4]; /* slowest first */
    size_t n_dims, count;
    float deviation;         /* of the normal numbers it begins with; 0: of zeros */
    float *value, *gradient; /* the model's */
} param;

enum { LAYER_MAX_PARAMS = 3 };

typedef struct layer layer;

/* Gradients are those of the loss. `gradients` sets the params' gradients out of l->output_gradient; `back`, which
 * comes after it, sets that of the input. Both see the input that forward saw. */
typedef struct layer_table {
    void (*forward)(layer *l, size_t rows, const float *input);
    void (*gradients)(layer *l, size_t rows, const float *input); /* NULL: no params */
    void (*back)(layer *l, size_t rows, const float *input, float *input_gradient);
} layer_table;

/* Layers begin with this; what is behind it is their own. */
struct layer {
    const layer_table *table;
    size_t in, out, rows; /* floats a row; most rows */
    param params[LAYER_MAX_PARAMS];
    size_t n_params;
    float *output, *output_gradient; /* rows · out */
    void *scratch;
};

/* `size` bytes that begin with a layer, its outputs, and `scratch` bytes more. NULL: no memory. */
void *layer_create(size_t size, const layer_table *table, size_t rows, size_t in, size_t out,
                   size_t scratch);
void layer_destroy(layer *l); /* accepts NULL */
/* The next of the layer's params; dims past the last are 0. */
void layer_param(layer *l, param_kind kind, const char *layer_name, const char *name,
                 float deviation, const uint64_t dims[4]);

/* y = W x + b. W: out × in. */
layer *linear_create(const char *name, size_t rows, size_t in, size_t out);
layer *relu_create(size_t rows, size_t width);

/* A row is `channels` planes of height × width. */
typedef struct planes {
    size_t channels, height, width;
} planes;
/* Stride 1, odd kernel × kernel, as many zeros around the plane as leave its size as it is. W: out × in × kernel². */
layer *conv2d_create(const char *name, size_t rows, planes in, size_t out, size_t kernel);
/* The largest of every 2 × 2; height and width are even. */
layer *maxpool_create(size_t rows, planes in);

/* Row `token` of a table: classes × width. Tokens come as floats, exact up to 2^24. */
layer *embedding_create(const char *name, size_t rows, size_t classes, size_t width);
/* Rows are `window` moments, each of rows / window sequences; every sequence begins with a state of zeros, and the
 * gradient goes back to its beginning and no further. */
layer *lstm_create(const char *name, size_t rows, size_t window, size_t in, size_t units);

#endif
