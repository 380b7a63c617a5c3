/* The two verbs. Everything that is the same for all codecs stands here, in the order a gradient
 * meets it: check the arguments, cut the tensor at grain borders into one part a thread, widen fp16
 * and bf16 block by block into a scratch that stays in cache, and call the codec. */
#include "base/arena.h"
#include "base/convert.h"
#include "base/pool.h"
#include "base/random.h"
#include "codec/codec_impl.h"
#include "codec/source.h"

#include <string.h>

/* Below this many elements a thread, waking it costs more than it brings; a codec that selects wakes several times. */
enum { ELEMENTS_PER_THREAD = 32 * 1024, SELECTED_PER_THREAD = 128 * 1024 };
/* Elements of one scratch block, at most 32 KiB of fp32: as many as the largest grain. Blocks are cut
 * smaller where the grain allows, so that they stay in the first-level cache. */
enum { SCRATCH = 8192, SMALL_BLOCK = 2048 };
/* Elements from which a residual is written around the cache: 16 MiB. */
enum { PAST_CACHE = 4 << 20 };

typedef struct part {
    float *scratch; /* SCRATCH floats; NULL for fp32 tensors without feedback */
    float *decoded; /* SCRATCH floats; NULL without feedback */
    gw_report report;
} part;

typedef struct call {
    gw_coding job;
    const gw_convert *convert;
    size_t count, per_part; /* elements; per_part is a multiple of the grain */
    uint64_t first;
    part *parts;
    part only;       /* the table of a call that needs one part */
    void *selecting; /* workspace of a codec that selects */
    /* encode */
    const uint8_t *in;
    uint8_t *payload_out;
    const float *residual; /* feedback: r, read; NULL without */
    float *residual_after; /* r′, written */
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
    const int spans = gw_params_check(params, NULL) == GW_OK && params->codec->grain != NULL;
    return spans ? params->codec->grain(params) : 0;
}

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

/* What a call takes from the workspace. */
typedef struct needs {
    gw_dtype dtype;
    size_t count;
    int encoding, feedback;
    unsigned parts;
} needs;

/* Cuts the table of parts and their scratch blocks; used to measure and to cut. A codec that selects
 * is called once, with a workspace of its own besides. */
static void cut_workspace(gw_arena *arena, const gw_params *params, const needs *n, call *c)
{
    const gw_codec *codec = params->codec;
    const unsigned parts = codec->grain != NULL ? n->parts : 1;
    const int widens = n->dtype != GW_F32, spans = codec->grain != NULL;
    part *table = &c->only;
    if (parts > 1) {
        table = gw_arena_take(arena, parts, sizeof(part));
    }
    for (unsigned i = 0; i < parts; i++) {
        float *scratch = NULL, *decoded = NULL;
        if (widens || (spans && n->feedback)) {
            scratch = gw_arena_take(arena, SCRATCH, sizeof(float));
        }
        if (spans && n->feedback) {
            decoded = gw_arena_take(arena, SCRATCH, sizeof(float));
        }
        if (table != NULL && !arena->failed) {
            table[i] = (part){.scratch = scratch, .decoded = decoded};
        }
    }
    if (!spans && n->encoding) {
        c->selecting = gw_arena_take(arena, codec->select_bytes(params, n->count, n->parts), 1);
    }
    c->parts = table;
}

