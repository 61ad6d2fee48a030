"""Decisions of a person about categories and images.

A decision is an event of the log and the body of a request of the review page. It changes the knowledge of the workspace
(`apply`) and explains itself in words (`describe`).
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from camp.app.inputs.names import check_name
from camp.app.workspace.events import Event
from camp.app.workspace.knowledge import DISCARDED, REVIEWED, Category, Knowledge, count
from camp.core.errors import CampError

Number = Annotated[int, Field(ge=0, lt=2**31)]
Rows = Annotated[list[Number], AfterValidator(lambda rows: sorted(set(rows)))]
Name = Annotated[str, AfterValidator(check_name)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Digests = Annotated[list[Digest], AfterValidator(lambda digests: list(dict.fromkeys(digests)))]


class Decision(Event, ABC):
    """A decision of a person about categories or images."""

    @abstractmethod
    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Return the knowledge after the decision; raise a `CampError` if it cannot be made."""

    @abstractmethod
    def describe(self, knowledge: Knowledge) -> str:
        """Describe the decision in words, with the names that categories have in `knowledge`."""


class Named(Decision):
    """A category is called `name`; None takes its name away."""

    kind: Literal["named"] = "named"
    category: Number
    name: Name | None

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Rename the category."""
        other = None if self.name is None else knowledge.named().get(self.name)
        if other is not None and other != self.category:
            raise CampError(
                f'Category {other} is called "{self.name}" already; merge the two if they are the same kind.'
            )
        renamed = dataclasses.replace(knowledge.category(self.category), name=self.name)
        return knowledge.with_categories(renamed)

    def describe(self, knowledge: Knowledge) -> str:
        """Say what it is called."""
        if self.name is None:
            return f"category {self.category} has no name any more"
        return f"category {self.category} is called “{self.name}”"


class Merged(Decision):
    """The images of `category` belong to `into`, which takes over the name if it has none."""

    kind: Literal["merged"] = "merged"
    category: Number
    into: Number

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Move all images and end the merged category."""
        merged, target = knowledge.category(self.category), knowledge.category(self.into)
        if merged.id == target.id:
            raise CampError(f"{merged.title} cannot be merged with itself; choose two categories.")
        target = dataclasses.replace(target, name=target.name if target.name is not None else merged.name)
        ended = dataclasses.replace(merged, merged_into=target.id)
        return knowledge.with_categories(ended, target).assign(knowledge.rows_of(merged.id), target.id)

    def describe(self, knowledge: Knowledge) -> str:
        """Say what it is."""
        return f"category {self.category} is {knowledge.title(self.into)}"


class MergedSeveral(Decision):
    """The images of all `categories` belong to `into`, which takes over the first of their names if it has none.

    `different` are categories that look like `into` and are not.
    """

    kind: Literal["merged-several"] = "merged-several"
    categories: Rows = Field(default_factory=list)
    into: Number
    different: Rows = Field(default_factory=list)

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Merge one category after the other, all or none."""
        if not self.categories and not self.different:
            raise CampError("No category was chosen; choose at least two that are the same kind.")
        if set(self.categories) & set(self.different):
            raise CampError("A category cannot be the same kind and another one; look at them again.")
        for category in self.different:
            knowledge = Distinguished(category=category, other=self.into).apply(knowledge)
        for category in self.categories:
            knowledge = Merged(category=category, into=self.into).apply(knowledge)
        return knowledge

    def describe(self, knowledge: Knowledge) -> str:
        """Say what they are."""
        named, verb = self.categories or self.different, "are" if self.categories else "are not"
        *first, last = (f"{id}" for id in named)
        if not first:
            return f"category {last} {'is' if self.categories else 'is not'} {knowledge.title(self.into)}"
        return f"categories {', '.join(first)} and {last} {verb} {knowledge.title(self.into)}"


class Distinguished(Decision):
    """`category` and `other` look alike and are different categories."""

    kind: Literal["apart"] = "apart"
    category: Number
    other: Number

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Remember the pair."""
        one, other = knowledge.category(self.category), knowledge.category(self.other)
        if one.id == other.id:
            raise CampError(f"{one.title} cannot differ from itself; choose two categories.")
        pair = min(one.id, other.id), max(one.id, other.id)
        return dataclasses.replace(knowledge, distinct=knowledge.distinct | {pair})

    def describe(self, knowledge: Knowledge) -> str:
        """Say that they differ."""
        return f"{knowledge.title(self.category)} and {knowledge.title(self.other)} are different"


