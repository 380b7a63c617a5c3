/* Before the first step: settings, which layers, which levels each could have, memory, and what coding costs. */
#include "control/auto.h"

#include <gradwire/frame.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- settings ---- */

gw_status gw_auto_check(const gw_step *s, const void *config, gw_why *why)
{
    const gw_step_auto_config *c = config;
    if (s->config.sharded || gw_step_on_device(s)) {
        return GW_FAIL(why, GW_ERR_UNSUPPORTED, "auto: a step that is %s has no plans made for it",
                       s->config.sharded ? "sharded" : "on a device");
    }
    for (uint32_t i = 0; i < s->n_layers; i++) {
        if (s->layers[i].bucket != 0) {
            return GW_FAIL(why, GW_ERR_UNSUPPORTED,
                           "auto plans all layers itself: '%.100s' is in a bucket",
                           s->layers[i].name);
        }
    }
    if (c->n_families > GW_AUTO_FAMILIES - 1 || (c->families == NULL && c->n_families != 0)) {
        return GW_FAIL(why, GW_ERR_RANGE, "auto: at most %d families", GW_AUTO_FAMILIES - 1);
    }
    if ((c->period != 0 && c->period < GW_AUTO_LEAST_PERIOD) || c->period > (uint64_t)1 << 40) {
        return GW_FAIL(why, GW_ERR_RANGE, "auto: a period has %d steps at least, not %llu",
                       GW_AUTO_LEAST_PERIOD, (unsigned long long)c->period);
    }
    if (!(c->alpha == 0 || (c->alpha >= GW_AUTO_LEAST_ALPHA && c->alpha <= GW_AUTO_MOST_ALPHA)) ||
        !(c->limit >= 0 && isfinite(c->limit))) {
        return GW_FAIL(why, GW_ERR_RANGE, "auto: alpha %g (0.0625 to 4) or limit %g out of range",
                       c->alpha, c->limit);
    }
    return GW_OK;
}

static gw_status add_family(gw_step_auto *u, const gw_params *family, gw_why *why)
{
    const gw_status status = gw_params_check(family, why);
    if (status != GW_OK) {
        return status;
    }
    u->families[u->config.n_families++] = *family;
    return GW_OK;
}

int gw_auto_is_priced(const gw_cluster *c, const gw_params *p)
{
    size_t i = 0;
    while (i < c->n_codecs && c->codecs[i].params.codec != p->codec) {
        i++;
    }
    return i < c->n_codecs;
}

/* What the caller left open. Codecs that this build lacks, or a given cluster, are none. */
static gw_status complete(gw_step_auto *u, const gw_step_auto_config *c, gw_why *why)
{
    static const char *const usual[] = {"dither:bits=4", "natural:bits=8", "cast:to=bf16",
                                        "lowrank:rank=4"};
    gw_step_auto_config *own = &u->config;
    gw_status status = GW_OK;
    *own = *c;
    own->families = u->families;
    own->n_families = 0;
    own->cluster = NULL;
    own->alpha = c->alpha != 0 ? c->alpha : 1;
    own->limit = c->limit != 0 ? c->limit : 0.5;
    own->period = c->period != 0 ? c->period : 200;
    own->min_elements = c->min_elements != 0 ? c->min_elements : 1024;
    for (size_t i = 0; i < c->n_families && status == GW_OK; i++) {
        status = add_family(u, &c->families[i], why);
    }
    for (size_t i = 0; i < sizeof usual / sizeof *usual && c->n_families == 0; i++) {
        gw_params p;
        if (gw_params_parse(&p, usual[i], NULL) == GW_OK &&
            (c->cluster == NULL || gw_auto_is_priced(c->cluster, &p))) {
            u->families[own->n_families++] = p;
        }
    }
    if (status == GW_OK && own->uniform.codec == NULL) {
        status = gw_params_parse(&own->uniform, "dither:bits=4", why);
    }
    if (status == GW_OK) {
        status = gw_step_usual(u->control.step, &own->uniform, &u->everyday, why);
    }
    for (size_t i = 0; i < own->n_families && status == GW_OK; i++) {
        if (u->families[i].codec == own->uniform.codec) {
            return GW_OK;
        }
    }
    return status == GW_OK ? add_family(u, &own->uniform, why) : status;
}

/* ---- a layer's levels ---- */

static int is_named(const gw_params *p, const char *name)
{
    return strcmp(gw_codec_name(p->codec), name) == 0;
}

/* There is a table of its errors. */
static int has_table(const gw_params *p)
{
    return is_named(p, "dither") || is_named(p, "ndither") || is_named(p, "natural") ||
           is_named(p, "topk") || is_named(p, "lowrank");
}

