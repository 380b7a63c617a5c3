/* Which layer a task is at, and what it waits for, for messages. */
#include "step/step.h"

#include <stdio.h>

void gw_task_say(const gw_step *s, const gw_task *t, gw_task_words *words)
{
    const gw_convoy *c = t->convoy != UINT32_MAX ? &s->convoys[t->convoy] : NULL;
    const gw_fusion *f = t->fusion != UINT32_MAX ? &s->fusions[t->fusion] : NULL;
    const uint32_t layer = c != NULL   ? s->convoyed[c->first + c->at]
                           : f != NULL ? s->fused[f->first]
                                       : t->layer;
    char where[128], more[32] = "";
    gw_exchange_where(c != NULL ? s->layers[layer].pieces[0] : t->exchange, where, sizeof where);
    if (f != NULL && f->bucket != 0) {
        (void)snprintf(more, sizeof more, " and %u more", f->count - 1);
    }
    (void)snprintf(words->text, sizeof words->text, "'%.48s'%s (%.50s)",
                   f != NULL && f->bucket == 0 ? "small layers" : s->layers[layer].name, more,
                   where);
}

void gw_task_waits_for(const gw_step *s, const gw_task *t, char *text, size_t size)
{
    const gw_convoy *c = t->convoy != UINT32_MAX ? &s->convoys[t->convoy] : NULL;
    if (c == NULL) {
        gw_exchange_waits_for(t->exchange, text, size);
        return;
    }
    text[0] = '\0';
    for (uint32_t i = 0; i < c->count && text[0] == '\0'; i++) {
        gw_exchange_waits_for(s->layers[s->convoyed[c->first + i]].pieces[0], text, size);
    }
}
