/* What the last step did, and when. */
#include "step/step.h"

typedef struct list {
    const gw_step *of;
    gw_step_interval *out;
    size_t room, n;
} list;

/* `about` has layer, piece and lane. */
static void add(list *l, const gw_exchange *exchange, gw_step_interval about)
{
    const gw_program *p = gw_exchange_program(exchange);
    const gw_exchange_stats *stats = gw_exchange_stats_of(exchange);
    for (uint32_t m = 0; m < p->n_moves; m++) {
        if (stats->ended[m] == 0) {
            continue;
        }
        if (l->n < l->room) {
            about.step = p->move[m].step;
            about.begun = stats->began[m] - l->of->first_post;
            about.ended = stats->ended[m] - l->of->first_post;
            l->out[l->n] = about;
        }
        l->n++;
    }
}

gw_status gw_step_timeline(gw_step *s, gw_step_interval *out, size_t room, size_t *n)
{
    GW_REQUIRE(NULL, s != NULL && n != NULL && (out != NULL || room == 0),
               "no step, or no place for the intervals");
    list l = {s, out, room, 0};
    uint32_t last = UINT32_MAX, piece = 0;
    for (uint32_t i = 0; i < s->n_tasks; i++) {
        const gw_task *t = &s->tasks[i];
        const gw_convoy *c = t->convoy != UINT32_MAX ? &s->convoys[t->convoy] : NULL;
        const uint32_t layer =
            t->fusion != UINT32_MAX ? s->fused[s->fusions[t->fusion].first] : t->layer;
        piece = layer == last ? piece + 1 : 0; /* pieces of a layer follow each other */
        last = layer;
        for (uint32_t k = 0; k < (c != NULL ? c->count : 1); k++) {
            const uint32_t at = c != NULL ? s->convoyed[c->first + k] : layer;
            add(&l, c != NULL ? s->layers[at].pieces[0] : t->exchange,
                (gw_step_interval){.layer = at, .piece = piece, .lane = i % s->n_lanes});
        }
    }
    *n = l.n;
    return l.n <= room ? GW_OK : GW_ERR_CAPACITY;
}
