"""Semi-supervised k-means against a plain run-by-run implementation with the same k-means++ draws."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import cluster

from camp.core.errors import CampError
from camp.core.progress import Bar
from camp.discovery import semi_supervised_kmeans as module
from camp.discovery.semi_supervised_kmeans import KMeans, semi_supervised_kmeans


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def mixture(n: int = 240, dim: int = 5, known: int = 3, novel: int = 2, noise: float = 0.8, seed: int = 0):
    """Points of overlapping classes in float64, and labels 10, 11, ... for half of the known ones."""
    g = draw(seed)
    means = 2 * torch.randn(known + novel, dim, generator=g, dtype=torch.float64)
    classes = torch.arange(n) % (known + novel)
    x = 30 + means[classes] + noise * torch.randn(n, dim, generator=g, dtype=torch.float64)
    labelled = (classes < known) & (torch.rand(n, generator=g) < 0.5)
    return x, torch.where(labelled, classes + 10, -1), classes


def squared(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a[:, None, :] - b).square().sum(dim=2)


def plain(
    x, labels, n_novel: int, n_init: int, seed: int, max_iterations: int = 200
) -> tuple[float, torch.Tensor]:
    """The reference's algorithm, one run at a time, for data where no cluster runs empty."""
    known = labels[labels >= 0].unique()
    free = x[labels < 0]
    draws = torch.rand(n_init, n_novel, generator=draw(seed), dtype=torch.float64)
    best = (math.inf, torch.empty(0))
    for run in range(n_init):
        centres = [x[labels == label].mean(dim=0) for label in known]
        for u in draws[run]:
            weights = squared(free, torch.stack(centres)).amin(dim=1) if centres else torch.ones(len(free))
            cumulative = weights.double().cumsum(dim=0)
            centres.append(free[int(torch.searchsorted(cumulative, u * cumulative[-1], right=True))])
        centres = torch.stack(centres)
        for _ in range(max_iterations):
            rows = squared(x, centres).argmin(dim=1)
            for position, label in enumerate(known):
                rows[labels == label] = position
            moved = torch.stack([x[rows == j].mean(dim=0) for j in range(len(centres))])
            step = (moved - centres).norm(dim=1).sum()
            centres = moved
            if step**2 < 1e-4:
                break
        inertia = float((x - centres[rows]).square().sum())
        if inertia < best[0]:
            best = (inertia, centres)
    return best


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("known", "novel"), [(3, 2), (1, 4), (0, 4), (4, 0)])
def test_same_draws_give_the_plain_result(known: int, novel: int, seed: int) -> None:
    x, labels, _ = mixture(known=known, novel=novel, seed=seed)
    found = semi_supervised_kmeans(x, labels, novel, n_init=6, generator=draw(seed))
    inertia, centres = plain(x, labels, novel, 6, seed)
    assert found.inertia == pytest.approx(inertia, rel=1e-9)
    # Two runs may end in the same optimum with its novel clusters in another order.
    assert torch.allclose(found.centroids[:known], centres[:known], atol=1e-8)
    ours, theirs = (c[known:][c[known:, 0].argsort()] for c in (found.centroids, centres))
    assert torch.allclose(ours, theirs, atol=1e-8)


def test_float32_is_as_accurate_as_plain_k_means_in_float64() -> None:
    x, labels, _ = mixture(n=1000, dim=20, known=6, novel=4, noise=1.5)
    found = semi_supervised_kmeans(x.float(), labels, 4, n_init=10, generator=draw(5))
    assert found.inertia <= plain(x, labels, 4, 10, 5)[0] * (1 + 1e-5)


def test_without_labels_it_is_scikit_learns_k_means() -> None:
    x, *_ = mixture(known=0, novel=5, noise=0.5)
    found = semi_supervised_kmeans(x, torch.full((len(x),), -1), 5, n_init=30, generator=draw())
    theirs = cluster.KMeans(5, n_init=30, random_state=0).fit(x.numpy())
    assert found.inertia == pytest.approx(theirs.inertia_, rel=1e-5)
    pairs = set(zip(found.assignments.tolist(), theirs.labels_.tolist()))
    assert len(pairs) == 5  # the same partition under other numbers


def check(found: KMeans, x: torch.Tensor, labels: torch.Tensor, n_novel: int) -> None:
    """What holds for every result."""
    known = tuple(sorted({int(label) for label in labels if label >= 0}))
    k = len(known) + n_novel
    assert found.known_labels == known
    assert found.centroids.shape == (k, x.shape[1])
    assert found.centroids.isfinite().all()
    assert found.assignments.shape == labels.shape
    assert 0 <= int(found.assignments.min()) <= int(found.assignments.max()) < k
    for position, label in enumerate(known):
        assert (found.assignments[labels == label] == position).all()
    for j in range(k):
        members = x[found.assignments == j]
        if len(members):
            assert torch.allclose(found.centroids[j].double(), members.double().mean(dim=0), atol=1e-4)
    inertia = (x.double() - found.centroids.double()[found.assignments]).square().sum()
    assert found.inertia == pytest.approx(float(inertia), rel=1e-4, abs=1e-3)


