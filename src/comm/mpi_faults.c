/* Faults of the MPI backend: MPI's errors in words, and word of an abort, as a message that test() looks out
 * for. */
#define _POSIX_C_SOURCE 200809L
#include "base/clock.h"
#include "base/why.h"
#include "comm/mpi_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    LOOK_OUT_EVERY = 32, /* tests */
    PUSHES = 2000,       /* to get the word out: connections may have to be made first */
    REASON = 0,          /* tags of job->comm: a rank gives up, … */
    FAREWELL = 1,        /* … a rank closes after a failure */
    PATIENCE = 2,        /* seconds for the farewells of others, … */
    PATIENCE_FIRST = 10  /* … for that of rank 0, which reports for all */
};

gw_status gw_mpi_lost(gw_mpi_job *job, gw_status status, const gw_why *reason, gw_why *why)
{
    if (job->failed == GW_OK) {
        job->failed = status;
        job->why = *reason;
        for (gw_mpi_operation *op = job->under_way; op != NULL; op = op->next) {
            for (int i = 0; i < op->messages; i++) {
                int over = 0;
                if (op->about[i].incoming && op->requests[i] != MPI_REQUEST_NULL) {
                    (void)MPI_Cancel(&op->requests[i]);
                    (void)MPI_Test(&op->requests[i], &over, MPI_STATUS_IGNORE);
                }
            }
        }
    }
    if (why != NULL) {
        *why = job->why;
    }
    return job->failed;
}

gw_status gw_mpi_fail(gw_mpi_job *job, int code, const char *call, gw_why *why)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    (void)MPI_Error_string(code, text, &length);
    gw_why reason;
    (void)gw_fail(&reason, GW_ERR_PEER, "%s: %s", call, text);
    return gw_mpi_lost(job, GW_ERR_PEER, &reason, why);
}

gw_status gw_mpi_listen(gw_mpi_job *job, gw_why *why)
{
    if (job->failed != GW_OK) {
        return gw_mpi_lost(job, job->failed, NULL, why);
    }
    if (job->tests++ % LOOK_OUT_EVERY != 0) {
        return GW_OK;
    }
    int there = 0;
    MPI_Status status;
    int code = MPI_Iprobe(MPI_ANY_SOURCE, REASON, job->comm, &there, &status);
    if (code == MPI_SUCCESS && there) {
        char text[sizeof job->reason.text] = "";
        code = MPI_Recv(text, (int)sizeof text, MPI_CHAR, status.MPI_SOURCE, REASON, job->comm,
                        MPI_STATUS_IGNORE);
        text[sizeof text - 1] = 0;
        gw_why reason;
        (void)gw_gave_up(&reason, (uint32_t)status.MPI_SOURCE, text);
        if (code == MPI_SUCCESS) {
            return gw_mpi_lost(job, GW_ERR_PEER, &reason, why);
        }
    }
    return code == MPI_SUCCESS ? GW_OK : gw_mpi_fail(job, code, "MPI_Iprobe or MPI_Recv", why);
}

void gw_mpi_tell(gw_mpi_job *job, const char *reason)
{
    gw_why words;
    (void)gw_gave_up(&words, (uint32_t)job->rank, reason);
    (void)gw_mpi_lost(job, GW_ERR_PEER, &words, NULL);
    if (job->word != NULL || job->ranks == 1) {
        return;
    }
    job->word = calloc((size_t)job->ranks, sizeof(MPI_Request));
    if (job->word == NULL) {
        return;
    }
    job->reason = words;
    for (int i = 0; i < job->ranks; i++) {
        job->word[i] = MPI_REQUEST_NULL;
        if (i != job->rank) {
            (void)MPI_Isend(job->reason.text, (int)sizeof job->reason.text, MPI_CHAR, i, REASON,
                            job->comm, &job->word[i]);
        }
    }
    int left = job->ranks;
    for (int push = 0; push < PUSHES && left > 0; push++) {
        left = 0;
        for (int i = 0; i < job->ranks; i++) {
            int gone = 0;
            if (MPI_Test(&job->word[i], &gone, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
                job->word[i] = MPI_REQUEST_NULL; /* out of reach */
            }
            left += !gone;
        }
    }
}

void gw_mpi_end_all(gw_mpi_job *job)
{
    const struct timespec pause = {0, 1000 * 1000};
    const double begun = gw_clock();
    int left = job->ranks - 1, first = job->rank == 0, code = MPI_SUCCESS;
    for (int i = 0; i < job->ranks; i++) {
        MPI_Request request; /* never waited for: the job ends */
        if (i != job->rank) {
            /* NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker) */
            (void)MPI_Isend(NULL, 0, MPI_BYTE, i, FAREWELL, job->comm, &request);
        }
    }
    while (left > 0 && code == MPI_SUCCESS &&
           gw_clock() - begun < (first ? PATIENCE : PATIENCE_FIRST)) {
        int there = 0;
        MPI_Status status;
        code = MPI_Iprobe(MPI_ANY_SOURCE, FAREWELL, job->comm, &there, &status);
        if (code != MPI_SUCCESS || !there) {
            (void)nanosleep(&pause, NULL);
            continue;
        }
        code =
            MPI_Recv(NULL, 0, MPI_BYTE, status.MPI_SOURCE, FAREWELL, job->comm, MPI_STATUS_IGNORE);
        first |= status.MPI_SOURCE == 0;
        left--;
    }
    (void)MPI_Abort(job->comm, 1);
}
