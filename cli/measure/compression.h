/* The compression that a network card sees: bytes that DDP's ring would send, over bytes sent; between nodes where anything goes
 * there, else inside the node. */
#ifndef GW_CLI_COMPRESSION_H
#define GW_CLI_COMPRESSION_H

#include <math.h>

typedef struct gw_cli_traffic {
    double sent, ring;         /* on all links */
    double far_sent, far_ring; /* of these, to other nodes */
} gw_cli_traffic;

/* Adds a record that has bytes_sent, dense_bytes, far_bytes_sent and far_dense_bytes. */
#define GW_CLI_TRAFFIC_ADD(traffic, record)                                                        \
    do {                                                                                           \
        (traffic)->sent += (double)(record)->bytes_sent;                                           \
        (traffic)->ring += (double)(record)->dense_bytes;                                          \
        (traffic)->far_sent += (double)(record)->far_bytes_sent;                                   \
        (traffic)->far_ring += (double)(record)->far_dense_bytes;                                  \
    } while (0)

/* NaN: nothing was sent. */
static inline double gw_cli_compression(const gw_cli_traffic *t)
{
    const double sent = t->far_ring > 0 ? t->far_sent : t->sent;
    return sent > 0 ? (t->far_ring > 0 ? t->far_ring : t->ring) / sent : (double)NAN;
}

#endif
