#!/usr/bin/env python3
"""Includes point one way only: check_includes.py [--control]

The rooms and what each may see are the diagram of src/README.md. --control plants a wrong include in a
copy of one file and expects to find it.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# room of src/ -> rooms it may include, itself and base aside
MAY_SEE = {"adapt": {"codec", "errors"}, "base": set(), "codec": set(), "coll": {"codec", "wire", "comm", "route", "feedback"}, "comm": set(), "control": {"adapt", "codec", "comm", "errors", "feedback", "plan", "route", "step", "wire"}, "device": {"codec"}, "errors": {"codec"}, "feedback": set(),
           "files": {"control", "plan", "route", "step"},
           "plan": {"adapt", "codec", "route"},
           "pmpi": {"codec", "comm", "route", "step", "all of them"},
           "route": {"codec"}, "step": {"codec", "coll", "comm", "route", "feedback", "wire"}, "wire": {"codec"}}
# room -> private headers of another room that it may include
MAY_SEE_INSIDE = {
    # What follows a step from above hooks in there, and reads its layers.
    "control": {"step/step.h"},
    # libgradwire_cuda and the core meet in one table, which the kernels' side of codec fills.
    "device": {"codec/cuda/cuda_impl.h"},
    # An error table is the codecs' own formula, applied to every level in one pass over the numbers.
    "errors": {"codec/bucket/bucket.h", "codec/dither/dither.h", "codec/dither/dither_core.h", "codec/natural/natural_core.h",
               "codec/ndither/ndither_core.h", "codec/source.h", "codec/values/values.h"},
}
# public header -> room it belongs to. cuda.h is codec's, whose kernels need its types; device implements it.
PUBLIC = {"adapt.h": "adapt", "base.h": "base", "codec.h": "codec", "coll.h": "coll", "comm.h": "comm", "cuda.h": "codec", "errors.h": "errors", "files.h": "files", "feedback.h": "feedback",
          "frame.h": "wire", "hosted.h": "comm", "joint.h": "plan", "mpi.h": "comm", "nccl.h": "comm", "plan.h": "plan", "rounds.h": "codec", "route.h": "route", "step.h": "step", "step_adapt.h": "control", "step_auto.h": "control", "threads.h": "comm",
          "together.h": "comm"}
# folder outside of src/ -> folders that it may include besides the public headers. What commands share sees no command:
# of cli/ it sees the headers on top.
OUTSIDE = {"cli": {"cli", "trainer"}, "cli/files": {"cli", "cli/files"}, "cli/measure": {"cli", "cli/measure"}, "examples": set(), "trainer": {"trainer"}}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)


def room_of(include):
    """The room an include leads to; None for the system's and other libraries'."""
    first, _, rest = include.partition("/")
    if first == "gradwire":
        return PUBLIC.get(rest, "all of them")
    return first if first in MAY_SEE and rest else None


def folder_is_seen(parts, include):
    """False: the include leads to a folder at the top of the tree that this file may not see."""
    top = include.partition("/")[0]
    if top not in ("src", *OUTSIDE) or "/" not in include:
        return True
    inner = "/".join(parts[:2])
    if inner in OUTSIDE:
        return include.rpartition("/")[0] in OUTSIDE[inner]
    return top in OUTSIDE.get(parts[0], ())


def faults_in(path, text):
    parts = path.relative_to(ROOT).parts
    faults = []
    for include in INCLUDE.findall(text):
        if not folder_is_seen(parts, include):
            faults.append(f"{path.relative_to(ROOT)} includes {include}")
            continue
        room = room_of(include)
        if room is None:
            continue
        internal = not include.startswith("gradwire/")
        if parts[0] == "src":
            allowed = room in MAY_SEE[parts[1]] | {parts[1], "base"}
            # a neighbour is seen through its public header only, and where MAY_SEE_INSIDE names one, through a private one
            allowed = allowed and (not internal or room in (parts[1], "base") or include in MAY_SEE_INSIDE.get(parts[1], ()))
        elif parts[0] == "include":
            own = PUBLIC.get(parts[2])
            allowed = not internal and (own is None or room in MAY_SEE[own] | {own, "base"})
        else:  # cli, trainer, examples: public headers only; the command also what libgradwire_files keeps to itself
            allowed = not internal or (parts[0] == "cli" and room == "files")
        if not allowed:
            faults.append(f"{path.relative_to(ROOT)} includes {include}")
    return faults


def main():
    files = [p for folder in ("src", "include", "cli", "trainer", "examples") for p in sorted((ROOT / folder).rglob("*")) if p.suffix in (".c", ".h", ".cu")]
    assert len(files) > 30, "where are the sources?"
    rooms = {p.name for p in (ROOT / "src").iterdir() if p.is_dir()}
    assert rooms == set(MAY_SEE), f"rooms without a rule: {rooms ^ set(MAY_SEE)}"
    if "--control" in sys.argv:
        for path, line in (("src/base/cpu.c", '#include "codec/natural/natural.h"'), ("src/wire/frame.c", '#include "codec/codec_impl.h"'),
                           ("cli/main.c", '#include "base/numeric.h"'), ("trainer/rank.c", '#include "files/strict.h"'), ("src/control/use_plan.c", "#include <gradwire/files.h>"), ("src/codec/cast/cast.c", "#include <gradwire/frame.h>"), ("src/feedback/store.c", "#include <gradwire/codec.h>"),
                           ("src/adapt/measure.c", '#include "errors/errors.h"'), ("src/adapt/choose.c", "#include <gradwire/step.h>"),
                           ("src/step/step.c", '#include "control/control.h"'), ("src/step/step.c", "#include <gradwire/step_adapt.h>"), ("src/control/control.c", '#include "coll/exchange.h"'),
                           ("src/route/compile.c", '#include "codec/codec_impl.h"'), ("src/route/text.c", "#include <gradwire/frame.h>"),
                           ("src/plan/cost.c", "#include <gradwire/comm.h>"), ("src/codec/codec.c", "#include <gradwire/errors.h>"),
                           ("src/errors/errors.c", '#include "codec/codec_impl.h"'), ("src/errors/errors.c", "#include <gradwire/adapt.h>"),
                           ("src/device/cuda_load.c", '#include "codec/codec_impl.h"'), ("src/codec/codec.c", '#include "device/cuda_load.h"'),
                           ("cli/files/npy.c", '#include "cli/plan/planfile.h"'), ("cli/measure/meter.c", '#include "trainer/rank.h"'),
                           ("cli/main.c", '#include "src/base/numeric.h"'), ("trainer/rank.c", '#include "cli/say.h"'),
                           ("examples/01_encode.c", '#include "trainer/rank.h"'), ("src/base/cpu.c", '#include "cli/say.h"'),
                           ("include/gradwire/base.h", '#include "gradwire/codec.h"')):
            assert faults_in(ROOT / path, line + "\n"), f"{line} in {path} was not seen"
        print("planted includes are seen")
        return
    faults = [fault for path in files for fault in faults_in(path, path.read_text())]
    assert not faults, "includes against the layers:\n  " + "\n  ".join(faults)
    print(f"{len(files)} files include downwards only")


if __name__ == "__main__":
    main()
