/* Each port is a queue that works off bytes at its rate, in the order they were handed to it. A message is
 * handed to the sender's outgoing and the receiver's incoming port at once, and has arrived one latency after
 * the later of the two is through with it. */
#include "comm/link.h"

#include "base/why.h"

#include <math.h>
#include <stdlib.h>

static int in_range(const gw_link *link)
{
    return link->bytes_per_second >= 0 && isfinite(link->bytes_per_second) &&
           link->latency_seconds >= 0 && isfinite(link->latency_seconds);
}

gw_status gw_links_init(gw_links *links, const gw_threads_config *config, gw_why *why)
{
    if (!in_range(&config->near) || !in_range(&config->far)) {
        return GW_FAIL(why, GW_ERR_RANGE, "a link's rate and latency are finite and not negative");
    }
    const uint32_t ranks_per_node = config->ranks_per_node != 0 ? config->ranks_per_node : 1;
    const uint32_t nodes = (config->ranks - 1) / ranks_per_node + 1;
    *links = (gw_links){.near = config->near,
                        .far = config->far,
                        .ranks_per_node = ranks_per_node,
                        .near_ports = calloc(config->ranks, sizeof(gw_port)),
                        .far_ports = calloc(nodes, sizeof(gw_port)),
                        .sent = calloc(config->ranks, sizeof *links->sent)};
    if (links->near_ports == NULL || links->far_ports == NULL || links->sent == NULL) {
        gw_links_free(links);
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for the ports of %u ranks", config->ranks);
    }
    return GW_OK;
}

void gw_links_free(gw_links *links)
{
    free(links->near_ports);
    free(links->far_ports);
    free(links->sent);
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

double gw_links_send(gw_links *links, uint32_t from, uint32_t to, size_t bytes, double now)
{
    const uint32_t from_node = from / links->ranks_per_node, to_node = to / links->ranks_per_node;
    const int far = from_node != to_node;
    const gw_link *link = far ? &links->far : &links->near;
    gw_port *out = far ? &links->far_ports[from_node] : &links->near_ports[from];
    gw_port *in = far ? &links->far_ports[to_node] : &links->near_ports[to];
    const double length = link->bytes_per_second > 0 ? (double)bytes / link->bytes_per_second : 0;
    links->sent[from][far] += bytes;
    out->out_free = later(out->out_free, now) + length;
    in->in_free = later(in->in_free, now) + length;
    return later(out->out_free, in->in_free) + link->latency_seconds;
}
