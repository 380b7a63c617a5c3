/* A comm of a device's memory for the ranks of a test: over the fake NCCL, on an emulated device or a real one; or over NCCL
 * itself, with one rank. */
#ifndef GW_TESTS_DEVICE_COMM_H
#define GW_TESTS_DEVICE_COMM_H

#include <gradwire/nccl.h>
#include <gradwire/step.h>

/* `file`: of an NCCL. A fake one is told to touch memory of `place` by CUDA alone; and, unless that is emulated, to wait for its streams. */
void device_comm_open(const char *file, gw_cuda_place place, int emulated);
int device_comm_is_fake(void);
void device_comm_close(void);
/* The caller's rank of `host`, by all its ranks. */
gw_comm *device_comm_join(gw_comm *host);
/* Of the fake: objects that are left, and how often a group followed a stream of CUDA's; 0 of another. */
int device_comm_live(void);
int device_comm_followed(void);
/* The fake's messages that begin with a head of this codec then come with one of another step; NULL: as they are. */
void device_comm_spoil(const gw_codec *codec);

#endif
