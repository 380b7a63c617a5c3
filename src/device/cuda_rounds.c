/* Rounds of sums on a device: everything about a call that can be checked without one. */
#include "base/why.h"
#include "codec/cuda/cuda_impl.h"

#include <gradwire/rounds.h>

int gw_cuda_has_rounds(const gw_cuda *cuda, const gw_codec *codec)
{
    return cuda != NULL && codec != NULL && cuda->table->find_rounds(gw_codec_id(codec)) != NULL;
}

gw_status gw_cuda_rounds_workspace(const gw_cuda *cuda, const gw_params *params, size_t count,
                                   size_t *bytes)
{
    size_t unused = 0;
    if (cuda == NULL || params == NULL || bytes == NULL) {
        return GW_ERR_ARG;
    }
    const gw_status status = gw_rounds_state(params, count, &unused);
    if (status != GW_OK) {
        return status;
    }
    const gw_cuda_codec_rounds *rounds = cuda->table->find_rounds(gw_codec_id(params->codec));
    if (rounds != NULL) {
        *bytes = rounds->workspace(params->value, count);
    }
    return rounds != NULL ? GW_OK : GW_ERR_UNSUPPORTED;
}

static int is_aligned(const void *p, size_t to)
{
    return (uintptr_t)p % to == 0;
}

/* Feedback and state: both of a pair, never the same buffer. */
static int pair_is_wrong(const float *before, const float *after)
{
    return (before == NULL) != (after == NULL) || (before != NULL && before == after) ||
           !is_aligned(before, sizeof *before) || !is_aligned(after, sizeof *after);
}

static int tensor_is_wrong(const gw_tensor *t)
{
    const size_t width = gw_dtype_size(t->dtype);
    return width == 0 || (t->data == NULL && t->count != 0) || !is_aligned(t->data, width);
}

static gw_status check(const gw_cuda *cuda, const gw_cuda_rounds *x, const float *numbers,
                       gw_why *why)
{
    size_t need = 0, state = 0;
    if (cuda == NULL || x == NULL || x->params == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "%s",
                       cuda == NULL ? "no CUDA library was opened" : "no exchange, or no params");
    }
    gw_status status = gw_cuda_rounds_workspace(cuda, x->params, x->in.count, &need);
    if (status == GW_OK) {
        status = gw_rounds_state(x->params, x->in.count, &state);
    }
    if (status != GW_OK) {
        return GW_FAIL(why, status, "rounds on the device: %s", gw_status_string(status));
    }
    if (tensor_is_wrong(&x->in) || pair_is_wrong(x->residual, x->residual_after) ||
        pair_is_wrong(x->state, x->state_after) || (x->state == NULL && state != 0) ||
        x->result == NULL || (numbers == NULL && x->in.count != 0) ||
        !is_aligned(numbers, sizeof *numbers) || !is_aligned(x->workspace.data, 256)) {
        return GW_FAIL(why, GW_ERR_ARG,
                       "rounds on the device: an argument is missing, or is not "
                       "aligned");
    }
    return x->workspace.data == NULL || x->workspace.size < need
               ? GW_FAIL(why, GW_ERR_WORKSPACE, "the workspace has %zu bytes, not %zu",
                         x->workspace.size, need)
               : GW_OK;
}

static const gw_cuda_codec_rounds *of(const gw_cuda *cuda, const gw_cuda_rounds *x)
{
    return cuda->table->find_rounds(gw_codec_id(x->params->codec));
}

/* A round past the last has nothing to be made or taken of. */
static gw_status check_round(const gw_cuda_rounds *x, unsigned round, gw_why *why)
{
    size_t n = 0;
    (void)gw_rounds_elements(x->params, x->in.count, round, &n);
    return n != 0 || x->in.count == 0 ? GW_OK : GW_FAIL(why, GW_ERR_ARG, "no round %u", round);
}

gw_status gw_cuda_rounds_make(const gw_cuda *cuda, const gw_cuda_rounds *x, unsigned round,
                              float *own, gw_why *why)
{
    gw_status status = check(cuda, x, own, why);
    status = status == GW_OK ? check_round(x, round, why) : status;
    return status == GW_OK && x->in.count != 0 ? of(cuda, x)->make(x, round, own, why) : status;
}

gw_status gw_cuda_rounds_take(const gw_cuda *cuda, const gw_cuda_rounds *x, unsigned round,
                              const float *sum, gw_why *why)
{
    gw_status status = check(cuda, x, sum, why);
    status = status == GW_OK ? check_round(x, round, why) : status;
    return status == GW_OK && x->in.count != 0 ? of(cuda, x)->take(x, round, sum, why) : status;
}

gw_status gw_cuda_rounds_decode(const gw_cuda *cuda, const gw_cuda_rounds *x, const float *sum,
                                gw_apply how, uint32_t divisor, const gw_tensor *out,
                                gw_cuda_result *result, gw_why *why)
{
    const gw_status status = check(cuda, x, sum, why);
    if (status != GW_OK) {
        return status;
    }
    if (out == NULL || tensor_is_wrong(out) || out->count != x->in.count || result == NULL ||
        divisor == 0 || (how != GW_SET && how != GW_ADD)) {
        return GW_FAIL(why, GW_ERR_ARG, "rounds on the device: nowhere to decode to");
    }
    return x->in.count != 0 ? of(cuda, x)->decode(x, sum, how, divisor, out, result, why) : GW_OK;
}
