"""Ways to train with AdamW and few bytes: codecs, and the rules that say what is coded and how it becomes an update.

All matrices stand one behind another in a flat row, each beginning at a whole bin, so that a step is a few large operations.
"""

import torch
import torch.nn.functional as F

B1, DECAY, EPS, CLIP = 0.9, 0.1, 1e-8, 1.0


class Way:
    """CODEC[:KEY=VALUE,...]; KEYS has each key, its default and what it means."""

    KEYS = {
        "space": ("mom", "mom: feedback on each worker's momentum; upd: the same in units of the update; rep: on the gradient put into "
                         "the replicated momentum; gv: on the gradient, variance from unbiased exchanges only; grad: on the gradient, ordinary Adam"),
        "warm": (0.0, "share of the steps at the beginning that exchange without bias (dither)"),
        "ramp": (0, "after these, so many refreshes with a gap of 2 steps, as many with 4, and so on up to `every`"),
        "every": (0, "then a refresh each so many steps: the gradient is exchanged without bias too, for the variance; 0: never"),
        "vb2": (0.0, "beta2 of the refreshes; 0: by the library's rule, from the run's own and the gap"),
        "rms": (1.0, "bound of the RMS of each matrix's update, in units of the learning rate; 0: none"),
        "cap": (0.0, "bound of each element of the update, before rms; 0: none. The library's is 10"),
        "clip": ("late", "late: each worker's gradient by its norm of the step before; arrived: what arrives by its own norm, as "
                         "clip_grad_norm_ after backward does; none"),
        "skip": (0, "1: a refresh takes the place of the compressed exchange; matrices do not move in that step"),
        "own": (0, "1: local momenta also grow during the warm-up; 0: they begin as the replicated one"),
        "wbits": (4, "bits of the dither in the warm-up"), "rbits": (4, "bits of the dither of refreshes"),
        "b1u": (B1, "beta1 of the local momentum"),
        "small": (32, "bits of numbers that are not coded"),
        "bin": (500, "adacomp's"), "factor": (2.0, "adacomp's"), "density": (0.01, "topk's"), "bits": (4, "dither's"),
        "scale": ("mean", "adacomp's value: mean of the bins' largest, or `bin`: a scale for each bin, sent in a byte"),
    }

    def __init__(self, text):
        self.text = text
        self.codec, _, rest = text.partition(":")
        if self.codec not in ("dense", "dither", "adacomp", "topk", "sign"):
            raise ValueError(f"no codec '{self.codec}'")
        for key, (default, _) in self.KEYS.items():
            setattr(self, key, default)
        for item in filter(None, rest.split(",")):
            key, _, value = item.partition("=")
            if key not in self.KEYS:
                raise ValueError(f"no key '{key}'")
            setattr(self, key, type(self.KEYS[key][0])(value))

    def kinds(self, steps):
        """The kind of each step: dense, warm (exchanged without bias), held (compressed) or var (compressed, with a refresh); and for
        each refresh the steps since the exchange without bias before it."""
        if self.codec in ("dense", "dither"):
            return ["dense" if self.codec == "dense" else "warm"] * steps, [1] * steps
        warm = int(self.warm * steps)
        kinds, gap, left, next_at = [], 2 if self.ramp else self.every, self.ramp, None
        next_at = warm - 1 + gap
        for t in range(steps):
            if t < warm:
                kinds.append("warm")
            elif self.every and t == next_at:
                kinds.append("var")
                left -= 1
                if left <= 0:
                    gap, left = min(2 * gap, self.every), self.ramp
                next_at = t + gap
            else:
                kinds.append("held")
        gaps, last = [], 0
        for t, kind in enumerate(kinds):
            gaps.append(t - last)
            last = t if kind in ("warm", "var") else last
        return kinds, gaps


def refresh_beta2(beta2, gap):
    """As in python/gradwire/adam_phases.py."""
    return min(beta2, max(beta2 ** gap, 0.95))


