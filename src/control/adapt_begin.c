/* Before the first period: which layers, which levels each could have, by which route, and what that sends. */
#include "control/control.h"

#include "base/huge_pages.h"

#include <gradwire/frame.h>
#include <gradwire/rounds.h>

#include <stdlib.h>
#include <string.h>

/* Bytes next to a payload on its way; and to each other member, next to numbers. */
enum { SEAL = 8, LENGTH = 16, NUMBERS_SEALS = 16 };

/* ---- a layer's levels ---- */

/* Codes where the layer's own route did first. */
static void code_as(gw_route *route, const gw_route *own)
{
    uint8_t device = 0;
    for (int i = 0; i < own->n_steps; i++) {
        device = device == 0 ? own->step[i].device : device;
    }
    for (int i = 0; i < route->n_steps && device != 0; i++) {
        route->step[i].device = route->step[i].device != 0 ? device : 0;
    }
}

/* The layer's own route for the codec it was planned with, else what suits. */
static gw_status route_of(const gw_step *s, const gw_layer *l, const gw_params *level, int lossless,
                          gw_route *out, gw_why *why)
{
    if (!lossless && l->params.codec == level->codec) {
        *out = l->route;
        return GW_OK;
    }
    const gw_status status = gw_step_usual(s, lossless ? NULL : level, out, why);
    code_as(out, &l->route);
    return status;
}

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

/* What rank 0 sends of a layer in a step. */
gw_status gw_step_bytes_sent(const gw_step *s, const gw_layer *l, const gw_params *level,
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

/* Levels below the floor are none. */
static void raise(const gw_step_adapt *a, gw_adapted *l)
{
    const double least = a->config.floor * (double)l->bytes[l->uniform];
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        if ((double)l->bytes[i] < least) {
            continue;
        }
        l->uniform = i == l->uniform ? n : l->uniform;
        l->levels[n] = l->levels[i];
        l->routes[n] = l->routes[i];
        l->bytes[n++] = l->bytes[i];
    }
    l->n = n;
    l->level = l->uniform;
}

static gw_status find_milder(gw_step_adapt *a, const gw_layer *l, gw_adapted *to, gw_why *why)
{
    to->milder = to->uniform;
    if (a->config.milder == NULL || to->uniform == 0) {
        return GW_OK;
    }
    gw_params milder = a->milder;
    gw_status status = gw_params_fit_shape(&milder, l->dims, l->n_dims);
    for (uint32_t i = 0; i < to->n && status == GW_OK; i++) {
        if (gw_params_equal(&to->levels[i], &milder)) {
            to->milder = i;
            return GW_OK;
        }
    }
    return GW_FAIL(why, GW_ERR_ARG, "adapt: the milder default is no level of layer '%.100s'",
                   l->name);
}

/* to->n is 0 if there is nothing to choose. */
static gw_status list_levels(gw_step_adapt *a, uint32_t layer, gw_adapted *to, gw_why *why)
{
    const gw_layer *l = &a->step->layers[layer];
    gw_params *levels = calloc(GW_ADAPT_MOST_LEVELS, sizeof *levels);
    size_t n = 0;
    *to = (gw_adapted){.layer = layer};
    if (levels == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for levels");
    }
    gw_status status = gw_adapt_levels(&a->config.rules, GW_F32, l->dims, l->n_dims, levels,
                                       GW_ADAPT_MOST_LEVELS, &n, &to->uniform, why);
    if (status != GW_OK || n < 2) {
        free(levels);
        return status;
    }
    to->levels = levels;
    to->n = (uint32_t)n;
    to->routes = calloc(n, sizeof *to->routes);
    to->bytes = calloc(n, sizeof *to->bytes);
    if (to->routes == NULL || to->bytes == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for levels");
    }
    for (uint32_t i = 0; i < n && status == GW_OK; i++) {
        status = route_of(a->step, l, &levels[i], i == 0, &to->routes[i], why);
        if (status == GW_OK) {
            status = gw_step_bytes_sent(a->step, l, &levels[i], &to->routes[i], &to->bytes[i], why);
        }
    }
    if (status != GW_OK) {
        return status;
    }
    raise(a, to);
    return find_milder(a, l, to, why);
}

static int is_pinned(const gw_step_adapt_config *c, uint32_t layer)
{
    size_t i = 0;
    while (i < c->n_pinned && c->pinned[i] != layer) {
        i++;
    }
    return i < c->n_pinned;
}

gw_status gw_step_adapt_make_places(gw_step_adapt *a, gw_why *why)
{
    const uint32_t n = a->step->n_layers;
    a->known = n;
    a->layers = calloc((size_t)n + 1, sizeof *a->layers);
    a->place_of = calloc((size_t)n + 1, sizeof *a->place_of);
    return a->layers != NULL && a->place_of != NULL
               ? GW_OK
               : GW_FAIL(why, GW_ERR_MEMORY, "no memory for %u layers", n);
}

