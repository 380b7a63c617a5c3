#include "trainer/layer.h"

typedef struct maxpool {
    layer base;
    planes in;
} maxpool;

/* Offsets of a 2 × 2 from its first pixel. */
static void offsets_of(const maxpool *m, size_t offsets[4])
{
    offsets[0] = 0;
    offsets[1] = 1;
    offsets[2] = m->in.width;
    offsets[3] = m->in.width + 1;
}

static void forward(layer *l, size_t rows, const float *input)
{
    const maxpool *m = (const maxpool *)l;
    const size_t h = m->in.height, w = m->in.width, lines = rows * m->in.channels * h / 2;
    uint8_t *chosen = l->scratch; /* which of the four */
    float *output = l->output;
    size_t offsets[4];
    offsets_of(m, offsets);
    for (size_t y = 0; y < lines; y++) {
        for (size_t x = 0; x < w; x += 2) {
            const float *first = input + 2 * y * w + x;
            uint8_t best = 0;
            for (uint8_t i = 1; i < 4; i++) {
                best = first[offsets[i]] > first[offsets[best]] ? i : best;
            }
            *output++ = first[offsets[best]];
            *chosen++ = best;
        }
    }
}

static void back(layer *l, size_t rows, const float *input, float *input_gradient)
{
    const maxpool *m = (const maxpool *)l;
    const size_t h = m->in.height, w = m->in.width, lines = rows * m->in.channels * h / 2;
    const uint8_t *chosen = l->scratch;
    const float *gradient = l->output_gradient;
    size_t offsets[4];
    (void)input;
    offsets_of(m, offsets);
    for (size_t y = 0; y < lines; y++) {
        for (size_t x = 0; x < w; x += 2) {
            float *first = input_gradient + 2 * y * w + x;
            for (uint8_t i = 0; i < 4; i++) {
                first[offsets[i]] = i == *chosen ? *gradient : 0;
            }
            chosen++;
            gradient++;
        }
    }
}

static const layer_table table = {forward, NULL, back};

layer *maxpool_create(size_t rows, planes in)
{
    const size_t width = in.channels * in.height * in.width;
    maxpool *m = layer_create(sizeof *m, &table, rows, width, width / 4, rows * width / 4);
    if (m == NULL) {
        return NULL;
    }
    m->in = in;
    return &m->base;
}
