#include "trainer/layer.h"

#include <stdio.h>
#include <stdlib.h>

void *layer_create(size_t size, const layer_table *table, size_t rows, size_t in, size_t out,
                   size_t scratch)
{
    layer *l = calloc(1, size);
    if (l == NULL) {
        return NULL;
    }
    l->table = table;
    l->in = in;
    l->out = out;
    l->rows = rows;
    l->output = calloc(rows * out, sizeof *l->output);
    l->output_gradient = calloc(rows * out, sizeof *l->output_gradient);
    l->scratch = calloc(scratch + 1, 1);
    if (l->output == NULL || l->output_gradient == NULL || l->scratch == NULL) {
        layer_destroy(l);
        return NULL;
    }
    return l;
}

void layer_destroy(layer *l)
{
    if (l != NULL) {
        free(l->output);
        free(l->output_gradient);
        free(l->scratch);
        free(l);
    }
}

void layer_param(layer *l, param_kind kind, const char *layer_name, const char *name,
                 float deviation, const uint64_t dims[4])
{
    param *p = &l->params[l->n_params++];
    (void)snprintf(p->name, sizeof p->name, "%s.%s", layer_name, name);
    p->kind = kind;
    p->deviation = deviation;
    p->count = 1;
    for (size_t i = 0; i < 4 && dims[i] != 0; i++) {
        p->dims[i] = dims[i];
        p->count *= (size_t)dims[i];
        p->n_dims = i + 1;
    }
}