class Moved(Decision):
    """Images, by their rows, belong to `into`; with `made` that is a new category, called `name` if one is given."""

    kind: Literal["moved"] = "moved"
    rows: Rows
    into: Number
    made: bool = False
    name: Name | None = None

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Assign the images."""
        _check_chosen(self.rows)
        if not self.made:
            if self.name is not None:
                raise CampError("Only a new category gets a name with the move; name the other one.")
            return knowledge.assign(self.rows, knowledge.category(self.into).id, REVIEWED)
        return _with_new(knowledge, self.into, self.name).assign(self.rows, self.into, REVIEWED)

    def describe(self, knowledge: Knowledge) -> str:
        """Say where they went."""
        verb = "became" if self.made else "moved to"
        return f"{count(len(self.rows), 'picture')} {verb} {knowledge.title(self.into)}"


class Elsewhere(BaseModel):
    """Images, by their rows, that go to the category `into`."""

    model_config = ConfigDict(frozen=True)

    rows: Rows
    into: Number


class Confirmed(Decision):
    """A person looked at images that might all be `category`: `rows` are, `moved` are what they are moved to.

    `others` are something else. Each of them goes to the category that is most probable instead, although nobody has
    said that it belongs there. What is not `category` is not proposed for it again.
    """

    kind: Literal["confirmed"] = "confirmed"
    category: Number
    rows: Rows = Field(default_factory=list)
    moved: list[Elsewhere] = Field(default_factory=list)
    others: list[Elsewhere] = Field(default_factory=list)

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Assign the images, and remember what is not the category."""
        category, elsewhere = knowledge.category(self.category), [*self.moved, *self.others]
        if any(part.into == category.id for part in elsewhere):
            raise CampError(f"Pictures that are not {category.title} cannot go there; look at them again.")
        rejected = _check_parts(self.rows, *(part.rows for part in elsewhere))[len(self.rows) :]
        after = knowledge.assign(self.rows, category.id, REVIEWED)
        after = _assign_parts(_assign_parts(after, self.moved, REVIEWED), self.others)
        return after.with_rejected((row, category.id) for row in rejected)

    def describe(self, knowledge: Knowledge) -> str:
        """Say how many are and how many are not."""
        title = knowledge.title(self.category)
        rejected = sum(len(part.rows) for part in [*self.moved, *self.others])
        if not self.rows:
            return f"{_are(rejected)} not {title}"
        said = f"{_are(len(self.rows))} {title}"
        return f"{said}, {rejected} {'is' if rejected == 1 else 'are'} not" if rejected else said


class Checked(Decision):
    """A person looked at images of several categories at once."""

    kind: Literal["checked"] = "checked"
    parts: list[Confirmed]
    """What was said of the images that might be a category, for each of the categories."""

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Assign the images of all parts, or none."""
        _check_parts(*(decided_rows(part) for part in self.parts))
        for part in self.parts:
            knowledge = part.apply(knowledge)
        return knowledge

    def describe(self, knowledge: Knowledge) -> str:
        """Say how many are right, and how many are not."""
        if len(self.parts) == 1:
            return self.parts[0].describe(knowledge)
        right = sum(len(part.rows) for part in self.parts)
        wrong = len(decided_rows(self)) - right
        said = f"{count(right, 'picture')} of {count(len(self.parts), 'category')} confirmed"
        return f"{said}, {wrong} {'is' if wrong == 1 else 'are'} something else" if wrong else said


class Propagated(Decision):
    """Images that look like corrected ones go along, without having been looked at one by one.

    `kept` are images that a person left where they are: they are not proposed for the same category again. With a
    `name` the moves go to one category that gets it; with `made` that is a new one.
    """

    kind: Literal["propagated"] = "propagated"
    moves: list[Elsewhere] = Field(default_factory=list)
    kept: list[Elsewhere] = Field(default_factory=list)
    made: bool = False
    name: Name | None = None

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Assign the images, and remember what was left out."""
        _check_parts(*(part.rows for part in [*self.moves, *self.kept]))
        if self.made or self.name is not None:
            if len(self.moves) != 1:
                raise CampError("Pictures that get a name go to one category; choose one.")
            into = self.moves[0].into
            if self.made:
                knowledge = _with_new(knowledge, into, self.name)
            else:
                knowledge = Named(category=into, name=self.name).apply(knowledge)
        for part in self.kept:
            knowledge.assign(part.rows, knowledge.category(part.into).id)  # refuses rows that there are not
        rejected = ((row, part.into) for part in self.kept for row in part.rows)
        return _assign_parts(knowledge, self.moves).with_rejected(rejected)

    def describe(self, knowledge: Knowledge) -> str:
        """Say how many went where."""
        moved, kept = (sum(len(part.rows) for part in parts) for parts in (self.moves, self.kept))
        if not moved:
            return f"{count(kept, 'picture')} left where {'it is' if kept == 1 else 'they are'}"
        if self.name is not None:
            return f"{count(moved, 'picture')} called “{self.name}”"
        titles = [knowledge.title(part.into) for part in self.moves]
        where = titles[0] if len(titles) == 1 else count(len(titles), "category")
        return f"{count(moved, 'similar picture')} moved to {where}"


