"""Side branches: 1 x 1 convolutions that are trained parallel to a frozen network and then merged into it.

Structural reorganisation of Zhu et al., Self-Sustaining Representation Expansion for Non-Exemplar
Class-Incremental Learning, CVPR 2022. Parallel to each 3 x 3 convolution W there is a 1 x 1
convolution V of the same input x:

    y = W * x + V * x = (W + pad(V)) * x

W is frozen and V is initialized to 0. Both are linear, so after the task V is added to the centre
of W.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.core.errors import CampError


class BranchedConv(nn.Module):
    """A 3 x 3 convolution with padding 1 and a parallel 1 x 1 convolution."""

    def __init__(self, main: nn.Conv2d) -> None:
        super().__init__()
        self.main = main
        self.side = nn.Parameter(main.weight.new_zeros(*main.weight.shape[:2], 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Sum of both convolutions, (B, C, H, W) -> (B, C', H / stride, W / stride)."""
        main: Tensor = self.main(x)
        return main + F.conv2d(x, self.side, stride=self.main.stride, groups=self.main.groups)

    @torch.no_grad()
    def fold(self) -> nn.Conv2d:
        """Merge the 1 x 1 convolution into the 3 x 3 one and return it."""
        self.main.weight += F.pad(self.side, (1, 1, 1, 1))
        return self.main


class SideBranches:
    """Branches parallel to every 3 x 3 convolution of a network, which is frozen including its norms."""

    def __init__(self, network: nn.Module) -> None:
        """Add the branches to `network` in place; only they require a gradient."""
        self.network = network
        self._branched = {
            name: BranchedConv(module)
            for name, module in network.named_modules()
            if isinstance(module, nn.Conv2d)
            and (module.kernel_size, module.padding, module.dilation) == ((3, 3), (1, 1), (1, 1))
        }
        if not self._branched:
            raise CampError("Side branches need 3 x 3 convolutions, and this network has none.")
        self._trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        network.requires_grad_(False)
        for name, branched in self._branched.items():
            _set_submodule(network, name, branched)
        self._hook = network.register_forward_pre_hook(_set_eval)

    def fold(self) -> None:
        """Merge each branch into its convolution and restore the structure of the network."""
        for name, branched in self._branched.items():
            _set_submodule(self.network, name, branched.fold())
        self._hook.remove()
        for parameter in self._trained:
            parameter.requires_grad_(True)


def _set_submodule(network: nn.Module, name: str, module: nn.Module) -> None:
    """Replace the submodule of `network` with this dotted name."""
    parent, _, child = name.rpartition(".")
    setattr(network.get_submodule(parent), child, module)


def _set_eval(network: nn.Module, inputs: Any) -> None:
    """Keep batch norms at the statistics of the first task, also in training."""
    network.eval()
