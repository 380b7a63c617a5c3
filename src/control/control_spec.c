/* Choosing during training in one line of text: NAME[:SETTING,...][/DEFAULT[/FAMILY...]]. */
#include "control/adapt.h"
#include "control/auto.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what both have ---- */

enum { SPEC_TEXT = GW_ADAPT_SPEC_TEXT, FAMILIES = GW_ADAPT_SPEC_FAMILIES, SETTING = 64 };
_Static_assert((int)GW_AUTO_SPEC_TEXT == SPEC_TEXT && (int)GW_AUTO_FAMILIES == FAMILIES, "");

typedef struct line {
    const char *name; /* "adapt" */
    void *spec;
    int (*set)(void *spec,
               const char *setting); /* 0: there is no such setting, or it is out of range */
    const char *settings;            /* that there are */
    gw_params *families;
    size_t *n_families;
} line;

/* `n` characters of `word` as a string of its own; 0: there is no room. */
static int copy_word(char *text, size_t room, const char *word, size_t n)
{
    if (n >= room) {
        return 0;
    }
    memcpy(text, word, n);
    text[n] = '\0';
    return 1;
}

/* "NAME=number", finite. */
static int is_number(const char *setting, const char *name, double *value)
{
    const size_t n = strlen(name);
    char *end = NULL;
    if (strncmp(setting, name, n) != 0 || setting[n] != '=') {
        return 0;
    }
    *value = strtod(setting + n + 1, &end);
    return end != setting + n + 1 && *end == '\0' && isfinite(*value);
}

static int is_period(const char *setting, double least, uint64_t *period)
{
    double value = 0;
    if (!is_number(setting, "period", &value) || value != floor(value) || value < least ||
        value >= 1e9) {
        return 0;
    }
    *period = (uint64_t)value;
    return 1;
}

static gw_status add_family(const line *l, const char *word, size_t n, gw_why *why)
{
    char text[SPEC_TEXT];
    if (*l->n_families == FAMILIES || !copy_word(text, sizeof text, word, n)) {
        return GW_FAIL(why, GW_ERR_RANGE, "%s: a spec too long, or more than %d", l->name,
                       FAMILIES);
    }
    gw_params *p = &l->families[*l->n_families];
    const gw_status status = gw_params_parse(p, text, why);
    if (status != GW_OK) {
        return status;
    }
    for (size_t i = 0; i < *l->n_families; i++) {
        if (l->families[i].codec == p->codec) {
            return GW_FAIL(why, GW_ERR_ARG, "%s: '%.60s' is there twice", l->name, text);
        }
    }
    ++*l->n_families;
    return GW_OK;
}

static gw_status set(const line *l, const char *word, size_t n, gw_why *why)
{
    char text[SETTING];
    if (!copy_word(text, sizeof text, word, n)) {
        return GW_FAIL(why, GW_ERR_RANGE, "%s: a setting is too long", l->name);
    }
    return l->set(l->spec, text)
               ? GW_OK
               : GW_FAIL(why, GW_ERR_ARG, "%s: '%s': there are %s", l->name, text, l->settings);
}

static int begins(const char *text, const char *name)
{
    return text != NULL && strncmp(text, name, strlen(name)) == 0;
}

/* `text` begins with the name. */
static gw_status parse(const line *l, const char *text, gw_why *why)
{
    const char *at = text + strlen(l->name);
    gw_status status = GW_OK;
    for (char before = ':'; *at == before && status == GW_OK; before = ',') {
        const size_t n = strcspn(++at, ",/");
        status = set(l, at, n, why);
        at += n;
    }
    while (*at == '/' && status == GW_OK) {
        const size_t n = strcspn(++at, "/");
        status = add_family(l, at, n, why);
        at += n;
    }
    return status;
}

/* ---- adapt ---- */

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

static int set_adapt(void *spec, const char *setting)
{
    gw_adapt_spec *s = spec;
    double value = 0;
    if (is_number(setting, "alpha", &value) && value >= 0) {
        s->alpha = value;
    } else if (is_number(setting, "gain", &value) && value >= 0 && value < 1) {
        s->gain = value;
    } else if (is_number(setting, "floor", &value) && value >= 0 && value <= 1) {
        s->floor = value;
    } else if (begins(setting, "metric=") && metric_of(setting + 7) >= 0) {
        s->metric = (gw_adapt_metric)metric_of(setting + 7);
    } else {
        return is_period(setting, GW_STEP_ADAPT_LEAST_PERIOD, &s->period);
    }
    return 1;
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
    return begins(text, "adapt:") || begins(text, "adapt/");
}

gw_status gw_adapt_spec_parse(const char *text, gw_adapt_spec *out, gw_why *why)
{
    GW_REQUIRE(why, text != NULL && out != NULL, "no text, or no place for what it says");
    *out = (gw_adapt_spec){.period = 100, .alpha = 1, .gain = 0.02, .floor = 0.75};
    const line l = {"adapt",
                    out,
                    set_adapt,
                    "period=4 and more, alpha=0 and more, gain=0 to 1, floor=0 to 1, metric=norms, "
                    "squares or relative",
                    out->families,
                    &out->n_families};
    const char *families = strchr(text, '/');
    if (!gw_adapt_spec_is(text) || families == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "'%.60s': adapt[:SETTING,...]/DEFAULT[/FAMILY...]", text);
    }
    const gw_status status = parse(&l, text, why);
    if (status != GW_OK) {
        return status;
    }
    (void)copy_word(out->uniform, sizeof out->uniform, families + 1, strcspn(families + 1, "/"));
    return check_levels(out, why);
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

/* ---- auto ---- */

static int set_auto(void *spec, const char *setting)
{
    gw_auto_spec *s = spec;
    double value = 0;
    if (is_number(setting, "alpha", &value) && value >= GW_AUTO_LEAST_ALPHA &&
        value <= GW_AUTO_MOST_ALPHA) {
        s->alpha = value;
    } else if (is_number(setting, "limit", &value) && value > 0) {
        s->limit = value;
    } else {
        return is_period(setting, GW_AUTO_LEAST_PERIOD, &s->period);
    }
    return 1;
}

int gw_auto_spec_is(const char *text)
{
    return begins(text, "auto") && (text[4] == '\0' || text[4] == ':' || text[4] == '/');
}

gw_status gw_auto_spec_parse(const char *text, gw_auto_spec *out, gw_why *why)
{
    GW_REQUIRE(why, text != NULL && out != NULL, "no text, or no place for what it says");
    *out = (gw_auto_spec){.n_families = 0};
    const line l = {"auto",        out,
                    set_auto,      "alpha=0.0625 to 4, limit=above 0, period=40 and more",
                    out->families, &out->n_families};
    if (!gw_auto_spec_is(text)) {
        return GW_FAIL(why, GW_ERR_ARG, "'%.60s': auto[:SETTING,...][/DEFAULT[/FAMILY...]]", text);
    }
    return parse(&l, text, why);
}

gw_status gw_step_auto_begin_spec(gw_step *step, const char *text, gw_why *why)
{
    gw_auto_spec spec;
    const gw_status status = gw_auto_spec_parse(text, &spec, why);
    if (status != GW_OK) {
        return status;
    }
    const gw_step_auto_config config = {
        .families = spec.families,
        .n_families = spec.n_families,
        .uniform = spec.n_families != 0 ? spec.families[0] : (gw_params){.codec = NULL},
        .alpha = spec.alpha,
        .limit = spec.limit,
        .period = spec.period};
    return gw_step_auto_begin(step, &config, why);
}
