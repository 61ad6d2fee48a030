"""The commands over a workspace: learn, review, predict, export, status, serve. Thin, and imported when called."""

import dataclasses
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Literal

import tyro

from camp.core.errors import CampError
from camp.core.progress import Bar, Progress

Folder = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WORKSPACE")]
Pictures = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PICTURES")]


def learn(words: list[str]) -> int:
    """`camp learn WORKSPACE PICTURES`."""

    def options(
        workspace: Folder,
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
    ) -> int:
        """Learn a folder of pictures: recognise known kinds, find new ones, keep the old ones.

        PICTURES/heron/*.jpg are labelled heron; loose files and PICTURES/unlabelled/ are not labelled. The workspace is
        made if it is not there. Afterwards the pictures are no longer needed.

        Args:
            workspace: Folder of the workspace.
            pictures: Folder of pictures.
            labels: A CSV with the columns file,label beside the folders' names.
            new: New categories among the unlabelled pictures, 0 for none; without it they are estimated.
            epochs: Passes of training over the batch; without it by its size.
            views: Augmented views of a picture to train with; without it by the size of the batch.
            backbone: Of a new workspace: efficientnet-lite0 (comes with the installation), vit-s16, vit-s14, ...
            weights: Of a new workspace: a file, or a name such as facebook/dinov2-small.
            resolution: Of a new workspace: side of the pictures in pixels, usually 224.
            device: Of a new workspace: cpu, cuda, ...
            seed: Of a new workspace: of everything random.
            thumbnails: Of a new workspace: small pictures kept of each category and batch, usually 100; 0 keeps none.
            quiet: No progress.
        """
        with _starting(quiet):
            from camp.app.workspace.folder import Workspace, WorkspaceSettings
            from camp.app.workspace.learn_folder import Batch, learn_folder
            from camp.app.workspace.status import after_learning

        asked = {"backbone": backbone, "weights": weights, "resolution": resolution, "device": device}
        if weights is not None and Path(weights).exists():
            asked["weights"] = os.path.realpath(weights)  # the workspace may be used from another folder
        of_backbone = {name: value for name, value in asked.items() if value is not None}
        of_workspace = {
            name: v for name, v in {"seed": seed, "thumbnails": thumbnails}.items() if v is not None
        }
        begin = None
        if of_backbone or of_workspace:
            there = Workspace.there(Path(workspace))
            usual = Workspace.open(Path(workspace)).settings if there else WorkspaceSettings()
            changed = dataclasses.replace(usual.backbone, **of_backbone)  # type: ignore[arg-type]
            begin = dataclasses.replace(usual, backbone=changed, **of_workspace)
        batch = Batch(Path(pictures), Path(labels) if labels else None, new, epochs, views)
        report = learn_folder(Path(workspace), batch, begin, Progress(quiet))
        print(after_learning(report, workspace))
        return 0

    return tyro.cli(options, args=words, prog="camp learn")


def status(words: list[str]) -> int:
    """`camp status WORKSPACE`."""

    def options(workspace: Folder) -> int:
        """Categories, what each batch taught, and how sure the workspace is.

        Args:
            workspace: Folder of the workspace.
        """
        with _starting():
            from camp.app.workspace.folder import Workspace
            from camp.app.workspace.status import as_status

        print(as_status(Workspace.open(Path(workspace))))
        return 0

    return tyro.cli(options, args=words, prog="camp status")


