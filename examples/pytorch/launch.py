"""Options and ranks of the examples: under torchrun, or as processes that they start themselves (--ranks)."""

import argparse
import json
import os
import pathlib
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))  # where gradwire is not installed


def tell(options, result):
    if options.json:
        print(json.dumps(result), flush=True)
    else:
        print(", ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in result.items()))


def _rank(rank, main, options, ranks):
    torch.set_num_threads(options.threads)
    if ranks is not None:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks))
    dist.init_process_group("gloo")
    main(options, dist.get_rank(), dist.get_world_size())
    dist.barrier()
    dist.destroy_process_group()


def start(main, doc, steps, batch):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codec", default="natural:bits=8", help="or a plan file, or none: DDP alone")
    parser.add_argument("--ranks", type=int, help="processes to start here; without it torchrun has started this one")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--batch", type=int, default=batch, help="of every rank")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dense-below", type=int, default=4096)
    parser.add_argument("--text", default="build/data/kjv.txt", help="gpt.py: what to read")
    parser.add_argument("--momenta", action="store_true", help="gpt.py: exchange momenta in place of gradients (docs/adam.md)")
    parser.add_argument("--json", action="store_true", help="one line of JSON at the end, nothing else")
    options = parser.parse_args()
    if options.ranks is None:
        _rank(None, main, options, None)
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
    torch.multiprocessing.spawn(_rank, (main, options, options.ranks), nprocs=options.ranks)