@given(
    st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2), st.integers(-1, 2)), min_size=2, max_size=14),
    st.integers(0, 4),
    st.integers(0, 50),
)
@settings(max_examples=120, deadline=None)
def test_any_small_problem_with_duplicates(points, n_novel: int, seed: int) -> None:
    table = torch.tensor(points)
    x, labels = table[:, :2].float(), table[:, 2]
    free = int((labels < 0).sum())
    if n_novel > free or (n_novel == 0 and free == len(labels)):
        with pytest.raises(CampError):
            semi_supervised_kmeans(x, labels, n_novel, n_init=4, generator=draw(seed))
        return
    check(semi_supervised_kmeans(x, labels, n_novel, n_init=4, generator=draw(seed)), x, labels, n_novel)


def test_as_many_clusters_as_distinct_points() -> None:
    x = torch.tensor([[0.0], [1.0], [2.0], [3.0], [50.0]])
    found = semi_supervised_kmeans(x, torch.full((5,), -1), 5, n_init=1, generator=draw())
    assert sorted(found.centroids[:, 0].tolist()) == [0.0, 1.0, 2.0, 3.0, 50.0]
    assert found.inertia == 0.0


def test_identical_points_leave_clusters_empty_but_finite() -> None:
    x = torch.full((8, 3), 7.0)
    found = semi_supervised_kmeans(x, torch.full((8,), -1), 3, n_init=5, generator=draw())
    assert torch.allclose(found.centroids, x[:3])
    assert found.inertia == 0.0


def test_an_empty_cluster_takes_the_farthest_point() -> None:
    # Two centres at 0 and 0.1 and one at 100, where no point is: the far point at 9 refills it.
    points = module._Points(torch.tensor([[0.0], [0.1], [0.2], [9.0]]), torch.tensor([0.0, 0.01, 0.04, 81.0]))
    assignments, nearest = module._assign(points, torch.tensor([[[0.0], [0.1], [100.0]]]))
    assert assignments.tolist() == [[0, 1, 1, 1]]
    counts = module._fill_empty(assignments, nearest, torch.zeros(3))
    assert assignments.tolist() == [[0, 1, 1, 2]]
    assert counts.tolist() == [[1, 2, 1]]


def test_labelled_points_stay_even_where_another_centre_is_nearer() -> None:
    x = torch.tensor([[0.0], [0.0], [10.0], [10.1], [9.9]])
    labels = torch.tensor([3, 3, 3, -1, -1])
    found = semi_supervised_kmeans(x, labels, 1, n_init=5, generator=draw())
    assert found.assignments.tolist() == [0, 0, 0, 1, 1]
    assert found.centroids[:, 0].tolist() == pytest.approx([10 / 3, 10.0])


def test_everything_labelled() -> None:
    x, labels = torch.tensor([[0.0], [2.0], [5.0]]), torch.tensor([4, 4, 1])
    found = semi_supervised_kmeans(x, labels, 0, generator=draw())
    assert found.known_labels == (1, 4)
    assert found.centroids[:, 0].tolist() == [5.0, 1.0]
    assert found.assignments.tolist() == [1, 1, 0]


def test_the_same_generator_gives_the_same_number() -> None:
    x, labels, _ = mixture()
    first, second = (semi_supervised_kmeans(x, labels, 2, n_init=5, generator=draw(3)) for _ in range(2))
    assert torch.equal(first.centroids, second.centroids)
    assert torch.equal(first.assignments, second.assignments)


def test_small_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, labels, _ = mixture()
    whole = semi_supervised_kmeans(x, labels, 2, n_init=7, generator=draw(3))
    monkeypatch.setattr(module, "SCORES_AT_ONCE", 200)
    monkeypatch.setattr(module, "STATE_AT_ONCE", 400)
    parts = semi_supervised_kmeans(x, labels, 2, n_init=7, generator=draw(3))
    assert parts.inertia == pytest.approx(whole.inertia, rel=1e-12)
    assert torch.equal(parts.assignments, whole.assignments)


def test_more_runs_are_never_worse_and_iterations_are_bounded() -> None:
    x, labels, _ = mixture(noise=2.0, known=1, novel=6, n=300)
    few = semi_supervised_kmeans(x, labels, 6, n_init=2, generator=draw(1))
    many = semi_supervised_kmeans(x, labels, 6, n_init=40, generator=draw(1))
    short = semi_supervised_kmeans(x, labels, 6, n_init=40, max_iterations=2, generator=draw(1))
    assert many.inertia <= few.inertia * (1 + 1e-12)
    assert short.iterations <= 2
    assert many.inertia < short.inertia


@pytest.mark.parametrize(("known", "novel"), [(3, 2), (4, 0), (0, 3)])
def test_progress_counts_every_run(known: int, novel: int) -> None:
    x, labels, _ = mixture(known=known, novel=novel)
    bar = Bar("Clustering", 9)
    semi_supervised_kmeans(x, labels, novel, n_init=9, generator=draw(), progress=bar)
    assert bar.done == 9


def test_refusals() -> None:
    x, labels = torch.zeros(4, 2), torch.tensor([0, 0, -1, -1])
    with pytest.raises(CampError, match="only 2 images are unlabelled"):
        semi_supervised_kmeans(x, labels, 3, generator=draw())
    with pytest.raises(CampError, match="nothing to find"):
        semi_supervised_kmeans(x, torch.full((4,), -1), 0, generator=draw())
    with pytest.raises(CampError, match="NaN"):
        semi_supervised_kmeans(x / 0, labels, 1, generator=draw())
    with pytest.raises(CampError, match=r"\(n, D\)"):
        semi_supervised_kmeans(x, labels[:2], 1, generator=draw())
    with pytest.raises(CampError, match="n_init"):
        semi_supervised_kmeans(x, labels, 1, n_init=0, generator=draw())
