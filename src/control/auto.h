/* The policy that follows error and time: the plan of all layers, made again where step times, link, error or loss leave what
 * was expected. auto.c has rounds and windows; auto_job.c, auto_cluster.c and auto_tables.c the job, the cluster and the errors
 * as measured; auto_plan.c the plan; auto_watch.c the rules by which it is made again; auto_text.c what is said of it;
 * auto_save.c the checkpoint. docs/auto.md */
#ifndef GW_CONTROL_AUTO_H
#define GW_CONTROL_AUTO_H

#include "control/control.h"

#include <gradwire/step_auto.h>

#define GW_AUTO_LEAST_ALPHA 0.0625
#define GW_AUTO_MOST_ALPHA  4
#define GW_AUTO_BAND        0.2 /* a fifth: step times differ by as much, and alpha is lowered by it */
enum { GW_AUTO_CODECS = 3 * GW_AUTO_FAMILIES };
/* Sizes at which a codec is measured, and the most numbers that a rank tells the others in one message. */
enum { GW_AUTO_POINTS = 3, GW_AUTO_MOST_NUMBERS = 2 * GW_AUTO_POINTS * GW_AUTO_CODECS + 2 };
enum {
    GW_AUTO_WINDOW = 10, /* steps that are watched together */
    GW_AUTO_TIMED =
        3, /* window of a quick round; and of a full one but the first, the steps that are held */
    GW_AUTO_LAG = 2,
    GW_AUTO_SHARES = GW_AUTO_TIMED + GW_AUTO_LAG, /* window of a full round */
    GW_AUTO_BINS = 64                             /* of a sketch, and elements of a block of it */
};

/* How a layer is sent; codec NULL: uncompressed. Layers of control.layers that are sent as one have the same `with`, the place of one of
 * them. */
typedef struct gw_auto_way {
    gw_params params;
    gw_route route;
    uint32_t with;
} gw_auto_way;

/* Of a sample of a rank's gradients: their squared norm, and a sketch, whose squared norm, and that of differences, is on the
 * average that of what it is of. All zero: of nothing. */
typedef struct gw_auto_sketch {
    double squares, bins[GW_AUTO_BINS];
} gw_auto_sketch;
enum { GW_AUTO_SKETCH = 1 + GW_AUTO_BINS };

/* ---- rules ---- */

/* A window, the same on all ranks; NaN: not known. */
typedef struct gw_auto_seen {
    uint64_t step;
    double seconds, loss;
    int told;     /* a loss was */
    uint32_t bad; /* steps with something non-finite */
    double noise,
        squares; /* of a rank's gradients: their variance over ranks, their squared norm */
    double link; /* times as fast as it was, as half of the ranks saw it; 0: not known */
} gw_auto_seen;

/* What the rules remember. No clock, no words with others: equal windows give equal verdicts. */
typedef struct gw_auto_judge {
    double limit, alpha;
    double predicted, calibration;  /* NaN: none yet */
    double seconds, seconds_before; /* of a step: the last window, and with the plan before */
    int32_t outside;                /* windows in a row that were longer; below 0: shorter */
    uint32_t patience;
    double noise, squares;              /* smoothed */
    double squares_then;                /* when the tables were made */
    double lost;                        /* squared error of the plan in force, by the tables */
    uint32_t loud;                      /* windows in a row above the limit */
    double failed_alpha;                /* the last that was too much; NaN: none */
    uint32_t calm;                      /* periods since */
    double smooth, least, before, rise; /* of the loss */
    uint32_t losses, high;
    int fallen; /* back to dense, for this reason; -1: not */
    uint64_t fallen_at;
    uint32_t clean; /* windows since with all finite */
    uint32_t wide;  /* windows in a row with a much faster link */
    double link;    /* smoothed, since it was measured; NaN: no glance since */
} gw_auto_judge;

