/* Layers whose levels are chosen: their memory, and what a level sends. */
#include "control/control.h"

#include "base/huge_pages.h"

#include <gradwire/rounds.h>

/* ---- memory ---- */

gw_status gw_control_list(gw_control *c, gw_why *why)
{
    const gw_step *s = c->step;
    c->known = s->n_layers;
    c->layers = gw_control_memory(c, c->known, sizeof *c->layers);
    c->place_of = gw_control_memory(c, c->known, sizeof *c->place_of);
    gw_status status = gw_control_has_memory(c, why);
    for (uint32_t i = 0; i < c->known && status == GW_OK; i++) {
        gw_control_layer *to = &c->layers[c->n];
        to->layer = i;
        if (s->layers[i].fusion == UINT32_MAX) {
            status = c->policy->list(c, &s->layers[i], to, why);
        }
        c->place_of[i] = to->n != 0 ? c->n++ : UINT32_MAX;
    }
    if (status == GW_OK && c->n == 0) {
        return GW_FAIL(why, GW_ERR_STATE,
                       "%s: no layer is sent by itself and has levels to choose from",
                       c->policy->name);
    }
    return status;
}

/* Places in the table, copies and which step of the window makes them: equal shares, as far as layers allow. */
static gw_status place_layers(gw_control *c, gw_why *why)
{
    uint64_t elements = 0, at = 0;
    size_t workspace = 0;
    c->table = GW_TABLE_LAYERS;
    for (uint32_t i = 0; i < c->n; i++) {
        elements += c->step->layers[c->layers[i].layer].elements;
    }
    c->copies = gw_pages_allocate((size_t)elements * sizeof *c->copies, 0);
    if (c->copies == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory to copy %llu elements",
                       (unsigned long long)elements);
    }
    for (uint32_t i = 0; i < c->n; i++) {
        gw_control_layer *l = &c->layers[i];
        const uint64_t count = c->step->layers[l->layer].elements;
        size_t bytes = 0;
        const gw_status status =
            gw_adapt_measure_workspace(l->levels, l->n - l->coded, count, &bytes);
        if (status != GW_OK) {
            return GW_FAIL(why, status, "%s: the levels of layer '%.100s' cannot be measured",
                           c->policy->name, c->step->layers[l->layer].name);
        }
        workspace = bytes > workspace ? bytes : workspace;
        l->share = (uint32_t)((double)at / (double)elements * (double)c->window);
        l->copy = c->copies + at;
        l->at = c->table;
        at += count;
        c->table += 1 + (size_t)l->n;
    }
    c->workspace = (gw_workspace){gw_control_memory(c, workspace, 1), workspace};
    return GW_OK;
}

/* To code the largest layer with any level that has no table. */
static void make_trial(gw_control *c)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        const gw_control_layer *l = &c->layers[i];
        const size_t elements = (size_t)c->step->layers[l->layer].elements;
        largest = elements > largest && l->coded != 0 ? elements : largest;
        for (uint32_t k = l->n - l->coded; k < l->n; k++) {
            size_t payload = 0, workspace = 0;
            (void)gw_payload_bound(&l->levels[k], elements, &payload);
            (void)gw_codec_workspace(&l->levels[k], GW_F32, elements, 0, 1, &workspace);
            c->trial.bytes = payload > c->trial.bytes ? payload : c->trial.bytes;
            c->trial.workspace.size =
                workspace > c->trial.workspace.size ? workspace : c->trial.workspace.size;
        }
    }
    c->trial.values = gw_control_memory(c, (size_t)largest, sizeof(float));
    c->trial.payload = gw_control_memory(c, c->trial.bytes, 1);
    c->trial.workspace.data = gw_control_memory(c, c->trial.workspace.size, 1);
}

gw_status gw_control_lay_out(gw_control *c, size_t more, gw_why *why)
{
    const size_t ranks = c->step->config.comm->ranks;
    const gw_status status = place_layers(c, why);
    if (status != GW_OK) {
        return status;
    }
    make_trial(c);
    c->table += more;
    c->own = gw_control_memory(c, c->table, sizeof *c->own);
    c->mean = gw_control_memory(c, c->table, sizeof *c->mean);
    c->all = gw_control_memory(c, ranks * c->table, sizeof *c->all);
    c->room = gw_control_memory(
        c, gw_gather_room(c->step->config.comm, (c->table + 8) * sizeof *c->own), 1);
    c->said = gw_control_memory(c, 8 * ranks, sizeof *c->said);
    return gw_control_has_memory(c, why);
}

uint64_t gw_control_mix_level(uint64_t hash, const gw_params *level)
{
    char text[256] = "";
    (void)gw_params_print(level, text, sizeof text);
    return gw_control_mix(hash, text, sizeof text);
}

/* ---- bytes ---- */

/* Bytes next to a payload on its way; and to each other member, next to numbers. */
enum { SEAL = 8, LENGTH = 16, NUMBERS_SEALS = 16 };

/* Payloads of a bundle; empty pieces have none. */
static uint64_t payloads_of(const gw_program *p, const gw_operand *bundle)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < bundle->outer * bundle->inner; i++) {
        n += gw_operand_piece(bundle, p->grain, i).count != 0 ? bundle->payloads : 0;
    }
    return n;
}

/* Seals and lengths of what rank 0 sends. */
static uint64_t headers(const gw_program *p, const gw_params *level)
{
    const int fixed = level->codec != NULL && (gw_params_flags(level) & GW_CODEC_FIXED_SIZE) != 0;
    const uint64_t each = fixed ? SEAL : SEAL + LENGTH;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->n_moves; i++) {
        const gw_move *m = &p->move[i];
        const uint64_t size = m->group.size;
        if (m->step.level == 0 || size < 2) {
            continue;
        }
        if (m->before.kind == GW_OPERAND_DENSE || m->before.kind == GW_OPERAND_NUMBERS) {
            bytes += NUMBERS_SEALS * (size - 1);
        } else if (m->before.kind == GW_OPERAND_BUNDLE) {
            const uint64_t n = payloads_of(p, &m->before);
            const int scattered = m->after.range.count < m->before.range.count;
            bytes += each * (scattered ? n - (n + size - 1) / size : n * (size - 1));
        }
    }
    return bytes;
}

gw_status gw_control_bytes_sent(const gw_step *s, const gw_layer *l, const gw_params *level,
                                const gw_route *route, uint64_t *bytes, gw_why *why)
{
    const int coded = gw_route_encodes(route) != 0;
    const int rounds = coded && (gw_params_flags(level) & GW_CODEC_ROUNDS) != 0;
    gw_route_job job = {.ranks = s->config.comm->ranks,
                        .ranks_per_node = s->config.ranks_per_node,
                        .nodes = s->nodes,
                        .elements = l->elements,
                        .params = coded ? level : NULL,
                        .width = (uint32_t)gw_dtype_size(gw_step_sends(l, route))};
    gw_status status = GW_OK;
    *bytes = 0;
    for (unsigned round = 0; status == GW_OK; round++) {
        size_t n = 0;
        gw_program program;
        if (rounds) {
            status = gw_rounds_elements(level, (size_t)l->elements, round, &n);
            job.numbers = n;
        }
        if (status != GW_OK || (rounds && n == 0)) {
            break;
        }
        status = gw_route_compile(route, &job, &program, why);
        if (status == GW_OK) {
            *bytes += program.sent[GW_LINK_INTRA] + program.sent[GW_LINK_INTER];
            *bytes += headers(&program, level);
        }
        if (!rounds) {
            break;
        }
    }
    return status;
}
