/* The rounds of a codec that has them: checks, the numbers as fp32, and the codec's own step. */
#include "base/arena.h"
#include "codec/source.h"

#include <gradwire/rounds.h>

#include <string.h>

/* Outputs that are rounded on their way go through a scratch of so many elements: a few rows of a matrix, which
 * stay in the second-level cache. */
enum { SCRATCH = 4 * GW_SOURCE_BLOCK };
/* Elements from which r′ and a mean are written around the cache: 4 MiB. */
enum { PAST_CACHE = 1 << 20 };

/* One call, resolved. */
typedef struct turn {
    gw_coding job;
    gw_source source;
    void *own; /* the codec's workspace */
    gw_isa isa;
} turn;

static gw_status known(const gw_params *params, size_t count)
{
    const gw_status status = gw_params_check(params, NULL);
    if (status != GW_OK) {
        return status;
    }
    return params->codec->rounds == NULL ? GW_ERR_UNSUPPORTED
           : count > UINT32_MAX          ? GW_ERR_UNSUPPORTED
                                         : GW_OK;
}

gw_status gw_rounds_elements(const gw_params *params, size_t count, unsigned round,
                             size_t *elements)
{
    const gw_status status = known(params, count);
    if (status == GW_OK) {
        *elements = (size_t)params->codec->rounds->elements(params, count, round);
    }
    return status;
}

gw_status gw_rounds_state(const gw_params *params, size_t count, size_t *floats)
{
    const gw_status status = known(params, count);
    if (status == GW_OK) {
        *floats = (size_t)params->codec->rounds->state(params, count);
    }
    return status;
}

gw_status gw_rounds_due(const gw_params *params, size_t count, size_t *floats)
{
    const gw_status status = known(params, count);
    if (status == GW_OK) {
        *floats = (size_t)params->codec->rounds->due(params, count);
    }
    return status;
}

gw_status gw_rounds_shared_state(const gw_params *a, const gw_params *b, size_t count,
                                 size_t *floats)
{
    size_t of_a = 0, of_b = 0;
    gw_status status = gw_rounds_state(a, count, &of_a);
    if (status == GW_OK) {
        status = gw_rounds_state(b, count, &of_b);
    }
    if (status != GW_OK) {
        return status;
    }
    int same = a->codec == b->codec;
    for (size_t i = 0; same && i < gw_codec_param_count(a->codec); i++) {
        same = a->value[i] == b->value[i] || strcmp(gw_codec_param(a->codec, i)->name, "rank") == 0;
    }
    *floats = !same ? 0 : of_a < of_b ? of_a : of_b;
    return GW_OK;
}

static void cut(gw_arena *arena, const gw_params *params, size_t count, turn *t)
{
    t->source.scratch = gw_arena_take(arena, SCRATCH, sizeof(float));
    t->own = gw_arena_take(arena, (size_t)params->codec->rounds->workspace(params, count), 1);
}

gw_status gw_rounds_workspace(const gw_params *params, size_t count, size_t *bytes)
{
    const gw_status status = known(params, count);
    if (status == GW_OK) {
        turn unused = {0};
        gw_arena arena = gw_arena_measuring();
        cut(&arena, params, count, &unused);
        *bytes = gw_arena_need(&arena);
    }
    return status;
}

/* Feedback and state: both of a pair, never the same buffer. */
static int pair_is_wrong(const float *before, const float *after)
{
    return (before == NULL) != (after == NULL) || (before != NULL && before == after);
}

static gw_status prepare(const gw_rounds *x, turn *t)
{
    if (x == NULL || x->in == NULL || x->exec == NULL || x->stream == NULL ||
        gw_dtype_size(x->in->dtype) == 0 || (x->in->data == NULL && x->in->count != 0) ||
        pair_is_wrong(x->residual, x->residual_after) || pair_is_wrong(x->state, x->state_after) ||
        (x->due != NULL && (x->residual == NULL || x->due == x->due_after)) ||
        (x->due_after != NULL && x->residual == NULL)) {
        return GW_ERR_ARG;
    }
    gw_status status = known(x->params, x->in->count);
    if (status != GW_OK) {
        return status;
    }
    if (x->state == NULL && x->params->codec->rounds->state(x->params, x->in->count) != 0) {
        return GW_ERR_ARG;
    }
    status = gw_codec_choose_isa(x->params->codec, x->exec, &t->isa);
    if (status != GW_OK) {
        return status;
    }
    t->job = (gw_coding){.params = x->params,
                         .stream = x->stream,
                         .kernels = x->params->codec->kernels[t->isa],
                         .dtype = x->in->dtype,
                         .pool = x->exec->pool};
    t->source = (gw_source){.convert = gw_convert_for(t->isa),
                            .in = x->in->data,
                            .dtype = x->in->dtype,
                            .count = x->in->count,
                            .residual = x->residual,
                            .after = x->residual_after,
                            .past = x->in->count >= PAST_CACHE};
    gw_arena arena = gw_arena_over(x->exec->workspace);
    cut(&arena, x->params, x->in->count, t);
    return arena.failed ? GW_ERR_WORKSPACE : GW_OK;
}

