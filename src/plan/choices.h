/* What tensors of one size can do: a choice is a spec and a route, priced into a chain. Choices that another one
 * beats on every track are not kept. */
#ifndef GW_PLAN_CHOICES_H
#define GW_PLAN_CHOICES_H

#include "plan/timeline.h"

/* Where a choice codes. */
typedef enum gw_coding {
    GW_CODING_NONE = 0,
    GW_CODING_GPU,
    GW_CODING_CPU,
    GW_CODING_MIXED
} gw_coding;

/* What a choice asks of each part of the machine: it is dominated by one that asks no more of any. */
enum {
    GW_ASK_GPU_LAST =
        GW_TRACKS, /* GPU work that nothing waits for; it is not counted in GW_TRACK_GPU here */
    GW_ASK_HEAD,   /* time before the first communication */
    GW_ASK_TAIL,   /* and behind the last */
    GW_ASK_HOPS,   /* lossy ones, where they count: gw_front */
    GW_ASKS
};

typedef struct gw_choice {
    gw_chain chain;
    gw_ticks ask[GW_ASKS];
    gw_route route;
    uint32_t spec;            /* which of the caller's; 0 for an uncompressed route */
    uint32_t variety;         /* the same for choices that differ in devices alone */
    uint8_t coding;           /* gw_coding */
    uint8_t hops;             /* lossy ones */
    uint8_t kept_for_offload; /* dominated, but the CPU twin of one that is not */
} gw_choice;

typedef struct gw_class {
    uint64_t elements;
    int together; /* of several tensors */
    int plain;    /* uncompressed routes only */
    gw_choice *choice;
    uint32_t n;
    gw_op_time *ops; /* of all choices */
    uint32_t
        *some; /* the choices that are best under some weighting of what they ask for; all if few */
    uint32_t n_some;
} gw_class;

/* Collects the choices of a class. */
typedef struct gw_front {
    gw_timeline_rules rules;
    int hops_count; /* 1: more lossy hops ask for more */
    gw_choice *choice;
    gw_op_time *ops; /* GW_TIMELINE_MAX_OPS a choice */
    uint32_t n, capacity;
    uint64_t offered, dropped;
} gw_front;

/* Empties it; its memory stays. */
void gw_front_begin(gw_front *front, const gw_timeline_rules *rules);
/* `like` says all but chain and asks. `force`: also if it is dominated. False: no memory. */
int gw_front_offer(gw_front *front, const gw_choice *like, const gw_timed_op *ops, uint32_t n_ops,
                   int force);
/* Copies what is left. False: no memory. */
int gw_front_seal(const gw_front *front, uint64_t elements, gw_class *out);
/* What is left of it if coding takes no time. False: no memory. */
int gw_class_free_coding(gw_front *front, const gw_class *c, gw_class *out);
void gw_front_free(gw_front *front);
void gw_class_free(gw_class *c);

/* Of every part of the machine; hops aside. */
int gw_asks_no_more(const gw_choice *a, const gw_choice *b);
/* Offers a choice once more, to another front. */
int gw_front_offer_again(gw_front *front, const gw_choice *c);

/* All its operations together. */
gw_ticks gw_choice_alone(const gw_choice *c);
/* Index of the choice of that variety whose coding is all on the CPU, or UINT32_MAX. */
uint32_t gw_class_cpu_twin(const gw_class *c, uint32_t choice);

#endif
