"""The report of a learned batch: written to `report.json`, printed by `camp learn`, shown by status and review page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from camp.app.workspace.knowledge import category_title, count
from camp.core.progress import format_duration
from camp.core.provenance import Provenance

KINDS = {"known": "new, with labels", "returned": "seen before", "discovered": "discovered"}
MAX_LISTED = 40
"""Categories of each kind that the summary lists."""


class ReportModel(BaseModel):
    """A frozen part of the report; `by_alias` gives the keys of the file."""

    model_config = ConfigDict(
        frozen=True, validate_by_name=True, validate_by_alias=True, ser_json_inf_nan="constants"
    )


class CategoryReport(ReportModel):
    """A category that has images in the batch."""

    id: int
    name: str | None
    n_images: int = Field(validation_alias="pictures", serialization_alias="pictures")
    n_labelled: int = Field(default=0, validation_alias="labelled", serialization_alias="labelled")
    kind: Literal["known", "returned", "discovered"]


@dataclass(frozen=True)
class Link:
    """A label that turned out to be the name of a category discovered earlier."""

    id: int
    name: str
    agree: float
    """Share of the labelled images that are recognised as the category."""


@dataclass(frozen=True)
class CategoryShift:
    """How far training moved the centroid of an old category."""

    id: int
    moved: float
    """In units of the spread of features around their centroids."""


@dataclass(frozen=True)
class Seconds:
    """Durations of the parts of learning."""

    trunk: float = 0.0
    train: float = 0.0
    discover: float = 0.0
    total: float = 0.0


class BatchReport(ReportModel):
    """What was learned from a batch."""

    step: int
    time: str = ""
    folder: str
    """Name of the batch."""
    n_images: int = Field(default=0, validation_alias="pictures", serialization_alias="pictures")
    n_labelled: int = Field(default=0, validation_alias="labelled", serialization_alias="labelled")
    unreadable: int = 0
    repeated: int = 0
    """Images that had been learned in an earlier batch."""
    n_new: int = 0
    """Discovered categories."""
    new_given: bool = False
    """Whether a person gave the number of new categories."""
    numeric_labels: bool = Field(default=False, validation_alias="numbers", serialization_alias="numbers")
    """Whether the labels of a Python program were integers."""
    curve: list[tuple[int, float]] | None = None
    """(number of categories, score) of every number that was tried."""
    categories: list[CategoryReport] = []
    drift: list[CategoryShift] = []
    linked: list[Link] = []
    """Labels that turned out to be names of categories discovered earlier."""
    doubtful: int = 0
    """Unlabelled images of the batch that lie far from their category or near another one."""
    confidence: float = 0.0
    """Mean probability of the categories of the images."""
    epochs: int = 0
    views: int | None = 0
    """Augmented views per image; None where every epoch draws new ones."""
    seconds: Seconds = Seconds()
    remarks: list[str] = []
    provenance: Provenance | None = None
    """Software and hardware; None in workspaces of earlier versions."""

    def of_kind(self, kind: str) -> list[CategoryReport]:
        """Return the categories of one of KINDS."""
        return [category for category in self.categories if category.kind == kind]

    @property
    def needs_review(self) -> bool:
        """Whether a person should look at the batch."""
        return bool(self.n_new or self.doubtful)

    def stored_sentence(self) -> str:
        """Say that the batch was learned, to whoever interrupted the command too late."""
        return f"the batch {self.folder} had been learned by then, as step {self.step}."

    def summary(self) -> str:
        """Return the text that `camp learn` prints."""
        lines = [f"{self.folder}: {count(self.n_images, 'picture')}, {self.n_labelled} with a label."]
        for kind, words in KINDS.items():
            if found := self.of_kind(kind):
                lines.append(f"  {words:16} {len(found):3}   {_listed(found)}")
        for link in self.linked:
            lines.append(
                f"  {link.name} is what was discovered as category {link.id} "
                f"({link.agree:.0%} of its labelled pictures look like it)."
            )
        if self.repeated:
            lines.append(f"  {self.repeated} pictures had been learned before and count once.")
        lines.append(
            f"Doubtful: {self.doubtful} of {self.n_images - self.n_labelled} unlabelled pictures. "
            f"It took {format_duration(self.seconds.total)}."
        )
        return "\n".join(lines)


def _listed(categories: Sequence[CategoryReport]) -> str:
    """List titles and numbers of images, at most MAX_LISTED."""
    listed = [f"{category_title(one.id, one.name)} {one.n_images}" for one in categories[:MAX_LISTED]]
    more = f", and {len(categories) - MAX_LISTED} more" if len(categories) > MAX_LISTED else ""
    return ", ".join(listed) + more
