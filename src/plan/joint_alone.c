#include "plan/joint_alone.h"
#include "plan/search.h"

#include "base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- levels ---- */

typedef struct layers {
    gw_adapt_layer *layer;
    double *errors;  /* tensors × specs */
    uint64_t *bytes; /* likewise */
    uint32_t *spec;  /* of each level */
} layers;

static gw_status fill_layer(const gw_job *job, const gw_joint_table *t, size_t i, layers *l,
                            gw_why *why)
{
    gw_adapt_layer *layer = &l->layer[i];
    const size_t at = i * t->n_specs;
    *layer = (gw_adapt_layer){.errors = l->errors + at, .bytes = l->bytes + at};
    for (uint32_t spec = 0; spec < t->n_specs; spec++) {
        if (isnan(t->error[at + spec])) {
            continue;
        }
        size_t bytes =
            job->tensors[i].elements * gw_dtype_size(job->dtype != 0 ? job->dtype : GW_F32);
        if (spec != 0) {
            const gw_status status =
                gw_payload_bound(&t->specs[spec], job->tensors[i].elements, &bytes);
            if (status != GW_OK) {
                return GW_FAIL(why, status, "tensor '%.80s' with %s: %s", job->tensors[i].name,
                               gw_codec_name(t->specs[spec].codec), gw_status_string(status));
            }
        }
        layer->uniform = spec == t->uniform[i] ? layer->n : layer->uniform;
        l->spec[at + layer->n] = spec;
        l->bytes[at + layer->n] = bytes;
        l->errors[at + layer->n++] = t->error[at + spec];
    }
    return GW_OK;
}

static gw_status choose(const gw_job *job, const gw_joint_table *t, double alpha, const layers *l,
                        uint32_t *level, gw_why *why)
{
    const gw_adapt_problem problem = {.layers = l->layer, .n_layers = job->n, .alpha = alpha};
    gw_adapt_choice choice = {.levels = level};
    gw_workspace workspace = {NULL, 0};
    gw_status status = gw_adapt_workspace(&problem, &workspace.size);
    if (status != GW_OK) {
        return GW_FAIL(why, status, "choosing levels: %s", gw_status_string(status));
    }
    workspace.data = malloc(workspace.size + 1);
    status = workspace.data != NULL ? gw_adapt_choose(&problem, workspace, &choice, why)
                                    : GW_FAIL(why, GW_ERR_MEMORY, "no memory to choose levels");
    free(workspace.data);
    for (size_t i = 0; i < job->n && status == GW_OK; i++) {
        level[i] = l->spec[i * t->n_specs + level[i]];
    }
    return status;
}

gw_status gw_joint_levels(const gw_job *job, const gw_joint_table *table, double alpha,
                          uint32_t *level, gw_why *why)
{
    const size_t all = job->n * table->n_specs;
    layers l = {.layer = calloc(job->n, sizeof *l.layer),
                .errors = calloc(all, sizeof *l.errors),
                .bytes = calloc(all, sizeof *l.bytes),
                .spec = calloc(all, sizeof *l.spec)};
    gw_status status = l.layer != NULL && l.errors != NULL && l.bytes != NULL && l.spec != NULL
                           ? GW_OK
                           : GW_FAIL(why, GW_ERR_MEMORY, "no memory to choose levels");
    for (size_t i = 0; i < job->n && status == GW_OK; i++) {
        status = fill_layer(job, table, i, &l, why);
    }
    status = status == GW_OK ? choose(job, table, alpha, &l, level, why) : status;
    free(l.layer);
    free(l.errors);
    free(l.bytes);
    free(l.spec);
    return status;
}

/* ---- routes ---- */

/* Of one tensor. Parts add up to the budget; what rounding could add is left out. */
static int within_part(const gw_joint_table *t, uint32_t tensor, uint32_t spec, uint32_t hops,
                       double alpha)
{
    const double *line = t->error + (size_t)tensor * t->n_specs;
    const double part = alpha * line[t->uniform[tensor]];
    return isinf(alpha) ? !isnan(line[spec])
                        : hops * line[spec] <= (alpha == 1 ? part : part * (1 - 1e-12));
}

/* Bit h: routes of h lossy hops may carry this spec. */
static uint8_t allowed_hops(const gw_joint_problem *p, const gw_alone_rules *r, uint32_t b,
                            uint32_t spec)
{
    uint8_t bits = 0;
    for (uint32_t hops = 0; hops <= GW_ROUTE_MAX_POINTS; hops++) {
        int fine = r->kind != GW_ALONE_LEVELS || hops <= 1;
        for (uint32_t i = p->x.first[b]; i < p->x.first[b + 1] && fine; i++) {
            fine = r->kind == GW_ALONE_LEVELS ? spec == r->level[i]
                                              : within_part(p->table, i, spec, hops, r->alpha) &&
                                                    (r->kind == GW_ALONE_ROUTES || spec == 0 ||
                                                     spec == p->table->uniform[i]);
        }
        bits |= (uint8_t)(fine << hops);
    }
    return bits;
}

