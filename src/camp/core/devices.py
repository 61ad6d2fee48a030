"""Copies of tensors to the device of a network."""

import torch
from torch import Tensor


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """Copy `x` to `device` without waiting for a GPU; return `x` itself if it is there.

    An ordinary copy to a GPU waits until the GPU has done all that it was given before. One from page-locked memory
    takes its turn, and the CPU continues.
    """
    if device.type != "cuda" or x.device.type != "cpu":
        return x.to(device)
    return x.pin_memory().to(device, non_blocking=True)
