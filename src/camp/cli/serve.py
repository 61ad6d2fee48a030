"""`camp serve`: serve predictions over HTTP."""

from camp.app.serving.limits import MAX_WAITING
from camp.cli.shared import FalseAlarms, WorkspaceFolder, given_path, starting
from camp.core.progress import Progress
from camp.core.types import FALSE_ALARMS


def serve(
    workspace: WorkspaceFolder,
    port: int | None = None,
    false_alarms: FalseAlarms = FALSE_ALARMS,
    keep_unknown: bool = False,
    queue: int = MAX_WAITING,
) -> None:
    """Recognise pictures over HTTP on this machine: POST a picture to /predict. Ctrl-C ends it.

    Args:
        workspace: Folder of the workspace.
        port: Port on 127.0.0.1. By default a free one.
        false_alarms: Share of the pictures of known categories that may be called unknown.
        keep_unknown: Keep features and thumbnails of unknown pictures in the workspace, for `camp review`.
        queue: Number of pictures without an answer from which on further ones are refused with status 503.
    """
    with starting():
        from camp.app.prediction.keep_unknown import unknown_keeper
        from camp.app.serving.app import latest_model, prediction_app
        from camp.app.web.server import serve as serve_app
        from camp.app.workspace.workspace import Workspace

    opened = Workspace.open(given_path(workspace, "WORKSPACE"))
    with Progress().track("Opening the model", 1):
        model_of = latest_model(opened, false_alarms)
        model_of()
    keeper = unknown_keeper(opened, block=1) if keep_unknown else None
    serve_app(lambda hosts: prediction_app(model_of, workspace, hosts, keeper, queue), port, "/")
