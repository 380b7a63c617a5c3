#!/usr/bin/env python3
"""The device that a job file names: `gradwire advise` plans for GPUs or for CPUs by it."""

import platform
import types

import torch

import ranks
from gradwire.job import device_of


def on(kind):
    return types.SimpleNamespace(device=types.SimpleNamespace(type=kind))


def test_device():
    name, torch.cuda.get_device_name = torch.cuda.get_device_name, lambda device: f"NVIDIA {device.type}"
    try:
        assert device_of(on("cuda")) == "NVIDIA cuda"
    finally:
        torch.cuda.get_device_name = name
    assert device_of(torch.nn.Parameter(torch.zeros(2))) == (platform.processor() or platform.machine())
    assert device_of(on("xpu")) == "xpu"


if __name__ == "__main__":
    ranks.main({key: value for key, value in globals().items() if key.startswith("test_")})
