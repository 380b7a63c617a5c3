/* What a result still needs where no move has done it: the division, a look for NaN and infinity, the hash. Decodes of payloads do all
 * of it block by block. */
#include "coll/exchange.h"

#include "base/divide.h"

uint32_t gw_exchange_last_divisor(const gw_exchange *x)
{
    return !gw_exchange_is_additive(x) && gw_exchange_at_last(x) ? gw_exchange_divisor(x) : 1;
}

int gw_exchange_any_bad(const gw_exchange *x, const void *numbers, size_t n)
{
    return x->dtype == GW_F32 ? x->convert->largest(numbers, n) >= GW_INF_BITS
                              : gw_any_non_finite_of(x->dtype, numbers, n);
}

int gw_exchange_round(const gw_exchange *x, void *to, float *from, size_t n, uint32_t divisor)
{
    if (x->dtype == GW_F32) {
        return x->convert->divide(to, from, n, divisor, 0);
    }
    (void)x->convert->divide(from, from, n, divisor, 0);
    return x->convert->narrow(x->dtype, from, to, n) >= gw_overflow_bits(x->dtype);
}

/* 1: a number of a divided result is not finite. Of a sum, this rank has seen its own piece. */
static int any_bad(const gw_exchange *x, size_t n)
{
    const size_t first = x->seen.count != 0 ? (size_t)(x->seen.first - x->program.whole.first) : n;
    const size_t end = first + (size_t)x->seen.count;
    const uint8_t *values = x->values;
    return x->seen_bad || gw_exchange_any_bad(x, values, first) ||
           gw_exchange_any_bad(x, values + end * x->width, n - end);
}

/* Numbers of a sum that no move has divided: of one rank alone, and fp32 ones that came in two steps. */
static int divide_block(const gw_exchange *x, void *block, size_t n, uint32_t divisor)
{
    float wide[GW_SEAL_BLOCK];
    if (x->dtype == GW_F32) {
        return gw_exchange_round(x, block, block, n, divisor);
    }
    x->convert->widen(x->dtype, block, wide, n);
    return gw_exchange_round(x, block, wide, n, divisor);
}

void gw_exchange_finish(gw_exchange *x)
{
    const size_t n = (size_t)x->config.elements;
    const uint32_t divisor = x->divided ? 1 : gw_exchange_divisor(x);
    const int hashes = x->hashes && !x->hashed;
    int bad = x->divided && !x->looked ? any_bad(x, n) : 0;
    for (size_t at = 0; at < n && (hashes || !x->divided); at += GW_SEAL_BLOCK) {
        uint8_t *block = (uint8_t *)x->values + at * x->width;
        const size_t some = n - at < GW_SEAL_BLOCK ? n - at : GW_SEAL_BLOCK;
        bad |= !x->divided && divide_block(x, block, some, divisor);
        if (hashes) {
            gw_exchange_hash_block(x, at, block, some);
        }
    }
    x->stats.finite = x->looked ? x->stats.finite : !bad;
    x->divided = x->looked = x->hashed = 1;
}
