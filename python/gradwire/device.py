"""Gradients on a CUDA device: which one, and libgradwire_cuda, which codes there.

Without the library gradients come to pinned memory and are coded on the CPU: the same bits, later.
"""

import os
import pathlib
import sys
from ctypes import POINTER, byref, c_void_p

from .library import Comm, GradwireError, Why, check, folder, lib

NAME = "libgradwire_cuda.so"
_opened = {}  # by file; a library stays for the life of the process


class Device:
    """`torch` is the torch.device of all gradients; `cuda` the opened library, None: gradients are coded on the CPU."""

    def __init__(self, torch_device, cuda, why):
        self.torch, self.cuda, self.why = torch_device, cuda, why

    @property
    def index(self):
        return self.torch.index or 0

    def stream(self):
        """Of torch's, by its handle: gradients are ready behind it."""
        import torch

        return torch.cuda.current_stream(self.torch).cuda_stream if self.torch.type == "cuda" else None


def _file():
    if os.environ.get("GRADWIRE_CUDA_LIBRARY"):
        return os.environ["GRADWIRE_CUDA_LIBRARY"]
    root = pathlib.Path(__file__).resolve().parents[2]
    for place in (folder() / NAME, root / "build/bench-cuda" / NAME):
        if place.exists():
            return str(place)
    return None  # where the system looks


def open_library():
    """The library, or the words why there is none."""
    path = _file()
    if path not in _opened:
        handle, why = c_void_p(), Why()
        try:
            check(lib.gw_cuda_open(path.encode() if path else None, byref(handle), byref(why)), why)
            _opened[path] = (handle, None)
        except GradwireError as error:
            _opened[path] = (None, str(error))
    return _opened[path]


def _nccl_file():
    """The one that torch has loaded, by its package; else where the system looks."""
    if os.environ.get("GRADWIRE_NCCL_LIBRARY"):
        return os.environ["GRADWIRE_NCCL_LIBRARY"].encode()
    try:
        import nvidia.nccl

        file = pathlib.Path(list(nvidia.nccl.__path__)[0]) / "lib/libnccl.so.2"
        return str(file).encode() if file.exists() else None
    except ImportError:
        return None


def join_nccl(device, host, timeout):
    """A group of NCCL's with the ranks of the comm `host`, for payloads that stay on `device`; by all of them."""
    import torch

    why, comm = Why(), POINTER(Comm)()
    if "nccl" not in _opened:
        handle = c_void_p()
        check(lib.gw_nccl_open(_nccl_file(), None, byref(handle), byref(why)), why)
        _opened["nccl"] = handle
    with torch.cuda.device(device.torch):
        torch.cuda.current_stream().synchronize()  # so that its context is there
        check(lib.gw_nccl_create(_opened["nccl"], host, timeout, byref(comm), byref(why)), why)
    return comm


def of(parameters, names):
    """None where all parameters are on the CPU."""
    first = parameters[0].device
    for parameter, name in zip(parameters, names):
        if parameter.device != first:
            raise GradwireError(f"parameter '{name}' is on {parameter.device}, '{names[0]}' on {first}: all on one device, please")
    if first.type == "cpu":
        return None
    if first.type != "cuda":
        raise GradwireError(f"parameter '{names[0]}' is on {first}; the CPU and CUDA devices are supported")
    return Device(first, *open_library())


def check_payloads(payloads, where):
    if payloads not in ("host", "nccl"):
        raise GradwireError(f"payloads='{payloads}': 'host' or 'nccl'")
    if payloads == "nccl" and where is None:
        raise GradwireError("payloads='nccl' is for models on CUDA devices")
    if payloads == "nccl" and where.cuda is None:
        raise GradwireError(f"payloads='nccl' needs libgradwire_cuda: {where.why}")


def warn(reasons):
    """One line a job: `reasons` of all ranks, None where there is nothing to say."""
    for rank, reason in enumerate(reasons):
        if reason is not None:
            print(f"gradwire: rank {rank} codes gradients of a CUDA device on the CPU: {reason}", file=sys.stderr)
            return
