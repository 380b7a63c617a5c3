#include "cli/plan/job_and_cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/files/checksum.h"
#include "cli/files/files.h"
#include "cli/plan/assumed_costs.h"
#include "cli/say.h"

/* The file's name without folders and extension. */
static void base_name(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    const size_t length = dot ? (size_t)(dot - name) : strlen(name);
    const size_t used = length < size ? length : size - 1;
    memcpy(out, name, used);
    out[used] = '\0';
}

/* A stream has no name: JSON begins with a '{'. */
static bool is_csv(const char *path, const gw_file_bytes *file)
{
    size_t at = 0;
    while (at < file->size && file->data[at] != '\0' && strchr(" \t\r\n", file->data[at])) {
        at++;
    }
    return gw_cli_is_stream(path) ? at < file->size && file->data[at] != '{'
                                  : gw_cli_has_extension(path, "csv");
}

static bool load_job(const char *path, gw_cli_scene *out)
{
    gw_file_bytes file;
    char why[256] = "", name[256];
    if (!gw_cli_file_read(path, &file)) {
        return false;
    }
    base_name(path, name, sizeof name);
    const bool fine = is_csv(path, &file)
                          ? gw_job_file_parse_csv((const char *)file.data, file.size, name,
                                                  &out->job, why, sizeof why)
                          : gw_job_file_parse(file.data, file.size, &out->job, why, sizeof why);
    out->job_hash = gw_cli_fnv1a(file.data, file.size);
    gw_cli_bytes_free(&file);
    if (!fine) {
        gw_cli_error("%s: %s", path, why);
    }
    return fine;
}

static bool load_cluster(const char *path, gw_cli_scene *out)
{
    gw_file_bytes file;
    char why[256] = "";
    if (!gw_cli_file_read(path, &file)) {
        return false;
    }
    const bool fine = gw_cluster_file_parse(file.data, file.size, &out->cluster, why, sizeof why);
    out->cluster_hash = gw_cli_fnv1a(file.data, file.size);
    gw_cli_bytes_free(&file);
    if (!fine) {
        gw_cli_error("%s: %s", path, why);
    }
    return fine;
}

static bool make_cluster(const gw_cli_scene_args *wanted, gw_cli_scene *out)
{
    if (!wanted->cluster) {
        const uint32_t ranks = wanted->ranks_per_node ? wanted->ranks_per_node : 1;
        if (!gw_cli_assume_cluster(wanted->nodes, ranks, wanted->link, out->job.on_gpu,
                                   &out->cluster)) {
            gw_cli_out_of_memory();
            return false;
        }
        return true;
    }
    if (!load_cluster(wanted->cluster, out)) {
        return false;
    }
    gw_cluster *c = &out->cluster.cluster;
    c->nodes = wanted->nodes ? wanted->nodes : c->nodes;
    c->ranks_per_node = wanted->ranks_per_node ? wanted->ranks_per_node : c->ranks_per_node;
    if (wanted->link > 0) {
        c->inter.rate = wanted->link;
    }
    if ((c->nodes > 1 && c->inter.rate == 0) || (c->ranks_per_node > 1 && c->intra.rate == 0)) {
        gw_cli_error("%s: its links do not fit %u nodes of %u ranks", wanted->cluster, c->nodes,
                     c->ranks_per_node);
        return false;
    }
    return true;
}

static bool parse_specs(const gw_cli_args *args, const gw_cli_scene_args *wanted, gw_cli_scene *out)
{
    gw_why why = {""};
    gw_params bf16;
    char assumed[256] = "";
    bool added = false;
    out->specs = calloc(wanted->specs.count + 1, sizeof *out->specs);
    if (!out->specs) {
        gw_cli_out_of_memory();
        return false;
    }
    for (size_t i = 0; i < wanted->specs.count; i++) {
        gw_params *spec = &out->specs[out->n_specs++];
        if (gw_params_parse(spec, wanted->specs.items[i], &why) != GW_OK) {
            gw_cli_error("%s", why.text);
            return false;
        }
        if (!gw_cli_assume_codec(&out->cluster, spec, &added)) {
            gw_cli_out_of_memory();
            return false;
        }
        if (added) { /* named once a codec */
            const size_t used = strlen(assumed);
            (void)snprintf(assumed + used, sizeof assumed - used, "%s%s", used ? ", " : "",
                           gw_codec_name(spec->codec));
        }
    }
    if (assumed[0]) {
        gw_cli_note(args->talk, GW_CLI_NORMAL, "assumed, not measured: what coding costs with %s",
                    assumed);
    }
    /* a build may be without it */
    return gw_params_parse(&bf16, "cast:to=bf16", &why) != GW_OK ||
           gw_cli_assume_codec(&out->cluster, &bf16, &added);
}

/* The times of the job's steps are of another kind of machine, or of one it does not name. */
static void note_misfit(const gw_cli_args *args, const gw_cli_scene_args *wanted,
                        const gw_cli_scene *scene)
{
    const bool cluster_on_gpu = scene->cluster.cluster.has_gpu != 0;
    if (!scene->job.has_device && !wanted->cluster) {
        gw_cli_note(args->talk, GW_CLI_NORMAL, "%s names no device: a CPU is assumed",
                    args->words[0]);
    }
    if (scene->job.has_device && scene->job.on_gpu != cluster_on_gpu) {
        gw_cli_note(args->talk, GW_CLI_NORMAL,
                    "the job was measured on a %s, the cluster computes on %ss: backward takes "
                    "what the job says",
                    scene->job.on_gpu ? "GPU" : "CPU", cluster_on_gpu ? "GPU" : "CPU");
    }
}

bool gw_cli_scene_load(const gw_cli_args *args, const gw_cli_scene_args *wanted, gw_cli_scene *out)
{
    *out = (gw_cli_scene){.specs = NULL};
    if (load_job(args->words[0], out) && make_cluster(wanted, out) &&
        parse_specs(args, wanted, out)) {
        note_misfit(args, wanted, out);
        return true;
    }
    gw_cli_scene_free(out);
    return false;
}

void gw_cli_scene_free(gw_cli_scene *scene)
{
    gw_job_file_free(&scene->job);
    gw_cluster_file_free(&scene->cluster);
    free(scene->specs);
    *scene = (gw_cli_scene){.specs = NULL};
}
