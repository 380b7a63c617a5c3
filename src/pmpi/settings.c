#include "pmpi/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 512 };

static const char *setting(const char *name, const char *fallback)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : fallback;
}

static gw_status wrong(gw_why *why, const char *value, const char *what)
{
    (void)snprintf(why->text, sizeof why->text, "'%.80s' %s", value, what);
    return GW_ERR_RANGE;
}

static gw_status read_numbers(gw_pmpi_settings *s, const char **name, gw_why *why)
{
    char *end = NULL;
    *name = "GRADWIRE_PMPI_MIN_BYTES";
    const char *text = setting(*name, "1048576");
    errno = 0;
    s->least = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || text[0] < '0' || text[0] > '9') {
        return wrong(why, text, "is not a number of bytes");
    }
    *name = "GRADWIRE_PMPI_TIMEOUT";
    text = setting(*name, "300");
    s->timeout = strtod(text, &end);
    if (*end != '\0' || !(s->timeout > 0 && s->timeout < 1e6)) {
        return wrong(why, text, "is not a number of seconds between 0 and 1e6");
    }
    return GW_OK;
}

gw_status gw_pmpi_settings_read(gw_pmpi_settings *out, const char **name, gw_why *why)
{
    *out = (gw_pmpi_settings){0};
    *name = "GRADWIRE_PMPI_SPEC";
    const char *spec = setting(*name, NULL);
    if (spec == NULL) {
        return GW_OK;
    }
    gw_status status = gw_params_parse(&out->params, spec, why);
    if (status == GW_OK && (gw_params_flags(&out->params) & GW_CODEC_UNBIASED) == 0) {
        status = wrong(why, spec,
                       "needs a residual, which a sum has no place for: the codec must be unbiased "
                       "(natural, dither, ndither, cast:to=f32)");
    }
    if (status != GW_OK) {
        return status;
    }
    *name = "GRADWIRE_PMPI_ROUTE";
    const char *route = setting(*name, NULL);
    out->usual = route == NULL;
    if (route != NULL) {
        status = gw_route_parse(&out->route, route, why);
        if (status == GW_OK) {
            status = gw_route_fits(&out->route, &out->params, why);
        }
    }
    if (status == GW_OK) {
        status = read_numbers(out, name, why);
    }
    out->verbose = strcmp(setting("GRADWIRE_PMPI_VERBOSE", "0"), "0") != 0;
    out->on = status == GW_OK;
    return status;
}

void gw_pmpi_settings_say(const gw_pmpi_settings *s)
{
    char codec[TEXT] = "?", route[GW_ROUTE_TEXT] = "?";
    if (!s->on) {
        (void)fprintf(stderr,
                      "gradwire: preload: GRADWIRE_PMPI_SPEC names no codec, so nothing is "
                      "compressed and every "
                      "MPI call passes unchanged. To compress large sums of floats, which makes "
                      "them inexact, "
                      "set it, for example GRADWIRE_PMPI_SPEC=natural:bits=8 (docs/mpi.md)\n");
        return;
    }
    (void)gw_params_print(&s->params, codec, sizeof codec);
    if (s->usual) {
        (void)snprintf(route, sizeof route, "as its nodes need it");
    } else if (gw_route_name_of(&s->route, route, sizeof route) != GW_OK) {
        (void)gw_route_print(&s->route, route, sizeof route);
    }
    (void)fprintf(stderr,
                  "gradwire: preload: MPI_Allreduce of MPI_FLOAT with MPI_SUM, from %llu bytes, is "
                  "compressed with %s, route: %s. These sums are inexact (docs/mpi.md)\n",
                  (unsigned long long)s->least, codec, route);
}
