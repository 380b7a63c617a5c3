/* auto in one line of text. */
#include "base/why.h"
#include "control/spec_parse.h"

#include <gradwire/step_auto.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static gw_status set(gw_auto_spec *s, const char *word, size_t n, gw_why *why)
{
    char text[64];
    double value = 0;
    if (!gw_spec_word(text, sizeof text, word, n)) {
        return GW_FAIL(why, GW_ERR_RANGE, "auto: a setting is too long");
    }
    const int fine = gw_spec_number(text, &value) && value > 0;
    if (fine && strncmp(text, "alpha=", 6) == 0 && value >= 0.0625 && value <= 4) {
        s->alpha = value;
    } else if (fine && strncmp(text, "limit=", 6) == 0) {
        s->limit = value;
    } else if (fine && strncmp(text, "period=", 7) == 0 && value == floor(value) &&
               value >= GW_AUTO_LEAST_PERIOD && value < 1e9) {
        s->period = (uint64_t)value;
    } else {
        return GW_FAIL(why, GW_ERR_ARG,
                       "auto: '%s': there are alpha=0.0625 to 4, limit=above 0, period=%d and more",
                       text, GW_AUTO_LEAST_PERIOD);
    }
    return GW_OK;
}

static gw_status add_family(gw_auto_spec *s, const char *word, size_t n, gw_why *why)
{
    char text[GW_AUTO_SPEC_TEXT];
    if (s->n_families == GW_AUTO_FAMILIES || !gw_spec_word(text, sizeof text, word, n)) {
        return GW_FAIL(why, GW_ERR_RANGE, "auto: a spec too long, or more than %d",
                       GW_AUTO_FAMILIES);
    }
    gw_params *p = &s->families[s->n_families];
    const gw_status status = gw_params_parse(p, text, why);
    if (status != GW_OK) {
        return status;
    }
    for (size_t i = 0; i < s->n_families; i++) {
        if (s->families[i].codec == p->codec) {
            return GW_FAIL(why, GW_ERR_ARG, "auto: '%.60s' is there twice", text);
        }
    }
    s->n_families++;
    return GW_OK;
}

int gw_auto_spec_is(const char *text)
{
    if (text == NULL) {
        return 0;
    }
    return strncmp(text, "auto", 4) == 0 && (text[4] == '\0' || text[4] == ':' || text[4] == '/');
}

gw_status gw_auto_spec_parse(const char *text, gw_auto_spec *out, gw_why *why)
{
    GW_REQUIRE(why, text != NULL && out != NULL, "no text, or no place for what it says");
    *out = (gw_auto_spec){.n_families = 0};
    if (!gw_auto_spec_is(text)) {
        return GW_FAIL(why, GW_ERR_ARG, "'%.60s': auto[:SETTING,...][/DEFAULT[/FAMILY...]]", text);
    }
    const char *at = text + 4, *const end = at + strcspn(at, "/");
    gw_status status = GW_OK;
    if (*at == ':') {
        do {
            at++;
            const size_t n = strcspn(at, ",/");
            status = set(out, at, n, why);
            at += n;
        } while (status == GW_OK && at < end);
    }
    for (at = end; *at == '/' && status == GW_OK;) {
        const size_t n = strcspn(++at, "/");
        status = add_family(out, at, n, why);
        at += n;
    }
    return status;
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