double *gw_auto_setting(gw_params *p, const char *name)
{
    size_t i = 0;
    while (i < gw_codec_param_count(p->codec) &&
           strcmp(gw_codec_param(p->codec, i)->name, name) != 0) {
        i++;
    }
    return i < gw_codec_param_count(p->codec) ? &p->value[i] : NULL;
}

/* Unless it is there, or no smaller than the tensor as it is. */
static void add_level(gw_control_layer *l, const gw_params *level, const gw_layer *of)
{
    size_t bytes = 0;
    int there = gw_payload_bound(level, (size_t)of->elements, &bytes) != GW_OK ||
                bytes >= gw_dtype_size(of->dtype) * of->elements;
    for (uint32_t i = 0; i < l->n; i++) {
        there |= gw_params_equal(&l->levels[i], level);
    }
    if (!there) {
        l->levels[l->n++] = *level;
    }
}

static void add_levels(gw_control_layer *l, const gw_params *family, const gw_layer *of)
{
    static const double times[] = {1, 2, 5, 10};
    gw_params p = *family;
    double *bits = gw_auto_setting(&p, "bits"), *density = gw_auto_setting(&p, "density");
    double *rank = gw_auto_setting(&p, "rank");
    if (bits != NULL && (is_named(&p, "dither") || is_named(&p, "ndither"))) {
        for (int i = 2; i <= 8; i++) {
            *bits = i;
            add_level(l, &p, of);
        }
    } else if (density != NULL) {
        const double given = *density;
        for (int i = 0; i < 4 && given * times[i] <= 0.5; i++) {
            *density = given * times[i];
            add_level(l, &p, of);
        }
    } else if (rank != NULL) {
        const double given = *rank;
        for (int i = 1; i <= 4 && given * i <= 256; i *= 2) {
            *rank = given * i;
            add_level(l, &p, of);
        }
    } else {
        add_level(l, family, of);
    }
}

enum { MOST_LEVELS = 1 + 7 * GW_AUTO_FAMILIES + 1 };

/* First what has tables, the families one behind the other, then the rest. */
gw_status gw_auto_list(gw_control *c, const gw_layer *of, gw_control_layer *l, gw_why *why)
{
    gw_step_auto *u = gw_auto_of(c);
    if (of->elements < u->config.min_elements || of->elements < GW_AUTO_BINS) {
        return GW_OK;
    }
    gw_params uniform = u->config.uniform;
    l->levels = gw_control_memory(c, MOST_LEVELS, sizeof *l->levels);
    if (l->levels == NULL || gw_params_parse(&l->levels[0], "cast:to=f32", why) != GW_OK) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for levels, or no codec 'cast'");
    }
    l->n = 1;
    gw_status status = gw_params_fit_shape(&uniform, of->dims, of->n_dims);
    for (int coded = 0; coded < 2; coded++) {
        const uint32_t before = l->n;
        for (size_t i = 0; i < u->config.n_families && status == GW_OK; i++) {
            gw_params family = u->families[i];
            status = gw_params_fit_shape(&family, of->dims, of->n_dims);
            if (has_table(&family) != coded) {
                add_levels(l, &family, of);
            }
        }
        if (has_table(&uniform) != coded) {
            add_level(l, &uniform, of);
        }
        l->coded = coded ? l->n - before : 0;
    }
    for (uint32_t i = 0; i < l->n; i++) {
        l->uniform = gw_params_equal(&l->levels[i], &uniform) ? i : l->uniform;
    }
    return status == GW_OK
               ? GW_OK
               : GW_FAIL(why, status, "auto: a family does not fit layer '%.100s'", of->name);
}

/* ---- memory ---- */

static gw_status allocate(gw_step_auto *u, gw_why *why)
{
    gw_control *c = &u->control;
    const gw_comm *comm = c->step->config.comm;
    const size_t known = c->known, n = c->n;
    size_t levels = 0;
    for (uint32_t i = 0; i < n; i++) {
        levels += c->layers[i].n;
    }
    u->levels = gw_control_memory(c, levels, sizeof *u->levels);
    u->errors = gw_control_memory(c, levels, sizeof *u->errors);
    u->ways = gw_control_memory(c, n, sizeof *u->ways);
    u->chosen = gw_control_memory(c, n, sizeof *u->chosen);
    u->riskier = gw_control_memory(c, n, sizeof *u->riskier);
    u->parted = gw_control_memory(c, n, sizeof *u->parted);
    u->together = gw_control_memory(c, n, sizeof *u->together);
    u->posted = gw_control_memory(c, (GW_AUTO_SHARES + 1) * known, sizeof *u->posted);
    u->sorted = gw_control_memory(c, GW_AUTO_SHARES + 1, sizeof *u->sorted);
    u->tensors = gw_control_memory(c, 2 * known, sizeof *u->tensors);
    u->place_of = gw_control_memory(c, 2 * known, sizeof *u->place_of);
    u->ready = gw_control_memory(c, known, sizeof *u->ready);
    u->asked = gw_control_memory(c, 2 * known, sizeof *u->asked);
    u->entries = gw_control_memory(c, 2 * known, sizeof *u->entries);
    u->said = gw_control_memory(c, comm->ranks, GW_SAY * sizeof *u->said);
    u->said_room = gw_control_memory(c, gw_gather_room(comm, sizeof u->say), 1);
    u->room = gw_control_memory(c, gw_gather_room(comm, GW_AUTO_MOST_NUMBERS * sizeof(double)), 1);
    const gw_status status = gw_control_lay_out(c, known + GW_AUTO_SKETCH + n, why);
    if (status != GW_OK) {
        return status;
    }
    u->gradients_at = c->table - n;
    u->posted_at = u->gradients_at - known - GW_AUTO_SKETCH;
    u->table = gw_control_memory(c, c->table, sizeof *u->table);
    return gw_control_has_memory(c, why);
}

