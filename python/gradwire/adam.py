"""Adam with codecs that keep residuals: ranks exchange their momenta instead of their gradients.

A layer whose codec keeps residuals is *converted*. In the warm-up its gradient is sent without bias and torch's own optimizer
trains it. Then each rank sends its own momentum, and the mean of the momenta makes the update; every few steps the gradient is
sent without bias too, which alone feeds the variance. All other layers train by torch's optimizer throughout. docs/adam.md
"""

import functools
import hashlib
import math
import sys
import types

import torch
from ctypes import byref

from . import plan
from .adam_phases import COMPRESSED, FLUSH, REST, WARMUP, Phases, Smooth, refresh_beta2
from .groups import gather, meet
from .library import FLAG_ROUNDS, FLAG_WANTS_FEEDBACK, GradwireError, lib, memory, parse_params

PRODUCT = "variance_product"  # in the optimizer's state of a converted parameter: the product of all β2 that made its variance
STRANGE = 1e6  # times the variance, that the first mean gradient's square cannot be unless it is scaled
CAP = 10.0  # of an element's update, in units of the learning rate: else a few elements with a small variance bound the whole layer
BOUND = 1.0  # of the root mean square of a layer's update, in the same units


def is_converted(layer):
    return layer.spec is not None and bool(lib.gw_params_flags(byref(parse_params(layer.spec))) & (FLAG_WANTS_FEEDBACK | FLAG_ROUNDS))


def check_optimizer(optimizer):
    """Refuses what the update below does not compute."""
    kind = f"{type(optimizer).__module__}.{type(optimizer).__name__}"
    if not isinstance(optimizer, (torch.optim.AdamW, torch.optim.Adam)):
        raise GradwireError(f"optimizer= takes a torch.optim.AdamW, or an Adam without weight decay, not a {kind}")
    for number, group in enumerate(optimizer.param_groups):
        for name in ("amsgrad", "maximize", "capturable", "differentiable"):
            if group.get(name):
                raise GradwireError(f"optimizer=: parameter group {number} has {name}=True, which is not supported")
        if not isinstance(optimizer, torch.optim.AdamW) and group["weight_decay"] and not group.get("decoupled_weight_decay"):
            raise GradwireError(f"optimizer=: parameter group {number} of Adam has weight_decay={group['weight_decay']}, which Adam adds to the "
                                "gradient: use AdamW")
        if not 0 < group["betas"][0] < 1 or not 0 < group["betas"][1] < 1:
            raise GradwireError(f"optimizer=: parameter group {number} has betas={group['betas']}; both must lie between 0 and 1")


