"""gradwire.AdamW: torch's AdamW that attaches the model it trains."""

import torch

from . import attach


class AdamW(torch.optim.AdamW):
    """For new scripts: gradwire.AdamW(ddp.parameters(), lr=1e-3, model=ddp) is torch.optim.AdamW(ddp.parameters(), lr=1e-3) and
    gradwire.attach(ddp, "adacomp", optimizer=…). All ranks make it. `attach`: further arguments of gradwire.attach."""

    def __init__(self, params, *args, model, codec="adacomp", attach_options=None, **options):
        super().__init__(params, *args, **options)
        attach(model, codec, optimizer=self, **(attach_options or {}))
