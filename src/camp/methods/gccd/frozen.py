"""Frozen: the pretrained features as they are, without training.

Semi-supervised k-means in each task and the nearest centroid. The features do not change, so earlier categories
are only confused with later ones: the baseline that training has to beat.
"""

from dataclasses import dataclass, field

import torch

from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.settings import Discovery, MethodSettings, Training
from camp.nn.backbones.base import Backbone


@dataclass(frozen=True)
class FrozenSettings(MethodSettings):
    """Settings of discovery alone."""

    discovery: Discovery = field(default_factory=Discovery)


def make_frozen(
    backbone: Backbone, settings: FrozenSettings, seed: int, device: torch.device
) -> CentroidMethod:
    """Make a method that discovers and classifies without training."""
    parts = Composition(objective=None, training=Training(epochs=0), discovery=settings.discovery)
    return CentroidMethod(backbone, parts, seed, device)
