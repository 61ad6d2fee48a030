"""`camp review`: serve the review page."""

import secrets

from camp.cli.shared import WorkspaceFolder, given_path, starting


def review(workspace: WorkspaceFolder, port: int | None = None, browser: bool = True) -> None:
    """Open a local page on which categories are named, merged and split, and pictures moved. Ctrl-C ends it.

    Args:
        workspace: Folder of the workspace.
        port: Port on 127.0.0.1. By default a free one.
        browser: Open the page in a browser.
    """
    with starting():
        from camp.app.review.app import review_app
        from camp.app.web.guard import Guard
        from camp.app.web.one_time_code import OneTimeCode
        from camp.app.web.server import serve
        from camp.app.workspace.workspace import Workspace

    opened = Workspace.open(given_path(workspace, "WORKSPACE"))
    opened.knowledge()  # raises the error of a workspace that cannot be shown
    token = secrets.token_urlsafe(24)
    app = review_app(opened)
    code = OneTimeCode() if browser else None
    # The token is printed, to be opened by hand, and is given to no other process.
    serve(lambda hosts: Guard(app, hosts, token, code), port, f"/?token={token}", code)
