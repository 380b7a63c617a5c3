#include "cli/train/train_trace.h"

#include "cli/train/train_agree.h"
#include "cli/train/train_files.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { COMPUTE, CODE, LANES }; /* rows: then one a lane */

void gw_cli_tracer_free(gw_cli_tracer *tracer)
{
    for (size_t i = 0; i < GW_CLI_TRACED_STEPS; i++) {
        free(tracer->steps[i].moves);
    }
    *tracer = (gw_cli_tracer){0};
}

gw_status gw_cli_tracer_add(gw_cli_tracer *tracer, const rank *r, const rank_stats *stats,
                            gw_why *why)
{
    gw_cli_traced *t = &tracer->steps[tracer->seen++ % GW_CLI_TRACED_STEPS];
    t->stats = *stats;
    t->first_post = r->first_post;
    if (gw_step_timeline(r->step, t->moves, t->room, &t->n) == GW_OK) {
        return GW_OK;
    }
    gw_step_interval *more = realloc(t->moves, t->n * sizeof *more);
    if (!more) {
        return gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory to trace");
    }
    t->moves = more;
    t->room = t->n;
    return gw_step_timeline(r->step, t->moves, t->room, &t->n);
}

/* ---- the file ---- */

static void name_row(json_t *events, unsigned row, const char *name)
{
    json_array_append_new(events,
                          json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", "thread_name", "ph",
                                    "M", "pid", 1, "tid", (int)row, "args", "name", name));
}

/* Seconds; the trace's are microseconds. */
static void add_span(json_t *events, unsigned row, const char *kind, const char *name, double begin,
                     double end, json_t *args)
{
    json_array_append_new(events,
                          json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:o}", "name", name, "ph",
                                    "X", "cat", kind, "pid", 1, "tid", (int)row, "ts", begin * 1e6,
                                    "dur", (end - begin) * 1e6, "args", args));
}

/* What is sent as one is called by its first param and its last. */
static void name_layer(const rank *r, uint32_t number, char *name, size_t size)
{
    uint32_t place = 0;
    while (number >= RANK_FIRST_PARAM && r->plan.order[place] != number - RANK_FIRST_PARAM) {
        place++;
    }
    const uint32_t n = number >= RANK_FIRST_PARAM ? plan_together(&r->plan, place) : 0;
    if (n < 2) {
        (void)snprintf(name, size, "%s",
                       n == 0 ? "loss" : r->model->params[r->plan.order[place]]->name);
        return;
    }
    (void)snprintf(name, size, "%.32s%s%.32s", r->model->params[r->plan.order[place]]->name,
                   n > 2 ? "+...+" : "+", r->model->params[r->plan.order[place + n - 1]]->name);
}

static void add_move(json_t *events, const rank *r, const gw_step_interval *m, double at)
{
    const bool codes = m->step.level == 0;
    char step[GW_ROUTE_STEP_TEXT], tensor[120], name[200];
    name_layer(r, m->layer, tensor, sizeof tensor);
    gw_route_step_print(m->step, step);
    (void)snprintf(name, sizeof name, "%s %.60s", tensor, step);
    add_span(events, codes ? CODE : LANES + m->lane, codes ? "code" : "exchange", name,
             at + m->begun, at + m->ended,
             json_pack("{s:s, s:i}", "tensor", tensor, "piece", (int)m->piece));
}

static unsigned add_step(json_t *events, const rank *r, const gw_cli_traced *t, double origin)
{
    const rank_stats *s = &t->stats;
    const double at = t->first_post - origin, posted = at + s->backward_seconds;
    const double arrived = at - s->forward_seconds + s->seconds - s->update_seconds;
    unsigned lanes = 0;
    json_t *which = json_pack("{s:I}", "step", (json_int_t)s->step + 1);
    add_span(events, COMPUTE, "compute", "forward", at - s->forward_seconds, at,
             json_incref(which));
    add_span(events, COMPUTE, "compute", "backward", at, posted, json_incref(which));
    add_span(events, COMPUTE, "compute", "wait", posted, arrived, json_incref(which));
    add_span(events, COMPUTE, "compute", "update", arrived, arrived + s->update_seconds, which);
    for (size_t i = 0; i < t->n; i++) {
        add_move(events, r, &t->moves[i], at);
        lanes = t->moves[i].lane >= lanes ? t->moves[i].lane + 1 : lanes;
    }
    return lanes;
}

gw_status gw_cli_tracer_write(const gw_cli_tracer *tracer, const rank *r, const char *path,
                              gw_why *why)
{
    const size_t kept = tracer->seen < GW_CLI_TRACED_STEPS ? tracer->seen : GW_CLI_TRACED_STEPS;
    const size_t first = tracer->seen - kept;
    unsigned lanes = 0;
    double origin = 0;
    json_t *events = json_array();
    json_array_append_new(events,
                          json_pack("{s:s, s:s, s:i, s:{s:s}}", "name", "process_name", "ph", "M",
                                    "pid", 1, "args", "name", "measured, rank 0"));
    for (size_t i = 0; i < kept; i++) {
        const gw_cli_traced *t = &tracer->steps[(first + i) % GW_CLI_TRACED_STEPS];
        origin = i == 0 ? t->first_post - t->stats.forward_seconds : origin;
        const unsigned here = add_step(events, r, t, origin);
        lanes = here > lanes ? here : lanes;
    }
    name_row(events, COMPUTE, "compute");
    name_row(events, CODE, "code");
    for (unsigned i = 0; i < lanes; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "exchange %u", i + 1);
        name_row(events, LANES + i, name);
    }
    json_t *trace = json_pack("{s:s, s:o}", "displayTimeUnit", "ms", "traceEvents", events);
    char *text = trace ? json_dumps(trace, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) : NULL;
    const gw_status status = text ? gw_cli_file_save(path, text, strlen(text), why)
                                  : gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory for a trace");
    free(text);
    json_decref(trace);
    return status;
}
