/* The loop of one rank; see train_loop.h. */
#include "cli/train/train_loop.h"

#include <math.h>
#include <string.h>

#include "cli/say.h"
#include "cli/train/train_adapt.h"
#include "cli/train/train_agree.h"
#include "cli/train/train_auto.h"
#include "cli/train/train_files.h"
#include "cli/train/train_history.h"
#include "cli/train/train_profile.h"
#include "cli/train/train_sample.h"
#include "cli/train/train_trace.h"

typedef struct seat {
    gw_cli_training *training;
    gw_cli_run *run; /* NULL: not rank 0 */
    rank *rank;
    gw_cli_sampler sampler; /* rank 0's */
    gw_cli_times profile;   /* rank 0's */
    gw_cli_tracer tracer;   /* rank 0's */
    gw_cli_lost lost;
    uint64_t saved; /* steps of the last checkpoint; UINT64_MAX: none */
} seat;

rank_config gw_cli_rank_config(const gw_cli_run_config *c, uint64_t first_step)
{
    const optimiser_config chosen = {
        .kind = strcmp(c->optimiser, "adam") == 0 ? OPTIMISER_ADAM : OPTIMISER_SGD,
        .schedule = strcmp(c->schedule, "constant") == 0 ? SCHEDULE_CONSTANT
                    : strcmp(c->schedule, "step") == 0   ? SCHEDULE_STEP
                    : strcmp(c->schedule, "spike") == 0  ? SCHEDULE_SPIKE
                                                         : SCHEDULE_COSINE,
        .rate = (float)c->rate,
        .warmup = c->warmup,
        .momentum = (float)c->momentum,
        .decay = (float)c->decay};
    return (rank_config){.model = c->model,
                         .batch = (size_t)c->batch,
                         .seed = c->seed,
                         .steps = c->steps,
                         .first_step = first_step,
                         .optimiser = chosen,
                         .plan = {.spec = c->spec,
                                  .route = strcmp(c->route, "default") == 0 ? NULL : c->route,
                                  .fuse_below = c->fuse_below},
                         .ranks_per_node = (uint32_t)c->ranks_per_node};
}

/* ---- before the first step ---- */

/* Rank 0: what there is to sum up goes on where the checkpoint left it. */
static gw_status go_on(gw_cli_run *run, const gw_cli_training *t, gw_why *why)
{
    return gw_cli_checkpoint_read(run->folder, t->first_step, NULL, run->layers, run->n_layers,
                                  why);
}

/* Rank 0: that the folder takes what will be written, two checkpoints at a time. */
static gw_status prepare_folder(gw_cli_run *run, const rank *r, gw_why *why)
{
    size_t bytes = 0;
    gw_status status = gw_cli_checkpoint_bytes(r, &bytes, why);
    if (status == GW_OK) {
        status = gw_cli_file_probe(run->folder, 2 * bytes, why);
    }
    if (status == GW_OK) {
        status = gw_cli_history_begin(run, why);
    }
    return status == GW_OK ? gw_cli_run_write(run, why) : status;
}

static gw_status open_seat(seat *s, gw_comm *comm, gw_why *why)
{
    const gw_cli_training *t = s->training;
    rank_config config = gw_cli_rank_config(&t->run->config, t->first_step);
    config.nodes = t->nodes;
    config.hold = t->profile != NULL;
    config.plan.file = t->plan ? t->plan->file : NULL;
    gw_status status = rank_create(&config, t->data, comm, &s->rank, why);
    if (status != GW_OK) {
        return status; /* the others may be in the middle of theirs: no word with them here */
    }
    const bool chooses = gw_cli_run_adapts(t->run) || gw_cli_run_is_auto(t->run);
    const char *folder = t->run->folder;
    gw_why undescribed = {""};
    gw_status described = GW_OK; /* of what the run began with, also where a checkpoint goes on */
    if (s->run) {
        described = gw_cli_describe_layers(s->run, s->rank, &undescribed);
        gw_cli_auto_describe(s->run, s->rank);
    }
    if (t->resumed) {
        status = gw_cli_lost_find(&s->lost, folder, t->first_step, chooses, t->drop, s->rank, why);
        if (status != GW_OK) {
            return status;
        }
    }
    if (t->resumed && chooses) { /* first the levels, then residuals of them */
        status =
            gw_cli_checkpoint_load_levels(folder, t->first_step, s->lost.levels_of, s->rank, why);
        status = gw_cli_train_agree(comm, status, why);
        if (status == GW_OK) {
            status = gw_step_agree(s->rank->step, why);
        }
        if (status != GW_OK) {
            return status;
        }
    }
    if (t->resumed) {
        double norm = 0;
        status = gw_cli_checkpoint_load(folder, t->first_step, &s->lost, s->rank, &norm, why);
        if (s->lost.n != 0) {
            status = gw_cli_train_agree(comm, status, why);
            status = status == GW_OK ? gw_cli_lost_gather(&s->lost, norm, s->rank, why) : status;
        }
        if (s->lost.n != 0 && status != GW_OK) {
            return status;
        }
    }
    if (status == GW_OK && s->run) {
        status = described;
        *why = status == GW_OK ? *why : undescribed;
        if (status == GW_OK && t->resumed) {
            status = go_on(s->run, t, why);
        }
        if (status == GW_OK && t->pace.sample > 0) {
            status = gw_cli_sampler_open(&s->sampler, s->rank, why);
        }
        if (status == GW_OK) {
            status = prepare_folder(s->run, s->rank, why);
        }
        if (status == GW_OK) {
            status = gw_cli_metrics_begin(&s->training->metrics, s->run, why);
        }
    }
    s->saved = t->resumed ? t->first_step : UINT64_MAX;
    return gw_cli_train_agree(comm, status, why);
}

