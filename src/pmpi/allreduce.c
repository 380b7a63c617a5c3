/* libgradwire_pmpi: preloaded into an MPI program, it compresses large MPI_Allreduce sums of floats, if the user names
 * a codec; everything else passes untouched. A call has no tensor to keep a residual for, so only unbiased codecs are
 * taken. docs/mpi.md. */
#include "pmpi/settings.h"

#include <gradwire/mpi.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sums of so many different sizes are kept ready for a communicator; the one used longest ago makes room. */
enum { KEPT = 8 };

/* One size of sum on one communicator. */
typedef struct sum {
    gw_step *step;
    size_t count;
    uint64_t used; /* the call that used it last */
} sum;

typedef struct group {
    gw_comm *comm;
    uint32_t *node_of;
    sum sums[KEPT];
    uint64_t calls, bytes, dense_bytes;
} group;

/* Written once, by begin. */
static gw_pmpi_settings chosen;
static int key = MPI_KEYVAL_INVALID;

/* A job whose settings are wrong, or whose sum failed, must not go on with other numbers. */
static _Noreturn void give_up(MPI_Comm comm, const char *what, const char *why)
{
    int rank = -1;
    (void)PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)fprintf(stderr, "gradwire: rank %d: %s: %s\n", rank, what, why);
    (void)PMPI_Abort(comm, 1);
    abort();
}

static void need_mpi(MPI_Comm comm, int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    if (code != MPI_SUCCESS) {
        (void)PMPI_Error_string(code, text, &length);
        give_up(comm, call, text);
    }
}

/* ---- a communicator's own ---- */

static int forget(MPI_Comm comm, int which, void *value, void *extra)
{
    (void)which, (void)extra;
    group *g = value;
    if (chosen.verbose && g->comm->rank == 0) {
        (void)fprintf(stderr,
                      "gradwire: %llu sums taken over; rank 0 sent %llu bytes, %llu by an "
                      "uncompressed ring\n",
                      (unsigned long long)g->calls, (unsigned long long)g->bytes,
                      (unsigned long long)g->dense_bytes);
    }
    for (int i = 0; i < KEPT; i++) {
        gw_step_destroy(g->sums[i].step);
    }
    g->comm->table->close(g->comm);
    free(g->node_of);
    free(g);
    (void)comm;
    return MPI_SUCCESS;
}

static void begin(void)
{
    gw_why why = {""};
    const char *name = "";
    int rank = -1;
    if (gw_pmpi_settings_read(&chosen, &name, &why) != GW_OK) {
        give_up(MPI_COMM_WORLD, name, why.text);
    }
    if (chosen.on) {
        need_mpi(MPI_COMM_WORLD, PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &key, NULL),
                 "MPI_Comm_create_keyval");
    }
    (void)PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        gw_pmpi_settings_say(&chosen);
    }
}

/* Called by MPI_Init, and by every sum: a program may have begun MPI by a call that we do not see, and its threads may
 * come here at once. */
static void begin_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, begin);
}

/* Made by all ranks in the first sum of a communicator. Two threads never make the same one: MPI allows one collective
 * call at a time on a communicator. Different ones they make at the same time, without a lock, which ranks could take in
 * different order. */
static group *group_of(MPI_Comm comm)
{
    group *g = NULL;
    gw_why why = {""};
    int found = 0;
    need_mpi(comm, PMPI_Comm_get_attr(comm, key, &g, &found), "MPI_Comm_get_attr");
    if (found) {
        return g;
    }
    g = calloc(1, sizeof *g);
    if (g == NULL) {
        give_up(comm, "MPI_Allreduce", "no memory");
    }
    if (gw_mpi_create(comm, &g->comm, &why) != GW_OK) {
        give_up(comm, "MPI_Allreduce", why.text);
    }
    g->node_of = calloc(g->comm->ranks, sizeof *g->node_of);
    if (g->node_of == NULL) {
        give_up(comm, "MPI_Allreduce", "no memory");
    }
    if (gw_comm_nodes(g->comm, NULL, chosen.timeout, g->node_of, &why) != GW_OK) {
        give_up(comm, "MPI_Allreduce", why.text);
    }
    need_mpi(comm, PMPI_Comm_set_attr(comm, key, g), "MPI_Comm_set_attr");
    return g;
}

