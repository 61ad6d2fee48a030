"""The scikit-learn estimator: scikit-learn's own checks, discovery, pictures of every kind, and folders."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from camp import CAMP
from camp.app.inputs.folders import read_folder
from camp.app.prediction.model import open_model
from camp.app.prediction.predict import Prediction, predict
from camp.app.workspace.decisions import Merged, Named
from camp.app.workspace.pipeline import LearnRequest, learn_folder
from camp.app.workspace.status import status_text
from camp.app.workspace.storage import WorkspaceSettings
from camp.app.workspace.workspace import Workspace
from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.data.datasets.base import FileReader
from camp.nn.backbones.settings import BackboneSettings

EXPECTED_FAILED = {
    "check_classifiers_classes": "it takes -1 for a class, which means unlabelled here",
    "check_supervised_y_no_nan": "it wants NaN among the labels refused, which means unlabelled here",
}
"""The checks of scikit-learn that do not make sense for CAMP."""

HIDDEN = 6


@pytest.mark.slow
@parametrize_with_checks(
    [CAMP(backbone="embeddings")], expected_failed_checks=lambda estimator: EXPECTED_FAILED
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# Vectors.


def digits(count: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors of six digits, what they show, and labels: a third, of HIDDEN none, -1 elsewhere."""
    x, shown = load_digits(return_X_y=True)
    some = np.flatnonzero(np.isin(shown, [0, 1, 2, 3, 4, HIDDEN]))[:count]
    x, shown = x[some], shown[some]
    labels = np.where((np.arange(len(x)) % 3 == 0) & (shown != HIDDEN), shown, -1)
    return x, shown, labels


@pytest.fixture(scope="module")
def learned() -> CAMP:
    x, _, labels = digits()
    return CAMP(backbone="embeddings").fit(x, labels)


def fresh(**settings) -> CAMP:
    x, _, labels = digits(200)
    return CAMP(backbone="embeddings", new=1, **settings).fit(x, labels)


def test_finds_the_digit_without_labels(learned):
    x, shown, _ = digits()
    (found,) = [category for category in learned.categories_ if category.origin == "discovered"]
    assert found.label == -found.id - 1
    assert found.name is None
    assert found.label in learned.classes_
    assert (learned.predict(x[shown == HIDDEN]) == found.label).mean() > 0.9
    rest = shown != HIDDEN
    assert (learned.predict(x[rest]) == shown[rest]).mean() > 0.9
    assert sum(category.pictures for category in learned.categories_) == len(x)


def test_probabilities_line_up_with_the_classes(learned):
    x, _, _ = digits()
    p = learned.predict_proba(x)
    assert list(learned.classes_) == sorted(category.label for category in learned.categories_)
    assert p.shape == (len(x), len(learned.classes_))
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_array_equal(learned.classes_[p.argmax(axis=1)], learned.predict(x))


def test_points_are_float32(learned):
    x, _, _ = digits()
    z = learned.transform(x)
    assert z.dtype == np.float32
    assert z.shape == (len(x), len(learned.get_feature_names_out()))


def test_unknown_only_if_asked_for(learned):
    far = np.random.default_rng(0).normal(size=(20, 64)) * 100
    assert -1 not in learned.predict(far)
    model = fresh(unknown=True)
    assert (model.predict(far) == -1).any()
    x, _, labels = digits(200)
    words = np.array(
        ["unlabelled digit" if label < 0 else f"digit {label}" for label in labels], dtype=object
    )
    words[labels < 0] = None
    assert "unknown" in CAMP(backbone="embeddings", unknown=True).fit(x, words).predict(far)


def test_every_word_for_unlabelled_means_the_same():
    x, _, labels = digits(60)
    points = []
    for missing, kind in ((-1, int), (None, int), (float("nan"), int), (None, str), (np.float32("nan"), str)):
        given = [missing if label < 0 else kind(label) for label in labels]
        points.append(CAMP(backbone="embeddings", new=1).fit(x, given).transform(x))
    for others in points[1:]:
        np.testing.assert_array_equal(others, points[0])


