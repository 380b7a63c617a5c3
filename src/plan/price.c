#include "plan/price.h"

#include "base/why.h"

#include <gradwire/rounds.h>

#include <stdlib.h>
#include <string.h>

static const double LEAST = 1e-9; /* seconds: a tick */

/* ---- one route, compiled ---- */

/* A step with all that does not depend on devices. */
typedef struct part {
    uint8_t op;
    gw_track track; /* collectives */
    double seconds, latency, messages;
    double operand, payload; /* coding: fp32 bytes of the range, bytes of the payloads */
    double payloads;         /* decode: how many are added */
} part;

enum { MOST_ROUNDS = 2 };

typedef struct skeleton {
    part part[MOST_ROUNDS * GW_ROUTE_MAX_STEPS];
    uint32_t n;
    uint32_t codings; /* of one round */
    uint32_t rounds;
    double bytes; /* of all of it, as gradients are */
} skeleton;

/* Where a tensor goes to a root and back by several exchanges (its pieces; with ranks that have a part each, one for each rank of a
 * node), the root sends what it has summed while the next come in. Its two directions are then busy at once, as far as measured
 * steps tell (docs/decisions/008). `other`: of another rank of the root's node, or NULL. */
static void overlap_roots(part *parts, const gw_program *root, const gw_program *other,
                          double exchanges, uint32_t ranks_per_node)
{
    static const double BOTH_WAYS = 0.6;
    const part *inward = NULL;
    for (uint32_t i = 0; i < root->n_moves; i++) {
        part *x = &parts[i];
        const int coding = x->op == GW_OP_ENCODE || x->op == GW_OP_DECODE;
        if (coding || root->move[i].step.level == GW_LEVEL_INTRA) {
            continue;
        }
        if (x->op == GW_OP_BROADCAST && inward != NULL) {
            const int each =
                other != NULL && other->move[i].runs && root->move[i].step.level == GW_LEVEL_INTER;
            const double shorter = inward->seconds < x->seconds ? inward->seconds : x->seconds;
            x->seconds -= BOTH_WAYS * shorter * (1 - 1 / (exchanges * (each ? ranks_per_node : 1)));
        }
        inward = x->op == GW_OP_GATHER ? x : NULL;
    }
}

/* Adds the route's steps, all of them or those of one round. */
static gw_status compile_once(const gw_pricer *p, gw_route_job job, const gw_route *route,
                              skeleton *out, gw_why *why)
{
    const gw_cluster *c = p->cluster;
    const gw_params *params = job.params;
    gw_program root, other;
    gw_status status = gw_route_compile(route, &job, &root, why);
    const int pair = c->ranks_per_node > 1;
    if (status == GW_OK && pair) {
        job.rank = 1;
        status = gw_route_compile(route, &job, &other, why);
    }
    if (status != GW_OK) {
        return status;
    }
    part *const parts = &out->part[out->n];
    out->codings = 0;
    for (uint32_t i = 0; i < root.n_moves; i++) {
        const gw_move *m = &root.move[i];
        part *x = &out->part[out->n++];
        *x = (part){.op = m->step.op};
        if (x->op == GW_OP_ENCODE || x->op == GW_OP_DECODE) {
            const gw_operand *coded = x->op == GW_OP_ENCODE ? &m->after : &m->before;
            const gw_operand *plain = x->op == GW_OP_ENCODE ? &m->before : &m->after;
            x->operand = (double)plain->range.count * 4;
            x->payload = (double)coded->bytes;
            x->payloads = coded->kind == GW_OPERAND_BUNDLE ? coded->payloads : 1;
            out->codings++;
        } else {
            const gw_move *peer = pair ? &other.move[i] : NULL;
            x->seconds = gw_collective_seconds(c, m, peer, p->sigma, &x->track);
            x->messages = gw_collective_phases(m) * (m->group.size - 1);
            x->latency = gw_lengths_seconds(c, m, peer, p->sigma);
            if (m->before.kind == GW_OPERAND_BUNDLE &&
                (gw_params_flags(params) & GW_CODEC_FIXED_SIZE) == 0) {
                x->seconds += gw_lengths_seconds(c, m, peer, p->sigma);
                x->messages += m->group.size - 1;
            }
        }
    }
    if (p->apart && job.elements > 0) {
        const uint64_t piece =
            gw_cut_usual(job.elements, out->codings > 0 ? gw_codec_grain(params) : 1);
        overlap_roots(parts, &root, pair ? &other : NULL, (double)job.elements / (double)piece,
                      c->ranks_per_node);
    }
    out->rounds++;
    return GW_OK;
}

