/* The strategy of Espresso's published selector, re-stated from what its code does: a tensor's one compressed way
 * follows from thresholds on its size, and is taken, largest tensor first, where the predicted step gets shorter. */
#ifndef GW_TESTS_PLAN_ARTIFACT_H
#define GW_TESTS_PLAN_ARTIFACT_H

#include <gradwire/plan.h>

#include <files/cluster_file.h>
#include <files/job_file.h>

/* False: the file is not there or not good; said on stderr. */
int load_job(const char *folder, const char *name, gw_job_file *out);
int load_cluster(const char *folder, const char *name, gw_cluster_file *out);

/* `entries` has room for all tensors. */
gw_status artifact_plan(const gw_job *job, const gw_cluster *cluster, const gw_params *spec,
                        int nvlink, gw_plan_entry *entries, double *seconds, gw_why *why);

#endif
