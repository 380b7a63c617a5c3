/* `gradwire routes`: all routes there are, their everyday names, or one of them step by step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json_out.h"
#include "cli/routes/routes.h"
#include "cli/say.h"
#include "cli/table.h"

typedef struct values {
    const char *devices, *spec;
    bool count, additive, names;
    uint64_t elements;
    uint32_t ranks, ranks_per_node, rank;
} values;

static const gw_cli_option OPTIONS[] = {
    {"devices", 0, GW_CLI_TEXT, offsetof(values, devices), "LIST", "cpu (default), gpu or cpu,gpu"},
    {"count", 0, GW_CLI_FLAG, offsetof(values, count), NULL, "only how many"},
    {"additive", 0, GW_CLI_FLAG, offsetof(values, additive), NULL,
     "the routes of payloads that are summed as they are"},
    {"names", 0, GW_CLI_FLAG, offsetof(values, names), NULL, "the everyday names"},
    {"codec", 'c', GW_CLI_TEXT, offsetof(values, spec), "SPEC", "of ROUTE: codec and its settings"},
    {"elements", 'n', GW_CLI_SIZE, offsetof(values, elements), "N", "of ROUTE: elements (1Mi)"},
    {"ranks", 0, GW_CLI_U32, offsetof(values, ranks), "P", "of ROUTE: ranks (4)"},
    {"ranks-per-node", 0, GW_CLI_U32, offsetof(values, ranks_per_node), "K",
     "of ROUTE: ranks of a node (2); 0: nodes differ"},
    {"rank", 0, GW_CLI_U32, offsetof(values, rank), "R", "of ROUTE: who is looked at (0)"},
};

static const gw_cli_page PAGE = {
    .command = "routes",
    .usage = "routes [ROUTE] [options]",
    .about = "Lists the routes a tensor can take from \"mine\" to \"the sum over all ranks\", one "
             "a line;\n"
             "or shows what the steps of ROUTE, a line of that list or an everyday name, do to a\n"
             "tensor and which bytes they move.",
    .example = "  gradwire routes --devices cpu,gpu --count\n"
               "  gradwire routes --names\n"
               "  gradwire routes sra -c natural:bits=8 -n 25M --ranks 4",
    .options = OPTIONS,
    .n_options = sizeof OPTIONS / sizeof OPTIONS[0],
};

uint32_t gw_cli_devices_of(const char *text)
{
    uint32_t devices = 0;
    while (text) {
        const size_t length = strcspn(text, ",");
        const bool cpu = length == 3 && strncmp(text, "cpu", 3) == 0;
        const bool gpu = length == 3 && strncmp(text, "gpu", 3) == 0;
        const uint32_t device = cpu ? GW_DEVICE_CPU : gpu ? GW_DEVICE_GPU : 0;
        if (device == 0 || (devices & device)) {
            return 0;
        }
        devices |= device;
        text = text[length] == ',' ? text + length + 1 : NULL;
    }
    return devices;
}

/* ---- the list ---- */

typedef struct routes {
    gw_route *items;
    size_t count, flat, uncompressed;
} routes;

/* False: said. items are malloc'd. */
static bool list(uint32_t devices, bool additive, routes *out)
{
    gw_why why = {""};
    *out = (routes){0};
    if (gw_route_list(devices, additive, NULL, 0, &out->count, &why) != GW_OK) {
        gw_cli_error("%s", why.text);
        return false;
    }
    out->items = calloc(out->count, sizeof *out->items);
    if (!out->items) {
        gw_cli_out_of_memory();
        return false;
    }
    (void)gw_route_list(devices, additive, out->items, out->count, &out->count, &why);
    for (size_t i = 0; i < out->count; i++) {
        out->flat += !gw_route_is_hierarchical(&out->items[i]);
        out->uncompressed += gw_route_encodes(&out->items[i]) == 0;
    }
    return true;
}

static bool print_json(const values *v, uint32_t devices, const routes *all)
{
    json_t *names = json_array(), *lines = json_array();
    if (devices & GW_DEVICE_CPU) {
        json_array_append_new(names, json_string("cpu"));
    }
    if (devices & GW_DEVICE_GPU) {
        json_array_append_new(names, json_string("gpu"));
    }
    for (size_t i = 0; !v->count && i < all->count; i++) {
        char text[GW_ROUTE_TEXT];
        (void)gw_route_print(&all->items[i], text, sizeof text);
        json_array_append_new(lines, json_string(text));
    }
    json_t *json = json_pack("{s:o, s:o, s:o, s:o, s:o}", "devices", names, "count",
                             gw_cli_json_count(all->count), "flat", gw_cli_json_count(all->flat),
                             "hierarchical", gw_cli_json_count(all->count - all->flat),
                             "uncompressed", gw_cli_json_count(all->uncompressed));
    if (v->count) {
        json_decref(lines);
    } else {
        json_object_set_new(json, "routes", lines);
    }
    return gw_cli_json_print(json);
}