static gw_status compile(const gw_pricer *p, uint64_t elements, const gw_params *params,
                         const gw_route *route, skeleton *out, gw_why *why)
{
    gw_route_job job = {.ranks = p->cluster->nodes * p->cluster->ranks_per_node,
                        .ranks_per_node = p->cluster->ranks_per_node,
                        .elements = elements,
                        .params = params,
                        .width = p->width};
    out->n = out->codings = out->rounds = 0; /* parts are written as they come */
    out->bytes = (double)elements * p->width;
    if (params == NULL || (gw_params_flags(params) & GW_CODEC_ROUNDS) == 0) {
        return compile_once(p, job, route, out, why);
    }
    gw_status status = GW_OK;
    for (unsigned round = 0; status == GW_OK; round++) {
        size_t numbers = 0;
        status = gw_rounds_elements(params, (size_t)elements, round, &numbers);
        if (status != GW_OK || numbers == 0) {
            break;
        }
        if (round == MOST_ROUNDS) {
            return GW_FAIL(why, GW_ERR_UNSUPPORTED, "%s: more than %d rounds",
                           gw_codec_name(params->codec), MOST_ROUNDS);
        }
        job.numbers = numbers;
        status = compile_once(p, job, route, out, why);
    }
    return status;
}

/* ---- with devices ---- */

/* Costs of one spec where it may run. */
typedef struct coders {
    const gw_codec_cost *cpu, *gpu;
} coders;

typedef struct assembly {
    gw_timed_op op[GW_TIMELINE_MAX_OPS];
    uint32_t n;
    int on_host; /* where the data lie */
} assembly;

static void add(assembly *a, gw_track track, double seconds)
{
    a->op[a->n++] = (gw_timed_op){track, gw_ticks_of(seconds)};
}

/* Data move to where they are needed: host for the processor's coding, device for all else. */
static void bring(const gw_pricer *p, assembly *a, int to_host, double bytes)
{
    if (p->cluster->has_gpu && a->on_host != to_host) {
        add(a, GW_TRACK_COPY, gw_copy_seconds(p->cluster, bytes, p->sigma));
        a->on_host = to_host;
    }
}

/* Of `rounds` rounds each has an equal part: they read the tensor as often. */
static void code(const gw_pricer *p, assembly *a, const part *x, const coders *who, int on_cpu,
                 uint32_t rounds)
{
    const gw_codec_cost *cost = on_cpu ? who->cpu : who->gpu;
    const int encodes = x->op == GW_OP_ENCODE;
    bring(p, a, on_cpu, encodes ? x->operand : x->payload);
    const double seconds = encodes ? gw_curve_at(&cost->encode, x->operand, p->sigma)
                                   : x->payloads * gw_curve_at(&cost->decode, x->operand, p->sigma);
    const int own_workers = p->cluster->has_gpu || p->cluster->cpu_workers > 0;
    add(a, on_cpu && own_workers ? GW_TRACK_CPU : GW_TRACK_GPU,
        x->operand == 0 ? 0 : seconds / rounds);
}

static void send(const gw_pricer *p, assembly *a, const part *x)
{
    if (!p->apart || x->seconds == 0) {
        add(a, x->track, x->seconds);
        return;
    }
    const double latency = x->latency < x->seconds ? x->latency : x->seconds;
    const double sent = x->seconds - latency;
    add(a, GW_TRACK_GPU, x->messages * p->exchange);
    add(a, x->track, sent > LEAST ? sent : LEAST); /* or it would be no exchange */
    add(a, GW_TRACK_CPU, latency);
}

