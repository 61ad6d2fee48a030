"""The paper's losses, one equation a file: pure functions of tensors with the two views on axis 0."""

from camp.losses.cross_entropy import cross_entropy
from camp.losses.elastic import elastic
from camp.losses.mean_entropy import mean_entropy
from camp.losses.projected_distillation import projected_distillation
from camp.losses.pseudo_label import pseudo_label, teacher_temperature
from camp.losses.simclr import simclr
from camp.losses.supcon import supcon
from camp.losses.total import balanced, distilled

__all__ = [
    "balanced",
    "cross_entropy",
    "distilled",
    "elastic",
    "mean_entropy",
    "projected_distillation",
    "pseudo_label",
    "simclr",
    "supcon",
    "teacher_temperature",
]