gw_status gw_codec_workspace(const gw_params *params, gw_dtype dtype, size_t count, int feedback,
                             unsigned threads, size_t *bytes)
{
    GW_REQUIRE(NULL, bytes != NULL, "no place for the size");
    if (gw_params_check(params, NULL) != GW_OK || gw_dtype_size(dtype) == 0 || threads == 0 ||
        threads > GW_POOL_MAX_THREADS || count > SIZE_MAX / 8) {
        return GW_ERR_ARG;
    }
    call unused = {0};
    const needs n = {dtype, count, 1, feedback, threads};
    gw_arena arena = gw_arena_measuring();
    cut_workspace(&arena, params, &n, &unused);
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

/* Elements that go through the scratch at once. */
static size_t block_of(const gw_params *params)
{
    const size_t grain = params->codec->grain(params);
    return grain > SMALL_BLOCK ? grain : SMALL_BLOCK;
}

/* Where the numbers of a block are, in fp32. */
static const float *block_in(const call *c, part *mine, size_t at, size_t m)
{
    if (c->job.dtype == GW_F32) {
        return (const float *)(const void *)c->in + at;
    }
    c->convert->widen(c->job.dtype, c->in + at * gw_dtype_size(c->job.dtype), mine->scratch, m);
    return mine->scratch;
}

/* One block of a part that is encoded through the scratch: m elements at `at` of the tensor, whose
 * payload begins at `payload`. With feedback, g + r is coded and what was lost written to r′, all while
 * the block is in cache: memory sees g and r read and r′ written, once. */
static void encode_block(const call *c, part *mine, size_t at, size_t m, uint8_t *payload)
{
    const gw_codec *codec = c->job.params->codec;
    const float *g = block_in(c, mine, at, m);
    if (c->residual == NULL) {
        codec->encode(&c->job, g, m, c->first + at, payload, &mine->report);
        return;
    }
    const size_t next = at + m < c->count ? at + m : at; /* at the end, what is in cache anyway */
    const gw_fed_block f = {
        .g = g,
        .r = c->residual + at,
        .after = c->residual_after + at,
        .past = c->count >= PAST_CACHE,
        .next = {c->in + next * gw_dtype_size(c->job.dtype), c->residual + next}};
    if (codec->encode_feedback != NULL) {
        codec->encode_feedback(&c->job, &f, m, payload, &mine->report);
        return;
    }
    c->convert->sum(mine->scratch, g, f.r, m);
    codec->encode(&c->job, mine->scratch, m, c->first + at, payload, &mine->report);
    codec->decode(&c->job, payload, m, GW_SET, mine->decoded);
    c->convert->difference(f.after, mine->scratch, mine->decoded, m, f.past, f.next);
}

static void encode_part(void *arg, unsigned index)
{
    const call *c = arg;
    const gw_params *params = c->job.params;
    part *mine = &c->parts[index];
    size_t begin;
    const size_t n = part_range(c, index, &begin);
    const uint32_t caller = gw_fp_enter();
    if (mine->scratch == NULL) {
        const float *x = (const float *)(const void *)c->in + begin;
        params->codec->encode(&c->job, x, n, c->first + begin,
                              c->payload_out + params->codec->bytes(params, begin), &mine->report);
    }
    const size_t block = block_of(params);
    for (size_t at = begin; mine->scratch != NULL && at < begin + n; at += block) {
        const size_t left = begin + n - at;
        encode_block(c, mine, at, left < block ? left : block,
                     c->payload_out + params->codec->bytes(params, at));
    }
    gw_stores_done();
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
    const size_t block = block_of(params);
    for (size_t at = 0; scratch != NULL && at < n; at += block) {
        const size_t m = n - at < block ? n - at : block;
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

/* Resolves instruction set, parts and scratch. *parts is how many to run. */
static gw_status prepare(call *c, const gw_params *params, const gw_exec *exec,
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
    needs n = {tensor->dtype, tensor->count, encoding, c->residual != NULL, 1};
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
    cut_workspace(&arena, params, &n, c);
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

/* Runs a codec that selects. Returns the payload's bytes. */
static size_t encode_selected(call *c, const gw_tensor *in, gw_report *report)
{
    gw_source source = {.convert = c->convert,
                        .in = in->data,
                        .dtype = in->dtype,
                        .count = in->count,
                        .residual = c->residual,
                        .after = c->residual_after,
                        .past = in->count >= PAST_CACHE,
                        .scratch = c->only.scratch};
    const uint32_t caller = gw_fp_enter();
    const size_t written =
        c->job.params->codec->select(&c->job, &source, c->payload_out, c->selecting, report);
    gw_stores_done();
    gw_fp_leave(caller);
    return written;
}

/* Entries into `out`, which begins with zeros if they are to be set; fp16 and bf16 block by block. */
static void decode_selected(const call *c)
{
    const gw_codec *codec = c->job.params->codec;
    const size_t width = gw_dtype_size(c->job.dtype);
    gw_cursor cursor = {0};
    const uint32_t caller = gw_fp_enter();
    const int overwrites = codec->fills && c->how == GW_SET;
    if (c->how == GW_SET && c->count != 0 && !overwrites) {
        memset(c->out, 0, c->count * width);
    }
    if (c->job.dtype == GW_F32) {
        codec->scatter(&c->job, c->payload_in, c->count, &cursor, 0, c->count, c->how,
                       (float *)(void *)c->out);
    }
    for (size_t at = 0; c->job.dtype != GW_F32 && at < c->count; at += SCRATCH) {
        const size_t m = c->count - at < SCRATCH ? c->count - at : SCRATCH;
        if (!overwrites) {
            c->convert->widen(c->job.dtype, c->out + at * width, c->only.scratch, m);
        }
        codec->scatter(&c->job, c->payload_in, c->count, &cursor, at, m, c->how, c->only.scratch);
        (void)c->convert->narrow(c->job.dtype, c->only.scratch, c->out + at * width, m);
    }
    gw_fp_leave(caller);
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
    call c = {.residual = residual, .residual_after = residual_after};
    unsigned parts = 0;
    gw_status status = prepare(&c, params, exec, in, 1, &parts);
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
        made = encode_selected(&c, in, &total);
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

gw_status gw_decode(const gw_params *params, const gw_exec *exec, const void *payload, size_t size,
                    gw_apply how, gw_tensor *out, gw_why *why)
{
    call c = {0};
    unsigned parts = 0;
    gw_status status = prepare(&c, params, exec, out, 0, &parts);
    if (status == GW_OK && how != GW_SET && how != GW_ADD) {
        status = GW_ERR_ARG;
    }
    if (status != GW_OK) {
        return gw_fail(why, status, "%s", gw_status_string(status));
    }
    status = gw_payload_check(params, payload, size, out->count, why);
    if (status != GW_OK) {
        return status;
    }
    c.payload_in = payload;
    c.how = how;
    c.out = out->data;
    if (params->codec->grain == NULL) {
        decode_selected(&c);
    } else {
        gw_pool_run(exec != NULL ? exec->pool : NULL, decode_part, &c, parts);
    }
    return GW_OK;
}
