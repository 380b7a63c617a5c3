#include "cuda/memory.h"
#include "cuda/scene.h"

#include <stdlib.h>

/* Hostile bytes: whatever stands in a payload, the call comes back, `out` is NaN or a number everywhere, and nothing
 * beside it is touched. */
void run_hostile(scene *s, gen *g)
{
    const size_t count =
        gen_below(g, 2) == 0 ? 10000 : 20000; /* some codecs have another way for larger ones */
    size_t bound = 0, need = 0;
    must(s, gw_payload_bound(&s->params, count, &bound), &(gw_why){"bound"});
    s->n = 1;
    s->count[0] = count;
    s->feedback = 0;
    s->dtype = GW_F32;
    uint8_t *bytes = take(bound), *payload = device_take(bound);
    float *out = take(count * 4 + GUARD), *there = device_take(count * 4 + GUARD);
    uint64_t *size = device_take(8), written = bound;
    gw_cuda_result result, *d_result = device_take(sizeof result);
    void *workspace = workspace_for(s, &need);
    for (int round = 0; round < 3; round++) {
        gw_why why = {""};
        for (size_t i = 0; i < bound; i++) {
            bytes[i] = round == 0 ? 0xFF : (uint8_t)gen_u64(g);
        }
        const int fixed = (gw_params_flags(&s->params) & GW_CODEC_FIXED_SIZE) != 0;
        written = fixed || round == 0 ? bound : gen_u64(g) >> gen_below(g, 64);
        gw_tensor host = {out, count, GW_F32};
        const gw_exec exec = scalar_exec();
        const gw_status expected =
            written > bound
                ? GW_ERR_CORRUPT
                : gw_decode(&s->params, &exec, bytes, (size_t)written, GW_SET, &host, &why);
        device_put(payload, bytes, bound);
        device_put(size, &written, 8);
        device_fill(there, POISON, count * 4 + GUARD);
        device_fill(d_result, 0, sizeof result);
        const gw_cuda_payload list[1] = {{payload, bound, fixed ? NULL : size}};
        const gw_cuda_sink sink = {list, 1, {there, count, GW_F32}, GW_SET, 1, d_result};
        must(s,
             gw_cuda_decode(cuda, device_stream(), &s->params, &sink, 1,
                            (gw_workspace){workspace, need}, &why),
             &why);
        device_wait();
        device_get(out, there, count * 4 + GUARD);
        device_get(&result, d_result, sizeof result);
        for (size_t i = 0; i < GUARD; i++) {
            if (((uint8_t *)(out + count))[i] != POISON) {
                fail(s, "hostile bytes: written behind the tensor");
            }
        }
        if ((result.status == GW_OK) != (expected == GW_OK)) {
            fail(s, "hostile bytes: status %d where the scalar decoder has %d", result.status,
                 expected);
        }
        if (result.status != GW_OK && result.non_finite == 0) {
            fail(s, "hostile bytes: refused, and yet all of it is finite");
        }
    }
    free(bytes);
    free(out);
    device_give(payload);
    device_give(there);
    device_give(size);
    device_give(d_result);
    device_give(workspace);
}
