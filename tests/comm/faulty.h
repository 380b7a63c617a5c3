/* A group that goes wrong on purpose: wraps any other, and spoils one operation. Groups split from it count
 * on, so that "operation 5" is the rank's fifth over all of them. */
#ifndef GW_TESTS_COMM_FAULTY_H
#define GW_TESTS_COMM_FAULTY_H

#include <gradwire/comm.h>

typedef enum fault_kind {
    FAULT_NONE,
    FAULT_CORRUPT, /* a byte that another rank sent arrives changed */
    FAULT_LIE, /* a byte of what this rank sends is another than its caller meant; not of a broadcast */
    FAULT_STOP, /* this rank does nothing any more: the operation is not begun, nor any after it */
    FAULT_FAIL, /* its test fails: GW_ERR_SYSTEM */
    FAULT_SPLIT, /* split number `operation` fails at this rank, which tells no other: GW_ERR_CHECKSUM */
    FAULT_DELAY /* done only after `amount` more tests */
} fault_kind;

typedef struct fault {
    fault_kind kind;
    uint64_t operation; /* which, from 0 */
    size_t
        amount; /* corrupt: which byte of the first piece that came from another, modulo its size; lie: which byte */
} fault;

/* Takes `inner` over: closing the new one closes it. NULL: no memory. */
gw_comm *faulty_wrap(gw_comm *inner, fault planned);
/* The same, with GW_COMM_SEALED: it says that it notices changed bytes, and does not. On all ranks or on none. */
gw_comm *faulty_wrap_unsealed(gw_comm *inner, fault planned);
/* An engine that sums by itself and says that its sums are the same everywhere (GW_COMM_SAME_BITS): FAULT_CORRUPT changes
 * the sum at this rank. */
gw_comm *faulty_wrap_engine(gw_comm *inner, fault planned);
/* 1: a FAULT_CORRUPT has changed a byte. */
int faulty_struck(const gw_comm *comm);
/* From now on `sent` is called for every message of an operation that is posted: to which member of the how many-th group that was
 * split off (0: the one that was wrapped), and how long. */
typedef void faulty_sent(void *with, uint64_t group, uint32_t member, size_t bytes);
void faulty_listen(gw_comm *comm, faulty_sent *sent, void *with);
/* Operations begun so far: to place a fault in the middle of something. */
uint64_t faulty_operations(const gw_comm *comm);

#endif
