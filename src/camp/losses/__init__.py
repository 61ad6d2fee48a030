"""The equations of the paper and of its baselines, one a file: pure functions of tensors, the two views on axis 0."""

from camp.losses.cross_entropy import cross_entropy
from camp.losses.elastic import elastic
from camp.losses.logit_distillation import logit_distillation
from camp.losses.mean_entropy import mean_entropy
from camp.losses.pairwise import mutual_neighbours, pairwise
from camp.losses.projected_distillation import projected_distillation
from camp.losses.proxy_anchor import proxy_anchor
from camp.losses.pseudo_label import pseudo_label, teacher_temperature
from camp.losses.rampup import rampup
from camp.losses.semantic_augmentation import semantic_augmentation
from camp.losses.simclr import simclr
from camp.losses.soft_neighbourhood import soft_neighbourhood
from camp.losses.supcon import supcon
from camp.losses.total import balanced, distilled

__all__ = [
    "balanced",
    "cross_entropy",
    "distilled",
    "elastic",
    "logit_distillation",
    "mean_entropy",
    "mutual_neighbours",
    "pairwise",
    "projected_distillation",
    "proxy_anchor",
    "pseudo_label",
    "rampup",
    "semantic_augmentation",
    "simclr",
    "soft_neighbourhood",
    "supcon",
    "teacher_temperature",
]