enum { GW_AUTO_NO_REASON = -1 };
void gw_auto_judge_begin(gw_auto_judge *j, double limit, double alpha);
/* A gw_auto_reason, or GW_AUTO_NO_REASON. `stale`: its steps went by another plan; `busy`: a plan is being made. */
int gw_auto_judge_window(gw_auto_judge *j, const gw_auto_seen *w, int stale, int busy);
/* At a period's begin: quiet or periodic; alpha moves. */
gw_auto_reason gw_auto_judge_period(gw_auto_judge *j);
/* A round for this reason has to measure the link. */
int gw_auto_judge_wants_link(const gw_auto_judge *j, gw_auto_reason reason);
/* The verdict is taken up: alpha moves. */
void gw_auto_judge_act(gw_auto_judge *j, gw_auto_reason reason, uint64_t step);
/* A plan binds, or stays. */
void gw_auto_judge_bound(gw_auto_judge *j, gw_auto_reason reason, int switched, double predicted,
                         double lost);
double gw_auto_noise_ratio(const gw_auto_judge *j, double lost);

/* ---- the whole ---- */

/* What a rank says of a window. */
enum { GW_SAY_SECONDS, GW_SAY_LOSS, GW_SAY_TOLD, GW_SAY_BAD, GW_SAY_LINK, GW_SAY_SKETCH };
enum { GW_SAY = GW_SAY_SKETCH + GW_AUTO_SKETCH };

typedef struct gw_step_auto {
    gw_control control;
    gw_step_auto_config config; /* nothing is 0 */
    gw_params families[GW_AUTO_FAMILIES];
    gw_auto_way *ways, *chosen;    /* of each of control.layers: in force, will bind */
    gw_auto_way *riskier, *parted; /* of the thread, while it chooses */
    uint64_t *together;            /* elements of all that are sent with each place */
    gw_route dense;
    gw_route everyday;               /* of the default */
    double *table;                   /* means, of the last time that a layer could be measured */
    double noise_then, squares_then; /* of gradients, at that time; NaN: not known */

    /* the job; seconds since the last wait */
    double ended;          /* on the clock; NaN: no wait yet */
    double *posted;        /* control.known of each timed step */
    uint32_t n_timed;      /* steps */
    int timing;            /* the step under way is one */
    size_t posted_at;      /* in a table: control.known medians, and behind them a gw_auto_sketch */
    size_t gradients_at;   /* behind that: norms of the control.n layers, without residuals */
    gw_auto_sketch sketch; /* of the layers that are copied; guarded by control's lock */
    double *sorted;
    gw_job job;
    gw_job_tensor *tensors;
    uint32_t *place_of; /* of each tensor of the job; UINT32_MAX: not planned here */
    double *ready;      /* of each layer, of the slowest rank */
    double whole;       /* a step, of the last window when the job was made; NaN: there was none */
    gw_joint_tensor *asked;
    gw_params *levels; /* of asked, one behind the other; and their */
    double *errors;
    gw_plan_entry *entries;

    gw_cluster cluster;
    gw_codec_cost *codecs;
    uint8_t *probe; /* two buffers to measure links with */
    size_t *probe_sizes;
    double *probe_said;
    double own_latency, own_rate; /* of the link, when it was measured, as this rank saw it */

    /* the round under way */
    int first;
    uint64_t period_at; /* the next full round's first step */
    gw_auto_decision next, last;
    char reason[112]; /* in words */
    double lost;      /* of the plan that will bind */
    /* when the plan in force was made: the link's rate, bytes a second, and the step as predicted; NaN: none yet */
    double planned_rate, planned_seconds;

    /* the window under way; the sketch is guarded by control's lock */
    uint64_t window_from;
    double times[GW_AUTO_WINDOW];
    uint32_t n_times, bad;
    double loss;
    uint32_t told;
    gw_auto_sketch watching;
    double say[GW_SAY], *said;
    void *said_room, *room; /* of gathers: of a window's numbers, and of all else */
    gw_request request;     /* of a window that ended */
    uint64_t said_at;
    double said_predicted, said_expected;
    int stale;
    gw_auto_watch watch;
    uint64_t watched;
    gw_auto_judge judge;

    /* tests only: other times than the real ones */
    double (*clock)(void *context);
    double (*link)(void *context, double bytes); /* seconds of an all-to-all */
    void *test_context;
} gw_step_auto;

