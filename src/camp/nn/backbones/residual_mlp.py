"""Residual MLP on pooled features: z + W_2 GELU(W_1 z + b_1) + b_2, initialized to the identity.

With `normalised`, a layer norm without weights is applied before and after it, like a ViT's final
norm. The distillation loss is a squared difference of features, so its weight alpha is comparable
only between features of the same scale.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.data.views import Batch
from camp.nn.backbones.base import dequantize
from camp.nn.init import init_default_


class ResidualMlp(nn.Module):
    """Tip from the field "vector" (B, D) to features (B, D)."""

    def __init__(self, dim: int, hidden: int, generator: torch.Generator, normalised: bool = False) -> None:
        super().__init__()
        self.normalised = normalised
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)
        init_default_(self, generator)
        nn.init.zeros_(self.fc2.weight)
        nn.init.zeros_(self.fc2.bias)

    def forward(self, batch: Batch) -> Tensor:
        """Compute features (B, D)."""
        z = self._norm(dequantize(batch, "vector", self.fc1.weight.dtype))
        return self._norm(z + self.fc2(F.gelu(self.fc1(z))))

    def _norm(self, z: Tensor) -> Tensor:
        return F.layer_norm(z, z.shape[-1:]) if self.normalised else z
