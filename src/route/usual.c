/* The route where the user names none. */
#include "base/why.h"

#include <gradwire/route.h>

#include <stdio.h>

/* With gather every member sends its payload to every other one: one lossy hop, but bytes that grow with the members. From
 * here on sra sends less than an uncompressed ring, and gather may not. */
enum { MOST_GATHERED = 16 };

/* Nodes that have several ranks, and others to talk to. */
static int has_nodes(const gw_route_job *job)
{
    const uint32_t k = job->ranks_per_node;
    return job->nodes != NULL ? job->nodes->n > 1 && job->nodes->most > 1
                              : k > 1 && k < job->ranks && job->ranks % k == 0;
}

static const char *usual_name(const gw_params *params, uint32_t members)
{
    const uint32_t flags = gw_params_flags(params);
    return (flags & GW_CODEC_ROUNDS) != 0                                       ? "sum"
           : (flags & GW_CODEC_WANTS_FEEDBACK) != 0 && members <= MOST_GATHERED ? "gather"
                                                                                : "sra";
}

gw_status gw_route_usual(const gw_params *params, const gw_route_job *job, gw_device device,
                         gw_route *out, gw_why *why)
{
    if (job == NULL || out == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "gw_route_usual: no job, or no place for the route");
    }
    const int coded = params != NULL && params->codec != NULL, nodes = has_nodes(job);
    const uint32_t members = !nodes               ? job->ranks
                             : job->nodes != NULL ? job->nodes->n
                                                  : job->ranks / job->ranks_per_node;
    char text[32];
    (void)snprintf(text, sizeof text, "%s%s%s", nodes ? "hier-" : "",
                   coded ? usual_name(params, members) : "dense",
                   !coded                    ? ""
                   : device == GW_DEVICE_GPU ? "@gpu"
                                             : "@cpu");
    return gw_route_parse(out, text, why);
}
