"""CAMP+: categories as Gaussians with a shared covariance, estimated from the labels (docs/camp-plus.md).

    u = unit(root(z - median z)),   root(x) = sign(x) |x|^(1/2)          power transform of the features z of the tip
    S = (1 - s) W + s tr(W) / D I                                        shrunk scatter within all labelled classes so far
    k(x) = argmax_k cos(S^{-1/2} (u - m), S^{-1/2} (c_k - m))            the classifier; m is the mean of the centroids

Discovery whitens u by S, keeps the first d principal components and fits a mixture of categories to them, whose sizes have
a prior estimated from the labelled classes (`discovery/category_mixture.py`). The parameters s and d and the exponent t of
densities are selected in each task by cross-validation that hides the labels of some known classes
(`discovery/simulated_novelty.py`), and so are the kind of densities and the number of novel categories. Adaptation carries centroids and scatter by the same affine map. Remembered are K
centroids and one D x D matrix, and no image.

Training is CAMP's, and off by default (docs/results.md, "Ablation of CAMP+").
"""

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from camp.core.progress import Progress
from camp.discovery.camp_plus_discoverer import CampPlusDiscoverer
from camp.discovery.simulated_novelty import ParameterGrid
from camp.methods.base import BuildContext
from camp.methods.components import TaskRun
from camp.methods.gccd.adaptation import feature_pairs
from camp.methods.gccd.camp import camp_parts
from camp.methods.gccd.centroid_method import CentroidMethod
from camp.methods.gccd.settings import CampPlusSettings
from camp.nn.adapters.solvers import least_squares


@dataclass(frozen=True)
class AffineAdapter:
    """Carries centroids and scatter by one affine map."""

    discoverer: CampPlusDiscoverer
    ridge: float

    def adapt(self, centroids: Tensor, features: Tensor, run: TaskRun, progress: Progress) -> Tensor:
        """c <- A c + b,  T <- A T A^T + (images - classes) Cov(e)  with e = u_new - A u_old - b."""
        if run.trainer is None:
            return centroids
        old, new = (self.discoverer.transform(z) for z in feature_pairs(run, progress))
        weight, bias = least_squares(old, new, self.ridge)
        error = (new.double() - old.double() @ weight.T - bias).T.cov()
        self.discoverer.carry(weight, error)
        return (centroids.double() @ weight.T + bias).to(centroids.dtype)


def make_camp_plus(context: BuildContext, settings: CampPlusSettings) -> CentroidMethod:
    """Make CAMP+, with CAMP's training or without any."""
    found = settings.discovery
    discoverer = CampPlusDiscoverer(
        context.backbone.dim,
        _grid(settings),
        power_transform=settings.power_transform,
        n_init=found.n_init,
        max_iterations=found.max_iterations,
        max_novel=found.max_novel,
    )
    adapter = AffineAdapter(discoverer, settings.adaptation.ridge) if settings.adapter != "none" else None
    parts = replace(
        camp_parts(settings),
        discoverer=discoverer,
        transform=discoverer.transform,
        whiten=discoverer.whiten,
        centred=discoverer.unit,
        returning=settings.returning,
        adapter=adapter,
    )
    if not settings.train:
        parts = replace(parts, objective=None, training=replace(settings.training, epochs=0))
    return CentroidMethod(context, parts)


def _grid(settings: CampPlusSettings) -> ParameterGrid:
    """Return the values that parameters are selected from; those that were given are fixed."""
    given = {name: getattr(settings, name) for name in ("shrinkage", "n_components", "power", "equal_widths")}
    selected: dict[str, Any] = {name: (value,) for name, value in given.items() if value is not None}
    grid = ParameterGrid(size_prior=settings.size_prior, start_factor=settings.start_factor)
    return replace(grid, **selected)
