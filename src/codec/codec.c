/* The verb encode, and what decode has in common with it. Everything that is the same for all codecs stands here, in the order a gradient
 * meets it: check the arguments, cut the tensor at grain borders into one part a thread, widen fp16
 * and bf16 block by block into a scratch that stays in cache, and call the codec. */
#include "base/pool.h"
#include "base/random.h"
#include "codec/codec_call.h"

/* Below this many elements a thread, waking it costs more than it brings; a codec that selects wakes several times. */
enum { ELEMENTS_PER_THREAD = 32 * 1024, SELECTED_PER_THREAD = 128 * 1024 };
gw_status gw_payload_bound(const gw_params *params, size_t count, size_t *bytes)
{
    GW_REQUIRE(NULL, bytes != NULL, "no place for the size");
    const gw_status status = gw_params_check(params, NULL);
    if (status != GW_OK) {
        return status;
    }
    if (count > SIZE_MAX / 8) { /* no payload is larger than 8 bytes an element */
        return GW_ERR_RANGE;
    }
    *bytes = (size_t)params->codec->bytes(params, count);
    return GW_OK;
}

void gw_call_cut(gw_arena *arena, const gw_params *params, const gw_call_needs *n, gw_call *c)
{
    const gw_codec *codec = params->codec;
    const unsigned parts = codec->grain != NULL ? n->parts : 1;
    const int widens = n->dtype != GW_F32, spans = codec->grain != NULL;
    gw_coding_part *table = &c->only;
    if (parts > 1) {
        table = gw_arena_take(arena, parts, sizeof(gw_coding_part));
    }
    for (unsigned i = 0; i < parts; i++) {
        float *scratch = NULL, *decoded = NULL;
        if (widens || (spans && n->feedback)) {
            scratch = gw_arena_take(arena, GW_CODING_SCRATCH, sizeof(float));
        }
        if (spans && n->feedback) {
            decoded = gw_arena_take(arena, GW_CODING_SCRATCH, sizeof(float));
        }
        if (table != NULL && !arena->failed) {
            table[i] = (gw_coding_part){.scratch = scratch, .decoded = decoded};
        }
    }
    if (!spans && n->encoding) {
        c->selecting = gw_arena_take(arena, codec->select_bytes(params, n->count, n->parts), 1);
    }
    c->parts = table;
}

size_t gw_call_range(const gw_call *c, unsigned index, size_t *begin)
{
    *begin = index * c->per_part;
    const size_t left = c->count - *begin;
    return left < c->per_part ? left : c->per_part;
}

static void encode_part(void *arg, unsigned index)
{
    const gw_call *c = arg;
    const gw_params *params = c->job.params;
    gw_coding_part *mine = &c->parts[index];
    size_t begin;
    const size_t n = gw_call_range(c, index, &begin);
    const uint32_t caller = gw_fp_enter();
    if (mine->scratch == NULL) {
        const float *x = (const float *)(const void *)c->in + begin;
        params->codec->encode(&c->job, x, n, c->first + begin,
                              c->payload_out + params->codec->bytes(params, begin), &mine->report);
    } else {
        gw_call_encode_blocks(c, mine, begin, n);
    }
    gw_stores_done();
    gw_fp_leave(caller);
}

gw_status gw_codec_choose_isa(const gw_codec *codec, const gw_exec *exec, gw_isa *out)
{
    gw_isa isa = exec != NULL ? exec->isa : GW_ISA_AUTO;
    if (isa < GW_ISA_AUTO || isa >= GW_ISA_COUNT) {
        return GW_ERR_ARG;
    }
    if (isa == GW_ISA_AUTO) {
        isa = gw_isa_best();
        while (codec->kernels[isa] == NULL) { /* the scalar variant always exists */
            isa = (gw_isa)(isa - 1);
        }
    } else if (codec->kernels[isa] == NULL || !gw_isa_runs_here(isa)) {
        return GW_ERR_UNSUPPORTED;
    }
    *out = isa;
    return GW_OK;
}

unsigned gw_coding_parts(const gw_coding *job, uint64_t count)
{
    const uint64_t most = count / SELECTED_PER_THREAD, threads = gw_pool_threads(job->pool);
    return (unsigned)(most < 1 ? 1 : most < threads ? most : threads);
}

