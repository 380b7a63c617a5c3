/* What codecs are timed beside; see bench_reference.h. */
#include "cli/bench/bench_reference.h"

#include <pthread.h>
#include <string.h>

#include <gradwire/gradwire.h>

#include "cli/seconds.h"

typedef struct span {
    float *d;
    const float *s, *t;
    size_t n;
    gw_cli_reference what;
} span;

#define LOOPS                                                                                      \
    for (size_t i = 0; what == GW_CLI_ADD && i < n; i++) {                                         \
        d[i] += s[i];                                                                              \
    }                                                                                              \
    for (size_t i = 0; what == GW_CLI_SUM && i < n; i++) {                                         \
        d[i] = s[i] + t[i];                                                                        \
    }

static void loops_plain(gw_cli_reference what, float *restrict d, const float *restrict s,
                        const float *restrict t, size_t n)
{
    LOOPS
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void loops_avx2(gw_cli_reference what, float *restrict d,
                                                       const float *restrict s,
                                                       const float *restrict t, size_t n)
{
    LOOPS
}
#else
#    define loops_avx2 loops_plain
#endif

static void *run_span(void *arg)
{
    const span *s = arg;
    if (s->what == GW_CLI_COPY) {
        memcpy(s->d, s->s, s->n * sizeof(float));
    } else if (gw_isa_runs_here(GW_ISA_AVX2)) {
        loops_avx2(s->what, s->d, s->s, s->t, s->n);
    } else {
        loops_plain(s->what, s->d, s->s, s->t, s->n);
    }
    return NULL;
}

double gw_cli_time_reference(gw_cli_reference what, float *d, const float *s, const float *t,
                             size_t n, unsigned n_threads, size_t inner)
{
    span spans[GW_POOL_MAX_THREADS];
    pthread_t threads[GW_POOL_MAX_THREADS];
    const size_t each = n / n_threads;
    for (unsigned i = 0; i < n_threads; i++) {
        const size_t at = i * each, m = i + 1 < n_threads ? each : n - at;
        spans[i] = (span){d + at, s + at, t + at, m, what};
    }
    const double begin = gw_cli_now();
    for (size_t k = 0; k < inner; k++) {
        unsigned started = 1;
        while (started < n_threads &&
               pthread_create(&threads[started], NULL, run_span, &spans[started]) == 0) {
            started++;
        }
        for (unsigned i = started; i < n_threads; i++) {
            (void)run_span(&spans[i]);
        }
        (void)run_span(&spans[0]);
        while (started > 1) {
            (void)pthread_join(threads[--started], NULL);
        }
    }
    return (gw_cli_now() - begin) / (double)inner;
}

static uint32_t median_of_3(uint32_t a, uint32_t b, uint32_t c)
{
    const uint32_t low = a < b ? a : b, high = a < b ? b : a;
    return c < low ? low : c > high ? high : c;
}

/* Quickselect, as in C++'s nth_element: a[k] becomes what it would be were a[0 … n−1] sorted, with nothing
 * larger before it and nothing smaller behind. */
static void nth_element(uint32_t *a, ptrdiff_t n, ptrdiff_t k)
{
    ptrdiff_t left = 0, right = n - 1;
    while (right > left) {
        const uint32_t pivot = median_of_3(a[left], a[left + (right - left) / 2], a[right]);
        ptrdiff_t i = left, j = right;
        while (i <= j) { /* Hoare's partition: a[left … j] ≤ pivot ≤ a[i … right] */
            while (a[i] < pivot) {
                i++;
            }
            while (a[j] > pivot) {
                j--;
            }
            if (i <= j) {
                const uint32_t swapped = a[i];
                a[i++] = a[j];
                a[j--] = swapped;
            }
        }
        left = j < k ? i : left;
        right = k < i ? j : right;
    }
}

static uint32_t magnitude_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7FFFFFFF;
}

void gw_cli_select_largest(const float *x, size_t n, size_t kept, uint32_t *magnitude,
                           uint32_t *index, float *value)
{
    for (size_t i = 0; i < n; i++) {
        magnitude[i] = magnitude_of(x[i]);
    }
    const size_t rank = n - kept;
    nth_element(magnitude, (ptrdiff_t)n, (ptrdiff_t)rank);
    const uint32_t least = magnitude[rank];
    size_t ties = 0, m = 0;
    for (size_t i = rank; i < n; i++) {
        ties += magnitude[i] == least;
    }
    for (size_t i = 0; i < n; i++) {
        const uint32_t a = magnitude_of(x[i]);
        if (a < least || (a == least && ties == 0)) {
            continue;
        }
        ties -= a == least;
        index[m] = (uint32_t)i;
        value[m++] = x[i];
    }
}
