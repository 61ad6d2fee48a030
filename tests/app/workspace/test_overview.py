"""The overview of many images: stored with a step, and brought up to date after decisions."""

from pathlib import Path

import numpy as np
import pytest
from small_workspace import small_workspace

from camp.app.inputs.vectors import read_vectors
from camp.app.workspace import learning
from camp.app.workspace import overview as overviews
from camp.app.workspace.check import check_workspace
from camp.app.workspace.decisions import Decision, Discarded, Merged, Moved, Named
from camp.app.workspace.knowledge import Knowledge
from camp.app.workspace.overview import Overview, overview, restored, updated
from camp.app.workspace.pipeline import LearnRequest, learn_folder
from camp.app.workspace.step_files import load_overview
from camp.app.workspace.workspace import Workspace
from camp.core import large_arrays
from camp.core.progress import Progress


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Knowledge:
    return small_workspace(tmp_path_factory.mktemp("overview") / "W").knowledge()


def assert_same(found: Overview, expected: Overview) -> None:
    assert found.ids == expected.ids
    np.testing.assert_allclose(found.regions.centroids, expected.regions.centroids)
    np.testing.assert_allclose(found.regions.radii, expected.regions.radii)
    np.testing.assert_allclose(found.distance, expected.distance, rtol=1e-4)
    np.testing.assert_allclose(found.own, expected.own)
    assert [pair[:2] for pair in found.similar] == [pair[:2] for pair in expected.similar]


@pytest.mark.parametrize(
    "decision",
    [
        Named(category=5, name="four"),
        Merged(category=10, into=9),
        Moved(rows=[3, 5, 8], into=7),
        Moved(rows=[100, 101, 102], into=11, made=True),
        Discarded(category=6),
        Discarded(rows=[20, 21]),
    ],
)
def test_an_overview_after_a_decision_is_nearly_that_of_all_images(
    known: Knowledge, decision: Decision
) -> None:
    now = decision.apply(known)
    found, expected = updated(overview(known), known, now), overview(now)
    assert_same(found, expected)
    # Images of categories that have not changed keep their probabilities, which hardly depend on others.
    assert np.abs(found.confidence - expected.confidence).mean() < 0.1
    here = np.isin(
        now.images.category, np.unique(now.images.category[known.images.category != now.images.category])
    )
    np.testing.assert_allclose(found.confidence[here], expected.confidence[here], atol=1e-5)
    assert np.array_equal(found.runner_up[here], expected.runner_up[here])


def test_the_overview_of_some_images_is_that_of_all_images(known: Knowledge) -> None:
    seen, rows = overview(known), np.array([4, 9, 200])
    part = seen.subset(rows)
    assert part.ids == seen.ids
    assert np.array_equal(part.doubtful(), seen.doubtful()[rows])


def test_a_state_is_the_overview_again(known: Knowledge) -> None:
    seen = overview(known)
    found = restored(seen.state(), known)
    assert_same(found, seen)
    assert np.array_equal(found.confidence, seen.confidence)
    assert np.array_equal(found.runner_up, seen.runner_up)


def test_all_rows_of_categories_are_found_with_and_without_an_index(known: Knowledge) -> None:
    images = known.images.subset(np.arange(len(known.images) - 1))
    expected = {id: images.rows_of(id).tolist() for id in known.categories}
    images.index_categories()
    assert {id: images.rows_of(id).tolist() for id in known.categories} == expected


def test_camp_learn_stores_the_overview_of_many_images_until_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(0)
    means = 3 * draw.normal(size=(8, 40))
    for number, count in ((1, 8), (2, 6)):
        truth = draw.integers(0, count, 240)
        x = (means[truth] + draw.normal(size=(240, 40))).astype(np.float32)
        labels = np.where((truth < 5) & (np.arange(240) % 4 == 0), truth, -1)
        np.savez(tmp_path / f"{number}.npz", vectors=x, labels=labels)

    def learned(name: str) -> Workspace:
        for number in (1, 2):
            request = LearnRequest(read_vectors(tmp_path / f"{number}.npz"))
            learn_folder(tmp_path / name, request, None, Progress(quiet=True))
        return Workspace.open(tmp_path / name)

    plain = learned("plain")
    monkeypatch.setattr(large_arrays, "LARGE_BYTES", 1)
    monkeypatch.setattr(learning, "LARGE", 100)
    mapped = learned("mapped")
    one, other = plain.knowledge(), mapped.knowledge()
    for name in ("features", "points", "category", "positions", "digests"):
        assert np.array_equal(getattr(one.images, name), getattr(other.images, name)), name
    assert check_workspace(tmp_path / "mapped", Progress(quiet=True)) == []
    assert load_overview(tmp_path / "plain/steps/0002") is None
    assert load_overview(tmp_path / "mapped/steps/0001") is None
    assert load_overview(tmp_path / "mapped/steps/0002") is not None
    monkeypatch.setattr(overviews, "overview", None)  # it is read, not computed
    assert_same(mapped.overview(other), overview(one))