/* Classes of what is allowed; buckets of one size that may do the same share one. */
typedef struct narrowed {
    uint8_t *bits; /* buckets × specs */
    gw_class *classes;
    uint32_t n;
    gw_front front;
} narrowed;

static gw_status narrow_one(gw_joint_problem *p, uint32_t b, narrowed *w, gw_why *why)
{
    const uint32_t n_specs = p->table->n_specs;
    const uint8_t *bits = w->bits + (size_t)b * n_specs;
    gw_front_begin(&w->front, &p->pricer->rules);
    for (uint32_t spec = 0; spec < n_specs; spec++) {
        const gw_class *c = NULL;
        if (bits[spec] == 0) {
            continue;
        }
        const gw_status status = gw_joint_class(p, b, spec, &c, why);
        if (status != GW_OK) {
            return status;
        }
        for (uint32_t k = 0; k < c->n; k++) {
            if ((bits[spec] >> c->choice[k].hops & 1) &&
                !gw_front_offer_again(&w->front, &c->choice[k])) {
                return GW_FAIL(why, GW_ERR_MEMORY, "no memory for the choices of a tensor");
            }
        }
    }
    if (!gw_front_seal(&w->front, p->x.elements[b], &w->classes[w->n])) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for the choices of a tensor");
    }
    p->x.class_of[b] = &w->classes[w->n++];
    return GW_OK;
}

static gw_status narrow(gw_joint_problem *p, const gw_alone_rules *r, narrowed *w, gw_why *why)
{
    const size_t n_specs = p->table->n_specs;
    gw_status status = GW_OK;
    for (uint32_t b = 0; b < p->x.buckets && status == GW_OK; b++) {
        uint8_t *bits = w->bits + b * n_specs;
        uint32_t like = 0;
        for (uint32_t spec = 0; spec < n_specs; spec++) {
            bits[spec] = allowed_hops(p, r, b, spec);
        }
        while (like < b && (p->size[like] != p->size[b] ||
                            memcmp(w->bits + like * n_specs, bits, n_specs) != 0)) {
            like++;
        }
        if (like < b) {
            p->x.class_of[b] = p->x.class_of[like];
        } else {
            status = narrow_one(p, b, w, why);
        }
    }
    return status;
}

static void write_entries(const gw_joint_problem *p, const gw_search *s, gw_joint_found *out)
{
    const gw_joint_table *t = p->table;
    out->makespan = s->line.makespan;
    out->error = 0;
    for (uint32_t b = 0; b < p->x.buckets; b++) {
        const gw_choice *c = &p->x.class_of[b]->choice[s->pick[b]];
        for (uint32_t i = p->x.first[b]; i < p->x.first[b + 1]; i++) {
            out->entry[i] = (gw_plan_entry){
                .tensor = i, .bucket = b, .params = t->specs[c->spec], .route = c->route};
            out->error += c->hops * t->error[(size_t)i * t->n_specs + c->spec];
        }
    }
}

static gw_status search(gw_joint_problem *p, const gw_alone_rules *r, gw_joint_found *out,
                        uint64_t *evaluations, gw_why *why)
{
    gw_search s;
    for (uint32_t b = 0; b < p->x.buckets; b++) {
        if (p->x.class_of[b]->n == 0) {
            return GW_OK; /* routes are forbidden that this would need */
        }
    }
    const gw_status status =
        gw_search_create(&s, &p->pricer->rules, p->x.compute, p->x.class_of, p->x.n, why);
    if (status != GW_OK) {
        return status;
    }
    s.device = r->device;
    s.event_limit = r->event_limit;
    s.goal = gw_lower_bound(&p->x, p->pricer->rules.cpu_workers);
    if (r->whole) {
        gw_search_run(&s);
    } else {
        gw_search_greedy(&s);
    }
    *evaluations += s.line.evaluations;
    write_entries(p, &s, out);
    gw_search_destroy(&s);
    return GW_OK;
}

gw_status gw_joint_alone(gw_joint_problem *p, const gw_alone_rules *rules, gw_joint_found *out,
                         uint64_t *evaluations, gw_why *why)
{
    narrowed w = {.bits = calloc((size_t)p->x.n * p->table->n_specs + 1, 1),
                  .classes = calloc((size_t)p->x.n + 1, sizeof *w.classes)};
    gw_status status = w.bits != NULL && w.classes != NULL
                           ? narrow(p, rules, &w, why)
                           : GW_FAIL(why, GW_ERR_MEMORY, "no memory for %u buckets", p->x.n);
    out->makespan = GW_NEVER;
    status = status == GW_OK ? search(p, rules, out, evaluations, why) : status;
    for (uint32_t i = 0; i < w.n; i++) {
        gw_class_free(&w.classes[i]);
    }
    free(w.classes);
    free(w.bits);
    gw_front_free(&w.front);
    return status;
}
