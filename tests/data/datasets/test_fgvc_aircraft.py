"""The official layout of FGVC-Aircraft, and class folders."""

import pytest
from tiny_trees import paint, parts

from camp.core.errors import CampError
from camp.data.datasets import load_dataset


@pytest.mark.parametrize("inside", ["data", "fgvc-aircraft-2013b/data", "."])
def test_aircraft_archive(tmp_path, inside):
    root = tmp_path / inside
    for number in (11, 12, 13, 14):
        paint(root / "images" / f"{number}.jpg")
    (root / "images_variant_trainval.txt").write_text("12 F/A-18\n11 BAE 146-200\n")
    (root / "images_variant_test.txt").write_text("14 BAE 146-200\n13 F/A-18\n")
    dataset = load_dataset("fgvc_aircraft", tmp_path)
    assert dataset.classes == ("BAE 146-200", "F/A-18")
    assert parts(dataset, "F/A-18") == (["images/12.jpg"], ["images/13.jpg"])
    (root / "images_variant_test.txt").write_text("14 Zeppelin\n")
    with pytest.raises(CampError, match="Zeppelin"):
        load_dataset("fgvc_aircraft", tmp_path)
    (root / "images_variant_test.txt").write_text("99 F/A-18\n")
    with pytest.raises(CampError, match=r"99.*missing"):
        load_dataset("fgvc_aircraft", tmp_path)


def test_aircraft_in_class_folders(tmp_path):
    for name in ("F_A-18", "F-16A_B", "707-320"):
        for part in ("train", "test"):
            paint(tmp_path / part / name / "1.jpg")
    assert load_dataset("fgvc_aircraft", tmp_path).classes == ("707-320", "F-16A/B", "F/A-18")
