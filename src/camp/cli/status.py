"""`camp status`: describe a workspace."""

from pathlib import Path

from camp.cli.shared import WorkspaceFolder, starting


def status(workspace: WorkspaceFolder) -> None:
    """Show the categories, what each batch taught, and which pictures are doubtful.

    Args:
        workspace: Folder of the workspace.
    """
    with starting():
        from camp.app.workspace.status import status_text
        from camp.app.workspace.workspace import Workspace

    print(status_text(Workspace.open(Path(workspace))))
