"""Batches of a person's pictures: old kinds come back, new ones are found, decisions count, numbers repeat."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from small_images import batch

from camp.app.inputs.folders import read_folder
from camp.app.prediction.model import open_model
from camp.app.prediction.predict import load_image, predict_loaded
from camp.app.workspace.decisions import Discarded, Merged, Moved, Named
from camp.app.workspace.knowledge import CLUSTERED, DISCARDED, LABELLED, Knowledge
from camp.app.workspace.pipeline import LearnRequest, learn_folder
from camp.app.workspace.report import BatchReport
from camp.app.workspace.status import status_text
from camp.app.workspace.storage import WorkspaceSettings
from camp.app.workspace.workspace import Workspace
from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.nn.backbones.settings import BackboneSettings

QUIET = Progress(quiet=True)
SETTINGS = WorkspaceSettings(BackboneSettings(backbone="conv-tiny"), thumbnails=3)


class Birds:
    """A workspace and the batches it is given."""

    def __init__(self, folder: Path, settings: WorkspaceSettings = SETTINGS) -> None:
        self.folder, self.settings = folder, settings
        self.months = 0

    def learn(
        self,
        labelled: Mapping[str, int] | None = None,
        unlabelled: Mapping[str, int] | None = None,
        first: int | None = None,
        **asked: Any,
    ) -> BatchReport:
        """Learn so many pictures of each kind, new ones unless `first` says where they begin; the report."""
        self.months += 1
        start = 50 * self.months if first is None else first
        pictures = batch(self.folder / f"month{self.months}", labelled, unlabelled, start)
        return learn_folder(
            self.folder / "W", LearnRequest(read_folder(pictures), **asked), self.settings, QUIET
        )

    @property
    def workspace(self) -> Workspace:
        return Workspace.open(self.folder / "W")

    @property
    def known(self) -> Knowledge:
        return self.workspace.knowledge()

    def of(self, kind: str, step: int | None = None) -> list[int]:
        """The categories of the pictures that truly are of a kind."""
        images = self.known.images
        return [
            int(id)
            for id, file, when in zip(images.category, images.files, images.steps)
            if f"/{kind}-" in file and (step is None or when == step)
        ]


@pytest.fixture
def birds(tmp_path: Path) -> Birds:
    return Birds(tmp_path)


def kinds_of(report: BatchReport) -> dict[str, list[tuple[str | None, int]]]:
    """What a report says of its categories: name and pictures, by kind."""
    found: dict[str, list[tuple[str | None, int]]] = {}
    for row in report.categories:
        found.setdefault(row.kind, []).append((row.name, row.n_images))
    return found


def test_labels_and_a_discovered_kind(birds: Birds) -> None:
    report = birds.learn({"heron": 6, "robin": 6}, {"heron": 5, "crow": 8})
    assert kinds_of(report) == {"known": [("heron", 11), ("robin", 6)], "discovered": [(None, 8)]}
    assert (report.n_images, report.n_labelled, report.n_new) == (25, 12, 1)
    assert set(birds.of("heron")) == {1}
    assert set(birds.of("crow")) == {3}
    known = birds.known
    assert known.images.source.tolist().count(LABELLED) == 12
    assert known.images.features.dtype == np.float16
    assert np.isfinite(known.images.points).all()
    assert (np.abs(known.images.positions) <= 1).all()


def test_old_kinds_come_back_without_labels(birds: Birds) -> None:
    birds.learn({"heron": 6, "robin": 6}, {"crow": 8}, new=1)
    report = birds.learn({"wren": 6}, {"heron": 6, "crow": 6, "owl": 8}, new=1)
    assert kinds_of(report) == {
        "returned": [("heron", 6), (None, 6)],
        "known": [("wren", 6)],
        "discovered": [(None, 8)],
    }
    assert set(birds.of("heron")) == {1}
    assert set(birds.of("robin")) == {2}
    assert set(birds.of("crow")) == {3}
    assert birds.known.images.files[:20] == sorted(birds.known.images.files[:20])  # month1 comes first


def test_a_label_names_what_was_discovered_earlier(birds: Birds) -> None:
    birds.learn({"heron": 6, "robin": 6}, {"crow": 8}, new=1)
    report = birds.learn({"crow": 4}, {"crow": 3})
    assert [(link.id, link.name) for link in report.linked] == [(3, "crow")]
    assert report.n_new == 0
    assert birds.known.categories[3].name == "crow"
    assert birds.known.categories[3].origin == "discovered"
    assert set(birds.of("crow")) == {3}
    assert "crow is what was discovered as category 3" in report.summary()


def test_so_many_new_ones_as_were_asked_for(birds: Birds) -> None:
    assert birds.learn({"heron": 6}, {"crow": 6, "owl": 6}, new=2).n_new == 2
    assert len({*birds.of("crow"), *birds.of("owl")} - {1}) == 2
    report = birds.learn(None, {"wren": 6}, new=0)
    assert report.n_new == 0
    assert report.new_given
    assert set(birds.of("wren")) <= {1, 2, 3}


def test_none_new_and_nothing_known_is_a_sentence(birds: Birds) -> None:
    with pytest.raises(CampError, match="There is nothing to find"):
        birds.learn(None, {"crow": 5}, new=0)


def test_more_new_ones_than_pictures_is_a_sentence(birds: Birds) -> None:
    with pytest.raises(
        CampError, match="6 new categories are more than there are pictures without a label, 5"
    ):
        birds.learn({"heron": 3}, {"crow": 5}, new=6)
    assert not (birds.folder / "W").exists()


def test_a_batch_without_labels(birds: Birds) -> None:
    report = birds.learn(None, {"heron": 12, "crow": 12})
    assert report.n_labelled == 0
    assert kinds_of(report) == {"discovered": [(None, 12), (None, 12)]}
    assert not set(birds.of("heron")) & set(birds.of("crow"))
    report = birds.learn(None, {"heron": 5})
    assert kinds_of(report) == {"returned": [(None, 5)]}


def test_a_batch_without_unlabelled_pictures(birds: Birds) -> None:
    report = birds.learn({"heron": 5, "crow": 5})
    assert kinds_of(report) == {"known": [("crow", 5), ("heron", 5)]}
    assert report.doubtful == 0
    report = birds.learn({"heron": 4, "owl": 4}, new=3)  # there is nothing that could be new
    assert kinds_of(report) == {"returned": [("heron", 4)], "known": [("owl", 4)]}


@pytest.mark.parametrize("epochs", [0, 1])
def test_one_labelled_picture(birds: Birds, epochs: int) -> None:
    assert kinds_of(birds.learn({"heron": 1}, epochs=epochs)) == {"known": [("heron", 1)]}
    assert kinds_of(birds.learn({"crow": 1}, epochs=epochs)) == {"known": [("crow", 1)]}
    assert kinds_of(birds.learn({"heron": 1}, epochs=epochs)) == {"returned": [("heron", 1)]}
    assert status_text(birds.workspace).startswith(f"{birds.folder / 'W'}: 2 categories")


def test_one_unlabelled_picture_of_an_old_kind(birds: Birds) -> None:
    birds.learn({"heron": 6, "crow": 6})
    assert kinds_of(birds.learn(None, {"crow": 1})) == {"returned": [("crow", 1)]}


@pytest.mark.parametrize("count", [1, 2])
def test_hardly_a_picture_and_no_label(birds: Birds, count: int) -> None:
    report = birds.learn(None, {"crow": count})
    assert sum(row.n_images for row in report.categories) == count
    assert DISCARDED not in birds.known.images.category


def test_a_picture_that_comes_again_counts_once(birds: Birds) -> None:
    birds.learn({"heron": 6, "robin": 6}, {"heron": 4}, first=0)
    report = birds.learn({"robin": 2}, {"heron": 5}, first=0)
    assert report.repeated == 6
    assert report.n_images == 1
    images = birds.known.images
    assert len(images) == len({bytes(digest) for digest in images.digests}) == 17
    assert set(birds.of("heron")) == {1}
    assert "6 pictures had been learned before and count once." in report.summary()


def test_the_same_batch_again_is_nothing_to_learn(birds: Birds) -> None:
    birds.learn({"heron": 6, "robin": 6}, {"crow": 8}, first=0, new=1)
    birds.workspace.decide(Named(category=3, name="black bird"))
    with pytest.raises(CampError, match="All 20 pictures have been learned before"):
        birds.learn({"heron": 6, "robin": 6}, {"crow": 8}, first=0)
    assert set(birds.of("crow")) == {3}
    assert birds.known.step == 1


def test_a_label_is_not_lost_when_the_picture_comes_again_without_it(birds: Birds) -> None:
    birds.learn({"heron": 6, "robin": 6})
    again = birds.folder / "again" / "unlabelled"
    again.mkdir(parents=True)
    for path in (birds.folder / "month1" / "heron").iterdir():
        (again / f"copy of {path.name}").write_bytes(path.read_bytes())
    batch(birds.folder / "again", {"robin": 1}, None, 300)
    learn_folder(birds.folder / "W", LearnRequest(read_folder(birds.folder / "again")), None, QUIET)
    images = birds.known.images
    assert images.source.tolist() == [LABELLED] * 13
    assert birds.known.counts() == {1: 6, 2: 7}


def test_a_new_label_for_an_old_picture_counts(birds: Birds) -> None:
    birds.learn({"heron": 6, "robin": 6})
    corrected = birds.folder / "corrected" / "robin"
    corrected.mkdir(parents=True)
    one = birds.folder / "month1" / "heron" / "heron-050.png"
    (corrected / one.name).write_bytes(one.read_bytes())
    learn_folder(birds.folder / "W", LearnRequest(read_folder(birds.folder / "corrected")), None, QUIET)
    assert birds.known.counts() == {1: 5, 2: 7}


def test_discarded_pictures_stay_out(birds: Birds) -> None:
    birds.learn({"heron": 6, "robin": 6}, {"crow": 8}, new=1)
    crows = birds.known.rows_of(3).tolist()
    birds.workspace.decide(Discarded(rows=crows[:3]))
    birds.workspace.decide(Discarded(category=2))
    birds.learn({"owl": 4}, {"heron": 4})
    known = birds.known
    assert (known.images.category[crows] == [DISCARDED] * 3 + [3] * 5).all()
    assert known.counts() == {1: 10, 3: 5, 4: 4}
    assert known.categories[2].discarded
    model = open_model(birds.workspace)
    assert model.ids == (1, 3, 4)


def test_everything_discarded_and_begun_anew(birds: Birds) -> None:
    birds.learn({"heron": 5}, {"crow": 5}, new=1)
    for id in (1, 2):
        birds.workspace.decide(Discarded(category=id))
    assert "0 categories" in status_text(birds.workspace)
    with pytest.raises(CampError, match="No category has any picture"):
        open_model(birds.workspace)
    birds.learn({"heron": 5, "owl": 5})
    assert birds.known.named() == {"heron": 3, "owl": 4}  # the ids of the discarded ones are not used again


def test_the_next_batch_uses_what_a_person_decided(birds: Birds) -> None:
    birds.learn({"heron": 6}, {"crow": 8, "owl": 8}, new=2)
    crow, owl = birds.of("crow")[0], birds.of("owl")[0]
    assert {crow, owl} == {2, 3}
    birds.workspace.decide(Named(category=crow, name="black bird"))
    birds.workspace.decide(Merged(category=owl, into=1))
    made = birds.known.next_id()
    birds.workspace.decide(Moved(rows=birds.known.rows_of(1)[:6].tolist(), into=made, made=True))  # fmt: skip
    birds.workspace.decide(Named(category=made, name="egret"))
    egrets = {file for file, id in zip(birds.known.images.files, birds.known.images.category) if id == made}
    birds.learn(None, {"crow": 5, "owl": 5, "heron": 5}, new=0)
    assert set(birds.of("crow", step=2)) == {crow}
    assert set(birds.of("owl", step=2)) == {1}
    assert set(birds.of("heron", step=2)) == {made}
    known = birds.known
    assert known.named() == {"heron": 1, "black bird": crow, "egret": made}
    assert egrets <= {known.images.files[row] for row in known.rows_of(made)}
    batch(birds.folder / "names", {"crow": 2}, first=900)
    (birds.folder / "names" / "crow").rename(birds.folder / "names" / "black bird")
    learn_folder(birds.folder / "W", LearnRequest(read_folder(birds.folder / "names")), None, QUIET)
    assert birds.known.named() == known.named()  # the label finds the category by its new name


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [0, 2])
def test_the_same_numbers_twice(tmp_path: Path, epochs: int) -> None:
    found = []
    for name in ("one", "two"):
        birds = Birds(tmp_path / name)
        birds.learn({"heron": 5, "robin": 5}, {"crow": 6}, epochs=epochs)
        report = birds.learn({"wren": 4}, {"heron": 4, "owl": 5}, epochs=epochs)
        report = report.model_copy(update={"seconds": None, "time": None})
        known = birds.known
        columns = {name: np.asarray(values) for name, values in vars(known.images).items()}
        found.append((report, known.categories, known.calibration, columns))
    (*one, first), (*two, second) = found
    assert one == two
    for name in first:
        assert np.array_equal(first[name], second[name]), name


def test_another_seed_gives_other_features(tmp_path: Path) -> None:
    features = []
    for seed in (0, 1):
        settings = WorkspaceSettings(SETTINGS.backbone, seed=seed, thumbnails=0)
        birds = Birds(tmp_path / str(seed), settings)
        birds.learn({"heron": 3})
        features.append(np.asarray(birds.known.images.features))
        assert not (birds.folder / "W" / "thumbnails").exists()  # no picture is kept
    assert not np.array_equal(*features)


def test_old_features_are_carried_through_training(birds: Birds) -> None:
    birds.learn({"heron": 8, "robin": 8}, {"crow": 10}, new=1)
    before = np.asarray(birds.known.images.features, dtype=np.float32)
    tip = {name: t.clone() for name, t in open_model(birds.workspace).backbone.tip.state_dict().items()}
    report = birds.learn({"heron": 6, "wren": 6}, {"robin": 6, "crow": 6, "owl": 8}, epochs=6, new=1)
    assert (report.epochs, report.views) == (6, None)
    assert [row.id for row in report.drift] == [1, 2, 3]
    assert all(row.moved > 0 for row in report.drift)
    after = np.asarray(birds.known.images.features[:26], dtype=np.float32)
    assert not np.allclose(before, after, atol=1e-2)
    model = open_model(birds.workspace)
    assert any(not torch.equal(tip[name], t) for name, t in model.backbone.tip.state_dict().items())
    # Pictures that were never learned are recognised, whether their kind was in the last batch or not.
    right = [name_of(birds, kind, number) == id for kind, id in (("heron", 1), ("robin", 2), ("crow", 3)) for number in range(900, 908)]  # fmt: skip
    assert np.mean(right) > 0.8


def name_of(birds: Birds, kind: str, number: int) -> int | None:
    """The category that a new picture of a kind is recognised as, unknown or not."""
    path = batch(birds.folder / "new", {kind: 1}, first=number) / kind / f"{kind}-{number:03d}.png"
    model = open_model(birds.workspace)
    [(answer, _)] = predict_loaded(model, [("", load_image(model, path.read_bytes()))])
    return answer.runner_up if answer.category is None else answer.category


def test_without_training_features_stay_as_they_are(birds: Birds) -> None:
    birds.learn({"heron": 5, "robin": 5}, {"crow": 6})
    before = np.array(birds.known.images.features)
    report = birds.learn({"wren": 5}, {"heron": 5})
    assert np.array_equal(birds.known.images.features[:16], before)
    assert report.epochs == 0
    assert all(row.moved == 0 for row in report.drift)


def test_broken_pictures_are_left_out_and_listed(birds: Birds) -> None:
    folder = batch(birds.folder / "mixed", {"heron": 5}, {"crow": 5})
    (folder / "heron" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 and no more")
    (folder / "empty.png").write_bytes(b"")
    report = learn_folder(birds.folder / "W", LearnRequest(read_folder(folder), new=1), SETTINGS, QUIET)
    assert (report.n_images, report.unreadable) == (10, 2)
    lines = (birds.folder / "W/steps/0001/unreadable.csv").read_text().splitlines()
    assert lines[0] == "picture,reason"
    assert [line.split(",")[0] for line in lines[1:]] == ["empty.png", "heron/broken.jpg"]
    assert "the file is empty" in lines[1]


def test_copies_count_once_and_labels_may_come_from_a_table(birds: Birds) -> None:
    folder = batch(birds.folder / "mixed", {"heron": 5}, {"crow": 5})
    Image.open(folder / "heron" / "heron-000.png").save(folder / "unlabelled" / "copy.png")
    table = birds.folder / "labels.csv"
    table.write_text("file,label\nunlabelled/crow-000.png,crow\nunlabelled/crow-001.png,crow\n")
    report = learn_folder(birds.folder / "W", LearnRequest(read_folder(folder, table)), SETTINGS, QUIET)
    assert (report.n_images, report.n_labelled) == (10, 7)
    assert report.remarks == [
        "1 picture is there more than once and counts once.",
        "1 picture is there both with and without a label: the label counts.",
    ]
    assert birds.known.counts() == {1: 5, 2: 5}


def test_what_was_found_is_told_apart_from_what_was_said(birds: Birds) -> None:
    birds.learn({"heron": 6}, {"heron": 4})
    sources: Sequence[int] = birds.known.images.source.tolist()
    assert (sources.count(LABELLED), sources.count(CLUSTERED)) == (6, 4)


@pytest.mark.slow
def test_small_pictures_that_fill_few_dimensions(tmp_path: Path) -> None:
    """Float32 eigenvectors of their whitened features were seen not to converge."""
    january = batch(tmp_path / "january", {"heron": 6, "robin": 6}, {"wren": 8, "heron": 4})
    settings = WorkspaceSettings(backbone=BackboneSettings(resolution=64), thumbnails=0)
    report = learn_folder(tmp_path / "W", LearnRequest(read_folder(january)), settings, Progress(quiet=True))
    assert report.n_images == 24
