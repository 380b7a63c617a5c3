/* Low rank's loops, written once for every vector width. The including file defines, before:
 *   vec, LANES, load(p), store(p, v), store_past(p, v), splat(x), plus(a, b), minus(a, b), times(a, b)
 * load takes bytes of any alignment. Tails go to the scalar variant. */

/* Registers of sums side by side; the same where rows are added up. */
enum { ABREAST = 4, BESIDE = 2 };

GW_INLINE void products(const uint8_t *left, const uint8_t *right, size_t stride, uint32_t rank,
                        vec sum[ABREAST])
{
    const vec first = splat(gw_lowrank_number(left, 0));
    for (size_t a = 0; a < ABREAST; a++) {
        sum[a] = times(first, load(right + 4 * LANES * a));
    }
    for (uint32_t k = 1; k < rank; k++) {
        const vec p = splat(gw_lowrank_number(left, k));
        for (size_t a = 0; a < ABREAST; a++) {
            sum[a] = plus(sum[a], times(p, load(right + 4 * (k * stride + LANES * a))));
        }
    }
}

static inline void row_how(const uint8_t *left, const uint8_t *right, size_t stride, uint32_t rank,
                           size_t n, gw_lowrank_how how, float *out)
{
    size_t j = 0;
    for (; j + ABREAST * LANES <= n; j += ABREAST * LANES) {
        vec sum[ABREAST];
        products(left, right + 4 * j, stride, rank, sum);
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

/* Numbers ahead at which memory is asked for, into the second-level cache: several rows at once are more than the processor foresees. */
enum { AHEAD = 512, FAR = 32 * 1024 };

GW_INLINE void ask(const float *x, size_t ahead)
{
    __builtin_prefetch((const void *)((uintptr_t)x + 4 * ahead), 0, 2); /* may lie beyond the end */
}

/* Of short rows the same place of the next ones that go together: further on in a row are its neighbours, which are there. */
GW_INLINE size_t ahead_of(size_t rows, size_t stride)
{
    return rows > 1 && rows * stride <= FAR ? rows * stride : AHEAD;
}

/* Registers of one step of 16 lanes; rows whose sums are all in registers. */
enum { WIDE = GW_LOWRANK_LANES / LANES, TOGETHER = LANES == 16 ? 4 : 1 };

GW_INLINE void project_how(const gw_lowrank_rows *x, size_t rows, uint32_t rank, int due,
                           int around, float *p)
{
    vec sum[TOGETHER][GW_LOWRANK_THIN][WIDE];
    const size_t stride = x->stride, ahead = ahead_of(rows, stride);
    for (size_t i = 0; i < rows; i++) {
        for (uint32_t k = 0; k < rank; k++) {
            for (size_t w = 0; w < WIDE; w++) {
                sum[i][k][w] = splat(0);
            }
        }
    }
    size_t j = 0;
    for (; j + GW_LOWRANK_LANES <= x->n; j += GW_LOWRANK_LANES) {
        for (size_t w = 0; w < WIDE; w++) {
            const size_t at = j + LANES * w;
            vec right[GW_LOWRANK_THIN], q[GW_LOWRANK_THIN];
            for (uint32_t k = 0; k < rank; k++) {
                q[k] = load((const uint8_t *)(x->q + k * stride + at));
                right[k] = due ? load((const uint8_t *)(x->right + k * stride + at)) : q[k];
            }
            for (size_t i = 0; i < rows; i++) {
                vec v = load((const uint8_t *)(x->r + i * stride + at));
                ask(x->r + i * stride + at, ahead);
                ask(x->g + i * stride + at, ahead);
                if (due) {
                    vec taken = times(splat(x->left[i * rank]), right[0]);
                    for (uint32_t k = 1; k < rank; k++) {
                        taken = plus(taken, times(splat(x->left[i * rank + k]), right[k]));
                    }
                    v = minus(v, taken);
                }
                v = plus(load((const uint8_t *)(x->g + i * stride + at)), v);
                if (around) {
                    store_past(x->after + i * stride + at, v);
                } else {
                    store(x->after + i * stride + at, v);
                }
                for (uint32_t k = 0; k < rank; k++) {
                    sum[i][k][w] = plus(sum[i][k][w], times(v, q[k]));
                }
            }
        }
    }
    for (size_t i = 0; i < rows; i++) {
        float lane[GW_LOWRANK_THIN][GW_LOWRANK_LANES];
        for (uint32_t k = 0; k < rank; k++) {
            for (size_t w = 0; w < WIDE; w++) {
                store(lane[k] + LANES * w, sum[i][k][w]);
            }
        }
        const gw_lowrank_rows rest = gw_lowrank_rest(x, rank, i, j);
        gw_lowrank_end(&rest, rank, lane, p + i * rank);
    }
}

GW_INLINE void project_rank(const gw_lowrank_rows *x, size_t rows, uint32_t rank, float *p)
{
    const gw_lowrank_rows here = *x; /* the results may alias *x, but not this */
    const int around = here.past && (uintptr_t)here.after % (4 * LANES) == 0 &&
                       (rows == 1 || here.stride % LANES == 0);
    if (here.left == NULL) {
        project_how(&here, rows, rank, 0, around, p);
    } else if (around) {
        project_how(&here, rows, rank, 1, 1, p);
    } else {
        project_how(&here, rows, rank, 1, 0, p);
    }
}

GW_INLINE void project_rows(const gw_lowrank_rows *x, size_t rows, uint32_t rank, float *p)
{
    if (rank == 4) {
        project_rank(x, rows, 4, p);
    } else if (rank == 3) {
        project_rank(x, rows, 3, p);
    } else if (rank == 2) {
        project_rank(x, rows, 2, p);
    } else {
        project_rank(x, rows, 1, p);
    }
}

static void project(const gw_lowrank_rows *x, size_t rows, uint32_t rank, float *p)
{
    size_t i = 0;
    for (; i + TOGETHER <= rows; i += TOGETHER) {
        const gw_lowrank_rows some = gw_lowrank_rest(x, rank, i, 0);
        project_rows(&some, TOGETHER, rank, p + i * rank);
    }
    for (; i < rows; i++) {
        const gw_lowrank_rows one = gw_lowrank_rest(x, rank, i, 0);
        project_rows(&one, 1, rank, p + i * rank);
    }
}

GW_INLINE void gather_rank(const float *left, const float *g, size_t stride, uint32_t rank,
                           size_t rows, size_t n, float *to)
{
    const size_t ahead = ahead_of(rows, stride);
    for (size_t j = 0; j + BESIDE * LANES <= n; j += BESIDE * LANES) {
        vec sum[GW_LOWRANK_THIN][BESIDE];
        for (uint32_t k = 0; k < rank; k++) {
            for (size_t a = 0; a < BESIDE; a++) {
                sum[k][a] = load((const uint8_t *)(to + k * stride + j + LANES * a));
            }
        }
        for (size_t i = 0; i < rows; i++) {
            for (size_t a = 0; a < BESIDE; a++) {
                const vec v = load((const uint8_t *)(g + i * stride + j + LANES * a));
                ask(g + i * stride + j + LANES * a, ahead);
                for (uint32_t k = 0; k < rank; k++) {
                    sum[k][a] = plus(sum[k][a], times(splat(left[i * rank + k]), v));
                }
            }
        }
        for (uint32_t k = 0; k < rank; k++) {
            for (size_t a = 0; a < BESIDE; a++) {
                store(to + k * stride + j + LANES * a, sum[k][a]);
            }
        }
    }
}

static void gather(const float *left, const float *g, size_t stride, uint32_t rank, size_t rows,
                   size_t n, float *to)
{
    const size_t done = n - n % (BESIDE * LANES);
    if (rank == 4) {
        gather_rank(left, g, stride, 4, rows, done, to);
    } else if (rank == 3) {
        gather_rank(left, g, stride, 3, rows, done, to);
    } else if (rank == 2) {
        gather_rank(left, g, stride, 2, rows, done, to);
    } else {
        gather_rank(left, g, stride, 1, rows, done, to);
    }
    gw_lowrank_scalar.gather(left, g + done, stride, rank, rows, n - done, to + done);
}
