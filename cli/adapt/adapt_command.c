/* `gradwire adapt`: every layer of a file of gradients its own level, under one error budget. */
#include "cli/adapt/adapt_show.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/say.h"
#include "cli/seconds.h"

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
             "same layer on several ranks: errors are means over them, bytes are one rank's. GRADS "
             "of - is standard input.",
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
    gw_cli_levels levels;
    double alpha;
    gw_adapt_layer *problem;
} job;

/* ---- what is asked ---- */

static int prepare(job *j)
{
    const values *v = j->v;
    gw_cli_levels *l = &j->levels;
    const int status = gw_cli_levels_ask(l, &PAGE, &v->families, v->uniform);
    if (status != GW_CLI_GO_ON) {
        return status;
    }
    if (!gw_cli_factor_parse(v->alpha, &j->alpha)) {
        return gw_cli_misuse(&PAGE, "--alpha '%s' is not a number of 0 or more", v->alpha);
    }
    if (!gw_cli_factor_parse(v->min_ratio, &l->rules.min_ratio)) {
        return gw_cli_misuse(&PAGE, "--min-ratio '%s' is not a number of 0 or more", v->min_ratio);
    }
    while (l->metric <= GW_ADAPT_RELATIVE && strcmp(METRICS[l->metric], v->metric) != 0) {
        l->metric++;
    }
    if (l->metric > GW_ADAPT_RELATIVE) {
        return gw_cli_misuse(&PAGE, "--metric '%s' is not norms, squares or relative", v->metric);
    }
    l->rules.min_elements = v->min_elements;
    l->rules.keep_vectors = v->keep_vectors;
    l->header = v->header;
    l->seed = v->seed;
    l->isa = v->isa;
    return GW_CLI_GO_ON;
}

/* ---- pins and groups ---- */

static bool pin(job *j, const char *text)
{
    const char *equals = strchr(text, '=');
    const gw_cli_layer *layer =
        equals ? gw_cli_levels_find(&j->levels, text, (size_t)(equals - text)) : NULL;
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
            j->problem[layer - j->levels.layers].first = (uint32_t)i;
            j->problem[layer - j->levels.layers].allowed = 1;
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
        const gw_cli_layer *layer = gw_cli_levels_find(&j->levels, at, size);
        first = first ? first : layer;
        const char *wrong = !layer ? "no such layer"
                            : j->problem[layer - j->levels.layers].group != 0
                                ? "is in a group already"
                            : !same_levels(first, layer) ? "has other levels than the first"
                                                         : NULL;
        if (wrong) {
            gw_cli_error("--group '%s': '%.*s': %s", text, (int)size, at, wrong);
            return false;
        }
        j->problem[layer - j->levels.layers].group = number;
        at = comma ? comma + 1 : NULL;
    }
    return true;
}

static bool state_problem(job *j)
{
    j->problem = calloc(j->levels.n_layers + 1, sizeof *j->problem);
    if (!j->problem) {
        gw_cli_out_of_memory();
        return false;
    }
    for (size_t l = 0; l < j->levels.n_layers; l++) {
        const gw_cli_layer *layer = &j->levels.layers[l];
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
                                      .n_layers = j->levels.n_layers,
                                      .alpha = j->alpha,
                                      .method = j->v->fast ? GW_ADAPT_FAST : GW_ADAPT_DYNAMIC,
                                      .buckets = j->v->buckets};
    gw_why why = {""};
    size_t bytes = 0;
    gw_status status = gw_adapt_workspace(&problem, &bytes);
    void *memory = malloc(bytes + 1);
    gw_adapt_choice choice = {.levels = calloc(j->levels.n_layers + 1, sizeof *choice.levels)};
    bool fine = memory && choice.levels;
    if (!fine) {
        gw_cli_out_of_memory();
    }
    const double begin = gw_cli_now();
    if (fine) {
        status = gw_adapt_choose(&problem, (gw_workspace){memory, bytes}, &choice, &why);
    }
    if (fine && status != GW_OK) {
        gw_cli_error("%s", why.text[0] ? why.text : gw_status_string(status));
        fine = false;
    }
    const gw_cli_adapted result = {
        j->levels.layers, j->levels.n_layers,  j->levels.n_ranks,
        &choice,          j->v->uniform,       j->v->metric,
        j->alpha,         j->levels.tables_ms, 1e3 * (gw_cli_now() - begin),
        j->v->header};
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
        const bool fine = gw_cli_levels_measure(&j.levels, args->words[0], args->talk) &&
                          state_problem(&j) && choose(&j);
        status = fine ? GW_CLI_DONE : GW_CLI_FAILED;
    }
    free(j.problem);
    gw_cli_levels_free(&j.levels);
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
