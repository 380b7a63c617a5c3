#include "plan/cost.h"

#include "base/why.h"

#include <math.h>

static const double LONGEST = 1e6; /* seconds, of anything: far below what ticks can hold */

gw_ticks gw_ticks_of(double seconds)
{
    return (gw_ticks)llround((seconds < LONGEST ? seconds : LONGEST) * 1e9);
}

/* ---- curves ---- */

double gw_curve_at(const gw_cost_curve *curve, double bytes, double sigma)
{
    const gw_cost_point *p = curve->point;
    const uint32_t n = curve->n;
    if (bytes <= p[0].bytes) {
        return p[0].seconds + sigma * p[0].deviation;
    }
    if (n == 1) {
        return (p[0].seconds + sigma * p[0].deviation) * (bytes / p[0].bytes);
    }
    uint32_t i = 1;
    while (i + 1 < n && bytes > p[i].bytes) {
        i++;
    }
    const double share = (bytes - p[i - 1].bytes) / (p[i].bytes - p[i - 1].bytes);
    const double before = p[i - 1].seconds + sigma * p[i - 1].deviation;
    const double after = p[i].seconds + sigma * p[i].deviation;
    const double seconds = before + share * (after - before);
    return share > 1 && seconds < after ? after : seconds; /* never less for more */
}

static gw_status check_curve(const gw_cost_curve *curve, const char *what, gw_why *why)
{
    if (curve->n == 0 || curve->n > GW_COST_POINTS) {
        return GW_FAIL(why, GW_ERR_RANGE, "%s: %u points; 1 to %d", what, curve->n, GW_COST_POINTS);
    }
    for (uint32_t i = 0; i < curve->n; i++) {
        const gw_cost_point *p = &curve->point[i];
        const int fine = isfinite(p->bytes) && p->bytes > 0 && isfinite(p->seconds) &&
                         p->seconds >= 0 && p->seconds <= LONGEST && isfinite(p->deviation) &&
                         p->deviation >= 0 && p->deviation <= LONGEST;
        if (!fine) {
            return GW_FAIL(why, GW_ERR_RANGE,
                           "%s: point %u is negative, zero bytes or not a number", what, i);
        }
        if (i > 0 && p->bytes <= p[-1].bytes) {
            return GW_FAIL(why, GW_ERR_RANGE, "%s: point %u: bytes do not ascend", what, i);
        }
    }
    return GW_OK;
}

/* ---- the cluster ---- */

static gw_status check_link(const gw_cluster_link *link, const char *what, gw_why *why)
{
    if (!(link->rate > 0) || !isfinite(link->rate)) {
        return GW_FAIL(why, GW_ERR_RANGE, "%s: a link needs a rate above 0", what);
    }
    if (!(link->latency >= 0 && link->latency <= LONGEST) ||
        !(link->message >= 0 && link->message <= LONGEST)) {
        return GW_FAIL(why, GW_ERR_RANGE, "%s: negative or endless latency", what);
    }
    if (!(link->spread >= 0 && link->spread <= 10)) {
        return GW_FAIL(why, GW_ERR_RANGE, "%s: a spread from 0 to 10", what);
    }
    if (!(link->busy >= 0 && link->busy <= LONGEST)) {
        return GW_FAIL(why, GW_ERR_RANGE, "%s: negative or endless busy", what);
    }
    if (!(link->cpu_share >= 0 && link->cpu_share <= 1)) {
        return GW_FAIL(why, GW_ERR_RANGE, "%s: a cpu_share from 0 to 1", what);
    }
    return GW_OK;
}

gw_status gw_cluster_check(const gw_cluster *c, gw_why *why)
{
    const uint64_t ranks = (uint64_t)c->nodes * c->ranks_per_node;
    gw_status status = GW_OK;
    if (ranks == 0 || ranks > GW_ROUTE_MAX_RANKS) {
        return GW_FAIL(why, GW_ERR_RANGE, "%u nodes of %u ranks: 1 to %d ranks together", c->nodes,
                       c->ranks_per_node, GW_ROUTE_MAX_RANKS);
    }
    if (c->cpu_workers > GW_TIMELINE_MAX_WORKERS || (c->cpu_workers == 0 && c->has_gpu)) {
        return GW_FAIL(why, GW_ERR_RANGE, "%u CPU workers: %d to %d", c->cpu_workers,
                       c->has_gpu != 0, GW_TIMELINE_MAX_WORKERS);
    }
    status = c->ranks_per_node > 1 ? check_link(&c->intra, "intra", why) : GW_OK;
    status = status == GW_OK && c->nodes > 1 ? check_link(&c->inter, "inter", why) : status;
    status = status == GW_OK && c->has_gpu ? check_link(&c->copy, "copy", why) : status;
    for (size_t i = 0; i < c->n_codecs && status == GW_OK; i++) {
        status = gw_params_check(&c->codecs[i].params, why);
        status = status == GW_OK ? check_curve(&c->codecs[i].encode, "encode", why) : status;
        status = status == GW_OK ? check_curve(&c->codecs[i].decode, "decode", why) : status;
    }
    for (size_t i = 0; i < c->n_collectives && status == GW_OK; i++) {
        status = check_curve(&c->collectives[i].curve, "collective", why);
    }
    return status;
}

