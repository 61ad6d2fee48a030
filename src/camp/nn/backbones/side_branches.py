"""Side branches: a network learns a task beside itself, and keeps its size.

Zhu et al., Self-Sustaining Representation Expansion for Non-Exemplar Class-Incremental Learning, CVPR 2022, call it
structural re-organisation. Beside each 3 x 3 convolution W comes a 1 x 1 convolution V of the same x:

    y = W * x + V * x = (W + pad(V)) * x

W stands still and V begins with 0. Both are linear, so when the task is learned V is added to the middle of W.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.core.errors import CampError


class Branched(nn.Module):
    """A 3 x 3 convolution that pads by 1, and a 1 x 1 one beside it."""

    def __init__(self, main: nn.Conv2d) -> None:
        super().__init__()
        self.main = main
        self.side = nn.Parameter(main.weight.new_zeros(*main.weight.shape[:2], 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> what the two give together, (B, C', H / stride, W / stride)."""
        return self.main(x) + F.conv2d(x, self.side, stride=self.main.stride, groups=self.main.groups)

    @torch.no_grad()
    def folded(self) -> nn.Conv2d:
        """The convolution alone, which gives the same."""
        self.main.weight += F.pad(self.side, (1, 1, 1, 1))
        return self.main


class SideBranches:
    """A branch beside every 3 x 3 convolution of a network that else stands still: weights, norms, statistics."""

    def __init__(self, network: nn.Module) -> None:
        """Add them to `network`, in place: what requires a gradient in it are the branches from now on."""
        self.network = network
        self._branched = {
            name: Branched(module)
            for name, module in network.named_modules()
            if isinstance(module, nn.Conv2d) and _shape(module) == ((3, 3), (1, 1), (1, 1))
        }
        if not self._branched:
            raise CampError("Side branches grow beside 3 x 3 convolutions, and this network has none.")
        self._trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        network.requires_grad_(False)
        for name, branched in self._branched.items():
            _put(network, name, branched)
        self._still = network.register_forward_pre_hook(_stand_still)

    def fold(self) -> None:
        """Add each branch to its convolution: the network is what it was, with other weights."""
        for name, branched in self._branched.items():
            _put(self.network, name, branched.folded())
        self._still.remove()
        for parameter in self._trained:
            parameter.requires_grad_(True)


def _shape(module: nn.Conv2d) -> tuple[object, ...]:
    """Kernel, padding and dilation."""
    return module.kernel_size, module.padding, module.dilation


def _put(network: nn.Module, name: str, module: nn.Module) -> None:
    """Set the part of `network` that has this dotted name."""
    parent, _, own = name.rpartition(".")
    setattr(network.get_submodule(parent), own, module)


def _stand_still(network: nn.Module, inputs: Any) -> None:
    """Batch norms go by the statistics of the first task, in training too."""
    network.eval()
