/* Jobs: when each gradient of a step is ready. Reads gradwire.job/1 (JSON), and CSV with the columns
 * order,tensor,numel,gap_us. docs/plan.md, "Files". */
#ifndef GW_FILES_JOB_FILE_H
#define GW_FILES_JOB_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include <gradwire/plan.h>

typedef struct gw_job_file {
    gw_job job; /* all it points to is freed with it; tensors are in the order of their readiness */
    bool *vector;    /* of each tensor: a bias, a norm or the like, see gw_job_file_keep_vectors */
    bool has_device; /* the file names one */
    bool on_gpu;     /* and it is not a CPU */
    bool from_trainer; /* written by `gradwire train --profile`; the job's name is the model's */
} gw_job_file;

/* False: the reason is in `why`, and *out is untouched. */
bool gw_job_file_parse(const void *data, size_t size, gw_job_file *out, char *why, size_t why_size);
bool gw_job_file_parse_csv(const char *data, size_t size, const char *name, gw_job_file *out,
                           char *why, size_t why_size);
/* No plan is to code vectors: tensors of one dimension or none. A CSV file has no shapes; there they are tensors named
 * bias and those of fewer elements than gradwire.attach compresses. */
void gw_job_file_keep_vectors(gw_job_file *job);
void gw_job_file_free(gw_job_file *job);

#endif
