"""`camp predict`: recognise pictures."""

from itertools import chain
from typing import Literal

from camp.cli.shared import FalseAlarms, Pictures, WorkspaceFolder, given_path, starting
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
    quiet: bool = False,
) -> None:
    """Recognise the pictures of a folder, or one picture: category and runner-up with confidences, or unknown.

    If it is interrupted, the same command continues the file of --out.

    Args:
        workspace: Folder of the workspace.
        pictures: Folder of pictures, or a single file; for a workspace of vectors an .npy or .npz file.
        out: File, device or FIFO to write. By default the predictions are printed.
        format: csv, or jsonl with a JSON object per line. By default it depends on the name of --out.
        false_alarms: Share of the pictures of known categories that may be called unknown. More of them detect
            more pictures of unknown categories; `camp status` says how many.
        keep_unknown: Keep features and thumbnails of unknown pictures in the workspace. `camp review` proposes a
            category where enough of them look alike.
        quiet: Show no progress.
    """
    with starting(quiet):
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
    is_file = target is not None and not is_stream(target)
    images = PredictionInput.open(given_path(pictures, "PICTURES"), opened, progress)
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
