/* Convolution as a product of matrices: the plane around every pixel becomes a column ("im2col").
 *
 *     output (out × pixels) = W (out × in·kernel²) · columns (in·kernel² × pixels)          of one row of the batch */
#include "trainer/gemm.h"
#include "trainer/layer.h"

#include <math.h>
#include <string.h>

enum { BIAS, WEIGHT };

typedef struct conv2d {
    layer base;
    planes in;
    size_t out, kernel;
} conv2d;

static size_t pixels_of(const conv2d *c)
{
    return c->in.height * c->in.width;
}

static size_t taps_of(const conv2d *c)
{
    return c->in.channels * c->kernel * c->kernel;
}

/* Where tap k of a line of `width` pixels falls inside: pixels [from, to) take input pixels from + shift and on. */
typedef struct overlap {
    size_t from, to;
    ptrdiff_t shift;
} overlap;

static overlap overlap_of(size_t width, size_t kernel, size_t k)
{
    const size_t half = kernel / 2;
    const size_t from = k < half ? half - k : 0;
    return (overlap){from, k > half ? width - (k - half) : width, (ptrdiff_t)k - (ptrdiff_t)half};
}

/* Columns of one row of the batch: for every channel, tap and line of the plane, that line as the tap sees it. */
static void gather(const conv2d *c, const float *input, float *columns)
{
    const size_t h = c->in.height, w = c->in.width;
    float *line = columns;
    for (size_t channel = 0; channel < c->in.channels; channel++) {
        const float *plane = input + channel * h * w;
        for (size_t k = 0; k < c->kernel * c->kernel; k++) {
            const overlap rows = overlap_of(h, c->kernel, k / c->kernel);
            const overlap cols = overlap_of(w, c->kernel, k % c->kernel);
            for (size_t y = 0; y < h; y++, line += w) {
                if (y < rows.from || y >= rows.to) {
                    memset(line, 0, w * sizeof *line);
                    continue;
                }
                const float *from = plane + ((ptrdiff_t)y + rows.shift) * (ptrdiff_t)w + cols.shift;
                memset(line, 0, cols.from * sizeof *line);
                memcpy(line + cols.from, from + cols.from, (cols.to - cols.from) * sizeof *line);
                memset(line + cols.to, 0, (w - cols.to) * sizeof *line);
            }
        }
    }
}

/* The other way round: every column is added to the pixels it came from. */
static void scatter(const conv2d *c, const float *columns, float *input)
{
    const size_t h = c->in.height, w = c->in.width;
    const float *line = columns;
    memset(input, 0, c->base.in * sizeof *input);
    for (size_t channel = 0; channel < c->in.channels; channel++) {
        float *plane = input + channel * h * w;
        for (size_t k = 0; k < c->kernel * c->kernel; k++) {
            const overlap rows = overlap_of(h, c->kernel, k / c->kernel);
            const overlap cols = overlap_of(w, c->kernel, k % c->kernel);
            for (size_t y = 0; y < h; y++, line += w) {
                if (y < rows.from || y >= rows.to) {
                    continue;
                }
                float *to = plane + ((ptrdiff_t)y + rows.shift) * (ptrdiff_t)w + cols.shift;
                for (size_t x = cols.from; x < cols.to; x++) {
                    to[x] += line[x];
                }
            }
        }
    }
}

static void forward(layer *l, size_t rows, const float *input)
{
    const conv2d *c = (const conv2d *)l;
    const size_t pixels = pixels_of(c);
    float *columns = l->scratch;
    for (size_t i = 0; i < rows; i++) {
        float *output = l->output + i * l->out;
        gather(c, input + i * l->in, columns);
        for (size_t channel = 0; channel < c->out; channel++) {
            for (size_t p = 0; p < pixels; p++) {
                output[channel * pixels + p] = l->params[BIAS].value[channel];
            }
        }
        gemm(AS_IS, AS_IS, c->out, pixels, taps_of(c), l->params[WEIGHT].value, columns, 1, output);
    }
}

static void gradients(layer *l, size_t rows, const float *input)
{
    const conv2d *c = (const conv2d *)l;
    const size_t pixels = pixels_of(c);
    float *columns = l->scratch, *bias = l->params[BIAS].gradient;
    memset(bias, 0, c->out * sizeof *bias);
    for (size_t i = 0; i < rows; i++) {
        const float *gradient = l->output_gradient + i * l->out;
        gather(c, input + i * l->in, columns);
        gemm(AS_IS, TURNED, c->out, taps_of(c), pixels, gradient, columns, i > 0,
             l->params[WEIGHT].gradient);
        for (size_t channel = 0; channel < c->out; channel++) {
            float sum = 0;
            for (size_t p = 0; p < pixels; p++) {
                sum += gradient[channel * pixels + p];
            }
            bias[channel] += sum;
        }
    }
}

static void back(layer *l, size_t rows, const float *input, float *input_gradient)
{
    const conv2d *c = (const conv2d *)l;
    float *columns = l->scratch;
    (void)input;
    for (size_t i = 0; i < rows; i++) {
        gemm(TURNED, AS_IS, taps_of(c), pixels_of(c), c->out, l->params[WEIGHT].value,
             l->output_gradient + i * l->out, 0, columns);
        scatter(c, columns, input_gradient + i * l->in);
    }
}

static const layer_table table = {forward, gradients, back};

layer *conv2d_create(const char *name, size_t rows, planes in, size_t out, size_t kernel)
{
    const size_t pixels = in.height * in.width, taps = in.channels * kernel * kernel;
    conv2d *c = layer_create(sizeof *c, &table, rows, in.channels * pixels, out * pixels,
                             taps * pixels * sizeof(float));
    if (c == NULL) {
        return NULL;
    }
    c->in = in;
    c->out = out;
    c->kernel = kernel;
    layer_param(&c->base, PARAM_BIAS, name, "bias", 0, (const uint64_t[4]){out});
    /* sqrt(2 / taps) keeps the size of what goes through a relu (He et al. 2015) */
    layer_param(&c->base, PARAM_CONV, name, "weight", sqrtf(2 / (float)taps),
                (const uint64_t[4]){out, in.channels, kernel, kernel});
    return &c->base;
}
