/* Where an exchange is, and what it waits for, in words. */
#include "coll/device_exchange.h"

#include <stdio.h>
#include <string.h>

void gw_exchange_where(const gw_exchange *x, char *text, size_t size)
{
    if (x == NULL || text == NULL) {
        return;
    }
    char route[GW_ROUTE_TEXT];
    const char *step = route;
    const char dot[] = " \xC2\xB7 ";
    const uint32_t at = x->move < x->program.n_moves ? x->move : x->program.n_moves - 1;
    if (gw_route_print(&x->program.route, route, sizeof route) != GW_OK) {
        route[0] = '\0';
    }
    for (uint32_t i = 0; i < at && step != NULL; i++) {
        step = strstr(step, dot);
        step = step != NULL ? step + strlen(dot) : NULL;
    }
    step = step != NULL ? step : "";
    const char *end = strstr(step, dot);
    (void)snprintf(text, size, "%.*s, step %u of %u",
                   (int)(end != NULL ? (size_t)(end - step) : strlen(step)), step, at + 1,
                   x->program.n_moves);
}

void gw_exchange_waits_for(const gw_exchange *x, char *text, size_t size)
{
    if (text == NULL || size == 0) {
        return;
    }
    text[0] = '\0';
    const gw_request request = x == NULL            ? NULL
                               : x->request != NULL ? x->request
                                                    : x->seals.request;
    if (request != NULL) {
        gw_comm_describe(x->comm, request, text, size);
    } else if (x != NULL && x->there != NULL && x->there->waiting) {
        (void)snprintf(text, size, "a copy between host and device");
    }
}
