"""`camp status`: describe a workspace."""

from pathlib import Path

import tyro

from camp.cli.shared import WorkspaceFolder, starting


def status(words: list[str]) -> int:
    """Run `camp status WORKSPACE`."""
    return tyro.cli(_status, args=words, prog="camp status")


def _status(workspace: WorkspaceFolder) -> int:
    """Show the categories, what each batch taught, and which pictures are doubtful.

    Args:
        workspace: Folder of the workspace.
    """
    with starting():
        from camp.app.workspace.status import status_text
        from camp.app.workspace.workspace import Workspace

    print(status_text(Workspace.open(Path(workspace))))
    return 0