def test_names_are_given_back_and_discovered_ones_go_by_their_id():
    x, _, labels = digits(200)
    words = [None if label < 0 else f"digit {label}" for label in labels]
    model = CAMP(backbone="embeddings", new=1).fit(x, words)
    assert list(model.classes_) == ["category 6", *(f"digit {n}" for n in range(5))]
    assert set(model.predict(x)) == set(model.classes_)


def test_nothing_labelled_at_all():
    x, _, _ = digits(100)
    model = CAMP(backbone="embeddings", new=3).fit(x)
    assert list(model.classes_) == ["category 1", "category 2", "category 3"]
    model.partial_fit(x[:30], [0] * 30)
    assert 0 in model.classes_


def test_all_labelled_means_nothing_new():
    x, shown, _ = digits(200)
    model = CAMP(backbone="embeddings").fit(x, shown)
    assert {category.origin for category in model.categories_} == {"labelled"}
    assert model.score(x, shown) > 0.9


def test_every_row_counts_also_if_it_came_before():
    x, shown, _ = digits(60)
    twice = np.repeat(x, 2, axis=0)
    model = CAMP(backbone="embeddings").fit(twice, np.repeat(shown, 2))
    assert sum(category.pictures for category in model.categories_) == 120
    model.partial_fit(x, shown)
    assert sum(category.pictures for category in model.categories_) == 180
    digests = model._workspace.knowledge().images.digests
    assert len(np.unique(digests, axis=0)) == 180


def test_batches_add_up_and_old_categories_come_back():
    x, shown, labels = digits(300)
    first = shown < 3
    model = CAMP(backbone="embeddings").partial_fit(x[first], shown[first])
    ids = {category.label: category.id for category in model.categories_}
    model.partial_fit(x[~first], labels[~first])
    model.set_params(new=0).partial_fit(x[first])
    assert all(model._workspace.knowledge().named()[str(label)] == id for label, id in ids.items())
    assert (model.predict(x[first]) == shown[first]).mean() > 0.9
    assert {category.step for category in model.categories_} == {1, 2}


def test_fit_forgets():
    x, shown, _ = digits(200)
    model = fresh().fit(x[shown < 2], shown[shown < 2])
    assert list(model.classes_) == [0, 1]
    assert [event.kind for event in model._workspace.events()] == ["learned"]


def test_training_and_the_same_seed_give_the_same_numbers(capfd):
    x, _, labels = digits(90)
    one, two = (
        CAMP(backbone="embeddings", epochs=1, new=1).fit(x[:60], labels[:60]).partial_fit(x[60:], labels[60:])
        for _ in range(2)
    )
    np.testing.assert_array_equal(one.predict_proba(x), two.predict_proba(x))
    assert not np.array_equal(one.transform(x)[:, :2], CAMP(backbone="embeddings").fit(x).transform(x)[:, :2])
    assert capfd.readouterr() == ("", "")


def test_what_fails_changes_nothing():
    model = fresh()
    x, _, _ = digits(200)
    before = model.predict_proba(x)
    for wrong in ([0.5] * 200, ["heron"] * 200, [-2] * 200, [0] * 10):
        with pytest.raises(ValueError):
            model.partial_fit(x, wrong)
    with pytest.raises(CampError):
        model.set_params(new=500).partial_fit(x)
    np.testing.assert_array_equal(model.predict_proba(x), before)
    assert len(model._workspace.reports()) == 1


def test_pipelines_and_clones():
    x, _, labels = digits(200)
    pipeline = clone(make_pipeline(StandardScaler(), CAMP(backbone="embeddings", new=1, seed=3)))
    assert pipeline.fit(x, labels).predict(x).shape == (200,)
    assert pipeline[-1].seed == 3


@pytest.mark.parametrize(
    "x", [np.zeros((9, 3)), np.repeat(np.eye(3), 4, axis=0), np.ones((1, 5)), np.ones((2, 1))]
)
@pytest.mark.parametrize("labelled", [0, 1, 2])
@pytest.mark.filterwarnings("error")
def test_next_to_nothing_can_be_learned(x, labelled):
    model = CAMP(backbone="embeddings").fit(x, [0, 1][:labelled][: len(x)] + [-1] * (len(x) - labelled))
    assert np.isfinite(model.predict_proba(x)).all()
    assert sum(category.pictures for category in model.categories_) == len(x)


