"""`camp learn`: learn a folder of pictures, or a file of vectors."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from camp.cli.shared import EngineName, Pictures, WorkspaceFolder, cluster_options, given_path, starting
from camp.core.errors import CampError
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
    image_field: str | None = None,
    label_field: str | None = None,
    engine: EngineName = "local",
    address: str | None = None,
    cpus: float | None = None,
    gpus: float | None = None,
    quiet: bool = False,
) -> None:
    """Learn a folder of pictures: recognise known categories, discover new ones, and keep the old ones.

    Pictures in PICTURES/heron/ have the label heron; loose files and those in PICTURES/unlabelled/ have no label. The
    workspace is created if it does not exist. Afterwards the pictures are no longer needed. PICTURES may also be a file of
    feature vectors (n, D) from any model: an .npy file, or an .npz file with the array vectors and perhaps labels.

    PICTURES may also be a URL (s3://, gs://, hf://, https://), a tar file of WebDataset, a Parquet file, a folder or a
    pattern such as birds-{000..012}.tar of them, a data set of Hugging Face that was saved to disk, or hf:NAME:PART.

    Args:
        workspace: Folder of the workspace.
        pictures: Folder of the pictures to learn, or another source of them, or .npy or .npz file of vectors.
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
        image_field: Column of Parquet files and data sets that holds the pictures. By default it is looked for.
        label_field: Column of Parquet files and data sets, or extension of members of tar files, that holds the labels;
            none for pictures without labels. By default the column label, and cls, txt or json in tar files.
        engine: local runs images through the network on this machine; ray on a Ray cluster. This machine learns.
        address: Address of the Ray cluster, such as HOST:6379. By default one is started on this machine.
        cpus: CPUs of each task on the cluster. The default is 1.
        gpus: GPUs of each task on the cluster, for a workspace with --device cuda; a fraction shares a GPU.
            The default is 0.
        quiet: Show no progress.
    """
    options = cluster_options(engine, address, cpus, gpus)
    with starting(quiet):
        from camp.app.inputs.base import BatchInput
        from camp.app.inputs.sources import Fields, learning_source
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
    images: BatchInput
    progress = Progress(quiet)
    if is_vector_file(folder):
        images = read_vectors(folder, table)
    else:
        with progress.track("Listing pictures", 1):
            images = learning_source(pictures, table, Fields(image_field, label_field), options is not None)
    request = LearnRequest(images, new, epochs, views)
    if options is None:
        report = learn_folder(place, request, settings, progress)
    else:
        from camp.app.engines.ray_trunk import RayTrunk
        from camp.app.inputs.listed import ListedImages

        if not isinstance(images, ListedImages):
            raise CampError("Vectors need no network: leave out --engine ray.")
        with progress.track("Connecting to Ray", 1):
            cluster, need = options.connect(default_gpus=0.0)
        try:
            request = dataclasses.replace(request, trunk=RayTrunk(cluster, images, need))
            report = learn_folder(place, request, settings, progress)
        finally:
            cluster.close()
    try:
        print(report.summary())
        if report.needs_review:
            print(f"Look at them and name what is new: camp review {workspace}")
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(report.stored_sentence()) from stop


def _given(**options: object) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}
