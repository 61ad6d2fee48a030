"""Detection of images of unknown classes, on random draws of known classes of a dataset of class folders.

python benchmarks/unknown.py CUB/train CIFAR/train

A draw has KNOWN known classes with LEARNED labelled images each; the other images of these classes are the known ones of
the test, all images of all other classes the unknown ones. Prints a Markdown table, the mean over DRAWS draws: area under the
ROC curve, and the share of unknown images detected where 5 and 10 % of the known images are called unknown. The score before is
the distance to the nearest centroid divided by its radius. The last columns are what `--false-alarms 0.05` gives: false
alarms and detection rate, and the detection rate that the calibration expects. Features are those of the default backbone,
without training. `make bench` measures the folder in the environment variable CAMP_CUB.
"""

import dataclasses
import os
import sys
from pathlib import Path

import numpy as np
import torch
from number_of_categories import class_features, class_names
from sklearn.metrics import roc_auc_score
from torch import Tensor

from camp.core.types import FALSE_ALARMS
from camp.discovery.calibration import fit_regions
from camp.discovery.class_metric import ClassMetric
from camp.discovery.held_out_calibration import Members, calibrate
from camp.discovery.open_set import OpenSet
from camp.discovery.open_world_discoverer import MIN_COMPONENTS

KNOWN, LEARNED, DRAWS = 30, 20, 10
COLUMNS = (
    "AUROC",
    "at 5 %",
    "at 10 %",
    "AUROC before",
    "at 5 %",
    "at 10 %",
    "false alarms",
    "detected",
    "expected",
)


def draw(classes: list[Tensor], seed: int) -> list[float]:
    """Return the values of COLUMNS, in percent, for a random choice of known classes."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(classes))
    shuffled = [classes[i][rng.permutation(len(classes[i]))] for i in order[:KNOWN]]
    features = torch.cat([z[:LEARNED] for z in shuffled])
    known = torch.cat([z[LEARNED:] for z in shuffled])
    unknown = torch.cat([classes[i] for i in order[KNOWN:]])
    index = torch.arange(KNOWN).repeat_interleave(LEARNED)
    labelled = torch.ones(len(index), dtype=torch.bool)
    metric = ClassMetric.fit(features, index, MIN_COMPONENTS)
    calibration = calibrate(Members(features, index, labelled, labelled), metric, KNOWN)
    points = metric.transform(features)
    earlier = dataclasses.replace(calibration, known_scores=(), hidden_scores=())
    now, before = (
        OpenSet.of(fit_regions(points.numpy(), index.numpy(), labelled.numpy(), metric, one, KNOWN))
        for one in (calibration, earlier)
    )
    known, unknown = metric.transform(known), metric.transform(unknown)
    expected = calibration.detection_rate(FALSE_ALARMS)
    assert expected is not None
    rates = [float(now.answer(z).unknown.float().mean()) for z in (known, unknown)]
    found = [
        *_quality(now.answer(known).distance, now.answer(unknown).distance),
        *_quality(_nearest(before, known), _nearest(before, unknown)),
        *rates,
        expected,
    ]
    return [100 * value for value in found]


def _nearest(classifier: OpenSet, z: Tensor) -> Tensor:
    """Distance (n,) to the nearest centroid, divided by its radius."""
    near, at = torch.cdist(z, classifier.centroids).min(dim=1)
    return near / classifier.radii[at]


def _quality(known: Tensor, unknown: Tensor) -> list[float]:
    """Return the area under the ROC curve, and the detection rates at 5 and 10 % false alarms."""
    truth = np.repeat([0, 1], [len(known), len(unknown)])
    area = float(roc_auc_score(truth, torch.cat([known, unknown]).numpy()))
    return [area, *(float((unknown > known.quantile(1 - rate)).float().mean()) for rate in (0.05, 0.1))]


def evaluate(root: Path) -> np.ndarray:
    """Return the values of COLUMNS of each draw (DRAWS, columns)."""
    classes = class_features(root, class_names(root))
    return np.array([draw(classes, seed) for seed in range(DRAWS)])


def measure() -> dict[str, float]:
    """Return the area under the ROC curve for CUB, if the environment says where it is (with train/ and test/)."""
    if not (folder := os.environ.get("CAMP_CUB")):
        print("CAMP_CUB names no folder of CUB-200: unknown_auroc_cub is not measured.")
        return {}
    return {"unknown_auroc_cub": round(float(evaluate(Path(folder) / "train").mean(axis=0)[0]), 2)}


if __name__ == "__main__":
    print("| dataset | " + " | ".join(COLUMNS) + " |\n|---|" + "---|" * len(COLUMNS))
    for path in map(Path, sys.argv[1:]):
        values = " | ".join(f"{value:.1f}" for value in evaluate(path).mean(axis=0))
        print(f"| {path.parent.name} | {values} |", flush=True)
