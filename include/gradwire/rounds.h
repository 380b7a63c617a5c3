/* Codecs whose exchange is rounds of sums (GW_CODEC_ROUNDS): in every round each rank makes a buffer of
 * fp32 numbers, any communicator adds the buffers of all ranks, and each takes the sum. The decoded tensor
 * is the sum over the ranks; replicas are equal if the sums they took are.
 *
 *     for (unsigned i = 0; gw_rounds_elements(params, count, i, &n) == GW_OK && n != 0; i++) {
 *         gw_rounds_make(&x, i, own, &report);
 *         all_reduce(own, sum, n);
 *         gw_rounds_take(&x, i, sum);
 *     }
 *     gw_rounds_decode(&x, sum, GW_SET, &out);
 */
#ifndef GRADWIRE_ROUNDS_H
#define GRADWIRE_ROUNDS_H

#include "gradwire/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One exchange of one tensor. The caller owns all of it and keeps it until decode. */
typedef struct gw_rounds {
    const gw_params *params;
    const gw_exec
        *exec; /* its workspace, of gw_rounds_workspace bytes, lives through the exchange */
    const gw_stream *stream; /* seed, step, tensor: the same on all ranks */
    const gw_tensor *in;     /* this rank's g; not needed after the last make */
    /* Feedback as in gw_encode_feedback, both or neither. r' is complete after the last take, but for what that leaves due. */
    const float *residual;
    float *residual_after;
    /* With feedback, gw_rounds_due floats each. `due`: what is still to be taken off r, NULL: nothing; this exchange does so while
     * it reads r. `due_after`: where the last take leaves what would be taken off r' now, which saves it going over memory once
     * more, NULL: r' is complete. The bits are the same. Not the same buffer. */
    const float *due;
    float *due_after;
    /* What the codec remembers from step to step, gw_rounds_state floats, zero at first. Like a residual
     * it is read here and written there, so that a step can be taken back. Not the same buffer. */
    const float *state;
    float *state_after;
} gw_rounds;

/* Numbers in the buffer of round `round`; 0 past the last. */
GW_API gw_status gw_rounds_elements(const gw_params *params, size_t count, unsigned round,
                                    size_t *elements);
GW_API gw_status gw_rounds_state(const gw_params *params, size_t count, size_t *floats);
/* 0: for such a tensor nothing is ever left due, and r' is complete. */
GW_API gw_status gw_rounds_due(const gw_params *params, size_t count, size_t *floats);
/* How many floats at the beginning of their states mean the same in both settings: all columns that both ranks have. */
GW_API gw_status gw_rounds_shared_state(const gw_params *a, const gw_params *b, size_t count,
                                        size_t *floats);
GW_API gw_status gw_rounds_workspace(const gw_params *params, size_t count, size_t *bytes);

/* Calls in the order above. Arguments are checked by the first; `report` may be NULL. */
GW_API gw_status gw_rounds_make(const gw_rounds *x, unsigned round, float *own, gw_report *report);
GW_API gw_status gw_rounds_take(const gw_rounds *x, unsigned round, const float *sum);
/* `sum` is that of the last round. `out` may be in->data, unless r' lies there. */
GW_API gw_status gw_rounds_decode(const gw_rounds *x, const float *sum, gw_apply how,
                                  gw_tensor *out);
/* The decoded tensor over the `divisor`, in fp32: what gw_rounds_decode with GW_SET and then a division leave, in one pass over
 * memory. *finite says whether all of it is. */
GW_API gw_status gw_rounds_mean(const gw_rounds *x, const float *sum, uint32_t divisor,
                                gw_tensor *out, int *finite);

/* Takes what is due off the residual of a whole tensor, for whoever wants it between two exchanges. */
GW_API gw_status gw_rounds_settle(const gw_params *params, const gw_exec *exec, const float *due,
                                  float *residual, size_t count);

#ifdef __cplusplus
}
#endif
#endif
