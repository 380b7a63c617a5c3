/* Which levels a tensor could be sent with, and what each puts on the wire. */
#include "adapt/levels.h"

#include "base/why.h"

#include <math.h>
#include <string.h>

static int is_named(const gw_params *p, const char *name)
{
    return p->codec != NULL && strcmp(gw_codec_name(p->codec), name) == 0;
}

size_t gw_level_param(const gw_params *p, const char *name)
{
    size_t i = 0;
    while (i < gw_codec_param_count(p->codec) &&
           strcmp(gw_codec_param(p->codec, i)->name, name) != 0) {
        i++;
    }
    return i; /* every codec below has it */
}

gw_level_kind gw_level_kind_of(const gw_params *p)
{
    return is_named(p, "cast")                               ? GW_LEVEL_CAST
           : is_named(p, "natural")                          ? GW_LEVEL_NATURAL
           : is_named(p, "dither") || is_named(p, "ndither") ? GW_LEVEL_BITS
           : is_named(p, "topk")                             ? GW_LEVEL_DENSITY
           : is_named(p, "lowrank")                          ? GW_LEVEL_RANK
                                                             : GW_LEVEL_NONE;
}

gw_level_matrix gw_level_matrix_of(const gw_params *p, uint64_t elements)
{
    const uint64_t cols = (uint64_t)p->value[gw_level_param(p, "cols")];
    gw_level_matrix m = {.rank = (uint64_t)p->value[gw_level_param(p, "rank")], .cols = cols};
    m.rows = cols != 0 ? elements / cols : 0;
    return m;
}

/* One tensor's list in the making. */
typedef struct list {
    gw_params *levels;
    size_t n, capacity;
    uint64_t elements, raw; /* bytes of the tensor as it is */
} list;

/* Adds a level unless it is there already or does not beat the tensor as it is. *at is where it stands, or 0. */
static gw_status add(list *l, const gw_params *level, uint32_t *at, gw_why *why)
{
    size_t bytes = 0;
    const gw_status status = gw_params_check(level, why);
    *at = 0;
    if (status != GW_OK) {
        return status;
    }
    if (gw_payload_bound(level, (size_t)l->elements, &bytes) != GW_OK || bytes >= l->raw) {
        return GW_OK;
    }
    for (size_t i = 0; i < l->n; i++) {
        if (gw_params_equal(&l->levels[i], level)) {
            *at = (uint32_t)i;
            return GW_OK;
        }
    }
    if (l->n == l->capacity) {
        return GW_FAIL(why, GW_ERR_CAPACITY, "adapt: more than %zu levels for one tensor",
                       l->capacity);
    }
    *at = (uint32_t)l->n;
    l->levels[l->n++] = *level;
    return GW_OK;
}

/* Three digits, so that a spec string says all of it. */
static double rounded(double density)
{
    double power = 1;
    while (density * power < 100) {
        power *= 10;
    }
    return rint(density * power) / power;
}

/* A tenth to 50 times the given one, sixteen to a decade. */
static gw_status add_densities(list *l, const gw_params *family, gw_why *why)
{
    static const uint16_t steps[16] = {1000, 1155, 1334, 1540, 1778, 2054, 2371, 2738,
                                       3162, 3652, 4217, 4870, 5623, 6494, 7499, 8660};
    const size_t at = gw_level_param(family, "density");
    const gw_param_info *info = gw_codec_param(family->codec, at);
    const double given = family->value[at];
    uint32_t unused;
    gw_status status = GW_OK;
    gw_params p = *family;
    for (int j = -16; j <= 28 && status == GW_OK; j++) { /* the last: 50 */
        const double decade = j < 0 ? 0.1 : j < 16 ? 1 : 10;
        const double factor = j < 28 ? decade * steps[(j + 16) % 16] / 1000 : 50;
        const double density = j == 0 ? given : rounded(given * factor);
        if (density >= info->min && density <= info->max) {
            p.value[at] = density;
            status = add(l, &p, &unused, why);
        }
    }
    return status;
}

static gw_status add_whole(list *l, const gw_params *family, size_t at, uint64_t least,
                           uint64_t most, gw_why *why)
{
    gw_status status = GW_OK;
    gw_params p = *family;
    uint32_t unused;
    for (uint64_t v = least; v <= most && status == GW_OK; v++) {
        p.value[at] = (double)v;
        status = add(l, &p, &unused, why);
    }
    return status;
}

/* A quarter to 4 times the given rank, up to the matrix's own. */
static gw_status add_ranks(list *l, const gw_params *family, gw_why *why)
{
    const gw_level_matrix m = gw_level_matrix_of(family, l->elements);
    const uint64_t own = m.rows < m.cols ? m.rows : m.cols;
    const size_t at = gw_level_param(family, "rank");
    const uint64_t limit = (uint64_t)gw_codec_param(family->codec, at)->max;
    const uint64_t most = 4 * m.rank < own ? 4 * m.rank : own;
    return add_whole(l, family, at, m.rank / 4 > 1 ? m.rank / 4 : 1, most < limit ? most : limit,
                     why);
}

/* Whether low rank is worth it for this tensor, at the given rank. */
static int is_worth_it(const gw_params *family, uint64_t elements, double min_ratio)
{
    const gw_level_matrix m = gw_level_matrix_of(family, elements);
    const uint64_t own = m.rows < m.cols ? m.rows : m.cols;
    const uint64_t factors = (m.rows + m.cols) * (own < m.rank ? own : m.rank);
    return (min_ratio > 1 ? min_ratio : 1) * (double)factors < (double)elements;
}

