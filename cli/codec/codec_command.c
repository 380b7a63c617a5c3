/* `gradwire codec list`: every codec the library has, from the library's own list. */
#include <stdio.h>
#include <string.h>

#include <gradwire/gradwire.h>

#include "cli/commands.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/table.h"

static const gw_cli_page PAGE = {
    .command = "codec",
    .usage = "codec list [--json]",
    .about = "Lists the codecs: wire id, flags with default settings, parameters with range and\n"
             "default. A SPEC names a codec and what differs from its defaults: natural,\n"
             "natural:bits=9, dither:bits=8,bucket=1024.",
    .example = "  gradwire codec list\n"
               "  gradwire codec list --json | jq '.[].name'",
};

static const struct {
    uint32_t bit;
    const char *name;
} FLAGS[] = {{GW_CODEC_FIXED_SIZE, "fixed_size"}, {GW_CODEC_UNBIASED, "unbiased"},
             {GW_CODEC_ADDITIVE, "additive"},     {GW_CODEC_WANTS_FEEDBACK, "wants_feedback"},
             {GW_CODEC_ROUNDS, "rounds"},         {GW_CODEC_NEEDS_SHAPE, "needs_shape"}};
enum { N_FLAGS = sizeof FLAGS / sizeof FLAGS[0] };

static uint32_t default_flags(const gw_codec *codec)
{
    gw_params params;
    return gw_params_init(&params, codec) == GW_OK ? gw_params_flags(&params) : 0;
}

static const char *default_word(const gw_param_info *param)
{
    return param->words[(size_t)(param->fallback - param->min)];
}

static size_t word_count(const gw_param_info *param)
{
    return param->words ? (size_t)(param->max - param->min) + 1 : 0;
}

/* ---- JSON ---- */

static json_t *param_json(const gw_param_info *param)
{
    json_t *json = json_pack(
        "{s:s, s:o, s:o, s:o, s:s}", "name", param->name, "min", gw_cli_json_number(param->min),
        "max", gw_cli_json_number(param->max), "default",
        param->words ? json_string(default_word(param)) : gw_cli_json_number(param->fallback),
        "doc", param->doc);
    if (param->words) {
        json_t *words = json_array();
        for (size_t i = 0; i < word_count(param); i++) {
            json_array_append_new(words, json_string(param->words[i]));
        }
        json_object_set_new(json, "words", words);
    }
    return json;
}

static json_t *codec_json(const gw_codec *codec)
{
    json_t *flags = json_array(), *isas = json_array(), *params = json_array();
    for (size_t i = 0; i < N_FLAGS; i++) {
        if (default_flags(codec) & FLAGS[i].bit) {
            json_array_append_new(flags, json_string(FLAGS[i].name));
        }
    }
    for (int isa = GW_ISA_AUTO + 1; isa < GW_ISA_COUNT; isa++) {
        if (gw_codec_has_isa(codec, (gw_isa)isa)) {
            json_array_append_new(isas, json_string(gw_isa_name((gw_isa)isa)));
        }
    }
    for (size_t i = 0; i < gw_codec_param_count(codec); i++) {
        json_array_append_new(params, param_json(gw_codec_param(codec, i)));
    }
    return json_pack("{s:s, s:i, s:s, s:o, s:o, s:o}", "name", gw_codec_name(codec), "id",
                     (int)gw_codec_id(codec), "doc", gw_codec_doc(codec), "flags", flags, "isas",
                     isas, "params", params);
}

static bool print_json(void)
{
    json_t *all = json_array();
    for (size_t i = 0; i < gw_codec_count(); i++) {
        json_array_append_new(all, codec_json(gw_codec_at(i)));
    }
    return gw_cli_json_print(all);
}

/* ---- table ---- */

static void add_codec(gw_cli_table *table, const gw_codec *codec)
{
    char flags[64] = "";
    for (size_t i = 0; i < N_FLAGS; i++) {
        if (default_flags(codec) & FLAGS[i].bit) {
            size_t used = strlen(flags);
            (void)snprintf(flags + used, sizeof flags - used, "%s%s", used ? "," : "",
                           FLAGS[i].name);
        }
    }
    gw_cli_table_cell(table, "%s", gw_codec_name(codec));
    gw_cli_table_cell(table, "%d", gw_codec_id(codec));
    gw_cli_table_cell(table, "%s", flags);
    for (int empty = 0; empty < 3; empty++) {
        gw_cli_table_text(table, "", 0);
    }
    gw_cli_table_cell(table, "%s", gw_codec_doc(codec));
}

static void add_param(gw_cli_table *table, const gw_param_info *param)
{
    for (int empty = 0; empty < 3; empty++) {
        gw_cli_table_text(table, "", 0);
    }
    gw_cli_table_cell(table, "%s", param->name);
    if (param->words) {
        char words[256] = "";
        for (size_t i = 0; i < word_count(param); i++) {
            size_t used = strlen(words);
            (void)snprintf(words + used, sizeof words - used, "%s%s", used ? "|" : "",
                           param->words[i]);
        }
        gw_cli_table_cell(table, "%s", words);
        gw_cli_table_cell(table, "%s", default_word(param));
    } else {
        /* as a spec takes them: without an exponent */
        gw_cli_table_cell(table, param->min > 0 && param->min < 1 ? "%.6f..%.0f" : "%.0f..%.0f",
                          param->min, param->max);
        gw_cli_table_cell(table, "%.12g", param->fallback);
    }
    gw_cli_table_cell(table, "%s", param->doc);
}

/* A row for each codec, then one for each of its parameters. */
static bool print_table(void)
{
    static const gw_cli_column COLUMNS[] = {
        {"codec", false}, {"id", true},       {"flags", false},  {"parameter", false},
        {"range", false}, {"default", false}, {"meaning", false}};
    gw_cli_table table = {.columns = COLUMNS, .n_columns = sizeof COLUMNS / sizeof COLUMNS[0]};
    for (size_t i = 0; i < gw_codec_count(); i++) {
        const gw_codec *codec = gw_codec_at(i);
        add_codec(&table, codec);
        for (size_t j = 0; j < gw_codec_param_count(codec); j++) {
            add_param(&table, gw_codec_param(codec, j));
        }
    }
    return gw_cli_table_print(&table);
}

int gw_cli_codec(int argc, char **argv)
{
    gw_cli_args args;
    int status = gw_cli_parse(&PAGE, argc, argv, &args, NULL);
    if (status != GW_CLI_GO_ON) {
        return status;
    }
    if (args.n_words == 0) {
        return gw_cli_misuse(&PAGE, "say what to do: list");
    }
    if (strcmp(args.words[0], "list") != 0 || args.n_words > 1) {
        return gw_cli_misuse(&PAGE, "unknown word '%s'", args.words[args.n_words > 1 ? 1 : 0]);
    }
    return (args.json ? print_json() : print_table()) ? GW_CLI_DONE : GW_CLI_FAILED;
}
