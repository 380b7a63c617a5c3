/* Gradients in the host's memory: what a step does with them around the exchanges. */
#include "step/step.h"

#include "base/divide.h"
#include "base/huge_pages.h"

#include <string.h>

/* Of residuals, which workspaces are read beside, it is 1 and 2. */
enum { WORKSPACE_TURN = 3 };

static gw_status allocate(const gw_step *s, size_t bytes, int pinned, void **out, gw_why *why)
{
    (void)s;
    (void)pinned;
    *out = gw_pages_allocate(bytes, WORKSPACE_TURN);
    return *out != NULL ? GW_OK : GW_FAIL(why, GW_ERR_MEMORY, "no memory: %zu bytes", bytes);
}

static void release(const gw_step *s, void *memory, int pinned)
{
    (void)s;
    (void)pinned;
    gw_pages_free(memory);
}

static gw_status hand_over(gw_step *s, const gw_step_lane *lane, const gw_layer *l, void *values,
                           gw_why *why)
{
    (void)lane;
    if (l->sent != GW_F32) {
        return gw_feedback_hand_over_half(s->store, l->store_tensor, l->sent, values, 0,
                                          l->elements, why);
    }
    return gw_feedback_hand_over(s->store, l->store_tensor, values, 0, l->elements, why);
}

static gw_status gather(gw_step *s, const gw_step_lane *lane, const uint32_t *layers, uint32_t n,
                        void *values, gw_why *why)
{
    (void)lane;
    (void)why;
    for (uint32_t i = 0; i < n; i++) {
        const gw_layer *l = &s->layers[layers[i]];
        if (l->dtype != l->sent) {
            s->convert->widen(l->dtype, l->gradient.data, values, (size_t)l->elements);
        } else if (values != l->gradient.data) {
            memcpy(values, l->gradient.data, (size_t)l->elements * gw_dtype_size(l->dtype));
        }
        values = gw_task_behind(values, l->sent, l->elements);
    }
    return GW_OK;
}

static gw_status scatter(gw_step *s, const gw_step_lane *lane, const uint32_t *layers, uint32_t n,
                         void *values, gw_why *why)
{
    (void)lane;
    (void)why;
    for (uint32_t i = 0; i < n; i++) {
        gw_layer *l = &s->layers[layers[i]];
        if (values != l->gradient.data) {
            const uint32_t largest = gw_step_write_mean(s, layers[i], values);
            l->bad |= largest >= gw_overflow_bits(l->dtype);
        }
        values = gw_task_behind(values, l->sent, l->elements);
    }
    return GW_OK;
}

const gw_gradients gw_gradients_host = {.allocate = allocate,
                                        .release = release,
                                        .gather = gather,
                                        .hand_over = hand_over,
                                        .scatter = scatter};
