"""Default numbers of views and epochs by the size of a batch, and the expected time of learning."""

import time
from dataclasses import dataclass

import torch

from camp.core.errors import CampError
from camp.data.views import Batch
from camp.discovery.large_batches import MAX_IMAGES
from camp.nn.backbones.base import Backbone
from camp.nn.backbones.engine import OnnxEngine

VIEWS = ((1_000, 8), (5_000, 4))
"""(largest number of images, augmented views per image); 2 views in larger batches."""
EPOCHS, MIN_IMAGES, MIN_LABELLED = 10, 1_000, 100
"""Batches of at least MIN_IMAGES images, MIN_LABELLED of them labelled, are trained on for EPOCHS epochs; see docs/guide.md."""
_PROBE = 8
"""Number of views with which the speed of the trunk is measured."""


@dataclass(frozen=True)
class TrainingBudget:
    """Numbers of views and epochs."""

    views: int
    """Augmented views per image; 0 without training."""
    epochs: int


def training_budget(
    n_images: int, n_labelled: int, epochs: int | None = None, views: int | None = None
) -> TrainingBudget:
    """Choose views and epochs for a batch, unless they are given.

    >>> training_budget(200, 80)
    TrainingBudget(views=0, epochs=0)
    >>> training_budget(2000, 700), training_budget(2000, 700, epochs=3, views=2)
    (TrainingBudget(views=4, epochs=10), TrainingBudget(views=2, epochs=3))
    """
    if epochs is not None and epochs < 0:
        raise CampError(f"The number of epochs cannot be negative, and {epochs} is.")
    if views is not None and views < 2:
        raise CampError(f"Two views of a picture are compared, so at least 2 are needed, not {views}.")
    if epochs is None:
        epochs = EPOCHS if n_images >= MIN_IMAGES and n_labelled >= MIN_LABELLED else 0
    if not epochs:
        if views is not None:
            raise CampError("Views are for training, and this batch is not trained on: give the epochs too.")
        return TrainingBudget(0, 0)
    usual = next((count for most, count in VIEWS if n_images <= most), 2)
    return TrainingBudget(views or usual, epochs)


@torch.no_grad()
def expected_seconds(backbone: Backbone, n_images: int, budget: TrainingBudget) -> float:
    """Estimate the seconds that learning takes, by a short measurement on this machine."""
    threads = max(1, torch.get_num_threads())
    # Clustering, on a sample of many images; the metric and the map; reading and decoding images.
    seconds = 4 + 0.01 * min(n_images, MAX_IMAGES) + 0.0005 * n_images
    if backbone.resolution:
        seconds += 0.01 * n_images / threads
    if backbone.trunk is not None:
        trunk = backbone.trunk.single_threaded() if isinstance(backbone.trunk, OnnxEngine) else backbone.trunk
        pixels = torch.zeros(_PROBE, 3, backbone.resolution, backbone.resolution)
        _wait_for(trunk(pixels[:1]))
        started = time.monotonic()
        fields = _wait_for(trunk(pixels))
        per_view = (time.monotonic() - started) / _PROBE
        if isinstance(backbone.trunk, OnnxEngine):
            per_view /= threads  # a core each
        seconds += n_images * (1 + budget.views) * per_view
        if budget.epochs:
            batch = {name: x.to(backbone.device) for name, x in fields.items()}
            _wait_for({"features": backbone.tip(batch)})
            started = time.monotonic()
            _wait_for({"features": backbone.tip(batch)})
            # Two views of an image and of a labelled one, forward, backward, and as much for the heads.
            seconds += n_images * budget.epochs * 4 * 5 * (time.monotonic() - started) / _PROBE
    return seconds


def _wait_for(fields: Batch) -> Batch:
    """Return what a network has computed when it is there: a GPU computes while the CPU continues."""
    for x in fields.values():
        x.flatten()[:1].cpu()
    return fields
