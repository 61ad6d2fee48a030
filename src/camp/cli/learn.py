"""`camp learn`: learn a folder of pictures, or a file of vectors."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from camp.cli.shared import Pictures, WorkspaceFolder, given_path, starting
from camp.core.progress import Progress


def learn(
    workspace: WorkspaceFolder,
    pictures: Pictures,
    labels: str | None = None,
    new: int | None = None,
    epochs: int | None = None,
    views: int | None = None,
    backbone: str | None = None,
    weights: str | None = None,
    resolution: int | None = None,
    device: str | None = None,
    seed: int | None = None,
    thumbnails: int | None = None,
    quiet: bool = False,
) -> None:
    """Learn a folder of pictures: recognise known categories, discover new ones, and keep the old ones.

    Pictures in PICTURES/heron/ have the label heron; loose files and those in PICTURES/unlabelled/ have no label. The
    workspace is created if it does not exist. Afterwards the pictures are no longer needed. PICTURES may also be a file of
    feature vectors (n, D) from any model: an .npy file, or an .npz file with the array vectors and perhaps labels.

    Args:
        workspace: Folder of the workspace.
        pictures: Folder of the pictures to learn, or .npy or .npz file of vectors.
        labels: CSV file with the columns file and label, for labels in addition to the folder names. For vectors, an
            .npy file or a text file with a label for each vector, -1 or an empty line for none.
        new: Number of new categories among the pictures without a label, 0 for none. By default it is estimated.
        epochs: Number of training epochs. By default it depends on the size of the batch.
        views: Number of augmented views of each picture for training. By default it depends on the size of the batch.
        backbone: Network of a new workspace: efficientnet-lite0 (the default), vit-s16, vit-s14 and others.
        weights: Weights of the network of a new workspace: a file, or a name such as facebook/dinov2-small.
        resolution: Side of the resized pictures of a new workspace in pixels. By default that of the network.
        device: Device of a new workspace: cpu (the default), cuda and others.
        seed: Random seed of a new workspace. The default is 0.
        thumbnails: Thumbnails that a new workspace keeps of each category and batch: 100 by default, 0 for none.
        quiet: Show no progress.
    """
    with starting(quiet):
        from camp.app.inputs.base import BatchInput
        from camp.app.inputs.folders import read_folder
        from camp.app.inputs.vectors import read_vectors
        from camp.app.workspace.pipeline import LearnRequest, learn_folder
        from camp.app.workspace.storage import FolderStorage, WorkspaceSettings
        from camp.data.vector_files import is_vector_file

    place, folder = given_path(workspace, "WORKSPACE"), given_path(pictures, "PICTURES")
    table = given_path(labels, "--labels") if labels is not None else None
    if weights is not None and Path(weights).exists():
        weights = os.path.realpath(weights)  # the workspace may be used from another folder
    of_backbone = _given(backbone=backbone, weights=weights, resolution=resolution, device=device)
    of_workspace = _given(seed=seed, thumbnails=thumbnails)
    settings = None
    if of_backbone or of_workspace:
        present = FolderStorage.open(place).settings if FolderStorage.exists(place) else WorkspaceSettings()
        of_workspace["backbone"] = dataclasses.replace(present.backbone, **of_backbone)
        settings = dataclasses.replace(present, **of_workspace)
    images: BatchInput = read_vectors(folder, table) if is_vector_file(folder) else read_folder(folder, table)
    request = LearnRequest(images, new, epochs, views)
    report = learn_folder(place, request, settings, Progress(quiet))
    try:
        print(report.summary())
        if report.needs_review:
            print(f"Look at them and name what is new: camp review {workspace}")
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(report.stored_sentence()) from stop


def _given(**options: object) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}
