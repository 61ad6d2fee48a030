"""Methods that remember categories as centroids: an objective, a distiller, a memory, k-means and an adapter.

CAMP, GCD and their relatives are this composition with different parts; see `Composition`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from camp.core import distributed
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.discovery.nearest_centroid import NearestCentroid
from camp.methods.base import Drift
from camp.methods.settings import Discovery, Training
from camp.methods.tip_method import TipMethod
from camp.methods.trainer import Distillation, Objective, OldFeatures, Phase1, clean_features, gathered
from camp.nn.adapters import Adapter, AdapterSettings, fit_adapter
from camp.nn.backbones.base import Backbone
from camp.nn.distillers import make_distiller

_ADAPTER_BYTES = 2**30
_FRESH_PAIRS = 4
"""Views a picture of which the adapter learns when every view is a new one."""


@dataclass(frozen=True)
class Sizes:
    """What heads are made for."""

    dim: int
    """D, the length of a feature."""
    known: int
    """Known classes so far, this task's among them; labels are 0 .. known - 1."""
    count: Callable[[], int]
    """How K is come by."""

    @property
    def total(self) -> int:
        """K, all categories, known and novel. Where it is not told it is estimated: ask only if needed."""
        return self.count()


NO_DISTILLATION = Distillation(alpha=0.0, kind="mse", data="task", views="sum")


@dataclass(frozen=True)
class Composition:
    """The parts of a centroid method."""

    objective: Callable[[Sizes, torch.Generator], Objective] | None
    """The objective with fresh heads; None trains nothing."""
    training: Training
    discovery: Discovery
    distiller: Literal["none", "fd", "linear", "mlp", "trex"] = "none"
    distillation: Distillation = NO_DISTILLATION
    adapter: str = "none"
    adapter_settings: AdapterSettings = field(default_factory=AdapterSettings)
    exemplars: int = 0
    clipping: Literal["norm", "value"] = "norm"


class CentroidMethod(TipMethod):
    """Phases 1, 2, 3 in the order of the paper's equations."""

    def __init__(self, backbone: Backbone, parts: Composition, seed: int, device: torch.device) -> None:
        super().__init__(backbone, parts.training, parts.discovery, parts.exemplars, seed, device)
        self.parts = parts
        self.adapter: Adapter | None = None  # psi of the last task, where one was fitted

    def _prepare(self, progress: Progress) -> Phase1 | None:
        """Fresh heads, and a distiller from the second task on."""
        if self.parts.objective is None:
            return None
        t = self._current().index
        views, labels = self.memory.beside(self._current())
        distiller = None
        if self._old_tip is not None:
            distiller = make_distiller(self.parts.distiller, self.dim, generator(self.seed, "distiller", t))
        compared = distiller is not None or self.parts.adapter != "none"
        sizes = Sizes(self.dim, self._known(), lambda: self._prototypes(progress))
        return self._phase(
            tip=self.tip,
            objective=self.parts.objective(sizes, generator(self.seed, "heads", t)),
            distiller=distiller,
            distillation=self.parts.distillation,
            settings=self.parts.training,
            views=views,
            labels=labels,
            own=len(self._current()),
            old=OldFeatures(self._old_tip, views, self.dim, progress) if self._old_tip and compared else None,
            device=self.device,
            draws=(self.seed, t),
            clipping=self.parts.clipping,
        )

    def _phase(self, **parts: Any) -> Phase1:
        """The training itself; methods with another loop or a penalty change it here."""
        return Phase1(**parts)

    def _conclude(self, progress: Progress) -> None:
        """Phase 3, then phase 2: they do not depend on each other."""
        self.drift = self._adapt(progress) if self._old_tip is not None else None
        self._discover(progress)

    def _adapt(self, progress: Progress) -> Drift | None:
        """p_i^t = psi(p_i^{t-1}) for all centroids kept so far."""
        if self.centroids is None or not len(self.centroids):
            return None
        stored, self.adapter = self.centroids, None
        if self.parts.adapter != "none":
            z_old, z_new = self._pairs(progress)
            self.adapter = fit_adapter(
                self.parts.adapter,
                z_old,
                z_new,
                self.parts.adapter_settings,
                generator(self.seed, "adapter", self._current().index),
                progress,
                views=len(z_old) // len(self._training().views),
            )
            self.centroids = self.adapter(stored)
        return Drift(stored, self.centroids)

    @torch.no_grad()
    def _pairs(self, progress: Progress) -> tuple[Tensor, Tensor]:
        """F^{t-1}(x) and F^t(x) of augmented views of all pictures at hand, (n, D) each."""
        views, old = self._training().views, self._training().old
        assert old is not None
        most = max(1, _ADAPTER_BYTES // (len(views) * self.dim * 4))
        count = min(views.augmentations or _FRESH_PAIRS, most)
        draw = generator(self.seed, "pairs", self._current().index)
        self.tip.eval()
        pairs = []
        with progress.track("Pairs for the adapter", len(views)) as bar:
            for rows in torch.arange(len(views)).split(max(1, 512 // count)):
                ids, mine = views.draw(rows, count, draw), distributed.shard(len(rows))
                batch = views.augmented(rows[mine], ids[:, mine])
                z = old(rows, ids, batch), gathered(self.tip(batch), count, len(rows))
                pairs.append((z[0].flatten(0, 1).cpu(), z[1].flatten(0, 1).cpu()))
                bar.advance(len(rows))
        return torch.cat([a for a, _ in pairs]), torch.cat([b for _, b in pairs])

    def _discover(self, progress: Progress) -> None:
        """Semi-supervised k-means over the task's clean features; its centroids become categories."""
        features = clean_features(self.tip, self._current().views, progress)
        result = self._cluster(features, progress)
        labels: list[int | None] = [*result.known_labels, *[None] * self.found["n_novel"]]
        places = self._enter(labels, result.assignments)
        kept = torch.empty(len(self.categories), result.centroids.shape[1])
        if self.centroids is not None:
            kept[: len(self.centroids)] = self.centroids
        kept[places] = result.centroids  # a known class that comes again gets its new centroid
        self.centroids = kept

    def predict(self, features: Tensor, allowed: Tensor | None = None) -> Tensor:
        """The nearest centroid."""
        assert self.centroids is not None
        return NearestCentroid(self.centroids, self.discovery.metric).predict(features, allowed)
