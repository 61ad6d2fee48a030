"""The map: everything has a place on it, the same one every time."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from camp.app.workspace import tsne_layout as layout
from camp.app.workspace.tsne_layout import tsne_layout
from camp.core.progress import Progress

QUIET = Progress(quiet=True)
NONE = np.empty((0, 2), np.float32)


def blobs(sizes: tuple[int, ...], dim: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, dim) of categories far apart, and the categories."""
    categories = np.repeat(np.arange(len(sizes)), sizes)
    noise = np.random.default_rng(0).normal(0, 0.1, (len(categories), dim))
    return (noise + 5 * np.eye(dim)[categories]).astype(np.float32), categories


def spread(positions: np.ndarray, categories: np.ndarray) -> tuple[float, float]:
    """Mean distance of pictures to the middle of their category, and between the middles."""
    middles = np.array([positions[categories == k].mean(axis=0) for k in np.unique(categories)])
    within = np.linalg.norm(positions - middles[categories], axis=1).mean()
    apart = np.linalg.norm(middles[:, None] - middles, axis=2)
    return float(within), float(apart[np.triu_indices(len(middles), 1)].min())


def on_the_map(positions: np.ndarray, count: int) -> bool:
    return (
        positions.shape == (count, 2)
        and positions.dtype == np.float32
        and bool(np.isfinite(positions).all() and (np.abs(positions) <= 1).all())
    )


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 12])
def test_few_pictures(count: int) -> None:
    features, categories = blobs((count,))
    positions = tsne_layout(features, categories, NONE, 0, QUIET)
    assert on_the_map(positions, count)
    assert len(np.unique(positions, axis=0)) == count


def test_categories_stand_apart() -> None:
    features, categories = blobs((20, 20, 20))
    positions = tsne_layout(features, categories, NONE, 0, QUIET)
    assert on_the_map(positions, 60)
    within, apart = spread(positions, categories)
    assert apart > 2 * within


def test_the_same_twice() -> None:
    features, categories = blobs((15, 15))
    first = tsne_layout(features, categories, NONE, 3, QUIET)
    assert np.array_equal(tsne_layout(features.copy(), categories, NONE, 3, QUIET), first)


@pytest.mark.parametrize(("value", "dim"), [(0.0, 8), (2.0, 1)])
def test_pictures_that_are_all_alike(value: float, dim: int) -> None:
    features = np.full((20, dim), value, np.float32)
    assert on_the_map(tsne_layout(features, np.zeros(20, np.int64), NONE, 0, QUIET), 20)


def test_more_pictures_than_landmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "LANDMARKS", 40)
    monkeypatch.setattr(layout, "_CHUNK", 64)
    features, categories = blobs((150, 30, 6))
    positions = tsne_layout(features, categories, NONE, 0, QUIET)
    assert on_the_map(positions, 186)
    within, apart = spread(positions, categories)
    assert apart > 2 * within
    assert np.array_equal(tsne_layout(features, categories, NONE, 0, QUIET), positions)


def test_landmarks_are_spread_over_the_categories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "LANDMARKS", 30)
    categories = np.repeat([7, -1, 9], [200, 20, 4])
    chosen = layout._landmarks(categories, 0)
    assert np.array_equal(chosen, np.unique(chosen))
    ids, counts = np.unique(categories[chosen], return_counts=True)
    assert dict(zip(ids.tolist(), counts.tolist())) == {7: 13, -1: 13, 9: 4}
    assert np.array_equal(chosen, layout._landmarks(categories, 0))
    assert not np.array_equal(chosen, layout._landmarks(categories, 1))


def test_the_map_does_not_turn_over() -> None:
    """Old pictures stay where they were, roughly, when new ones join them."""
    features, categories = blobs((20, 20, 20, 10))
    before = tsne_layout(features[:60], categories[:60], NONE, 0, QUIET)
    after = tsne_layout(features, categories, before, 0, QUIET)
    assert on_the_map(after, 70)
    for axis in (0, 1):
        assert np.corrcoef(before[:, axis], after[:60, axis])[0, 1] > 0.9


@pytest.mark.parametrize("draw", [3, 4])
def test_a_small_map_of_many_kinds_is_turned_back(draw: int) -> None:
    """t-SNE of few pictures forgets where it began; at least left stays left and up stays up."""
    digits = load_digits()
    rows = np.random.default_rng(draw).permutation(len(digits.data))[:90]
    features, categories = digits.data[rows].astype(np.float32), digits.target[rows]
    before = tsne_layout(features[:60], categories[:60], NONE, 0, QUIET)
    after = tsne_layout(features, categories, before, 0, QUIET)
    for axis in (0, 1):
        assert np.corrcoef(before[:, axis], after[:60, axis])[0, 1] > 0.3
