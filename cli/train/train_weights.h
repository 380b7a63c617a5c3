/* Weights and optimiser as one frame: weights.gw, which `gradwire inspect` and `decode` read too. */
#ifndef GW_CLI_TRAIN_WEIGHTS_H
#define GW_CLI_TRAIN_WEIGHTS_H

#include "trainer/rank.h"

/* The frame, after `step` steps; freed by the caller. */
gw_status gw_cli_weights_pack(const rank *r, uint64_t step, void **frame, size_t *size,
                              gw_why *why);
/* The same back into the rank; nothing but what pack makes of this rank's model is taken. */
gw_status gw_cli_weights_unpack(rank *r, uint64_t step, const void *frame, size_t size,
                                gw_why *why);
size_t gw_cli_weights_bytes(const rank *r); /* about */

#endif
