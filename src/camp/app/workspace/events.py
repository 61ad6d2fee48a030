"""Events of the append-only log of a workspace.

Every event is a model with a tag `kind`; the same model is a line of `events.jsonl`. Decisions of a person are events too
(`decisions.py`); `history.py` reads lines of any kind.
"""

import datetime
import json
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field


class Event(BaseModel):
    """An entry of the log."""

    model_config = ConfigDict(frozen=True)

    number: int = Field(default=0, validation_alias="event", serialization_alias="event")
    """Position in the log, counted from 1; 0 before the event is in the log."""
    time: str = ""
    """When it was entered in the log, ISO 8601."""
    kind: str

    def dated(self, number: int) -> Self:
        """Return the event with its number and the present time."""
        return self.entered(number, datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))

    def entered(self, number: int, time: str = "") -> Self:
        """Return the event with a number and a time."""
        return self.model_copy(update={"number": number, "time": time})

    def line(self, before: str | None = None) -> str:
        """Return the line of the log; fields that were not given are left out.

        Args:
            before: Checksum of the line before; None leaves it out, as earlier versions did.
        """
        head = {"event": self.number, "time": self.time, "kind": self.kind}
        values = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        chain = {} if before is None else {"before": before}
        return json.dumps(head | values | chain, ensure_ascii=False)


class Learned(Event):
    """A batch was learned; knowledge starts again from its result."""

    kind: Literal["learned"] = "learned"
    step: int
    folder: str = ""
    """Name of the batch."""
    trunk: str = ""
    """Fingerprint of the trunk that the tip of this step belongs to."""


class Undone(Event):
    """An earlier decision since the last batch does not count."""

    kind: Literal["undone"] = "undone"
    of: int
    """Number of the decision."""


class Lost(Event):
    """An event that was in this place of the log before the log was damaged."""

    kind: Literal["lost"] = "lost"
