/* Choosing during training in one line of text. */
#include "base/why.h"
#include "control/spec_parse.h"

#include <gradwire/step_adapt.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The next part up to `end`, its length in *n; NULL at the end. */
static const char *part_of(const char *text, char end, size_t *n)
{
    const char *at = strchr(text, end);
    *n = at != NULL ? (size_t)(at - text) : strlen(text);
    return at != NULL ? at + 1 : NULL;
}

static int metric_of(const char *word)
{
    static const char *const METRICS[] = {"norms", "squares", "relative"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(word, METRICS[i]) == 0) {
            return i;
        }
    }
    return -1;
}

static gw_status set(gw_adapt_spec *s, const char *word, size_t n, gw_why *why)
{
    char text[64];
    double value = 0;
    if (!gw_spec_word(text, sizeof text, word, n)) {
        return GW_FAIL(why, GW_ERR_RANGE, "adapt: a setting is too long");
    }
    const int is_number = gw_spec_number(text, &value);
    if (is_number && strncmp(text, "period=", 7) == 0 && value == floor(value) &&
        value >= GW_STEP_ADAPT_LEAST_PERIOD && value < 1e9) {
        s->period = (uint64_t)value;
    } else if (is_number && strncmp(text, "alpha=", 6) == 0 && value >= 0) {
        s->alpha = value;
    } else if (is_number && strncmp(text, "gain=", 5) == 0 && value >= 0 && value < 1) {
        s->gain = value;
    } else if (is_number && strncmp(text, "floor=", 6) == 0 && value >= 0 && value <= 1) {
        s->floor = value;
    } else if (strncmp(text, "metric=", 7) == 0 && metric_of(text + 7) >= 0) {
        s->metric = (gw_adapt_metric)metric_of(text + 7);
    } else {
        return GW_FAIL(why, GW_ERR_ARG,
                       "adapt: '%s': there are period=%d and more, alpha=0 and more, gain=0 "
                       "to 1, floor=0 to 1, metric=norms, squares or relative",
                       text, GW_STEP_ADAPT_LEAST_PERIOD);
    }
    return GW_OK;
}

static gw_status add_family(gw_adapt_spec *s, const char *word, size_t n, gw_why *why)
{
    char text[GW_ADAPT_SPEC_TEXT];
    if (s->n_families == GW_ADAPT_SPEC_FAMILIES || !gw_spec_word(text, sizeof text, word, n)) {
        return GW_FAIL(why, GW_ERR_RANGE, "adapt: a spec too long, or more than %d",
                       GW_ADAPT_SPEC_FAMILIES);
    }
    if (s->n_families == 0) {
        memcpy(s->uniform, text, n + 1);
    }
    gw_params *p = &s->families[s->n_families];
    const gw_status status = gw_params_parse(p, text, why);
    for (size_t i = 0; i < s->n_families && status == GW_OK; i++) {
        if (s->families[i].codec == p->codec) {
            return GW_FAIL(why, GW_ERR_ARG, "adapt: '%.60s' is there twice", text);
        }
    }
    s->n_families++;
    return status;
}

/* That the families have levels to choose from. */
static gw_status check_levels(const gw_adapt_spec *s, gw_why *why)
{
    static const uint64_t dims[] = {64, 64};
    const gw_adapt_rules rules = {
        .families = s->families, .n_families = s->n_families, .uniform = s->families[0]};
    gw_params *levels = calloc(GW_ADAPT_MOST_LEVELS, sizeof *levels);
    size_t n = 0;
    uint32_t uniform = 0;
    if (levels == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for levels");
    }
    const gw_status status =
        gw_adapt_levels(&rules, GW_F32, dims, 2, levels, GW_ADAPT_MOST_LEVELS, &n, &uniform, why);
    free(levels);
    return status;
}

int gw_adapt_spec_is(const char *text)
{
    if (text == NULL) {
        return 0;
    }
    return strncmp(text, "adapt", 5) == 0 && (text[5] == ':' || text[5] == '/');
}

gw_status gw_adapt_spec_parse(const char *text, gw_adapt_spec *out, gw_why *why)
{
    GW_REQUIRE(why, text != NULL && out != NULL, "no text, or no place for what it says");
    *out = (gw_adapt_spec){.period = 100, .alpha = 1, .gain = 0.02, .floor = 0.75};
    size_t n = 0;
    const char *rest = gw_adapt_spec_is(text) ? part_of(text, '/', &n) : NULL;
    gw_status status = GW_OK;
    if (rest == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "'%.60s': adapt/DEFAULT[/FAMILY...]", text);
    }
    const char *end = text + n;
    for (const char *at = text + 6; at < end && status == GW_OK;) {
        size_t size = 0;
        const char *next = part_of(at, ',', &size);
        size = at + size > end ? (size_t)(end - at) : size;
        status = set(out, at, size, why);
        at = next != NULL && next < end ? next : end;
    }
    while (rest != NULL && status == GW_OK) {
        const char *at = rest;
        rest = part_of(at, '/', &n);
        status = add_family(out, at, n, why);
    }
    return status == GW_OK ? check_levels(out, why) : status;
}

gw_status gw_step_adapt_begin_spec(gw_step *step, const char *text, gw_why *why)
{
    gw_adapt_spec spec;
    const gw_status status = gw_adapt_spec_parse(text, &spec, why);
    if (status != GW_OK) {
        return status;
    }
    const gw_step_adapt_config config = {.rules = {.families = spec.families,
                                                   .n_families = spec.n_families,
                                                   .uniform = spec.families[0]},
                                         .metric = spec.metric,
                                         .every = spec.period,
                                         .alpha = spec.alpha,
                                         .least_gain = spec.gain,
                                         .floor = spec.floor};
    return gw_step_adapt_begin(step, &config, why);
}
