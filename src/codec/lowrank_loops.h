/* The one loop of low rank, written once for every vector width. The including file defines, before:
 *   vec, LANES, load(p), store(p, v), splat(x), plus(a, b), minus(a, b), times(a, b)
 * load takes bytes of any alignment. Tails go to the scalar variant. */

/* Registers of sums side by side. */
enum { ABREAST = 4 };

static inline void row_how(const uint8_t *left, const uint8_t *right, size_t stride, uint32_t rank,
                           size_t n, gw_lowrank_how how, float *out)
{
    size_t j = 0;
    for (; j + ABREAST * LANES <= n; j += ABREAST * LANES) {
        vec sum[ABREAST];
        const vec first = splat(gw_lowrank_number(left, 0));
        for (size_t a = 0; a < ABREAST; a++) {
            sum[a] = times(first, load(right + 4 * (j + LANES * a)));
        }
        for (uint32_t k = 1; k < rank; k++) {
            const vec p = splat(gw_lowrank_number(left, k));
            const uint8_t *q = right + 4 * (k * stride + j);
            for (size_t a = 0; a < ABREAST; a++) {
                sum[a] = plus(sum[a], times(p, load(q + 4 * LANES * a)));
            }
        }
        for (size_t a = 0; a < ABREAST; a++) {
            float *to = out + j + LANES * a;
            store(to, how == GW_LOWRANK_SET   ? sum[a]
                      : how == GW_LOWRANK_ADD ? plus(load((const uint8_t *)to), sum[a])
                                              : minus(load((const uint8_t *)to), sum[a]));
        }
    }
    gw_lowrank_scalar.row(left, right + 4 * j, stride, rank, n - j, how, out + j);
}

static void row(const uint8_t *left, const uint8_t *right, size_t stride, uint32_t rank, size_t n,
                gw_lowrank_how how, float *out)
{
    if (how == GW_LOWRANK_SET) {
        row_how(left, right, stride, rank, n, GW_LOWRANK_SET, out);
    } else if (how == GW_LOWRANK_ADD) {
        row_how(left, right, stride, rank, n, GW_LOWRANK_ADD, out);
    } else {
        row_how(left, right, stride, rank, n, GW_LOWRANK_TAKE, out);
    }
}
