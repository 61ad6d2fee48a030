"""Networks cut into a frozen trunk and a trained tip."""

from typing import TYPE_CHECKING

from camp.nn.backbones.settings import BackboneSettings

if TYPE_CHECKING:
    import torch

    from camp.nn.backbones.base import Backbone


def make_backbone(settings: BackboneSettings, generator: "torch.Generator") -> "Backbone":
    """The backbone that `settings` ask for; what has no pretrained weights is drawn from `generator`."""
    from camp.nn.backbones import registry  # brings torch, which `camp --help` does without

    return registry.make_backbone(settings, generator)
