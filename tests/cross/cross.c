/* One digest a spec over everything the codecs make of a fixed set of inputs: bytes, reports, decoded bits.
 * Two machines, or two instruction sets, agree if and only if they print the same. check_cross.sh runs it
 * on this machine and on emulated ones; so it needs nothing but the library, and its inputs are made of
 * integers, since libraries of mathematics differ in last bits.
 *     cross [--isa NAME] [--odd-floats] [--picks]
 * Prints `DIGEST ISA SPEC` lines and the number of cases. --odd-floats: the caller rounds down and flushes
 * subnormals. --picks: print the instruction set that auto takes, and stop. Exits with 3 where the library
 * says unsupported. Every buffer ends where a page begins that must not be touched, since there is no
 * AddressSanitizer under emulation. lowrank is left out: no BLAS is built for the other machine, and two
 * machines' BLAS need not agree in last bits. */
#define _DEFAULT_SOURCE
#ifndef GW_TESTS_NO_BLAS
#    define GW_TESTS_NO_BLAS
#endif
#include "base/numeric.h"
#include "codec/specs.h"

#include <gradwire/gradwire.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { UNSUPPORTED = 3 };
enum { MAX_N = 8300, ROOM = 1 << 20 };

/* More than a vector and less, more than a group and less, whole and broken buckets and blocks. */
static const size_t shapes[] = {0,  1,  7,  15,  16,  17,  31,  32,   33,
                                63, 64, 65, 100, 127, 129, 513, 4097, MAX_N};
static const gw_dtype dtypes[] = {GW_F32, GW_F16, GW_BF16};
enum { SHAPES = sizeof shapes / sizeof shapes[0], DTYPES = sizeof dtypes / sizeof dtypes[0] };

typedef enum content {
    NORMAL,
    HEAVY,
    SPARSE,
    EQUAL,
    POWERS,
    SUBNORMAL,
    TINY_LARGE,
    HUGE_ONES,
    EDGE,
    ZEROS,
    ANY_BITS,
    FINITE_BITS,
    ONE_NAN,
    ONE_INFINITY,
    CONTENTS
} content;

/* Where each buffer ends; ROOM bytes before it are its own, and the page behind it is not to be touched. */
static uint8_t *in_end, *out_end, *residual_end, *after_end, *payload_end;
static _Alignas(64) uint8_t workspace[ROOM];
static int odd_floats;

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* Random sign and mantissa, the exponent given. */
static uint32_t with_exponent(uint64_t random, uint32_t exponent)
{
    return ((uint32_t)random & 0x807FFFFFu) | exponent << GW_MANT_BITS;
}

/* An fp32 pattern. Each halving of the magnitude is half as likely: numbers of one size, as if evenly
 * spread around zero. */
static uint32_t of_size(uint64_t random, uint32_t largest_exponent)
{
    const uint32_t halvings = (uint32_t)__builtin_ctzll(random >> 32 | 1u << 24);
    return with_exponent(random, largest_exponent - halvings);
}

static uint32_t one(uint64_t random, content what, uint32_t constant)
{
    const uint32_t bits = (uint32_t)random, high = (uint32_t)(random >> 32);
    switch (what) {
    case NORMAL:
    case ONE_NAN:
    case ONE_INFINITY:
        return of_size(random, 117);
    case HEAVY:
        return with_exponent(random, 100 + high % 40);
    case SPARSE:
        return high >> 30 != 0 ? 0 : of_size(random, 135);
    case EQUAL:
        return constant;
    case POWERS:
        return (bits & GW_SIGN_BIT) | (1 + high % 254) << GW_MANT_BITS;
    case SUBNORMAL:
        return bits & 0x807FFFFFu;
    case TINY_LARGE:
        return high % 3 == 0 ? bits & 0x807FFFFFu : of_size(random, 227);
    case HUGE_ONES:
        return with_exponent(random, 247 + high % 8);
    case EDGE: /* of an 8-bit block whose largest exponent is 200: its smallest level, and below */
        return high % 3 == 0 ? with_exponent(random, 73)
                             : (bits & GW_SIGN_BIT) | (high % 3 == 1 ? 74u : 200u) << GW_MANT_BITS;
    case ZEROS:
        return bits & GW_SIGN_BIT;
    case FINITE_BITS:
        return (bits & GW_ABS_MASK) >= GW_INF_BITS ? bits & 0xBFFFFFFFu : bits;
    case ANY_BITS:
    case CONTENTS:
        break;
    }
    return bits;
}

