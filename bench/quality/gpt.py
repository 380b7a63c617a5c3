"""A byte-level GPT whose parameters stand once for each worker, so that one backward pass gives every worker's gradient."""

import torch
import torch.nn.functional as F

# sequence length, width, heads, layers
SIZES = {"tiny": (64, 128, 4, 3), "mid": (128, 256, 4, 4), "small": (256, 384, 6, 6), "base": (512, 768, 12, 12)}
VOCABULARY = 256


class Gpt:
    def __init__(self, size, device):
        self.length, self.width, self.heads, self.layers = SIZES[size]
        self.dtype = torch.bfloat16 if device == "cuda" else torch.float32
        d = self.width
        shapes = [(VOCABULARY, d), (self.length, d), (d,), (d,)]  # tokens (also the head), places, last norm
        for _ in range(self.layers):
            shapes += [(d,), (d,), (3 * d, d), (3 * d,), (d, d), (d,), (d,), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,)]
        self.shapes = shapes
        scales = {2, *(4 + 12 * layer + k for layer in range(self.layers) for k in (0, 6))}
        self.first = [torch.ones(s, device=device) if i in scales else
                      torch.randn(s, device=device) * 0.02 if len(s) > 1 else torch.zeros(s, device=device) for i, s in enumerate(shapes)]

    def logits(self, p, x):
        """p: each parameter with the workers in front; x: [workers, batch, length]."""
        n, batch, length = x.shape
        d = self.width

        def linear(a, w, b):
            return torch.baddbmm(b.to(self.dtype).unsqueeze(1), a.to(self.dtype), w.to(self.dtype).transpose(1, 2))

        def norm(a, scale, shift):
            return F.layer_norm(a, (d,)) * scale.unsqueeze(1) + shift.unsqueeze(1)

        at = x + VOCABULARY * torch.arange(n, device=x.device)[:, None, None]
        a = F.embedding(at.view(-1), p[0].reshape(-1, d)).view(n, batch, length, d) + p[1][:, None, :length]
        a = a.reshape(n, batch * length, d)
        for layer in range(self.layers):
            n1, m1, qkv, qkv_b, out, out_b, n2, m2, up, up_b, down, down_b = p[4 + 12 * layer:16 + 12 * layer]
            q, k, v = linear(norm(a, n1, m1), qkv, qkv_b).view(n * batch, length, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, batch * length, d)
            a = a + linear(seen, out, out_b).float()
            a = a + linear(F.gelu(linear(norm(a, n2, m2), up, up_b)), down, down_b).float()
        return torch.bmm(norm(a, p[2], p[3]).to(self.dtype), p[0].to(self.dtype).transpose(1, 2)).float()

    def loss(self, p, x):
        """The sum of the workers' mean losses: the gradient of each worker's parameters is its own."""
        y = self.logits(p, x[:, :, :-1])
        return F.cross_entropy(y.reshape(-1, VOCABULARY), x[:, :, 1:].reshape(-1), reduction="sum") / (x.shape[1] * (x.shape[2] - 1))
