"""Losses of the paper and its baselines: pure functions of tensors, with the two views on axis 0."""

from camp.nn.losses.classification import (
    cross_entropy,
    mean_entropy,
    mutual_neighbours,
    pairwise,
    pseudo_label,
    rampup,
    semantic_augmentation,
    teacher_temperature,
)
from camp.nn.losses.contrastive import proxy_anchor, simclr, soft_neighbourhood, supcon
from camp.nn.losses.distillation import (
    balanced,
    distilled,
    elastic,
    logit_distillation,
    projected_distillation,
)

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
