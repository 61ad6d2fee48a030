"""Groups of unknown images."""

import numpy as np
import torch

from camp.discovery.class_metric import ClassMetric
from camp.discovery.unknown_groups import MIN_GROUP, unknown_groups

IDENTITY = ClassMetric(
    np.zeros(4, np.float32), np.eye(4, dtype=np.float32), np.zeros(4, np.float32), unit=False
)
KNOWN = 5 * torch.eye(4)[:2]


def around(centre: torch.Tensor, count: int, seed: int) -> torch.Tensor:
    return centre + 0.1 * torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))


def test_images_that_agree_are_a_group_and_others_are_not() -> None:
    new = 5 * torch.eye(4)[2:]
    lonely = around(torch.full((4,), -9.0), MIN_GROUP - 1, 3)
    points = torch.cat([around(new[0], 6, 1), lonely, around(new[1], 9, 2)])
    groups = unknown_groups(points, KNOWN, IDENTITY, typical=0.3)
    assert [sorted(group.tolist()) for group in groups] == [[*range(10, 19)], [*range(6)]]
    # An image on the centroid of a category is nearer to it than to the images around it.
    assert unknown_groups(KNOWN[0].repeat(12, 1), KNOWN, IDENTITY, typical=0.2) == []
    first = points[groups[0]]
    distances = (first - first.mean(dim=0)).norm(dim=1)
    assert distances[0] < distances[-1]


def test_few_images_and_no_category() -> None:
    assert unknown_groups(torch.zeros(MIN_GROUP - 1, 4), KNOWN, IDENTITY, 1.0) == []
    assert unknown_groups(torch.zeros(9, 4), KNOWN[:0], IDENTITY, 1.0) == []
