"""How a batch is learned when nobody says how: views and epochs from its size, and the time that takes here."""

import time
from dataclasses import dataclass

import torch

from camp.core.errors import CampError
from camp.nn.backbones.base import Backbone
from camp.nn.backbones.engine import OnnxEngine

VIEWS = ((1_000, 8), (5_000, 4))
"""Augmented views of a picture in batches up to so many pictures; 2 in larger ones."""

EPOCHS, TRAINED, LABELLED = 10, 1_000, 100
"""Batches of at least TRAINED pictures, LABELLED of them labelled, are trained on for so many epochs. On smaller ones training
cost accuracy where it was measured, and on larger ones it paid; see docs/guide.md."""

_PROBE = 8
"""Views by which the trunk's speed is measured."""


@dataclass(frozen=True)
class Plan:
    """What will be done."""

    views: int
    """Augmented views of each picture; without training there are none."""
    epochs: int
    """Passes over the batch."""


def plan(pictures: int, labelled: int, epochs: int | None = None, views: int | None = None) -> Plan:
    """The plan for a batch of so many pictures, but for what is given.

    >>> plan(200, 80), plan(2000, 700), plan(2000, 700, epochs=3, views=2)
    (Plan(views=0, epochs=0), Plan(views=4, epochs=10), Plan(views=2, epochs=3))
    """
    if epochs is not None and epochs < 0:
        raise CampError(f"The number of epochs can not be negative, and {epochs} is.")
    if views is not None and views < 2:
        raise CampError(f"Two views of a picture are compared, so at least 2 are needed, not {views}.")
    if epochs is None:
        epochs = EPOCHS if pictures >= TRAINED and labelled >= LABELLED else 0
    if not epochs:
        if views is not None:
            raise CampError("Views are for training, and this batch is not trained on: give the epochs too.")
        return Plan(0, 0)
    usual = next((count for most, count in VIEWS if pictures <= most), 2)
    return Plan(views or usual, epochs)


@torch.no_grad()
def expected_seconds(backbone: Backbone, pictures: int, chosen: Plan) -> float:
    """Seconds that the trunk and the training will take, by a glance at this machine."""
    threads = max(1, torch.get_num_threads())
    # Reading and decoding; clustering, the metric and the map.
    seconds = 0.01 * pictures / threads + 4 + 0.01 * pictures
    if backbone.trunk is not None:
        trunk = backbone.trunk.on_one_core() if isinstance(backbone.trunk, OnnxEngine) else backbone.trunk
        pixels = torch.zeros(_PROBE, 3, backbone.resolution, backbone.resolution)
        trunk(pixels[:1])
        begun = time.monotonic()
        fields = trunk(pixels)
        per_view = (time.monotonic() - begun) / _PROBE
        if isinstance(backbone.trunk, OnnxEngine):
            per_view /= threads  # a core each
        seconds += pictures * (1 + chosen.views) * per_view
        if chosen.epochs:
            batch = {name: x.to(backbone.device) for name, x in fields.items()}
            backbone.tip(batch)
            begun = time.monotonic()
            backbone.tip(batch)
            # Two views of a picture and of a labelled one beside it, forward, backward, and as much for the heads.
            seconds += pictures * chosen.epochs * 4 * 5 * (time.monotonic() - begun) / _PROBE
    return seconds
