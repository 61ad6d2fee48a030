"""Networks divided into a frozen trunk and a trained tip."""

from typing import TYPE_CHECKING

from camp.nn.backbones.settings import BackboneSettings

if TYPE_CHECKING:
    import torch

    from camp.nn.backbones.base import Backbone


def make_backbone(settings: BackboneSettings, generator: "torch.Generator") -> "Backbone":
    """Build a backbone; weights that are not pretrained are drawn from `generator`."""
    from camp.nn.backbones import registry  # imports torch, which `camp --help` does without

    return registry.make_backbone(settings, generator)