/* ---- steps ---- */

static gw_status note_step(gw_cli_run *run, const rank *r, const rank_stats *stats, gw_why *why)
{
    const gw_cli_run_step step = {.step = stats->step + 1,
                                  .loss = stats->loss,
                                  .seconds = stats->seconds,
                                  .wait_seconds = stats->wait_seconds,
                                  .bytes_sent = stats->bytes_sent[0] + stats->bytes_sent[1],
                                  .dense_bytes = stats->dense_bytes[0] + stats->dense_bytes[1],
                                  .far_bytes_sent = stats->bytes_sent[GW_LINK_INTER],
                                  .far_dense_bytes = stats->dense_bytes[GW_LINK_INTER],
                                  .non_finite = stats->non_finite};
    for (size_t i = 0; i < run->n_layers; i++) {
        const gw_layer_stats *l = &r->layers[i];
        gw_cli_run_layer *to = &run->layers[i];
        to->bytes_sent += l->bytes_sent[GW_LINK_INTRA] + l->bytes_sent[GW_LINK_INTER];
        to->dense_bytes += l->dense_bytes_sent[GW_LINK_INTRA] + l->dense_bytes_sent[GW_LINK_INTER];
        to->far_bytes_sent += l->bytes_sent[GW_LINK_INTER];
        to->far_dense_bytes += l->dense_bytes_sent[GW_LINK_INTER];
    }
    if (!gw_cli_run_add_step(run, &step)) {
        return gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory to note a step");
    }
    gw_status status = gw_cli_adapt_note(run, r, why);
    if (status == GW_OK) {
        status = gw_cli_auto_note(run, r, why);
    }
    return status == GW_OK ? gw_cli_history_step(run, why) : status;
}

/* All ranks. */
static gw_status test(seat *s, uint64_t step, gw_why *why)
{
    loss l;
    const gw_status status = rank_evaluate(s->rank, 0, &l, why);
    if (status != GW_OK || !s->run) {
        return status;
    }
    const double mean = l.sum / (double)l.rows;
    const gw_cli_run_test result = {.step = step,
                                    .seconds = s->run->done.seconds,
                                    .accuracy = (double)l.right / (double)l.rows,
                                    .loss = mean,
                                    .bits = mean / log(2)};
    if (!gw_cli_run_add_test(s->run, &result)) {
        return gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory to note a test");
    }
    gw_cli_progress_test(&s->training->progress, s->run);
    gw_cli_metrics_write(&s->training->metrics, s->run);
    return GW_OK;
}

static gw_status save(seat *s, uint64_t step, gw_why *why)
{
    const gw_cli_training *t = s->training;
    const gw_status alike =
        gw_step_verify(s->rank->step, why); /* also after a load, and at the end */
    if (alike != GW_OK || s->saved == step) {
        return alike;
    }
    s->saved = step;
    if (s->run) { /* run.json and the checkpoint never know more than the history */
        const gw_status status = gw_cli_history_append(s->run, true, why);
        if (status != GW_OK) {
            return status;
        }
    }
    return gw_cli_checkpoint_save(t->run, &t->pace, s->rank, step, why);
}

static bool is_due(uint64_t every, uint64_t step)
{
    return every != 0 && step % every == 0;
}

/* What rank 0 does with a step; then, where that took time, the others wait for it, so that the next step begins
 * together. */
