/* randk: one number of each of k strata, the same elements on every rank, so that nothing but values
 * is sent and payloads can be added. Which elements follows from a key that all ranks compute from
 * seed, step and tensor, and that travels with the payload. Stratified, not drawn from the whole: every
 * element is as likely as in plain random-k, and the sample is never clumped.
 * Arithmetic: docs/numerics.md section 8. Payload: docs/wire-format.md 3.7. */
#include "base/random.h"
#include "codec/source.h"
#include "codec/values/values.h"

#include <string.h>

enum { KEY_BYTES = 8 };

static uint32_t flags(const gw_params *p)
{
    const uint32_t always = GW_CODEC_FIXED_SIZE | GW_CODEC_WANTS_FEEDBACK | GW_CODEC_STOCHASTIC;
    return gw_param(p, GW_VALUES_KIND) == GW_VALUES_F32 ? always | GW_CODEC_ADDITIVE : always;
}

static uint64_t bytes(const gw_params *p, uint64_t count)
{
    return KEY_BYTES + gw_values_bytes(p, gw_values_kept(p, count));
}

static uint64_t select_bytes(const gw_params *p, uint64_t count, unsigned threads)
{
    (void)threads; /* one */
    return gw_values_kept(p, count) * (sizeof(uint32_t) + sizeof(float));
}

static gw_status validate(const gw_params *p, const uint8_t *payload, size_t size, uint64_t count,
                          gw_why *why)
{
    (void)size; /* follows from count */
    return gw_values_validate(p, payload + KEY_BYTES, gw_values_kept(p, count), why);
}

static size_t select(const gw_coding *job, gw_source *source, uint8_t *payload, void *workspace,
                     gw_report *report)
{
    const gw_params *p = job->params;
    const uint64_t kept = gw_values_kept(p, source->count);
    const gw_stream shared = {job->stream->seed, job->stream->step, job->stream->tensor,
                              UINT32_MAX,        UINT32_MAX,        0};
    const uint64_t key = gw_random_key(&shared);
    uint32_t *index = workspace;
    float *value = (float *)(void *)(index + kept);
    const gw_strata s = gw_strata_of(key, kept, source->count);
    /* numbers sent as they are leave nothing: cleared while the block is in cache */
    const int exact = gw_param(p, GW_VALUES_KIND) == GW_VALUES_F32;
    uint64_t j = 0, next = kept != 0 ? gw_strata_element(&s, 0) : UINT64_MAX;
    for (uint64_t at = 0; at < source->count; at += GW_SOURCE_BLOCK) {
        const size_t n = gw_source_left(source, at);
        const float *x = gw_source_block(source, at, n);
        if (source->convert->largest(x, n) >= GW_INF_BITS) {
            report->non_finite += gw_count_non_finite(x, n);
        }
        while (next < at + n) {
            index[j] = (uint32_t)next;
            value[j++] = x[next - at];
            if (exact && source->after != NULL) {
                source->after[next] = 0;
            }
            next = j < kept ? gw_strata_element(&s, j) : UINT64_MAX;
        }
    }
    for (j = 0; report->non_finite != 0 && j < kept; j++) {
        value[j] = gw_float(GW_NAN_BITS);
    }
    gw_put_u64(payload, key);
    gw_values_encode(job, value, index, kept, payload + KEY_BYTES, report);
    for (j = 0; source->after != NULL && !exact && j < kept; j++) {
        source->after[index[j]] -= value[j];
    }
    return (size_t)bytes(p, source->count);
}

static void scatter(const gw_coding *job, const uint8_t *payload, uint64_t count, gw_cursor *cursor,
                    uint64_t begin, size_t n, gw_apply how, float *out)
{
    const uint64_t kept = gw_values_kept(job->params, count);
    const gw_strata s = gw_strata_of(gw_get_u64(payload), kept, count);
    for (; cursor->entry < kept; cursor->entry++) {
        const uint64_t i = gw_strata_element(&s, cursor->entry);
        if (i >= begin + n) {
            break;
        }
        const float v = gw_values_at(job->params, payload + KEY_BYTES, cursor->entry);
        out[i - begin] = how == GW_ADD ? out[i - begin] + v : v;
    }
}

/* All of its work that takes time is source.h's and convert's, which have the variants. */
extern const gw_codec gw_codec_randk;
const gw_codec gw_codec_randk = {
    .name = "randk",
    .doc = "one number a stratum, the same elements on all ranks",
    .params = gw_values_params,
    .n_params = GW_VALUES_PARAMS,
    .flags = flags,
    .bytes = bytes,
    .validate = validate,
    .select_bytes = select_bytes,
    .select = select,
    .scatter = scatter,
    .kernels = {NULL, &gw_convert_scalar, GW_AVX2(gw_convert_avx2), GW_AVX512(gw_convert_avx512),
                GW_NEON(gw_convert_neon)},
};
