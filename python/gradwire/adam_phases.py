"""When a run with Adam sends what: its phases, the refreshes of the variance, and the loss guard.

No tensors and no ranks. Everything that decides here is the same on every rank: numbers of steps, learning rates, the variance
and the mean loss. docs/adam.md has the rules, docs/decisions/016 why they are so.
"""

import math

WARMUP, COMPRESSED, FLUSH = "warm-up", "compressed", "flush"
RAMP, LONGEST_GAP = 20, 50  # refreshes with each gap; the gap that stays
LEAST_BETA2 = 0.95  # of a refresh: one alone is a noisy estimate
REST = 100  # steps of ordinary Adam after a fallback, at least


def refresh_gap(k):
    """Steps since the last exchange that fed the variance, if compressed step k (from 0) is a refresh; else 0. Gaps are 2, 4, 8, …
    up to LONGEST_GAP, RAMP refreshes of each."""
    start, gap = 0, 2
    while gap < LONGEST_GAP and k >= start + RAMP * gap:
        start, gap = start + RAMP * gap, min(2 * gap, LONGEST_GAP)
    return gap if (k - start + 1) % gap == 0 else 0


def refresh_beta2(beta2, gap):
    """A refresh stands for the steps since the last one, but never replaces more than a twentieth of the variance."""
    return min(beta2, max(beta2 ** gap, LEAST_BETA2))


class Settled:
    """Ends the warm-up by itself: the learning rate has stopped rising, and the L1 norm of the variance changes little."""

    LITTLE = 0.8  # of the norm one period before, or its inverse
    PATIENCE = 10  # periods without a rising learning rate, after which the warm-up ends anyway

    def __init__(self, beta2):
        self.period = min(max(round(1 / (1 - beta2)), 10), 50)
        self.rates, self.rose, self.norm = None, 0, None

    def wants_norm(self, k):
        return k % self.period == 0

    def add(self, k, rates, norm):
        """After step k (from 1) of the warm-up. `norm`: of the variance, if wanted. True: it has settled."""
        if self.rates is not None and any(now > before for now, before in zip(rates, self.rates)):
            self.rose = k
        self.rates = list(rates)
        if not self.wants_norm(k):
            return False
        before, self.norm = self.norm, norm
        still = k - self.rose
        if before is None or still < self.period or not norm > 0:
            return False
        return self.LITTLE <= norm / before <= 1 / self.LITTLE or still >= self.PATIENCE * self.period


class Guard:
    """Sees a loss that diverges. Each rank smooths its own; at refreshes the ranks' mean is compared with that at the first one."""

    MARGIN, STEPS = 0.1, 20  # of the first one, above it; for so many steps
    NOT_FINITE = 1e30  # what a rank sends in place of a loss that is not finite

    def __init__(self):
        self.reference, self.above_since = None, None

    def add(self, loss, number):
        """The mean loss at refresh step `number`. The reason to fall back, or None."""
        if not loss < self.NOT_FINITE / 1e6:
            return "the loss is not finite"
        if self.reference is None:
            self.reference = loss
        if loss <= self.reference + self.MARGIN * abs(self.reference):
            self.above_since = None
            return None
        if self.above_since is None:
            self.above_since = number
        if number - self.above_since < self.STEPS:
            return None
        return f"the loss is {loss:.4g}, and was {self.reference:.4g} at the end of the warm-up"


class Smooth:
    """One rank's losses since the last fallback."""

    NEW = 0.1  # weight of a loss

    def __init__(self):
        self.value = None

    def add(self, loss):
        if self.value is None or not math.isfinite(loss):
            self.value = loss if abs(loss) < Guard.NOT_FINITE else Guard.NOT_FINITE
        elif self.value < Guard.NOT_FINITE:
            self.value += self.NEW * (loss - self.value)


class Phases:
    """Which phase a run is in. `steps`: of a warm-up; None: until the variance has settled."""

    def __init__(self, beta2, steps=None):
        self.steps, self._beta2 = steps, beta2
        self.phase, self.since, self.least, self.fallbacks = WARMUP, 0, 0, 0
        self.applied = 0  # steps of this warm-up that were not skipped
        self.rule, self.guard = Settled(beta2), Guard()

    def gap(self, number):
        """Of step `number`: not 0 if it refreshes the variance."""
        return refresh_gap(number - self.since) if self.phase == COMPRESSED else 0

    def wants_norm(self):
        return self.phase == WARMUP and self.steps is None and self.rule.wants_norm(self.applied + 1)

    def warmup_ends(self, rates, norm):
        """After a step of the warm-up."""
        self.applied += 1
        settled = self.rule.add(self.applied, rates, norm)
        if self.applied < self.least:
            return False
        return settled if self.steps is None else self.applied >= self.steps

    def begin(self, phase, number, least=0):
        """From step `number` on."""
        self.phase, self.since = phase, number
        if phase == WARMUP:
            self.applied, self.least, self.rule, self.guard = 0, least, Settled(self._beta2), Guard()

    def state(self):
        rule, guard = self.rule, self.guard
        return {"phase": self.phase, "since": self.since, "least": self.least, "fallbacks": self.fallbacks, "applied": self.applied,
                "rule": [rule.rates, rule.rose, rule.norm], "guard": [guard.reference, guard.above_since]}

    def load(self, state):
        self.phase, self.since, self.least = state["phase"], state["since"], state["least"]
        self.fallbacks, self.applied = state["fallbacks"], state["applied"]
        self.rule.rates, self.rule.rose, self.rule.norm = state["rule"]
        self.guard.reference, self.guard.above_since = state["guard"]

    def words(self):
        if self.phase == WARMUP:
            length = "until the variance settles" if self.steps is None else f"of {max(self.steps, self.least)} steps"
            return f"warm-up {length}, since step {self.since}"
        return f"{self.phase} since step {self.since}"