# Decisions.


def test_rename_and_merge():
    x, shown, _ = digits(200)
    model = fresh()
    found = model.categories_[-1]
    before = model.score(x, shown)
    model.rename(found.label, HIDDEN)
    assert model.score(x, shown) > before
    assert [c.label for c in model.categories_ if c.id == found.id] == [HIDDEN]
    model.merge(HIDDEN, 0)
    assert HIDDEN not in model.classes_
    assert (model.predict(x[shown == HIDDEN]) == 0).mean() > 0.5
    with pytest.raises(CampError, match="No category has the label 6"):
        model.rename(HIDDEN, 8)
    with pytest.raises(CampError, match="integer"):
        model.rename(0, "zero")
    with pytest.raises(CampError, match="already"):
        model.rename(0, 1)


def test_names_can_be_given_by_id_and_taken_away():
    x, _, _ = digits(100)
    model = CAMP(backbone="embeddings", new=2).fit(x)
    model.rename(1, "heron").rename("category 2", "wren")
    assert list(model.classes_) == ["heron", "wren"]
    model.rename("heron", None)
    assert list(model.classes_) == ["category 1", "wren"]
    with pytest.raises(CampError, match="string"):
        model.rename("wren", 3)
    with pytest.raises(CampError, match="no category called"):
        model.rename("robin", "wren")


def test_unfitted():
    model = CAMP()
    for ask in (
        lambda: model.predict(["a.png"]),
        lambda: model.categories_,
        lambda: model.rename(1, "a"),
        lambda: model.merge(1, 2),
        lambda: model.save("nowhere"),
    ):
        with pytest.raises(NotFittedError):
            ask()
    assert not Path("nowhere").exists()


# Folders.


def test_saved_and_loaded_answers_the_same_and_goes_on_the_same(tmp_path):
    x, _, labels = digits(260)
    model = fresh().rename(-7, HIDDEN)
    loaded = CAMP.load(model.save(tmp_path / "w")._workspace.storage.folder)
    for one, other in ((model.predict(x), loaded.predict(x)), (model.transform(x), loaded.transform(x))):
        np.testing.assert_array_equal(one, other)
    assert loaded.categories_ == model.categories_
    assert loaded.n_features_in_ == 64
    model.set_params(new=None).partial_fit(x[200:], labels[200:])
    loaded.partial_fit(x[200:], labels[200:])
    np.testing.assert_array_equal(model.predict_proba(x), loaded.predict_proba(x))


def test_saving_again_adds_what_happened_since(tmp_path):
    x, _, labels = digits(300)
    model = fresh().save(tmp_path / "w").rename(-7, HIDDEN)
    model.set_params(new=0).partial_fit(x[200:250]).partial_fit(x[250:], labels[250:]).merge(HIDDEN, 0)
    model.save(tmp_path / "w").save(tmp_path / "w")
    workspace = Workspace.open(tmp_path / "w")
    kinds = [event.kind for event in workspace.events()]
    assert kinds == ["learned", "named", "learned", "learned", "merged"]
    assert [event.number for event in workspace.events()] == [1, 2, 3, 4, 5]
    assert [report.n_images for report in workspace.reports()] == [200, 50, len(x) - 250]
    assert not (tmp_path / "w/steps/0001/features.npy").exists()
    assert "Python: 50 pictures" in status_text(workspace)
    np.testing.assert_array_equal(CAMP.load(tmp_path / "w").predict(x), model.predict(x))
    elsewhere = CAMP.load(tmp_path / "w").save(tmp_path / "copy")
    np.testing.assert_array_equal(CAMP.load(tmp_path / "copy").predict(x), model.predict(x))
    assert Workspace.open(tmp_path / "copy").reports() == workspace.reports()
    assert elsewhere._workspace.storage.folder == (tmp_path / "copy").resolve()