double gw_auto_now(const gw_step_auto *u);
double gw_auto_median(double *numbers, uint32_t n); /* sorts them; NaN of none */
/* `all` gets the `bytes` of every rank, at once. A failure is the step's. */
gw_status gw_auto_gather(gw_step_auto *u, const void *own, size_t bytes, void *all, gw_why *why);

static inline gw_step_auto *gw_auto_of(gw_control *c)
{
    return (gw_step_auto *)(void *)c;
}

/* Of the policy: */
gw_status gw_auto_check(const gw_step *s, const void *config, gw_why *why);
gw_status gw_auto_open(gw_control *c, const void *config, gw_why *why);
gw_status gw_auto_list(gw_control *c, const gw_layer *of, gw_control_layer *l, gw_why *why);
gw_status gw_auto_start(gw_control *c, const void *config, gw_why *why);
gw_status gw_auto_posted(gw_control *c, uint32_t layer, uint32_t place, const gw_tensor *gradient,
                         gw_why *why);
void gw_auto_complete(gw_control *c);
gw_status gw_auto_decide(gw_control *c, gw_why *why);
void gw_auto_keep(gw_control *c);
void gw_auto_describe(gw_control *c, const gw_why *failed);
void gw_auto_walk(gw_control *c, gw_walk *w);
gw_status gw_auto_resume(gw_control *c, gw_why *why);

/* A codec with error feedback: what it does not send comes later. */
static inline int gw_auto_comes_late(const gw_params *p)
{
    return p->codec != NULL && (gw_params_flags(p) & GW_CODEC_WANTS_FEEDBACK) != 0;
}
/* The setting of this name; NULL: the codec has none. */
double *gw_auto_setting(gw_params *p, const char *name);
/* The cluster says what the codec costs. */
int gw_auto_is_priced(const gw_cluster *c, const gw_params *p);

/* From step `start` on, for this reason. */
void gw_auto_begin_round(gw_step_auto *u, uint64_t start, gw_auto_reason reason, int quick);

/* Plans the layers by u->ways. */
gw_status gw_auto_go_by(gw_step_auto *u, gw_why *why);
/* In words: why the round is made; that all is dense now. */
void gw_auto_say_reason(gw_step_auto *u);
void gw_auto_describe_dense(gw_step_auto *u, const gw_auto_seen *w);

/* What tables that have arrived say of layers that could be measured; what is not finite, or zero everywhere, leaves what is known. */
void gw_auto_keep_tables(gw_step_auto *u);

/* Of the sketches of all ranks, `stride` numbers apart: how far they lie from their mean. */
void gw_auto_noise(const gw_step_auto *u, const double *sketches, size_t stride, double *noise,
                   double *squares);
/* The job of the slowest ranks, of tables that have arrived. */
void gw_auto_job_make(gw_step_auto *u);

gw_status gw_auto_cluster_open(gw_step_auto *u, const gw_cluster *given, gw_why *why);
gw_status gw_auto_cluster_codecs(gw_step_auto *u, gw_why *why);
gw_status gw_auto_cluster_links(gw_step_auto *u, gw_why *why);
const gw_cluster_link *gw_auto_link(const gw_step_auto *u); /* the slowest there is */
/* All ranks, between steps: by an exchange that costs next to nothing, how many times as fast that link is as it was; 0: not known. */
gw_status gw_auto_cluster_glance(gw_step_auto *u, double *faster, gw_why *why);

#endif