static void fill(uint64_t seed, content what, gw_dtype dtype, void *to, size_t n)
{
    const uint64_t key = next(&seed);
    const uint32_t constant = with_exponent(key, 90 + (uint32_t)(key >> 32) % 70);
    const size_t special = n != 0 ? next(&seed) % n : 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t random = next(&seed);
        uint32_t bits = one(random, what, constant);
        if (i == special && (what == ONE_NAN || what == ONE_INFINITY)) {
            bits = what == ONE_NAN ? 0x7FA12345u : GW_INF_BITS | GW_SIGN_BIT; /* a signalling NaN */
        }
        if (dtype == GW_F32) {
            ((uint32_t *)to)[i] = bits;
        } else if (what == ANY_BITS) {
            ((uint16_t *)to)[i] = (uint16_t)random;
        } else {
            const float v = gw_float(bits);
            ((uint16_t *)to)[i] = dtype == GW_F16 ? gw_f16_from_f32(v) : gw_bf16_from_f32(v);
        }
    }
}

/* Which of its patterns a decoded NaN has is not specified (numerics.md, rule 7). */
static void one_nan(gw_dtype dtype, void *values, size_t n)
{
    const uint16_t infinity = dtype == GW_F16 ? 0x7C00 : 0x7F80;
    for (size_t i = 0; i < n; i++) {
        uint32_t *wide = (uint32_t *)values + i;
        uint16_t *half = (uint16_t *)values + i;
        if (dtype == GW_F32) {
            *wide = (*wide & GW_ABS_MASK) > GW_INF_BITS ? GW_NAN_BITS : *wide;
        } else {
            *half = (*half & 0x7FFF) > infinity ? 0x7FFF : *half;
        }
    }
}

static uint64_t floats_now(void)
{
#if defined(__x86_64__)
    return _mm_getcsr() & 0xFFC0; /* without the flags that arithmetic raises */
#elif defined(__aarch64__)
    uint64_t now;
    __asm__ volatile("mrs %0, fpcr" : "=r"(now));
    return now;
#else
    return 0;
#endif
}

static void set_floats(uint64_t to)
{
#if defined(__x86_64__)
    _mm_setcsr((uint32_t)to);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(to) : "memory");
#else
    (void)to;
#endif
}

/* Rounds down, flushes subnormals; on aarch64 also other halves, one NaN. */
static uint64_t odd_setting(void)
{
#if defined(__x86_64__)
    return 0x1F80 | 0x8040 | 0x2000;
#else
    return 1u << 26 | 1u << 25 | 1u << 24 | 2u << 22 | 1u << 19;
#endif
}

/* Only the library runs with the odd setting: what this program makes must not depend on it. */
static uint64_t plain_floats;

static void begin_odd(void)
{
    set_floats(odd_floats ? odd_setting() : plain_floats);
}

static void end_odd(void)
{
    const uint64_t left = floats_now();
    set_floats(plain_floats);
    if (left != (odd_floats ? odd_setting() : plain_floats)) {
        (void)fprintf(stderr, "cross: the caller's floating-point setting was changed\n");
        exit(1);
    }
}

static void expect(gw_status status, const char *spec, const char *what)
{
    if (status != GW_OK) {
        (void)fprintf(stderr, "cross: %s: %s: %s\n", spec, what, gw_status_string(status));
        exit(status == GW_ERR_UNSUPPORTED ? UNSUPPORTED : 1);
    }
}

static uint8_t *fenced(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (ROOM + page - 1) / page * page;
    uint8_t *p =
        mmap(NULL, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + bytes, page, PROT_NONE) != 0) {
        perror("cross");
        exit(1);
    }
    return p + bytes;
}

static uint64_t joined(uint64_t digest, const void *data, size_t bytes)
{
    return XXH3_64bits_withSeed(data, bytes, digest);
}

typedef struct cross_case {
    const char *spec;
    gw_params params;
    gw_exec exec;
    gw_stream stream;
    gw_dtype dtype;
    size_t n;
} cross_case;

static uint64_t encoded(const cross_case *c, int feedback, uint64_t digest, size_t *written)
{
    const gw_tensor tensor = {in_end - c->n * gw_dtype_size(c->dtype), c->n, c->dtype};
    const float *residual = (const float *)(void *)residual_end - c->n;
    float *after = (float *)(void *)after_end - c->n;
    gw_report report = {0};
    size_t bound = 0;
    expect(gw_payload_bound(&c->params, c->n, &bound), c->spec, "bound");
    uint8_t *payload = payload_end - bound; /* at any address: payloads have no alignment */
    memset(payload, 0x5A, bound);
    begin_odd();
    const gw_status status =
        feedback ? gw_encode_feedback(&c->params, &c->exec, &c->stream, &tensor, residual, after,
                                      payload, bound, written, &report)
                 : gw_encode(&c->params, &c->exec, &c->stream, &tensor, payload, bound, written,
                             &report);
    end_odd();
    expect(status, c->spec, "encode");
    if (feedback) {
        one_nan(GW_F32, after, c->n);
        digest = joined(digest, after, c->n * sizeof *after);
    }
    digest = joined(joined(digest, &report, sizeof report), payload, *written);
    memmove(payload_end - *written, payload, *written);
    return digest;
}

