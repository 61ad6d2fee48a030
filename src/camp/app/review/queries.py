"""What the page is told, as plain values for JSON. Nothing here grows with the number of pictures."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from camp.app.review.state import Snapshot
from camp.app.workspace.events import described, standing
from camp.app.workspace.knowledge import FOUND, LABEL, NOWHERE, PERSON, Category
from camp.app.workspace.overview import most_doubtful, typical

Order = Literal["typical", "doubtful", "newest"]
PAGE = 60
"""Pictures in one answer."""
TYPICAL, DOUBTFUL, NEAR, PAIRS = 5, 3, 6, 12
"""Pictures of a card, neighbours offered first when merging, look-alikes asked about."""
WHO = {FOUND: "found", LABEL: "label", PERSON: "person"}
HISTORY = 200


def everything(now: Snapshot) -> dict[str, Any]:
    """The overview: cards, look-alikes, decisions, and the line on top."""
    categories = now.knowledge.live()
    neighbours = _neighbours(now)
    here = now.knowledge.pictures.category != NOWHERE
    doubtful = now.seen.doubtful() & here & (now.knowledge.pictures.told == FOUND)
    decisions = standing(now.events)
    return {
        "events": now.count,
        "version": now.version,
        "step": now.knowledge.step,
        "pictures": int(here.sum()),
        "discarded": int((~here).sum()),
        "unnamed": sum(category.name is None for category in categories),
        "doubtful": int(doubtful.sum()),
        "categories": [_card(now, category, doubtful, neighbours) for category in categories],
        "alike": [[a, b] for a, b, _ in now.seen.alike[:PAIRS]],
        "last": _last_batch(now),
        "decisions": len(decisions),
        "history": [
            {"event": event["event"], "time": event["time"], "said": described(event, now.knowledge)}
            for event in reversed(decisions[-HISTORY:])
        ],
    }


def _card(
    now: Snapshot, category: Category, doubtful: np.ndarray, neighbours: dict[int, list[int]]
) -> dict[str, Any]:
    rows = now.knowledge.rows_of(category.id)
    told = np.bincount(now.knowledge.pictures.told[rows], minlength=len(WHO))
    uncertain = most_doubtful(now.knowledge, now.seen, category.id)
    uncertain = uncertain[doubtful[uncertain]]
    need = now.needs[category.id]
    return {
        "id": category.id,
        "name": category.name,
        "title": category.title,
        "origin": category.origin,
        "step": category.step,
        "pictures": len(rows),
        **{who: int(told[code]) for code, who in WHO.items()},
        "sure": _number(now.seen.own[rows].mean()) if len(rows) else None,
        "doubtful": len(uncertain),
        "need": round(need.score, 4),
        "reason": need.reason,
        "near": neighbours.get(category.id, []),
        "typical": _tiles(now, _preferring_kept(now, typical(now.knowledge, now.seen, category.id), TYPICAL)),
        "uncertain": _tiles(now, _preferring_kept(now, uncertain, DOUBTFUL)),
    }


def _last_batch(now: Snapshot) -> dict[str, Any] | None:
    """The last learning step in a few words' worth."""
    if not now.reports:
        return None
    return {key: now.reports[-1].get(key) for key in ("step", "time", "folder", "pictures", "n_new")}


def ordered(now: Snapshot, id: int, order: Order) -> np.ndarray:
    """Rows of a category in the order a person asked for."""
    now.knowledge.category(id)
    if order == "typical":
        return typical(now.knowledge, now.seen, id)
    if order == "doubtful":
        return most_doubtful(now.knowledge, now.seen, id)
    rows = now.knowledge.rows_of(id)
    return rows[np.argsort(-now.knowledge.pictures.steps[rows], kind="stable")]


def pictures(now: Snapshot, rows: Sequence[int] | np.ndarray) -> list[dict[str, Any]]:
    """What is known about single pictures."""
    known, seen = now.knowledge.pictures, now.seen
    doubtful = seen.doubtful() & (known.told == FOUND)
    told = []
    for row, tile in zip(rows, _tiles(now, rows)):
        category, rival = int(known.category[row]), int(seen.rival[row])
        told.append(
            {
                **tile,
                "category": category,
                "batch": int(known.steps[row]),
                "who": WHO[int(known.told[row])],
                "sure": _number(seen.own[row]),
                "distance": _number(seen.distance[row]),
                "rival": None if rival == NOWHERE else now.knowledge.categories[rival].title,
                "doubtful": bool(doubtful[row]),
            }
        )
    return told


def half(now: Snapshot, rows: np.ndarray) -> dict[str, Any]:
    """One half of a category that might be split, with some of its pictures."""
    rows = rows[np.argsort(now.seen.distance[rows], kind="stable")]
    return {"pictures": len(rows), "tiles": _tiles(now, _preferring_kept(now, rows, 12))}


def _tiles(now: Snapshot, rows: Sequence[int] | np.ndarray) -> list[dict[str, Any]]:
    files = now.knowledge.pictures.files
    return [{"row": int(row), "file": files[row], "kept": bool(now.kept[row])} for row in rows]


def _preferring_kept(now: Snapshot, rows: np.ndarray, count: int) -> np.ndarray:
    """The first `count` rows that can be shown, or as many others as are missing."""
    return rows[np.argsort(~now.kept[rows], kind="stable")][:count]


def _neighbours(now: Snapshot) -> dict[int, list[int]]:
    """Ids of the nearest other categories, the nearest first."""
    ids = now.seen.ids
    if len(ids) < 2:
        return {}
    centroids = now.seen.classifier.centroids
    distances = torch.cdist(centroids, centroids).fill_diagonal_(torch.inf)
    nearest = distances.topk(min(NEAR, len(ids) - 1), dim=1, largest=False).indices.tolist()
    return {id: [ids[place] for place in places] for id, places in zip(ids, nearest)}


def _number(value: float) -> float | None:
    """Three digits; JSON has no infinity."""
    return round(float(value), 3) if np.isfinite(value) else None
