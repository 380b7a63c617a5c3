/* Problems to choose from: errors and bytes of a few layers or of many, all from a seed; and the answer by trying
 * every assignment. */
#ifndef GW_TESTS_ADAPT_TABLES_H
#define GW_TESTS_ADAPT_TABLES_H

#include <math.h>

#include "support/check.h"
#include "support/gen.h"

enum { MOST_LAYERS = 400, MOST_LEVELS = 128 };

typedef enum table_kind {
    TABLE_RANDOM, /* nothing follows from anything */
    TABLE_SMOOTH, /* errors fall like powers, bytes grow: what codecs give */
    TABLE_WHOLE,  /* few whole numbers, zeros among them: ties everywhere */
    TABLE_EQUAL,  /* all errors of a layer the same third */
    TABLE_HUGE,   /* ratios of 1e13 */
    TABLE_KINDS
} table_kind;

typedef struct table {
    gw_adapt_layer layers[MOST_LAYERS];
    size_t n;
    double errors[MOST_LAYERS][MOST_LEVELS];
    uint64_t bytes[MOST_LAYERS][MOST_LEVELS];
} table;

static inline void table_fill(table *t, gen *g, table_kind kind, size_t layers, uint32_t levels)
{
    t->n = layers;
    for (size_t l = 0; l < layers; l++) {
        const double size = exp(4 * gen_uniform(g)), power = 0.3 + gen_uniform(g);
        for (uint32_t i = 0; i < levels; i++) {
            double *e = &t->errors[l][i];
            uint64_t *b = &t->bytes[l][i];
            *b = gen_below(g, 1000);
            switch (kind) {
            case TABLE_SMOOTH:
                *e = size * pow(i + 1, -power);
                *b = (uint64_t)(50 * size * (i + 1)) + gen_below(g, 7);
                break;
            case TABLE_WHOLE:
                *e = gen_below(g, 4);
                *b = gen_below(g, 5);
                break;
            case TABLE_EQUAL:
                *e = size / 3;
                break;
            case TABLE_HUGE:
                *e = exp(30 * gen_uniform(g) - 15);
                *b = (uint64_t)exp(20 * gen_uniform(g));
                break;
            default:
                *e = gen_uniform(g);
            }
        }
        t->layers[l] = (gw_adapt_layer){.errors = t->errors[l],
                                        .bytes = t->bytes[l],
                                        .n = levels,
                                        .uniform = gen_below(g, levels)};
    }
}

/* A choice with its levels. */
typedef struct answer {
    gw_adapt_choice c;
    uint32_t levels[MOST_LAYERS];
} answer;

static inline void choose(const table *t, double alpha, gw_adapt_method method, uint32_t buckets,
                          answer *out)
{
    const gw_adapt_problem p = {t->layers, t->n, alpha, method, buckets};
    gw_why why = {""};
    size_t size = 0;
    assert_int_equal(gw_adapt_workspace(&p, &size), GW_OK);
    gw_workspace w = {malloc(size), size};
    assert_non_null(w.data);
    memset(w.data, 0xA5, size);
    memset(out, 0, sizeof *out);
    out->c.levels = out->levels;
    const gw_status status = gw_adapt_choose(&p, w, &out->c, &why);
    free(w.data);
    CHECK(status == GW_OK, "%s", why.text);
}

static inline double sums(const table *t, const uint32_t *levels, uint64_t *bytes)
{
    double error = 0;
    *bytes = 0;
    for (size_t l = 0; l < t->n; l++) {
        error += t->errors[l][levels[l]];
        *bytes += t->bytes[l][levels[l]];
    }
    return error;
}

static inline int table_allows(const gw_adapt_layer *layer, uint32_t level)
{
    return level >= layer->first &&
           (layer->allowed == 0 || level < layer->first + layer->allowed) &&
           isfinite(layer->errors[level]) && layer->errors[level] >= 0;
}

/* Fewest bytes of all assignments with at most this error; UINT64_MAX for none. */
static inline uint64_t search(const table *t, double budget)
{
    uint64_t best = UINT64_MAX;
    uint32_t levels[8] = {0};
    assert_true(t->n <= 8);
    for (size_t l = 0; l < t->n || t->n == 0;) {
        uint64_t bytes;
        int fits = sums(t, levels, &bytes) <= budget;
        for (size_t i = 0; i < t->n; i++) {
            fits = fits && table_allows(&t->layers[i], levels[i]);
            for (size_t j = 0; j < i; j++) {
                fits = fits && (t->layers[i].group == 0 ||
                                t->layers[i].group != t->layers[j].group || levels[i] == levels[j]);
            }
        }
        best = fits && bytes < best ? bytes : best;
        for (l = 0; l < t->n && ++levels[l] == t->layers[l].n; l++) {
            levels[l] = 0;
        }
        if (t->n == 0) {
            break;
        }
    }
    return best;
}

#endif
