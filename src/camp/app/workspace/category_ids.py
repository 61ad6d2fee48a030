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

from camp.app.workspace.knowledge import FOUND, NOWHERE, Knowledge
from camp.core.types import UNLABELLED

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
    linked: Sequence[Link],
) -> Numbering:
    """Positions for the labels `names` of a batch; `old` are the categories that have pictures, by id."""
    by_name = {**known.named(), **{link.name: link.id for link in linked}}
    brought = {link.id: link.name for link in linked}
    ids, place = list(old), {id: at for at, id in enumerate(old)}
    fresh = known.next_id()
    labels = []
    for name in names:
        if name is None:
            labels.append(UNLABELLED)
            continue
        id = by_name.get(name)
        if id is None:
            id, by_name[name], brought[fresh] = fresh, fresh, name
            fresh += 1
        if id not in place:
            place[id] = len(ids)
            ids.append(id)
        labels.append(place[id])
    return Numbering(ids, torch.tensor(labels, dtype=torch.int64), brought)


def came_before(
    known: Knowledge, digests: np.ndarray, names: Sequence[str | None]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of earlier pictures that stay, and rows of a batch, `digests` (n, 16) with labels `names`, that count.

    A picture that comes again is the one that is known, unless it brings a label that nobody gave it before: then it
    takes the place of its earlier self.
    """
    pictures = known.pictures
    earlier = {bytes(digest): row for row, digest in enumerate(pictures.digests)}
    stays, counts = np.ones(len(pictures), dtype=bool), np.ones(len(names), dtype=bool)
    for at, (digest, name) in enumerate(zip(digests, names)):
        row = earlier.get(bytes(digest))
        if row is None:
            continue
        id = int(pictures.category[row])
        said = known.categories[id].name if id != NOWHERE and pictures.told[row] != FOUND else None
        brings = name is not None and name != said
        stays[row], counts[at] = not brings, brings
    return np.flatnonzero(stays), np.flatnonzero(counts)
