"""Categories proposed for unknown images that predictions kept."""

from dataclasses import dataclass

import numpy as np
import torch

from camp.app.workspace.knowledge import DISCARDED, Knowledge
from camp.app.workspace.overview import category_regions, metric_labels
from camp.discovery.unknown_groups import unknown_groups


@dataclass(frozen=True)
class Proposal:
    """Kept images that look like one category."""

    digests: tuple[str, ...]
    """The most typical first."""
    files: tuple[str, ...]
    nearest: int
    """Id of the category that looks most like them."""


def proposals(knowledge: Knowledge) -> list[Proposal]:
    """Find groups of kept images that are nearer to each other than to any category, the largest first."""
    pending = knowledge.pending()
    if not len(pending) or not any(knowledge.counts().values()):
        return []
    ids, regions = category_regions(knowledge)
    images, kept, metric = knowledge.images, knowledge.kept, knowledge.metric
    points = metric.transform(torch.from_numpy(kept.features[pending]).float())
    known = images.category != DISCARDED
    positions = np.searchsorted(ids, images.category[known])
    own = metric.leave_one_out_distances(images.points[known], positions, len(ids))
    own = knowledge.calibration.ratios(metric_labels(knowledge)[known]) * own
    if np.isnan(own).all():  # no category has two images that tell how much its images differ
        return []
    found, centroids = [], torch.from_numpy(regions.centroids)
    for group in unknown_groups(points, centroids, metric, float(np.sqrt(np.nanmean(np.square(own))))):
        rows = pending[group.numpy()]
        centre = metric.centroids(points[group].numpy(), np.zeros(len(group), np.int64), 1)
        nearest = int(torch.cdist(torch.from_numpy(centre), centroids).argmin())
        files = tuple(kept.files[row] for row in rows)
        found.append(Proposal(tuple(kept.digests[row] for row in rows), files, ids[nearest]))
    return found
