#include "cli/adapt/layer_levels.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/exec.h"
#include "cli/say.h"
#include "cli/seconds.h"

/* ---- what is asked ---- */

bool gw_cli_factor_parse(const char *text, double *out)
{
    char *end = NULL;
    *out = strtod(text, &end);
    return (isdigit((unsigned char)text[0]) || strcmp(text, "inf") == 0) && *end == '\0' &&
           *out >= 0;
}

static int add_family(gw_cli_levels *l, const gw_cli_page *page, const char *spec)
{
    gw_why why = {""};
    if (gw_params_parse(&l->families[l->rules.n_families], spec, &why) != GW_OK) {
        return gw_cli_misuse(page, "--family '%s': %s", spec, why.text);
    }
    /* the default's own family has the default's settings */
    if (!strchr(spec, ':') && l->families[l->rules.n_families].codec == l->rules.uniform.codec) {
        l->families[l->rules.n_families] = l->rules.uniform;
    }
    l->rules.n_families++;
    return GW_CLI_GO_ON;
}

/* "dither,topk" or one spec, which may have commas of its own. */
static int add_families(gw_cli_levels *l, const gw_cli_page *page, const char *text)
{
    char one[64];
    if (strchr(text, ':')) {
        return add_family(l, page, text);
    }
    int status = GW_CLI_GO_ON;
    for (const char *at = text; at && status == GW_CLI_GO_ON;) {
        const char *comma = strchr(at, ',');
        const size_t size = comma ? (size_t)(comma - at) : strlen(at);
        (void)snprintf(one, sizeof one, "%.*s", (int)(size < sizeof one ? size : sizeof one - 1),
                       at);
        status = add_family(l, page, one);
        at = comma ? comma + 1 : NULL;
    }
    return status;
}

int gw_cli_levels_ask(gw_cli_levels *l, const gw_cli_page *page, const gw_cli_texts *families,
                      const char *uniform)
{
    gw_why why = {""};
    size_t most = 0;
    if (families->count == 0 || !uniform) {
        return gw_cli_misuse(page, "%s is missing", uniform ? "--family" : "--default");
    }
    if (gw_params_parse(&l->rules.uniform, uniform, &why) != GW_OK) {
        return gw_cli_misuse(page, "--default '%s': %s", uniform, why.text);
    }
    for (size_t i = 0; i < families->count; i++) {
        most += strlen(families->items[i]) + 1;
    }
    l->families = calloc(most, sizeof *l->families);
    if (!l->families) {
        gw_cli_out_of_memory();
        return GW_CLI_FAILED;
    }
    l->rules.families = l->families;
    int status = GW_CLI_GO_ON;
    for (size_t i = 0; i < families->count && status == GW_CLI_GO_ON; i++) {
        status = add_families(l, page, families->items[i]);
    }
    return status;
}

/* ---- layers ---- */

/* The name behind "rankN/"; all of it where there is no such prefix. */
static const char *layer_name(const char *name)
{
    const size_t digits = strncmp(name, "rank", 4) == 0 ? strspn(name + 4, "0123456789") : 0;
    return digits > 0 && name[4 + digits] == '/' ? name + 5 + digits : name;
}

gw_cli_layer *gw_cli_levels_find(const gw_cli_levels *l, const char *name, size_t size)
{
    for (size_t i = 0; i < l->n_layers; i++) {
        const char *own = l->layers[i].name;
        if (own && strncmp(own, name, size) == 0 && own[size] == '\0') {
            return &l->layers[i];
        }
    }
    return NULL;
}

static bool same_shape(const gw_cli_tensor *a, const gw_cli_tensor *b)
{
    return a->dtype == b->dtype && a->shape.n_dims == b->shape.n_dims &&
           memcmp(a->shape.dims, b->shape.dims, a->shape.n_dims * sizeof a->shape.dims[0]) == 0;
}

