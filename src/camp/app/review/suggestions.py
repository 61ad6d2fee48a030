"""What the other images say about the category of each image: a classifier that is fitted again after every decision.

Ridge regression from features to categories, in closed form. The prediction for an image is that of the model without
this image (leave-one-out), so that an image in the wrong category does not vote for itself:

    B     = (Z' W Z + r I)^-1 Z' W Y                      Z (n, d) features, W weights of the images, Y one-hot categories
    s_i   = (z_i B - h_i y_i) / (1 - h_i),                h_i = w_i z_i' (Z' W Z + r I)^-1 z_i
    p_i   = softmax(c s_i)                                c maximises the likelihood of the present categories

Images whose category comes from a label or a person have weight 1, those of the clustering less.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from camp.app.workspace.knowledge import CLUSTERED, DISCARDED, Knowledge

N_COMPONENTS = 256
"""Principal components of the features that the classifier uses."""
RIDGE = 0.3
"""r, relative to the mean eigenvalue of Z' W Z."""
UNTRUSTED = 1.0
"""Weight of an image whose category comes from the clustering."""
SCALES = (3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 24.0)
"""Values of c that are tried."""
MAX_SAMPLES = 20_000
"""Number of images that the principal components are fitted on."""


def embed(features: np.ndarray) -> Tensor:
    """Return directions (n, d) of features (n, D), for `suggest`. They change only when a batch is learned."""
    x = torch.from_numpy(np.asarray(features, dtype=np.float32))
    if not len(x):
        return torch.zeros(0, 1)
    x = F.normalize(x - x.mean(dim=0), dim=1)
    sample = x[:: max(1, -(-len(x) // MAX_SAMPLES))]
    _, axes = torch.linalg.eigh(sample.T @ sample)
    z = x @ axes[:, -min(N_COMPONENTS, x.shape[1]) :]
    return torch.cat([z, torch.ones(len(z), 1)], dim=1)


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


def suggest(knowledge: Knowledge, z: Tensor) -> Suggestions:
    """Fit the classifier to the present categories of all images and apply it to each image."""
    images = knowledge.images
    ids = np.array([id for id, n in knowledge.counts().items() if n], dtype=np.int64)
    position = np.where(images.category == DISCARDED, -1, np.searchsorted(ids, images.category))
    if not len(ids):
        return Suggestions(ids, np.zeros((len(images), 0), np.float32), position)
    kept = torch.from_numpy(position >= 0)
    trusted = torch.from_numpy(images.source != CLUSTERED) & kept
    own = torch.from_numpy(position.clip(0))
    w = torch.where(trusted, 1.0, UNTRUSTED) * kept
    y = F.one_hot(own, len(ids)).float()
    gram = (z * w[:, None]).T @ z
    gram += RIDGE * gram.trace() / len(gram) * torch.eye(len(gram))
    inverse = torch.linalg.inv(gram)
    projected = z @ inverse
    h = (w * (projected * z).sum(dim=1)).clamp_max(0.999)[:, None]
    scores = (projected @ (z.T @ (w[:, None] * y)) - h * y) / (1 - h)
    sizes = y[kept].sum(dim=0)
    scores = scores.where(
        ~((sizes == 1) & (y > 0)), scores.amax(dim=1, keepdim=True)
    )  # no other image could vote for it
    losses = {c: float(F.cross_entropy(c * scores[kept], own[kept])) for c in SCALES}
    p = torch.softmax(min(losses, key=lambda c: losses[c]) * scores, dim=1).numpy()
    for row, id in knowledge.rejected:
        at = int(np.searchsorted(ids, id))
        if at < len(ids) and ids[at] == id:
            p[row, at] = 0.0
    return Suggestions(ids, p / np.maximum(p.sum(axis=1, keepdims=True), 1e-12), position)
