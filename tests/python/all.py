#!/usr/bin/env python3
"""All tests of this folder, in one process that imports torch once."""

import importlib

import ranks

tests = {}
for name in ("replicas", "ddp", "bytes", "modules", "attach", "warmup", "state", "checkpoint", "lost", "failures", "groups", "fsdp", "device", "job",
             "plan", "tools", "adam", "adam_state"):
    module = importlib.import_module(f"test_{name}")
    tests.update({f"test_{name}_{key[5:]}": value for key, value in vars(module).items() if key.startswith("test_")})

if __name__ == "__main__":
    ranks.main(tests)
