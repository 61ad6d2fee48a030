"""Categories of the labels of a batch: one that has the name, one that gets it now, or a new one.

Methods number categories by position: first the old ones that have images, then those that are labelled in the batch
and have no image yet. Users see permanent ids.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from camp.app.workspace.knowledge import CLUSTERED, DISCARDED, Knowledge
from camp.app.workspace.report import Link
from camp.core.types import UNLABELLED
from camp.data.digests import rows_in

MIN_AGREEMENT = 0.5
"""Share of the images with a new label that must be recognised as an old category to give it the label as its name."""


@dataclass(frozen=True)
class Numbering:
    """Positions, ids and names of the categories that are known before discovery."""

    ids: list[int]
    """Id of each position: old categories with images, then the others that are labelled in the batch."""
    labels: Tensor
    """(n,) position of each image's label, or UNLABELLED."""
    names: dict[int, str]
    """Names that the labels of the batch give, by id."""


def find_links(
    known: Knowledge, old: Sequence[int], names: Sequence[str | None], nearest: Sequence[int]
) -> list[Link]:
    """Find unnamed old categories that new labels are names of.

    Args:
        old: Ids of the categories that have images.
        names: Labels of images.
        nearest: Position in `old` of the category that each of these images is recognised as, or DISCARDED.
    """
    best: dict[int, Link] = {}
    votes_of: dict[str, Counter[int]] = {}
    for at, name in zip(nearest, names):
        if name is not None and at != DISCARDED:
            votes_of.setdefault(name, Counter())[old[at]] += 1
    total = Counter(names)
    for name in sorted(votes_of.keys() - known.named().keys()):
        id, count = votes_of[name].most_common(1)[0]
        agree, rival = count / total[name], best.get(id)
        unnamed, wins = known.categories[id].name is None, rival is None or agree > rival.agree
        if unnamed and wins and agree >= MIN_AGREEMENT:
            best[id] = Link(id, name, agree)
    return [best[id] for id in sorted(best)]


def number_labels(
    known: Knowledge, old: Sequence[int], names: Sequence[str | None], linked: Sequence[Link]
) -> Numbering:
    """Give positions to the labels `names` of a batch; `old` are the ids of the categories that have images."""
    by_name = {**known.named(), **{link.name: link.id for link in linked}}
    given = {link.id: link.name for link in linked}
    ids, position = list(old), {id: at for at, id in enumerate(old)}
    new_id = known.next_id()
    labels = []
    for name in names:
        if name is None:
            labels.append(UNLABELLED)
            continue
        if name not in by_name:
            by_name[name], given[new_id] = new_id, name
            new_id += 1
        id = by_name[name]
        if id not in position:
            position[id] = len(ids)
            ids.append(id)
        labels.append(position[id])
    return Numbering(ids, torch.tensor(labels, dtype=torch.int64), given)


def split_repeated(
    known: Knowledge, digests: np.ndarray, names: Sequence[str | None]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of earlier images that stay, and the rows of the batch that are learned.

    A duplicate of an earlier image is left out, unless it has a label that the earlier one did not have: then it
    replaces the earlier one. `digests` (n, 16) and labels `names` are those of the batch.
    """
    images = known.images
    stays, counts = np.ones(len(images), dtype=bool), np.ones(len(names), dtype=bool)
    earlier = rows_in(digests, images.digests)
    for at in np.flatnonzero(earlier >= 0).tolist():
        row, name = int(earlier[at]), names[at]
        id = int(images.category[row])
        label = known.categories[id].name if id != DISCARDED and images.source[row] != CLUSTERED else None
        is_new = name is not None and name != label
        stays[row], counts[at] = not is_new, is_new
    return np.flatnonzero(stays), np.flatnonzero(counts)
