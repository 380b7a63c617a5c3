/* Every operation is one exchange of pieces: what a member sends to each, and receives from each. Backends
 * know nothing else. */
#ifndef GW_COMM_PIECES_H
#define GW_COMM_PIECES_H

#include <gradwire/comm.h>

typedef enum gw_operation {
    GW_ALLGATHERV,
    GW_ALLTOALLV,
    GW_BROADCAST,
    GW_BARRIER,  /* empty messages that are waited for; elsewhere an empty piece is no message */
    GW_ALLREDUCE /* optional, where a backend has its own */
} gw_operation;

typedef struct gw_piece {
    const unsigned char *from;
    unsigned char *to;
    size_t sent, received; /* bytes */
} gw_piece;

/* An exchange has at most so many operations of one group under way at once: numbers and their seals. */
enum { GW_COMM_AT_ONCE = 2 };

const char *gw_operation_name(gw_operation operation);

/* Ranks that an operation waits for, in words. */
typedef struct gw_rank_list {
    uint32_t n;
    char text[64];
} gw_rank_list;
void gw_rank_list_add(gw_rank_list *list, uint32_t rank);
/* Appends "BEFORE rank 3", "BEFORE ranks 1, 3" or "BEFORE ranks 0, 1, 2, 3, 4, 5, 6, 7 and 9 more"; nothing for no ranks. */
void gw_rank_list_say(const gw_rank_list *list, const char *before, char *text, size_t size);

/* The arguments of an operation. */
typedef struct gw_call {
    gw_operation operation;
    const void *send;
    void *receive; /* a broadcast's buffer, too */
    size_t bytes;  /* of an allgatherv's `send`; of a broadcast */
    const size_t *send_sizes, *send_offsets, *receive_sizes, *receive_offsets;
    uint32_t root;
} gw_call;

/* Checks the arguments and fills pieces[0 … ranks): what this rank exchanges with each, itself too. */
gw_status gw_call_pieces(const gw_call *call, const gw_comm *comm, gw_piece *pieces, gw_why *why);

#endif