/* Bit i of `on_cpu`: the i-th coding step is the processor's. */
static void assemble(const gw_pricer *p, const skeleton *s, const coders *who, uint32_t on_cpu,
                     assembly *a)
{
    double last = 0; /* bytes that lie where the last step left them */
    uint32_t coding = 0;
    a->n = 0;
    a->on_host = 0;
    /* on a GPU it is as good as nothing */
    const int copies = p->together && !p->cluster->has_gpu && p->cluster->copy.rate > 0;
    if (copies) {
        add(a, GW_TRACK_GPU, gw_copy_seconds(p->cluster, s->bytes, p->sigma));
    }
    for (uint32_t i = 0; i < s->n; i++) {
        const part *x = &s->part[i];
        if (x->op == GW_OP_ENCODE || x->op == GW_OP_DECODE) {
            code(p, a, x, who, (int)(on_cpu >> coding++ % s->codings & 1), s->rounds);
            last = x->op == GW_OP_ENCODE ? x->payload : x->operand;
        } else {
            bring(p, a, 0, last);
            send(p, a, x);
        }
    }
    bring(p, a, 0, last);
    if (copies) {
        add(a, GW_TRACK_GPU, gw_copy_seconds(p->cluster, s->bytes, p->sigma));
    }
}

static gw_route with_devices(const gw_route *route, uint32_t on_cpu)
{
    gw_route out = *route;
    uint32_t coding = 0;
    for (uint32_t i = 0; i < out.n_steps; i++) {
        if (out.step[i].device != 0) {
            out.step[i].device = on_cpu >> coding++ & 1 ? GW_DEVICE_CPU : GW_DEVICE_GPU;
        }
    }
    return out;
}

/* ---- all of a class ---- */

int gw_price_forbidden(const gw_pricer *p, const gw_route *route)
{
    for (size_t i = 0; i < p->n_forbidden; i++) {
        if (gw_route_equal(&p->forbidden[i], route)) {
            return 1;
        }
    }
    return 0;
}

static coders coders_of(const gw_pricer *p, const gw_params *params)
{
    coders who = {NULL, NULL};
    if (p->devices & GW_DEVICE_CPU) {
        who.cpu = gw_cluster_codec(p->cluster, params, GW_DEVICE_CPU);
    }
    if (p->devices & GW_DEVICE_GPU) {
        who.gpu = gw_cluster_codec(p->cluster, params, GW_DEVICE_GPU);
    }
    return who;
}

static gw_coding coding_of(uint32_t codings, uint32_t on_cpu)
{
    return codings == 0                    ? GW_CODING_NONE
           : on_cpu == 0                   ? GW_CODING_GPU
           : on_cpu == (1U << codings) - 1 ? GW_CODING_CPU
                                           : GW_CODING_MIXED;
}

/* Every way to spread the coding of one route over the devices there are. */
static int offer_all(gw_pricer *p, const skeleton *s, const coders *who, const gw_route *route,
                     gw_choice like)
{
    const uint32_t all = (1U << s->codings) - 1;
    const int one_device = p->one_device || gw_route_kind_of(route) == GW_ROUTE_ADDITIVE;
    for (uint32_t on_cpu = 0; on_cpu <= all; on_cpu++) {
        const int needs_cpu = on_cpu != 0, needs_gpu = on_cpu != all;
        if ((needs_cpu && who->cpu == NULL) || (needs_gpu && who->gpu == NULL) ||
            (one_device && needs_cpu && needs_gpu)) {
            continue;
        }
        assembly a;
        like.route = with_devices(route, on_cpu);
        if (gw_price_forbidden(p, &like.route)) {
            continue;
        }
        assemble(p, s, who, on_cpu, &a);
        like.coding = (uint8_t)coding_of(s->codings, on_cpu);
        if (!gw_front_offer(&p->front, &like, a.op, a.n, 0)) {
            return 0;
        }
    }
    return 1;
}

static gw_status price_route(gw_pricer *p, uint64_t elements, uint32_t spec, uint32_t which,
                             const coders *who, gw_why *why)
{
    const gw_route *route = &p->skeleton[which];
    const gw_params *params = spec == 0 ? NULL : &p->specs[spec];
    const uint32_t hops = gw_route_encodes(route);
    skeleton s;
    if ((hops == 0) != (spec == 0) || (p->max_hops != 0 && hops > p->max_hops) ||
        gw_route_fits(route, params, NULL) != GW_OK) {
        return GW_OK;
    }
    const gw_status status = compile(p, elements, params, route, &s, why);
    if (status != GW_OK) {
        return status;
    }
    const gw_choice like = {
        .spec = spec, .variety = spec * p->n_skeletons + which, .hops = (uint8_t)hops};
    return offer_all(p, &s, who, route, like)
               ? GW_OK
               : GW_FAIL(why, GW_ERR_MEMORY, "no memory for the choices of %llu elements",
                         (unsigned long long)elements);
}