static bool print_list(const gw_cli_args *args, const values *v, uint32_t devices)
{
    routes all;
    if (!list(devices, v->additive, &all)) {
        return false;
    }
    bool fine = true;
    if (args->json) {
        fine = print_json(v, devices, &all);
    } else if (v->count) {
        (void)printf("%zu\n", all.count);
    } else {
        for (size_t i = 0; i < all.count; i++) {
            char text[GW_ROUTE_TEXT];
            (void)gw_route_print(&all.items[i], text, sizeof text);
            (void)puts(text);
        }
    }
    gw_cli_note(args->talk, GW_CLI_VERBOSE,
                "%zu routes: %zu flat, %zu hierarchical; %zu of them "
                "uncompressed",
                all.count, all.flat, all.count - all.flat, all.uncompressed);
    free(all.items);
    return fine;
}

/* ---- names ---- */

static bool print_names(bool json)
{
    static const gw_cli_column COLUMNS[] = {{"name", false}, {"steps", false}, {"meaning", false}};
    gw_cli_table table = {.columns = COLUMNS, .n_columns = 3};
    json_t *all = json ? json_array() : NULL;
    for (size_t i = 0; i < gw_route_name_count(); i++) {
        const gw_route_name *name = gw_route_name_at(i);
        if (json) {
            json_array_append_new(all, json_pack("{s:s, s:s, s:s}", "name", name->name, "steps",
                                                 name->steps, "doc", name->doc));
        } else {
            gw_cli_table_cell(&table, "%s", name->name);
            gw_cli_table_cell(&table, "%s", name->steps);
            gw_cli_table_cell(&table, "%s", name->doc);
        }
    }
    return json ? gw_cli_json_print(all) : gw_cli_table_print(&table);
}

/* ---- one ---- */

static int show(const gw_cli_args *args, const values *v)
{
    gw_route route;
    gw_params params = {0};
    gw_why why = {""};
    if (args->n_words > 1) {
        return gw_cli_misuse(&PAGE, "one route at a time: what is '%s'?", args->words[1]);
    }
    if (v->devices || v->count || v->additive || v->names) {
        return gw_cli_misuse(&PAGE, "--devices, --count, --additive and --names list routes; they "
                                    "say nothing about one");
    }
    if (gw_route_parse(&route, args->words[0], &why) != GW_OK) {
        gw_cli_error("routes: %s", why.text);
        return GW_CLI_FAILED;
    }
    if (!v->spec && gw_route_encodes(&route) != 0) {
        return gw_cli_misuse(&PAGE, "-c SPEC is missing: this route encodes");
    }
    if (v->spec && gw_params_parse(&params, v->spec, &why) != GW_OK) {
        gw_cli_error("routes: %s", why.text);
        return GW_CLI_FAILED;
    }
    const gw_route_job job = {.ranks = v->ranks,
                              .ranks_per_node = v->ranks_per_node,
                              .rank = v->rank,
                              .elements = v->elements,
                              .params = v->spec ? &params : NULL};
    return gw_cli_route_show(args, &route, &job) ? GW_CLI_DONE : GW_CLI_FAILED;
}

int gw_cli_routes(int argc, char **argv)
{
    values v = {.elements = 1 << 20, .ranks = 4, .ranks_per_node = 2};
    gw_cli_args args;
    const int status = gw_cli_parse(&PAGE, argc, argv, &args, &v);
    if (status != GW_CLI_GO_ON) {
        return status;
    }
    if (args.n_words != 0) {
        return show(&args, &v);
    }
    if (v.spec) {
        return gw_cli_misuse(&PAGE, "-c says nothing without a ROUTE");
    }
    if (v.names) {
        if (v.devices || v.count || v.additive) {
            return gw_cli_misuse(&PAGE, "--names goes alone");
        }
        return print_names(args.json) ? GW_CLI_DONE : GW_CLI_FAILED;
    }
    const uint32_t devices = v.devices ? gw_cli_devices_of(v.devices) : GW_DEVICE_CPU;
    if (devices == 0) {
        return gw_cli_misuse(&PAGE, "option --devices: '%s' is not cpu, gpu or cpu,gpu", v.devices);
    }
    return print_list(&args, &v, devices) ? GW_CLI_DONE : GW_CLI_FAILED;
}
