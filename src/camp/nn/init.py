"""Initialization of networks from a generator, without torch's global random state."""

import math
from typing import TypeVar

import torch
from torch import Tensor, nn

Network = TypeVar("Network", bound=nn.Module)


@torch.no_grad()
def init_default_(network: Network, generator: torch.Generator) -> Network:
    """Initialize every Linear and Conv2d of `network` as torch does by default, in place, and return it.

    Weights are Kaiming-uniform with a = sqrt(5), that is U(-b, b) with b = fan_in^-1/2, and so are
    biases.

    >>> layer = init_default_(nn.Linear(4, 2), torch.Generator().manual_seed(0))
    >>> bool((layer.weight.abs() <= 0.5).all())
    True
    """
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            bound = 1 / math.sqrt(layer.weight[0].numel())
            layer.weight.uniform_(-bound, bound, generator=generator)
            if layer.bias is not None:
                layer.bias.uniform_(-bound, bound, generator=generator)
    return network


def trunc_normal_(weight: Tensor, std: float, generator: torch.Generator) -> Tensor:
    """Fill `weight` from N(0, std^2), truncated at -2 and 2, in place."""
    return nn.init.trunc_normal_(weight, std=std, generator=generator)
