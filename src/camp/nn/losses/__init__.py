"""Losses of the paper and its baselines: pure functions of tensors, with the two views on axis 0."""

from camp.nn.losses.cross_entropy import cross_entropy
from camp.nn.losses.elastic import elastic
from camp.nn.losses.logit_distillation import logit_distillation
from camp.nn.losses.mean_entropy import mean_entropy
from camp.nn.losses.pairwise import mutual_neighbours, pairwise
from camp.nn.losses.projected_distillation import projected_distillation
from camp.nn.losses.proxy_anchor import proxy_anchor
from camp.nn.losses.pseudo_label import pseudo_label, teacher_temperature
from camp.nn.losses.rampup import rampup
from camp.nn.losses.semantic_augmentation import semantic_augmentation
from camp.nn.losses.simclr import simclr
from camp.nn.losses.soft_neighbourhood import soft_neighbourhood
from camp.nn.losses.supcon import supcon
from camp.nn.losses.total import balanced, distilled

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
