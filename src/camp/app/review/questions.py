"""The queue: what to ask a person next, by the expected number of images corrected per decision.

There are three kinds of questions:

    name    What are most of these? Images that look alike, whichever category they were put in.
    same    Are these two the same kind?
    check   Are these all X, and those all Y? Doubtful images that are in X or look like X now, and the same of a few other
            categories, with other categories they may belong to.

The gain of a question is the expected number of images that have the right name after the answer and not before. Its
cost is one decision, and one for each image that has to be picked out by hand.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from camp.app.review.suggestions import Suggestions
from camp.app.workspace.knowledge import CLUSTERED, DISCARDED, Knowledge
from camp.app.workspace.overview import Overview
from camp.app.workspace.tsne_layout import spread_over
from camp.core.seeds import numpy_generator, seed_of

Kind = Literal["name", "same", "check"]
GROUP, GROUPS_PER_CATEGORY, MIN_GROUP = 25, 2, 3
"""Images of a batch are divided into groups of at most about this many images that look alike, and into at least this many
groups for each of their categories: where categories are small, larger groups would hold several of them. On average a
group has at least MIN_GROUP images."""
MAIN = 0.6
"""A group stands for a category if it holds this share of its images."""
MAX_CHECKED, MAX_OF_ONE, MIN_OF_ONE = 60, 24, 6
"""Numbers of images of a question of the kind `check`: in all, and of one category."""
SURE = 0.9
"""Images that are more probable than this in their own category are settled."""
UNSEEN = 0.5
"""The probability of a category is multiplied by this where nobody has looked at a group of images yet: images that
are wrong together agree with each other."""
MAX_ASKED, SAMPLE = 20_000, 10_000
"""Of more than MAX_ASKED images, questions are about a sample of SAMPLE images, with some of every category."""
MAX_GROUPS = 1_000
"""Where there would be more groups, the categories are the groups: k-means would take minutes."""
LARGE = 5_000
"""More images than this are divided by mini-batch k-means."""
WORTH_ASKING = 0.4
"""A question with a smaller rate is unlikely to correct anything."""
LIKELY = 0.1
"""Names of categories that are more probable than this are offered."""
NAMES, CHOICES = 4, 9
"""Numbers of categories that are offered for a group of images, and for an image that is not what was asked; each is one key."""


@dataclass(frozen=True)
class Question:
    """A question about images."""

    kind: Kind
    category: int
    """The category that is asked about: that of most images (`name`), or of the first ones (`check`)."""
    others: tuple[int, ...]
    """Categories that may be the same (`same`), or whose name the images probably have (`name`); at most a few."""
    rows: tuple[int, ...]
    """Images that are shown."""
    choices: tuple[tuple[int, ...], ...]
    """Of each shown image, other categories, the most probable first (`check`)."""
    proposed: tuple[int, ...]
    """The category that each shown image is proposed for (`check`); those of a category are side by side."""
    gain: float
    cost: float
    main: bool = False
    """Whether the category itself gets the name, or the images alone (`name`)."""

    @property
    def rate(self) -> float:
        """Expected number of images corrected per decision."""
        return self.gain / self.cost


def questions(
    knowledge: Knowledge,
    seen: Overview,
    suggestions: Suggestions,
    groups: Sequence[np.ndarray],
    answered: frozenset[int],
    looked_at: frozenset[int] = frozenset(),
) -> list[Question]:
    """Return what could be asked now, the most useful question first.

    Args:
        knowledge: What is known now.
        seen: Its overview.
        suggestions: What the other images say about each image.
        groups: Rows of images that look alike, from `look_alikes`.
        answered: Rows that a decision since the last batch was about.
        looked_at: Ids of categories that a person named as a whole.
    """
    if not len(suggestions.ids):  # every image was discarded
        return []
    found = [
        *_names(knowledge, seen, suggestions, groups, answered, looked_at),
        *_same(knowledge, seen, suggestions),
        *_together(_checks(knowledge, suggestions)),
    ]
    return sorted(found, key=lambda question: -question.rate)


def rows_to_ask(knowledge: Knowledge) -> np.ndarray:
    """Return the rows of the images that questions are about, ascending: as many of each category where possible."""
    n = len(knowledge.images)
    if n <= MAX_ASKED:
        return np.arange(n)
    return np.sort(
        spread_over(knowledge.images.category, numpy_generator(0, "asked", knowledge.step))[:SAMPLE]
    )


def look_alikes(knowledge: Knowledge) -> list[np.ndarray]:
    """Divide images into groups that look alike, and return the rows of each.

    They are the unlabelled images of the last batch, and earlier ones of categories without a name.
    """
    images, step = knowledge.images, knowledge.step
    unnamed = [category.id for category in knowledge.live() if category.name is None]
    asked = (images.steps == step) | np.isin(images.category, unnamed)
    rows = np.flatnonzero(asked & (images.source == CLUSTERED) & (images.category != DISCARDED))
    n_categories = len(np.unique(images.category[rows]))
    n_groups = max(round(len(rows) / GROUP), GROUPS_PER_CATEGORY * n_categories)
    n_groups = max(1, min(n_groups, len(rows) // MIN_GROUP))
    if len(rows) <= n_groups:
        return [rows] if len(rows) else []
    if n_groups > MAX_GROUPS:
        _, group = np.unique(images.category[rows], return_inverse=True)
        order = np.argsort(group, kind="stable")
        return np.split(rows[order], np.cumsum(np.bincount(group))[:-1])
    from sklearn.cluster import KMeans, MiniBatchKMeans  # takes long to import

    seed = seed_of(0, "look-alikes", step) % 2**32
    fit = MiniBatchKMeans if len(rows) > LARGE else KMeans
    labels = fit(n_groups, n_init=3, random_state=seed).fit(images.points[rows]).labels_
    return [rows[labels == group] for group in np.unique(labels)]


def settled(knowledge: Knowledge, suggestions: Suggestions) -> np.ndarray:
    """Return which images (n,) have a category with a name that is trusted or probable."""
    trusted = knowledge.images.source != CLUSTERED
    found: np.ndarray = _in_named(knowledge, suggestions) & (trusted | (suggestions.own >= SURE))
    return found


def _named(knowledge: Knowledge, suggestions: Suggestions) -> np.ndarray:
    """Return which of the suggested categories (K,) have a name."""
    return np.array(
        [knowledge.categories[id].name is not None for id in suggestions.ids.tolist()], dtype=bool
    )


def _in_named(knowledge: Knowledge, suggestions: Suggestions) -> np.ndarray:
    """Return which images (n,) are in a category with a name."""
    inside: np.ndarray = np.append(_named(knowledge, suggestions), False)[suggestions.position]
    return inside


def _names(
    knowledge: Knowledge,
    seen: Overview,
    suggestions: Suggestions,
    groups: Sequence[np.ndarray],
    answered: frozenset[int],
    looked_at: frozenset[int],
) -> Iterator[Question]:
    """Ask what the images of a group are, unless they are likely to be right already."""
    named, counts, category = _named(knowledge, suggestions), knowledge.counts(), knowledge.images.category
    trust = np.where(np.isin(category, list(looked_at)), 1.0, UNSEEN)
    right = np.where(_in_named(knowledge, suggestions), trust * suggestions.own, 0.0)
    for group in groups:
        rows = np.array([row for row in group.tolist() if row not in answered and category[row] != DISCARDED])
        if len(rows) <= len(group) / 2:
            continue
        ids, sizes = np.unique(category[rows], return_counts=True)
        main, size = int(ids[sizes.argmax()]), int(sizes.max())
        unnamed = knowledge.categories[main].name is None
        likely = suggestions.probabilities[rows].mean(axis=0) * named
        likely_names = np.argsort(-likely, kind="stable")[:NAMES]
        others = tuple(int(suggestions.ids[at]) for at in likely_names if likely[at] >= LIKELY)
        gain = float((1 - right[rows]).sum())
        order = rows[np.argsort(seen.distance[rows], kind="stable")].tolist()
        stands = unnamed and size >= MAIN * counts[main]
        yield Question("name", main, others, tuple(order), (), (), gain, 1.0, stands)


def _same(knowledge: Knowledge, seen: Overview, suggestions: Suggestions) -> Iterator[Question]:
    """Ask which categories are the same kind as a similar one, unless both have a name."""
    place = {id: at for at, id in enumerate(suggestions.ids.tolist())}
    counts = knowledge.counts()
    partners: dict[int, list[int]] = {}
    for a, b, _ in seen.similar:
        # A name is kept before none, and the larger one's before the smaller one's.
        pair = sorted((a, b), key=lambda id: (knowledge.categories[id].name is None, -counts[id]))
        if knowledge.categories[pair[1]].name is None:
            partners.setdefault(pair[0], []).append(pair[1])
    for into, others in partners.items():
        weight = 1.0 if knowledge.categories[into].name is not None else 0.5
        gain = 0.0
        for id in others:
            # If the two are one kind, the classifier cannot tell them apart and gives half of the probability to each.
            mass = float(suggestions.probabilities[knowledge.rows_of(id), place[into]].mean())
            gain += weight * counts[id] * min(1.0, 2 * mass)
        yield Question("same", into, tuple(others), (), (), (), gain, 1.0 + 0.5 * (len(others) - 1))


def _checks(knowledge: Knowledge, suggestions: Suggestions) -> Iterator[Question]:
    """Ask about doubtful images that are in a category with a name, or look like it."""
    named, own = _named(knowledge, suggestions), suggestions.own
    p = suggestions.probabilities * named
    doubtful = (knowledge.images.source == CLUSTERED) & _in_named(knowledge, suggestions)
    best, likely = p.argmax(axis=1), p.max(axis=1)
    for at in np.flatnonzero(named):
        rows = np.flatnonzero(doubtful & (best == at))
        if not len(rows):
            continue
        rows = rows[np.argsort(likely[rows], kind="stable")]
        incoming = suggestions.position[rows] != at
        rows = np.concatenate([rows[incoming], rows[~incoming]])[:MAX_OF_ONE]
        rate = np.cumsum(1 - own[rows]) / (1 + np.cumsum(1 - likely[rows]))
        rows = rows[: max(int(rate.argmax()) + 1, MIN_OF_ONE)]
        order = np.argsort(-p[rows], axis=1, kind="stable")[:, 1 : CHOICES + 1]
        together = np.lexsort((likely[rows], order[:, 0] if order.shape[1] else likely[rows]))
        rows, order = rows[together], order[together]  # images that may be of the same other category
        choices = [tuple(suggestions.ids[ats[p[row, ats] > 0]].tolist()) for row, ats in zip(rows, order)]
        gain, cost = float((1 - own[rows]).sum()), 1 + float((1 - likely[rows]).sum())
        shown, id = tuple(rows.tolist()), int(suggestions.ids[at])
        yield Question("check", id, (), shown, tuple(choices), (id,) * len(shown), gain, cost)


def _together(checks: Iterable[Question]) -> Iterator[Question]:
    """Ask about several categories at once, the most useful ones first, as long as the images are not too many."""
    waiting = sorted(checks, key=lambda check: -check.rate)
    while waiting:
        size = np.cumsum([len(check.rows) for check in waiting])
        count = max(1, int((size <= MAX_CHECKED).sum()))
        parts, waiting = waiting[:count], waiting[count:]
        yield Question(
            "check",
            parts[0].category,
            (),
            tuple(row for part in parts for row in part.rows),
            tuple(ids for part in parts for ids in part.choices),
            tuple(id for part in parts for id in part.proposed),
            sum(part.gain for part in parts),
            1 + sum(part.cost - 1 for part in parts),
        )
