"""A tip for finished features: z + W_2 GELU(W_1 z + b_1) + b_2, the identity before it is trained.

With `normalised`, z is brought to mean 0 and variance 1 before and behind, as a ViT's final norm does. The
distillation loss compares features by their squared difference, so its weight alpha means the same only for
features of the same size; those of a pooled convolutional network are three times smaller.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.data.views import Batch
from camp.nn.backbones.base import restored
from camp.nn.init import init_default_


class ResidualMlp(nn.Module):
    """The field "vector" (B, D) -> features (B, D)."""

    def __init__(self, dim: int, hidden: int, generator: torch.Generator, normalised: bool = False) -> None:
        super().__init__()
        self.normalised = normalised
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)
        init_default_(self, generator)
        nn.init.zeros_(self.fc2.weight)
        nn.init.zeros_(self.fc2.bias)

    def forward(self, batch: Batch) -> Tensor:
        """Features; at the start they are the vectors themselves, normalised or not."""
        z = self._norm(restored(batch, "vector", self.fc1.weight.dtype))
        return self._norm(z + self.fc2(F.gelu(self.fc1(z))))

    def _norm(self, z: Tensor) -> Tensor:
        return F.layer_norm(z, z.shape[-1:]) if self.normalised else z