gw_status gw_rounds_make(const gw_rounds *x, unsigned round, float *own, gw_report *report)
{
    turn t;
    gw_report seen = {0};
    const gw_status status = prepare(x, &t);
    if (status != GW_OK) {
        return status;
    }
    if (own == NULL) {
        return GW_ERR_ARG;
    }
    t.source.summed = round == 0 ? 0 : t.source.count;
    const uint32_t caller = gw_fp_enter();
    x->params->codec->rounds->make(&t.job, &t.source, x->state, x->due, round, t.own, own, &seen);
    gw_stores_done();
    gw_fp_leave(caller);
    if (report != NULL) {
        *report = seen;
    }
    return GW_OK;
}

gw_status gw_rounds_take(const gw_rounds *x, unsigned round, const float *sum)
{
    turn t;
    const gw_status status = prepare(x, &t);
    if (status != GW_OK) {
        return status;
    }
    if (sum == NULL) {
        return GW_ERR_ARG;
    }
    t.source.summed = t.source.count;
    const uint32_t caller = gw_fp_enter();
    x->params->codec->rounds->take(&t.job, &t.source, round, t.own, sum, x->state_after,
                                   x->due_after);
    gw_fp_leave(caller);
    return GW_OK;
}

static int output_is_wrong(const gw_rounds *x, const float *sum, const gw_tensor *out)
{
    return sum == NULL || out == NULL || out->count != x->in->count ||
           (out->data == NULL && out->count != 0) || gw_dtype_size(out->dtype) == 0;
}

gw_status gw_rounds_decode(const gw_rounds *x, const float *sum, gw_apply how, gw_tensor *out)
{
    turn t;
    const gw_status status = prepare(x, &t);
    if (status != GW_OK) {
        return status;
    }
    if (output_is_wrong(x, sum, out) || (how != GW_SET && how != GW_ADD)) {
        return GW_ERR_ARG;
    }
    const gw_codec_rounds *rounds = x->params->codec->rounds;
    const uint32_t caller = gw_fp_enter();
    if (out->dtype == GW_F32) {
        rounds->decode(&t.job, t.own, sum, out->count, 0, out->count, how, out->data);
    }
    for (size_t at = 0; out->dtype != GW_F32 && at < out->count; at += SCRATCH) {
        const size_t n = out->count - at < SCRATCH ? out->count - at : SCRATCH;
        uint8_t *dst = (uint8_t *)out->data + at * 2;
        if (how == GW_ADD) {
            t.source.convert->widen(out->dtype, dst, t.source.scratch, n);
        }
        rounds->decode(&t.job, t.own, sum, out->count, at, n, how, t.source.scratch);
        (void)t.source.convert->narrow(out->dtype, t.source.scratch, dst, n);
    }
    gw_fp_leave(caller);
    return GW_OK;
}

gw_status gw_rounds_mean(const gw_rounds *x, const float *sum, uint32_t divisor, gw_tensor *out,
                         int *finite)
{
    turn t;
    const gw_status status = prepare(x, &t);
    if (status != GW_OK) {
        return status;
    }
    if (output_is_wrong(x, sum, out) || out->dtype != GW_F32 || divisor == 0 || finite == NULL) {
        return GW_ERR_ARG;
    }
    const uint32_t caller = gw_fp_enter();
    *finite = !x->params->codec->rounds->mean(&t.job, t.own, t.source.convert, sum, out->count,
                                              divisor, t.source.past, out->data);
    gw_stores_done();
    gw_fp_leave(caller);
    return GW_OK;
}

gw_status gw_rounds_settle(const gw_params *params, const gw_exec *exec, const float *due,
                           float *residual, size_t count)
{
    gw_status status = known(params, count);
    gw_isa isa;
    if (status == GW_OK) {
        status = gw_codec_choose_isa(params->codec, exec, &isa);
    }
    if (status != GW_OK) {
        return status;
    }
    if (due == NULL || (residual == NULL && count != 0)) {
        return GW_ERR_ARG;
    }
    const gw_coding job = {
        .params = params, .kernels = params->codec->kernels[isa], .dtype = GW_F32};
    const uint32_t caller = gw_fp_enter();
    params->codec->rounds->settle(&job, due, count, residual);
    gw_fp_leave(caller);
    return GW_OK;
}
