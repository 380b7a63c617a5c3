/* Many payloads of one tensor, decoded and summed block by block: memory sees each payload and the sum once,
 * where one decoding after the other would read and write the sum as many times as there are payloads. The
 * block is summed in a scratch that stays in the first-level cache, and divided on its way to the sum. */
#include "base/convert.h"
#include "base/pool.h"
#include "codec/codec_impl.h"

#include <string.h>

/* Elements of a block that codecs read: those of a grain, which divides the first, and of others; elements of
 * a block of a codec that multiplies matrices to make it. */
enum { MOST = 8 * 1024, SMALL = 4 * 1024, SELECTED = 4 * 1024, FILLED = 16 * 1024 };
/* Elements from which the sum is written around the cache: 4 MiB. */
enum { PAST_CACHE = 1 << 20 };
/* Payloads of a codec without a grain that are read side by side. */
enum { ABREAST = 64 };

typedef struct sum {
    gw_coding job;
    const gw_convert *convert;
    const gw_payload *payloads;
    size_t n, count, block, per_part; /* elements; per_part: whole blocks */
    float *out;
    uint32_t divisor;
    int bad[GW_POOL_MAX_THREADS]; /* by part */
} sum;

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void sum_part(void *arg, unsigned index)
{
    sum *s = arg;
    const gw_params *p = s->job.params;
    const gw_codec *codec = p->codec;
    const size_t begin = index * s->per_part, end = least(s->count, begin + s->per_part);
    _Alignas(64) float block[MOST];
    const uint32_t caller = gw_fp_enter();
    for (size_t at = begin; at < end; at += s->block) {
        const size_t m = least(s->block, end - at), from = (size_t)codec->bytes(p, at);
        for (size_t i = 0; i < s->n; i++) {
            codec->decode(&s->job, (const uint8_t *)s->payloads[i].bytes + from, m,
                          i == 0 ? GW_SET : GW_ADD, block);
        }
        s->bad[index] |=
            s->convert->divide(s->out + at, block, m, s->divisor, s->count >= PAST_CACHE);
    }
    gw_stores_done();
    gw_fp_leave(caller);
}

/* The same for codecs without a grain: their payloads are read from front to back, with a cursor each. */
static void sum_selected(sum *s)
{
    const gw_codec *codec = s->job.params->codec;
    const int here = codec->fills || s->n > ABREAST; /* summed where it stands */
    _Alignas(64) float scratch[SELECTED];
    const uint32_t caller = gw_fp_enter();
    for (size_t first = 0; s->out != NULL && first < s->n; first += ABREAST) {
        const size_t n = least(ABREAST, s->n - first);
        gw_cursor cursors[ABREAST] = {0};
        for (size_t at = 0; at < s->count; at += s->block) {
            const size_t m = least(s->block, s->count - at);
            float *block = here ? s->out + at : scratch;
            if (first == 0 && !codec->fills) {
                memset(block, 0, m * sizeof *block);
            }
            for (size_t i = 0; i < n; i++) {
                codec->scatter(&s->job, s->payloads[first + i].bytes, s->count, &cursors[i], at, m,
                               first + i == 0 ? GW_SET : GW_ADD, block);
            }
            if (first + n == s->n) {
                s->bad[0] |= s->convert->divide(s->out + at, block, m, s->divisor,
                                                !here && s->count >= PAST_CACHE);
            }
        }
    }
    gw_stores_done();
    gw_fp_leave(caller);
}

static gw_status check(const gw_params *params, const gw_payload *payloads, size_t n,
                       uint32_t divisor, const gw_tensor *out, const int *finite, gw_why *why)
{
    gw_status status = gw_params_check(params, why);
    if (status != GW_OK) {
        return status;
    }
    if (payloads == NULL || n == 0 || divisor == 0 || out == NULL || out->dtype != GW_F32 ||
        finite == NULL || out->count > SIZE_MAX / 8 || (out->data == NULL && out->count != 0)) {
        return gw_fail(why, GW_ERR_ARG, "payloads, a divisor and an fp32 tensor are needed");
    }
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        status = gw_payload_check(params, payloads[i].bytes, payloads[i].size, out->count, why);
    }
    return status;
}

gw_status gw_decode_sum(const gw_params *params, const gw_exec *exec, const gw_payload *payloads,
                        size_t n, uint32_t divisor, gw_tensor *out, int *finite, gw_why *why)
{
    gw_status status = check(params, payloads, n, divisor, out, finite, why);
    gw_isa isa = GW_ISA_AUTO;
    if (status == GW_OK) {
        status = gw_codec_choose_isa(params->codec, exec, &isa);
    }
    if (status != GW_OK) {
        return status;
    }
    sum s = {.job = {.params = params, .kernels = params->codec->kernels[isa], .dtype = GW_F32},
             .convert = gw_convert_for(isa),
             .payloads = payloads,
             .n = n,
             .count = out->count,
             .out = out->data,
             .divisor = divisor};
    unsigned parts = 1;
    if (params->codec->grain == NULL) {
        s.block = params->codec->fills ? FILLED : SELECTED;
        sum_selected(&s);
    } else {
        const size_t grain = params->codec->grain(params);
        s.block = grain > SMALL ? grain : SMALL;
        const size_t blocks = (size_t)gw_ceil_div(out->count, s.block);
        const size_t wanted = gw_pool_threads(exec != NULL ? exec->pool : NULL);
        s.per_part = (size_t)gw_ceil_div(blocks, wanted) * s.block;
        parts = out->count == 0 ? 0 : (unsigned)gw_ceil_div(out->count, s.per_part);
        gw_pool_run(exec != NULL ? exec->pool : NULL, sum_part, &s, parts);
    }
    int bad = 0;
    for (unsigned i = 0; i < parts; i++) {
        bad |= s.bad[i];
    }
    *finite = !bad;
    return GW_OK;
}
