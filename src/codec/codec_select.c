/* Codecs that select over the whole tensor: one call, one part. */
#include "codec/codec_call.h"
#include "codec/source.h"

#include <string.h>

size_t gw_call_encode_selected(gw_call *c, const gw_tensor *in, gw_report *report)
{
    gw_source source = {.convert = c->convert,
                        .in = in->data,
                        .dtype = in->dtype,
                        .count = in->count,
                        .residual = c->residual,
                        .after = c->residual_after,
                        .past = in->count >= GW_CODING_PAST_CACHE,
                        .scratch = c->only.scratch};
    const uint32_t caller = gw_fp_enter();
    const size_t written =
        c->job.params->codec->select(&c->job, &source, c->payload_out, c->selecting, report);
    gw_stores_done();
    gw_fp_leave(caller);
    return written;
}

/* Entries into `out`, which begins with zeros if they are to be set; fp16 and bf16 block by block. */
void gw_call_decode_selected(const gw_call *c)
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
    for (size_t at = 0; c->job.dtype != GW_F32 && at < c->count; at += GW_CODING_SCRATCH) {
        const size_t m = c->count - at < GW_CODING_SCRATCH ? c->count - at : GW_CODING_SCRATCH;
        if (!overwrites) {
            c->convert->widen(c->job.dtype, c->out + at * width, c->only.scratch, m);
        }
        codec->scatter(&c->job, c->payload_in, c->count, &cursor, at, m, c->how, c->only.scratch);
        (void)c->convert->narrow(c->job.dtype, c->only.scratch, c->out + at * width, m);
    }
    gw_fp_leave(caller);
}