static gw_status after_step(seat *s, const rank_stats *stats, bool sampled, gw_why *why)
{
    gw_status status = GW_OK;
    if (s->run) {
        status = note_step(s->run, s->rank, stats, why);
        gw_cli_lost_print(&s->lost, s->rank, stats->step + 1, &s->training->progress);
        if (status == GW_OK && s->training->trace) {
            status = gw_cli_tracer_add(&s->tracer, s->rank, stats, why);
        }
        if (status == GW_OK && sampled) {
            status = gw_cli_sample(&s->sampler, s->run, s->rank, stats, why);
        }
        gw_cli_progress_step(&s->training->progress, s->run);
        gw_cli_metrics_step(&s->training->metrics, s->run);
    }
    if (s->training->profile) {
        gw_why other = {""};
        const gw_status shared =
            gw_cli_times_add(s->run ? &s->profile : NULL, s->rank, stats, &other);
        *why = status == GW_OK ? other : *why;
        status = status == GW_OK ? shared : status;
    }
    return sampled ? gw_cli_train_agree(s->rank->comm, status, why) : status;
}

static gw_status run_steps(seat *s, uint64_t *done, bool *stopped, gw_why *why)
{
    const gw_cli_training *t = s->training;
    const uint64_t steps = t->run->config.steps;
    gw_status status = GW_OK;
    *stopped = false;
    for (*done = t->first_step; *done < steps && !*stopped && status == GW_OK;) {
        const uint64_t step = *done + 1;
        const bool sampled = is_due(t->pace.sample, step);
        rank_stats stats;
        s->rank->wants_stop = atomic_load(t->stop) != 0;
        s->rank->kept = sampled && s->run ? s->sampler.gradients : s->lost.gradients;
        status = rank_step(s->rank, &stats, why);
        if (status != GW_OK) {
            break;
        }
        *done = step;
        *stopped = stats.stop != 0 && step < steps;
        status = after_step(s, &stats, sampled, why);
        if (status == GW_OK && (step == steps || is_due(t->pace.every, step))) {
            status = test(s, step, why);
        }
        if (status == GW_OK && step < steps && !*stopped && is_due(t->pace.checkpoint, step)) {
            status = save(s, step, why);
        }
    }
    return status;
}

/* The last checkpoint, then what became of the run. */
static gw_status end(seat *s, uint64_t done, bool stopped, gw_why *why)
{
    gw_status status = save(s, done, why);
    if (status != GW_OK) {
        return status;
    }
    if (s->run) {
        s->run->state = stopped ? "interrupted" : "finished";
        status = gw_cli_history_append(s->run, true, why);
        if (status == GW_OK) {
            status = gw_cli_run_write(s->run, why);
        }
        if (status == GW_OK && s->training->trace) {
            status = gw_cli_tracer_write(&s->tracer, s->rank, s->training->trace, why);
        }
        if (status == GW_OK && s->training->profile) {
            status = gw_cli_times_write(&s->profile, s->rank, s->training->profile, why);
        }
    }
    return gw_cli_train_agree(s->rank->comm, status, why);
}

static gw_status train(seat *s, gw_comm *comm, gw_why *why)
{
    uint64_t done = 0;
    bool stopped = false;
    gw_status status = open_seat(s, comm, why);
    if (status == GW_OK) {
        status = save(s, s->training->first_step, why); /* a disk that is full says so now */
    }
    if (status != GW_OK) {
        return status;
    }
    if (s->run) {
        gw_cli_progress_begin(&s->training->progress, s->run);
    }
    status = run_steps(s, &done, &stopped, why);
    if (s->run) {
        gw_cli_progress_end(&s->training->progress);
        gw_cli_metrics_write(&s->training->metrics, s->run);
    }
    return status == GW_OK ? end(s, done, stopped, why) : status;
}

void gw_cli_train_report(const gw_comm *comm, gw_status status, const gw_why *why)
{
    const char *text = why->text[0] ? why->text : gw_status_string(status);
    if (comm->rank == 0) {
        gw_cli_error("train: %s", text);
    } else if (!gw_cli_train_heard(status, why)) {
        gw_cli_error("train: rank %u: %s", comm->rank, text);
    }
}

gw_status gw_cli_train_rank(gw_cli_training *t, gw_comm *comm, gw_why *why)
{
    seat s = {.training = t, .run = comm->rank == 0 ? t->run : NULL};
    gw_status status = train(&s, comm, why);
    if (status != GW_OK) {
        comm->table->abort(comm, why->text[0] ? why->text : "its training failed");
    }
    if (status != GW_OK && t->alone) {
        gw_cli_train_report(comm, status, why);
    }
    if (status != GW_OK && s.run) {
        gw_why other = {""};
        s.run->state = "failed";
        s.run->error = *why;
        if (s.run->n_layers > 0) {
            (void)gw_cli_history_append(s.run, false, &other);
            (void)gw_cli_run_write(s.run, &other); /* the first failure is the one to tell */
        }
    }
    gw_cli_lost_close(&s.lost);
    gw_cli_sampler_close(&s.sampler);
    gw_cli_times_free(&s.profile);
    gw_cli_tracer_free(&s.tracer);
    if (status == GW_OK ||
        !t->alone) { /* else MPI may still read and write there, until the process ends */
        rank_destroy(s.rank);
    }
    return status;
}
