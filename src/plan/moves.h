/* Changes of one or two tensors' choices. */
#ifndef GW_PLAN_MOVES_H
#define GW_PLAN_MOVES_H

#include "plan/search.h"

/* No more moves: the events are spent, or nothing can be better. */
int gw_is_done(const gw_search *s);
/* Uncompressed and through before a bubble: no choice of this tensor can help. */
int gw_is_settled(const gw_search *s, uint32_t tensor);
/* Takes the best choice of this tensor, if better than the one it has: 1. Only uncompressed ones and those of
 * `device`; GW_CODING_MIXED: of all. */
int gw_move_one(gw_search *s, uint32_t tensor, gw_coding device);
/* Until no change of a single tensor helps, among all choices or among some; 1 if any did. */
int gw_move_singles(gw_search *s, int all);

#endif
