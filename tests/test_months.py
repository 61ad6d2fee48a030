"""The division into months and its evaluation in benchmarks/months.py."""

import runpy
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

MONTHS = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "months.py"))
FIRST, AGAIN, HELD_OUT = 26, 14, 20


def folders(root: Path, parts: list[str], classes: int, images: int) -> Path:
    """Make a dataset of empty files: dividing it opens none of them."""
    for part in parts:
        for number in range(classes):
            folder = root / part / f"{number:03d}.class_{number}"
            folder.mkdir(parents=True)
            for image in range(images):
                (folder / f"{part}-{image}.jpg").touch()
    return root


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    return folders(tmp_path, ["train", "test"], classes=40, images=30)


@pytest.fixture
def domains(tmp_path: Path) -> Path:
    return folders(tmp_path, ["art", "cartoon", "photo", "sketch"], classes=7, images=60)


def sizes(placed: list, month: str) -> Counter:
    return Counter(image.name for image in placed if image.month == month)


def test_every_image_has_one_place_and_the_seed_decides_which(classes: Path) -> None:
    placed = MONTHS["divide"](classes, seed=1, all_unused=True)
    assert len({image.file for image in placed}) == len(placed)
    assert placed == MONTHS["divide"](classes, seed=1, all_unused=True)
    assert placed != MONTHS["divide"](classes, seed=2, all_unused=True)
    assert set(sizes(placed, "new").values()) == {HELD_OUT}
    assert Counter(sizes(placed, "january").values()) == {FIRST: 14}
    assert Counter(sizes(placed, "february").values()) == {FIRST: 8, AGAIN: 6}
    assert Counter(sizes(placed, "march").values()) == {FIRST: 8, AGAIN: 7}


def test_unused_classes_are_only_held_out(classes: Path) -> None:
    placed = MONTHS["divide"](classes, all_unused=True)
    learned = {image.name for image in placed if image.month != "new"}
    assert len(learned) == 30
    assert {image.name for image in placed if image.unused} == {image.name for image in placed} - learned
    few = MONTHS["divide"](classes)  # what `cut` writes
    assert len({image.name for image in few if image.unused}) == 3
    assert [image for image in few if not image.unused] == [image for image in placed if not image.unused]


def test_imbalance_makes_classes_smaller_but_holds_out_the_same_images(classes: Path) -> None:
    equal, tailed = (MONTHS["divide"](classes, imbalance=ratio) for ratio in (1, 10))
    assert [i for i in equal if i.month == "new"] == [i for i in tailed if i.month == "new"]
    first = {
        name: max(sizes(tailed, month)[name] for month in MONTHS["MONTHS"]) for name in sizes(tailed, "new")
    }
    learned = [count for count in first.values() if count]
    assert len(learned) == 30
    assert max(learned) == FIRST
    assert min(learned) == round(FIRST / 10)
    assert min(sizes(tailed, "march").values()) >= 2
    assert {i.name for i in tailed if i.labelled} == {i.name for i in equal if i.labelled}


def test_each_month_has_its_domain(domains: Path) -> None:
    placed = MONTHS["divide"](domains, seed=3, all_unused=True)
    of_month = [{image.domain for image in placed if image.month == month} for month in MONTHS["MONTHS"]]
    assert [len(found) for found in of_month] == [1, 1, 1]
    assert len(set.union(*of_month)) == 3
    assert all(image.domain == image.file.parts[-3] for image in placed)
    held_out = Counter((image.name, image.domain) for image in placed if image.month == "new")
    assert len(held_out) == 7 * 3
    assert set(held_out.values()) == {HELD_OUT}


@pytest.mark.slow
def test_vectors_that_are_far_apart_are_learned_without_error(domains: Path) -> None:
    placed = MONTHS["divide"](domains, all_unused=True)
    names = sorted({image.name for image in placed})
    noise = np.random.default_rng(0).normal(scale=0.05, size=(len(placed), 16))
    x = (np.eye(16)[[names.index(image.name) for image in placed]] + noise).astype(np.float32)
    results = MONTHS["learn_months"](placed, x, seed=0)
    assert [result.true for result in results] == [1, 1, 1]
    assert [result.wrong_merges for result in results] == [0, 0, 0]
    for result in results:
        assert result.mostly_one_class == result.discovered
        assert result.accuracy == pytest.approx(1 - result.false_alarms)
        assert result.auroc == result.detected_at_5 == 1
