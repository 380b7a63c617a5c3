/* gw_route_parse of any text behind 8 bytes of a job. What is accepted must come back from gw_route_print,
 * and compiles or is refused with a reason; compiled, it ends with the tensor on every rank. */
#include "fuzz.h"

static const char *const specs[] = {"cast:to=f32", "natural:bits=8", "dither:bucket=64",
                                    "topk",        "randk",          "adacomp"};
enum { N_SPECS = sizeof specs / sizeof specs[0] };

static void compile(const gw_route *route, fuzz_input *in)
{
    gw_route_job job = {.ranks = (uint32_t)fuzz_take(in, 1), .rank = (uint32_t)fuzz_take(in, 1)};
    gw_params params;
    gw_program p;
    gw_why why = {""};
    job.ranks_per_node = (uint32_t)fuzz_take(in, 1);
    REQUIRE(gw_params_parse(&params, specs[fuzz_take(in, 1) % N_SPECS], &why) == GW_OK);
    job.params = &params;
    job.elements = fuzz_take(in, 1) << fuzz_take(in, 1) % 56;
    job.elements += fuzz_take(in, 2);
    if (gw_route_compile(route, &job, &p, &why) != GW_OK) {
        fuzz_require_reason(why.text, sizeof why.text);
        return;
    }
    REQUIRE(p.n_moves == route->n_steps && p.encodes == gw_route_encodes(route));
    const gw_operand *end = &p.move[p.n_moves - 1].after;
    REQUIRE(end->kind == GW_OPERAND_DENSE && end->range.first == 0);
    REQUIRE(end->range.count == job.elements);
    for (uint32_t i = 0; i < p.n_moves; i++) {
        const gw_operand *o = &p.move[i].after;
        const uint64_t limit = o->kind == GW_OPERAND_NUMBERS ? UINT64_MAX : job.elements;
        REQUIRE(o->range.first <= limit && o->range.count <= limit - o->range.first);
        REQUIRE(p.move[i].sent[0] + p.move[i].sent[1] < (uint64_t)1 << 63);
        REQUIRE(o->bytes <= (uint64_t)1 << 63);
        REQUIRE(o->kind == GW_OPERAND_NONE ? o->bytes == 0 : p.move[i].runs);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size < 8 ? size : 8};
    const size_t length = size < 8 ? 0 : size - 8;
    fuzz_buffer text = fuzz_acquire(length + 1, 0);
    if (length != 0) {
        memcpy(text.data, data + 8, length);
    }
    text.data[length] = '\0';
    gw_route route, again;
    gw_why why = {""};
    memset(&route, 0xA5, sizeof route);
    if (gw_route_parse(&route, (const char *)text.data, &why) != GW_OK) {
        fuzz_require_reason(why.text, sizeof why.text);
        for (size_t i = 0; i < sizeof route; i++) {
            REQUIRE(((const uint8_t *)&route)[i] == 0xA5);
        }
        fuzz_release(&text);
        return 0;
    }
    REQUIRE(why.text[0] == '\0');
    REQUIRE(gw_route_check(&route, NULL) == GW_OK);
    char printed[GW_ROUTE_TEXT], name[40];
    REQUIRE(gw_route_print(&route, printed, sizeof printed) == GW_OK);
    REQUIRE(gw_route_parse(&again, printed, &why) == GW_OK && gw_route_equal(&again, &route));
    if (gw_route_name_of(&route, name, sizeof name) == GW_OK) {
        REQUIRE(gw_route_parse(&again, name, &why) == GW_OK && gw_route_equal(&again, &route));
    }
    /* the exact size suffices, and no less is written to */
    fuzz_buffer exact = fuzz_acquire(strlen(printed) + 1, 0);
    for (size_t room = 0; room <= exact.size; room++) {
        REQUIRE(gw_route_print(&route, (char *)exact.data, room) ==
                (room == exact.size ? GW_OK : GW_ERR_CAPACITY));
    }
    compile(&route, &in);
    fuzz_release(&exact);
    fuzz_release(&text);
    return 0;
}
