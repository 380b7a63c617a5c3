/* Long short-term memory (Hochreiter and Schmidhuber 1997; forget gate: Gers et al. 2000), unrolled over a window.
 *
 *     i, f, g, o = Wx x_t + Wh h_t-1 + b          one row of 4 · units, after σ, σ, tanh, σ
 *     c_t = f c_t-1 + i g      h_t = o tanh(c_t) */
#include "trainer/few_rows_gemm.h"
#include "trainer/gemm.h"
#include "trainer/layer.h"
#include "trainer/wide.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { BIAS, RECURRENT, INPUT };

/* Added to what the forget gate sees, so that it begins by remembering (Jozefowicz et al. 2015). */
static const float remember = 1;

typedef struct lstm {
    layer base;
    size_t window, units;
    float *gates, *cells, *tanh_cells; /* of every row */
    float *gate_gradients;             /* of every row, before σ and tanh */
    float *h_gradient, *cell_gradient; /* what comes from the next moment, of every sequence */
    float *ahead, *back;               /* the recurrent weights, packed for both directions */
} lstm;

/* e^x to 5 units in the last place, without a call or a branch, so that compilers make vectors of it: a third of a step was in expf. */
ALWAYS_INLINE float exponential(float x)
{
    const float whole =
        12582912; /* 1.5 · 2^23: what is added to it is rounded to an integer, its low bits */
    const float limited = x < -87 ? -87 : x > 88 ? 88 : x;
    const float shifted = limited * 1.44269504F + whole;
    const float power = shifted - whole;
    const float rest =
        (limited - power * 0.693145752F) - power * 1.42860677e-6F; /* ln 2 in two parts */
    float series = 1.38888889e-3F;
    series = series * rest + 8.33333333e-3F;
    series = series * rest + 4.16666667e-2F;
    series = series * rest + 0.166666667F;
    series = series * rest + 0.5F;
    series = series * rest + 1;
    series = series * rest + 1;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + (UINT32_C(127) << 23);
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return series * scale;
}

ALWAYS_INLINE float sigmoid(float x)
{
    return 1 / (1 + exponential(-x));
}

ALWAYS_INLINE float hyperbolic(float x)
{
    return 2 * sigmoid(2 * x) - 1;
}

ALWAYS_INLINE void sigmoid_all(size_t n, float shift, float *x)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = sigmoid(x[i] + shift);
    }
}

ALWAYS_INLINE void hyperbolic_all(size_t n, const float *restrict x, float *restrict y)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = hyperbolic(x[i]);
    }
}

/* One moment of one sequence; `before` is NULL at the first. */
ALWAYS_INLINE void forward_units(size_t units, float *gates, const float *before,
                                 float *restrict cell, float *tanh_cell, float *h)
{
    float *i = gates, *f = gates + units, *g = gates + 2 * units, *o = gates + 3 * units;
    sigmoid_all(units, 0, i);
    sigmoid_all(units, remember, f);
    for (size_t u = 0; u < units; u++) {
        g[u] = hyperbolic(g[u]);
    }
    sigmoid_all(units, 0, o);
    for (size_t u = 0; u < units; u++) {
        cell[u] = i[u] * g[u] + (before != NULL ? f[u] * before[u] : 0);
    }
    hyperbolic_all(units, cell, tanh_cell);
    for (size_t u = 0; u < units; u++) {
        h[u] = o[u] * tanh_cell[u];
    }
}

/* Vectors as wide as the processor has; the same bits. */
WIDE_VECTORS static void forward_cell_wide(size_t units, float *gates, const float *before,
                                           float *restrict cell, float *tanh_cell, float *h)
{
    forward_units(units, gates, before, cell, tanh_cell, h);
}

static void forward_cell(size_t units, float *gates, const float *before, float *restrict cell,
                         float *tanh_cell, float *h)
{
    if (has_wide_vectors()) {
        forward_cell_wide(units, gates, before, cell, tanh_cell, h);
    } else {
        forward_units(units, gates, before, cell, tanh_cell, h);
    }
}

static void forward(layer *l, size_t rows, const float *input)
{
    lstm *s = (lstm *)l;
    const size_t n = s->units, sequences = rows / s->window;
    few_rows_pack(TURNED, 4 * n, n, l->params[RECURRENT].value, s->ahead);
    for (size_t row = 0; row < rows; row++) {
        memcpy(s->gates + row * 4 * n, l->params[BIAS].value, 4 * n * sizeof(float));
    }
    gemm(AS_IS, TURNED, rows, 4 * n, l->in, input, l->params[INPUT].value, 1, s->gates);
    for (size_t t = 0; t < s->window; t++) {
        const size_t first = t * sequences;
        if (t > 0) {
            few_rows(sequences, 4 * n, n, l->output + (first - sequences) * n, s->ahead,
                     s->gates + first * 4 * n);
        }
        for (size_t row = first; row < first + sequences; row++) {
            forward_cell(n, s->gates + row * 4 * n, t > 0 ? s->cells + (row - sequences) * n : NULL,
                         s->cells + row * n, s->tanh_cells + row * n, l->output + row * n);
        }
    }
}

