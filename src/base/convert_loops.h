/* The conversion loops, written once for every vector width. The including file defines, before:
 *   vec, ivec, LANES, load(from, src, i), store(to, dst, i, v), max_abs(top, v), top_lane(top), zero(), plus(a, b),
 *   minus(a, b), times(a, b), over(a, b), all(x), store_past(dst, v)
 * The dtype is a constant at every call, so that each loop is compiled for one of them. */

static inline uint32_t narrow_to(gw_dtype to, const float *src, uint8_t *dst, size_t n)
{
    ivec top = zero();
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vec v = load(GW_F32, (const uint8_t *)src, i);
        top = max_abs(top, v);
        store(to, dst, i, v);
    }
    const uint32_t head = top_lane(top);
    const uint32_t tail =
        gw_convert_scalar.narrow(to, src + i, dst + i * (to == GW_F32 ? 4 : 2), n - i);
    return head > tail ? head : tail;
}

static uint32_t narrow(gw_dtype to, const float *src, void *dst, size_t n)
{
    return to == GW_F32   ? narrow_to(GW_F32, src, dst, n)
           : to == GW_F16 ? narrow_to(GW_F16, src, dst, n)
                          : narrow_to(GW_BF16, src, dst, n);
}

static inline void widen_from(gw_dtype from, const uint8_t *src, float *dst, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        store(GW_F32, (uint8_t *)dst, i, load(from, src, i));
    }
    gw_convert_scalar.widen(from, src + i * (from == GW_F32 ? 4 : 2), dst + i, n - i);
}

static void widen(gw_dtype from, const void *src, float *dst, size_t n)
{
    if (from == GW_F32) {
        widen_from(GW_F32, src, dst, n);
    } else if (from == GW_F16) {
        widen_from(GW_F16, src, dst, n);
    } else {
        widen_from(GW_BF16, src, dst, n);
    }
}

static inline void add_from(gw_dtype from, const uint8_t *src, float *dst, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vec sum = plus(load(GW_F32, (const uint8_t *)dst, i), load(from, src, i));
        store(GW_F32, (uint8_t *)dst, i, sum);
    }
    gw_convert_scalar.add(from, src + i * (from == GW_F32 ? 4 : 2), dst + i, n - i);
}

static void add(gw_dtype from, const void *src, float *dst, size_t n)
{
    if (from == GW_F32) {
        add_from(GW_F32, src, dst, n);
    } else if (from == GW_F16) {
        add_from(GW_F16, src, dst, n);
    } else {
        add_from(GW_BF16, src, dst, n);
    }
}

/* dst = a + b and dst = a − b; dst may be a or b */
static void sum(float *dst, const float *a, const float *b, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vec v =
            plus(load(GW_F32, (const uint8_t *)a, i), load(GW_F32, (const uint8_t *)b, i));
        store(GW_F32, (uint8_t *)dst, i, v);
    }
    gw_convert_scalar.sum(dst + i, a + i, b + i, n - i);
}

static void difference(float *dst, const float *a, const float *b, size_t n, int past,
                       const void *const next[2])
{
    const int around = past && (uintptr_t)dst % (4 * LANES) == 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vec v =
            minus(load(GW_F32, (const uint8_t *)a, i), load(GW_F32, (const uint8_t *)b, i));
        gw_prefetch(next[0], 4 * i, 4 * LANES);
        gw_prefetch(next[1], 4 * i, 4 * LANES);
        if (around) {
            store_past(dst + i, v);
        } else {
            store(GW_F32, (uint8_t *)dst, i, v);
        }
    }
    gw_convert_scalar.difference(dst + i, a + i, b + i, n - i, 0, next);
}

static uint32_t largest(const float *x, size_t n)
{
    ivec top = zero(), other = zero();
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        top = max_abs(top, load(GW_F32, (const uint8_t *)x, i));
        other = max_abs(other, load(GW_F32, (const uint8_t *)x, i + LANES));
    }
    const uint32_t a = top_lane(top), b = top_lane(other);
    const uint32_t tail = gw_convert_scalar.largest(x + i, n - i), head = a > b ? a : b;
    return head > tail ? head : tail;
}

typedef enum division { NONE, EXACT, ROUNDED } division;

GW_INLINE int divide_as(float *dst, const float *src, size_t n, uint32_t by, division how,
                        int around)
{
    const vec divisor = all((float)by), factor = all(1 / (float)by);
    ivec top = zero();
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vec v = load(GW_F32, (const uint8_t *)src, i);
        v = how == EXACT ? times(v, factor) : how == ROUNDED ? over(v, divisor) : v;
        top = max_abs(top, v);
        if (around) {
            store_past(dst + i, v);
        } else if (how != NONE || dst != src) {
            store(GW_F32, (uint8_t *)dst, i, v);
        }
    }
    const int tail = gw_convert_scalar.divide(dst + i, src + i, n - i, by, 0);
    return top_lane(top) >= GW_INF_BITS || tail;
}

static int divide(float *dst, const float *src, size_t n, uint32_t by, int past)
{
    const int around = past && (uintptr_t)dst % (4 * LANES) == 0;
    if (by == 1) {
        return around ? divide_as(dst, src, n, by, NONE, 1) : divide_as(dst, src, n, by, NONE, 0);
    }
    if ((by & (by - 1)) == 0) { /* a reciprocal that is exact: the same bits, sooner */
        return around ? divide_as(dst, src, n, by, EXACT, 1) : divide_as(dst, src, n, by, EXACT, 0);
    }
    return around ? divide_as(dst, src, n, by, ROUNDED, 1) : divide_as(dst, src, n, by, ROUNDED, 0);
}
