"""The map: pictures on a plane, near each other where their features are.

t-SNE of at most LANDMARKS pictures, spread over the categories; the rest is placed among its nearest landmarks, so that a
hundred thousand pictures take seconds. Landmarks start where they were on the last map, and the whole is turned so that
they stay near it.
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


def laid_out(
    features: np.ndarray, categories: np.ndarray, before: np.ndarray, seed: int, progress: Progress
) -> np.ndarray:
    """Positions (n, 2) float32 in -1..1 of `features` (n, D); `before` (m, 2) are those that the first m had."""
    n = len(features)
    if n < 4 or not np.ptp(features, axis=0).any():  # too few, or all alike
        return np.stack([np.linspace(-0.5, 0.5, n), np.zeros(n)], axis=1).astype(np.float32)
    chosen = _landmarks(categories, seed)
    some = np.asarray(features[chosen], dtype=np.float32)
    reduced = PCA(min(_DIRECTIONS, *some.shape), random_state=0).fit(some)
    flat = reduced.transform(some)
    spread = flat[:, :2] if flat.shape[1] > 1 else np.hstack([flat, np.zeros_like(flat)])
    start = (spread / (np.abs(spread).max() or 1.0)).astype(np.float32)
    known = chosen < len(before)
    if known.sum() > 10:
        # New pictures begin at the mean of the old ones that are nearest to them.
        near = _nearest(flat, flat[known], min(NEIGHBOURS, int(known.sum())))
        start = before[chosen[known]][near].mean(axis=1).astype(np.float32)
        start[known] = before[chosen[known]]
    with progress.track("Map", 1):
        places = TSNE(
            init=1e-2 * start / (start[:, 0].std() or 1.0),
            perplexity=min(30.0, (len(chosen) - 1) / 3),
            learning_rate=max(len(chosen) / 12, 5.0),  # the usual least of 50 throws few pictures about
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
    for begin in range(0, n, _CHUNK):
        part = slice(begin, begin + _CHUNK)
        z = reduced.transform(np.asarray(features[part], dtype=np.float32))
        positions[part] = places[_nearest(z, flat, min(NEIGHBOURS, len(flat)))].mean(axis=1)
    positions[chosen] = places
    return positions


def _landmarks(categories: np.ndarray, seed: int) -> np.ndarray:
    """Sorted rows of at most LANDMARKS pictures, as many of each category where there are enough."""
    if len(categories) <= LANDMARKS:
        return np.arange(len(categories))
    draw = numpy_generator(seed, "landmarks")
    order = draw.permutation(len(categories))
    # The i-th picture of each category comes before the (i + 1)-th of any.
    ranks = np.empty(len(categories), dtype=np.int64)
    for category in np.unique(categories):
        own = order[categories[order] == category]
        ranks[own] = np.arange(len(own))
    return np.sort(order[np.argsort(ranks[order], kind="stable")][:LANDMARKS])


def _nearest(z: np.ndarray, among: np.ndarray, count: int) -> np.ndarray:
    """(n, count) rows of `among` (m, d) nearest to each of z (n, d)."""
    distances = torch.cdist(torch.from_numpy(z), torch.from_numpy(among))
    return distances.topk(count, dim=1, largest=False).indices.numpy()
