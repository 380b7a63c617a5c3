/* The route where the user names none. */
#include "base/why.h"

#include <gradwire/route.h>

#include <stdio.h>

/* Nodes that have several ranks, and others to talk to. */
static int has_nodes(const gw_route_job *job)
{
    const uint32_t k = job->ranks_per_node;
    return job->nodes != NULL ? job->nodes->n > 1 && job->nodes->most > 1
                              : k > 1 && k < job->ranks && job->ranks % k == 0;
}

gw_status gw_route_usual(const gw_params *params, const gw_route_job *job, gw_device device,
                         gw_route *out, gw_why *why)
{
    if (job == NULL || out == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "gw_route_usual: no job, or no place for the route");
    }
    const uint32_t flags = params != NULL && params->codec != NULL ? gw_params_flags(params) : 0;
    const char *name = params == NULL || params->codec == NULL  ? "dense"
                       : (flags & GW_CODEC_ROUNDS) != 0         ? "sum"
                       : (flags & GW_CODEC_WANTS_FEEDBACK) != 0 ? "gather"
                                                                : "sra";
    const int coded = params != NULL && params->codec != NULL;
    char text[32];
    (void)snprintf(text, sizeof text, "%s%s%s", has_nodes(job) ? "hier-" : "", name,
                   !coded                    ? ""
                   : device == GW_DEVICE_GPU ? "@gpu"
                                             : "@cpu");
    return gw_route_parse(out, text, why);
}
