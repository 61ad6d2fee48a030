"""Categories proposed for unknown images that predictions kept."""

from dataclasses import dataclass

import torch

from camp.app.workspace.knowledge import DISCARDED, Knowledge
from camp.app.workspace.overview import fit_classifier, metric_labels
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
    ids, classifier = fit_classifier(knowledge)
    images, kept, metric = knowledge.images, knowledge.kept, knowledge.metric
    points = metric.transform(torch.from_numpy(kept.features[pending]).float())
    known = images.category != DISCARDED
    positions = torch.searchsorted(torch.tensor(ids), torch.from_numpy(images.category[known]))
    own = metric.leave_one_out_distances(torch.from_numpy(images.points[known]), positions, len(ids))
    own = knowledge.calibration.ratios(metric_labels(knowledge)[known]) * own
    if bool(own.isnan().all()):  # no category has two images that tell how much its images differ
        return []
    found = []
    for group in unknown_groups(points, classifier.centroids, metric, float(own.square().nanmean().sqrt())):
        rows = pending[group.numpy()]
        centre = metric.centroids(points[group], torch.zeros(len(group), dtype=torch.long), 1)
        nearest = int(torch.cdist(centre, classifier.centroids).argmin())
        files = tuple(kept.files[row] for row in rows)
        found.append(Proposal(tuple(kept.digests[row] for row in rows), files, ids[nearest]))
    return found
