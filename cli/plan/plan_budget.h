/* `plan --budget`: error and time in one plan. docs/joint.md. */
#ifndef GW_CLI_PLAN_BUDGET_H
#define GW_CLI_PLAN_BUDGET_H

#include <gradwire/joint.h>

#include "cli/plan/job_and_cluster.h"

/* As the user wrote them; NULL or none: not given. */
typedef struct gw_cli_budget_args {
    const char *alpha, *grads, *uniform;
    gw_cli_texts families;
} gw_cli_budget_args;

#define GW_CLI_BUDGET_OPTIONS(type, member)                                                          \
    {"budget",    0,                                                                                 \
     GW_CLI_TEXT, offsetof(type, member.alpha),                                                      \
     "A",         "the fastest plan whose error is at most A x that of --default everywhere"},       \
        {"grads",     0,                                                                             \
         GW_CLI_TEXT, offsetof(type, member.grads),                                                  \
         "FILE",      "with --budget: gradients of the job's tensors, to measure errors of"},        \
        {"family",     0,                                                                            \
         GW_CLI_TEXTS, offsetof(type, member.families),                                              \
         "F[,F]",      "with --budget: codecs whose levels are tried, as of adapt; again for more"}, \
    {                                                                                                \
        "default", 0, GW_CLI_TEXT, offsetof(type, member.uniform), "SPEC",                           \
            "with --budget: the level whose error sets the budget"                                   \
    }

typedef struct gw_cli_budgeted {
    double alpha;
    const char *uniform;
    gw_joint_report report;
    double tables_ms, select_ms;
} gw_cli_budgeted;

/* Measures and plans; forbidden routes, devices and the like are those of `request`. GW_CLI_GO_ON and a plan, or an exit status and it was said. */
int gw_cli_budget_plan(const gw_cli_args *args, const gw_cli_page *page,
                       const gw_cli_budget_args *wanted, const gw_plan_request *request,
                       gw_cli_scene *scene, gw_plan **plan, gw_cli_budgeted *out);
/* On stdout, in words or as JSON. False: said. */
bool gw_cli_budget_print(const gw_cli_args *args, const gw_cli_scene *scene, const gw_plan *plan,
                         const gw_cli_budgeted *b);

#endif
