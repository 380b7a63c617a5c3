/* What `gradwire adapt` chose: a table and a few sentences, or JSON. */
#include "cli/adapt/adapt_show.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/json_out.h"
#include "cli/table.h"

static const char *const OUTCOMES[] = {"found", "uniform", "infeasible", "no budget"};

void gw_cli_spec_text(const gw_params *params, char *text, size_t size)
{
    char all[256] = "";
    (void)gw_params_print(params, all, sizeof all);
    char *setting = strchr(all, ':');
    if (setting) {
        *setting++ = '\0';
    }
    size_t used = (size_t)snprintf(text, size, "%s", all);
    const char *mark = ":";
    for (size_t i = 0; setting; i++) {
        char *next = strchr(setting, ',');
        if (next) {
            *next++ = '\0';
        }
        const gw_param_info *info = gw_codec_param(params->codec, i);
        const bool is_level = strcmp(info->name, "bits") == 0 || strcmp(info->name, "to") == 0 ||
                              strcmp(info->name, "density") == 0 || strcmp(info->name, "rank") == 0;
        const bool is_shape = strcmp(info->name, "cols") == 0;
        if (used < size && !is_shape && (is_level || params->value[i] != info->fallback)) {
            used += (size_t)snprintf(text + used, size - used, "%s%s", mark, setting);
            mark = ",";
        }
        setting = next;
    }
}

static uint64_t dense_bytes(const gw_cli_adapted *a)
{
    uint64_t sum = 0;
    for (size_t l = 0; l < a->n_layers; l++) {
        sum += a->layers[l].bytes[0];
    }
    return sum;
}

static json_t *layers_json(const gw_cli_adapted *a)
{
    json_t *rows = json_array();
    for (size_t l = 0; l < a->n_layers; l++) {
        const gw_cli_layer *layer = &a->layers[l];
        const uint32_t level = a->choice->levels[l];
        char spec[256];
        gw_cli_spec_text(&layer->levels[level], spec, sizeof spec);
        json_array_append_new(
            rows, json_pack("{s:s, s:o, s:s, s:o, s:o, s:o, s:o}", "name", layer->name, "elements",
                            gw_cli_json_count(layer->tensor->shape.count), "spec", spec, "bytes",
                            gw_cli_json_count(layer->bytes[level]), "error",
                            gw_cli_json_number(layer->errors[level]), "uniform_bytes",
                            gw_cli_json_count(layer->bytes[layer->uniform]), "uniform_error",
                            gw_cli_json_number(layer->errors[layer->uniform])));
    }
    return rows;
}

static bool print_json(const gw_cli_adapted *a)
{
    const gw_adapt_choice *c = a->choice;
    char checksum[24];
    (void)snprintf(checksum, sizeof checksum, "%016" PRIx64, c->checksum);
    return gw_cli_json_print(json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o}", "outcome",
        OUTCOMES[c->outcome], "metric", a->metric, "alpha", gw_cli_json_number(a->alpha), "ranks",
        gw_cli_json_count(a->n_ranks), "budget", gw_cli_json_number(c->budget), "error",
        gw_cli_json_number(c->error), "uniform_error", gw_cli_json_number(c->uniform_error),
        "bytes", gw_cli_json_count(c->bytes), "uniform_bytes", gw_cli_json_count(c->uniform_bytes),
        "dense_bytes", gw_cli_json_count(dense_bytes(a)), "lower_bound_bytes",
        gw_cli_json_count(c->lower_bound), "tables_ms", gw_cli_json_number(a->tables_ms),
        "solve_ms", gw_cli_json_number(a->solve_ms), "checksum", checksum, "layers",
        layers_json(a)));
}

static void add_row(gw_cli_table *t, const char *name, uint64_t elements, const char *spec,
                    const uint64_t bytes[2], const double errors[2])
{
    gw_cli_table_cell(t, "%s", name);
    gw_cli_table_cell(t, "%" PRIu64, elements);
    gw_cli_table_cell(t, "%s", spec);
    gw_cli_table_cell(t, "%" PRIu64, bytes[0]);
    gw_cli_table_cell(t, "%" PRIu64, bytes[1]);
    gw_cli_table_cell(t, "%.4g", errors[0]);
    gw_cli_table_cell(t, "%.4g", errors[1]);
}

static bool print_table(const gw_cli_adapted *a)
{
    static const gw_cli_column COLUMNS[] = {
        {"layer", false},  {"elements", true}, {"spec", false},         {"bytes", true},
        {"uniform", true}, {"error", true},    {"uniform error", true},
    };
    gw_cli_table table = {.columns = COLUMNS, .n_columns = sizeof COLUMNS / sizeof COLUMNS[0]};
    const gw_adapt_choice *c = a->choice;
    uint64_t elements = 0;
    for (size_t l = 0; l < a->n_layers; l++) {
        const gw_cli_layer *layer = &a->layers[l];
        const uint32_t level = c->levels[l];
        char spec[256];
        gw_cli_spec_text(&layer->levels[level], spec, sizeof spec);
        elements += layer->tensor->shape.count;
        add_row(&table, layer->name, layer->tensor->shape.count, spec,
                (uint64_t[]){layer->bytes[level], layer->bytes[layer->uniform]},
                (double[]){layer->errors[level], layer->errors[layer->uniform]});
    }
    add_row(&table, "total", elements, "", (uint64_t[]){c->bytes, c->uniform_bytes},
            (double[]){c->error, c->uniform_error});
    return gw_cli_table_print(&table);
}

static double ratio(uint64_t more, uint64_t less)
{
    return less != 0 ? (double)more / (double)less : 1;
}

static void print_words(const gw_cli_adapted *a)
{
    const gw_adapt_choice *c = a->choice;
    if (c->outcome == GW_ADAPT_NO_BUDGET) {
        (void)printf("\nThe default's error is not a number to go by: the default stays.\n");
        return;
    }
    if (c->outcome == GW_ADAPT_INFEASIBLE) {
        (void)printf("\nNo choice keeps to the budget of %.4g (%g x the default's error): the "
                     "default stays where it may.\n",
                     c->budget, a->alpha);
        return;
    }
    (void)printf("\n%" PRIu64 " bytes a rank", c->bytes);
    if (c->bytes == c->uniform_bytes) {
        (void)printf(", as many as with %s everywhere", a->uniform);
    } else {
        const bool fewer = c->bytes < c->uniform_bytes;
        (void)printf(" instead of %" PRIu64 " with %s everywhere: %.2f times %s", c->uniform_bytes,
                     a->uniform,
                     fewer ? ratio(c->uniform_bytes, c->bytes) : ratio(c->bytes, c->uniform_bytes),
                     fewer ? "fewer" : "more");
    }
    (void)printf(", %.1f times fewer than in fp32.\n", ratio(dense_bytes(a), c->bytes));
    (void)printf("Error %.4g of a budget of %.4g", c->error, c->budget);
    if (c->budget > 0 && isfinite(c->budget)) {
        (void)printf(" (%.1f %%)", 100 * c->error / c->budget);
    }
    if (c->lower_bound == c->bytes) {
        (void)printf("; no choice within it has fewer bytes.\n");
    } else {
        (void)printf("; no choice within it has fewer than %" PRIu64 " bytes (%.2f %% less).\n",
                     c->lower_bound, 100 - 100 / ratio(c->bytes, c->lower_bound));
    }
}

bool gw_cli_adapted_print(const gw_cli_args *args, const gw_cli_adapted *a)
{
    if (args->json) {
        return print_json(a);
    }
    if (!print_table(a)) {
        return false;
    }
    print_words(a);
    return true;
}
