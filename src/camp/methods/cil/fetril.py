"""FeTrIL: Feature Translation for Exemplar-Free Class-Incremental Learning (Petit et al., WACV 2023).

The first task trains the network by cross-entropy; then it is frozen, and a class is remembered by its mean mu. In
each task a linear support vector classifier over all classes so far is fitted to features f at unit length, real ones
for the classes n of the task, and for each older class c those of the new class whose mean points most nearly where
c's does, moved to where c was:

    f~ = f + mu_c - mu_n,     n = argmax_n cos(mu_c, mu_n)

The support vector classifier is the authors' (C = 1, tolerance 1e-4, solved in the primal, so that nothing is drawn at
random), and answers in the first task too. Where their code differs we follow PyCIL, which the paper ran: theirs takes
the Euclidean distance for the nearest mean, leaves the first 512 features of a task at their own length, and trains the
network by LUCIR and AugMix. PyCIL fits a second classifier by gradient descent to the same features; we do not.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from sklearn.svm import LinearSVC
from torch import Tensor

from camp.core.progress import Progress
from camp.methods.cil.base import IncrementalMethod, IncrementalObjective, IncrementalSettings
from camp.methods.cil.fine_tune import FineTuneObjective
from camp.methods.settings import check_positive
from camp.methods.trainer import Phase1, clean_features
from camp.nn.backbones.base import Backbone


@dataclass(frozen=True)
class FetrilSettings(IncrementalSettings):
    """Those of every classifier, whose training is that of the first task; and those of the support vectors."""

    svc: float = 1.0
    """C, the weight of errors against the length of the support vector classifier's weights."""

    def __post_init__(self) -> None:
        check_positive("svc, the weight of errors,", self.svc)


class FetrilObjective(FineTuneObjective):
    """Fine-tune's, whose classifier is thrown away with the first task."""

    lasting = False


class Fetril(IncrementalMethod):
    """A frozen network, a mean for each class in `centroids`, and a classifier fitted anew in each task."""

    def __init__(self, backbone: Backbone, settings: FetrilSettings, seed: int, device: torch.device) -> None:
        super().__init__(backbone, settings.training, seed, device)
        self.svc = settings.svc

    def _objective(self, old: int, known: int, generator: torch.Generator) -> IncrementalObjective:
        return FetrilObjective(self.dim, old, known, generator)

    def _prepare(self, progress: Progress) -> Phase1 | None:  # type: ignore[override]
        return None if self._current().index else super()._prepare(progress)

    def train_epoch(self, epoch: int) -> dict[str, float]:
        """Nothing is trained after the first task: there is no loss."""
        return {"loss": 0.0} if self._current().index else super().train_epoch(epoch)

    def _conclude(self, progress: Progress) -> None:
        """Means of the task's classes, then the classifier; labels come in a row, so they number categories too."""
        super()._conclude(progress)
        task = self._current()
        features = clean_features(self.tip, task.views, progress)
        means = features.new_zeros(len(self.categories), self.dim)
        if self.centroids is not None:
            means[: len(self.centroids)] = self.centroids
        for label in task.labels.unique():
            means[label] = features[task.labels == label].mean(dim=0)
        self.centroids = means
        with progress.track("Support vectors", 1):
            weight, bias = linear_svc(*with_pseudo_features(features, task.labels, means), self.svc)
        self._heads = {"classifier.weight": weight, "classifier.bias": bias}

    def _logits(self, features: Tensor) -> Tensor:
        return super()._logits(F.normalize(features, dim=1))


def with_pseudo_features(features: Tensor, labels: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    """Features (n, D) with `labels` (n,), and behind them pseudo-features of the classes that have none.

    `means` (K, D) are those of all classes 0 .. K - 1. Returns (m, D) and (m,).
    """
    new, directions = labels.unique(), F.normalize(means, dim=1)
    parts, owners = [features], [labels]
    for c in sorted(set(range(len(means))) - set(new.tolist())):
        n = new[(directions[new] @ directions[c]).argmax()]
        parts.append(features[labels == n] + means[c] - means[n])
        owners.append(labels.new_full((len(parts[-1]),), c))
    return torch.cat(parts), torch.cat(owners)


def linear_svc(features: Tensor, labels: Tensor, c: float) -> tuple[Tensor, Tensor]:
    """Weights (K, D) and biases (K,) of one support vector classifier for each of the labels 0 .. K - 1 against the
    rest, fitted to features (n, D) at unit length; a class alone needs none, and two share theirs."""
    known = int(labels.max()) + 1
    if known == 1:
        return features.new_zeros(1, features.shape[1]), features.new_zeros(1)
    svc = LinearSVC(C=c, tol=1e-4, dual=False).fit(F.normalize(features, dim=1).numpy(), labels.numpy())
    weight, bias = torch.from_numpy(svc.coef_).float(), torch.from_numpy(svc.intercept_).float()
    return (weight, bias) if known > 2 else (torch.cat([-weight, weight]), torch.cat([-bias, bias]))


def make_fetril(backbone: Backbone, settings: FetrilSettings, seed: int, device: torch.device) -> Fetril:
    """FeTrIL."""
    return Fetril(backbone, settings, seed, device)
