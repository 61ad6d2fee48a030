"""`camp predict`: recognise pictures."""

from typing import Literal

from camp.cli.shared import FalseAlarms, Pictures, WorkspaceFolder, given_path, starting
from camp.core.abandoned import remove_abandoned
from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.core.types import FALSE_ALARMS


def predict(
    workspace: WorkspaceFolder,
    pictures: Pictures,
    out: str | None = None,
    format: Literal["csv", "jsonl"] | None = None,
    false_alarms: FalseAlarms = FALSE_ALARMS,
    keep_unknown: bool = False,
    image_field: str | None = None,
    quiet: bool = False,
) -> None:
    """Recognise the pictures of a folder, or one picture: category and runner-up with confidences, or unknown.

    PICTURES may also be a URL (s3://, gs://, hf://, https://), a tar file of WebDataset, a Parquet file, a folder or a
    pattern such as birds-{000..012}.tar of them, a data set of Hugging Face that was saved to disk, or hf:NAME:PART.

    Args:
        workspace: Folder of the workspace.
        pictures: Folder of pictures or another source of them, or a single file.
        out: File, device or FIFO to write. By default the predictions are printed.
        format: csv, or jsonl with a JSON object per line. By default it depends on the name of --out.
        false_alarms: Share of the pictures of known categories that may be called unknown. More of them detect
            more pictures of unknown categories; `camp status` says how many.
        keep_unknown: Keep features and thumbnails of unknown pictures in the workspace. `camp review` proposes a
            category where enough of them look alike.
        image_field: Column of Parquet files and data sets that holds the pictures. By default it is looked for.
        quiet: Show no progress.
    """
    with starting(quiet):
        from camp.app.inputs.sources import Fields, list_source
        from camp.app.prediction.keep_unknown import keep_with, unknown_keeper
        from camp.app.prediction.model import open_model
        from camp.app.prediction.predict import predict as predictions
        from camp.app.prediction.predict import unreadable_list, write_predictions
        from camp.app.workspace.workspace import Workspace
        from camp.core.output_file import check_output, is_stream

    place = given_path(workspace, "WORKSPACE")
    opened = Workspace.open(place)
    target = given_path(out, "--out") if out is not None else None
    given_path(pictures, "PICTURES")
    images = list_source(pictures, Fields(image_field))
    if target is not None:
        inputs = [*images.files_read(), *opened.settings.backbone.files()]
        check_output(target, "--out", [place], inputs)
        if (aside := unreadable_list(target)) is not None:
            check_output(aside, "The list of unreadable pictures", [place], inputs)
        remove_abandoned(target.parent, target.name)
    chosen = format or ("jsonl" if target and target.suffix in (".jsonl", ".ndjson") else "csv")
    progress = Progress(quiet)
    with progress.track("Opening the model", 1):
        model = open_model(opened, false_alarms)
    keeper = unknown_keeper(opened) if keep_unknown else None
    keep = keep_with(keeper, model) if keeper else None
    try:
        with progress.track("Pictures", len(images.keys)) as bar:
            rows = predictions(model, images.reader, images.keys, bar, keep)
            counts = write_predictions(rows, target, chosen)
    except KeyboardInterrupt as stop:
        if keeper is None:
            raise
        keeper.flush()
        raise KeyboardInterrupt(keeper.summary()) from stop
    finally:
        if keeper:
            keeper.flush()
    if keeper:
        progress.note(keeper.summary())
    if counts.unreadable and not counts.predicted:
        first, n = counts.unreadable[0], len(counts.unreadable)
        raise CampError(f"None of {n} pictures could be read (first: {first.file}: {first.reason}).")
    if target is not None and not is_stream(target):
        unreadable = f", {len(counts.unreadable)} cannot be read" if counts.unreadable else ""
        print(f"{counts.predicted} pictures in {target}: {counts.unknown} unknown{unreadable}.")
