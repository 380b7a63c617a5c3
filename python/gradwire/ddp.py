"""DistributedDataParallel: a communication hook that treats each bucket layer by layer.

Wire order is the order of DDP's buckets, whose layers become ready together. Both are learnt in every step, and a step whose
buckets were others than the last one's (after the first, DDP makes them anew) is followed by a new agreement. With a plan file
its order and its buckets hold instead, whatever DDP's are: a bucket of the plan begins when the last of its layers was posted.
Layers are found by parameter, so that residuals stay where they belong.
"""

import weakref

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .library import GradwireError
from .plan import Layer
from .session import DTYPES


REPLICATED = ("torch.distributed._composable.replicate.DDP", "torch.distributed._composable.replicate_with_fsdp.ReplicateModule")
_hooks = weakref.WeakKeyDictionary()  # by module, not in it: a module can be copied and pickled, a hook cannot


def clean(name):
    """The name of a parameter whatever wraps its module."""
    for wrapper in ("_orig_mod.", "_checkpoint_wrapped_module."):
        name = name.replace(wrapper, "")
    return name[len("module."):] if name.startswith("module.") else name


def memory_dims(parameter):
    """Sizes, slowest in memory first: DDP lays gradients out as their parameters are."""
    order = sorted(range(parameter.dim()), key=lambda d: (-parameter.stride(d), d))
    return tuple(parameter.size(d) for d in order)


def is_replicated(module):
    """Whether replicate() of torch.distributed made the module. torch has two such functions; each gives the module a class of its own."""
    return any(f"{kind.__module__}.{kind.__name__}" in REPLICATED for kind in type(module).__mro__)


def check_kind(module):
    """Refuses modules of replicate() before anything else: some of them have the methods of fully_shard."""
    if is_replicated(module):
        raise GradwireError("a module of replicate() is not supported yet: wrap it in DistributedDataParallel, or use fully_shard")


def check_module(ddp):
    check_kind(ddp)
    if not isinstance(ddp, DistributedDataParallel):
        raise GradwireError(f"attach needs a DistributedDataParallel or fully_shard module, not {type(ddp).__name__}")
    for name, module in ddp.module.named_modules():
        if getattr(module, "sparse", False) and isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and \
                module.weight.requires_grad:
            raise GradwireError(f"'{clean(name)}' makes sparse gradients, which are not supported: sparse=False")


def layers_of(ddp):
    """Layers in the order of DDP's first buckets, last parameters first; and the parameters, in the same order."""
    ignored = set(getattr(ddp, "parameters_to_ignore", ()) or ())
    layers, parameters = [], []
    for name, parameter in reversed(list(ddp.module.named_parameters())):
        if not parameter.requires_grad or name in ignored:
            continue
        name = clean(name)
        if parameter.dtype not in DTYPES:
            raise GradwireError(f"parameter '{name}' is {parameter.dtype}; float32, float16 and bfloat16 are supported")
        layers.append(Layer(name, memory_dims(parameter), parameter.dtype, parameter.numel()))
        parameters.append(parameter)
    if not layers:
        raise GradwireError("no parameter of this model has a gradient")
    return layers, parameters


def hook_of(ddp):
    """The module's only hook: DDP never lets go of it. A copy of the module has none."""
    if ddp not in _hooks:
        _hooks[ddp] = Hook(ddp)
    return _hooks[ddp]


class Hook:
    """The state of the hook that DDP keeps for good; what it does can be changed. torch 2 lists it in the module and copies and
    pickles it with the module. The copy of a hook does not compress."""

    def __init__(self, ddp):
        self.group, self.recorder = ddp.process_group, None
        self.session, self._layer_of = None, {}
        self._buckets, self._next, self._seen = None, None, []  # layers, bucket by bucket: agreed, to be, of this step
        try:
            ddp.register_comm_hook(self, _call)
        except RuntimeError as error:
            raise GradwireError(f"this model has a communication hook already: {error}") from None

    def __reduce__(self):
        return _of_a_copy, ()

    def use(self, session, parameters):
        self._layer_of = {id(p): i for i, p in enumerate(parameters)}
        self._buckets, self._next, self._seen = None, None, []
        self.session = session

    def stop(self):
        self.session, self._layer_of = None, {}

    def bucket(self, bucket):
        session, buffer = self.session, bucket.buffer()
        if not self._seen:
            if self._next is not None:
                session.follow(self._next)
                self._buckets, self._next = self._next, None
            if session.adam is not None:
                session.adam.open()
            session.open()
        if buffer.is_sparse:
            raise GradwireError("a bucket of sparse gradients: not supported")
        layers = [self._layer_of[id(p)] for p in bucket.parameters()]
        for layer, gradient in zip(layers, bucket.gradients()):
            if session.adam is not None:
                session.adam.take(layer, gradient)
            session.post_tensor(layer, gradient)
        self._seen.append(layers)
        last = bucket.is_last()
        if last:
            if self._seen != self._buckets and session.wire is None:
                self._next = self._seen
            self._seen = []
        return session.future(layers, buffer, last)

    def failed(self, error):
        """Said when DDP waits for this bucket: raised out of the hook it would leave DDP in the middle of its backward, for good."""
        self._seen = []
        return self.session.failed_future(error)


def _of_a_copy():
    hook = Hook.__new__(Hook)
    hook.group, hook.recorder, hook.session = None, None, None
    return hook


def _parameter(hook, gradient, _parameter):
    """DDP's Python reducer, which compiled autograd wants, has no buckets."""
    if hook.session is not None:
        raise GradwireError("compiled autograd, and all else that needs optimize_ddp=\"python_reducer\", is not supported: DDP then hands "
                            "over single parameters, not buckets. Leave torch._dynamo.config.optimize_ddp and compiled_autograd as they "
                            "are by default (torch.compile works so), or detach")
    gradient.div_(dist.get_world_size(hook.group))
    dist.all_reduce(gradient, group=hook.group)


def _call(hook, bucket):
    if isinstance(bucket, tuple):
        return _parameter(hook, *bucket)
    if hook.recorder is not None and hook.recorder.bucket(bucket):
        hook.recorder = None
    if hook.session is not None:
        try:
            return hook.bucket(bucket)
        except GradwireError as error:
            return hook.failed(error)
    buffer = bucket.buffer().div_(dist.get_world_size(hook.group))
    work = dist.all_reduce(buffer, group=hook.group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])