static uint64_t decoded(const cross_case *c, gw_apply how, uint64_t digest, size_t written)
{
    const size_t bytes = c->n * gw_dtype_size(c->dtype);
    gw_tensor tensor = {out_end - bytes, c->n, c->dtype};
    fill(c->n, NORMAL, c->dtype, tensor.data, c->n);
    begin_odd();
    const gw_status status =
        gw_decode(&c->params, &c->exec, payload_end - written, written, how, &tensor, NULL);
    end_odd();
    expect(status, c->spec, "decode");
    one_nan(c->dtype, tensor.data, c->n);
    return joined(digest, tensor.data, bytes);
}

static uint64_t run_case(const cross_case *c, content what, uint64_t digest)
{
    const uint64_t seed = c->n + 10007u * (uint64_t)what;
    fill(seed, what, c->dtype, in_end - c->n * gw_dtype_size(c->dtype), c->n);
    fill(seed + 1, NORMAL, GW_F32, residual_end - c->n * sizeof(float), c->n);
    /* every seventh sum is exactly zero, while its gradient may be the bin's largest */
    float *residual = (float *)(void *)(residual_end - c->n * sizeof(float));
    const float *in = (const float *)(const void *)(in_end - c->n * sizeof(float));
    for (size_t i = 3; c->dtype == GW_F32 && i < c->n; i += 7) {
        residual[i] = isfinite(in[i]) ? -in[i] : 0; /* residuals are finite */
    }
    size_t written = 0;
    digest = encoded(c, 1, digest, &written);
    digest = encoded(c, 0, digest, &written);
    digest = decoded(c, GW_SET, digest, written);
    return decoded(c, GW_ADD, digest, written);
}

/* The variant that a call uses: codec.c's rule. */
static gw_isa isa_used(const gw_codec *codec, gw_isa asked)
{
    gw_isa isa = asked == GW_ISA_AUTO ? gw_isa_best() : asked;
    while (!gw_codec_has_isa(codec, isa)) {
        isa = (gw_isa)(isa - 1);
    }
    return isa;
}

static uint64_t run_spec(const char *spec, gw_isa isa)
{
    cross_case c = {.spec = spec, .exec = {.isa = isa}};
    uint64_t digest = 0, cases = 0;
    expect(gw_params_parse(&c.params, spec, NULL), spec, "parse");
    /* where the random numbers' key changes; not for codecs that only take a whole tensor */
    const uint64_t grain = gw_codec_grain(&c.params), two33 = (uint64_t)1 << 33;
    const uint64_t across = grain != 0 && grain <= MAX_N ? (two33 / grain - 1) * grain : 0;
    for (size_t d = 0; d < DTYPES; d++) {
        c.dtype = dtypes[d];
        c.exec.workspace = (gw_workspace){workspace, sizeof workspace};
        for (size_t n = 0; n < SHAPES; n++) {
            c.n = shapes[n];
            for (int what = 0; what < CONTENTS; what++, cases++) {
                c.stream = (gw_stream){1, 2, 3, 4, 5, what % 2 == 0 ? 0 : across};
                digest = run_case(&c, (content)what, digest);
            }
        }
    }
    printf("%016llx %s %s\n", (unsigned long long)digest,
           gw_isa_name(isa_used(c.params.codec, isa)), spec);
    return cases;
}

int main(int argc, char **argv)
{
    gw_isa isa = GW_ISA_AUTO;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--picks") == 0) {
            printf("%s\n", gw_isa_name(gw_isa_best()));
            return 0;
        }
        if (strcmp(argv[i], "--odd-floats") == 0) {
            odd_floats = 1;
        } else if (strcmp(argv[i], "--isa") != 0 || ++i == argc ||
                   gw_isa_find(argv[i], &isa) != GW_OK) {
            (void)fprintf(stderr, "usage: cross [--isa NAME] [--odd-floats] [--picks]\n");
            return 2;
        }
    }
    uint8_t **const ends[] = {&in_end, &out_end, &residual_end, &after_end, &payload_end};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        *ends[i] = fenced();
    }
    plain_floats = floats_now();
    uint64_t cases = 0;
    for (size_t s = 0; s < ALL_SPECS; s++) {
        cases += run_spec(all_specs[s], isa);
    }
    printf("cases %llu\n", (unsigned long long)cases);
    return 0;
}
