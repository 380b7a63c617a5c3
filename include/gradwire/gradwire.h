/* gradwire: gradients on the wire in as few bytes as the job can bear. One header a room. */
#ifndef GRADWIRE_GRADWIRE_H
#define GRADWIRE_GRADWIRE_H

#include "gradwire/adapt.h"      /* every layer its own level, under one error budget */
#include "gradwire/base.h"       /* status, dtypes, instruction sets, thread pool */
#include "gradwire/codec.h"      /* numbers <-> payload */
#include "gradwire/coll.h"       /* one tensor along one route */
#include "gradwire/comm.h"       /* bytes between ranks */
#include "gradwire/cuda.h"       /* the codecs on a CUDA device */
#include "gradwire/errors.h"     /* what each level would cost */
#include "gradwire/feedback.h"   /* what was lost last time: residuals, checkpoints */
#include "gradwire/frame.h"      /* payload <-> frame */
#include "gradwire/hosted.h"     /* bytes between ranks, carried by a host framework */
#include "gradwire/joint.h"      /* error and time in one plan */
#include "gradwire/nccl.h"       /* ranks with a CUDA device each, joined by NCCL */
#include "gradwire/plan.h"       /* which tensors to compress, where, along which route */
#include "gradwire/rounds.h"     /* codecs whose exchange is rounds of sums */
#include "gradwire/route.h"      /* how a tensor goes from mine to the sum over all ranks */
#include "gradwire/step.h"       /* a training step: post and wait */
#include "gradwire/step_adapt.h" /* levels chosen again during training */
#include "gradwire/step_auto.h"  /* error and time in one plan, followed through training */
#include "gradwire/threads.h"    /* ranks that are threads of one process */
#include "gradwire/together.h"   /* several users of a comm, in one message a peer */

#endif
