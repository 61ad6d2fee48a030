"""The model of a workspace: trunk, trained tip, and the categories by their centroids."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from camp.app.workspace.kept_unknown import tip_fingerprint
from camp.app.workspace.knowledge import Knowledge, category_title
from camp.app.workspace.overview import category_regions
from camp.app.workspace.workspace import Workspace
from camp.core.errors import CampError
from camp.core.files import checksum
from camp.core.types import FALSE_ALARMS
from camp.data.views import Batch
from camp.discovery.calibration import check_false_alarms
from camp.discovery.class_metric import ClassMetric
from camp.discovery.open_set import OpenSet
from camp.nn.backbones.base import Backbone


@dataclass(frozen=True)
class Model:
    """A backbone with a trained tip, and K categories in its feature space."""

    backbone: Backbone
    metric: ClassMetric
    classifier: OpenSet
    """Classifies the points that `metric` maps features to."""
    ids: tuple[int, ...]
    """Permanent id of each category, in the order of the centroids."""
    names: tuple[str | None, ...]

    @classmethod
    def of(cls, knowledge: Knowledge, backbone: Backbone, false_alarms: float = FALSE_ALARMS) -> Self:
        """Make the model of the categories of `knowledge`, in the feature space of `backbone`.

        It calls about the share `false_alarms` of images of these categories unknown.
        """
        ids, regions = category_regions(knowledge, check_false_alarms(false_alarms))
        names = tuple(knowledge.categories[id].name for id in ids)
        return cls(backbone, knowledge.metric, OpenSet.of(regions), ids, names)

    @torch.no_grad()
    def features(self, batch: Batch) -> Tensor:
        """Return the features (n, D) of the trunk's output, on the CPU."""
        features: Tensor = self.backbone.tip.eval()(batch)
        return features.cpu()

    def points(self, batch: Batch) -> Tensor:
        """Return the points (n, d) of the trunk's output under the metric."""
        return self.metric.transform(self.features(batch))

    @cached_property
    def tip_fingerprint(self) -> str:
        """Hash of the weights of the tip."""
        return tip_fingerprint(self.backbone.tip.state_dict())

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weights, metric and categories that decide the predictions."""
        backbone, classifier = self.backbone, self.classifier
        tensors = (classifier.centroids, classifier.radii)
        arrays = [*self.metric.state().values(), *(tensor.cpu().numpy() for tensor in tensors)]
        parts = (
            (backbone.name, backbone.fingerprint, backbone.resolution, backbone.mean, backbone.std),
            (backbone.device.type, type(backbone.trunk).__name__, self.tip_fingerprint),
            ([(array.shape, checksum(array.tobytes())) for array in arrays], classifier.temperature),
            (self.ids, self.names),
        )
        return checksum(repr(parts).encode())

    @cached_property
    def titles(self) -> tuple[str, ...]:
        """Name of each category, or its id in words: "category 7"."""
        return tuple(category_title(id, name) for id, name in zip(self.ids, self.names))


def open_model(workspace: Workspace, false_alarms: float = FALSE_ALARMS) -> Model:
    """Return the model of a workspace, with every decision since the last batch."""
    events = len(workspace.events())
    try:
        return Model.of(workspace.knowledge(), workspace.backbone(), false_alarms)
    except CampError:
        if len(workspace.events()) == events:
            raise
        return open_model(
            workspace, false_alarms
        )  # another process has learned in the meantime and removed the files
