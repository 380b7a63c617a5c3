/* Lost residuals; see train_lost.h. */
#include "cli/train/train_lost.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/train/train_agree.h"
#include "cli/train/train_checkpoint.h"

typedef struct found {
    bool residuals, levels;
} found;

/* "ranks 0, 2 and 5": ranks that lack it. Returns how many. */
static uint32_t list_missing(const found *all, uint32_t ranks, bool levels, char *text, size_t size)
{
    uint32_t n = 0, said = 0;
    for (uint32_t i = 0; i < ranks; i++) {
        n += !(levels ? all[i].levels : all[i].residuals);
    }
    size_t at = (size_t)snprintf(text, size, "%s", n == 1 ? "rank " : "ranks ");
    for (uint32_t i = 0; i < ranks && at < size; i++) {
        if (!(levels ? all[i].levels : all[i].residuals)) {
            const char *before = said == 0 ? "" : said + 1 == n ? " and " : ", ";
            if (said == 8) {
                (void)snprintf(text + at, size - at, " and %u more", n - said);
                break;
            }
            at += (size_t)snprintf(text + at, size - at, "%s%u", before, i);
            said++;
        }
    }
    return n;
}

static gw_status judge(gw_cli_lost *lost, const found *all, uint64_t step, bool drop, const rank *r,
                       gw_why *why)
{
    char ranks[80];
    const uint32_t world = r->comm->ranks;
    lost->world = world;
    lost->own = !all[r->comm->rank].residuals;
    lost->n = list_missing(all, world, false, lost->ranks, sizeof lost->ranks);
    if (lost->n != 0 && !drop) {
        return gw_cli_train_fail(
            why, GW_ERR_STATE,
            "checkpoint-%06llu: the residuals of %s of %u are missing; if they "
            "are lost, --missing drop goes on without them: they begin at zero",
            (unsigned long long)step, lost->ranks, world);
    }
    const uint32_t n = list_missing(all, world, true, ranks, sizeof ranks);
    if (n == world || (n != 0 && !drop)) {
        return gw_cli_train_fail(why, GW_ERR_STATE,
                                 "checkpoint-%06llu: the levels of %s of %u are missing%s",
                                 (unsigned long long)step, ranks, world,
                                 n == world ? "" : "; --missing drop goes on with another rank's");
    }
    lost->levels_of = r->comm->rank;
    if (!all[r->comm->rank].levels) {
        for (lost->levels_of = 0; !all[lost->levels_of].levels;) {
            lost->levels_of++;
        }
    }
    return GW_OK;
}

gw_status gw_cli_lost_find(gw_cli_lost *lost, const char *folder, uint64_t step, bool levels,
                           bool drop, const rank *r, gw_why *why)
{
    gw_comm *comm = r->comm;
    found mine = {.levels = true}, *all = calloc(comm->ranks, sizeof *all);
    if (!all) {
        return gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory");
    }
    gw_status status =
        gw_cli_checkpoint_has(folder, step, comm->rank, "residuals", &mine.residuals, why);
    if (status == GW_OK && levels) {
        status = gw_cli_checkpoint_has(folder, step, comm->rank, "levels", &mine.levels, why);
    }
    status = gw_cli_train_agree(comm, status, why);
    if (status == GW_OK) {
        status = gw_comm_gather(comm, &mine, sizeof mine, all, GW_CLI_TRAIN_TIMEOUT, why);
    }
    if (status == GW_OK) {
        status = judge(lost, all, step, drop, r, why);
    }
    free(all);
    return status;
}

gw_status gw_cli_lost_gather(gw_cli_lost *lost, double norm, rank *r, gw_why *why)
{
    gw_comm *comm = r->comm;
    double *all = calloc(comm->ranks, sizeof *all), squares = 0;
    lost->gradients = comm->rank == 0 ? calloc(r->model->room, sizeof *lost->gradients) : NULL;
    if (!all || (!lost->gradients && comm->rank == 0)) {
        free(all);
        return gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory for a gradient");
    }
    const gw_status status =
        gw_comm_gather(comm, &norm, sizeof norm, all, GW_CLI_TRAIN_TIMEOUT, why);
    for (uint32_t i = 0; i < comm->ranks && status == GW_OK; i++) {
        squares += all[i] * all[i]; /* a lost rank's is 0 */
    }
    const uint32_t survivors = lost->world - lost->n;
    lost->residuals = survivors != 0 ? sqrt(squares / survivors) : 0;
    free(all);
    return status;
}

static double gradient_norm(const rank *r)
{
    double squares = 0;
    for (uint32_t i = 0; i < r->model->n_params; i++) {
        const param *p = r->model->params[i];
        const float *at = r->kept + (p->gradient - r->model->gradients);
        for (size_t k = 0; k < p->count; k++) {
            squares += (double)at[k] * (double)at[k];
        }
    }
    return sqrt(squares);
}

void gw_cli_lost_print(gw_cli_lost *lost, const rank *r, uint64_t step, const gw_cli_progress *p)
{
    char line[512];
    if (!lost->gradients) {
        return;
    }
    const uint32_t survivors = lost->world - lost->n;
    const double norm = gradient_norm(r);
    if (survivors != 0 && !(norm > 0 && norm < (double)INFINITY)) {
        return; /* the next step's, then */
    }
    const int n =
        snprintf(line, sizeof line, "the residuals of %s of %u are lost and begin at zero",
                 lost->ranks, lost->world);
    if (survivors != 0) {
        (void)snprintf(
            line + n, sizeof line - (size_t)n,
            "; those of the %u surviving rank%s are %.3g times a gradient (norms: "
            "residuals %.4g, root mean square over ranks; gradient %.4g, rank 0's own of "
            "step %llu, before compression)",
            survivors, survivors == 1 ? "" : "s", lost->residuals / norm, lost->residuals, norm,
            (unsigned long long)step);
    }
    gw_cli_progress_note(p, line);
    gw_cli_lost_close(lost);
}

void gw_cli_lost_close(gw_cli_lost *lost)
{
    free(lost->gradients);
    lost->gradients = NULL;
}