def predict(words: list[str]) -> int:
    """`camp predict WORKSPACE PICTURES`."""

    def options(
        workspace: Folder,
        pictures: Pictures,
        out: str | None = None,
        format: Literal["csv", "jsonl"] | None = None,
        quiet: bool = False,
    ) -> int:
        """Recognise the pictures of a folder, or one picture: category, confidence, runner-up, or unknown.

        Args:
            workspace: Folder of the workspace.
            pictures: Folder of pictures, or a single file.
            out: File to write; to the screen without it.
            format: csv or jsonl (a JSON object a line); without it by the name of --out.
            quiet: No progress.
        """
        with _starting(quiet):
            from camp.app.workspace.folder import Workspace
            from camp.app.workspace.load_model import open_model
            from camp.app.workspace.prediction import predict, write_predictions
            from camp.data.datasets.base import FileReader
            from camp.data.datasets.folders import image_files

        place, target = Path(pictures), Path(out) if out else None
        kind = format or ("jsonl" if target and target.suffix in (".jsonl", ".ndjson") else "csv")
        held = Workspace.open(Path(workspace))
        try:
            if not place.exists():
                raise CampError(f"There is no {place}; give a folder of pictures, or a picture.")
            root, keys = (place, image_files(place)) if place.is_dir() else (place.parent, [place.name])
            if target is not None and target.is_dir():
                raise CampError(f"--out {target} is a folder; give the name of a file.")
        except OSError as error:
            raise CampError(f"{error.filename or place}: {error.strerror or error}.") from error
        if not keys:
            raise CampError(f"{place} holds no pictures.")
        progress = Progress(quiet)
        with progress.track("Opening the model", 1):
            model = open_model(held)
        with progress.track("Pictures", len(keys)) as bar:
            counts = write_predictions(predict(model, FileReader(root), keys, bar), target, kind)
        if target is not None:
            bad = f", {len(counts.unreadable)} can not be read" if counts.unreadable else ""
            print(f"{counts.predicted} pictures in {target}: {counts.unknown} unknown{bad}.")
        return 0

    return tyro.cli(options, args=words, prog="camp predict")


def export(words: list[str]) -> int:
    """`camp export WORKSPACE FILE`."""

    def options(
        workspace: Folder, file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    ) -> int:
        """One ONNX file that recognises pictures without camp, in any ONNX runtime.

        Args:
            workspace: Folder of the workspace.
            file: The file to write, such as birds.onnx.
        """
        with _starting():
            from camp.app.export.onnx import export_onnx
            from camp.app.workspace.folder import Workspace
            from camp.app.workspace.load_model import open_model

        target = Path(file)
        if target.suffix != ".onnx":
            raise CampError(f"{target} is to hold ONNX; give a name that ends in .onnx.")
        held = Workspace.open(Path(workspace))
        with Progress().track("Exporting", 1):
            model = open_model(held)
            export_onnx(model, target)
        print(f"{target}: {len(model.ids)} categories, {target.stat().st_size / 1e6:.1f} MB.")
        return 0

    return tyro.cli(options, args=words, prog="camp export")


def review(words: list[str]) -> int:
    """`camp review WORKSPACE`."""

    def options(workspace: Folder, port: int | None = None, browser: bool = True) -> int:
        """A local page to name, merge, split and move what was found; Ctrl-C ends it.

        Args:
            workspace: Folder of the workspace.
            port: Port on 127.0.0.1; a free one without it.
            browser: Open the page in a browser.
        """
        import secrets

        with _starting():
            from camp.app.review.app import review_app
            from camp.app.web.guard import Guard
            from camp.app.web.server import serve
            from camp.app.workspace.folder import Workspace

        held = Workspace.open(Path(workspace))
        held.knowledge()  # a workspace that can not be shown says so here
        token = secrets.token_urlsafe(24)
        app = review_app(held)
        serve(lambda hosts: Guard(app, hosts, token), port, f"/?token={token}", browser, _say)
        return 0

    return tyro.cli(options, args=words, prog="camp review")


def serve(words: list[str]) -> int:
    """`camp serve WORKSPACE`."""

    def options(workspace: Folder, port: int | None = None) -> int:
        """Recognise pictures over HTTP on this machine: POST a picture to /predict; Ctrl-C ends it.

        Args:
            workspace: Folder of the workspace.
            port: Port on 127.0.0.1; a free one without it.
        """
        with _starting():
            from camp.app.serving.app import latest_model, prediction_app
            from camp.app.web.server import serve
            from camp.app.workspace.folder import Workspace

        held = Workspace.open(Path(workspace))
        with Progress().track("Opening the model", 1):
            model_of = latest_model(held)
            model_of()
        serve(lambda hosts: prediction_app(model_of, str(workspace), hosts), port, "/", False, _say)
        return 0

    return tyro.cli(options, args=words, prog="camp serve")


def _starting(quiet: bool = False) -> AbstractContextManager[Bar]:
    """Around imports that take seconds: nobody should wonder whether anything happens."""
    return Progress(quiet).track("Starting", 1)


def _say(sentence: str) -> None:
    print(sentence, flush=True)
