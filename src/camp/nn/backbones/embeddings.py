"""Vectors that the user brings: the same methods over text, sound, or any model's features."""

import torch

from camp.data.views import Field
from camp.nn.backbones.base import Backbone, fingerprint_of
from camp.nn.backbones.residual_mlp import ResidualMlp


def embeddings(dim: int, generator: torch.Generator) -> Backbone:
    """A backbone for vectors of length `dim`: no trunk, and a residual MLP that starts as the identity."""
    return Backbone(
        name="embeddings",
        dim=dim,
        resolution=0,
        mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0),
        fields=(Field("vector", (dim,), "exact"),),
        trunk=None,
        tip=ResidualMlp(dim, hidden=dim, generator=generator),
        fingerprint=fingerprint_of(f"embeddings {dim}"),
        note="",
    )
