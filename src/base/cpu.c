/* Which instruction sets this processor and operating system run. */
#include <gradwire/base.h>

#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#    include <cpuid.h>
#endif

static const char *const names[GW_ISA_COUNT] = {"auto", "scalar", "avx2", "avx512", "neon"};

const char *gw_isa_name(gw_isa isa)
{
    return isa >= GW_ISA_AUTO && isa < GW_ISA_COUNT ? names[isa] : "unknown";
}

gw_status gw_isa_find(const char *name, gw_isa *out)
{
    for (int i = 0; name != NULL && i < GW_ISA_COUNT; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (gw_isa)i;
            return GW_OK;
        }
    }
    return GW_ERR_UNKNOWN;
}

#if defined(__x86_64__)
/* Half conversions are an extension of their own, and not among the names every compiler knows. The
 * answer is kept: in a virtual machine asking the processor costs microseconds, more than encoding
 * a small tensor. Threads that ask at once find the same. */
static int has_f16c(void)
{
    enum { UNKNOWN, NO, YES };
    static _Atomic int known = UNKNOWN;
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == UNKNOWN) {
        unsigned a, b, c, d;
        answer = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0 ? YES : NO;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == YES;
}
#endif

int gw_isa_runs_here(gw_isa isa)
{
    switch (isa) {
    case GW_ISA_AUTO:
    case GW_ISA_SCALAR:
        return 1;
#if defined(__x86_64__)
    case GW_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && has_f16c();
    case GW_ISA_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
               has_f16c();
#else
    case GW_ISA_AVX2:
    case GW_ISA_AVX512:
        break;
#endif
    case GW_ISA_NEON: /* part of the architecture, so every one has it */
#if defined(__aarch64__)
        return 1;
#endif
    case GW_ISA_COUNT:
        break;
    }
    return 0;
}

gw_isa gw_isa_best(void)
{
    gw_isa best = GW_ISA_SCALAR;
    for (int i = GW_ISA_SCALAR; i < GW_ISA_COUNT; i++) {
        if (gw_isa_runs_here((gw_isa)i)) {
            best = (gw_isa)i;
        }
    }
    return best;
}
