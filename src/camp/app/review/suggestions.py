"""What the other images say about the category of each image: a classifier that is fitted again after every decision.

Linear discriminant analysis of the points of the workspace, with the within-class covariance shrunk to a multiple of the
identity. The prediction for an image is that of the model without this image (leave-one-out), in closed form, so that an
image in the wrong category does not vote for itself. With v = x - mu_k for an image x of category k with n_k images,
q_j = (x - mu_j)' S^-1 v, and N images and K categories in all,

    S     = (1 - s) W + s tr(W) / d I                     W pooled within-class covariance, d dimensions
    D_j   = (x - mu_j)' S^-1 (x - mu_j) + g q_j^2         g = c / (1 - c q_k),    c = (1 - s) n_k / ((N - K) (n_k - 1))
    D_k   = (n_k / (n_k - 1))^2 (q_k + g q_k^2)           the mean of the category without the image
    p     = softmax(-a D_j / (1 + 1 / n_j))               a maximises the likelihood of the present categories

g is the Sherman-Morrison correction of S^-1 without the image; 1 + 1 / n_j is the variance of the next image of a category
whose mean is known from n_j images.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from camp.app.workspace.knowledge import DISCARDED, Knowledge
from camp.discovery.class_scatter import WithinClassScatter, class_means

SHRINKAGE = 0.3
"""s."""
SCALES = (0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5)
"""Values of a that are tried."""
MAX_SAMPLES = 5_000
"""Number of images that a is fitted on."""


@dataclass(frozen=True)
class Suggestions:
    """Probable categories of n images."""

    ids: np.ndarray
    """(K,) ids of the live categories that have images, sorted."""
    probabilities: np.ndarray
    """(n, K) float32; 0 for categories that a person said the image does not belong to."""
    position: np.ndarray
    """(n,) position of the image's own category in `ids`; -1 for discarded images."""

    @property
    def own(self) -> np.ndarray:
        """Probability (n,) of the image's own category."""
        if not len(self.ids):
            return np.zeros(len(self.position), np.float32)
        found = np.take_along_axis(self.probabilities, self.position.clip(0)[:, None], axis=1)[:, 0]
        return np.where(self.position < 0, 0.0, found)

    @property
    def others(self) -> np.ndarray:
        """Probabilities (n, K) without the own category."""
        p = self.probabilities.copy()
        np.put_along_axis(p, self.position.clip(0)[:, None], 0.0, axis=1)
        return p


def suggest(knowledge: Knowledge) -> Suggestions:
    """Fit the classifier to the present categories of all images and apply it to each image."""
    images = knowledge.images
    ids = np.array([id for id, n in knowledge.counts().items() if n], dtype=np.int64)
    position = np.where(images.category == DISCARDED, -1, np.searchsorted(ids, images.category))
    if not len(ids):
        return Suggestions(ids, np.zeros((len(images), 0), np.float32), position)
    kept = torch.from_numpy(position >= 0)
    own = torch.from_numpy(position.clip(0))
    distances = leave_one_out_distances(torch.from_numpy(images.points), own, kept, len(ids))
    sample = torch.nonzero(kept).flatten()
    sample = sample[:: -(-len(sample) // MAX_SAMPLES)]
    losses = {a: float(F.cross_entropy(-a * distances[sample], own[sample])) for a in SCALES}
    p = torch.softmax(-min(losses, key=lambda a: losses[a]) * distances, dim=1).numpy()
    for row, id in knowledge.rejected:
        at = int(np.searchsorted(ids, id))
        if at < len(ids) and ids[at] == id:
            p[row, at] = 0.0
    return Suggestions(ids, p / np.maximum(p.sum(axis=1, keepdims=True), 1e-12), position)


def leave_one_out_distances(x: Tensor, own: Tensor, kept: Tensor, n_classes: int) -> Tensor:
    """Return D_j / (1 + 1 / n_j), (n, K), of points x (n, d) of the classes `own` (n,).

    Images that are not `kept` (n,) belong to no class.
    """
    scatter = WithinClassScatter.empty(x.shape[1]).add(x[kept], own[kept])
    x = x @ scatter.whitening(SHRINKAGE)
    means = class_means(x[kept], own[kept], n_classes).to(x.dtype)
    sizes = torch.bincount(own[kept], minlength=n_classes).to(x.dtype)
    v, at = x - means[own], own[:, None]
    n = sizes[own]
    without = n / (n - 1).clamp_min(1) * kept  # n_k / (n_k - 1)
    inner, between = x @ means.T, means @ means.T
    q = (x * v).sum(dim=1, keepdim=True) - inner + between[own]
    c = (1 - SHRINKAGE) / max(scatter.degrees_of_freedom, 1) * without
    g = c / (1 - (c * v.square().sum(dim=1)).clamp_max(0.99))
    d = x.square().sum(dim=1, keepdim=True) - 2 * inner + between.diagonal()
    d = d.addcmul_(q.square_(), g[:, None]).div_(1 + 1 / sizes)
    mine = d.gather(1, at) * (1 + 1 / sizes)[at] * (without**2 / (1 + 1 / (n - 1).clamp_min(1)))[:, None]
    alone = ((n == 1) & kept)[:, None]  # no other image could vote for the category
    mine = torch.where(alone, d.scatter(1, at, torch.inf).amin(dim=1, keepdim=True), mine)
    return torch.where(kept[:, None], d.scatter(1, at, mine), d)
