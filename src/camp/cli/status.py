"""`camp status`: describe a workspace."""

from camp.cli.shared import WorkspaceFolder, given_path, starting


def status(workspace: WorkspaceFolder) -> None:
    """Show the categories, what each batch taught, and which pictures are doubtful.

    Args:
        workspace: Folder of the workspace.
    """
    with starting():
        from camp.app.workspace.status import status_text
        from camp.app.workspace.workspace import Workspace

        text = status_text(Workspace.open(given_path(workspace, "WORKSPACE")))
    print(text)
