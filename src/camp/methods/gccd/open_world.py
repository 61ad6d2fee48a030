"""CAMP for collections in which earlier categories return, as `camp learn` uses it.

Training and adaptation are CAMP's. Discovery differs (`camp.discovery`): categories of earlier batches take part with the
features that are remembered of their images. Adaptation carries these features along with the centroids:

    z' = c + r (psi(z) - c)          r >= 1, the spread of the new features over the spread of psi of the old ones

c is the adapted centroid of z; psi predicts the mean of new features, and r restores the variance that it leaves out.

Every category, named or not, is a known class to this method; its label is its position.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from camp.core.progress import Progress
from camp.discovery.base import KnownCategories
from camp.discovery.class_scatter import class_means
from camp.discovery.open_world_discoverer import OpenWorldDiscoverer
from camp.methods.base import BuildContext, LearnedCategory
from camp.methods.components import TaskRun
from camp.methods.gccd.adaptation import LearnedAdapter
from camp.methods.gccd.camp import camp_parts
from camp.methods.gccd.centroid_method import CentroidMethod
from camp.methods.gccd.settings import CampSettings
from camp.methods.trainer import clean_features
from camp.nn.adapters.solvers import Adapter
from camp.nn.backbones.base import Backbone


@dataclass
class FeatureMemory:
    """The features of the images of earlier batches, in the feature space of the present tip."""

    features: Tensor
    """(m, D)"""
    positions: Tensor
    """(m,) int64 position of the category of each."""

    def categories(self) -> KnownCategories:
        """Return the features as discovery takes them."""
        return KnownCategories.of_images(self.features, self.positions)

    def counts(self) -> list[int]:
        """Return the number of images of each category."""
        return [int(count) for count in torch.bincount(self.positions)]


@dataclass(frozen=True)
class FeatureMemoryAdapter:
    """Carries remembered features along with the centroids."""

    centroids: LearnedAdapter
    memory: FeatureMemory

    def adapt(self, centroids: Tensor, features: Tensor, run: TaskRun, progress: Progress) -> Tensor:
        """Return psi(centroids), and carry the remembered features."""
        adapted = self.centroids.adapt(centroids, features, run, progress)
        psi, memory = self.centroids.psi, self.memory
        if psi is not None:
            around = adapted[memory.positions]
            ratio = _spread_ratio(psi, features, run, progress)
            memory.features = around + ratio * (psi(memory.features) - around)
        return adapted


def _spread_ratio(psi: Adapter, features: Tensor, run: TaskRun, progress: Progress) -> float:
    """Compute r of the batch, between 1 and 2."""
    assert run.old_tip is not None
    before = clean_features(run.old_tip, run.task.views, progress, "Features before")
    spread, expected = (x.var(dim=0, correction=0).sum() for x in (features, psi(before)))
    return float((spread / expected.clamp_min(1e-12)).sqrt().clamp(1.0, 2.0))


def make_open_world(
    backbone: Backbone,
    settings: CampSettings,
    memory: FeatureMemory,
    discoverer: OpenWorldDiscoverer,
    seed: int,
    device: torch.device,
) -> CentroidMethod:
    """Make the method; it reads and updates `memory`, and without epochs it keeps the tip as it is."""
    parts = replace(camp_parts(settings), discoverer=discoverer, known=memory.categories)
    if isinstance(parts.adapter, LearnedAdapter):
        parts = replace(parts, adapter=FeatureMemoryAdapter(parts.adapter, memory))
    if not settings.training.epochs:
        parts = replace(parts, objective=None)
    method = CentroidMethod(BuildContext(backbone, seed, device), parts)
    method.categories = [LearnedCategory(at, 0, at, size) for at, size in enumerate(memory.counts())]
    if method.categories:
        means = class_means(memory.features, memory.positions, len(method.categories))
        method.centroids = means.to(memory.features.dtype)
    return method
