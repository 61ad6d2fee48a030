"""A workspace: settings, an event log and learning steps, over a storage backend."""

import copy
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from camp.app.workspace.decisions import Accepted, Decision
from camp.app.workspace.events import Event, Learned, Undone
from camp.app.workspace.history import dismissed, made_ids, standing
from camp.app.workspace.knowledge import Knowledge
from camp.app.workspace.overview import Overview, overview, restored, updated
from camp.app.workspace.report import BatchReport
from camp.app.workspace.step_files import Step
from camp.app.workspace.storage import FolderStorage, MemoryStorage, Storage, WorkspaceSettings
from camp.core.errors import CampError
from camp.core.seeds import generator
from camp.nn.backbones import make_backbone

if TYPE_CHECKING:
    from camp.nn.backbones.base import Backbone

AnyEvent = TypeVar("AnyEvent", bound=Event)


class Workspace:
    """Everything that was learned and decided; not safe to use from several threads."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._knowledge: tuple[list[Event], Knowledge] | None = None  # events, knowledge after them
        self._backbone: Backbone | None = None

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the workspace in a folder."""
        return cls(FolderStorage.open(path))

    @classmethod
    def create(cls, path: Path, settings: WorkspaceSettings) -> Self:
        """Create a workspace in a new or empty folder."""
        return cls(FolderStorage.create(path, settings))

    @classmethod
    def in_memory(cls, settings: WorkspaceSettings) -> Self:
        """Create a workspace in memory."""
        return cls(MemoryStorage(settings))

    @property
    def settings(self) -> WorkspaceSettings:
        """The settings it was created with."""
        return self.storage.settings

    @property
    def name(self) -> str:
        """The path of the folder, for messages."""
        return self.storage.name

    def events(self) -> list[Event]:
        """Return all events, in order."""
        return self.storage.events()

    def learned(self) -> list[Learned]:
        """Return the events of the learning steps."""
        return [event for event in self.events() if isinstance(event, Learned)]

    def reports(self) -> list[BatchReport]:
        """Return the report of each learning step, in order."""
        return [self.storage.report(event.step) for event in self.learned()]

    def knowledge(self) -> Knowledge:
        """Return what is known now: the last learning step and every standing decision since."""
        events = self.events()
        if self._knowledge is not None and self._knowledge[0] == events:
            return self._knowledge[1]
        steps = [event.step for event in events if isinstance(event, Learned)]
        if not steps:
            raise CampError(
                f"{self.name} has learned nothing yet; `camp learn {self.name} PICTURES` starts it."
            )
        try:
            knowledge = self.storage.knowledge(steps[-1])
        except CampError:
            if len(self.events()) == len(events):
                raise
            return self.knowledge()  # another process has learned in the meantime and removed the files
        made = (id for event in events for id in made_ids(event))
        knowledge.highest_made_id = max(made, default=0)
        knowledge.kept = self.storage.kept(steps[-1])
        knowledge = knowledge.dismiss(digest for event in dismissed(events) for digest in event.digests)
        for decision in standing(events):
            knowledge = decision.apply(knowledge)
        self._knowledge = events, knowledge
        return knowledge

    def overview(self, knowledge: Knowledge) -> Overview:
        """Return the overview of what is known now; that of many images starts from what the last step has stored."""
        state = self.storage.overview(knowledge.step)
        if state is None:
            return overview(knowledge)
        if not standing(self.events()):
            return restored(state, knowledge)
        learned = self.storage.knowledge(knowledge.step)
        if len(learned.images) != len(knowledge.images):
            return overview(knowledge)
        return updated(restored(state, learned), learned, knowledge)

    def with_kept(self, knowledge: Knowledge) -> Knowledge:
        """Return knowledge with the unknown images that are kept now; processes keep them without an event."""
        return dataclasses.replace(knowledge, kept=self.storage.kept(knowledge.step))

    def backbone(self) -> "Backbone":
        """Return the backbone with a copy of the tip of the last learning step.

        The trunk is loaded once. Weights of another trunk than the tip was trained on are refused.
        """
        if self._backbone is None:
            self._backbone = make_backbone(self.settings.backbone, generator(self.settings.seed, "backbone"))
        backbone = dataclasses.replace(self._backbone, tip=copy.deepcopy(self._backbone.tip))
        if steps := self.learned():
            if steps[-1].trunk != backbone.fingerprint:
                raise CampError(
                    f"The weights of {backbone.name} are not those that {self.name} has learned with; "
                    "put the old file back."
                )
            try:
                backbone.tip.load_state_dict(self.storage.tip(steps[-1].step))
            except RuntimeError as error:
                raise CampError(
                    f"The tip of the last learning step of {self.name} is not one of {backbone.name}; restore the step "
                    "from a copy."
                ) from error
        return backbone

    # Changes.

    def decide(self, decision: Decision, seen: int | None = None) -> Decision:
        """Append a decision to the log, if it can be made; another process at work is an error.

        Args:
            decision: What was decided.
            seen: The number of events that the decision is based on; it is refused if there are others by now.
        """
        with self.storage.lock():
            self.check_seen(seen)
            knowledge = self.knowledge()
            if isinstance(decision, Accepted):  # images may have been kept since the knowledge was read
                knowledge = self.with_kept(knowledge)
            after = decision.apply(knowledge)
            dated = self._append(decision)
            self._knowledge = self.events(), after
            return dated

    def undo(self, seen: int | None = None) -> Decision:
        """Undo the last standing decision since the last batch, and return it."""
        with self.storage.lock():
            self.check_seen(seen)
            decisions = standing(self.events())
            if not decisions:
                raise CampError("There is nothing to undo: no decision since the last batch.")
            self._append(Undone(of=decisions[-1].number))
            return decisions[-1]

    def add_step(self, step: Step) -> None:
        """Store a learning step and append its event, from which on it counts. The lock must be held."""
        self.storage.write_step(step)
        superseded = [event.step for event in self.learned()]
        self._append(Learned(step=step.knowledge.step, folder=step.report.folder, trunk=step.trunk))
        self.storage.clean_up(superseded)

    def _append(self, event: AnyEvent) -> AnyEvent:
        dated = event.dated(len(self.events()) + 1)
        self.storage.append(dated)
        return dated

    def check_seen(self, seen: int | None) -> None:
        """Raise a `CampError` if there are other events than the `seen` ones."""
        if seen is not None and len(self.events()) != seen:
            raise CampError("Something else changed the workspace meanwhile; look at it again, then decide.")
