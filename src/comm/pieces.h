/* Every operation is one exchange of pieces: what a member sends to each, and receives from each. Backends
 * know nothing else. */
#ifndef GW_COMM_PIECES_H
#define GW_COMM_PIECES_H

#include <gradwire/comm.h>

typedef enum gw_operation {
    GW_ALLGATHERV,
    GW_ALLTOALLV,
    GW_BROADCAST,
    GW_BARRIER, /* empty messages that are waited for; elsewhere an empty piece is no message */
    /* the optional ones, where a backend has its own */
    GW_ALLREDUCE,
    GW_REDUCE,
    GW_REDUCE_SCATTER,
    GW_GATHERV
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

/* Fill pieces[0 … ranks): what `rank` exchanges with each, itself too. */
gw_status gw_pieces_allgatherv(gw_piece *pieces, const gw_comm *comm, const void *send,
                               size_t bytes, void *receive, const size_t *sizes,
                               const size_t *offsets, gw_why *why);
gw_status gw_pieces_alltoallv(gw_piece *pieces, const gw_comm *comm, const void *send,
                              const size_t *send_sizes, const size_t *send_offsets, void *receive,
                              const size_t *receive_sizes, const size_t *receive_offsets,
                              gw_why *why);
gw_status gw_pieces_broadcast(gw_piece *pieces, const gw_comm *comm, void *buffer, size_t bytes,
                              uint32_t root, gw_why *why);
gw_status gw_pieces_gatherv(gw_piece *pieces, const gw_comm *comm, const void *send, size_t bytes,
                            void *receive, const size_t *sizes, const size_t *offsets,
                            uint32_t root, gw_why *why);
void gw_pieces_barrier(gw_piece *pieces, const gw_comm *comm);

#endif
