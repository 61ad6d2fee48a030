"""Frozen: the pretrained features as they are, no phase 1 at all.

Semi-supervised k-means in each task and the nearest centroid. Nothing moves, so nothing is forgotten but to
crowding: a method that falls below this yardstick would have done better not to train.
"""

from dataclasses import dataclass, field

import torch

from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.settings import Discovery, MethodSettings, Training
from camp.nn.backbones.base import Backbone


@dataclass(frozen=True)
class FrozenSettings(MethodSettings):
    """There is only discovery."""

    discovery: Discovery = field(default_factory=Discovery)


def make_frozen(
    backbone: Backbone, settings: FrozenSettings, seed: int, device: torch.device
) -> CentroidMethod:
    """Discovery and the nearest centroid."""
    parts = Composition(objective=None, training=Training(epochs=0), discovery=settings.discovery)
    return CentroidMethod(backbone, parts, seed, device)
