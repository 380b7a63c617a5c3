/* Encoding through the scratch, block by block: of 16-bit numbers, which are widened there, and with feedback. */
#include "codec/codec_call.h"

size_t gw_call_block(const gw_params *params)
{
    const size_t grain = params->codec->grain(params);
    return grain > GW_CODING_BLOCK ? grain : GW_CODING_BLOCK;
}

/* Where the numbers of a block are, in fp32. */
static const float *block_in(const gw_call *c, gw_coding_part *mine, size_t at, size_t m)
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
static void encode_block(const gw_call *c, gw_coding_part *mine, size_t at, size_t m,
                         uint8_t *payload)
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
        .past = c->count >= GW_CODING_PAST_CACHE,
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

void gw_call_encode_blocks(const gw_call *c, gw_coding_part *mine, size_t begin, size_t n)
{
    const gw_params *params = c->job.params;
    const size_t block = gw_call_block(params);
    for (size_t at = begin; at < begin + n; at += block) {
        const size_t left = begin + n - at;
        encode_block(c, mine, at, left < block ? left : block,
                     c->payload_out + params->codec->bytes(params, at));
    }
}
