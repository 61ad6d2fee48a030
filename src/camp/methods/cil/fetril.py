"""FeTrIL: Feature Translation for Exemplar-Free Class-Incremental Learning (Petit et al., WACV 2023).

The first task trains the network by cross-entropy; then it is frozen, and a class is remembered by its mean mu. In
each task a linear support vector classifier over all classes so far is fitted to features f at unit length: real ones
for the classes n of the task, and for each older class c those of the new class with the most similar mean,
translated to the mean of c:

    f~ = f + mu_c - mu_n,     n = argmax_n cos(mu_c, mu_n)

The support vector classifier is the authors' (C = 1, tolerance 1e-4, solved in the primal, so that nothing is drawn at
random), and is used in the first task too. Where the authors' code differs from PyCIL, which the paper ran, this follows
PyCIL: the authors use the Euclidean distance for the most similar mean, do not normalise the first 512 features of a task,
and train the network by LUCIR and AugMix. The second classifier that PyCIL fits by gradient descent is left out, and so
are AutoAugment and Cutout. Training has PyCIL's defaults (exps/fetril.json); the cosine ends at a thousandth of the
learning rate instead of 0.
"""

import torch
import torch.nn.functional as F
from sklearn.svm import LinearSVC
from torch import Tensor

from camp.core.progress import Progress
from camp.methods.base import BuildContext
from camp.methods.cil.base import IncrementalMethod
from camp.methods.cil.fine_tune import FineTuneObjective
from camp.methods.cil.settings import FetrilSettings
from camp.methods.components import TaskRun
from camp.methods.trainer import clean_features


class FetrilObjective(FineTuneObjective):
    """The objective of Fine-tune, whose classifier is not used after the first task."""

    persistent = False


class TranslatedFeatureClassifier:
    """A support vector classifier that is fitted in each task to real and translated features."""

    def __init__(self, c: float) -> None:
        self.c = c
        self.weight, self.bias = torch.empty(0), torch.empty(0)

    def fit(self, run: TaskRun, means: Tensor | None, progress: Progress) -> Tensor:
        """Fit the classifier; returns the means (K, D) of all classes so far."""
        labels = run.task.labels
        features = clean_features(run.tip, run.task.views, progress)
        known = features.new_zeros(int(labels.max()) + 1, features.shape[1])
        if means is not None:
            known[: len(means)] = means
        for label in labels.unique():
            known[label] = features[labels == label].mean(dim=0)
        with progress.track("Support vectors", 1):
            self.weight, self.bias = linear_svc(*with_pseudo_features(features, labels, known), self.c)
        return known

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits (n, K) by label of features (n, D) at unit length."""
        return F.linear(F.normalize(features, dim=1), self.weight, self.bias)

    def state(self) -> dict[str, Tensor]:
        """Return the weights and biases."""
        return {"weight": self.weight, "bias": self.bias}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Continue from `state`."""
        self.weight, self.bias = tensors["weight"], tensors["bias"]


def with_pseudo_features(features: Tensor, labels: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    """Append translated features of the classes that have none to features (n, D) with labels (n,).

    `means` (K, D) are those of all classes 0 .. K - 1.
    """
    new, directions = labels.unique(), F.normalize(means, dim=1)
    parts, owners = [features], [labels]
    for c in sorted(set(range(len(means))) - set(new.tolist())):
        n = new[(directions[new] @ directions[c]).argmax()]
        parts.append(features[labels == n] + means[c] - means[n])
        owners.append(labels.new_full((len(parts[-1]),), c))
    return torch.cat(parts), torch.cat(owners)


def linear_svc(features: Tensor, labels: Tensor, c: float) -> tuple[Tensor, Tensor]:
    """Fit one support vector classifier for each label against the rest, to features (n, D) at unit length.

    Returns:
        Weights (K, D) and biases (K,) of the labels 0 .. K - 1; zeros for a single class.
    """
    known = int(labels.max()) + 1
    if known == 1:
        return features.new_zeros(1, features.shape[1]), features.new_zeros(1)
    svc = LinearSVC(C=c, tol=1e-4, dual=False).fit(F.normalize(features, dim=1).numpy(), labels.numpy())
    weight, bias = torch.from_numpy(svc.coef_).float(), torch.from_numpy(svc.intercept_).float()
    return (weight, bias) if known > 2 else (torch.cat([-weight, weight]), torch.cat([-bias, bias]))


def make_fetril(context: BuildContext, settings: FetrilSettings) -> IncrementalMethod:
    """Make FeTrIL, which trains in the first task alone."""
    return IncrementalMethod(
        context,
        settings.training,
        lambda sizes, generator: None if sizes.old else FetrilObjective(sizes, generator),
        classifier=TranslatedFeatureClassifier(settings.svc),
    )