/* Tensors of one name on all ranks are one layer, in the order of the file. */
static bool collect_layers(gw_cli_levels *l)
{
    l->layers = calloc(l->tensors.n + 1, sizeof *l->layers);
    if (!l->layers) {
        gw_cli_out_of_memory();
        return false;
    }
    for (size_t t = 0; t < l->tensors.n; t++) {
        const gw_cli_tensor *tensor = &l->tensors.items[t];
        const char *name = layer_name(tensor->name);
        gw_cli_layer *layer = gw_cli_levels_find(l, name, strlen(name));
        if (!layer) {
            layer = &l->layers[l->n_layers++];
            *layer = (gw_cli_layer){.name = name, .tensor = tensor};
        } else if (!same_shape(layer->tensor, tensor)) {
            gw_cli_error("tensors '%.80s' and '%.80s' have different shapes or types",
                         layer->tensor->name, tensor->name);
            return false;
        }
        layer->n_tensors++;
        l->n_ranks = layer->n_tensors > l->n_ranks ? layer->n_tensors : l->n_ranks;
    }
    for (size_t i = 0; i < l->n_layers; i++) {
        if (l->layers[i].n_tensors != l->n_ranks) {
            gw_cli_error("layer '%.80s' is there on %zu of %zu ranks", l->layers[i].name,
                         l->layers[i].n_tensors, l->n_ranks);
            return false;
        }
    }
    return true;
}

static bool failed(const char *tensor, gw_status status, const gw_why *why)
{
    gw_cli_error("tensor '%.80s': %s", tensor, why->text[0] ? why->text : gw_status_string(status));
    return false;
}

static bool prepare_layer(gw_cli_levels *l, gw_cli_layer *layer)
{
    gw_why why = {""};
    const gw_cli_shape *shape = &layer->tensor->shape;
    layer->levels = calloc(GW_ADAPT_MOST_LEVELS, sizeof *layer->levels);
    layer->bytes = calloc(GW_ADAPT_MOST_LEVELS, sizeof *layer->bytes);
    layer->errors = calloc(GW_ADAPT_MOST_LEVELS, sizeof *layer->errors);
    if (!layer->levels || !layer->bytes || !layer->errors) {
        gw_cli_out_of_memory();
        return false;
    }
    gw_status status =
        gw_adapt_levels(&l->rules, layer->tensor->dtype, shape->dims, shape->n_dims, layer->levels,
                        GW_ADAPT_MOST_LEVELS, &layer->n, &layer->uniform, &why);
    if (status == GW_OK) {
        status =
            gw_adapt_bytes(layer->levels, layer->n, shape->count, l->header, layer->bytes, &why);
    }
    size_t bytes = 0;
    if (status == GW_OK) {
        status = gw_adapt_measure_workspace(layer->levels, layer->n, shape->count, &bytes);
    }
    if (status != GW_OK) {
        return failed(layer->name, status, &why);
    }
    if (bytes > l->exec.workspace.size) {
        free(l->exec.workspace.data);
        l->exec.workspace = (gw_workspace){malloc(bytes), bytes};
        if (!l->exec.workspace.data) {
            gw_cli_out_of_memory();
            return false;
        }
    }
    return true;
}

/* Means over the ranks of what each level loses. */
static bool measure(gw_cli_levels *l)
{
    double errors[GW_ADAPT_MOST_LEVELS];
    const double begin = gw_cli_now();
    for (size_t t = 0; t < l->tensors.n; t++) {
        const gw_cli_tensor *tensor = &l->tensors.items[t];
        const char *name = layer_name(tensor->name);
        gw_cli_layer *layer = gw_cli_levels_find(l, name, strlen(name));
        const gw_tensor in = {tensor->data, tensor->shape.count, tensor->dtype};
        gw_why why = {""};
        if (!layer->levels && !prepare_layer(l, layer)) {
            return false;
        }
        const gw_status status = gw_adapt_measure(layer->levels, layer->n, l->metric, &l->exec, &in,
                                                  NULL, l->seed, errors, &why);
        if (status != GW_OK) {
            return failed(tensor->name, status, &why);
        }
        for (size_t i = 0; i < layer->n; i++) {
            layer->errors[i] += errors[i] / (double)l->n_ranks;
        }
    }
    l->tables_ms = 1e3 * (gw_cli_now() - begin);
    return true;
}

bool gw_cli_levels_measure(gw_cli_levels *l, const char *path, int talk)
{
    return gw_cli_exec_open(l->isa, 1, &l->exec) &&
           gw_cli_tensors_open(path, GW_CLI_BY_NAME, talk, &l->tensors) && collect_layers(l) &&
           measure(l);
}

void gw_cli_levels_free(gw_cli_levels *l)
{
    for (size_t i = 0; i < l->n_layers; i++) {
        free(l->layers[i].levels);
        free(l->layers[i].bytes);
        free(l->layers[i].errors);
    }
    free(l->layers);
    free(l->families);
    gw_cli_tensors_close(&l->tensors);
    gw_cli_exec_close(&l->exec);
    *l = (gw_cli_levels){.n_layers = 0};
}
