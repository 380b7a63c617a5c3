/* `gradwire routes ROUTE`: the compiled steps of one rank. */
#include <stdio.h>

#include "cli/json_out.h"
#include "cli/routes/routes.h"
#include "cli/say.h"
#include "cli/table.h"

static const char *kind_name(gw_route_kind kind)
{
    return kind == GW_ROUTE_UNCOMPRESSED ? "uncompressed"
           : kind == GW_ROUTE_ADDITIVE   ? "additive"
                                         : "compressed";
}

static const char *operand_name(gw_operand_kind kind)
{
    return kind == GW_OPERAND_DENSE     ? "dense"
           : kind == GW_OPERAND_BUNDLE  ? "bundle"
           : kind == GW_OPERAND_NUMBERS ? "numbers"
                                        : "none";
}

/* The step's text: the whole route's between two separators. */
static void step_text(const gw_route *route, unsigned index, char *text, size_t size)
{
    char all[GW_ROUTE_TEXT];
    (void)gw_route_print(route, all, sizeof all);
    const char *at = all;
    for (unsigned i = 0; i < index; i++) {
        while (*at != '\xC2') {
            at++;
        }
        at += 3; /* the dot and a blank */
    }
    size_t n = 0;
    for (; at[n] != '\0' && at[n] != ' ' && n + 1 < size; n++) {
        text[n] = at[n];
    }
    text[n] = '\0';
}

/* ---- JSON ---- */

static json_t *links(const uint64_t bytes[GW_LINKS])
{
    return json_pack("{s:o, s:o}", "intra", gw_cli_json_count(bytes[GW_LINK_INTRA]), "inter",
                     gw_cli_json_count(bytes[GW_LINK_INTER]));
}

static json_t *operand_json(const gw_operand *o)
{
    json_t *json = json_pack("{s:s}", "kind", operand_name(o->kind));
    if (o->kind != GW_OPERAND_NONE) {
        json_object_set_new(json, "first", gw_cli_json_count(o->range.first));
        json_object_set_new(json, "count", gw_cli_json_count(o->range.count));
        json_object_set_new(json, "bytes", gw_cli_json_count(o->bytes));
    }
    if (o->kind == GW_OPERAND_BUNDLE) {
        json_object_set_new(json, "outer", gw_cli_json_count(o->outer));
        json_object_set_new(json, "inner", gw_cli_json_count(o->inner));
        json_object_set_new(json, "payloads", gw_cli_json_count(o->payloads));
    }
    return json;
}

static json_t *move_json(const gw_program *p, unsigned i)
{
    const gw_move *m = &p->move[i];
    char text[32];
    step_text(&p->route, i, text, sizeof text);
    json_t *json = json_pack("{s:s, s:b, s:o, s:o}", "step", text, "runs", m->runs, "before",
                             operand_json(&m->before), "after", operand_json(&m->after));
    if (m->step.op == GW_OP_ENCODE) {
        json_object_set_new(json, "point", gw_cli_json_count(m->point));
        json_object_set_new(json, "owner", gw_cli_json_count(m->owner));
    }
    if (m->part != GW_PART_NONE) {
        json_object_set_new(json, "group", gw_cli_json_count(m->group.size));
        json_object_set_new(json, "member", gw_cli_json_count(m->group.member));
        json_object_set_new(json, "sent", links(m->sent));
        json_object_set_new(json, "received", links(m->received));
    }
    return json;
}

static bool print_json(const gw_program *p, const char *text, const char *name)
{
    json_t *steps = json_array();
    for (unsigned i = 0; i < p->n_moves; i++) {
        json_array_append_new(steps, move_json(p, i));
    }
    return gw_cli_json_print(json_pack(
        "{s:s, s:s?, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "route", text, "name",
        name, "kind", kind_name(p->kind), "encodes", gw_cli_json_count(p->encodes), "ranks",
        gw_cli_json_count(p->ranks), "ranks_per_node", gw_cli_json_count(p->ranks_per_node), "rank",
        gw_cli_json_count(p->rank), "elements", gw_cli_json_count(p->whole.count), "grain",
        gw_cli_json_count(p->grain), "sent", links(p->sent), "received", links(p->received),
        "steps", steps));
}

/* ---- table ---- */

static void add_operand(gw_cli_table *table, const gw_operand *o)
{
    const unsigned long long first = o->range.first, end = o->range.first + o->range.count;
    if (o->kind == GW_OPERAND_NONE) {
        gw_cli_table_cell(table, "-");
    } else if (o->kind == GW_OPERAND_BUNDLE) {
        gw_cli_table_cell(table, "[%llu, %llu) %llu x %u payloads", first, end,
                          (unsigned long long)o->outer * o->inner, o->payloads);
    } else {
        gw_cli_table_cell(table, "[%llu, %llu) %s", first, end, operand_name(o->kind));
    }
}

static void add_bytes(gw_cli_table *table, const uint64_t *sent, const uint64_t *received)
{
    gw_cli_table_cell(table, "%llu", (unsigned long long)sent[GW_LINK_INTRA]);
    gw_cli_table_cell(table, "%llu", (unsigned long long)sent[GW_LINK_INTER]);
    gw_cli_table_cell(table, "%llu", (unsigned long long)received[GW_LINK_INTRA]);
    gw_cli_table_cell(table, "%llu", (unsigned long long)received[GW_LINK_INTER]);
}

static bool print_table(const gw_program *p)
{
    static const gw_cli_column COLUMNS[] = {
        {"step", false},     {"among", false},   {"leaves", false},       {"bytes", true},
        {"sent near", true}, {"sent far", true}, {"received near", true}, {"received far", true}};
    gw_cli_table table = {.columns = COLUMNS, .n_columns = sizeof COLUMNS / sizeof COLUMNS[0]};
    for (unsigned i = 0; i < p->n_moves; i++) {
        const gw_move *m = &p->move[i];
        char text[32];
        step_text(&p->route, i, text, sizeof text);
        gw_cli_table_cell(&table, "%s", text);
        if (m->part != GW_PART_NONE && m->runs) {
            gw_cli_table_cell(&table, "%u of %u", m->group.member, m->group.size);
        } else if (m->step.op == GW_OP_ENCODE && m->runs) {
            gw_cli_table_cell(&table, "point %u", m->point);
        } else {
            gw_cli_table_cell(&table, "%s", m->runs ? "" : "idle");
        }
        add_operand(&table, &m->after);
        gw_cli_table_cell(&table, "%llu", (unsigned long long)m->after.bytes);
        add_bytes(&table, m->sent, m->received);
    }
    gw_cli_table_cell(&table, "total");
    for (int empty = 0; empty < 3; empty++) {
        gw_cli_table_text(&table, "", 0);
    }
    add_bytes(&table, p->sent, p->received);
    return gw_cli_table_print(&table);
}

bool gw_cli_route_show(const gw_cli_args *args, const gw_route *route, const gw_route_job *job)
{
    gw_program program;
    gw_why why = {""};
    if (gw_route_compile(route, job, &program, &why) != GW_OK) {
        gw_cli_error("routes: %s", why.text);
        return false;
    }
    char text[GW_ROUTE_TEXT], name[40];
    const bool named = gw_route_name_of(route, name, sizeof name) == GW_OK;
    (void)gw_route_print(route, text, sizeof text);
    if (args->json) {
        return print_json(&program, text, named ? name : NULL);
    }
    gw_cli_note(args->talk, GW_CLI_NORMAL, "%s%s%s%s", text, named ? " (name: " : "",
                named ? name : "", named ? ")" : "");
    return print_table(&program);
}
