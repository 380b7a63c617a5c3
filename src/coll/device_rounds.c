/* Rounds of sums (rounds.h) with values in a device's memory: values, residual and what the codec remembers stay there, a
 * round's numbers come to the host, whose comm sums them, and the sums go back. So ranks that code here and ranks that
 * code there have the same sums, and decode them to the same bits. */
#include "coll/device_exchange.h"

/* Encode and decode of an additive route are on one device: a decode goes on with what its encode left. */
int gw_there_can_round(const gw_exchange *x)
{
    int all = x->rounds && x->config.elements != 0 &&
              gw_cuda_has_rounds(x->config.place.cuda, x->config.params.codec);
    for (uint32_t i = 0; i < x->program.n_moves; i++) {
        const gw_move *m = &x->program.move[i];
        all &= m->step.level != 0 || (m->runs && m->step.device == GW_DEVICE_GPU);
    }
    return all;
}

gw_status gw_there_measure_rounds(gw_exchange *x, gw_why *why)
{
    gw_there *t = x->there;
    const gw_status status = gw_cuda_rounds_workspace(x->config.place.cuda, &x->config.params,
                                                      (size_t)x->config.elements, &t->codec_bytes);
    x->rounds_bytes = 0; /* of the host's */
    t->pieces = t->entries = 1;
    return status == GW_OK ? GW_OK : gw_fail(why, status, "%s", gw_status_string(status));
}

gw_status gw_there_keep_state(gw_exchange *x, gw_why *why)
{
    gw_kept *k = &x->there->state;
    const gw_cuda_place at = x->config.place;
    void *memory[2] = {NULL};
    size_t floats = 0;
    gw_status status = gw_rounds_state(&x->config.params, (size_t)x->config.elements, &floats);
    for (int i = 0; i < 2 && floats != 0 && status == GW_OK; i++) {
        status = gw_cuda_allocate(at, floats * sizeof(float), 0, &memory[i], why);
    }
    k->of = x;
    k->r = memory[0];
    k->after = memory[1];
    if (status != GW_OK || floats == 0) {
        return status;
    }
    if (x->state_slot != GW_NO_SLOT) {
        const gw_feedback_keeper keeper = gw_there_keeper(k);
        return gw_feedback_keep(x->config.store, x->state_slot, &keeper, why);
    }
    status = gw_cuda_clear(at, NULL, k->r, floats * sizeof(float), why);
    return status == GW_OK ? gw_cuda_wait(at, NULL, why) : status;
}

/* ---- under way ---- */

static gw_cuda_rounds rounds_of(const gw_exchange *x)
{
    const gw_there *t = x->there;
    return (gw_cuda_rounds){.params = &x->config.params,
                            .stream = x->lane.stream,
                            .workspace = t->codec_workspace,
                            .key = x->stream,
                            .in = {t->values, (size_t)x->config.elements, GW_F32},
                            .residual = x->residual[0],
                            .residual_after = x->residual_after[0],
                            .state = t->state.r,
                            .state_after = t->state.after,
                            .result = t->results};
}

/* Bytes of a round's numbers; 0 past the last. */
static size_t bytes_of(const gw_exchange *x, uint32_t round)
{
    size_t n = 0;
    (void)gw_rounds_elements(&x->config.params, (size_t)x->config.elements, round, &n);
    return n * sizeof *x->numbers;
}

static gw_status copy(gw_exchange *x, void *to, const void *from, size_t bytes, gw_why *why)
{
    return gw_cuda_copy(x->config.place, x->lane.stream, to, from, bytes, why);
}

/* This rank's numbers of a round, and their way to the host. */
static gw_status make(gw_exchange *x, uint32_t round, gw_why *why)
{
    const gw_cuda_rounds rounds = rounds_of(x);
    float *own = (float *)(void *)x->there->payloads;
    const gw_status status = gw_cuda_rounds_make(x->config.place.cuda, &rounds, round, own, why);
    return status == GW_OK ? copy(x, x->numbers, own, bytes_of(x, round), why) : status;
}

/* The route for the numbers that have come. */
static gw_status begin_round(gw_exchange *x, gw_why *why)
{
    const size_t bytes = bytes_of(x, x->round);
    x->stats.payload_bytes += bytes;
    return gw_exchange_compile(x, bytes / sizeof *x->numbers, why);
}

static gw_status clear_result(gw_exchange *x, gw_why *why)
{
    return gw_cuda_clear(x->config.place, x->lane.stream, x->there->results,
                         sizeof *x->there->results, why);
}

static gw_status copy_result(gw_exchange *x, gw_why *why)
{
    return copy(x, x->there->results_here, x->there->results, sizeof *x->there->results, why);
}

gw_status gw_there_encode_rounds(gw_exchange *x, const gw_move *m, int *done, gw_why *why)
{
    (void)m;
    x->stats.coded_on |= GW_DEVICE_GPU;
    *done = x->phase++ != 0;
    if (*done) {
        const gw_status status = gw_there_take_report(x, x->there->results_here, why);
        return status == GW_OK ? begin_round(x, why) : status;
    }
    x->base_first = 0;
    x->base = (uint8_t *)x->numbers;
    gw_status status = gw_there_begin(x, why);
    status = status == GW_OK ? clear_result(x, why) : status;
    status = status == GW_OK ? make(x, 0, why) : status;
    status = status == GW_OK ? copy_result(x, why) : status;
    return gw_there_end(x, status, &x->stats.encode_seconds, why);
}

/* Behind the last round: what all ranks have sent. */
static gw_status decode(gw_exchange *x, const float *sum, uint32_t divisor, gw_why *why)
{
    const gw_cuda_rounds rounds = rounds_of(x);
    gw_status status = clear_result(x, why);
    if (status == GW_OK) {
        status = gw_cuda_rounds_decode(x->config.place.cuda, &rounds, sum, GW_SET, divisor,
                                       &rounds.in, x->there->results, why);
    }
    return status == GW_OK ? copy_result(x, why) : status;
}

static gw_status launch_decode(gw_exchange *x, uint32_t divisor, gw_why *why)
{
    const gw_cuda_rounds rounds = rounds_of(x);
    float *sum = (float *)(void *)x->there->payloads;
    gw_status status = gw_there_begin(x, why);
    if (status == GW_OK) {
        status = copy(x, sum, x->numbers, bytes_of(x, x->round), why);
    }
    if (status == GW_OK) {
        status = gw_cuda_rounds_take(x->config.place.cuda, &rounds, x->round, sum, why);
    }
    if (status != GW_OK) {
        return status;
    }
    return bytes_of(x, x->round + 1) != 0 ? make(x, x->round + 1, why)
                                          : decode(x, sum, divisor, why);
}

gw_status gw_there_decode_rounds(gw_exchange *x, const gw_move *m, int *done, gw_why *why)
{
    (void)m;
    const uint32_t divisor = gw_there_divisor(x);
    *done = x->phase++ != 0;
    if (!*done) {
        return gw_there_end(x, launch_decode(x, divisor, why), &x->stats.decode_seconds, why);
    }
    x->again = bytes_of(x, x->round + 1) != 0;
    if (x->again) {
        x->round++;
        return begin_round(x, why);
    }
    const gw_cuda_result *r = x->there->results_here;
    x->stats.finite &= r->non_finite == 0;
    return r->status == GW_OK
               ? GW_OK
               : gw_fail(why, (gw_status)r->status, "%s", gw_status_string((gw_status)r->status));
}
