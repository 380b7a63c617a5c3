/* The two verbs. Everything that is the same for all codecs stands here, in the order a gradient
 * meets it: check the arguments, cut the tensor at grain borders into one part a thread, widen fp16
 * and bf16 block by block into a scratch that stays in cache, and call the codec. */
#include "base/arena.h"
#include "base/convert.h"
#include "base/pool.h"
#include "base/random.h"
#include "codec/codec_impl.h"

/* Below this many elements a thread, waking it costs more than it brings. */
enum { ELEMENTS_PER_THREAD = 32 * 1024 };
/* Elements of one scratch block, at most 32 KiB of fp32. A multiple of every grain. */
enum { SCRATCH = 8192 };

typedef struct part {
    float *scratch; /* SCRATCH floats; NULL for fp32 tensors */
    gw_report report;
} part;

typedef struct call {
    gw_job job;
    const gw_convert *convert;
    size_t count, per_part; /* elements; per_part is a multiple of the grain */
    uint64_t first;
    part *parts;
    part only; /* the table of a call that needs one part */
    /* encode */
    const uint8_t *in;
    uint8_t *payload_out;
    /* decode */
    const uint8_t *payload_in;
    gw_apply how;
    uint8_t *out;
} call;

uint32_t gw_params_flags(const gw_params *params)
{
    return gw_params_check(params, NULL) == GW_OK ? params->codec->flags(params) : 0;
}

size_t gw_codec_grain(const gw_params *params)
{
    return gw_params_check(params, NULL) == GW_OK ? params->codec->grain(params) : 0;
}