gw_status gw_call_prepare(gw_call *c, const gw_params *params, const gw_exec *exec,
                          const gw_tensor *tensor, int encoding, unsigned *parts)
{
    const gw_exec plain = {0};
    exec = exec != NULL ? exec : &plain;
    gw_status status = gw_params_check(params, NULL);
    if (status != GW_OK) {
        return status;
    }
    if (tensor == NULL || gw_dtype_size(tensor->dtype) == 0 || tensor->count > SIZE_MAX / 8 ||
        (tensor->data == NULL && tensor->count != 0)) {
        return GW_ERR_ARG;
    }
    gw_isa isa = GW_ISA_AUTO;
    status = gw_codec_choose_isa(params->codec, exec, &isa);
    if (status != GW_OK) {
        return status;
    }
    c->job.params = params;
    c->job.kernels = params->codec->kernels[isa];
    c->job.dtype = tensor->dtype;
    c->job.pool = exec->pool;
    c->convert = gw_convert_for(isa);
    c->count = tensor->count;
    gw_call_needs n = {tensor->dtype, tensor->count, encoding, c->residual != NULL, 1};
    if (params->codec->grain != NULL) {
        const size_t grain = params->codec->grain(params);
        const size_t grains = (size_t)gw_ceil_div(tensor->count, grain);
        unsigned wanted = gw_pool_threads(exec->pool);
        while (wanted > 1 && tensor->count / wanted < ELEMENTS_PER_THREAD) {
            wanted--;
        }
        c->per_part = (size_t)gw_ceil_div(grains, wanted) * grain;
        n.parts = tensor->count == 0 ? 0 : (unsigned)gw_ceil_div(tensor->count, c->per_part);
    } else {
        n.parts = gw_coding_parts(&c->job, tensor->count);
    }
    gw_arena arena = gw_arena_over(exec->workspace);
    gw_call_cut(&arena, params, &n, c);
    *parts = n.parts;
    return arena.failed ? GW_ERR_WORKSPACE : GW_OK;
}

/* Parts of a codec's own work. */
typedef struct share {
    void (*work)(void *arg, unsigned part);
    void *arg;
} share;

static void run_share(void *arg, unsigned index)
{
    const share *s = arg;
    const uint32_t caller = gw_fp_enter();
    s->work(s->arg, index);
    gw_stores_done();
    gw_fp_leave(caller);
}

void gw_coding_run(const gw_coding *job, void (*work)(void *arg, unsigned part), void *arg,
                   unsigned parts)
{
    share s = {work, arg};
    gw_pool_run(job->pool, run_share, &s, parts);
}

gw_status gw_encode(const gw_params *params, const gw_exec *exec, const gw_stream *stream,
                    const gw_tensor *in, void *payload, size_t capacity, size_t *written,
                    gw_report *report)
{
    return gw_encode_feedback(params, exec, stream, in, NULL, NULL, payload, capacity, written,
                              report);
}

gw_status gw_encode_feedback(const gw_params *params, const gw_exec *exec, const gw_stream *stream,
                             const gw_tensor *in, const float *residual, float *residual_after,
                             void *payload, size_t capacity, size_t *written, gw_report *report)
{
    gw_call c = {.residual = residual, .residual_after = residual_after};
    unsigned parts = 0;
    gw_status status = gw_call_prepare(&c, params, exec, in, 1, &parts);
    if (status != GW_OK) {
        return status;
    }
    const size_t bytes = (size_t)params->codec->bytes(params, in->count);
    if (written == NULL || (payload == NULL && bytes != 0) ||
        (residual == NULL) != (residual_after == NULL) ||
        (residual != NULL && residual == residual_after)) {
        return GW_ERR_ARG;
    }
    if (stream == NULL && (params->codec->flags(params) & GW_CODEC_STOCHASTIC)) {
        return GW_ERR_ARG; /* a default stream would give every rank the same numbers */
    }
    if (stream != NULL && stream->first != 0 &&
        (params->codec->grain == NULL || stream->first % params->codec->grain(params) != 0)) {
        return GW_ERR_RANGE;
    }
    if (params->codec->grain == NULL && in->count > UINT32_MAX) {
        return GW_ERR_UNSUPPORTED; /* indices of selected elements have 32 bits */
    }
    if (capacity < bytes) {
        return GW_ERR_CAPACITY;
    }
    c.job.random_key = stream != NULL ? gw_random_key(stream) : 0;
    c.first = stream != NULL ? stream->first : 0;
    c.in = in->data;
    c.payload_out = payload;
    c.job.stream = stream;
    gw_report total = {0};
    size_t made = bytes;
    if (params->codec->grain == NULL) {
        made = gw_call_encode_selected(&c, in, &total);
    } else {
        gw_pool_run(exec != NULL ? exec->pool : NULL, encode_part, &c, parts);
        for (unsigned i = 0; i < parts; i++) {
            total.non_finite += c.parts[i].report.non_finite;
            total.overflowed += c.parts[i].report.overflowed;
        }
    }
    if (report != NULL) {
        *report = total;
    }
    *written = made;
    return GW_OK;
}

gw_status gw_payload_check(const gw_params *params, const void *payload, size_t size, size_t count,
                           gw_why *why)
{
    const size_t bytes = (size_t)params->codec->bytes(params, count);
    const int fixed = (params->codec->flags(params) & GW_CODEC_FIXED_SIZE) != 0;
    if (payload == NULL && bytes != 0) {
        return gw_fail(why, GW_ERR_ARG, "%s", gw_status_string(GW_ERR_ARG));
    }
    if (size > bytes || (fixed && size < bytes)) {
        return gw_fail(why, size < bytes ? GW_ERR_TRUNCATED : GW_ERR_CORRUPT,
                       "%s payload of %zu elements has %zu bytes, not %s%zu", params->codec->name,
                       count, size, fixed ? "" : "up to ", bytes);
    }
    return params->codec->validate != NULL
               ? params->codec->validate(params, payload, size, count, why)
               : GW_OK;
}
