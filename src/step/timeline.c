/* What the last step did, and when. */
#include "step/step.h"

gw_status gw_step_timeline(gw_step *s, gw_step_interval *out, size_t room, size_t *n)
{
    uint32_t last = UINT32_MAX, piece = 0;
    *n = 0;
    for (uint32_t i = 0; i < s->n_tasks; i++) {
        const gw_task *t = &s->tasks[i];
        const gw_program *p = gw_exchange_program(t->exchange);
        const gw_exchange_stats *stats = gw_exchange_stats_of(t->exchange);
        const uint32_t layer =
            t->fusion != UINT32_MAX ? s->fused[s->fusions[t->fusion].first] : t->layer;
        piece = layer == last ? piece + 1 : 0; /* pieces of a layer follow each other */
        last = layer;
        for (uint32_t m = 0; m < p->n_moves; m++) {
            if (stats->ended[m] == 0) {
                continue;
            }
            if (*n < room) {
                out[*n] = (gw_step_interval){.layer = layer,
                                             .piece = piece,
                                             .lane = i % s->n_lanes,
                                             .step = p->move[m].step,
                                             .begun = stats->began[m] - s->first_post,
                                             .ended = stats->ended[m] - s->first_post};
            }
            (*n)++;
        }
    }
    return *n <= room ? GW_OK : GW_ERR_CAPACITY;
}
