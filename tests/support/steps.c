#include "support/steps.h"

#include "support/check.h"
#include "support/gen.h"

#include "base/convert.h"
#include "base/little_endian.h"
#include "feedback/checkpoint.h"

void steps_plan(steps *s, uint32_t layer, const char *spec, const char *route)
{
    gw_why why = {""};
    gw_params params;
    gw_route parsed;
    if (spec != NULL) {
        RANK_OK(gw_params_parse(&params, spec, &why), why.text);
    }
    RANK_OK(gw_route_parse(&parsed, route != NULL ? route : "dense", &why), why.text);
    RANK_OK(gw_step_plan(s->step, layer, spec != NULL ? &params : NULL, &parsed, &why), why.text);
}

void steps_open(steps *s, const gw_step_config *config, const steps_layer *layers, uint32_t n)
{
    gw_why why = {""};
    *s = (steps){.n = n, .rank = config->comm->rank};
    RANK_TRUE(n <= 64, "too many layers");
    RANK_OK(gw_step_create(config, &s->step, &why), why.text);
    for (uint32_t i = 0; i < n; i++) {
        char name[32];
        uint32_t layer = 0;
        s->layers[i] = layers[i];
        s->layers[i].dtype = layers[i].dtype != 0 ? layers[i].dtype : GW_F32;
        const uint64_t count = layers[i].elements, dims[2] = {count / 17, 17};
        const int matrix = count != 0 && count % 17 == 0;
        (void)snprintf(name, sizeof name, "layer.%u", i);
        RANK_OK(gw_step_add(s->step, name, matrix ? dims : &count, matrix ? 2 : 1,
                            s->layers[i].dtype, &layer, &why),
                why.text);
        RANK_TRUE(layer == i, "layers are not numbered in order");
        steps_plan(s, i, layers[i].spec, layers[i].route);
        s->gradient[i] = calloc(count + 1, sizeof(float));
        RANK_TRUE(s->gradient[i] != NULL, "no memory");
    }
}

void steps_close(steps *s)
{
    gw_step_destroy(s->step);
    for (uint32_t i = 0; i < s->n; i++) {
        free(s->gradient[i]);
    }
}

void steps_agree(steps *s)
{
    gw_why why = {""};
    RANK_OK(gw_step_agree(s->step, &why), why.text);
}

void steps_fill(steps *s, uint32_t layer, uint64_t step)
{
    const size_t n = s->layers[layer].elements;
    gen g = {(step * 1000 + layer) * 1000 + s->rank};
    float *values = calloc(n + 1, sizeof *values);
    for (size_t i = 0; i < n && step != 0; i++) {
        values[i] = (float)gen_normal(&g);
    }
    if (s->layers[layer].dtype == GW_F32) {
        memcpy(s->gradient[layer], values, n * sizeof *values);
    } else {
        (void)gw_convert_scalar.narrow(s->layers[layer].dtype, values, s->gradient[layer], n);
    }
    free(values);
}

void steps_post(steps *s, uint32_t layer)
{
    gw_why why = {""};
    const gw_tensor t = {s->gradient[layer], s->layers[layer].elements, s->layers[layer].dtype};
    RANK_OK(gw_step_post(s->step, layer, &t, &why), why.text);
}

void steps_run(steps *s, uint64_t step)
{
    gw_why why = {""};
    gw_step_result result;
    for (uint32_t i = 0; i < s->n; i++) {
        steps_fill(s, i, step);
        steps_post(s, i);
    }
    RANK_OK(gw_step_wait(s->step, &result, &why), why.text);
    RANK_TRUE(result.non_finite == 0, "a finite gradient arrived non-finite");
}

void steps_equal_or_die(ranks *all, const steps *ends, uint32_t rank)
{
    ranks_meet(all);
    for (uint32_t l = 0; l < ends->n; l++) {
        RANK_TRUE(memcmp(ends[rank].gradient[l], ends->gradient[l], steps_bytes(ends, l)) == 0,
                  "replicas differ");
    }
    ranks_meet(all);
}

size_t steps_bytes(const steps *s, uint32_t layer)
{
    return s->layers[layer].elements * gw_dtype_size(s->layers[layer].dtype);
}

static size_t without_means(uint8_t *b, size_t size)
{
    if (gw_get_u16(b + 4) == GW_CHECKPOINT_VERSION) {
        size -= (size_t)GW_CHECKPOINT_MEAN * gw_get_u32(b + 32);
        gw_put_u16(b + 4, GW_CHECKPOINT_PLAIN);
        gw_put_u64(b + 16, size);
        memset(b + 44, 0, 12);
        gw_put_u64(b + GW_CHECKPOINT_HASH_AT, gw_checkpoint_hash(b, size));
    }
    return size;
}

gw_feedback_blob steps_save(steps *s)
{
    gw_why why = {""};
    size_t bytes = 0, written = 0;
    gw_feedback_refuse_saving(gw_step_feedback(s->step), NULL); /* tests look at failed steps too */
    RANK_OK(gw_feedback_save_bytes(gw_step_feedback(s->step), &bytes, &why), why.text);
    void *blob = malloc(bytes + 1);
    RANK_OK(gw_feedback_save(gw_step_feedback(s->step), blob, bytes, &written, &why), why.text);
    return (gw_feedback_blob){blob, without_means(blob, written)};
}

int steps_same(gw_feedback_blob a, gw_feedback_blob b)
{
    return a.size == b.size && memcmp(a.bytes, b.bytes, a.size) == 0;
}
