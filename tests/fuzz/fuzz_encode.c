/* gw_encode of any numbers. The first bytes choose the call, the rest are the elements' bits:
 *
 *     codec | dtype | mode | count, 2 | seed | step | tensor | point | rank | first, 8 |
 *     one a parameter | elements
 *
 * Every instruction set must write the same payload, of the length announced, with the same report;
 * the payload must decode, to the same bits everywhere; pieces must concatenate to the whole. A codec with
 * rounds goes through them too, with the sums, the state and the residual that the input says. */
#include "fuzz.h"

enum {
    TILED = 1,       /* `count` elements, the input's over and over; else those that are there */
    SHIFTED = 2,     /* the input is aligned to its elements, and no further */
    NO_STREAM = 4,   /* for deterministic settings only */
    OFF_GRAIN = 8,   /* a first index that is refused */
    UNALIGNED = 16,  /* payloads and workspaces have no alignment */
    OTHER_SUMS = 32, /* rounds: sums of the input's bytes instead of this rank's own */
    FEEDBACK = 64    /* rounds: with a residual, of the input's bytes */
};
enum { COUNT_MAX = 9000 }; /* more than two blocks of 4096, and than a scratch of 8192 */

typedef struct call {
    gw_params params;
    gw_dtype dtype;
    gw_stream stream;
    unsigned mode;
    size_t count, bound;
    fuzz_buffer elements;
} call;

/* What one encoding made. */
typedef struct coded {
    fuzz_buffer buffer; /* of the capacity, the first `bytes` of it the payload */
    size_t bytes;
    gw_report report;
} coded;

/* Encodes `n` elements from `begin` on into exactly `capacity` bytes. `blank` is what the buffer held
 * before: bytes left unwritten differ between calls with different ones. */
static gw_status encode(const call *c, gw_isa isa, size_t begin, size_t n, size_t capacity,
                        int blank, coded *out)
{
    fuzz_buffer workspace;
    const gw_exec exec =
        fuzz_exec(&c->params, c->dtype, c->count, isa, c->mode & UNALIGNED ? 1 : 0, &workspace);
    const gw_tensor in = {c->elements.data + begin * gw_dtype_size(c->dtype), n, c->dtype};
    gw_stream stream = c->stream;
    stream.first += begin;
    *out = (coded){.buffer = fuzz_acquire(capacity, c->mode & UNALIGNED ? 1 : 0)};
    out->bytes = SIZE_MAX;
    if (capacity != 0) {
        memset(out->buffer.data, blank, capacity);
    }
    const gw_status status = gw_encode(&c->params, &exec, c->mode & NO_STREAM ? NULL : &stream, &in,
                                       out->buffer.data, capacity, &out->bytes, &out->report);
    if (status != GW_OK) {
        REQUIRE(out->bytes == SIZE_MAX);
        fuzz_release(&out->buffer);
    } else {
        REQUIRE(fuzz_fixed_size(&c->params) ? out->bytes == capacity : out->bytes <= capacity);
    }
    fuzz_release(&workspace);
    return status;
}

static void require_same(const coded *a, const uint8_t *payload, size_t bytes)
{
    REQUIRE(a->bytes == bytes && (bytes == 0 || memcmp(a->buffer.data, payload, bytes) == 0));
}

