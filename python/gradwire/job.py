"""Records when gradients are ready, and writes the job file (gradwire.job/1) that `gradwire plan` reads.

A tensor counts as ready when its bucket is: DDP hands over nothing earlier. Times are medians over the steps, in
milliseconds since backward began.
"""

import json
import platform
import time

import torch

from .ddp import check_module, clean, hook_of
from .library import GradwireError


def _tensors(value):
    if isinstance(value, torch.Tensor):
        return [value] if value.requires_grad else []
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, (list, tuple)) or hasattr(value, "__iter__") and not isinstance(value, str):
        return [tensor for inner in value for tensor in _tensors(inner)]
    return []


def _median(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def device_of(parameter):
    """What computes gradients, as a job file names it: the GPU's name, or the CPU's architecture."""
    if parameter.device.type == "cpu":
        return platform.processor() or platform.machine()
    return torch.cuda.get_device_name(parameter.device) if parameter.device.type == "cuda" else parameter.device.type


class Recorder:
    """Steps are counted from the second on: DDP makes its buckets anew after the first."""

    def __init__(self, model, steps, path, about):
        self.model, self.steps, self.path, self.about = model, steps, path, about
        self.names = {id(p): (clean(n), tuple(p.shape)) for n, p in model.module.named_parameters()}
        self.ready, self.forward, self.backward, self.rest = {}, [], [], []
        self.done, self._began, self._ended, self._forward_began = 0, None, None, None
        self.batch = 0
        self._handles = [model.register_forward_pre_hook(self._before), model.register_forward_hook(self._after)]

    def _before(self, _module, inputs):
        now = time.perf_counter()
        if self._ended is not None and self.done > 1:
            self.rest.append(now - self._ended)
        self._forward_began, self._ended = now, None
        sizes = [t.shape[0] for t in inputs if isinstance(t, torch.Tensor) and t.dim()]
        self.batch = sizes[0] if sizes else 0

    def _after(self, _module, _inputs, output):
        if self.done:
            self.forward.append(time.perf_counter() - self._forward_began)
        self._began = None
        for tensor in _tensors(output):
            tensor.register_hook(self._begin)

    def _begin(self, gradient):
        self._began = self._began or time.perf_counter()
        return gradient

    def bucket(self, bucket):
        """Called by the hook; True when all steps are recorded."""
        now = time.perf_counter()
        began = self._began or now
        if self.done:
            for parameter in bucket.parameters():
                self.ready.setdefault(id(parameter), []).append(now - began)
        if not bucket.is_last():
            return False
        if self.done:
            self.backward.append(now - began)
        self.done, self._ended = self.done + 1, now
        if self.done <= self.steps:
            return False
        for handle in self._handles:
            handle.remove()
        self.write()
        return True

    def write(self):
        tensors = sorted(((_median(t), self.names[i]) for i, t in self.ready.items()), key=lambda t: t[0])
        dtypes = {str(p.dtype).replace("torch.", "") for p in self.model.module.parameters() if p.requires_grad}
        dtype = dtypes.pop() if len(dtypes) == 1 else "float32"  # a job has one: the widest
        job = {"format": "gradwire.job/1", "name": type(self.model.module).__name__.lower(),
               "device": device_of(next(self.model.module.parameters())), "software": f"torch {torch.__version__}",
               "batch_per_rank": self.batch, "gradient_dtype": dtype, "compute": dtype}
        job.update(self.about)
        job.update({"forward_ms": round(1e3 * _median(self.forward), 4), "backward_ms": round(1e3 * _median(self.backward), 4),
                    "optimizer_ms": round(1e3 * _median(self.rest or [0]), 4),
                    "tensors": [{"name": name, "shape": list(shape), "ready_ms": round(1e3 * at, 4)} for at, (name, shape) in tensors]})
        if torch.distributed.get_rank(self.model.process_group) == 0:
            with open(self.path, "w", encoding="utf-8") as file:
                json.dump(job, file, indent=1)
                file.write("\n")


def profile(model, steps, path, **about):
    """Arms the recording: the file is there after `steps` + 1 more backward passes. `about` overrides fields of the job:
    name=, device=, batch_per_rank=, compute=."""
    check_module(model)
    unknown = set(about) - {"name", "device", "batch_per_rank", "compute"}
    if unknown or steps < 1:
        raise GradwireError(f"profile: {sorted(unknown)[0] if unknown else steps}: no such field, or no steps")
    hook_of(model).recorder = Recorder(model, steps, path, about)