class Layout:
    """Where each tensor lies in the flat row: from a multiple of `grain`."""

    def __init__(self, sizes, grain, device):
        self.sizes, self.grain, self.starts, at = sizes, grain, [], 0
        for size in sizes:
            self.starts.append(at)
            at += -(-size // grain) * grain
        self.total, self.elements = at, sum(sizes)
        rows = torch.cat([torch.full((-(-size // grain),), i) for i, size in enumerate(sizes)]).to(device)
        self.row_of, self.belongs = rows, F.one_hot(rows, len(sizes)).float()
        self.row_counts = self.belongs.sum(0)
        self.counts = torch.tensor([float(s) for s in sizes], device=device)

    def views(self, flat):
        return [flat[..., at:at + size] for at, size in zip(self.starts, self.sizes)]

    def rows(self, flat):
        return flat.view(*flat.shape[:-1], -1, self.grain)

    def rms(self, flat):
        """Of each tensor."""
        return ((self.rows(flat).square().sum(-1) @ self.belongs) / self.counts).sqrt()

    def times(self, flat, factors):
        """Each tensor times its factor."""
        return (self.rows(flat) * factors[..., self.row_of].unsqueeze(-1)).view(flat.shape)


def dither(x, bits, bucket=512):
    """Linear dithering of each row of x, unbiased. Buckets do not mind where tensors begin: their statistics are the same."""
    q = F.pad(x, (0, -x.shape[-1] % bucket)).view(*x.shape[:-1], -1, bucket)
    top = 2 ** (bits - 1) - 1
    scale = q.abs().amax(-1, keepdim=True).clamp_min(1e-30) / top
    y = (q / scale + torch.rand_like(q)).floor().clamp(-top, top) * scale
    return y.view(*x.shape[:-1], -1)[..., :x.shape[-1]]


def dither_bytes(elements, bits, bucket=512):
    return elements * bits / 8 + 4 * elements / bucket


class Codec:
    """Encodes each worker's numbers with its residual; `sent` adds up the bytes of all workers."""

    def __init__(self, way, layout, sent):
        self.way, self.layout, self.sent = way, layout, sent

    def exchange(self, x, residual):
        """The mean of what arrives of each worker. Residuals keep the rest."""
        held = residual + x
        y = getattr(self, self.way.codec)(x, residual, held)
        torch.sub(held, y, out=residual)
        return y.mean(0)

    def adacomp(self, x, residual, held):
        w, lay = self.way, self.layout
        h = lay.rows(held)
        top = h.abs().amax(-1)
        ahead = lay.rows(torch.add(residual, x, alpha=w.factor))
        pick = (ahead.abs() >= top.unsqueeze(-1)) & (top > 0).unsqueeze(-1)
        entries = pick.sum(-1).clamp_min(1).sum()
        self.sent.add_(entries * (1 if w.bin <= 63 else 2))
        if w.scale == "bin":
            self.sent.add_(top.numel())
            scale = top
        else:
            scale = (top @ lay.belongs / lay.row_counts)[:, lay.row_of]
        return torch.where(pick, h.sign() * scale.unsqueeze(-1), torch.zeros_like(h)).view(held.shape)

    def topk(self, x, residual, held):
        y = torch.zeros_like(held)
        for to, v in zip(self.layout.views(y), self.layout.views(held)):
            k = max(1, int(self.way.density * v.shape[1]))
            at = v.abs().topk(k, 1).indices
            to.scatter_(1, at, v.gather(1, at))
            self.sent.add_(5.06 * k * len(v))
        return y

    def sign(self, x, residual, held):
        q = F.pad(held, (0, -held.shape[1] % 4096)).view(len(held), -1, 4096)
        scale = q.abs().mean(2, keepdim=True)
        self.sent.add_(held.shape[0] * (held.shape[1] / 8 + 4 * q.shape[1]))
        return torch.where(q >= 0, scale, -scale).view(len(held), -1)[:, :held.shape[1]]