/* |element|, of a finite one. */
static double magnitude(const uint8_t *data, gw_dtype dtype, size_t i)
{
    const uint32_t bits = fuzz_element(data, dtype, i);
    if (dtype == GW_F16) {
        const int exponent = (int)(bits >> 10 & 31);
        return ldexp((bits & 1023) + (exponent ? 1024 : 0), (exponent ? exponent : 1) - 25);
    }
    const uint32_t wide = (dtype == GW_F32 ? bits : bits << 16) & 0x7FFFFFFFu;
    float value;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

static void require_report(const call *c, const gw_report *report)
{
    uint64_t non_finite = 0;
    for (size_t i = 0; i < c->count; i++) {
        non_finite += !fuzz_is_finite(c->elements.data, c->dtype, i);
    }
    REQUIRE(report->non_finite == non_finite);
    REQUIRE(report->overflowed <= c->count - non_finite);
}

/* Whether the norm of the elements may be beyond their type: what is projected stays within the norm only
 * (docs/numerics.md, section 10). */
static int norm_overflows(const call *c)
{
    const double largest = c->dtype == GW_F16 ? 65504 : 0x1.FEp127;
    double most = 0;
    for (size_t i = 0; i < c->count; i++) {
        const double a = magnitude(c->elements.data, c->dtype, i);
        most = a > most ? a : most;
    }
    return most * sqrt((double)c->count) >= largest / 2;
}

/* docs/numerics.md, section 6: a non-finite number is never erased; and only it, or an overflow,
 * brings one about. A codec that selects (it has no grain) may show it elsewhere. */
static void require_values(const call *c, const gw_report *report, const uint8_t *out)
{
    const int selects = gw_codec_grain(&c->params) == 0;
    const int projects = (gw_params_flags(&c->params) & GW_CODEC_ROUNDS) != 0;
    uint64_t non_finite = 0;
    for (size_t i = 0; i < c->count; i++) {
        const int finite = fuzz_is_finite(out, c->dtype, i);
        REQUIRE(selects || fuzz_is_finite(c->elements.data, c->dtype, i) || !finite);
        non_finite += !finite;
    }
    REQUIRE(non_finite == 0 || report->non_finite != 0 || report->overflowed != 0 ||
            (projects && norm_overflows(c)));
    REQUIRE(non_finite != 0 || report->non_finite == 0);
}

static void require_decodes(const call *c, const coded *payload)
{
    fuzz_buffer first = {0};
    for (int isa = GW_ISA_SCALAR; isa < GW_ISA_COUNT; isa++) {
        if (!fuzz_isa_runs(&c->params, isa)) {
            continue;
        }
        fuzz_buffer workspace, out = fuzz_acquire(c->elements.size, 0);
        const gw_exec exec = fuzz_exec(&c->params, c->dtype, c->count, (gw_isa)isa, 0, &workspace);
        gw_tensor tensor = {out.data, c->count, c->dtype};
        REQUIRE(gw_decode(&c->params, &exec, payload->buffer.data, payload->bytes, GW_SET, &tensor,
                          NULL) == GW_OK);
        fuzz_release(&workspace);
        if (first.base == NULL) {
            require_values(c, &payload->report, out.data);
            first = out;
        } else {
            fuzz_require_same(first.data, out.data, c->dtype, c->count);
            fuzz_release(&out);
        }
    }
    fuzz_release(&first);
}

/* Cut at the first grain border. */
static void require_cuts(const call *c, gw_isa isa, const coded *whole)
{
    const size_t grain = gw_codec_grain(&c->params);
    size_t at = 0, rest = 0;
    if (grain == 0 || c->count <= grain) {
        return;
    }
    REQUIRE(gw_payload_bound(&c->params, grain, &at) == GW_OK);
    REQUIRE(gw_payload_bound(&c->params, c->count - grain, &rest) == GW_OK);
    coded left, right;
    REQUIRE(encode(c, isa, 0, grain, at, 0x5A, &left) == GW_OK);
    REQUIRE(encode(c, isa, grain, c->count - grain, rest, 0x5A, &right) == GW_OK);
    REQUIRE(left.bytes + right.bytes == whole->bytes);
    require_same(&left, whole->buffer.data, left.bytes);
    require_same(&right, whole->buffer.data + left.bytes, right.bytes);
    REQUIRE(left.report.non_finite + right.report.non_finite == whole->report.non_finite);
    REQUIRE(left.report.overflowed + right.report.overflowed == whole->report.overflowed);
    fuzz_release(&left.buffer);
    fuzz_release(&right.buffer);
}

static void require_status(const call *c, gw_status status)
{
    if (c->mode & NO_STREAM) {
        const int stochastic = (gw_params_flags(&c->params) & GW_CODEC_STOCHASTIC) != 0;
        REQUIRE(status == (stochastic ? GW_ERR_ARG : GW_OK));
    } else {
        REQUIRE(status == (c->mode & OFF_GRAIN ? GW_ERR_RANGE : GW_OK));
    }
}

static void run(const call *c)
{
    coded first = {0}, next;
    for (int isa = GW_ISA_SCALAR; isa < GW_ISA_COUNT; isa++) {
        if (!fuzz_isa_runs(&c->params, isa)) {
            continue;
        }
        const gw_status status = encode(c, (gw_isa)isa, 0, c->count, c->bound,
                                        first.buffer.base == NULL ? 0xA5 : 0x5A, &next);
        require_status(c, status);
        if (status != GW_OK) {
            continue;
        }
        if (!(c->mode & NO_STREAM)) {
            require_cuts(c, (gw_isa)isa, &next);
        }
        if (first.buffer.base == NULL) {
            require_report(c, &next.report);
            first = next;
            continue;
        }
        require_same(&next, first.buffer.data, first.bytes);
        REQUIRE(first.report.non_finite == next.report.non_finite);
        REQUIRE(first.report.overflowed == next.report.overflowed);
        fuzz_release(&next.buffer);
    }
    if (first.buffer.base == NULL) {
        return;
    }
    require_decodes(c, &first);
    if (first.bytes != 0 && fuzz_fixed_size(&c->params)) {
        REQUIRE(encode(c, GW_ISA_AUTO, 0, c->count, first.bytes - 1, 0, &next) == GW_ERR_CAPACITY);
    }
    fuzz_release(&first.buffer);
}

/* ---- rounds ---- */

/* Floats of the input's own bits, from byte `skip` on, over and over. */
static fuzz_buffer floats_of(const call *c, size_t n, size_t skip)
{
    fuzz_buffer out = fuzz_acquire(n * sizeof(float), 0);
    for (size_t i = 0; i < out.size; i++) {
        out.data[i] = c->elements.size != 0 ? c->elements.data[(i + skip) % c->elements.size] : 0;
    }
    return out;
}

/* One exchange; what is left of it, the caller's. */
typedef struct exchange {
    fuzz_buffer out, after, state_after;
} exchange;

static void run_round(const call *c, const gw_rounds *x, unsigned round, size_t n, exchange *e)
{
    fuzz_buffer own = fuzz_acquire(n * sizeof(float), 0), other = floats_of(c, n, round + 1);
    float *sum = (float *)(void *)(c->mode & OTHER_SUMS ? other.data : own.data);
    gw_tensor out = {e->out.data, c->count, c->dtype};
    size_t next = 0;
    REQUIRE(gw_rounds_make(x, round, (float *)(void *)own.data, NULL) == GW_OK);
    REQUIRE(gw_rounds_take(x, round, sum) == GW_OK);
    REQUIRE(gw_rounds_elements(&c->params, c->count, round + 1, &next) == GW_OK);
    if (next == 0) {
        REQUIRE(gw_rounds_decode(x, sum, GW_SET, &out) == GW_OK);
        REQUIRE(gw_rounds_decode(x, sum, GW_ADD, &out) == GW_OK);
    }
    fuzz_release(&own);
    fuzz_release(&other);
}

static exchange run_rounds(const call *c, gw_isa isa)
{
    size_t bytes = 0, floats = 0, n = 0;
    REQUIRE(gw_rounds_workspace(&c->params, c->count, &bytes) == GW_OK);
    REQUIRE(gw_rounds_state(&c->params, c->count, &floats) == GW_OK);
    fuzz_buffer workspace = fuzz_acquire(bytes, c->mode & UNALIGNED ? 1 : 0);
    fuzz_buffer state = floats_of(c, floats, 2), residual = floats_of(c, c->count, 3);
    exchange e = {.out = fuzz_acquire(c->elements.size, 0),
                  .after = fuzz_acquire(c->count * sizeof(float), 0),
                  .state_after = fuzz_acquire(floats * sizeof(float), 0)};
    const gw_exec exec = {.isa = isa, .workspace = {workspace.data, bytes}};
    const gw_tensor in = {c->elements.data, c->count, c->dtype};
    gw_rounds x = {.params = &c->params,
                   .exec = &exec,
                   .stream = &c->stream,
                   .in = &in,
                   .state = (const float *)(const void *)state.data,
                   .state_after = (float *)(void *)e.state_after.data};
    if (c->mode & FEEDBACK) {
        x.residual = (const float *)(const void *)residual.data;
        x.residual_after = (float *)(void *)e.after.data;
    }
    for (unsigned round = 0; gw_rounds_elements(&c->params, c->count, round, &n) == GW_OK && n != 0;
         round++) {
        run_round(c, &x, round, n, &e);
    }
    fuzz_release(&residual);
    fuzz_release(&state);
    fuzz_release(&workspace);
    return e;
}

/* On every instruction set the same. */
static void require_rounds(const call *c)
{
    exchange first = {0};
    for (int isa = GW_ISA_SCALAR; isa < GW_ISA_COUNT; isa++) {
        if (!fuzz_isa_runs(&c->params, isa)) {
            continue;
        }
        exchange e = run_rounds(c, (gw_isa)isa);
        if (first.out.base == NULL) {
            first = e;
            continue;
        }
        fuzz_require_same(first.out.data, e.out.data, c->dtype, c->count);
        fuzz_require_same(first.after.data, e.after.data, GW_F32, c->count);
        fuzz_require_same(first.state_after.data, e.state_after.data, GW_F32,
                          e.state_after.size / sizeof(float));
        fuzz_release(&e.out);
        fuzz_release(&e.after);
        fuzz_release(&e.state_after);
    }
    fuzz_release(&first.out);
    fuzz_release(&first.after);
    fuzz_release(&first.state_after);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    call c = {0};
    const gw_codec *codec = gw_codec_at(fuzz_take(&in, 1) % gw_codec_count());
    c.dtype = (gw_dtype)(GW_F32 + fuzz_take(&in, 1) % 3);
    c.mode = (unsigned)fuzz_take(&in, 1);
    c.count = (size_t)fuzz_take(&in, 2) % (COUNT_MAX + 1);
    c.stream.seed = fuzz_take(&in, 1);
    c.stream.step = fuzz_take(&in, 1);
    c.stream.tensor = fuzz_take(&in, 1);
    c.stream.point = (uint32_t)fuzz_take(&in, 1);
    c.stream.rank = (uint32_t)fuzz_take(&in, 1);
    const uint64_t first = fuzz_take(&in, 8);
    fuzz_take_params(&in, codec, &c.params);
    const size_t item = gw_dtype_size(c.dtype);
    const size_t there = in.left / item;
    if (!(c.mode & TILED) || there == 0) {
        c.count = there < COUNT_MAX ? there : COUNT_MAX;
    }
    c.elements = fuzz_acquire(c.count * item, c.mode & SHIFTED ? item : 0);
    for (size_t i = 0; i < c.count; i++) {
        memcpy(c.elements.data + i * item, in.at + i % there * item, item);
    }
    if (gw_params_check(&c.params, NULL) == GW_OK) {
        const size_t grain = gw_codec_grain(&c.params);
        c.mode &= grain != 0 ? ~0u : ~(unsigned)OFF_GRAIN;
        if (grain != 0) {
            c.stream.first = first - first % grain + (c.mode & OFF_GRAIN ? 1 : 0);
        }
        REQUIRE(gw_payload_bound(&c.params, c.count, &c.bound) == GW_OK);
        run(&c);
        if (gw_params_flags(&c.params) & GW_CODEC_ROUNDS) {
            require_rounds(&c);
        }
    } else { /* the settings are refused, so encoding with them is */
        const gw_tensor in_tensor = {c.elements.data, c.count, c.dtype};
        uint8_t nothing;
        size_t written = 0;
        REQUIRE(gw_encode(&c.params, NULL, &c.stream, &in_tensor, &nothing, 0, &written, NULL) !=
                GW_OK);
    }
    fuzz_release(&c.elements);
    return 0;
}
