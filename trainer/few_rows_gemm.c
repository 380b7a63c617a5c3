/* b lies in panels of PANEL columns, each read from one end to the other while the sums of a group of rows stay in registers. The same
 * loops for every instruction set; whoever adds without rounding the product first may. */
#include "trainer/few_rows_gemm.h"

#include "trainer/wide.h"

#include <string.h>

enum { LANES = 16, PANEL = 2 * LANES, MOST_ROWS = 8 };
typedef float vector __attribute__((vector_size(LANES * sizeof(float))));
/* the same, anywhere in an array of floats */
typedef float floats __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

size_t few_rows_room(size_t n, size_t k)
{
    return (n + PANEL - 1) / PANEL * PANEL * k;
}

void few_rows_pack(turned b_turned, size_t n, size_t k, const float *b, float *packed)
{
    enum { SIDE = 16 }; /* of squares that the nearest cache holds on both sides */
    memset(packed, 0, few_rows_room(n, k) * sizeof *packed);
    for (size_t first = 0; first < n; first += PANEL) {
        const size_t columns = n - first < PANEL ? n - first : PANEL;
        float *panel = packed + first * k;
        for (size_t p = 0; p < k; p += SIDE) {
            for (size_t i = p; i < k && i < p + SIDE; i++) {
                for (size_t j = 0; j < columns; j++) {
                    panel[i * PANEL + j] = b_turned ? b[(first + j) * k + i] : b[i * n + first + j];
                }
            }
        }
    }
}

/* `rows` and `vectors` are constants where this is inlined; unrolled, the sums are registers. */
ALWAYS_INLINE void add_block(size_t rows, size_t vectors, size_t n, size_t k, const float *a,
                             const float *panel, float *c)
{
    vector sums[MOST_ROWS * PANEL / LANES] = {{0}};
    for (size_t p = 0; p < k; p++) {
#pragma GCC unroll 16
        for (size_t i = 0; i < rows * vectors; i++) {
            sums[i] += a[i / vectors * k + p] *
                       *(const floats *)(const void *)(panel + p * PANEL + i % vectors * LANES);
        }
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < rows * vectors; i++) {
        *(floats *)(void *)(c + i / vectors * n + i % vectors * LANES) += sums[i];
    }
}

/* The last panel, where it is not whole. */
ALWAYS_INLINE void add_rest(size_t rows, size_t columns, size_t n, size_t k, const float *a,
                            const float *panel, float *c)
{
    for (size_t i = 0; i < rows; i++) {
        for (size_t p = 0; p < k; p++) {
            for (size_t j = 0; j < columns; j++) {
                c[i * n + j] += a[i * k + p] * panel[p * PANEL + j];
            }
        }
    }
}

ALWAYS_INLINE void add_rows(size_t rows, size_t vectors, size_t n, size_t k, const float *a,
                            const float *packed, float *c)
{
    size_t first = 0;
    for (; first + PANEL <= n; first += PANEL) {
        for (size_t j = 0; j < PANEL; j += vectors * LANES) {
            add_block(rows, vectors, n, k, a, packed + first * k + j, c + first + j);
        }
    }
    add_rest(rows, n - first, n, k, a, packed + first * k, c + first);
}

ALWAYS_INLINE void add_all(size_t rows, size_t vectors, size_t m, size_t n, size_t k,
                           const float *a, const float *packed, float *c)
{
    size_t i = 0;
    for (; i + rows <= m; i += rows) {
        add_rows(rows, vectors, n, k, a + i * k, packed, c + i * n);
    }
    for (; i < m; i++) {
        add_rows(1, vectors, n, k, a + i * k, packed, c + i * n);
    }
}

#if defined(__x86_64__)
WIDE_VECTORS static void add_avx512(size_t m, size_t n, size_t k, const float *a,
                                    const float *packed, float *c)
{
    add_all(8, 2, m, n, k, a, packed, c);
}

__attribute__((target("avx2,fma"))) static void
add_avx2(size_t m, size_t n, size_t k, const float *a, const float *packed, float *c)
{
    add_all(4, 1, m, n, k, a, packed, c);
}
#endif

void few_rows(size_t m, size_t n, size_t k, const float *a, const float *packed, float *c)
{
#if defined(__x86_64__)
    if (has_wide_vectors()) {
        add_avx512(m, n, k, a, packed, c);
        return;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        add_avx2(m, n, k, a, packed, c);
        return;
    }
#endif
    add_all(4, 1, m, n, k, a, packed, c);
}
