/* gw_decode of any payload. The first bytes choose the call, the rest is the payload:
 *
 *     codec | dtype | isa, how | mode | count, 2 | fill, 4 | one a parameter | payload
 *
 * What is accepted must give the same bits on every instruction set; what is refused must leave the
 * output as it was. */
#include "fuzz.h"

enum {
    FIT = 1,       /* cut the payload, or fill it up with zeros, to the length the codec asks for */
    UNALIGNED = 2, /* payloads and workspaces have no alignment */
    HUGE_COUNT = 4, /* a count that no payload here can have: the lengths must tell */
    NO_SPACE = 8,   /* half a workspace */
    SHIFTED = 16    /* the output is aligned to its elements, and no further */
};
enum { COUNT_MAX = 9000 }; /* more than two blocks of 4096, and than a scratch of 8192 */

typedef struct call {
    gw_params params;
    gw_dtype dtype;
    gw_apply how;
    size_t count;
    uint32_t fill;
    unsigned mode;
    fuzz_buffer payload;
} call;

static fuzz_buffer filled_output(const call *c)
{
    const size_t item = gw_dtype_size(c->dtype) == 2 ? 2 : 4;
    fuzz_buffer out =
        fuzz_acquire(c->mode & HUGE_COUNT ? item : c->count * item, c->mode & SHIFTED ? item : 0);
    for (size_t i = 0; i < out.size / item; i++) {
        const unsigned turn = (unsigned)(i % 31) + 1;
        const uint32_t bits = c->fill << turn | c->fill >> (32 - turn);
        memcpy(out.data + i * item, &bits, item);
    }
    return out;
}

/* One decoding; on success *out is the caller's. */
static gw_status decode(const call *c, gw_isa isa, fuzz_buffer *out)
{
    const int good = gw_params_check(&c->params, NULL) == GW_OK && gw_dtype_size(c->dtype) != 0;
    fuzz_buffer workspace = {0}, before = filled_output(c);
    gw_exec exec = {.isa = isa};
    if (good) {
        exec = fuzz_exec(&c->params, c->dtype, 0, isa, c->mode & UNALIGNED ? 1 : 0, &workspace);
        exec.workspace.size >>= c->mode & NO_SPACE ? 1 : 0;
    }
    *out = filled_output(c);
    gw_tensor tensor = {out->data, c->count, c->dtype};
    gw_why why = {""};
    const gw_status status =
        gw_decode(&c->params, &exec, c->payload.data, c->payload.size, c->how, &tensor, &why);
    const int runs =
        isa == GW_ISA_AUTO || (isa < GW_ISA_COUNT && fuzz_isa_runs(&c->params, (int)isa));
    if (good && runs && c->how <= GW_ADD && !(c->mode & (NO_SPACE | HUGE_COUNT))) {
        /* nothing but the payload can be wrong */
        REQUIRE(status == GW_OK || status == GW_ERR_CORRUPT || status == GW_ERR_TRUNCATED);
    }
    if (status == GW_OK) {
        REQUIRE(good && !(c->mode & HUGE_COUNT) && (c->how == GW_SET || c->how == GW_ADD));
        REQUIRE(why.text[0] == '\0');
    } else {
        REQUIRE(before.size == 0 || memcmp(before.data, out->data, before.size) == 0);
        fuzz_require_reason(why.text, sizeof why.text);
        fuzz_release(out);
    }
    fuzz_release(&before);
    if (workspace.base != NULL) {
        fuzz_release(&workspace);
    }
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    call c = {0};
    const gw_codec *codec = gw_codec_at(fuzz_take(&in, 1) % gw_codec_count());
    c.dtype = (gw_dtype)(fuzz_take(&in, 1) & 3); /* 0 is none */
    const unsigned choice = (unsigned)fuzz_take(&in, 1);
    c.how = (gw_apply)(choice >> 3 & 3); /* 2 and 3 are none */
    c.mode = (unsigned)fuzz_take(&in, 1);
    c.count = (size_t)fuzz_take(&in, 2) % (COUNT_MAX + 1);
    c.fill = (uint32_t)fuzz_take(&in, 4);
    fuzz_take_params(&in, codec, &c.params);
    if (c.mode & HUGE_COUNT) { /* up to 2^64 - 1, and near the powers of two */
        c.count = ((size_t)1 << (32 + c.count % 32)) - (c.fill & 1) + (c.fill & 2);
    }
    size_t wanted = 0;
    c.payload = fuzz_copy(in.at, in.left, c.mode & UNALIGNED ? 1 : 0);
    if ((c.mode & FIT) && !(c.mode & HUGE_COUNT) && fuzz_fixed_size(&c.params) &&
        gw_payload_bound(&c.params, c.count, &wanted) == GW_OK) {
        fuzz_release(&c.payload);
        c.payload = fuzz_acquire(wanted, c.mode & UNALIGNED ? 1 : 0);
        for (size_t i = 0; i < wanted; i++) {
            c.payload.data[i] = i < in.left ? in.at[i] : 0;
        }
    }
    fuzz_buffer first, other;
    if (decode(&c, (gw_isa)(choice & 7), &first) == GW_OK) { /* 4 and up are none */
        for (int isa = GW_ISA_SCALAR; isa < GW_ISA_COUNT; isa++) {
            if (fuzz_isa_runs(&c.params, isa)) {
                REQUIRE(decode(&c, (gw_isa)isa, &other) == GW_OK);
                fuzz_require_same(first.data, other.data, c.dtype, c.count);
                fuzz_release(&other);
            }
        }
        fuzz_release(&first);
    }
    fuzz_release(&c.payload);
    return 0;
}
