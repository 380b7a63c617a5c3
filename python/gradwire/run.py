"""Runs a script that was never changed, with gradwire attached to every DistributedDataParallel it makes.

    python -m gradwire.run --codec natural:bits=8 train.py --epochs 3
    torchrun --nproc-per-node 4 -m gradwire.run --codec adacomp train.py
"""

import argparse
import atexit
import pathlib
import runpy
import sys

from . import _need_torch, attach


def main():
    parser = argparse.ArgumentParser(prog="python -m gradwire.run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codec", default="natural:bits=8", metavar="SPEC", help="a codec, a plan file (.json), auto, or adapt/SPEC")
    parser.add_argument("--route", help="how compressed layers go")
    parser.add_argument("--dense-below", type=int, default=16384, metavar="N", help="layers of fewer elements stay uncompressed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--warmup", type=int, default=0, metavar="STEPS", help="so many first steps are uncompressed")
    parser.add_argument("--attach-timeout", type=float, default=45.0, metavar="SECONDS", help="how long ranks wait for each other (45)")
    parser.add_argument("--quiet", action="store_true", help="no summary at the end")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()

    _need_torch()
    import torch.nn.parallel

    ddp, made = torch.nn.parallel.DistributedDataParallel, []
    plain = ddp.__init__

    def with_gradwire(self, *arguments, **named):
        plain(self, *arguments, **named)
        made.append(True)
        attach(self, options.codec, route=options.route, dense_below=options.dense_below, seed=options.seed, quiet=options.quiet,
               warmup=options.warmup, attach_timeout=options.attach_timeout)

    def look():
        if not made:
            print("gradwire.run: the script made no DistributedDataParallel: nothing was compressed", file=sys.stderr)

    ddp.__init__ = with_gradwire
    atexit.register(look)
    sys.argv = [options.script, *options.arguments]
    sys.path[0] = str(pathlib.Path(options.script).resolve().parent)
    runpy.run_path(options.script, run_name="__main__")


if __name__ == "__main__":
    main()