def test_saving_over_something_else_is_refused(tmp_path):
    model = fresh().save(tmp_path / "w")
    with pytest.raises(CampError, match="another workspace"):
        fresh().save(tmp_path / "w")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "diary.txt").write_text("dear")
    with pytest.raises(CampError, match="not a workspace"):
        model.save(tmp_path / "other")
    (tmp_path / "empty").mkdir()
    model.save(tmp_path / "empty")
    other = CAMP.load(tmp_path / "w")
    other.rename(-7, 8).save(tmp_path / "w")
    late = CAMP.load(tmp_path / "empty")
    Workspace.open(tmp_path / "empty").decide(Merged(category=2, into=1))
    with pytest.raises(CampError, match="has changed"):
        late.rename(-7, 9).save(tmp_path / "empty")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "other", "w"]


def test_a_save_that_fails_leaves_the_folder_as_it_was(tmp_path, monkeypatch):
    x, _, labels = digits(200)
    model = fresh().save(tmp_path / "w")
    before = model.predict(x)
    model.partial_fit(x, labels)

    def full(*_):
        raise CampError("The disk is full.")

    monkeypatch.setattr("camp.app.workspace.storage.extend_log", full)
    for folder in ("w", "new"):
        with pytest.raises(CampError, match="full"):
            model.save(tmp_path / folder)
    assert [path.name for path in tmp_path.iterdir()] == ["w"]
    np.testing.assert_array_equal(CAMP.load(tmp_path / "w").predict(x), before)
    monkeypatch.undo()
    model.save(tmp_path / "w")
    np.testing.assert_array_equal(CAMP.load(tmp_path / "w").predict(x), model.predict(x))


def test_a_person_who_names_in_words_turns_numbers_into_names(tmp_path):
    fresh().save(tmp_path / "w")
    Workspace.open(tmp_path / "w").decide(Named(category=6, name="six"))
    assert list(CAMP.load(tmp_path / "w").classes_) == ["0", "1", "2", "3", "4", "six"]


# Pictures.


def write_pictures(folder: Path) -> tuple[list[Path], list[str | None]]:
    """24 PNG files of three colours, and labels of two of them."""
    draw = np.random.default_rng(4)
    paths: list[Path] = []
    labels: list[str | None] = []
    for place in range(24):
        colour = np.array([(220, 40, 30), (30, 200, 50), (40, 60, 230)][place % 3])
        noise = draw.integers(-25, 26, (4, 5, 3))
        small = Image.fromarray((colour + noise).clip(0, 255).astype(np.uint8))
        paths.append(folder / f"{place:02d}.png")
        folder.mkdir(exist_ok=True)
        small.resize((50, 40), Image.Resampling.BICUBIC).save(paths[-1])
        labels.append(("red", "green", None)[place % 3] if place < 12 else None)
    return paths, labels


@pytest.fixture(scope="module")
def birds(tmp_path_factory) -> tuple[CAMP, list[Path]]:
    paths, labels = write_pictures(tmp_path_factory.mktemp("pictures"))
    return CAMP(backbone="conv-tiny", new=1).fit(paths, labels), paths


def test_pictures_of_every_kind_are_the_same(birds):
    model, paths = birds
    assert list(model.predict(paths[:3])) == ["red", "green", "category 3"]
    images = [Image.open(path) for path in paths]
    arrays = [np.asarray(image) for image in images]
    mixed = [str(paths[0]), images[1], arrays[2]] * 8
    expected = model.transform(paths)
    for given in (images, arrays, np.stack(arrays), [str(path) for path in paths]):
        np.testing.assert_array_equal(model.transform(given), expected)
    np.testing.assert_array_equal(model.predict(mixed[:3]), model.predict(paths[:3]))
    labels = ["red", "green", None] * 8
    one, two = (CAMP(backbone="conv-tiny", new=1).fit(given, labels) for given in (paths, np.stack(arrays)))
    np.testing.assert_array_equal(one.predict_proba(paths), two.predict_proba(paths))


def test_training_on_pictures(birds, tmp_path):
    _, paths = birds
    model = CAMP(resolution=32, epochs=1, views=2, new=1).fit(paths, ["red", "green", None] * 8)
    np.testing.assert_array_equal(
        CAMP.load(model.save(tmp_path / "w")._workspace.storage.folder).predict_proba(paths),
        model.predict_proba(paths),
    )
    assert model._workspace.reports()[0].views == 2


