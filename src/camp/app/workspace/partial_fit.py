"""Learning what a Python program gives: the batch goes through a bank in a temporary folder, and nothing else is written."""

import copy
import dataclasses
import datetime
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from camp.app.workspace.array_input import Labels, NotUsable, own_digests
from camp.app.workspace.folder import WorkspaceSettings
from camp.app.workspace.learn_folder import through_trunk
from camp.app.workspace.learning import Arrived, learn
from camp.app.workspace.memory_store import Held
from camp.app.workspace.training_budget import Plan
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.data.datasets.base import Reader
from camp.nn.backbones import make_backbone


@dataclass(frozen=True)
class Given:
    """A batch of n pictures or vectors."""

    reader: Reader
    keys: Sequence[str]
    files: Sequence[str]
    """What each is called."""
    labels: Labels


def teach(
    held: Held | None,
    settings: WorkspaceSettings,
    given: Given,
    *,
    new: int | None,
    chosen: Plan,
    progress: Progress,
) -> Held:
    """`held` after learning the batch; without it, a workspace that begins with `settings`."""
    begun, known = time.monotonic(), held.knowledge if held else None
    if held is None:
        backbone = make_backbone(settings.backbone, generator(settings.seed, "backbone"))
    else:  # learning may fail, and changes the tip
        backbone = dataclasses.replace(held.backbone, tip=copy.deepcopy(held.backbone.tip))
    with tempfile.TemporaryDirectory(prefix="camp-") as folder:
        filled, views = through_trunk(backbone, given.reader, given.keys, chosen, Path(folder), progress)
        for key, file in zip(given.keys, given.files):
            if key in filled.bad:
                raise NotUsable(f"{file} can not be read: {filled.bad[key]}; nothing was learned.")
        contents = [filled.digests[key] for key in given.keys]
        taken = map(bytes, known.pictures.digests) if known else ()
        arrived = Arrived(
            files=given.files,
            digests=own_digests(contents, taken, known.step if known else 0),
            labels=given.labels.names,
            views=views(contents),
        )
        trunk_seconds = time.monotonic() - begun
        learned = learn(
            known, backbone, arrived, new=new, epochs=chosen.epochs, seed=settings.seed, progress=progress
        )
    knowledge, report = learned.knowledge, learned.report
    if backbone.resolution:  # as in a folder; of vectors nobody knows the range
        knowledge.pictures.features = knowledge.pictures.features.astype(np.float16)
    report |= {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "folder": "Python",
        "unreadable": 0,
        "remarks": [],
        "numbers": bool(given.labels.numbers),
    }
    report["seconds"] |= {"trunk": trunk_seconds, "total": time.monotonic() - begun}
    held = held or Held(settings, backbone, knowledge, knowledge, (), {})
    return held.taught(knowledge, backbone, report)
