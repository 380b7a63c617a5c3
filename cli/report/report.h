/* What `gradwire report` makes of runs: ways (runs that differ in their seed only), their figures,
 * and the parts of the page. */
#ifndef GW_CLI_REPORT_H
#define GW_CLI_REPORT_H

#include <stdio.h>

#include <jansson.h>

#include "files/run_read.h"

enum { GW_CLI_REPORT_POINTS = 200 }; /* a curve has at most */
enum { GW_CLI_REPORT_KINDS = 5 };    /* of layers that are told apart: GW_CLI_REPORT_KIND */
extern const char *const GW_CLI_REPORT_KIND[GW_CLI_REPORT_KINDS];

typedef struct gw_cli_report_run {
    char *path; /* of run.json */
    gw_run_file run;
} gw_cli_report_run;

typedef struct gw_cli_spread {
    double mean, low, high; /* NaN: nothing to look at */
} gw_cli_spread;

/* Figures are over the runs that did not fail; over all if all did. Unknown figures are NaN. */
typedef struct gw_cli_way {
    const struct gw_cli_way
        *dense;              /* the same uncompressed: what it is compared with; NULL: none */
    char *label;             /* the spec, and what else tells it from the others */
    gw_cli_report_run *runs; /* those that count first; what they hold is the comparison's */
    size_t n_runs, n_counted;
    size_t n_steps;        /* that all counted runs did */
    gw_cli_spread quality; /* of the last test: accuracy, or bits */
    double target_seconds; /* of training until a test reached the target; mean over the runs */
    double step_seconds;   /* median */
    double compute_seconds, wait_seconds; /* of a step, means */
    double bytes, dense_bytes;            /* of a step */
    double ratio;                         /* compression that a network card sees */
    double kind_ratio[GW_CLI_REPORT_KINDS];
    uint64_t skipped; /* steps, for gradients that were not finite */
} gw_cli_way;

typedef struct gw_cli_comparison {
    gw_cli_report_run *runs;
    size_t n_runs;
    gw_cli_way *ways; /* dense first, then by bytes, most first */
    size_t n_ways;
    bool has_dense;    /* then the first way is dense */
    bool in_bits;      /* quality is bits a character, less is better; else accuracy */
    double target;     /* the best quality that every counted run reached; NaN: none */
    char differs[160]; /* what differs between the ways beside spec, route and seed; "" */
} gw_cli_comparison;

/* Fills in all but runs. False and `why` for runs that do not belong on one page. */
bool gw_cli_report_measure(gw_cli_comparison *report, char *why, size_t why_size);
void gw_cli_report_free(gw_cli_comparison *report);

double gw_cli_report_quality(const gw_cli_comparison *report, const gw_run_file_test *test);
/* Of n numbers, which are sorted by it; NaN for none. */
double gw_cli_report_median(double *values, size_t n);

/* Point i of n, of a row of `length`: the first and the last are always there. */
size_t gw_cli_report_thinned(size_t i, size_t n, size_t length);

/* What `auto` came to, over the counted runs. */
typedef struct gw_cli_report_autos {
    size_t decisions, switches; /* switches: decisions that changed a codec or a route */
    double off; /* median over windows of |measured / predicted - 1|; NaN: there is none */
    /* of the first run's last decision that knows: a step by the plan, at half and at double the rate */
    double predicted_seconds, half_seconds, double_seconds, dense_seconds, bound_seconds;
    double link_bytes_per_second;
} gw_cli_report_autos;
/* False: it is no such way. */
bool gw_cli_report_count_auto(const gw_cli_way *way, gw_cli_report_autos *out);

/* What a layer is sent by at the run's end: by the last choice, if levels or plans were chosen. */
void gw_cli_report_in_force(const gw_run_file *run, size_t layer, const char **spec,
                            const char **route);

/* Data of the charts of what was chosen while training, of the way's first run; null: it was not. */
json_t *gw_cli_report_adapt(const gw_cli_way *way);
json_t *gw_cli_report_auto(const gw_cli_way *way);

/* Parts of the page. HTML of the summary and of the table of runs; data of the charts as JSON that
 * cannot end the script it stands in. The last two are false if memory ran out. */
void gw_cli_report_summary(const gw_cli_comparison *report, FILE *to);
void gw_cli_report_table(const gw_cli_comparison *report, FILE *to);
bool gw_cli_report_data(const gw_cli_comparison *report, FILE *to);

/* Text as HTML, harmless whatever it holds. */
void gw_cli_html_text(FILE *to, const char *text);
/* "91.4 %" or "1.62"; "–" for NaN. */
void gw_cli_html_quality(const gw_cli_comparison *report, FILE *to, double quality);
/* "164 ms", "3.67 MB", "3.9"; all with three digits. */
void gw_cli_html_seconds(FILE *to, double seconds);
void gw_cli_html_bytes(FILE *to, double bytes);
void gw_cli_html_number(FILE *to, double value);

#endif
