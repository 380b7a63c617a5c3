/* What the fuzz targets share: reading choices off the input, buffers that end exactly where they
 * say, and checks that abort. A target takes any bytes; what it aborts on is a bug. */
#ifndef GW_TESTS_FUZZ_H
#define GW_TESTS_FUZZ_H

#include <gradwire/gradwire.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_fail(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: %s\n", file, line, condition);
    abort();
}

/* Like assert, but also in builds with NDEBUG. */
#define REQUIRE(condition) ((condition) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #condition))

/* ---- choices ---- */

/* Past the end of the input every byte is zero. */
typedef struct fuzz_input {
    const uint8_t *at;
    size_t left;
} fuzz_input;

static inline uint64_t fuzz_take(fuzz_input *in, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes && in->left != 0; i++) {
        value |= (uint64_t)*in->at++ << 8 * i;
        in->left--;
    }
    return value;
}

/* A value of the parameter: ranges of few whole numbers wrap, larger ones go by powers of two, and
 * those of any number are cut into even steps. */
static inline double fuzz_value(const gw_param_info *info, unsigned b)
{
    const double span = info->max - info->min + 1;
    if (info->min != floor(info->min)) {
        return info->min + (info->max - info->min) * (b % 64) / 63;
    }
    if (span <= 64) {
        return info->min + b % (unsigned)span;
    }
    return info->min > 0 ? ldexp(info->min, (int)(b % 8)) : ldexp(1, (int)(b % 16)) - 1;
}

/* One byte a parameter, most of them good. */
static inline void fuzz_take_params(fuzz_input *in, const gw_codec *codec, gw_params *params)
{
    REQUIRE(gw_params_init(params, codec) == GW_OK);
    for (size_t i = 0; i < gw_codec_param_count(codec); i++) {
        const gw_param_info *info = gw_codec_param(codec, i);
        const unsigned b = (unsigned)fuzz_take(in, 1);
        switch (b) {
        case 0xFF:
            params->value[i] = info->min - 1;
            break;
        case 0xFE:
            params->value[i] = info->max + 1;
            break;
        case 0xFD:
            params->value[i] = info->min + 0.5;
            break;
        case 0xFC:
            params->value[i] = NAN;
            break;
        default:
            params->value[i] = fuzz_value(info, b);
        }
    }
}

/* ---- buffers ---- */

/* `data` has exactly `size` bytes, `shift` bytes off the allocator's alignment. Under
 * AddressSanitizer one byte further is a report; else fuzz_release looks whether the bytes around
 * were written to. */
typedef struct fuzz_buffer {
    uint8_t *base, *data;
    size_t size, shift;
} fuzz_buffer;

#if defined(__SANITIZE_ADDRESS__)
enum { FUZZ_GUARD = 0 };
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer)
enum { FUZZ_GUARD = 0 };
#    else
enum { FUZZ_GUARD = 64 };
#    endif
#else
enum { FUZZ_GUARD = 64 };
#endif

static inline fuzz_buffer fuzz_acquire(size_t size, size_t shift)
{
    fuzz_buffer b = {.size = size, .shift = shift + FUZZ_GUARD};
    b.base = malloc(b.shift + size + FUZZ_GUARD);
    REQUIRE(b.base != NULL);
    memset(b.base, 0xC5, b.shift + size + FUZZ_GUARD);
    b.data = b.base + b.shift;
    return b;
}

static inline fuzz_buffer fuzz_copy(const void *bytes, size_t size, size_t shift)
{
    fuzz_buffer b = fuzz_acquire(size, shift);
    if (size != 0) {
        memcpy(b.data, bytes, size);
    }
    return b;
}

static inline void fuzz_release(fuzz_buffer *b)
{
    for (size_t i = 0; i < b->shift; i++) {
        REQUIRE(b->base[i] == 0xC5);
    }
    const size_t guard = FUZZ_GUARD; /* none where AddressSanitizer watches */
    for (size_t i = 0; i < guard; i++) {
        REQUIRE(b->data[b->size + i] == 0xC5);
    }
    free(b->base);
    *b = (fuzz_buffer){0};
}

/* ---- running ---- */

/* With the workspace that gw_codec_workspace asks for, exactly, which may lie anywhere. */
static inline gw_exec fuzz_exec(const gw_params *params, gw_dtype dtype, size_t count, gw_isa isa,
                                size_t shift, fuzz_buffer *workspace)
{
    size_t bytes = 0;
    REQUIRE(gw_codec_workspace(params, dtype, count, 0, 1, &bytes) == GW_OK);
    *workspace = fuzz_acquire(bytes, shift);
    return (gw_exec){.isa = isa, .workspace = {workspace->data, bytes}};
}

static inline int fuzz_fixed_size(const gw_params *params)
{
    return (gw_params_flags(params) & GW_CODEC_FIXED_SIZE) != 0;
}

static inline int fuzz_isa_runs(const gw_params *params, int isa)
{
    return gw_codec_has_isa(params->codec, (gw_isa)isa) && gw_isa_runs_here((gw_isa)isa);
}

/* ---- comparing ---- */

/* The element's bits, a NaN of any pattern as ~0. */
static inline uint32_t fuzz_element(const uint8_t *data, gw_dtype dtype, size_t i)
{
    if (dtype == GW_F32) {
        uint32_t bits;
        memcpy(&bits, data + 4 * i, 4);
        return (bits & 0x7FFFFFFFu) > 0x7F800000u ? ~0u : bits;
    }
    uint16_t bits;
    memcpy(&bits, data + 2 * i, 2);
    return (bits & 0x7FFFu) > (dtype == GW_F16 ? 0x7C00u : 0x7F80u) ? ~0u : bits;
}

static inline int fuzz_is_finite(const uint8_t *data, gw_dtype dtype, size_t i)
{
    const uint32_t bits = fuzz_element(data, dtype, i);
    const uint32_t infinite = dtype == GW_F32 ? 0x7F800000u : dtype == GW_F16 ? 0x7C00u : 0x7F80u;
    return (bits & (dtype == GW_F32 ? 0x7FFFFFFFu : 0x7FFFu)) < infinite;
}

static inline void fuzz_require_same(const uint8_t *a, const uint8_t *b, gw_dtype dtype, size_t n)
{
    if (n == 0 || memcmp(a, b, n * gw_dtype_size(dtype)) == 0) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        REQUIRE(fuzz_element(a, dtype, i) == fuzz_element(b, dtype, i));
    }
}

/* A reason is text: it ends, and it says something. */
static inline void fuzz_require_reason(const char *text, size_t size)
{
    REQUIRE(memchr(text, '\0', size) != NULL && text[0] != '\0');
}

#endif