gw_status gw_payload_bound(const gw_params *params, size_t count, size_t *bytes)
{
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

/* Cuts the table of parts and their scratch blocks; used to measure and to cut. */
static void cut_workspace(gw_arena *arena, gw_dtype dtype, unsigned parts, call *c)
{
    part *table = &c->only;
    if (parts > 1) {
        table = gw_arena_take(arena, parts, sizeof(part));
    }
    for (unsigned i = 0; i < parts; i++) {
        float *scratch = dtype != GW_F32 ? gw_arena_take(arena, SCRATCH, sizeof(float)) : NULL;
        if (table != NULL && !arena->failed) {
            table[i] = (part){.scratch = scratch};
        }
    }
    c->parts = table;
}

gw_status gw_codec_workspace(const gw_params *params, gw_dtype dtype, unsigned threads,
                             size_t *bytes)
{
    if (gw_params_check(params, NULL) != GW_OK || gw_dtype_size(dtype) == 0 || threads == 0 ||
        threads > GW_POOL_MAX_THREADS) {
        return GW_ERR_ARG;
    }
    call unused = {0};
    gw_arena arena = gw_arena_measuring();
    cut_workspace(&arena, dtype, threads, &unused);
    *bytes = gw_arena_need(&arena);
    return GW_OK;
}

/* The part's own range of elements. */
static size_t part_range(const call *c, unsigned index, size_t *begin)
{
    *begin = index * c->per_part;
    const size_t left = c->count - *begin;
    return left < c->per_part ? left : c->per_part;
}

static void encode_part(void *arg, unsigned index)
{
    const call *c = arg;
    const gw_params *params = c->job.params;
    part *mine = &c->parts[index];
    size_t begin;
    const size_t n = part_range(c, index, &begin);
    const uint8_t *in = c->in + begin * gw_dtype_size(c->job.dtype);
    uint8_t *payload = c->payload_out + params->codec->bytes(params, begin);
    const uint32_t caller = gw_fp_enter();
    if (mine->scratch == NULL) {
        params->codec->encode(&c->job, (const float *)(const void *)in, n, c->first + begin,
                              payload, &mine->report);
    }
    for (size_t at = 0; mine->scratch != NULL && at < n; at += SCRATCH) {
        const size_t m = n - at < SCRATCH ? n - at : SCRATCH;
        c->convert->widen(c->job.dtype, in + at * gw_dtype_size(c->job.dtype), mine->scratch, m);
        params->codec->encode(&c->job, mine->scratch, m, c->first + begin + at,
                              payload + params->codec->bytes(params, at), &mine->report);
    }
    gw_fp_leave(caller);
}

static void decode_part(void *arg, unsigned index)
{
    const call *c = arg;
    const gw_params *params = c->job.params;
    float *scratch = c->parts[index].scratch;
    size_t begin;
    const size_t n = part_range(c, index, &begin);
    uint8_t *out = c->out + begin * gw_dtype_size(c->job.dtype);
    const uint8_t *payload = c->payload_in + params->codec->bytes(params, begin);
    const uint32_t caller = gw_fp_enter();
    if (scratch == NULL) {
        params->codec->decode(&c->job, payload, n, c->how, (float *)(void *)out);
    }
    for (size_t at = 0; scratch != NULL && at < n; at += SCRATCH) {
        const size_t m = n - at < SCRATCH ? n - at : SCRATCH;
        uint8_t *dst = out + at * gw_dtype_size(c->job.dtype);
        if (c->how == GW_ADD) {
            c->convert->widen(c->job.dtype, dst, scratch, m);
        }
        params->codec->decode(&c->job, payload + params->codec->bytes(params, at), m, c->how,
                              scratch);
        (void)c->convert->narrow(c->job.dtype, scratch, dst, m);
    }
    gw_fp_leave(caller);
}

/* Resolves instruction set, parts and scratch. *parts is how many to run. */
static gw_status prepare(call *c, const gw_params *params, const gw_exec *exec,
                         const gw_tensor *tensor, unsigned *parts)
{
    const gw_exec plain = {0};
    exec = exec != NULL ? exec : &plain;
    const gw_status status = gw_params_check(params, NULL);
    if (status != GW_OK) {
        return status;
    }
    if (tensor == NULL || gw_dtype_size(tensor->dtype) == 0 || tensor->count > SIZE_MAX / 8 ||
        (tensor->data == NULL && tensor->count != 0) || exec->isa < GW_ISA_AUTO ||
        exec->isa >= GW_ISA_COUNT) {
        return GW_ERR_ARG;
    }
    gw_isa isa = exec->isa;
    if (isa == GW_ISA_AUTO) {
        isa = gw_isa_best();
        while (params->codec->kernels[isa] == NULL) { /* the scalar variant always exists */
            isa = (gw_isa)(isa - 1);
        }
    } else if (params->codec->kernels[isa] == NULL || !gw_isa_runs_here(isa)) {
        return GW_ERR_UNSUPPORTED;
    }
    c->job.params = params;
    c->job.kernels = params->codec->kernels[isa];
    c->job.dtype = tensor->dtype;
    c->convert = gw_convert_for(isa);
    c->count = tensor->count;
    const size_t grain = params->codec->grain(params);
    const size_t grains = (size_t)gw_ceil_div(tensor->count, grain);
    unsigned wanted = gw_pool_threads(exec->pool);
    while (wanted > 1 && tensor->count / wanted < ELEMENTS_PER_THREAD) {
        wanted--;
    }
    c->per_part = (size_t)gw_ceil_div(grains, wanted) * grain;
    *parts = tensor->count == 0 ? 0 : (unsigned)gw_ceil_div(tensor->count, c->per_part);
    gw_arena arena = gw_arena_over(exec->workspace);
    cut_workspace(&arena, tensor->dtype, *parts, c);
    return arena.failed ? GW_ERR_WORKSPACE : GW_OK;
}

gw_status gw_encode(const gw_params *params, const gw_exec *exec, const gw_stream *stream,
                    const gw_tensor *in, void *payload, size_t capacity, size_t *written,
                    gw_report *report)
{
    call c = {0};
    unsigned parts = 0;
    gw_status status = prepare(&c, params, exec, in, &parts);
    if (status != GW_OK) {
        return status;
    }
    const size_t bytes = (size_t)params->codec->bytes(params, in->count);
    if (written == NULL || (payload == NULL && bytes != 0)) {
        return GW_ERR_ARG;
    }
    if (stream == NULL && (params->codec->flags(params) & GW_CODEC_STOCHASTIC)) {
        return GW_ERR_ARG; /* a default stream would give every rank the same numbers */
    }
    if (stream != NULL && stream->first % params->codec->grain(params) != 0) {
        return GW_ERR_RANGE;
    }
    if (capacity < bytes) {
        return GW_ERR_CAPACITY;
    }
    c.job.random_key = stream != NULL ? gw_random_key(stream) : 0;
    c.first = stream != NULL ? stream->first : 0;
    c.in = in->data;
    c.payload_out = payload;
    gw_pool_run(exec != NULL ? exec->pool : NULL, encode_part, &c, parts);
    gw_report total = {0};
    for (unsigned i = 0; i < parts; i++) {
        total.non_finite += c.parts[i].report.non_finite;
        total.overflowed += c.parts[i].report.overflowed;
    }
    if (report != NULL) {
        *report = total;
    }
    *written = bytes;
    return GW_OK;
}

gw_status gw_decode(const gw_params *params, const gw_exec *exec, const void *payload, size_t size,
                    gw_apply how, gw_tensor *out, gw_why *why)
{
    call c = {0};
    unsigned parts = 0;
    gw_status status = prepare(&c, params, exec, out, &parts);
    if (status != GW_OK) {
        return gw_fail(why, status, "%s", gw_status_string(status));
    }
    const size_t bytes = (size_t)params->codec->bytes(params, out->count);
    if ((how != GW_SET && how != GW_ADD) || (payload == NULL && bytes != 0)) {
        return gw_fail(why, GW_ERR_ARG, "%s", gw_status_string(GW_ERR_ARG));
    }
    if (size != bytes) {
        return gw_fail(why, size < bytes ? GW_ERR_TRUNCATED : GW_ERR_CORRUPT,
                       "%s payload of %zu elements has %zu bytes, not %zu", params->codec->name,
                       out->count, size, bytes);
    }
    if (params->codec->validate != NULL) {
        status = params->codec->validate(params, payload, out->count, why);
        if (status != GW_OK) {
            return status;
        }
    }
    c.payload_in = payload;
    c.how = how;
    c.out = out->data;
    gw_pool_run(exec != NULL ? exec->pool : NULL, decode_part, &c, parts);
    return GW_OK;
}
