/* What a run's levels, chosen during training, came to: the array `adapt` of a run folder. docs/run-format.md */
#ifndef GW_CLI_TRAIN_ADAPT_H
#define GW_CLI_TRAIN_ADAPT_H

#include "cli/train/train_run.h"
#include "trainer/rank.h"

/* Rank 0, after every step: a choice that has just been made is noted. */
gw_status gw_cli_adapt_note(gw_cli_run *run, const rank *r, gw_why *why);

#endif
