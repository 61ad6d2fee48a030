"""A few categories and pictures as a first batch would leave them, without any learning."""

from pathlib import Path

import numpy as np
import torch

from camp.app.workspace.knowledge import CLUSTERED, LABELLED, Category, Images, Knowledge
from camp.app.workspace.report import BatchReport
from camp.app.workspace.step_files import Step
from camp.app.workspace.storage import WorkspaceSettings
from camp.app.workspace.workspace import Workspace
from camp.discovery.calibration import Calibration
from camp.discovery.class_metric import ClassMetric
from camp.nn.backbones.settings import BackboneSettings

EACH = 4
"""Pictures of each category; the first two of a category that has a name are labelled."""


def knowledge() -> Knowledge:
    """heron (1), robin (2), and two categories without a name (3 and 4)."""
    names = ("heron", "robin", None, None)
    n = EACH * len(names)
    category = np.repeat(np.arange(1, 5, dtype=np.int32), EACH)
    labelled = (category <= 2) & (np.arange(n) % EACH < 2)
    features = np.random.default_rng(0).normal(0, 0.1, (n, 5)) + 3 * np.eye(5)[category - 1]
    images = Images(
        files=[f"january/{row:02d}.png" for row in range(n)],
        digests=np.array([[row] * 16 for row in range(n)], dtype=np.uint8),
        steps=np.ones(n, np.int32),
        category=category,
        source=np.where(labelled, LABELLED, CLUSTERED).astype(np.uint8),
        features=features.astype(np.float16),
        points=features.astype(np.float32),
        positions=features[:, :2].astype(np.float32),
    )
    categories = {
        id: Category(id, name, 1, "labelled" if name else "discovered") for id, name in enumerate(names, 1)
    }
    metric = ClassMetric(
        np.zeros(5, np.float32), np.eye(5, dtype=np.float32), np.zeros(5, np.float32), unit=False
    )
    return Knowledge(1, categories, images, metric, Calibration(1.2, 0.5))


SETTINGS = WorkspaceSettings(backbone=BackboneSettings(backbone="conv-tiny"), thumbnails=0)


def learned(path: Path) -> Workspace:
    """A workspace that has learned exactly that."""
    workspace = Workspace.create(path, SETTINGS)
    with workspace.storage.lock():
        enter(workspace, knowledge())
    return workspace


def in_memory() -> Workspace:
    """The same in memory."""
    workspace = Workspace.in_memory(SETTINGS)
    enter(workspace, knowledge())
    return workspace


def enter(workspace: Workspace, known: Knowledge) -> None:
    """Write `known` as a learning step; the lock must be held."""
    report = BatchReport(step=known.step, folder="january")
    workspace.add_step(Step(known, {"weight": torch.ones(2)}, report, trunk="none"))


def state(known: Knowledge) -> tuple[object, ...]:
    """All that decisions can change, to be compared."""
    images = known.images
    return known.categories, known.distinct, images.category.tolist(), images.source.tolist()
