/* `gradwire adapt`: every layer of a file of gradients its own level, under one error budget. */
#include "adapt.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "commands.h"
#include "exec.h"
#include "say.h"

typedef struct values {
    gw_cli_texts families, pins, groups;
    const char *uniform, *alpha, *metric, *min_ratio;
    uint64_t min_elements, header, seed;
    uint32_t buckets;
    bool keep_vectors, fast;
    gw_isa isa;
} values;

static const gw_cli_option OPTIONS[] = {
    {"family", 0, GW_CLI_TEXTS, offsetof(values, families), "F[,F]",
     "codecs whose levels are tried: dither, ndither, natural, topk, lowrank; or one SPEC; again "
     "for more"},
    {"default", 0, GW_CLI_TEXT, offsetof(values, uniform), "SPEC",
     "the level that all layers would have; its error sets the budget"},
    {"alpha", 0, GW_CLI_TEXT, offsetof(values, alpha), "A", "budget = A x the default's error (1)"},
    {"metric", 0, GW_CLI_TEXT, offsetof(values, metric), "M",
     "what is added up: norms, squares, relative (norms)"},
    {"fast", 0, GW_CLI_FLAG, offsetof(values, fast), NULL,
     "convex hulls only, no dynamic programme"},
    {"buckets", 0, GW_CLI_U32, offsetof(values, buckets), "D", "cells of the budget (10000)"},
    {"pin", 0, GW_CLI_TEXTS, offsetof(values, pins), "LAYER=SPEC",
     "a layer that gets this level; again for more"},
    {"group", 0, GW_CLI_TEXTS, offsetof(values, groups), "L,L[,L...]",
     "layers that share a level; again for more"},
    {"keep-vectors", 0, GW_CLI_FLAG, offsetof(values, keep_vectors), NULL,
     "tensors of one dim are sent as they are"},
    {"min-elements", 0, GW_CLI_SIZE, offsetof(values, min_elements), "N",
     "so are tensors of fewer elements (0)"},
    {"min-ratio", 0, GW_CLI_TEXT, offsetof(values, min_ratio), "R",
     "lowrank only where its factors are R times smaller at the given rank (1)"},
    {"header", 0, GW_CLI_U64, offsetof(values, header), "N",
     "bytes that every message carries besides its payload (0)"},
    {"seed", 0, GW_CLI_U64, offsetof(values, seed), "N", "of the rank tables' start (0)"},
    {"isa", 0, GW_CLI_ISA, offsetof(values, isa), "I", "auto, scalar, avx2, avx512, neon (auto)"},
};

static const gw_cli_page PAGE = {
    .command = "adapt",
    .usage = "adapt GRADS.safetensors --family F[,F] --default SPEC [options]",
    .about = "Finds a level for every tensor (bits, density, rank) so that all together take the "
             "fewest\n"
             "bytes while the sum of their errors is at most A times that of the default level. "
             "Sizes are\n"
             "those of real payloads; a tensor may also be sent as it is. Tensors named rankN/... "
             "are the\n"
             "same layer on several ranks: errors are means over them, bytes are one rank's.",
    .example = "  gradwire adapt grads.safetensors --family dither --default dither:bits=4\n"
               "  gradwire adapt grads.safetensors --family dither,topk --default "
               "topk:density=0.01 --json",
    .options = OPTIONS,
    .n_options = sizeof OPTIONS / sizeof OPTIONS[0],
};

static const char *const METRICS[] = {"norms", "squares", "relative"};

typedef struct job {
    const gw_cli_args *args;
    const values *v;
    gw_params *families;
    gw_adapt_rules rules;
    gw_adapt_metric metric;
    double alpha;
    gw_exec exec;
    gw_cli_tensors tensors;
    gw_cli_layer *layers;
    size_t n_layers, n_ranks;
    gw_adapt_layer *problem;
    double tables_ms;
} job;

static double now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* ---- what is asked ---- */

/* A number of 0 or more, or "inf"; nothing behind it. */
static bool parse_number(const char *text, double *out)
{
    char *end = NULL;
    *out = strtod(text, &end);
    return (isdigit((unsigned char)text[0]) || strcmp(text, "inf") == 0) && *end == '\0' &&
           *out >= 0;
}