static gw_status list_layers(gw_step_adapt *a, gw_why *why)
{
    const gw_step *s = a->step;
    gw_status status = gw_step_adapt_make_places(a, why);
    for (uint32_t i = 0; i < s->n_layers && status == GW_OK; i++) {
        const gw_layer *l = &s->layers[i];
        a->place_of[i] = UINT32_MAX;
        if (l->params.codec == NULL || l->fusion != UINT32_MAX || l->elements == 0 ||
            is_pinned(&a->config, i)) {
            continue;
        }
        gw_adapted *to = &a->layers[a->n];
        status = list_levels(a, i, to, why);
        if (to->n != 0) {
            a->place_of[i] = a->n++;
        }
    }
    if (status == GW_OK && a->n == 0) {
        return GW_FAIL(why, GW_ERR_STATE, "adapt: no layer has a codec and levels to choose from");
    }
    return status;
}

/* ---- memory ---- */

/* Places in the table, copies and which step of the window makes them: equal shares, as far as layers allow. */
static gw_status lay_out(gw_step_adapt *a, size_t more, gw_why *why)
{
    uint64_t elements = 0, at = 0;
    size_t workspace = 0;
    a->table = GW_TABLE_LAYERS;
    for (uint32_t i = 0; i < a->n; i++) {
        elements += a->step->layers[a->layers[i].layer].elements;
    }
    a->copies = gw_pages_allocate((size_t)elements * sizeof *a->copies, 0);
    if (a->copies == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory to copy %llu elements",
                       (unsigned long long)elements);
    }
    for (uint32_t i = 0; i < a->n; i++) {
        gw_adapted *l = &a->layers[i];
        const uint64_t count = a->step->layers[l->layer].elements;
        size_t bytes = 0;
        const gw_status status =
            gw_adapt_measure_workspace(l->levels, l->n - l->coded, count, &bytes);
        if (status != GW_OK) {
            return GW_FAIL(why, status, "adapt: the levels of layer '%.100s' cannot be measured",
                           a->step->layers[l->layer].name);
        }
        workspace = bytes > workspace ? bytes : workspace;
        l->share = (uint32_t)((double)at / (double)elements * (double)a->window);
        l->copy = a->copies + at;
        l->at = a->table;
        at += count;
        a->table += 1 + (size_t)l->n;
    }
    a->table += more;
    a->workspace = (gw_workspace){malloc(workspace + 1), workspace};
    return a->workspace.data != NULL ? GW_OK
                                     : GW_FAIL(why, GW_ERR_MEMORY, "no memory to measure errors");
}

static gw_status allocate(gw_step_adapt *a, gw_why *why)
{
    const size_t ranks = a->step->config.comm->ranks;
    a->own = calloc(a->table, sizeof *a->own);
    a->mean = calloc(a->table, sizeof *a->mean);
    a->all = calloc(ranks * a->table, sizeof *a->all);
    a->norms = calloc(a->n, sizeof *a->norms);
    a->chosen = calloc(a->n, sizeof *a->chosen);
    a->room = malloc(gw_gather_room(a->step->config.comm, (a->table + 8) * sizeof *a->own));
    a->said = calloc(8 * ranks, sizeof *a->said);
    return a->own != NULL && a->mean != NULL && a->all != NULL && a->norms != NULL &&
                   a->chosen != NULL && a->room != NULL && a->said != NULL
               ? GW_OK
               : GW_FAIL(why, GW_ERR_MEMORY, "no memory for tables of errors");
}

/* ---- settings ---- */

static gw_status check(const gw_step *s, const gw_step_adapt_config *c, gw_why *why)
{
    if (c == NULL || gw_control_of(s) != NULL || !s->agreed || s->posted != 0) {
        return GW_FAIL(why, GW_ERR_STATE, "adapt begins once, between steps, after gw_step_agree");
    }
    if (c->every < GW_STEP_ADAPT_LEAST_PERIOD || c->every > (uint64_t)1 << 40) {
        return GW_FAIL(why, GW_ERR_RANGE, "adapt: a period has %d steps at least, not %llu",
                       GW_STEP_ADAPT_LEAST_PERIOD, (unsigned long long)c->every);
    }
    if (!(c->alpha >= 0) || !(c->least_gain >= 0 && c->least_gain < 1) ||
        !(c->floor >= 0 && c->floor <= 1) || (c->milder != NULL && !(c->eta >= 0)) ||
        (c->schedule == NULL && c->n_schedule != 0) || (c->pinned == NULL && c->n_pinned != 0)) {
        return GW_FAIL(why, GW_ERR_RANGE, "adapt: alpha, eta, least_gain or floor out of range");
    }
    for (size_t i = 0; i < c->n_schedule; i++) {
        if (!(c->schedule[i].alpha >= 0) ||
            (i != 0 && c->schedule[i].step <= c->schedule[i - 1].step)) {
            return GW_FAIL(why, GW_ERR_RANGE,
                           "adapt: entry %zu of the schedule: an alpha below 0, or a step that "
                           "does not come after the last",
                           i);
        }
    }
    return GW_OK;
}