class Discarded(Decision):
    """Either a category, or single images by their rows, count for nothing."""

    kind: Literal["discarded"] = "discarded"
    category: Number | None = None
    rows: Rows | None = None

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.category is None) == (self.rows is None):
            raise CampError("Discard either a category or pictures.")
        return self

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Assign the images to no category."""
        if self.rows is not None:
            _check_chosen(self.rows)
            return knowledge.assign(self.rows, DISCARDED, REVIEWED)
        assert self.category is not None
        ended = dataclasses.replace(knowledge.category(self.category), discarded=True)
        return knowledge.with_categories(ended).assign(knowledge.rows_of(ended.id), DISCARDED)

    def describe(self, knowledge: Knowledge) -> str:
        """Say what was discarded."""
        if self.rows is not None:
            return f"{count(len(self.rows), 'picture')} discarded"
        return f"{knowledge.title(self.category or 0)} discarded"


class Accepted(Decision):
    """Unknown images that were kept, by their digests, are the new category `into`, called `name` if one is given."""

    kind: Literal["accepted"] = "accepted"
    digests: Digests
    into: Number
    name: Name | None = None

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Add the images and the category."""
        _check_chosen(self.digests)
        if self.into in knowledge.categories:
            raise CampError(f"Category {self.into} exists already; a new one gets a new id.")
        if self.name is not None and self.name in knowledge.named():
            raise CampError(f'There is a category called "{self.name}" already; choose another name.')
        made = Category(self.into, self.name, knowledge.step, "made")
        return knowledge.with_categories(made).add_kept(self.digests, self.into)

    def describe(self, knowledge: Knowledge) -> str:
        """Say what they became."""
        return f"{count(len(self.digests), 'unknown picture')} became {knowledge.title(self.into)}"


class Dismissed(Decision):
    """Unknown images that were kept, by their digests, are not proposed again."""

    kind: Literal["dismissed"] = "dismissed"
    digests: Digests

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Remember the images."""
        _check_chosen(self.digests)
        return knowledge.dismiss(self.digests)

    def describe(self, knowledge: Knowledge) -> str:
        """Say how many."""
        return f"{count(len(self.digests), 'unknown picture')} dismissed"


AnyDecision = Annotated[
    Named
    | Merged
    | MergedSeveral
    | Distinguished
    | Moved
    | Confirmed
    | Checked
    | Propagated
    | Discarded
    | Accepted
    | Dismissed,
    Field(discriminator="kind"),
]


def _check_chosen(chosen: Sequence[int] | Sequence[str]) -> None:
    if not chosen:
        raise CampError("No picture was chosen; choose at least one.")


def _with_new(knowledge: Knowledge, id: int, name: str | None) -> Knowledge:
    """Add a new category that a person made."""
    if id in knowledge.categories:
        raise CampError(f"Category {id} exists already; a new one gets a new id.")
    if name in knowledge.named():
        raise CampError(f'There is a category called "{name}" already; move the pictures there.')
    return knowledge.with_categories(Category(id, name, knowledge.step, "made"))


def _check_parts(*parts: Sequence[int]) -> list[int]:
    """Return the rows of all parts; refuse none at all, and a row in two of them."""
    rows = [row for part in parts for row in part]
    _check_chosen(rows)
    if len(set(rows)) != len(rows):
        raise CampError("A picture cannot be in two places; look at the pictures again.")
    return rows


def _assign_parts(knowledge: Knowledge, parts: Sequence[Elsewhere], source: int | None = None) -> Knowledge:
    """Assign images to categories; without a `source`, nobody has said that they belong there."""
    for part in parts:
        knowledge = knowledge.assign(part.rows, knowledge.category(part.into).id, source)
    return knowledge


def _are(number: int) -> str:
    return f"{count(number, 'picture')} {'is' if number == 1 else 'are'}"


def decided_rows(decision: Decision) -> list[int]:
    """Return the rows of the images that a decision is about, if it is about images and not about whole categories."""
    if isinstance(decision, Checked):
        return [row for part in decision.parts for row in decided_rows(part)]
    if isinstance(decision, Propagated):
        parts = [*decision.moves, *decision.kept]
    elif isinstance(decision, Confirmed):
        parts = [*decision.moved, *decision.others]
    else:
        parts = []
    single = decision.rows or [] if isinstance(decision, Moved | Confirmed | Discarded) else []
    return [*single, *(row for part in parts for row in part.rows)]
