/* Many payloads of one tensor, decoded and summed block by block: memory sees each payload and the sum once,
 * where one decoding after the other would read and write the sum as many times as there are payloads. The
 * block is summed in a scratch that stays in the first-level cache, and divided on its way to the sum. */
#include "codec/sum.h"
#include "base/hash.h"

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static int any_bad(const gw_sum *s)
{
    int bad = 0;
    for (unsigned i = 0; i < s->parts; i++) {
        bad |= s->bad[i];
    }
    return bad;
}

void gw_sum_write(gw_sum *s, unsigned part, float *block, size_t at, size_t m, int past)
{
    if (!s->hashes) {
        s->bad[part] |= s->convert->divide(s->out + at, block, m, s->divisor, past);
        return;
    }
    s->bad[part] |= s->convert->divide(block, block, m, s->divisor, 0);
    s->hash[part] += gw_hash_at(s->key, s->first + at, gw_hash(block, m * sizeof *block, 0));
    if (block != s->out + at) {
        (void)s->convert->divide(s->out + at, block, m, 1, past);
    }
}

static void sum_part(void *arg, unsigned index)
{
    gw_sum *s = arg;
    const gw_params *p = s->job.params;
    const gw_codec *codec = p->codec;
    const size_t begin = index * s->per_part, end = least(s->count, begin + s->per_part);
    _Alignas(64) float block[GW_SUM_MOST];
    for (size_t at = begin; at < end; at += s->block) {
        const size_t m = least(s->block, end - at), from = (size_t)codec->bytes(p, at);
        for (size_t i = 0; i < s->n; i++) {
            codec->decode(&s->job, (const uint8_t *)s->payloads[i].bytes + from, m,
                          i == 0 ? GW_SET : GW_ADD, block);
        }
        gw_sum_write(s, index, block, at, m, s->count >= GW_SUM_PAST_CACHE);
    }
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
    return GW_OK;
}

/* Looks at every payload, several at once. The first that is wrong is told. */
static void check_some(void *arg, unsigned index)
{
    gw_sum *s = arg;
    for (size_t i = index; i < s->n && !s->bad[index]; i += s->parts) {
        s->bad[index] = gw_payload_check(s->job.params, s->payloads[i].bytes, s->payloads[i].size,
                                         s->count, NULL) != GW_OK;
    }
}

static gw_status check_payloads(gw_sum *s, gw_why *why)
{
    s->parts = (unsigned)least(s->n, gw_coding_parts(&s->job, s->count));
    gw_coding_run(&s->job, check_some, s, s->parts);
    if (!any_bad(s)) {
        return GW_OK;
    }
    gw_status status = GW_OK;
    for (size_t i = 0; i < s->n && status == GW_OK; i++) {
        status = gw_payload_check(s->job.params, s->payloads[i].bytes, s->payloads[i].size,
                                  s->count, why);
    }
    return status;
}

/* Into whole blocks, one part a thread. */
static void cut(gw_sum *s)
{
    const gw_codec *codec = s->job.params->codec;
    size_t wanted = 1;
    if (codec->grain != NULL) {
        const size_t grain = codec->grain(s->job.params);
        s->block = grain > GW_SUM_SMALL ? grain : GW_SUM_SMALL;
        wanted = gw_pool_threads(s->job.pool);
    } else {
        s->block = codec->fills ? GW_SUM_FILLED : GW_SUM_SELECTED;
        if (codec->skip != NULL || codec->fills) { /* can begin anywhere */
            wanted = gw_coding_parts(&s->job, s->count);
        }
    }
    s->per_part = (size_t)gw_ceil_div(gw_ceil_div(s->count, s->block), wanted) * s->block;
    s->parts = s->count == 0 ? 0 : (unsigned)gw_ceil_div(s->count, s->per_part);
}

/* `hash` NULL: none. */
static gw_status decode_sum(const gw_params *params, const gw_exec *exec,
                            const gw_payload *payloads, size_t n, uint32_t divisor, gw_tensor *out,
                            int *finite, uint64_t key, uint64_t first, uint64_t *hash, gw_why *why)
{
    gw_status status = check(params, payloads, n, divisor, out, finite, why);
    gw_isa isa = GW_ISA_AUTO;
    if (status == GW_OK) {
        status = gw_codec_choose_isa(params->codec, exec, &isa);
    }
    if (status != GW_OK) {
        return status;
    }
    gw_sum s = {.job = {.params = params,
                        .kernels = params->codec->kernels[isa],
                        .dtype = GW_F32,
                        .pool = exec != NULL ? exec->pool : NULL},
                .convert = gw_convert_for(isa),
                .payloads = payloads,
                .n = n,
                .count = out->count,
                .out = out->data,
                .divisor = divisor,
                .hashes = hash != NULL,
                .key = key,
                .first = first};
    status = check_payloads(&s, why);
    if (status != GW_OK) {
        return status;
    }
    cut(&s);
    gw_coding_run(&s.job, params->codec->grain != NULL ? sum_part : gw_sum_selected, &s, s.parts);
    *finite = !any_bad(&s);
    for (unsigned i = 0; i < s.parts && hash != NULL; i++) {
        *hash += s.hash[i];
    }
    return GW_OK;
}

gw_status gw_decode_sum(const gw_params *params, const gw_exec *exec, const gw_payload *payloads,
                        size_t n, uint32_t divisor, gw_tensor *out, int *finite, gw_why *why)
{
    return decode_sum(params, exec, payloads, n, divisor, out, finite, 0, 0, NULL, why);
}

gw_status gw_decode_sum_hashed(const gw_params *params, const gw_exec *exec,
                               const gw_payload *payloads, size_t n, uint32_t divisor,
                               gw_tensor *out, int *finite, uint64_t key, uint64_t first,
                               uint64_t *hash, gw_why *why)
{
    return hash == NULL
               ? gw_fail(why, GW_ERR_ARG, "nowhere to put the hash")
               : decode_sum(params, exec, payloads, n, divisor, out, finite, key, first, hash, why);
}
