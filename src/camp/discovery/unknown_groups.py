"""Groups of unknown images that look like one category.

Unknown images are clustered by average linkage. Clusters are joined while the mean distance of their
images is at most that of two images of one known category. An image stays in its group if it is
nearer to the centroid of the others than to the centroid of any known category, and groups of fewer
than MIN_GROUP such images are left out.
"""

import torch
from torch import Tensor

from camp.discovery.class_metric import ClassMetric

MIN_GROUP = 5
MAX_CLUSTERED = 3000
"""Number of images that are clustered; the time grows with its square."""


def unknown_groups(points: Tensor, centroids: Tensor, metric: ClassMetric, typical: float) -> list[Tensor]:
    """Find groups among unknown images; only the last MAX_CLUSTERED are looked at.

    Args:
        points: (n, d) of the unknown images, under `metric`.
        centroids: (K, d) of the known categories.
        typical: Root mean square distance of a new image of a known category to its centroid.

    Returns:
        The rows of each group, the most typical first; the largest group first.
    """
    first = max(0, len(points) - MAX_CLUSTERED)
    points = points[first:]
    if len(points) < MIN_GROUP or not len(centroids):
        return []
    from sklearn.cluster import AgglomerativeClustering  # takes long to import

    # Two images of a category are apart by the square root of 2 times the distance of one from the centroid.
    linkage = AgglomerativeClustering(None, linkage="average", distance_threshold=2**0.5 * typical)
    clusters = torch.from_numpy(linkage.fit_predict(points.numpy()))
    nearest = torch.cdist(points, centroids).amin(dim=1)
    count = int(clusters.max()) + 1
    own = torch.from_numpy(metric.leave_one_out_distances(points.numpy(), clusters.numpy(), count))
    groups = []
    for cluster in range(count):
        rows = ((clusters == cluster) & (own < nearest)).nonzero()[:, 0]
        if len(rows) >= MIN_GROUP:
            groups.append(first + rows[own[rows].argsort(stable=True)])
    return sorted(groups, key=len, reverse=True)
