/* The verb decode, of one payload; sum.c decodes many. And what callers ask of a codec before they call it. */
#include "base/pool.h"
#include "codec/codec_call.h"

uint32_t gw_params_flags(const gw_params *params)
{
    return gw_params_check(params, NULL) == GW_OK ? params->codec->flags(params) : 0;
}

size_t gw_codec_grain(const gw_params *params)
{
    const int spans = gw_params_check(params, NULL) == GW_OK && params->codec->grain != NULL;
    return spans ? params->codec->grain(params) : 0;
}

gw_status gw_codec_workspace(const gw_params *params, gw_dtype dtype, size_t count, int feedback,
                             unsigned threads, size_t *bytes)
{
    GW_REQUIRE(NULL, bytes != NULL, "no place for the size");
    if (gw_params_check(params, NULL) != GW_OK || gw_dtype_size(dtype) == 0 || threads == 0 ||
        threads > GW_POOL_MAX_THREADS || count > SIZE_MAX / 8) {
        return GW_ERR_ARG;
    }
    gw_call unused = {0};
    const gw_call_needs n = {dtype, count, 1, feedback, threads};
    gw_arena arena = gw_arena_measuring();
    gw_call_cut(&arena, params, &n, &unused);
    *bytes = gw_arena_need(&arena);
    return GW_OK;
}

static void decode_part(void *arg, unsigned index)
{
    const gw_call *c = arg;
    const gw_params *params = c->job.params;
    float *scratch = c->parts[index].scratch;
    size_t begin;
    const size_t n = gw_call_range(c, index, &begin);
    uint8_t *out = c->out + begin * gw_dtype_size(c->job.dtype);
    const uint8_t *payload = c->payload_in + params->codec->bytes(params, begin);
    const uint32_t caller = gw_fp_enter();
    if (scratch == NULL) {
        params->codec->decode(&c->job, payload, n, c->how, (float *)(void *)out);
    }
    const size_t block = gw_call_block(params);
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

gw_status gw_decode(const gw_params *params, const gw_exec *exec, const void *payload, size_t size,
                    gw_apply how, gw_tensor *out, gw_why *why)
{
    gw_call c = {0};
    unsigned parts = 0;
    gw_status status = gw_call_prepare(&c, params, exec, out, 0, &parts);
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
        gw_call_decode_selected(&c);
    } else {
        gw_pool_run(exec != NULL ? exec->pool : NULL, decode_part, &c, parts);
    }
    return GW_OK;
}
