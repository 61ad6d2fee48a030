"""`camp predict`: recognise pictures."""

from itertools import chain
from typing import TYPE_CHECKING, Literal

from camp.cli.shared import (
    ClusterOptions,
    EngineName,
    FalseAlarms,
    Pictures,
    WorkspaceFolder,
    cluster_options,
    given_path,
    starting,
)
from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.core.types import FALSE_ALARMS

if TYPE_CHECKING:
    from camp.app.inputs.sources import Fields
    from camp.app.workspace.workspace import Workspace


def predict(
    workspace: WorkspaceFolder,
    pictures: Pictures,
    out: str | None = None,
    format: Literal["csv", "jsonl"] | None = None,
    false_alarms: FalseAlarms = FALSE_ALARMS,
    keep_unknown: bool = False,
    image_field: str | None = None,
    engine: EngineName = "local",
    address: str | None = None,
    cpus: float | None = None,
    gpus: float | None = None,
    quiet: bool = False,
) -> None:
    """Recognise the pictures of a folder, or one picture: category and runner-up with confidences, or unknown.

    PICTURES may also be a URL (s3://, gs://, hf://, https://), a tar file of WebDataset, a Parquet file, a folder or a
    pattern such as birds-{000..012}.tar of them, a data set of Hugging Face that was saved to disk, or hf:NAME:PART. If
    it is interrupted, the same command continues what it writes to --out.

    Args:
        workspace: Folder of the workspace.
        pictures: Folder of pictures or another source of them, or a single file; for a workspace of vectors an .npy or
            .npz file.
        out: File, device or FIFO to write; with --engine ray a folder or URL. By default the predictions are printed.
        format: csv, or jsonl with a JSON object per line. By default it depends on the name of --out.
        false_alarms: Share of the pictures of known categories that may be called unknown. More of them detect
            more pictures of unknown categories; `camp status` says how many.
        keep_unknown: Keep features and thumbnails of unknown pictures in the workspace. `camp review` proposes a
            category where enough of them look alike.
        image_field: Column of Parquet files and data sets that holds the pictures. By default it is looked for.
        engine: local predicts on this machine; ray on a Ray cluster, whose nodes write Parquet files below --out.
        address: Address of the Ray cluster, such as HOST:6379. By default one is started on this machine.
        cpus: CPUs of each process on the cluster. The default is 1.
        gpus: GPUs of each process on the cluster; a fraction shares a GPU. By default 1 if the cluster has any, or 0.
        quiet: Show no progress.
    """
    cluster = cluster_options(engine, address, cpus, gpus)
    with starting(quiet):
        from camp.app.inputs.sources import Fields
        from camp.app.inputs.urls import is_url
        from camp.app.prediction.inputs import PredictionInput
        from camp.app.prediction.keep_unknown import keep_with, unknown_keeper
        from camp.app.prediction.model import open_model
        from camp.app.prediction.predict import predict as predictions
        from camp.app.prediction.predict import write_predictions
        from camp.app.prediction.unfinished import Question, predict_to_file, written_files
        from camp.app.workspace.workspace import Workspace
        from camp.core.output_file import check_output, is_stream

    place, progress = given_path(workspace, "WORKSPACE"), Progress(quiet)
    opened = Workspace.open(place)
    target = given_path(out, "--out") if out is not None else None
    given_path(pictures, "PICTURES")
    fields = Fields(image_field)
    if cluster is not None:
        if out is None or format is not None or keep_unknown:
            raise CampError(
                "--engine ray writes Parquet files: give it a folder or URL with --out, and neither --format nor "
                "--keep-unknown."
            )
        _predict_on_ray(opened, pictures, fields, out, false_alarms, cluster, progress)
        return
    if out is not None and is_url(out):
        raise CampError(f"--out {out} is a URL, to which only --engine ray writes; give a file.")
    is_file = target is not None and not is_stream(target)
    images = PredictionInput.open(pictures, opened, progress, fields)
    if target is not None:
        with progress.track("Comparing --out with the pictures", 1):
            for path in written_files(target) if is_file else [target]:
                inputs = chain(images.files(path), opened.settings.backbone.files())
                check_output(path, "--out" if path == target else "The file", [place], inputs)
    chosen = format or ("jsonl" if target and target.suffix in (".jsonl", ".ndjson") else "csv")
    with progress.track("Opening the model", 1):
        model = open_model(opened, false_alarms)
    keeper = unknown_keeper(opened) if keep_unknown else None
    try:
        if target is not None and is_file:
            question = Question.of(model, images, chosen, false_alarms, keep_unknown)
            counts = predict_to_file(model, images, target, question, progress, keeper)
        else:
            keep = keep_with(keeper, model) if keeper else None
            with progress.track("Pictures", len(images.keys)) as bar:
                rows = predictions(model, images.reader, images.keys, bar, keep)
                counts = write_predictions(rows, target, chosen)
    except KeyboardInterrupt as stop:
        if keeper is None:
            raise
        keeper.flush()
        said = " ".join([*(one for one in stop.args if isinstance(one, str)), keeper.summary()])
        raise KeyboardInterrupt(said, *(one for one in stop.args if isinstance(one, int))) from stop
    finally:
        if keeper:
            keeper.flush()
    if keeper:
        progress.note(keeper.summary())
    if counts.first_unreadable and not counts.predicted:
        first, n = counts.first_unreadable, counts.unreadable
        raise CampError(f"None of {n} pictures could be read (first: {first.file}: {first.reason}).")
    if is_file:
        unreadable = f", {counts.unreadable} cannot be read" if counts.unreadable else ""
        print(f"{counts.predicted} pictures in {target}: {counts.unknown} unknown{unreadable}.")


def _predict_on_ray(
    workspace: "Workspace",
    pictures: str,
    fields: "Fields",
    out: str,
    false_alarms: float,
    options: ClusterOptions,
    progress: Progress,
) -> None:
    """Predict on a Ray cluster, and print where the results are."""
    from camp.app.engines.ray_predict import check_takes_images, open_for_ray, output_url, predict_on_ray
    from camp.app.inputs.sources import list_source

    check_takes_images(workspace)
    with progress.track("Listing pictures", 1):
        images = list_source(pictures, fields)
    url = output_url(out, workspace, images)
    with progress.track("Connecting to Ray", 1):
        cluster, need = options.connect(default_gpus=1.0)
    try:
        with progress.track("Opening the model", 1):
            model = open_for_ray(workspace, false_alarms, need)
        summary = predict_on_ray(cluster, model, images, url, need, progress)
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(
            f"what was predicted is kept in {out}, and the same command continues."
        ) from stop
    finally:
        cluster.close()
    counts, first = summary.counts, summary.first_unreadable
    if not counts.predicted:
        reason = f" (one of them: {first.file}: {first.reason})" if first else ""
        raise CampError(f"None of {counts.unreadable} pictures could be read{reason}.")
    unreadable = f", {counts.unreadable} cannot be read" if counts.unreadable else ""
    print(f"{counts.predicted} pictures in {out}: {counts.unknown} unknown{unreadable}.")
