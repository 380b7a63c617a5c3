/* The sum of payloads of a codec that selects: they are read from front to back, with a cursor each. */
#include "codec/sum.h"

#include <string.h>

void gw_sum_selected(void *arg, unsigned index)
{
    gw_sum *s = arg;
    const gw_codec *codec = s->job.params->codec;
    const int here = codec->fills || s->n > GW_SUM_ABREAST; /* summed where it stands */
    const size_t begin = index * s->per_part, left = s->count - begin;
    const size_t end = begin + (left < s->per_part ? left : s->per_part);
    _Alignas(64) float scratch[GW_SUM_SELECTED];
    for (size_t first = 0; begin < end && first < s->n; first += GW_SUM_ABREAST) {
        const size_t n = s->n - first < GW_SUM_ABREAST ? s->n - first : GW_SUM_ABREAST;
        gw_cursor cursors[GW_SUM_ABREAST] = {0};
        for (size_t i = 0; begin != 0 && codec->skip != NULL && i < n; i++) {
            codec->skip(&s->job, s->payloads[first + i].bytes, s->count, begin, &cursors[i]);
        }
        for (size_t at = begin; at < end; at += s->block) {
            const size_t m = end - at < s->block ? end - at : s->block;
            float *block = here ? s->out + at : scratch;
            if (first == 0 && !codec->fills) {
                memset(block, 0, m * sizeof *block);
            }
            for (size_t i = 0; i < n; i++) {
                codec->scatter(&s->job, s->payloads[first + i].bytes, s->count, &cursors[i], at, m,
                               first + i == 0 ? GW_SET : GW_ADD, block);
            }
            if (first + n == s->n) {
                gw_sum_write(s, index, block, at, m, !here && s->count >= GW_SUM_PAST_CACHE);
            }
        }
    }
}