class Adam:
    """Of one attached model. Its session's warm-up is this object too: both have the same two plans."""

    def __init__(self, optimizer, model, layers, parameters, warmup, codec, quiet):
        """All ranks. `warmup`: steps, or None."""
        check_optimizer(optimizer)
        if getattr(model, "find_unused_parameters", False) and not getattr(model, "static_graph", False):
            raise GradwireError("optimizer= does not support find_unused_parameters=True: a parameter that is unused on all ranks would lose "
                                "its part of the momentum")
        self._optimizer, self._quiet, self.spec = optimizer, quiet, codec
        self._parameters = {i: p for i, (layer, p) in enumerate(zip(layers, parameters)) if is_converted(layer)}
        self._layer_of = {id(p): i for i, p in self._parameters.items()}
        for i in self._parameters:
            if lib.gw_params_flags(byref(parse_params(layers[i].spec))) & FLAG_ROUNDS:
                raise GradwireError(f"layer '{layers[i].name}': {layers[i].spec} is not supported with optimizer=: a low-rank momentum does not "
                                    "train (docs/adam.md); take adacomp or topk")
        groups = self._groups()
        for i in self._parameters:
            if i not in groups:
                raise GradwireError(f"layer '{layers[i].name}' is compressed with feedback, and the optimizer has no such parameter: give "
                                    "optimizer= the optimizer of the whole model")
        self.phases = Phases(max(group["betas"][1] for group in groups.values()), warmup)
        self._layers, self._all = layers, list(parameters)
        self._momentum, self._own = {}, {}  # by layer: this rank's momentum, and its gradient of the step under way
        self._exchanged, self._finite, self._gap, self._betas = False, True, 0, {}
        self._skipped = 0
        self._loss = Smooth()
        self._told = torch.zeros(2, device=parameters[0].device)  # what is sent of it: the loss and 1; or 0 and 0
        self.session, self.refresh, self._options, self._timeout = None, None, None, None
        self._inner = self._wrapped = None

    def on(self, _number):
        """Whether layers go by the warm-up's codec; for a Session."""
        return self.phases.phase != COMPRESSED

    def stats(self):
        p = self.phases
        return {"warmup_codec": self.spec or "dense", "phase": p.phase, "since": p.since, "fallbacks": p.fallbacks,
                "skipped": self._skipped, "refreshes": self._refreshes(), "words": p.words()}

    def _refreshes(self):
        return self.refresh.number if self.refresh is not None else 0

    def use(self, session, timeout, options):
        """The session is agreed. `options`: those of its constructor that a second one shares."""
        self.session, self._timeout, self._options = session, timeout, options
        session.adam = self
        session.on_step.append(self._ended)
        session.on_scale.append(self._scaled)
        self._inner = self._optimizer.step
        ours = self

        @functools.wraps(self._inner)
        def step(_optimizer, closure=None):
            return ours._step(closure)

        # a method of the optimizer's: schedulers of some versions of torch take it apart
        self._wrapped = self._optimizer.step = types.MethodType(step, self._optimizer)

    def _say(self, text):
        if not self._quiet and self.session.rank == 0:
            print(f"gradwire: {text}", file=sys.stderr)

    def _groups(self):
        """The optimizer's group of every converted layer."""
        return {self._layer_of[id(p)]: group for group in self._optimizer.param_groups for p in group["params"] if id(p) in self._layer_of}

    # ---- in backward ----

    def open(self):
        """Before the first gradient of a step."""
        scaler = self.session.scaler
        if self._exchanged and self._finite:
            backed_off = scaler is not None and self.session.scale is not None and float(scaler.get_scale()) < self.session.scale
            if not backed_off:
                raise GradwireError("a second exchange without optimizer.step() between: there must be exactly one for each optimizer step. "
                                    "Accumulate gradients with no_sync(), and exchange with the last backward")
            self._commit()  # the optimizer left the step out: its update is lost, its gradient is not
        self._exchanged, self._gap = False, self.phases.gap(self.session.number)
        self._betas = {layer: group["betas"] for layer, group in self._groups().items()}

    def take(self, layer, gradient):
        """Makes what is sent of a gradient, in place."""
        if layer not in self._parameters or self.phases.phase == WARMUP:
            return
        own, momentum, weight = self._own[layer], self._momentum[layer], 1 - self._betas[layer][0]
        own.copy_(gradient)
        if gradient.dtype == momentum.dtype:
            torch.lerp(momentum, own, weight, out=gradient)
        else:
            gradient.copy_(torch.lerp(momentum, own, weight))

    def tell_loss(self, loss):
        self._loss.add(float(loss))

    def _ended(self, result):
        """Every exchange of the session, on its thread."""
        self._exchanged, self._finite = True, result.non_finite == 0

    def _scaled(self, factor):
        """The loss scale has changed, and with it the gradients that follow."""
        for momentum in self._momentum.values():
            momentum.mul_(factor)

    # ---- the optimizer's step ----

    def _step(self, closure):
        if self.session is None:  # detached
            return self._inner() if closure is None else self._inner(closure)
        if closure is not None:
            raise GradwireError("optimizer.step(closure) is not supported with attach(…, optimizer=): it would exchange several times a step")
        if not self._exchanged:
            return self._without_exchange()
        self._exchanged = False
        if not self._finite:
            self._skipped += 1
            if self._skipped == 1:
                self._say(f"step {self.session.number - 1} was not finite on some rank and changes nothing; further such steps are counted "
                          "(stats)")
            return None
        if self.phases.phase == WARMUP:
            self._mend_variance(told=self.phases.applied == 0)
            result = self._inner()
        else:
            self._commit()
            if self._gap:
                self._exchange_gradients()
            result = self._update()
        self._advance()
        return result

    def _without_exchange(self):
        if self.phases.phase != WARMUP and any(p.grad is not None for p in self._parameters.values()):
            raise GradwireError("optimizer.step() without an exchange since the last one: there must be exactly one for each optimizer step")
        return self._inner()

    def _commit(self):
        """This step's gradient becomes part of the momentum."""
        if self.phases.phase != WARMUP:
            for layer, momentum in self._momentum.items():
                momentum.lerp_(self._own[layer], 1 - self._betas[layer][0])

    def _exchange_gradients(self):
        """The mean gradient, exchanged without bias, takes the place of this rank's own; and so does the mean loss."""
        loss = self._loss.value
        self._told.copy_(torch.tensor([0.0, 0.0] if loss is None else [loss, 1.0]))
        try:
            self.refresh.exchange([self._own[layer] for layer in self._parameters] + [self._told])
        except GradwireError as error:
            self.session.fail(error)
            raise
        if self.session.number == self.phases.since + self._gap:
            self._check_scale()

    def _check_scale(self):
        """Whether gradients are in the units of the variance, at the first refresh. A loss scale that attach does not know would spoil it."""
        squares, variance = 0.0, 0.0
        for layer, p in self._parameters.items():
            squares += float(torch.linalg.vector_norm(self._own[layer], dtype=torch.float64)) ** 2
            variance += float(self._optimizer.state[p]["exp_avg_sq"].double().sum())
        squares /= (self.session.scale or 1.0) ** 2
        if variance > 0 and STRANGE * variance < squares < math.inf:
            raise GradwireError(f"gradients are {math.sqrt(squares / variance):.3g} times as large as Adam's variance says. If the script uses a "
                                "GradScaler, give it to attach: scaler=scaler")

    def _feed(self, state, group, gradient, scale):
        """The variance, by an exchanged mean gradient."""
        beta2 = refresh_beta2(group["betas"][1], self._gap)
        gradient = gradient.to(state["exp_avg_sq"].dtype) / scale
        state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        state[PRODUCT] *= beta2

    @torch.no_grad()
    def _update(self):
        """Converted parameters by the momenta that arrived, all others by torch's optimizer."""
        found_inf = getattr(self._optimizer, "found_inf", None)
        if found_inf is not None and bool(found_inf):
            return self._inner()  # which leaves everything as it is
        self._need_compressed_state()
        unscale = getattr(self._optimizer, "grad_scale", None)  # fused optimizers get gradients that are still scaled
        hidden = []
        for layer, group in self._groups().items():
            p = self._parameters[layer]
            hidden.append((p, p.grad))
            if p.grad is None:
                continue
            state = self._optimizer.state[p]
            if self._gap and self._refreshed():
                self._feed(state, group, self._own[layer], self.session.scale or 1.0)
            state["exp_avg"].copy_(p.grad if unscale is None else p.grad / unscale)
            state["step"] += 1
            self._move(p, group, state)
        try:
            for p, _ in hidden:
                p.grad = None
            return self._inner()
        finally:
            for p, gradient in hidden:
                p.grad = gradient

    def _need_compressed_state(self):
        for layer, p in self._parameters.items():
            if PRODUCT not in self._optimizer.state.get(p, {}):
                raise GradwireError(f"layer '{self._layers[layer].name}': gradwire's state is of a compressed step, the optimizer's is not: "
                                    "load optimizer.state_dict() of the same step too")

    def _refreshed(self):
        return self.refresh.finite

    @staticmethod
    def _move(p, group, state):
        """AdamW's formula, with bounds on the elements of the update and on its root mean square."""
        lr, beta1 = float(group["lr"]), group["betas"][0]
        root = (state["exp_avg_sq"] / (1 - state[PRODUCT])).sqrt_().add_(group["eps"])
        update = state["exp_avg"].float() / root / (1 - beta1 ** float(state["step"]))
        update.clamp_(-CAP, CAP)
        rms = torch.linalg.vector_norm(update) / math.sqrt(update.numel())
        update.mul_((BOUND / rms.clamp_min(1e-30)).clamp_max(1.0))
        p.mul_(1 - lr * group["weight_decay"]).add_(update, alpha=-lr)

    def _mend_variance(self, told=False):
        """torch's formula divides the variance by 1 − β2^step. It gets the value with which that is right."""
        found = False
        for layer, group in self._groups().items():
            state = self._optimizer.state.get(self._parameters[layer], {})
            product = state.pop(PRODUCT, None)
            if product is not None:
                found = True
                state["exp_avg_sq"].mul_((1 - group["betas"][1] ** float(state["step"])) / (1 - product))
        if found and told:
            self._say("the optimizer's state is of a compressed step, and gradwire's state of it was not loaded: training begins again in "
                      "the warm-up")

    # ---- phases ----

    def _advance(self):
        """After an optimizer step that counted: what the next one is."""
        phases, number = self.phases, self.session.number
        if phases.phase == WARMUP:
            rates = [float(group["lr"]) for group in self._optimizer.param_groups]
            if phases.warmup_ends(rates, self._variance_norm() if phases.wants_norm() else None):
                self._begin_compressed(number)
        elif phases.phase == FLUSH:
            self._end_compressed(number)
        elif self._gap and self._refreshed():
            loss, told = self._told.tolist()
            reason = phases.guard.add(loss / told, number) if told > 0 else None
            if reason is not None:
                self.fall_back(reason)

    def _variance_norm(self):
        total = 0.0
        for layer, group in self._groups().items():
            state = self._optimizer.state.get(self._parameters[layer])
            if state:
                total += float(state["exp_avg_sq"].double().sum()) / (1 - group["betas"][1] ** float(state["step"]))
        return total

    def _begin_compressed(self, number):
        groups = self._groups()
        if any(not self._optimizer.state.get(self._parameters[layer]) for layer in groups):
            return  # a layer that had no gradient so far has no variance
        self._same_variance()
        scale = self.session.scale or 1.0
        self._make_buffers()
        for layer, group in groups.items():
            state = self._optimizer.state[self._parameters[layer]]
            state[PRODUCT] = group["betas"][1] ** float(state["step"])
            self._momentum[layer].copy_(state["exp_avg"]).mul_(scale)
        self.phases.begin(COMPRESSED, number)
        self._say(f"step {number}: the warm-up ends; momenta are compressed from here on")

    def _make_buffers(self):
        for layer, p in self._parameters.items():
            for buffers in (self._momentum, self._own):
                if layer not in buffers:
                    buffers[layer] = torch.zeros_like(p.detach(), dtype=torch.float32)
        if self.refresh is None:
            self.refresh = self._make_refresh()

    def _make_refresh(self):
        """A second step on the same connections: the gradients of converted layers, without bias. All ranks."""
        from .session import Session

        layers = []
        for layer in self._parameters:
            of = self._layers[layer]
            layers.append(plan.Layer(of.name, of.dims, torch.float32, of.elements))
            layers[-1].go(self.spec)
        layers.append(plan.Layer("(loss)", (2,), torch.float32, 2))
        options = {**self._options, "seed": self._options["seed"] ^ 0x5EED0FADA5}
        session = Session(layers, self.session.group, carrier=self.session.carrier, fuse_below=0, all_or_nothing=True, **options)
        session.finite = True

        def ended(result):
            session.finite = result.non_finite == 0
            self.session.totals.add_sent(result)

        session.on_step.append(ended)
        return session

    def fall_back(self, reason):
        """All ranks, between steps: the next step sends what is pending without bias, and ordinary Adam follows."""
        self.phases.fallbacks += 1
        self._same_variance()
        self._begin_flush(self.session.number)
        self._say(f"step {self.session.number}: {reason}; ordinary Adam for at least {REST} steps")

    def _begin_flush(self, number):
        """What is added to Adam's momentum once acts 1/(1 − β1) times: in this step's update and in those that follow."""
        self.session.scale_residuals(1 - self._beta1())
        self.phases.begin(FLUSH, number)

    def _beta1(self):
        return max(group["betas"][0] for group in self._groups().values())

    def _end_compressed(self, number):
        self._momentum, self._own, self._loss = {}, {}, Smooth()
        self._mend_variance()
        self.phases.begin(WARMUP, number, least=REST)

    def _same_variance(self):
        """The ranks' variances must be the same bits. All ranks."""
        digests = []
        for layer, p in self._parameters.items():
            line = self.session.line(self._optimizer.state[p]["exp_avg_sq"]).cpu()
            digests.append((self._layers[layer].name, hashlib.blake2b(memory(line.data_ptr(), line.numel() * line.element_size()),
                                                                       digest_size=8).digest()))
        everyone = gather(self.session.group, digests)
        for rank, other in enumerate(everyone):
            for (name, mine), (_, theirs) in zip(everyone[0], other):
                if mine != theirs:
                    raise GradwireError(f"layer '{name}': Adam's variance (exp_avg_sq) of rank {rank} differs from rank 0's. Load the same "
                                        "optimizer state on all ranks")

    # ---- state ----

    def saved(self):
        """This rank's part of a state."""
        if self._exchanged and self._finite:
            raise GradwireError("between backward and optimizer.step() a step is half done: save after optimizer.step()")
        return {**self.phases.state(), "skipped": self._skipped, "refreshes": self._refreshes(), "loss": self._loss.value,
                "momentum": {self._layers[layer].name: momentum.clone() for layer, momentum in self._momentum.items()}}

    def check(self, saved):
        """Whether this rank can take over what a rank saved."""
        if saved["phase"] == WARMUP:
            return
        sizes = {name: momentum.numel() for name, momentum in saved["momentum"].items()}
        for layer, p in self._parameters.items():
            name = self._layers[layer].name
            if sizes.pop(name, None) != p.numel():
                raise GradwireError(f"the state has no momentum of '{name}', or one of another size: attach as when it was saved")
            if not torch.isfinite(saved["momentum"][name]).all():
                raise GradwireError(f"the state is damaged: its momentum of '{name}' is not finite")
        if sizes:
            raise GradwireError(f"the state has a momentum of '{sorted(sizes)[0]}', which is not compressed with feedback now: attach as when "
                                "it was saved")

    def load(self, saved, held, factor, number):
        """All ranks, before residuals are loaded. `saved`: what all old ranks saved alike, None if they had no Adam; `held`: what the
        old ranks had that this one takes over; `number`: the next step; `factor`: None if this rank's own state goes on, else
        the momenta of several old ranks are joined and multiplied by it. Returns what was done, and a call for when residuals are
        there."""
        self._exchanged, self._momentum, self._own = False, {}, {}
        if saved is None:
            self.phases.begin(WARMUP, number)
            return "; it has no state of Adam: training begins in the warm-up", None
        self.phases.load(saved)
        self._skipped, self._loss.value = saved["skipped"], held[0]["loss"] if factor is None else None
        if saved["phase"] == WARMUP:
            return "", None
        self._make_buffers()
        self.refresh.set_number(saved["refreshes"])
        for one in held:
            for layer, momentum in self._momentum.items():
                momentum.add_(one["momentum"][self._layers[layer].name].to(momentum.device), alpha=factor or 1.0)
        if factor is None:
            return "", None
        phase = saved["phase"]
        self.phases.begin(FLUSH, number)

        def settle():
            self.session.scale_residuals(factor * (1 - self._beta1() if phase == COMPRESSED else 1.0))

        return "; the momenta were joined, and Adam's warm-up begins again", settle

    # ---- the end ----

    def release(self):
        """Detach: what is pending goes into the optimizer's momentum, if all ranks call this in time."""
        try:
            if self.phases.phase != WARMUP:
                self._flush_at_detach()
        except GradwireError as error:
            print(f"gradwire: rank {self.session.rank}: detach: this rank's momenta and residuals were dropped: {error}", file=sys.stderr)
        finally:
            if self.refresh is not None:
                self.refresh.close()
            if self._optimizer.__dict__.get("step") is self._wrapped:
                self._optimizer.step = self._inner
            self.session = None

    def _flush_at_detach(self):
        session = self.session
        session.live()
        if self._exchanged and self._finite:
            raise GradwireError("detach was called between backward and optimizer.step()")
        self._need_compressed_state()
        meet(session.group, self._timeout, "gradwire.detach")
        if self.phases.phase == COMPRESSED:
            self._begin_flush(session.number)
        session.scale_residuals(1 / self._beta1())  # no update follows in this step
        sent = [self._momentum[i].to(p.dtype) if i in self._momentum else torch.zeros_like(p.detach()) for i, p in enumerate(self._all)]
        session.exchange(sent)
        scale = session.scale or 1.0
        for layer, p in self._parameters.items():
            self._optimizer.state[p]["exp_avg"].copy_(sent[layer] / scale)
        self._end_compressed(session.number)