/* A choice all on the GPU stays with its twin all on the CPU, dominated or not: offload moves between them. */
static gw_status add_twins(gw_pricer *p, uint64_t elements, gw_why *why)
{
    const uint32_t n = p->front.n;
    for (uint32_t i = 0; i < n; i++) {
        const gw_choice c = p->front.choice[i];
        int present = c.coding != GW_CODING_GPU;
        for (uint32_t k = 0; k < n && !present; k++) {
            present = p->front.choice[k].variety == c.variety &&
                      p->front.choice[k].coding == GW_CODING_CPU;
        }
        if (present || coders_of(p, &p->specs[c.spec]).cpu == NULL) {
            continue;
        }
        gw_route twin = c.route;
        for (uint32_t k = 0; k < twin.n_steps; k++) {
            twin.step[k].device = twin.step[k].device != 0 ? GW_DEVICE_CPU : 0;
        }
        if (gw_price_forbidden(p, &twin)) {
            continue;
        }
        const gw_status status = gw_price_one(p, elements, &p->specs[c.spec], &twin, why);
        if (status != GW_OK) {
            return status;
        }
        gw_choice *added = &p->front.choice[p->front.n - 1];
        added->variety = c.variety;
        added->spec = c.spec;
    }
    return GW_OK;
}

static gw_status price_routes(gw_pricer *p, uint64_t elements, uint32_t spec, gw_why *why)
{
    const coders who = spec == 0 ? (coders){NULL, NULL} : coders_of(p, &p->specs[spec]);
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < p->n_skeletons && status == GW_OK; i++) {
        status = price_route(p, elements, spec, i, &who, why);
    }
    return status;
}

static gw_status seal(gw_pricer *p, uint64_t elements, gw_class *out, gw_why *why)
{
    return gw_front_seal(&p->front, elements, out)
               ? GW_OK
               : GW_FAIL(why, GW_ERR_MEMORY, "no memory for the choices of %llu elements",
                         (unsigned long long)elements);
}

gw_status gw_price_spec(gw_pricer *p, uint64_t elements, uint32_t spec, gw_class *out, gw_why *why)
{
    gw_front_begin(&p->front, &p->rules);
    p->front.hops_count = 1;
    gw_status status = price_routes(p, elements, spec, why);
    if (status == GW_OK && p->devices == (GW_DEVICE_CPU | GW_DEVICE_GPU)) {
        status = add_twins(p, elements, why);
    }
    p->front.hops_count = 0;
    return status == GW_OK ? seal(p, elements, out, why) : status;
}

gw_status gw_price_class(gw_pricer *p, uint64_t elements, gw_class *out, gw_why *why)
{
    gw_status status = GW_OK;
    const uint32_t n_specs = p->plain ? 1 : p->n_specs;
    gw_front_begin(&p->front, &p->rules);
    for (uint32_t spec = 0; spec < n_specs && status == GW_OK; spec++) {
        status = price_routes(p, elements, spec, why);
    }
    if (status == GW_OK && p->devices == (GW_DEVICE_CPU | GW_DEVICE_GPU)) {
        status = add_twins(p, elements, why);
    }
    if (status == GW_OK && p->front.n == 0) {
        return GW_FAIL(why, GW_ERR_UNSUPPORTED, "%llu elements: every route is forbidden",
                       (unsigned long long)elements);
    }
    return status == GW_OK ? seal(p, elements, out, why) : status;
}

/* ---- one ---- */

static uint32_t devices_on(const gw_route *route)
{
    uint32_t on_cpu = 0, coding = 0;
    for (uint32_t i = 0; i < route->n_steps; i++) {
        if (route->step[i].device != 0) {
            on_cpu |= (uint32_t)(route->step[i].device == GW_DEVICE_CPU) << coding++;
        }
    }
    return on_cpu;
}