/* What the config points to is the caller's: copies, but for what is used up by begin. */
static gw_status keep_config(gw_step_adapt *a, const gw_step_adapt_config *c, gw_why *why)
{
    a->config = *c;
    a->families = calloc(c->rules.n_families + 1, sizeof *a->families);
    a->schedule = calloc(c->n_schedule + 1, sizeof *a->schedule);
    if (a->families == NULL || a->schedule == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for adapt");
    }
    if (c->rules.n_families != 0) {
        memcpy(a->families, c->rules.families, c->rules.n_families * sizeof *a->families);
    }
    if (c->n_schedule != 0) {
        memcpy(a->schedule, c->schedule, c->n_schedule * sizeof *a->schedule);
    }
    a->config.rules.families = a->families;
    a->config.schedule = a->schedule;
    if (c->milder != NULL) {
        a->milder = *c->milder;
        a->config.milder = &a->milder;
    }
    const uint64_t tenth = c->every / 10;
    a->window = a->lag = a->rest = tenth < 1 ? 1 : tenth > 10 ? 10 : tenth;
    return GW_OK;
}

static uint64_t mix(uint64_t hash, const void *bytes, size_t size)
{
    return gw_payload_hash(bytes, size, hash);
}

/* Of all that the choice hangs on but the tables. */
static uint64_t hash_of(const gw_step_adapt *a)
{
    const gw_step_adapt_config *c = &a->config;
    const double numbers[] = {(double)c->every, c->alpha,     c->eta,
                              c->least_gain,    (double)a->n, (double)c->metric};
    uint64_t hash = mix(0, numbers, sizeof numbers);
    for (size_t i = 0; i < c->n_schedule; i++) {
        const double entry[] = {(double)a->schedule[i].step, a->schedule[i].alpha};
        hash = mix(hash, entry, sizeof entry);
    }
    for (uint32_t i = 0; i < a->n; i++) {
        const gw_adapted *l = &a->layers[i];
        const uint64_t of_layer[] = {l->layer, l->n, l->uniform, l->milder};
        hash = mix(hash, of_layer, sizeof of_layer);
        hash = mix(hash, l->bytes, l->n * sizeof *l->bytes);
        for (uint32_t k = 0; k < l->n; k++) {
            char text[256] = "";
            const uint64_t route = gw_route_hash(&l->routes[k]);
            (void)gw_params_print(&l->levels[k], text, sizeof text);
            hash = mix(mix(hash, text, sizeof text), &route, sizeof route);
        }
    }
    return hash;
}

gw_status gw_step_adapt_run(gw_step_adapt *a, gw_why *why)
{
    a->has_thread = pthread_create(&a->thread, NULL, gw_step_adapt_thread, a) == 0;
    return a->has_thread ? GW_OK : GW_FAIL(why, GW_ERR_SYSTEM, "cannot start a thread");
}

/* All ranks with the default, by the same settings. */
static gw_status start(gw_step_adapt *a, gw_why *why)
{
    gw_step *s = a->step;
    static const char *const names[] = {"library version", "settings of adapt:"};
    const uint64_t numbers[GW_STEP_NUMBERS] = {gw_version(), a->hash};
    gw_status status = gw_step_compare_numbers(s, s->side, numbers, names, 2, why);
    for (uint32_t i = 0; i < a->n && status == GW_OK; i++) {
        status = gw_step_adapt_plan(a, i, a->layers[i].uniform, why);
    }
    if (status == GW_OK) {
        status = gw_step_agree(s, why);
    }
    return status == GW_OK ? gw_step_adapt_run(a, why) : status;
}

gw_status gw_step_adapt_open(gw_step *s, gw_step_adapt **out, gw_why *why)
{
    gw_step_adapt *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for adapt");
    }
    a->step = s;
    s->above = *out = a;
    s->hooks = &gw_control_hooks;
    (void)pthread_mutex_init(&a->lock, NULL);
    (void)pthread_cond_init(&a->changed, NULL);
    return s->side == NULL ? gw_step_split(s, s->config.comm, 0, &s->side, why) : GW_OK;
}

gw_status gw_step_adapt_lay_out(gw_step_adapt *a, size_t more, gw_why *why)
{
    const gw_status status = lay_out(a, more, why);
    return status == GW_OK ? allocate(a, why) : status;
}

gw_status gw_step_adapt_begin(gw_step *s, const gw_step_adapt_config *config, gw_why *why)
{
    gw_why own = {""};
    why = gw_why_or(why, &own);
    gw_status status = gw_step_failure(s, why);
    if (status == GW_OK) {
        status = check(s, config, why);
    }
    if (status != GW_OK) {
        return status;
    }
    gw_step_adapt *a = NULL;
    status = gw_step_adapt_open(s, &a, why);
    if (a == NULL) {
        return status;
    }
    if (status == GW_OK) {
        status = keep_config(a, config, why);
    }
    if (status == GW_OK) {
        status = list_layers(a, why);
    }
    if (status == GW_OK) {
        status = gw_step_adapt_lay_out(a, 0, why);
    }
    if (status == GW_OK) {
        a->hash = hash_of(a);
        status = start(a, why);
    }
    if (status != GW_OK) {
        gw_step_adapt_end(a);
    }
    return status;
}