static int add_family(job *j, const char *spec)
{
    gw_why why = {""};
    if (gw_params_parse(&j->families[j->rules.n_families], spec, &why) != GW_OK) {
        return gw_cli_misuse(&PAGE, "--family '%s': %s", spec, why.text);
    }
    /* the default's own family has the default's settings */
    if (!strchr(spec, ':') && j->families[j->rules.n_families].codec == j->rules.uniform.codec) {
        j->families[j->rules.n_families] = j->rules.uniform;
    }
    j->rules.n_families++;
    return GW_CLI_GO_ON;
}

/* "dither,topk" or one spec, which may have commas of its own. */
static int add_families(job *j, const char *text)
{
    char one[64];
    if (strchr(text, ':')) {
        return add_family(j, text);
    }
    int status = GW_CLI_GO_ON;
    for (const char *at = text; at && status == GW_CLI_GO_ON;) {
        const char *comma = strchr(at, ',');
        const size_t size = comma ? (size_t)(comma - at) : strlen(at);
        (void)snprintf(one, sizeof one, "%.*s", (int)(size < sizeof one ? size : sizeof one - 1),
                       at);
        status = add_family(j, one);
        at = comma ? comma + 1 : NULL;
    }
    return status;
}

static int prepare(job *j)
{
    const values *v = j->v;
    gw_why why = {""};
    if (v->families.count == 0 || !v->uniform) {
        return gw_cli_misuse(&PAGE, "%s is missing", v->uniform ? "--family" : "--default");
    }
    if (gw_params_parse(&j->rules.uniform, v->uniform, &why) != GW_OK) {
        return gw_cli_misuse(&PAGE, "--default '%s': %s", v->uniform, why.text);
    }
    if (!parse_number(v->alpha, &j->alpha)) {
        return gw_cli_misuse(&PAGE, "--alpha '%s' is not a number of 0 or more", v->alpha);
    }
    if (!parse_number(v->min_ratio, &j->rules.min_ratio)) {
        return gw_cli_misuse(&PAGE, "--min-ratio '%s' is not a number of 0 or more", v->min_ratio);
    }
    while (j->metric <= GW_ADAPT_RELATIVE && strcmp(METRICS[j->metric], v->metric) != 0) {
        j->metric++;
    }
    if (j->metric > GW_ADAPT_RELATIVE) {
        return gw_cli_misuse(&PAGE, "--metric '%s' is not norms, squares or relative", v->metric);
    }
    size_t most = 0;
    for (size_t i = 0; i < v->families.count; i++) {
        most += strlen(v->families.items[i]) + 1;
    }
    j->families = calloc(most, sizeof *j->families);
    if (!j->families) {
        gw_cli_out_of_memory();
        return GW_CLI_FAILED;
    }
    int status = GW_CLI_GO_ON;
    for (size_t i = 0; i < v->families.count && status == GW_CLI_GO_ON; i++) {
        status = add_families(j, v->families.items[i]);
    }
    j->rules.families = j->families;
    j->rules.min_elements = v->min_elements;
    j->rules.keep_vectors = v->keep_vectors;
    return status;
}

/* ---- layers ---- */

/* The name behind "rankN/"; all of it where there is no such prefix. */
static const char *layer_name(const char *name)
{
    const size_t digits = strncmp(name, "rank", 4) == 0 ? strspn(name + 4, "0123456789") : 0;
    return digits > 0 && name[4 + digits] == '/' ? name + 5 + digits : name;
}

