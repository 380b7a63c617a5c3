/* `gradwire advise`: what was found (advise_command.c), and how it is put (advise_text.c). */
#ifndef GW_CLI_ADVISE_H
#define GW_CLI_ADVISE_H

#include "cli/plan/job_and_cluster.h"
#include "cli/plan/plan_budget.h"

typedef struct gw_cli_advise_args {
    gw_cli_scene_args scene;
    const char *grads, *out;
} gw_cli_advise_args;

/* Below this share of the dense step compression is not worth its loss. */
#define GW_CLI_WORTH 0.05
/* Rates between which the answer may change, Gbit/s. */
#define GW_CLI_LEAST_GBIT 0.01
#define GW_CLI_MOST_GBIT  3200.0

typedef struct gw_cli_verdict {
    bool yes;
    gw_plan *plan;
    gw_plan_report report;
    gw_plan_entry most; /* the way of most coded elements; codec NULL: nothing is coded */
    gw_params feedback; /* of the tensors whose codec needs feedback; codec NULL: there are none */
    double share;       /* of all elements that go the way of most */
    size_t others;      /* codecs and settings beside most's */
    size_t kept;        /* vectors that are coded in no plan */
    double changes_at;  /* Gbit/s; 0: nowhere in range */
    const gw_cli_budgeted *budgeted; /* NULL: errors were not measured */
} gw_cli_verdict;

/* Fewer than this many bytes a reason or a sentence on quality has. */
enum { GW_CLI_ADVISE_TEXT = 768 };

void gw_cli_advise_reason(const gw_cli_scene *scene, const gw_cli_verdict *v,
                          char text[GW_CLI_ADVISE_TEXT]);
/* What the plan does to the quality of a training; *error: relative squared, of one lossy hop, NaN if it is not known. */
bool gw_cli_advise_quality(const gw_cli_verdict *v, char text[GW_CLI_ADVISE_TEXT], double *error);
void gw_cli_advise_print(const gw_cli_args *args, const gw_cli_advise_args *wanted,
                         const gw_cli_scene *scene, const gw_cli_verdict *v, bool named,
                         const char *reason, const char *quality);

#endif
