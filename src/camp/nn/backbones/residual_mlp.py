"""Residual MLP on pooled features or on a user's vectors, initialized to the identity.

    z = N(x),    features = gain * N'(z + W_2 GELU(W_1 z + b_1) + b_2)

For pooled features, N and N' are layer norms without weights, like a ViT's final norm. For vectors, N
divides by the root mean square of the data set and N' is the identity. Either way z has a root mean
square of 1, and the features have that of `gain` (see `FEATURE_RMS`).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.data.views import Batch
from camp.nn.backbones.base import dequantize
from camp.nn.backbones.feature_scale import FEATURE_RMS, ScaledTip
from camp.nn.init import init_default_


class ResidualMlp(ScaledTip):
    """Tip from the field "vector" (B, D) to features (B, D)."""

    def __init__(
        self,
        dim: int,
        hidden: int,
        generator: torch.Generator,
        *,
        input_rms: float | None = None,
        gain: float = FEATURE_RMS,
    ) -> None:
        """Make the tip; vectors are divided by `input_rms`, or normalised by a layer norm if it is None."""
        super().__init__(gain, 1.0 if input_rms is None else input_rms)
        self.normalised = input_rms is None
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)
        init_default_(self, generator)
        nn.init.zeros_(self.fc2.weight)
        nn.init.zeros_(self.fc2.bias)

    def forward(self, batch: Batch) -> Tensor:
        """Compute features (B, D)."""
        z = self._norm(dequantize(batch, "vector", self.fc1.weight.dtype) / self.input_rms)
        return self.gain * self._norm(z + self.fc2(F.gelu(self.fc1(z))))

    def _norm(self, z: Tensor) -> Tensor:
        return F.layer_norm(z, z.shape[-1:]) if self.normalised else z