static gw_cli_layer *find_layer(job *j, const char *name, size_t size)
{
    for (size_t l = 0; l < j->n_layers; l++) {
        const char *own = j->layers[l].name;
        if (own && strncmp(own, name, size) == 0 && own[size] == '\0') {
            return &j->layers[l];
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
static bool collect_layers(job *j)
{
    j->layers = calloc(j->tensors.n + 1, sizeof *j->layers);
    if (!j->layers) {
        gw_cli_out_of_memory();
        return false;
    }
    for (size_t t = 0; t < j->tensors.n; t++) {
        const gw_cli_tensor *tensor = &j->tensors.items[t];
        const char *name = layer_name(tensor->name);
        gw_cli_layer *layer = find_layer(j, name, strlen(name));
        if (!layer) {
            layer = &j->layers[j->n_layers++];
            *layer = (gw_cli_layer){.name = name, .tensor = tensor};
        } else if (!same_shape(layer->tensor, tensor)) {
            gw_cli_error("tensors '%.80s' and '%.80s' have different shapes or types",
                         layer->tensor->name, tensor->name);
            return false;
        }
        layer->n_tensors++;
        j->n_ranks = layer->n_tensors > j->n_ranks ? layer->n_tensors : j->n_ranks;
    }
    for (size_t l = 0; l < j->n_layers; l++) {
        if (j->layers[l].n_tensors != j->n_ranks) {
            gw_cli_error("layer '%.80s' is there on %zu of %zu ranks", j->layers[l].name,
                         j->layers[l].n_tensors, j->n_ranks);
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

static bool prepare_layer(job *j, gw_cli_layer *layer)
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
        gw_adapt_levels(&j->rules, layer->tensor->dtype, shape->dims, shape->n_dims, layer->levels,
                        GW_ADAPT_MOST_LEVELS, &layer->n, &layer->uniform, &why);
    if (status == GW_OK) {
        status =
            gw_adapt_bytes(layer->levels, layer->n, shape->count, j->v->header, layer->bytes, &why);
    }
    size_t bytes = 0;
    if (status == GW_OK) {
        status = gw_adapt_measure_workspace(layer->levels, layer->n, shape->count, &bytes);
    }
    if (status != GW_OK) {
        return failed(layer->name, status, &why);
    }
    if (bytes > j->exec.workspace.size) {
        free(j->exec.workspace.data);
        j->exec.workspace = (gw_workspace){malloc(bytes), bytes};
        if (!j->exec.workspace.data) {
            gw_cli_out_of_memory();
            return false;
        }
    }
    return true;
}

/* Means over the ranks of what each level loses. */
static bool measure(job *j)
{
    double errors[GW_ADAPT_MOST_LEVELS];
    const double begin = now_ms();
    for (size_t t = 0; t < j->tensors.n; t++) {
        const gw_cli_tensor *tensor = &j->tensors.items[t];
        const char *name = layer_name(tensor->name);
        gw_cli_layer *layer = find_layer(j, name, strlen(name));
        const gw_tensor in = {tensor->data, tensor->shape.count, tensor->dtype};
        gw_why why = {""};
        if (!layer->levels && !prepare_layer(j, layer)) {
            return false;
        }
        const gw_status status = gw_adapt_measure(layer->levels, layer->n, j->metric, &j->exec, &in,
                                                  NULL, j->v->seed, errors, &why);
        if (status != GW_OK) {
            return failed(tensor->name, status, &why);
        }
        for (size_t i = 0; i < layer->n; i++) {
            layer->errors[i] += errors[i] / (double)j->n_ranks;
        }
    }
    j->tables_ms = now_ms() - begin;
    return true;
}

/* ---- pins and groups ---- */

static bool pin(job *j, const char *text)
{
    const char *equals = strchr(text, '=');
    const gw_cli_layer *layer = equals ? find_layer(j, text, (size_t)(equals - text)) : NULL;
    gw_params wanted;
    gw_why why = {""};
    if (!layer) {
        gw_cli_error("--pin '%s': no such layer", text);
        return false;
    }
    if (gw_params_parse(&wanted, equals + 1, &why) != GW_OK) {
        gw_cli_error("--pin '%s': %s", text, why.text);
        return false;
    }
    char text_wanted[256], own[256];
    gw_cli_spec_text(&wanted, text_wanted, sizeof text_wanted);
    for (size_t i = 0; i < layer->n; i++) {
        gw_cli_spec_text(&layer->levels[i], own, sizeof own);
        if (strcmp(own, text_wanted) == 0) {
            j->problem[layer - j->layers].first = (uint32_t)i;
            j->problem[layer - j->layers].allowed = 1;
            return true;
        }
    }
    gw_cli_error("--pin '%s': not a level of this layer", text);
    return false;
}

static bool same_levels(const gw_cli_layer *a, const gw_cli_layer *b)
{
    bool same = a->n == b->n && a->uniform == b->uniform;
    for (size_t i = 0; same && i < a->n; i++) {
        char of_a[256], of_b[256];
        gw_cli_spec_text(&a->levels[i], of_a, sizeof of_a);
        gw_cli_spec_text(&b->levels[i], of_b, sizeof of_b);
        same = strcmp(of_a, of_b) == 0;
    }
    return same;
}

static bool group(job *j, const char *text, uint32_t number)
{
    const gw_cli_layer *first = NULL;
    for (const char *at = text; at;) {
        const char *comma = strchr(at, ',');
        const size_t size = comma ? (size_t)(comma - at) : strlen(at);
        const gw_cli_layer *layer = find_layer(j, at, size);
        first = first ? first : layer;
        const char *wrong = !layer                                     ? "no such layer"
                            : j->problem[layer - j->layers].group != 0 ? "is in a group already"
                            : !same_levels(first, layer) ? "has other levels than the first"
                                                         : NULL;
        if (wrong) {
            gw_cli_error("--group '%s': '%.*s': %s", text, (int)size, at, wrong);
            return false;
        }
        j->problem[layer - j->layers].group = number;
        at = comma ? comma + 1 : NULL;
    }
    return true;
}

static bool state_problem(job *j)
{
    j->problem = calloc(j->n_layers + 1, sizeof *j->problem);
    if (!j->problem) {
        gw_cli_out_of_memory();
        return false;
    }
    for (size_t l = 0; l < j->n_layers; l++) {
        const gw_cli_layer *layer = &j->layers[l];
        j->problem[l] = (gw_adapt_layer){.errors = layer->errors,
                                         .bytes = layer->bytes,
                                         .n = (uint32_t)layer->n,
                                         .uniform = layer->uniform};
    }
    bool fine = true;
    for (size_t i = 0; fine && i < j->v->pins.count; i++) {
        fine = pin(j, j->v->pins.items[i]);
    }
    for (size_t i = 0; fine && i < j->v->groups.count; i++) {
        fine = group(j, j->v->groups.items[i], (uint32_t)i + 1);
    }
    return fine;
}

/* ---- the choice ---- */

static bool choose(job *j)
{
    const gw_adapt_problem problem = {.layers = j->problem,
                                      .n_layers = j->n_layers,
                                      .alpha = j->alpha,
                                      .method = j->v->fast ? GW_ADAPT_FAST : GW_ADAPT_DYNAMIC,
                                      .buckets = j->v->buckets};
    gw_why why = {""};
    size_t bytes = 0;
    gw_status status = gw_adapt_workspace(&problem, &bytes);
    void *memory = malloc(bytes + 1);
    gw_adapt_choice choice = {.levels = calloc(j->n_layers + 1, sizeof *choice.levels)};
    bool fine = memory && choice.levels;
    if (!fine) {
        gw_cli_out_of_memory();
    }
    const double begin = now_ms();
    if (fine) {
        status = gw_adapt_choose(&problem, (gw_workspace){memory, bytes}, &choice, &why);
    }
    if (fine && status != GW_OK) {
        gw_cli_error("%s", why.text[0] ? why.text : gw_status_string(status));
        fine = false;
    }
    const gw_cli_adapted result = {j->layers,        j->n_layers,  j->n_ranks, &choice,
                                   j->v->uniform,    j->v->metric, j->alpha,   j->tables_ms,
                                   now_ms() - begin, j->v->header};
    fine = fine && gw_cli_adapted_print(j->args, &result);
    free(choice.levels);
    free(memory);
    return fine;
}

static int adapt(const gw_cli_args *args, const values *v)
{
    job j = {.args = args, .v = v};
    if (args->n_words != 1) {
        return gw_cli_misuse(&PAGE, args->n_words == 0 ? "GRADS is missing" : "one file at a time");
    }
    if (!gw_cli_tensors_known(args->words[0])) {
        return gw_cli_misuse(&PAGE, "'%s' is not named " GW_CLI_TENSOR_FILES, args->words[0]);
    }
    int status = prepare(&j);
    if (status == GW_CLI_GO_ON) {
        const bool fine = gw_cli_exec_open(v->isa, 1, &j.exec) &&
                          gw_cli_tensors_open(args->words[0], args->talk, &j.tensors) &&
                          collect_layers(&j) && measure(&j) && state_problem(&j) && choose(&j);
        status = fine ? GW_CLI_DONE : GW_CLI_FAILED;
    }
    for (size_t l = 0; l < j.n_layers; l++) {
        free(j.layers[l].levels);
        free(j.layers[l].bytes);
        free(j.layers[l].errors);
    }
    free(j.problem);
    free(j.layers);
    free(j.families);
    gw_cli_tensors_close(&j.tensors);
    gw_cli_exec_close(&j.exec);
    return status;
}

int gw_cli_adapt(int argc, char **argv)
{
    gw_cli_args args;
    values v = {.alpha = "1", .metric = "norms", .min_ratio = "1"};
    int status = gw_cli_parse(&PAGE, argc, argv, &args, &v);
    if (status == GW_CLI_GO_ON) {
        status = adapt(&args, &v);
    }
    gw_cli_texts_free(&v.families);
    gw_cli_texts_free(&v.pins);
    gw_cli_texts_free(&v.groups);
    return status;
}
