"""Which category each label of a batch means: one that has the name, one that gets it now, or a new one.

A method knows categories by position: first the old ones that have pictures, then those that the batch labels and that
have none yet. Ids are what people see, and permanent.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from camp.streams.tasks import UNLABELLED
from camp.workspace.knowledge import FOUND, NOWHERE, Knowledge, Pictures

LINKED = 0.5
"""A new name is that of a category discovered earlier if this share of its labelled pictures would be recognised as it."""


@dataclass(frozen=True)
class Link:
    """A label that turned out to be the name of a category discovered earlier."""

    id: int
    name: str
    agree: float
    """Share of the labelled pictures that would have been recognised as it."""


@dataclass(frozen=True)
class Numbering:
    """Positions, ids and names of the categories that are known before discovery."""

    ids: list[int]
    """Id of each position: old categories with pictures, then the others that are labelled in the batch."""
    n_old: int
    """How many of them have earlier pictures."""
    labels: Tensor
    """(n,) position of each picture's label, or UNLABELLED."""
    names: dict[int, str]
    """Names that the batch brings, by id."""


def links(
    known: Knowledge, old: Sequence[int], names: Sequence[str | None], nearest: Sequence[int]
) -> list[Link]:
    """Old unnamed categories that new names belong to.

    `names` are labels of pictures, and `nearest` the position in `old` of the old centroid nearest to each, or NOWHERE
    where that is too far away.
    """
    best: dict[int, Link] = {}
    for name in sorted({name for name in names if name is not None} - set(known.named())):
        votes = Counter(old[at] for at, label in zip(nearest, names) if label == name and at != NOWHERE)
        if not votes:
            continue
        id, count = votes.most_common(1)[0]
        agree, rival = count / sum(label == name for label in names), best.get(id)
        if known.categories[id].name is None and agree >= LINKED and (not rival or agree > rival.agree):
            best[id] = Link(id, name, agree)
    return [best[id] for id in sorted(best)]


def numbered(
    known: Knowledge,
    old: Sequence[int],
    names: Sequence[str | None],
    told_before: Sequence[int | None],
    linked: Sequence[Link],
) -> Numbering:
    """Positions for the labels `names` of a batch; `told_before` is the category of a picture that came earlier.

    `old` are the categories that have pictures, by id. What a picture is called now counts more than before.
    """
    by_name = {**known.named(), **{link.name: link.id for link in linked}}
    brought = {link.id: link.name for link in linked}
    ids, place = list(old), {id: at for at, id in enumerate(old)}
    fresh = known.next_id()
    labels = []
    for name, before in zip(names, told_before):
        id = before if name is None else by_name.get(name)
        if name is not None and id is None:
            id, by_name[name], brought[fresh] = fresh, fresh, name
            fresh += 1
        if id is None:
            labels.append(UNLABELLED)
            continue
        if id not in place:
            place[id] = len(ids)
            ids.append(id)
        labels.append(place[id])
    return Numbering(ids, len(old), torch.tensor(labels, dtype=torch.int64), brought)


def came_before(pictures: Pictures, digests: np.ndarray) -> tuple[np.ndarray, list[int | None]]:
    """Rows of `pictures` that are not among `digests` (n, 16), and what was told before about each of `digests`.

    A picture that comes again replaces its earlier self; a category that a label or a person gave it is not lost.
    """
    coming = {bytes(digest): at for at, digest in enumerate(digests)}
    told: list[int | None] = [None] * len(digests)
    kept = []
    for row, digest in enumerate(pictures.digests):
        at = coming.get(bytes(digest))
        if at is None:
            kept.append(row)
        elif pictures.told[row] != FOUND and pictures.category[row] != NOWHERE:
            told[at] = int(pictures.category[row])
    return np.array(kept, dtype=np.int64), told
