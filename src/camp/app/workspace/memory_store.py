"""A workspace in memory: a Python program learns and decides, and its folder is written when it is asked for."""

import dataclasses
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from camp.app.workspace.events import Event, apply, dated, write_events
from camp.app.workspace.folder import Workspace, WorkspaceSettings
from camp.app.workspace.knowledge import Knowledge
from camp.app.workspace.load_model import open_backbone
from camp.app.workspace.steps import forget_bulk, load_step, new_step, save_step
from camp.core.errors import CampError
from camp.core.files import write_json
from camp.nn.backbones.base import Backbone


@dataclass(frozen=True)
class Held:
    """All that a workspace's folder holds, but for thumbnails."""

    settings: WorkspaceSettings
    backbone: Backbone
    """With the tip of the last learning step."""
    learned: Knowledge
    """After the last learning step."""
    knowledge: Knowledge
    """The same with every decision since."""
    events: tuple[Event, ...]
    reports: Mapping[int, dict[str, Any]]
    """Of every learning step."""
    home: Path | None = None
    """The folder that it was loaded from or saved to."""
    entered: int = 0
    """How many of `events` are there."""

    def decided(self, event: Event) -> Self:
        """After one more decision."""
        after = apply(self.knowledge, event)
        return dataclasses.replace(self, knowledge=after, events=(*self.events, self._dated(event)))

    def taught(self, knowledge: Knowledge, backbone: Backbone, report: dict[str, Any]) -> Self:
        """After one more learning step."""
        event = {
            "kind": "learned",
            "step": knowledge.step,
            "folder": report["folder"],
            "trunk": backbone.fingerprint,
        }
        return dataclasses.replace(
            self,
            backbone=backbone,
            learned=knowledge,
            knowledge=knowledge,
            events=(*self.events, self._dated(event)),
            reports={**self.reports, knowledge.step: report},
        )

    def _dated(self, event: Event) -> Event:
        return dated(event, len(self.events) + 1)


def load(path: Path) -> Held:
    """The workspace in the folder `path`."""
    path = _full(path)
    workspace = Workspace.open(path)
    events, knowledge = workspace.events(), workspace.knowledge()
    return Held(
        settings=workspace.settings,
        backbone=open_backbone(workspace, knowledge.step),
        learned=load_step(workspace.step_folder(knowledge.step)),
        knowledge=knowledge,
        events=tuple(events),
        reports={report["step"]: report for report in workspace.reports()},
        home=path,
        entered=len(events),
    )


def save(held: Held, path: Path) -> Held:
    """Write a new workspace, or what happened since into the one that it came from; all of it or nothing."""
    path = _full(path)
    if path == held.home and Workspace.there(path):
        _add(held, Workspace.open(path))
    else:
        _write_new(held, path)
    return dataclasses.replace(held, home=path, entered=len(held.events))


def _write_new(held: Held, path: Path) -> None:
    """A whole workspace, under a temporary name until it is complete."""
    if Workspace.there(path):
        raise CampError(
            f"{path} is a workspace of its own; save into a new folder, or load it with CAMP.load and go on from there."
        )
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise CampError(f"{path} is there already and is no workspace; choose a new folder.")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        workspace = Workspace.begin(temporary, held.settings)
        _write_steps(held, workspace, 0)
        write_events(workspace.log, held.events)
        if held.home is not None and (held.home / "thumbnails").is_dir():
            shutil.copytree(held.home / "thumbnails", temporary / "thumbnails")
        if path.exists():
            path.rmdir()
        temporary.replace(path)
    except OSError as error:
        raise CampError(f"Could not write {path}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _add(held: Held, workspace: Workspace) -> None:
    """What happened since `workspace` was loaded or saved."""
    with workspace.alone():
        if workspace.events() != list(held.events[: held.entered]):
            raise CampError(
                f"{workspace.path} has changed since it was loaded; save into a new folder, or load it again."
            )
        if len(held.events) == held.entered:
            return
        _write_steps(held, workspace, held.entered)
        write_events(workspace.log, held.events)
        for event in workspace.learned()[:-1]:
            forget_bulk(workspace.step_folder(event["step"]))


def _write_steps(held: Held, workspace: Workspace, after: int) -> None:
    """The learning steps behind the first `after` events; all but the last one are reports only."""
    for event in held.events[after:]:
        if event["kind"] != "learned":
            continue
        step = event["step"]
        with new_step(workspace.step_folder(step)) as folder:
            if step == held.learned.step:
                save_step(folder, held.learned, held.backbone.tip.state_dict(), held.reports[step])
            else:
                write_json(folder / "report.json", held.reports[step])


def _full(path: Path) -> Path:
    return Path(os.path.realpath(Path(path).expanduser()))