/* Settings that are the same. */
static unsigned alike(const gw_params *a, const gw_params *b)
{
    unsigned n = 0;
    for (unsigned i = 0; i < GW_PARAMS_MAX; i++) {
        n += a->value[i] == b->value[i];
    }
    return n;
}

const gw_codec_cost *gw_cluster_codec(const gw_cluster *cluster, const gw_params *params,
                                      gw_device device)
{
    const gw_codec_cost *similar = NULL;
    for (size_t i = 0; i < cluster->n_codecs; i++) {
        const gw_codec_cost *c = &cluster->codecs[i];
        if (c->device != device || c->params.codec != params->codec) {
            continue;
        }
        if (similar == NULL || alike(&c->params, params) > alike(&similar->params, params)) {
            similar = c;
        }
    }
    return similar;
}

/* ---- collectives ---- */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Bytes through a link that the node's ranks share, or of the busiest rank. */
static double bytes_of(const gw_cluster *c, const gw_move *root, const gw_move *other, int link,
                       int shared)
{
    double sent = (double)root->sent[link], received = (double)root->received[link];
    if (shared && other != NULL && other->runs) {
        sent += (c->ranks_per_node - 1) * (double)other->sent[link];
        received += (c->ranks_per_node - 1) * (double)other->received[link];
    } else if (!shared && other != NULL && other->runs) {
        sent = larger(sent, (double)other->sent[link]);
        received = larger(received, (double)other->received[link]);
    }
    return larger(sent, received);
}

static double link_seconds(const gw_cluster_link *link, double phases, double messages,
                           double bytes, double sigma)
{
    return phases * (link->latency + messages * link->message) +
           bytes / link->rate * (1 + sigma * link->spread);
}

/* Of nodes of one rank "between nodes" is all there is, of one node "inside". */
static int same_level(const gw_cluster *c, gw_level a, gw_level b)
{
    return a == b || (c->ranks_per_node == 1 && a != GW_LEVEL_INTRA && b != GW_LEVEL_INTRA) ||
           (c->nodes == 1 && a != GW_LEVEL_INTER && b != GW_LEVEL_INTER);
}

static const gw_cost_curve *measured(const gw_cluster *c, const gw_route_step *step)
{
    for (size_t i = 0; i < c->n_collectives; i++) {
        if (c->collectives[i].op == step->op &&
            same_level(c, c->collectives[i].level, (gw_level)step->level)) {
            return &c->collectives[i].curve;
        }
    }
    return NULL;
}

double gw_collective_phases(const gw_move *move)
{
    return move->step.op == GW_OP_ALLREDUCE || move->step.op == GW_OP_REDUCE ? 2 : 1;
}

double gw_collective_seconds(const gw_cluster *c, const gw_move *root, const gw_move *other,
                             double sigma, gw_track *track)
{
    const gw_route_step *step = &root->step;
    const uint32_t members = root->group.size;
    const uint32_t near = step->level == GW_LEVEL_INTER ? 0 : c->ranks_per_node - 1;
    const uint32_t far = members - 1 - near;
    const double phases = gw_collective_phases(root);
    *track = far == 0 ? GW_TRACK_INTRA : GW_TRACK_NIC;
    if (members < 2 || !root->runs) {
        return 0;
    }
    const double near_bytes = bytes_of(c, root, other, GW_LINK_INTRA, c->intra.shared);
    const double far_bytes = bytes_of(c, root, other, GW_LINK_INTER, 1);
    const gw_cost_curve *curve = measured(c, step);
    if (curve != NULL) {
        const double busy =
            bytes_of(c, root, other, GW_LINK_INTRA, 0) + bytes_of(c, root, other, GW_LINK_INTER, 0);
        return gw_curve_at(curve, busy, sigma);
    }
    const double inside = near > 0 ? link_seconds(&c->intra, phases, near, near_bytes, sigma) : 0;
    const double outside = far > 0 ? link_seconds(&c->inter, phases, far, far_bytes, sigma) : 0;
    return larger(inside, outside);
}

double gw_lengths_seconds(const gw_cluster *c, const gw_move *root, const gw_move *other,
                          double sigma)
{
    gw_move words = *root, others = other != NULL ? *other : *root;
    gw_track track;
    for (unsigned link = 0; link < GW_LINKS; link++) {
        words.sent[link] = words.received[link] = 0;
        others.sent[link] = others.received[link] = 0;
    }
    return gw_collective_seconds(c, &words, other != NULL ? &others : NULL, sigma, &track);
}

double gw_copy_seconds(const gw_cluster *c, double bytes, double sigma)
{
    return c->copy.latency + bytes / c->copy.rate * (1 + sigma * c->copy.spread);
}