/* ---- begin ---- */

/* Of all that the plan hangs on but what is measured. */
static uint64_t hash_of(const gw_step_auto *u, const gw_cluster *given)
{
    const gw_step_auto_config *c = &u->config;
    const double numbers[] = {(double)c->period, c->alpha, c->limit, (double)c->min_elements,
                              (double)u->control.n};
    uint64_t hash = gw_control_mix(0, numbers, sizeof numbers);
    for (uint32_t i = 0; i < u->control.n; i++) {
        const gw_control_layer *l = &u->control.layers[i];
        const uint64_t of_layer[] = {l->layer, l->n, l->uniform};
        hash = gw_control_mix(hash, of_layer, sizeof of_layer);
        for (uint32_t k = 0; k < l->n; k++) {
            hash = gw_control_mix_level(hash, &l->levels[k]);
        }
    }
    for (size_t i = 0; given != NULL && i < given->n_codecs; i++) {
        const gw_codec_cost *x = &given->codecs[i];
        for (uint32_t k = 0; k < x->encode.n; k++) {
            const double point[] = {x->encode.point[k].bytes, x->encode.point[k].seconds};
            hash = gw_control_mix(hash, point, sizeof point);
        }
        for (uint32_t k = 0; k < x->decode.n; k++) {
            const double point[] = {x->decode.point[k].bytes, x->decode.point[k].seconds};
            hash = gw_control_mix(hash, point, sizeof point);
        }
    }
    return given != NULL ? gw_control_mix(hash, &given->cpu_workers, sizeof given->cpu_workers)
                         : hash;
}

/* Until there is a plan: the default. Not with feedback, whose residuals the first tables do not have. */
static gw_status go_by_default(gw_step_auto *u, gw_why *why)
{
    const gw_params *uniform = &u->config.uniform;
    const int late = gw_auto_comes_late(uniform);
    for (uint32_t i = 0; i < u->control.n; i++) {
        const gw_control_layer *l = &u->control.layers[i];
        const int coded = !late && gw_params_equal(&l->levels[l->uniform], uniform);
        u->ways[i].params = coded ? *uniform : (gw_params){.codec = NULL};
        u->ways[i].route = coded ? u->everyday : u->dense;
        u->ways[i].with = i;
    }
    const gw_status status = gw_auto_go_by(u, why);
    return status == GW_OK ? gw_step_agree(u->control.step, why) : status;
}

gw_status gw_auto_open(gw_control *c, const void *config, gw_why *why)
{
    gw_step_auto *u = gw_auto_of(c);
    const gw_step_auto_config *given = config;
    u->first = 1;
    u->ended = u->noise_then = u->squares_then = u->planned_rate = u->planned_seconds = (double)NAN;
    u->watch.measured_seconds = (double)NAN;
    c->window = GW_AUTO_SHARES; /* of copies */
    gw_status status = gw_step_usual(c->step, NULL, &u->dense, why);
    if (status == GW_OK) {
        status = complete(u, given, why);
    }
    if (status == GW_OK) {
        status = gw_control_list(c, why);
    }
    if (status == GW_OK) {
        status = allocate(u, why);
    }
    if (status == GW_OK) {
        status = gw_auto_cluster_open(u, given->cluster, why);
    }
    c->hash = status == GW_OK ? hash_of(u, given->cluster) : 0;
    return status;
}

gw_status gw_auto_start(gw_control *c, const void *config, gw_why *why)
{
    gw_step_auto *u = gw_auto_of(c);
    const gw_step_auto_config *given = config;
    gw_status status = go_by_default(u, why);
    if (status == GW_OK && given->cluster == NULL) {
        status = gw_auto_cluster_codecs(u, why);
    }
    gw_auto_judge_begin(&u->judge, u->config.limit, u->config.alpha);
    u->window_from = c->step->number;
    gw_auto_begin_round(u, c->step->number, GW_AUTO_START, 0);
    u->timing = 1;
    c->step->held = 1;
    return status;
}