def test_the_commands_work_on_what_was_saved(birds, tmp_path):
    model, paths = birds
    model.save(tmp_path / "birds")
    workspace = Workspace.open(tmp_path / "birds")
    assert set(workspace.knowledge().named()) == {"red", "green"}
    assert "24 pictures" in status_text(workspace)
    rows = list(predict(open_model(workspace), FileReader(paths[0].parent), [path.name for path in paths]))
    np.testing.assert_array_equal([row.name for row in rows], model.predict(paths))
    assert all(isinstance(row, Prediction) for row in rows)
    np.testing.assert_allclose(
        [row.confidence for row in rows], model.predict_proba(paths).max(axis=1), atol=1e-5
    )
    more = tmp_path / "more"
    write_pictures(more)
    with pytest.raises(CampError, match="All 24 pictures have been learned before"):
        learn_folder(tmp_path / "birds", LearnRequest(read_folder(more), new=0), None, Progress(quiet=True))
    Image.new("RGB", (20, 20), "red").save(more / "another.png")
    report = learn_folder(
        tmp_path / "birds", LearnRequest(read_folder(more), new=0), None, Progress(quiet=True)
    )
    assert report.step == 2
    assert report.repeated == 24
    assert CAMP.load(tmp_path / "birds").predict(paths[:2]).tolist() == ["red", "green"]


def test_what_camp_learn_made_can_be_loaded_and_taught(tmp_path):
    paths, _ = write_pictures(tmp_path / "loose")
    for place, path in enumerate(paths[:12]):
        kind = tmp_path / "january" / ("red", "green", "unlabelled")[place % 3]
        kind.mkdir(parents=True, exist_ok=True)
        path.rename(kind / path.name)
    settings = WorkspaceSettings(BackboneSettings(backbone="conv-tiny"), thumbnails=2)
    learn_folder(
        tmp_path / "w",
        LearnRequest(read_folder(tmp_path / "january"), new=1),
        settings,
        Progress(quiet=True),
    )
    model = CAMP.load(tmp_path / "w")
    assert list(model.classes_) == ["category 3", "green", "red"]
    model.set_params(new=0).partial_fit(paths[12:]).rename("category 3", "blue").save(tmp_path / "w")
    loaded = CAMP.load(tmp_path / "w")
    assert list(loaded.classes_) == ["blue", "green", "red"]
    np.testing.assert_array_equal(loaded.predict_proba(paths[12:]), model.predict_proba(paths[12:]))
    assert sum(category.pictures for category in loaded.categories_) == 24
    assert any((tmp_path / "w" / "thumbnails").rglob("*.jpg"))
    model.save(tmp_path / "copy")
    assert any((tmp_path / "copy" / "thumbnails").rglob("*.jpg"))


def test_pictures_that_can_not_be_read_are_named(birds, tmp_path):
    model, paths = birds
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no picture")
    for ask in (model.predict, CAMP(backbone="conv-tiny").fit):
        with pytest.raises(CampError, match=r"broken\.png cannot be read: not an image"):
            ask([paths[0], broken])
        with pytest.raises(CampError, match=r"gone\.png cannot be read"):
            ask([tmp_path / "gone.png"])


def test_the_rate_of_false_alarms_takes_effect_at_once() -> None:
    draw = np.random.default_rng(0)
    labels = np.arange(300) % 10
    x = (4 * np.eye(12)[labels] + draw.normal(size=(300, 12))).astype(np.float32)
    model = CAMP(backbone="embeddings", new=0, unknown=True).fit(x, labels)
    new = (4 * np.eye(12)[labels] + draw.normal(size=(300, 12))).astype(np.float32)
    shares = [
        np.mean(model.set_params(false_alarms=rate).predict(new) == -1) for rate in (0.02, 0.1, 0.4, 0.02)
    ]
    assert shares[0] < shares[1] < shares[2]
    assert shares[3] == shares[0]
    with pytest.raises(CampError, match="The rate of false alarms"):
        model.set_params(false_alarms=0).predict(new)
