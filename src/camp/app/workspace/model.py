"""What recognises pictures: trunk, learned tip, and the categories by their centroids."""

from dataclasses import dataclass

import torch
from torch import Tensor

from camp.data.views import Batch
from camp.discovery.class_metric import ClassMetric
from camp.discovery.open_set import OpenSet
from camp.nn.backbones.base import Backbone


@dataclass(frozen=True)
class Model:
    """A backbone whose tip has been trained, and K categories in its feature space."""

    backbone: Backbone
    metric: ClassMetric
    """From features to points."""
    classifier: OpenSet
    """By points."""
    ids: tuple[int, ...]
    """Permanent id of each category, in the order of the centroids."""
    names: tuple[str | None, ...]
    """What each is called, None where nobody has named it."""

    @torch.no_grad()
    def features(self, batch: Batch) -> Tensor:
        """(n, D) of the trunk's output, on the CPU."""
        return self.backbone.tip.eval()(batch).cpu()

    def points(self, batch: Batch) -> Tensor:
        """(n, d) of the trunk's output under the metric."""
        return self.metric.transform(self.features(batch))

    def called(self, position: int) -> str:
        """The category at `position` in words.

        A category without a name goes by its id: `category 7`.
        """
        return called(self.ids[position], self.names[position])


def called(id: int, name: str | None) -> str:
    """A category in words: its name, or its id.

    >>> called(7, None), called(7, "heron")
    ('category 7', 'heron')
    """
    return name if name is not None else f"category {id}"
