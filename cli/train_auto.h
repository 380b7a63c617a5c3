/* What a run whose spec begins with `auto` decided and saw: the arrays `auto` and `watch` of run.json.
 * docs/run-format.md */
#ifndef GW_CLI_TRAIN_AUTO_H
#define GW_CLI_TRAIN_AUTO_H

#include "rank.h"
#include "train_run.h"

/* Rank 0, after every step: what has just been decided or seen is noted. */
gw_status gw_cli_auto_note(gw_cli_run *run, const rank *r, gw_why *why);

/* One more, to be filled in; it may move when another comes. NULL: no memory. Numbers are NaN and counts 0;
 * step, bound_at, reason, outcome and words are the caller's to set. Each layer's spec and route show its
 * spec_text and route_text, which are "". */
gw_cli_run_auto *gw_cli_auto_add(gw_cli_run *run);
gw_cli_run_watch *gw_cli_watch_add(gw_cli_run *run);

#endif
