"""Answers to the queries of the review page. Their size does not grow with the number of images."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from camp.app.review.questions import WORTH_ASKING, Kind, Question, settled
from camp.app.review.state import Snapshot
from camp.app.workspace.history import standing
from camp.app.workspace.knowledge import CLUSTERED, DISCARDED, LABELLED, REVIEWED, Category
from camp.app.workspace.overview import most_doubtful, most_typical
from camp.app.workspace.report import BatchReport

Order = Literal["typical", "doubtful", "newest"]
PAGE = 60
"""Images in one answer."""
TYPICAL, DOUBTFUL, NEAR, PAIRS, HALF, HISTORY = 5, 3, 6, 12, 12, 200
"""Images of a card, neighbours offered for merging, similar pairs, images of a half, decisions in the history."""
SOURCES = {CLUSTERED: "found", LABELLED: "label", REVIEWED: "person"}


@dataclass(frozen=True)
class Tile:
    """An image as the page shows it."""

    row: int
    file: str
    kept: bool
    """Whether there is a thumbnail."""


@dataclass(frozen=True)
class ImageAnswer(Tile):
    """What is known about an image."""

    category: int
    batch: int
    who: str
    """Source of the category."""
    sure: float | None
    distance: float | None
    rival: str | None
    """Title of the most probable other category."""
    doubtful: bool


@dataclass(frozen=True)
class Card:
    """A category of the overview."""

    id: int
    name: str | None
    title: str
    origin: str
    step: int
    pictures: int
    found: int
    label: int
    person: int
    sure: float | None
    doubtful: int
    need: float
    reason: str
    near: list[int]
    typical: list[Tile]
    uncertain: list[Tile]


@dataclass(frozen=True)
class PastDecision:
    """A decision that can be undone."""

    event: int
    time: str
    said: str


@dataclass(frozen=True)
class EventsAnswer:
    """The number of events."""

    events: int


@dataclass(frozen=True)
class OverviewAnswer(EventsAnswer):
    """The first page: cards, similar pairs, decisions, and the line on top."""

    version: str
    step: int
    pictures: int
    discarded: int
    unnamed: int
    doubtful: int
    categories: list[Card]
    alike: list[tuple[int, int]]
    last: BatchReport | None
    decisions: int
    history: list[PastDecision]


@dataclass(frozen=True)
class ImagesAnswer(EventsAnswer):
    """Some images."""

    pictures: list[ImageAnswer]


@dataclass(frozen=True)
class CategoryPage(ImagesAnswer):
    """Some images of a category."""

    total: int


@dataclass(frozen=True)
class Half:
    """One half of a category that might be split, with some of its images."""

    pictures: int
    tiles: list[Tile]


@dataclass(frozen=True)
class HalvesAnswer(EventsAnswer):
    """Both halves."""

    stays: Half
    leaves: Half


@dataclass(frozen=True)
class AskedTile(Tile):
    """An image of a question."""

    category: int
    """Its present category."""
    choices: list[int]
    """Other categories that it may belong to, the most probable first."""
    proposed: int | None
    """The category that it is proposed for."""


@dataclass(frozen=True)
class QuestionAnswer:
    """A question; see `questions.Question`."""

    kind: Kind
    category: int
    others: list[int]
    pictures: list[AskedTile]
    main: bool
    gain: float
    cost: float


@dataclass(frozen=True)
class QueueAnswer(EventsAnswer):
    """The next question, and how far the review is."""

    question: QuestionAnswer | None
    settled: float
    """Share of the images that have a name and are trusted or probable."""
    decisions: int
    """Decisions since the last batch."""
    left: int
    """Questions that are worth asking now."""


@dataclass(frozen=True)
class BatchesAnswer(EventsAnswer):
    """The reports of all batches."""

    batches: list[BatchReport]


def overview_answer(now: Snapshot) -> OverviewAnswer:
    """Answer the query of the first page."""
    categories = now.knowledge.live()
    neighbours = _neighbours(now)
    here = now.knowledge.images.category != DISCARDED
    doubtful = now.seen.doubtful() & here & (now.knowledge.images.source == CLUSTERED)
    decisions = standing(now.events)
    return OverviewAnswer(
        events=now.count,
        version=now.version,
        step=now.knowledge.step,
        pictures=int(here.sum()),
        discarded=int((~here).sum()),
        unnamed=sum(category.name is None for category in categories),
        doubtful=int(doubtful.sum()),
        categories=[_card(now, category, doubtful, neighbours) for category in categories],
        alike=[(a, b) for a, b, _ in now.seen.similar[:PAIRS]],
        last=now.reports[-1] if now.reports else None,
        decisions=len(decisions),
        history=[
            PastDecision(decision.number, decision.time, decision.describe(now.knowledge))
            for decision in reversed(decisions[-HISTORY:])
        ],
    )


def _card(now: Snapshot, category: Category, doubtful: np.ndarray, neighbours: dict[int, list[int]]) -> Card:
    rows = now.knowledge.rows_of(category.id)
    sources = np.bincount(now.knowledge.images.source[rows], minlength=len(SOURCES)).tolist()
    typical = most_typical(now.knowledge, now.seen, category.id)
    uncertain = most_doubtful(now.knowledge, now.seen, category.id)
    uncertain = uncertain[doubtful[uncertain]]
    need = now.needs[category.id]
    return Card(
        id=category.id,
        name=category.name,
        title=category.title,
        origin=category.origin,
        step=category.step,
        pictures=len(rows),
        found=sources[CLUSTERED],
        label=sources[LABELLED],
        person=sources[REVIEWED],
        sure=_rounded(now.seen.confidence[rows].mean()) if len(rows) else None,
        doubtful=len(uncertain),
        need=round(need.score, 4),
        reason=need.reason,
        near=neighbours.get(category.id, []),
        typical=_tiles(now, _preferring_thumbnails(now, typical, TYPICAL)),
        uncertain=_tiles(now, _preferring_thumbnails(now, uncertain, DOUBTFUL)),
    )


def category_page(now: Snapshot, id: int, order: Order, start: int) -> CategoryPage:
    """Answer the query for some images of a category."""
    now.knowledge.category(id)
    if order == "newest":
        rows = now.knowledge.rows_of(id)
        rows = rows[np.argsort(-now.knowledge.images.steps[rows], kind="stable")]
    else:
        sort = most_typical if order == "typical" else most_doubtful
        rows = sort(now.knowledge, now.seen, id)
    return CategoryPage(now.count, image_answers(now, rows[start : start + PAGE]), len(rows))


def image_answers(now: Snapshot, rows: Sequence[int] | np.ndarray) -> list[ImageAnswer]:
    """Describe single images."""
    images, seen = now.knowledge.images, now.seen
    doubtful = seen.doubtful() & (images.source == CLUSTERED)
    answers = []
    for row, tile in zip(rows, _tiles(now, rows)):
        runner_up = int(seen.runner_up[row])
        answers.append(
            ImageAnswer(
                **vars(tile),
                category=int(images.category[row]),
                batch=int(images.steps[row]),
                who=SOURCES[int(images.source[row])],
                sure=_rounded(seen.confidence[row]),
                distance=_rounded(seen.distance[row]),
                rival=None if runner_up == DISCARDED else now.knowledge.categories[runner_up].title,
                doubtful=bool(doubtful[row]),
            )
        )
    return answers


def halves_answer(now: Snapshot, id: int, leaves: np.ndarray) -> HalvesAnswer:
    """Show some images of both halves of a category."""

    def half(rows: np.ndarray) -> Half:
        rows = rows[np.argsort(now.seen.distance[rows], kind="stable")]
        return Half(len(rows), _tiles(now, _preferring_thumbnails(now, rows, HALF)))

    stays = np.setdiff1d(now.knowledge.rows_of(id), leaves)
    return HalvesAnswer(now.count, half(stays), half(leaves))


def queue_answer(now: Snapshot, skip: int) -> QueueAnswer:
    """Answer with the question after the `skip` most useful ones."""
    asked = now.queue[skip] if skip < len(now.queue) else None
    kept = now.suggestions.position >= 0
    share = float(settled(now.asked_knowledge, now.suggestions)[kept].mean()) if kept.any() else 1.0
    return QueueAnswer(
        events=now.count,
        question=None if asked is None else _question_answer(now, asked),
        settled=round(share, 4),
        decisions=len(standing(now.events)),
        left=sum(question.rate >= WORTH_ASKING for question in now.queue),
    )


def _question_answer(now: Snapshot, asked: Question) -> QuestionAnswer:
    choices = asked.choices or ((),) * len(asked.rows)
    proposed = asked.proposed or (None,) * len(asked.rows)
    category = now.knowledge.images.category
    return QuestionAnswer(
        kind=asked.kind,
        category=asked.category,
        others=list(asked.others),
        pictures=[
            AskedTile(**vars(tile), category=int(category[tile.row]), choices=list(ids), proposed=into)
            for tile, ids, into in zip(_tiles(now, asked.rows), choices, proposed)
        ],
        main=asked.main,
        gain=round(asked.gain, 2),
        cost=round(asked.cost, 2),
    )


def _tiles(now: Snapshot, rows: Sequence[int] | np.ndarray) -> list[Tile]:
    files = now.knowledge.images.files
    return [Tile(int(row), files[row], bool(now.has_thumbnail[row])) for row in rows]


def _preferring_thumbnails(now: Snapshot, rows: np.ndarray, count: int) -> np.ndarray:
    """Return the first `count` rows, those with a thumbnail first."""
    return rows[np.argsort(~now.has_thumbnail[rows], kind="stable")][:count]


def _neighbours(now: Snapshot) -> dict[int, list[int]]:
    """Return the ids of the nearest other categories, the nearest first."""
    ids = now.seen.ids
    if len(ids) < 2:
        return {}
    centroids = torch.from_numpy(now.seen.regions.centroids)
    distances = torch.cdist(centroids, centroids).fill_diagonal_(torch.inf)
    nearest = distances.topk(min(NEAR, len(ids) - 1), dim=1, largest=False).indices.tolist()
    return {id: [ids[place] for place in places] for id, places in zip(ids, nearest)}


def _rounded(value: float) -> float | None:
    """Round to three digits; JSON has no infinity."""
    return round(float(value), 3) if np.isfinite(value) else None
