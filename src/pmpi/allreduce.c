/* libgradwire_pmpi: preloaded into any MPI program, it takes over large MPI_Allreduce sums of floats and sends
 * them compressed; everything else passes untouched. A call has no tensor to keep a residual for, so only
 * unbiased codecs are taken. Settings come from the environment, as nothing else reaches a program that does
 * not know of us; docs/mpi.md. */
#include <gradwire/gradwire.h>
#include <gradwire/mpi.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sums of so many different sizes are kept ready for a communicator; the one used longest ago makes room. */
enum { KEPT = 8 };

typedef struct settings {
    gw_params params;
    gw_route route;
    uint64_t least; /* bytes from which a sum is taken over */
    int talk;
} settings;

/* One size of sum on one communicator. */
typedef struct sum {
    gw_step *step;
    size_t count;
    uint64_t used; /* the call that used it last */
} sum;

typedef struct group {
    gw_comm *comm;
    uint32_t ranks_per_node;
    sum sums[KEPT];
    uint64_t calls, bytes, dense_bytes;
} group;

static settings chosen;
static int chosen_yet, key = MPI_KEYVAL_INVALID;

/* A job whose settings are wrong, or whose sum failed, must not go on with other numbers. */
static void give_up(MPI_Comm comm, const char *what, const char *why)
{
    (void)fprintf(stderr, "gradwire: %s: %s\n", what, why);
    (void)PMPI_Abort(comm, 1);
}

/* ---- settings ---- */

static const char *setting(const char *name, const char *fallback)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : fallback;
}

static void choose(MPI_Comm comm)
{
    gw_why why = {""};
    char *end = NULL;
    const char *least = setting("GRADWIRE_PMPI_MIN_BYTES", "1048576");
    if (gw_params_parse(&chosen.params, setting("GRADWIRE_PMPI_SPEC", "natural:bits=8"), &why) !=
        GW_OK) {
        give_up(comm, "GRADWIRE_PMPI_SPEC", why.text);
    }
    if ((gw_params_flags(&chosen.params) & GW_CODEC_UNBIASED) == 0) {
        give_up(comm, "GRADWIRE_PMPI_SPEC",
                "a reduction keeps no residual: the codec must be unbiased (natural, dither, "
                "ndither, cast:to=f32)");
    }
    if (gw_route_parse(&chosen.route, setting("GRADWIRE_PMPI_ROUTE", "sra"), &why) != GW_OK ||
        gw_route_fits(&chosen.route, &chosen.params, &why) != GW_OK) {
        give_up(comm, "GRADWIRE_PMPI_ROUTE", why.text);
    }
    errno = 0;
    chosen.least = strtoull(least, &end, 10);
    if (errno != 0 || *end != '\0' || least[0] < '0' || least[0] > '9') {
        give_up(comm, "GRADWIRE_PMPI_MIN_BYTES", "not a number of bytes");
    }
    chosen.talk = strcmp(setting("GRADWIRE_PMPI_VERBOSE", "0"), "0") != 0;
    chosen_yet = 1;
}

/* ---- a communicator's own ---- */

static int forget(MPI_Comm comm, int which, void *value, void *extra)
{
    (void)which, (void)extra;
    group *g = value;
    if (chosen.talk && g->comm->rank == 0) {
        (void)fprintf(stderr,
                      "gradwire: %llu sums taken over; rank 0 sent %llu bytes, %llu uncompressed\n",
                      (unsigned long long)g->calls, (unsigned long long)g->bytes,
                      (unsigned long long)g->dense_bytes);
    }
    for (int i = 0; i < KEPT; i++) {
        gw_step_destroy(g->sums[i].step);
    }
    g->comm->table->close(g->comm);
    free(g);
    (void)comm;
    return MPI_SUCCESS;
}

static group *group_of(MPI_Comm comm)
{
    group *g = NULL;
    gw_why why = {""};
    int found = 0;
    if (key == MPI_KEYVAL_INVALID) {
        (void)PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &key, NULL);
    }
    (void)PMPI_Comm_get_attr(comm, key, &g, &found);
    if (found) {
        return g;
    }
    g = calloc(1, sizeof *g);
    if (g == NULL) {
        give_up(comm, "MPI_Allreduce", "no memory");
        return NULL;
    }
    if (gw_mpi_create(comm, &g->comm, &why) != GW_OK ||
        gw_mpi_ranks_per_node(g->comm, &g->ranks_per_node, &why) != GW_OK) {
        give_up(comm, "MPI_Allreduce", why.text);
    }
    (void)PMPI_Comm_set_attr(comm, key, g);
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
                                   .ranks_per_node = g->ranks_per_node,
                                   .seed = g->calls, /* no two sums draw the same numbers */
                                   .lanes = 3,
                                   .sum = 1};
    gw_status status = gw_step_create(&config, &oldest->step, &why);
    if (status == GW_OK) {
        status = gw_step_add(oldest->step, "sum", &elements, 1, GW_F32, &layer, &why);
    }
    if (status == GW_OK) {
        status = gw_step_plan(oldest->step, layer, &chosen.params, &chosen.route, &why);
    }
    if (status == GW_OK) {
        status = gw_step_agree(oldest->step, &why);
    }
    if (status != GW_OK) {
        give_up(comm, "MPI_Allreduce", why.text);
    }
    return oldest;
}

/* ---- the call ---- */

static int takes_over(int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    int between = 0, ranks = 0;
    if (type != MPI_FLOAT || op != MPI_SUM || count <= 0) {
        return 0;
    }
    if (!chosen_yet) {
        choose(comm);
    }
    if ((uint64_t)count * sizeof(float) < chosen.least) {
        return 0;
    }
    (void)PMPI_Comm_test_inter(comm, &between);
    (void)PMPI_Comm_size(comm, &ranks);
    return !between && ranks > 1;
}

static int sum_compressed(const void *send, void *receive, size_t count, MPI_Comm comm)
{
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
        return MPI_ERR_OTHER;
    }
    if (gw_step_stats(s->step, 0, &stats) == GW_OK) {
        g->bytes += stats.bytes_sent[GW_LINK_INTRA] + stats.bytes_sent[GW_LINK_INTER];
        g->dense_bytes += stats.dense_bytes_sent;
    }
    return MPI_SUCCESS;
}

GW_API int MPI_Allreduce(const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op,
                         MPI_Comm comm)
{
    return takes_over(count, type, op, comm) ? sum_compressed(send, receive, (size_t)count, comm)
                                             : PMPI_Allreduce(send, receive, count, type, op, comm);
}