gw_status gw_price_one(gw_pricer *p, uint64_t elements, const gw_params *params,
                       const gw_route *route, gw_why *why)
{
    const uint32_t on_cpu = devices_on(route);
    skeleton s;
    assembly a;
    gw_status status = compile(p, elements, params, route, &s, why);
    if (status != GW_OK) {
        return status;
    }
    const coders who = s.codings != 0 ? coders_of(p, params) : (coders){NULL, NULL};
    if ((on_cpu != 0 && who.cpu == NULL) || (on_cpu != (1U << s.codings) - 1 && who.gpu == NULL)) {
        return GW_FAIL(why, GW_ERR_UNKNOWN, "the cluster does not say what %s costs on the %s",
                       gw_codec_name(params->codec),
                       on_cpu != 0 && who.cpu == NULL ? "cpu" : "gpu");
    }
    assemble(p, &s, &who, on_cpu, &a);
    const gw_choice like = {.route = *route,
                            .hops = (uint8_t)gw_route_encodes(route),
                            .coding = (uint8_t)coding_of(s.codings, on_cpu)};
    return gw_front_offer(&p->front, &like, a.op, a.n, 1)
               ? GW_OK
               : GW_FAIL(why, GW_ERR_MEMORY, "no memory for a choice");
}

/* ---- the pricer ---- */

gw_status gw_pricer_create(gw_pricer *p, const gw_cluster *cluster, gw_dtype dtype, gw_why *why)
{
    size_t plain = 0, additive = 0;
    *p = (gw_pricer){.cluster = cluster,
                     .devices = GW_DEVICE_CPU,
                     .width = (uint32_t)gw_dtype_size(dtype != 0 ? dtype : GW_F32)};
    p->devices |= cluster->has_gpu ? (uint32_t)GW_DEVICE_GPU : 0;
    p->rules.busy[GW_TRACK_INTRA] = gw_ticks_of(cluster->intra.busy);
    p->rules.busy[GW_TRACK_NIC] = gw_ticks_of(cluster->inter.busy);
    p->rules.core_share[GW_TRACK_INTRA] = cluster->intra.cpu_share;
    p->rules.core_share[GW_TRACK_NIC] = cluster->inter.cpu_share;
    p->rules.cpu_workers = cluster->cpu_workers > 0 ? cluster->cpu_workers : 1;
    gw_status status = gw_route_list(GW_DEVICE_CPU, 0, NULL, 0, &plain, why);
    status = status == GW_OK ? gw_route_list(GW_DEVICE_CPU, 1, NULL, 0, &additive, why) : status;
    if (status != GW_OK) {
        return status;
    }
    p->skeleton = calloc(plain + additive, sizeof *p->skeleton);
    if (p->skeleton == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for the routes");
    }
    p->n_skeletons = (uint32_t)(plain + additive);
    (void)gw_route_list(GW_DEVICE_CPU, 0, p->skeleton, plain, &plain, why);
    return gw_route_list(GW_DEVICE_CPU, 1, p->skeleton + plain, additive, &additive, why);
}

void gw_pricer_destroy(gw_pricer *p)
{
    free(p->skeleton);
    gw_front_free(&p->front);
    *p = (gw_pricer){0};
}

gw_status gw_pricer_check(const gw_pricer *p, gw_why *why)
{
    if (p->devices == 0) {
        return GW_FAIL(why, GW_ERR_ARG, "no device may code: the cluster has %s",
                       p->cluster->has_gpu ? "cpu and gpu" : "cpu");
    }
    for (uint32_t i = 1; i < p->n_specs; i++) {
        const gw_params *spec = &p->specs[i];
        const gw_status status = gw_params_check(spec, why);
        if (status != GW_OK) {
            return status;
        }
        const coders who = coders_of(p, spec);
        if (who.cpu == NULL && who.gpu == NULL) {
            return GW_FAIL(why, GW_ERR_UNKNOWN,
                           "cluster '%.80s' does not say what %s costs on a device that may code",
                           p->cluster->name, gw_codec_name(spec->codec));
        }
    }
    return GW_OK;
}
