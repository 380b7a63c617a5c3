/* Ranks that are MPI processes: libgradwire_mpi, a library of its own. Building, thread level, flags, faults:
 * docs/mpi.md. */
#ifndef GRADWIRE_MPI_H
#define GRADWIRE_MPI_H

#include "gradwire/comm.h"

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called by all ranks of `parent`, which is duplicated. The group is closed by its table, before
 * MPI_Finalize; groups split from it before itself. */
GW_API gw_status gw_mpi_create(MPI_Comm parent, gw_comm **out, gw_why *why);
/* 1: when the group that gw_mpi_create made is closed after a failure, MPI_Abort ends the whole job, once the other ranks have
 * closed theirs or a few seconds have passed: report the reason before close. 0, as it begins: close leaves MPI as it is, and
 * MPI_Finalize may wait for a rank that is gone. */
GW_API gw_status gw_mpi_end_job(gw_comm *comm, int yes);

#ifdef __cplusplus
}
#endif
#endif
