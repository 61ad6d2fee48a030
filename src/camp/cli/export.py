"""`camp export`: write a model as ONNX."""

from typing import Annotated

import tyro

from camp.cli.shared import FalseAlarms, WorkspaceFolder, given_path, starting
from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.core.types import FALSE_ALARMS


def export(
    workspace: WorkspaceFolder,
    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")],
    false_alarms: FalseAlarms = FALSE_ALARMS,
) -> None:
    """Write one ONNX file that recognises pictures without camp, in any ONNX runtime.

    Args:
        workspace: Folder of the workspace.
        file: The file to write, such as birds.onnx.
        false_alarms: Share of the pictures of known categories that may be called unknown.
    """
    with starting():
        from camp.app.export.onnx import export_onnx
        from camp.app.prediction.model import open_model
        from camp.app.workspace.workspace import Workspace
        from camp.core.output_file import check_output

    target = given_path(file, "FILE")
    if target.suffix != ".onnx":
        raise CampError(f"{target} is not the name of an ONNX file; give a name that ends in .onnx.")
    folder = given_path(workspace, "WORKSPACE")
    opened = Workspace.open(folder)
    check_output(target, "The file", [folder], opened.settings.backbone.files())
    with Progress().track("Exporting", 1):
        model = open_model(opened, false_alarms)
        export_onnx(model, target)
    print(f"{target}: {len(model.ids)} categories, {target.stat().st_size / 1e6:.1f} MB.")
