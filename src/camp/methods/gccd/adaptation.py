"""Adaptation of earlier centroids to the features of the new model (phase 3): p_i^t = psi(p_i^{t-1})."""

from typing import Protocol

import torch
from torch import Tensor

from camp.core import distributed
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.methods.components import TaskRun
from camp.methods.trainer import gathered
from camp.nn.adapters.registry import fit_adapter
from camp.nn.adapters.settings import AdapterSettings
from camp.nn.adapters.solvers import Adapter

_PAIR_BYTES = 2**30
"""Greatest size of the features that an adapter learns from."""
_NEW_VIEWS = 4
"""Number of views of an image that an adapter learns from where every view is a new one."""


class CentroidAdapter(Protocol):
    """Carries centroids into the feature space of the new model."""

    def adapt(self, centroids: Tensor, features: Tensor, run: TaskRun, progress: Progress) -> Tensor:
        """Carry centroids (K, D) along; `features` (n, D) are those of the task under the new model."""


class LearnedAdapter:
    """psi, learned from the features of the same views under the old and the new model."""

    def __init__(self, name: str, settings: AdapterSettings) -> None:
        self.name, self.settings = name, settings
        self.psi: Adapter | None = None
        """The adapter of the last task; None where nothing was learned."""

    def adapt(self, centroids: Tensor, features: Tensor, run: TaskRun, progress: Progress) -> Tensor:
        """Return psi(centroids)."""
        self.psi = None
        if run.trainer is None:
            return centroids
        old, new = feature_pairs(run, progress)
        draw = generator(run.seed, "adapter", run.task.index)
        views = len(old) // len(run.trainer.data.views)
        self.psi = fit_adapter(self.name, old, new, self.settings, draw, progress, views=views)
        return self.psi(centroids)


@torch.no_grad()
def feature_pairs(run: TaskRun, progress: Progress) -> tuple[Tensor, Tensor]:
    """Compute F^{t-1}(x) and F^t(x) (n, D) of augmented views of all images at hand."""
    assert run.trainer is not None
    assert run.old_features is not None
    views, dim = run.trainer.data.views, run.old_features.dim
    most = max(1, _PAIR_BYTES // (len(views) * dim * 4))
    count = min(views.augmentations or _NEW_VIEWS, most)
    draw = generator(run.seed, "pairs", run.task.index)
    run.tip.eval()
    pairs = []
    with progress.track("Pairs for the adapter", len(views)) as bar:
        for rows in torch.arange(len(views)).split(max(1, 512 // count)):
            ids, mine = views.draw(rows, count, draw), distributed.shard(len(rows))
            batch = views.augmented(rows[mine], ids[:, mine])
            z = run.old_features(rows, ids, batch), gathered(run.tip(batch), count, len(rows))
            pairs.append((z[0].flatten(0, 1).cpu(), z[1].flatten(0, 1).cpu()))
            bar.advance(len(rows))
    return torch.cat([a for a, _ in pairs]), torch.cat([b for _, b in pairs])