/* The sum of this size, made if need be; the same one on all ranks, since all make the same calls. */
static sum *sum_of(MPI_Comm comm, group *g, size_t count)
{
    sum *oldest = &g->sums[0];
    for (int i = 0; i < KEPT; i++) {
        if (g->sums[i].step != NULL && g->sums[i].count == count) {
            return &g->sums[i];
        }
        oldest = g->sums[i].used < oldest->used ? &g->sums[i] : oldest;
    }
    gw_step_destroy(oldest->step);
    *oldest = (sum){.count = count};
    gw_why why = {""};
    uint32_t layer = 0;
    const uint64_t elements = count;
    const gw_step_config config = {.comm = g->comm,
                                   .node_of = g->node_of,
                                   .seed = g->calls, /* no two sums draw the same numbers */
                                   .timeout = chosen.timeout,
                                   .lanes = 3,
                                   .sum = 1};
    gw_status status = gw_step_create(&config, &oldest->step, &why);
    if (status == GW_OK) {
        status = gw_step_add(oldest->step, "sum", &elements, 1, GW_F32, &layer, &why);
    }
    if (status == GW_OK) {
        status = gw_step_plan(oldest->step, layer, &chosen.params,
                              chosen.usual ? NULL : &chosen.route, &why);
    }
    if (status == GW_OK) {
        status = gw_step_agree(oldest->step, &why);
    }
    if (status != GW_OK) {
        give_up(comm, "MPI_Allreduce", why.text);
    }
    return oldest;
}

/* ---- the calls ---- */

static int takes_over(int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    int between = 0, ranks = 0;
    begin_once();
    if (!chosen.on || type != MPI_FLOAT || op != MPI_SUM || count <= 0 ||
        (uint64_t)count * sizeof(float) < chosen.least) {
        return 0;
    }
    (void)PMPI_Comm_test_inter(comm, &between);
    (void)PMPI_Comm_size(comm, &ranks);
    return !between && ranks > 1;
}

/* All ranks meet in MPI's own reduction of two numbers. A rank that is late is waited for as long as MPI waits, before our
 * timeout begins. A rank that passes its sum to MPI, with a smaller count or without a codec, meets this reduction with it:
 * MPI sees that as an error, or the numbers differ. */
static void meet(MPI_Comm comm, int count)
{
    char text[160];
    int both[2] = {count, -count};
    need_mpi(comm, PMPI_Allreduce(MPI_IN_PLACE, both, 2, MPI_INT, MPI_MAX, comm), "MPI_Allreduce");
    if (both[0] != -both[1]) {
        (void)snprintf(
            text, sizeof text,
            "the ranks' counts or GRADWIRE_PMPI_* settings differ: %d floats here, %d to "
            "%d on all ranks",
            count, -both[1], both[0]);
        give_up(comm, "MPI_Allreduce", text);
    }
}

static int sum_compressed(const void *send, void *receive, size_t count, MPI_Comm comm)
{
    meet(comm, (int)count);
    group *g = group_of(comm);
    sum *s = sum_of(comm, g, count);
    gw_why why = {""};
    gw_layer_stats stats;
    const gw_tensor values = {receive, count, GW_F32};
    if (send != MPI_IN_PLACE) {
        memcpy(receive, send, count * sizeof(float));
    }
    s->used = ++g->calls;
    gw_status status = gw_step_post(s->step, 0, &values, &why);
    if (status == GW_OK) {
        status = gw_step_wait(s->step, NULL, &why);
    }
    if (status != GW_OK) {
        give_up(comm, "MPI_Allreduce", why.text);
    }
    if (gw_step_stats(s->step, 0, &stats) == GW_OK) {
        g->bytes += stats.bytes_sent[GW_LINK_INTRA] + stats.bytes_sent[GW_LINK_INTER];
        g->dense_bytes +=
            stats.dense_bytes_sent[GW_LINK_INTRA] + stats.dense_bytes_sent[GW_LINK_INTER];
    }
    return MPI_SUCCESS;
}

GW_API int MPI_Allreduce(const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op,
                         MPI_Comm comm)
{
    return takes_over(count, type, op, comm) ? sum_compressed(send, receive, (size_t)count, comm)
                                             : PMPI_Allreduce(send, receive, count, type, op, comm);
}

GW_API int MPI_Init(int *argc, char ***argv)
{
    const int code = PMPI_Init(argc, argv);
    if (code == MPI_SUCCESS) {
        begin_once();
    }
    return code;
}

GW_API int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    const int code = PMPI_Init_thread(argc, argv, required, provided);
    if (code == MPI_SUCCESS) {
        begin_once();
    }
    return code;
}
