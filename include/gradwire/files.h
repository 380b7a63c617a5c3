/* Files that `gradwire plan`, `gradwire profile` and `gradwire train --profile` write: plans, clusters and jobs. In a library of
 * its own, libgradwire_files, which needs jansson: pkg-config gradwire-files, CMake gradwire::gradwire_files.
 *
 * Files are read strictly. An unknown key, a wrong type, a missing or repeated name is an error: GW_ERR_CORRUPT, with the
 * file, the place in it and the reason. docs/plan.md, "Files", has the formats. */
#ifndef GRADWIRE_FILES_H
#define GRADWIRE_FILES_H

#include "gradwire/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads a gradwire.plan/1 file. gw_step_use_plan (step.h) runs it. */
GW_API gw_status gw_plan_read(const char *path, gw_plan_file **out, gw_why *why);
/* The same of bytes in memory; `path` is for messages. */
GW_API gw_status gw_plan_parse(const char *path, const void *bytes, size_t size, gw_plan_file **out,
                               gw_why *why);
GW_API void gw_plan_file_free(gw_plan_file *plan); /* accepts NULL */
/* Tensor `index`, in wire order; NULL past the end. */
GW_API const gw_plan_tensor *gw_plan_file_at(const gw_plan_file *plan, size_t index);

/* Reads a gradwire.cluster/1 file, as for gw_step_auto_config.cluster. */
GW_API gw_status gw_cluster_read(const char *path, gw_cluster **out, gw_why *why);
GW_API void gw_cluster_free(gw_cluster *cluster); /* accepts NULL */

/* Reads a gradwire.job/1 file. */
GW_API gw_status gw_job_read(const char *path, gw_job **out, gw_why *why);
GW_API void gw_job_free(gw_job *job); /* accepts NULL */

#ifdef __cplusplus
}
#endif
#endif
