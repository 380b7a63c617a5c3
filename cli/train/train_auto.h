/* What a run whose spec begins with `auto` decided and saw: the arrays `auto` and `watch` of a run folder.
 * docs/run-format.md */
#ifndef GW_CLI_TRAIN_AUTO_H
#define GW_CLI_TRAIN_AUTO_H

#include "cli/train/train_run.h"
#include "trainer/rank.h"

/* Rank 0, after every step: what has just been decided or seen is noted. */
gw_status gw_cli_auto_note(gw_cli_run *run, const rank *r, gw_why *why);

/* Rank 0, before the first step or a checkpoint is loaded: what layers are sent by until there is a plan. */
void gw_cli_auto_describe(gw_cli_run *run, const rank *r);

/* Decisions of the whole run, by what led to them: as many as GW_CLI_AUTO_REASON has names. */
extern const char *const GW_CLI_AUTO_REASON[GW_CLI_AUTO_REASONS];
void gw_cli_auto_count(const gw_cli_run *run, uint64_t counts[GW_CLI_AUTO_REASONS]);

/* One more, to be filled in; it may move when another comes. NULL: no memory. Numbers are NaN and counts 0;
 * step, bound_at, reason, outcome and words are the caller's to set. Each layer's spec and route show its
 * spec_text and route_text, which are "". */
gw_cli_run_auto *gw_cli_auto_add(gw_cli_run *run);
gw_cli_run_watch *gw_cli_watch_add(gw_cli_run *run);

#endif