/* The gradients of h and of the cell become those of the gates and of the cell before. */
ALWAYS_INLINE void back_units(size_t units, const float *gates, const float *before,
                              const float *tanh_cell, const float *h_gradient,
                              float *restrict cell_gradient, float *restrict gate_gradients)
{
    const float *i = gates, *f = gates + units, *g = gates + 2 * units, *o = gates + 3 * units;
    float *di = gate_gradients, *df = di + units, *dg = df + units, *d_o = dg + units;
    for (size_t u = 0; u < units; u++) {
        const float dh = h_gradient[u], tc = tanh_cell[u];
        const float dc = cell_gradient[u] + dh * o[u] * (1 - tc * tc);
        di[u] = dc * g[u] * i[u] * (1 - i[u]);
        df[u] = before != NULL ? dc * before[u] * f[u] * (1 - f[u]) : 0;
        dg[u] = dc * i[u] * (1 - g[u] * g[u]);
        d_o[u] = dh * tc * o[u] * (1 - o[u]);
        cell_gradient[u] = dc * f[u];
    }
}

WIDE_VECTORS static void back_cell_wide(size_t units, const float *gates, const float *before,
                                        const float *tanh_cell, const float *h_gradient,
                                        float *cell_gradient, float *gate_gradients)
{
    back_units(units, gates, before, tanh_cell, h_gradient, cell_gradient, gate_gradients);
}

static void back_cell(size_t units, const float *gates, const float *before, const float *tanh_cell,
                      const float *h_gradient, float *cell_gradient, float *gate_gradients)
{
    if (has_wide_vectors()) {
        back_cell_wide(units, gates, before, tanh_cell, h_gradient, cell_gradient, gate_gradients);
    } else {
        back_units(units, gates, before, tanh_cell, h_gradient, cell_gradient, gate_gradients);
    }
}

/* From the last moment to the first: gate_gradients of every row. */
static void back_through_time(lstm *s, size_t rows)
{
    const layer *l = &s->base;
    const size_t n = s->units, sequences = rows / s->window;
    few_rows_pack(AS_IS, n, 4 * n, l->params[RECURRENT].value, s->back);
    memset(s->cell_gradient, 0, sequences * n * sizeof(float));
    for (size_t t = s->window; t-- > 0;) {
        const size_t first = t * sequences;
        memcpy(s->h_gradient, l->output_gradient + first * n, sequences * n * sizeof(float));
        if (t + 1 < s->window) {
            few_rows(sequences, n, 4 * n, s->gate_gradients + (first + sequences) * 4 * n, s->back,
                     s->h_gradient);
        }
        for (size_t i = 0; i < sequences; i++) {
            const size_t row = first + i;
            back_cell(n, s->gates + row * 4 * n, t > 0 ? s->cells + (row - sequences) * n : NULL,
                      s->tanh_cells + row * n, s->h_gradient + i * n, s->cell_gradient + i * n,
                      s->gate_gradients + row * 4 * n);
        }
    }
}

static void gradients(layer *l, size_t rows, const float *input)
{
    lstm *s = (lstm *)l;
    const size_t n = s->units, sequences = rows / s->window;
    back_through_time(s, rows);
    column_sums(rows, 4 * n, s->gate_gradients, l->params[BIAS].gradient);
    /* of every moment but the first, with the h of the moment before */
    gemm(TURNED, AS_IS, 4 * n, n, rows - sequences, s->gate_gradients + sequences * 4 * n,
         l->output, 0, l->params[RECURRENT].gradient);
    gemm(TURNED, AS_IS, 4 * n, l->in, rows, s->gate_gradients, input, 0, l->params[INPUT].gradient);
}

static void back(layer *l, size_t rows, const float *input, float *input_gradient)
{
    const lstm *s = (const lstm *)l;
    (void)input;
    gemm(AS_IS, AS_IS, rows, l->in, 4 * s->units, s->gate_gradients, l->params[INPUT].value, 0,
         input_gradient);
}

static const layer_table table = {forward, gradients, back};

layer *lstm_create(const char *name, size_t rows, size_t window, size_t in, size_t units)
{
    const size_t sequences = rows / window;
    const size_t room_ahead = few_rows_room(4 * units, units),
                 room_back = few_rows_room(units, 4 * units);
    const size_t floats =
        rows * units * (4 + 1 + 1 + 4) + 2 * sequences * units + room_ahead + room_back;
    lstm *s = layer_create(sizeof *s, &table, rows, in, units, floats * sizeof(float));
    if (s == NULL) {
        return NULL;
    }
    s->window = window;
    s->units = units;
    s->gates = s->base.scratch;
    s->cells = s->gates + rows * 4 * units;
    s->tanh_cells = s->cells + rows * units;
    s->gate_gradients = s->tanh_cells + rows * units;
    s->h_gradient = s->gate_gradients + rows * 4 * units;
    s->cell_gradient = s->h_gradient + sequences * units;
    s->ahead = s->cell_gradient + sequences * units;
    s->back = s->ahead + room_ahead;
    layer_param(&s->base, PARAM_BIAS, name, "bias", 0, (const uint64_t[4]){4 * units});
    layer_param(&s->base, PARAM_LSTM, name, "recurrent", sqrtf(1 / (float)units),
                (const uint64_t[4]){4 * units, units});
    layer_param(&s->base, PARAM_LSTM, name, "input", sqrtf(1 / (float)in),
                (const uint64_t[4]){4 * units, in});
    return &s->base;
}
