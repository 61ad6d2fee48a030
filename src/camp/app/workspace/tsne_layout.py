"""The map of the review page: positions of images on a plane, by t-SNE.

t-SNE runs on at most LANDMARKS images, spread over the categories; the others are placed between their nearest
landmarks, so that a hundred thousand images take seconds. Landmarks start at their positions on the last map, and the
result is rotated so that they stay near them.
"""

import numpy as np
import torch
from scipy.linalg import orthogonal_procrustes
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

from camp.core.progress import Progress
from camp.core.seeds import numpy_generator, seed_of

LANDMARKS = 1500
NEIGHBOURS = 5
_DIRECTIONS = 50
_CHUNK = 4096


def tsne_layout(
    features: np.ndarray, categories: np.ndarray, before: np.ndarray, seed: int, progress: Progress
) -> np.ndarray:
    """Compute map positions (n, 2) float32 in -1..1.

    Args:
        features: (n, D)
        categories: (n,) ids, over which the landmarks are spread.
        before: (m, 2) positions of the first m images on the last map.
    """
    n = len(features)
    if n < 4 or not np.ptp(features, axis=0).any():  # too few, or all alike
        return np.stack([np.linspace(-0.5, 0.5, n), np.zeros(n)], axis=1).astype(np.float32)
    chosen = _landmarks(categories, seed)
    sample = np.asarray(features[chosen], dtype=np.float32)
    reduced = PCA(min(_DIRECTIONS, *sample.shape), random_state=0).fit(sample)
    flat = reduced.transform(sample)
    spread = flat[:, :2] if flat.shape[1] > 1 else np.hstack([flat, np.zeros_like(flat)])
    start = (spread / (np.abs(spread).max() or 1.0)).astype(np.float32)
    known = chosen < len(before)
    if known.sum() > 10:
        # New images start at the mean of the old ones that are nearest to them.
        near = _nearest(flat, flat[known], min(NEIGHBOURS, int(known.sum())))
        start = before[chosen[known]][near].mean(axis=1).astype(np.float32)
        start[known] = before[chosen[known]]
    with progress.track("Map", 1):
        places = TSNE(
            init=1e-2 * start / (start[:, 0].std() or 1.0),
            perplexity=min(30.0, (len(chosen) - 1) / 3),
            learning_rate=max(len(chosen) / 12, 5.0),  # the usual minimum of 50 is too large for few images
            random_state=seed_of(seed, "map") % 2**32,
            max_iter=500,
        ).fit_transform(flat)
    places = places - places.mean(axis=0)
    if known.sum() > 10:
        there = before[chosen[known]]
        turn, _ = orthogonal_procrustes(places[known], there - there.mean(axis=0))
        places = places @ turn
    places /= np.abs(places).max() or 1.0
    positions = np.empty((n, 2), dtype=np.float32)
    with progress.track("Placing on the map", n) as bar:
        for begin in range(0, n, _CHUNK):
            part = slice(begin, begin + _CHUNK)
            z = reduced.transform(np.asarray(features[part], dtype=np.float32))
            positions[part] = places[_nearest(z, flat, min(NEIGHBOURS, len(flat)))].mean(axis=1)
            bar.advance(len(z))
    positions[chosen] = places
    return positions


def _landmarks(categories: np.ndarray, seed: int) -> np.ndarray:
    """Return sorted rows of at most LANDMARKS images, equally many of each category where possible."""
    if len(categories) <= LANDMARKS:
        return np.arange(len(categories))
    return np.sort(spread_over(categories, numpy_generator(seed, "landmarks"))[:LANDMARKS])


def spread_over(categories: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Return all rows in a random order in which the i-th image of each category comes before the (i + 1)-th of any."""
    order = draw.permutation(len(categories))
    by_category = np.argsort(categories[order], kind="stable")
    _, counts = np.unique(categories, return_counts=True)
    ranks = np.empty(len(categories), dtype=np.int64)
    ranks[by_category] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    return order[np.argsort(ranks, kind="stable")]


def _nearest(z: np.ndarray, among: np.ndarray, count: int) -> np.ndarray:
    """Return the rows (n, count) of `among` (m, d) nearest to each of z (n, d)."""
    distances = torch.cdist(torch.from_numpy(z), torch.from_numpy(among))
    return distances.topk(count, dim=1, largest=False).indices.numpy()