static gw_status add_family(list *l, const gw_params *family, double min_ratio, gw_why *why)
{
    uint32_t unused;
    switch (gw_level_kind_of(family)) {
    case GW_LEVEL_BITS:
        return add_whole(l, family, gw_level_param(family, "bits"), 2, 8, why);
    case GW_LEVEL_DENSITY:
        return add_densities(l, family, why);
    case GW_LEVEL_RANK:
        return is_worth_it(family, l->elements, min_ratio) ? add_ranks(l, family, why) : GW_OK;
    default:
        return add(l, family, &unused, why);
    }
}

/* `dtype` sent as it is. */
static gw_status lossless(gw_dtype dtype, gw_params *out, gw_why *why)
{
    const gw_status status = gw_params_init(out, gw_codec_find("cast"));
    if (status != GW_OK || gw_dtype_size(dtype) == 0) {
        return GW_FAIL(why, GW_ERR_UNSUPPORTED,
                       "adapt: no codec 'cast' in this build, or an unknown dtype");
    }
    out->value[gw_level_param(out, "to")] = (double)dtype;
    return GW_OK;
}

/* Checks a family for this tensor, and tells it the shape. */
static gw_status fit(const gw_params *family, gw_dtype dtype, const uint64_t *dims, size_t n_dims,
                     gw_params *out, gw_why *why)
{
    gw_status status = gw_params_check(family, why);
    if (status != GW_OK) {
        return status;
    }
    *out = *family;
    const gw_level_kind kind = gw_level_kind_of(out);
    if (kind == GW_LEVEL_NONE ||
        (kind == GW_LEVEL_CAST && out->value[gw_level_param(out, "to")] != GW_F32 &&
         out->value[gw_level_param(out, "to")] != (double)dtype)) {
        return GW_FAIL(why, GW_ERR_UNSUPPORTED,
                       "adapt: '%s' has no table of errors (dither, ndither, natural, topk, "
                       "lowrank, lossless cast have)",
                       gw_codec_name(out->codec));
    }
    if (kind == GW_LEVEL_RANK) {
        out->value[gw_level_param(out, "cols")] = 0; /* the tensor's own shape */
    }
    return gw_params_fit_shape(out, dims, n_dims);
}

static gw_status measure(const uint64_t *dims, size_t n_dims, gw_dtype dtype, list *l, gw_why *why)
{
    l->elements = 1;
    for (size_t i = 0; i < n_dims; i++) {
        if (dims[i] != 0 && l->elements > ((uint64_t)1 << 44) / dims[i]) {
            return GW_FAIL(why, GW_ERR_RANGE, "adapt: a tensor of more than 2^44 elements");
        }
        l->elements *= dims[i];
    }
    l->raw = l->elements * gw_dtype_size(dtype);
    return GW_OK;
}

gw_status gw_adapt_levels(const gw_adapt_rules *rules, gw_dtype dtype, const uint64_t *dims,
                          size_t n_dims, gw_params *levels, size_t capacity, size_t *n,
                          uint32_t *uniform, gw_why *why)
{
    list l = {.levels = levels, .capacity = capacity};
    if (rules == NULL || (dims == NULL && n_dims != 0) || levels == NULL || capacity == 0 ||
        n == NULL || uniform == NULL || (rules->families == NULL && rules->n_families != 0) ||
        !(rules->min_ratio >= 0)) {
        return GW_FAIL(why, GW_ERR_ARG, "adapt: an argument is missing or wrong");
    }
    gw_params p;
    uint32_t at = 0;
    gw_status status = lossless(dtype, &levels[l.n++], why);
    status = status == GW_OK ? measure(dims, n_dims, dtype, &l, why) : status;
    const int as_it_is = l.elements < rules->min_elements || (rules->keep_vectors && n_dims < 2);
    for (size_t i = 0; i < rules->n_families && status == GW_OK; i++) {
        status = fit(&rules->families[i], dtype, dims, n_dims, &p, why);
        status = status == GW_OK && !as_it_is ? add_family(&l, &p, rules->min_ratio, why) : status;
    }
    status = status == GW_OK ? fit(&rules->uniform, dtype, dims, n_dims, &p, why) : status;
    if (status == GW_OK && !as_it_is &&
        (gw_level_kind_of(&p) != GW_LEVEL_RANK || is_worth_it(&p, l.elements, rules->min_ratio))) {
        status = add(&l, &p, &at, why);
    }
    if (status == GW_OK) {
        *n = l.n;
        *uniform = at;
    }
    return status;
}

gw_status gw_adapt_bytes(const gw_params *levels, size_t n, uint64_t elements, uint64_t header,
                         uint64_t *bytes, gw_why *why)
{
    if ((levels == NULL || bytes == NULL) && n != 0) {
        return GW_FAIL(why, GW_ERR_ARG, "adapt: no levels, or no room for their bytes");
    }
    for (size_t i = 0; i < n; i++) {
        size_t payload = 0;
        const gw_status status = gw_payload_bound(&levels[i], (size_t)elements, &payload);
        if (status != GW_OK) {
            return GW_FAIL(why, status, "adapt: level %zu for %llu elements: %s", i,
                           (unsigned long long)elements, gw_status_string(status));
        }
        bytes[i] = payload + header;
    }
    return GW_OK;
}

int gw_adapt_is_critical(double norm_before, double norm_now, double eta)
{
    const double change = norm_before == 0 ? 9 : fabs(norm_before - norm_now) / norm_before;
    return !(change < eta);
}
