"""CAMP+: categories as Gaussians of one shape, which the labels teach. docs/camp-plus.md has the whole of it.

    u = unit(root(z - median z)),   root(x) = sign(x) |x|^(1/2)          features of the tip, tamed
    S = (1 - s) W + s tr(W) / D I                                        the shrunk scatter within all labelled classes so far
    k(x) = argmin_k (u - c_k)^T S^{-1} (u - c_k)                         the classifier

Phase 2 whitens u by S, keeps the first d principal directions and clusters there with sizes that the labels foretell
(`clustering/balanced.py`). What there is to choose (s, d, the number of clusters, how strictly sizes are held) is chosen in
each task by simulated novelty. Phase 3 carries centroids and scatter by the same affine map. Kept for later are K centroids
and one D x D matrix, and no picture.

Phase 1 is CAMP's, and off by default: it costs accuracy with EfficientNet-Lite0 and gains none with the stand-in ViT
(docs/results.md, "What each part is worth" and "Elsewhere").
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.core.types import UNLABELLED
from camp.data.views import Batch
from camp.discovery.class_metric import means_of
from camp.discovery.class_scatter import Scatter
from camp.discovery.nearest_centroid import NearestCentroid
from camp.discovery.number_of_categories import Estimate, estimate_without_labels
from camp.discovery.semi_supervised_kmeans import semi_supervised_kmeans
from camp.discovery.simulated_novelty import (
    Candidates,
    Choice,
    Recipe,
    Simulation,
    choose,
    points,
    principal,
)
from camp.discovery.size_constraints import balanced
from camp.methods.base import Drift, State
from camp.methods.gccd.camp import CampSettings, camp_parts
from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.settings import check_positive, check_share
from camp.methods.trainer import clean_features
from camp.nn.adapters.linear import least_squares
from camp.nn.backbones.base import Backbone

FEW = 32
"""Features of no more dimensions are taken as they are: their length says something."""


@dataclass(frozen=True)
class CampPlusSettings(CampSettings):
    """CAMP's settings for phase 1, where it is wanted."""

    train: bool = False
    """Train the tip as CAMP does before categories are found; `epochs` and the losses count only then."""
    tame: bool = True
    """Take roots of features; off for the ablation."""
    shrinkage: float | None = None
    """s, the share of the identity in the metric; 1 is plain distances. By default chosen by simulated novelty."""
    directions: int | None = None
    """d, principal directions that are clustered; by default chosen by simulated novelty."""
    sharpness: float | None = None
    """kappa of soft assignments; by default chosen by simulated novelty."""
    hold: float | None = None
    """h, how strictly expected sizes are held, from 0 to 1; by default chosen by simulated novelty."""

    def after_training(self) -> tuple[str, ...] | None:
        """Training cannot be shared."""
        return None

    def candidates(self) -> Candidates:
        """What is left to choose from."""
        usual = Candidates()
        return Candidates(
            usual.shrinkages if self.shrinkage is None else (self.shrinkage,),
            usual.directions if self.directions is None else (self.directions,),
            usual.sharpnesses if self.sharpness is None else (self.sharpness,),
            usual.holds if self.hold is None else (self.hold,),
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("hold", self.hold)
        for name, value in (("shrinkage", self.shrinkage), ("sharpness", self.sharpness)):
            if value is not None:
                check_positive(name, value)
        check_share("shrinkage", self.shrinkage)
        if self.exemplars and not self.train:
            raise CampError("CAMP+ keeps no pictures unless it trains: add --train, or leave --exemplars.")
        if self.directions is not None and self.directions < 1:
            raise CampError(f"Clustering needs at least one direction, not {self.directions}.")
        if self.adapter not in ("linear", "none"):
            raise CampError(
                f"CAMP+ carries its scatter by a linear map or not at all, not by {self.adapter}."
            )


def make_camp_plus(
    backbone: Backbone, settings: CampPlusSettings, seed: int, device: torch.device
) -> "CampPlus":
    """CAMP+, with CAMP's phase 1 or none."""
    parts = camp_parts(settings)
    if not settings.train:
        parts = replace(parts, objective=None, training=replace(settings.training, epochs=0))
    return CampPlus(backbone, parts, settings.candidates(), settings.tame, seed, device)


class CampPlus(CentroidMethod):
    """Centroids and a scatter, both in the space of u."""

    def __init__(
        self,
        backbone: Backbone,
        parts: Composition,
        candidates: Candidates,
        tame: bool,
        seed: int,
        device: torch.device,
    ) -> None:
        super().__init__(backbone, parts, seed, device)
        self.candidates, self.tame = candidates, tame
        self.directional = self.dim > FEW
        self.scatter = Scatter.none(self.dim)
        self.recipe = candidates.default()
        self._whitening: Tensor | None = None  # P of the scatter, made when it is asked for

    def features(self, batch: Batch) -> Tensor:
        """u (n, D) by the present tip."""
        return self._tamed(super().features(batch))

    def _tamed(self, z: Tensor) -> Tensor:
        """u (n, D) of the tip's features z (n, D)."""
        if not self.directional:
            return z
        return F.normalize(tamed(z) if self.tame else z, dim=1)

    def predict(self, features: Tensor, allowed: Tensor | None = None) -> Tensor:
        """The nearest centroid under S."""
        assert self.centroids is not None
        if self._whitening is None:
            self._whitening = self.scatter.whitening(self.recipe.shrinkage)
        centroids = self.centroids @ self._whitening
        return NearestCentroid(centroids, self.discovery.metric).predict(features @ self._whitening, allowed)

    def _adapt(self, progress: Progress) -> Drift | None:
        """c <- A c + b, T <- A T A^T + (pictures - classes) Cov(e) with e = u_new - A u_old - b; nothing where nothing moved."""
        if self.centroids is None or not len(self.centroids):
            return None
        stored = self.centroids
        if self._phase1 is not None and self.parts.adapter != "none":
            old, new = (self._tamed(z) for z in self._pairs(progress))
            weight, bias = least_squares(old, new, self.parts.adapter_settings.ridge)
            error = (new.double() - old.double() @ weight.T - bias).T.cov()
            self.scatter = self.scatter.carried(weight, error)
            self.centroids = (stored.double() @ weight.T + bias).to(stored.dtype)
        return Drift(stored, self.centroids)

    def _discover(self, progress: Progress) -> None:
        """Known and novel categories of the task; their centroids are means of u."""
        task = self._current()
        u = self._tamed(clean_features(self.tip, task.views, progress))
        choice = self._choose(u, progress, "after")
        labelled = task.labels != UNLABELLED
        self.scatter, self.recipe = (
            self.scatter.with_classes(u[labelled], task.labels[labelled]),
            choice.recipe,
        )
        self._whitening = None
        p = self._points(u, self.recipe)
        with progress.track("Clustering", self.discovery.n_init) as bar:
            start = semi_supervised_kmeans(
                p,
                task.labels,
                choice.n_novel,
                n_init=self.discovery.n_init,
                max_iterations=self.discovery.max_iterations,
                generator=generator(self.seed, "clustering", task.index),
                progress=bar,
            )
        assignments = balanced(p, task.labels, start, self.recipe.balance)
        kept = torch.bincount(assignments, minlength=len(start.centroids)) > 0  # a cluster may have lost all
        assignments = (kept.cumsum(dim=0) - 1)[assignments]
        count = int(kept.sum())
        self.found = {
            "n_novel": count - len(start.known_labels),
            "curve": [list(point) for point in choice.curve] if choice.curve is not None else None,
            "novel_error": choice.error,
            "recipe": described(choice),
        }
        labels: list[int | None] = [*start.known_labels, *[None] * self.found["n_novel"]]
        places = self._enter(labels, assignments)
        centroids = torch.empty(len(self.categories), self.dim)
        if self.centroids is not None:
            centroids[: len(self.centroids)] = self.centroids
        centroids[places] = means_of(u, assignments, count).float()
        self.centroids = centroids

    def _choose(self, u: Tensor, progress: Progress, when: str) -> Choice:
        """How to find the novel categories of the task, and how many, by simulated novelty."""
        task = self._current()
        draw = generator(self.seed, "simulation", task.index, when)
        simulation = Simulation(u, task.labels, self.scatter, self.candidates, self.directional, draw)
        free = int((task.labels == UNLABELLED).sum())
        most = min(self.discovery.max_novel or max(10, simulation.known), free)
        choice = choose(simulation, task.n_novel, most, progress)
        if task.n_novel is None and not simulation.folds:
            p = self._points(u, choice.recipe)
            guess = estimate_without_labels(p, simulation.known + most, draw, progress=progress)
            return replace(choice, n_novel=min(max(guess.k - simulation.known, 0), free), curve=guess.curve)
        return choice

    def _points(self, u: Tensor, recipe: Recipe) -> Tensor:
        """p (n, d), the points to cluster."""
        components = principal(u, self.scatter, recipe.shrinkage, recipe.directions)
        return points(components, recipe.directions, self.directional)

    def _estimate(self, features: Tensor, progress: Progress, when: str) -> Estimate:
        """The number of novel categories before training."""
        choice = self._choose(self._tamed(features), progress, when)
        return Estimate(choice.n_novel, self._known() + choice.n_novel, choice.curve or ())

    def state(self) -> State:
        """With the scatter and what was chosen last."""
        state = super().state()
        state.tensors["scatter"] = self.scatter.total
        state.values |= {"freedom": self.scatter.freedom, "shrinkage": self.recipe.shrinkage}
        return state

    def _restore(self, state: State, views: Any) -> None:
        self.scatter = Scatter(state.tensors["scatter"], state.values["freedom"])
        self.recipe = replace(self.recipe, shrinkage=state.values["shrinkage"])
        self._whitening = None


def tamed(z: Tensor) -> Tensor:
    """root(z - median z) for features z (n, D): sign(x) |x|^(1/2) keeps a few large entries from deciding all distances.

    Around the median, entries that are usual are left alone: those that a network with rectified units has cut off.
    """
    centred = z - z.median(dim=1, keepdim=True).values
    return centred.sign() * centred.abs().sqrt()


def described(choice: Choice) -> dict[str, float | None]:
    """The recipe for results.json."""
    recipe = choice.recipe
    return {
        "shrinkage": recipe.shrinkage,
        "directions": recipe.directions,
        "sharpness": recipe.balance.sharpness,
        "hold": recipe.balance.hold,
        "score": choice.score,
    }
