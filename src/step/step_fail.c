/* A step that failed: it is reported to the other ranks, what was under way is taken back, and the message says who was waited for. */
#include "step/step.h"

void gw_step_fail(gw_step *s, gw_status status, const gw_why *why)
{
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        gw_comm *const groups[] = {s->lanes[i].groups.flat, s->lanes[i].groups.intra,
                                   s->lanes[i].groups.inter};
        for (int g = 0; g < 3; g++) {
            if (groups[g] != NULL) {
                groups[g]->table->abort(groups[g], why->text);
            }
        }
    }
    if (s->side != NULL) {
        s->side->table->abort(s->side, why->text);
    }
    if (gw_step_on_device(s)) {
        gw_device_abort(s, why->text);
        gw_device_finish(s);
    }
    gw_fusions_roll_back(s);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        for (uint32_t p = 0; p < s->layers[i].n_pieces; p++) {
            (void)gw_exchange_rollback(s->layers[i].pieces[p], NULL);
        }
        (void)gw_feedback_hand_over_rollback(s->store, s->layers[i].store_tensor, NULL);
    }
    gw_feedback_refuse_saving(s->store, why->text);
    (void)pthread_mutex_lock(&s->lock);
    s->status = status;
    s->why = *why;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
}

/* The first lane that waits for other ranks; where none does, the first that has begun. */
static const gw_step_lane *waiting_lane(const gw_step *s, char *what, size_t size)
{
    const gw_step_lane *first = NULL;
    what[0] = '\0';
    for (uint32_t i = 0; i < s->n_lanes && what[0] == '\0'; i++) {
        const gw_step_lane *lane = &s->lanes[i];
        if (lane->begun && lane->task < s->n_tasks) {
            gw_task_waits_for(s, &s->tasks[lane->task], what, size);
            first = first == NULL || what[0] != '\0' ? lane : first;
        }
    }
    return first;
}

gw_status gw_step_too_late(const gw_step *s, gw_why *why)
{
    char what[GW_DESCRIBED];
    const gw_step_lane *lane = waiting_lane(s, what, sizeof what);
    gw_task_words task = {"no layer"};
    if (lane != NULL) {
        gw_task_say(s, &s->tasks[lane->task], &task);
    }
    return GW_FAIL(why, GW_ERR_TIMEOUT,
                   "step %llu, %s: no answer for %g s; a rank is gone, stopped, or far behind: %s",
                   (unsigned long long)s->number, task.text, s->config.timeout,
                   what[0] != '\0' ? what : "which one is not known");
}
