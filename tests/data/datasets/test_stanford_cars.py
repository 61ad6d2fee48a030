"""The layouts of Stanford Cars."""

import numpy as np
import pytest
from scipy.io import savemat
from tiny_trees import paint, parts

from camp.core.errors import CampError
from camp.data.datasets import load_dataset


def annotations(rows: list[dict]) -> dict:
    kinds = [(name, object) for name in rows[0]]
    table = np.array([tuple(row.values()) for row in rows], dtype=kinds)
    return {"annotations": table[None]}


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("labels_in", ["", "devkit/"])
def test_cars_devkit(tmp_path, wrapped, labels_in):
    (tmp_path / "devkit").mkdir()
    for folder in ("cars_train", "cars_test"):
        for number in (1, 2):
            paint(tmp_path / folder / (folder if wrapped else "") / f"{number:05d}.jpg")
    train = [
        {"bbox_x1": 1, "class": 196, "fname": "00001.jpg"},
        {"bbox_x1": 1, "class": 1, "fname": "00002.jpg"},
    ]
    test = [
        {"bbox_x1": 1, "class": 1, "fname": "00001.jpg"},
        {"bbox_x1": 1, "class": 196, "fname": "00002.jpg"},
    ]
    savemat(tmp_path / "devkit" / "cars_train_annos.mat", annotations(train))
    with pytest.raises(CampError, match="withlabels"):
        load_dataset("stanford_cars", tmp_path)
    savemat(tmp_path / f"{labels_in}cars_test_annos_withlabels.mat", annotations(test))
    dataset = load_dataset("stanford_cars", tmp_path)
    assert dataset.classes == ("AM General Hummer SUV 2000", "smart fortwo Convertible 2012")
    inner = "cars_{0}/cars_{0}" if wrapped else "cars_{0}"
    want = ([f"{inner.format('train')}/00001.jpg"], [f"{inner.format('test')}/00002.jpg"])
    assert parts(dataset, "smart fortwo Convertible 2012") == want


def test_cars_in_one_folder(tmp_path):
    rows = []
    for number in range(1, 5):
        paint(tmp_path / "car_ims" / f"{number:06d}.jpg")
        rows.append(
            {"relative_im_path": f"car_ims/{number:06d}.jpg", "class": 1 + number % 2, "test": number > 2}
        )
    savemat(tmp_path / "cars_annos.mat", annotations(rows))
    dataset = load_dataset("stanford_cars", tmp_path)
    assert parts(dataset, "Acura RL Sedan 2012") == (["car_ims/000001.jpg"], ["car_ims/000003.jpg"])
    (tmp_path / "cars_annos.mat").write_bytes(b"no matlab")
    with pytest.raises(CampError, match="MATLAB"):
        load_dataset("stanford_cars", tmp_path)


@pytest.mark.parametrize("inside", [".", "car_data", "car_data/car_data"])
def test_cars_in_class_folders(tmp_path, inside):
    for name in ("smart fortwo Convertible 2012", "Ram C-V Cargo Van Minivan 2012"):
        for part in ("train", "test"):
            paint(tmp_path / inside / part / name / "1.jpg")
    dataset = load_dataset("stanford_cars", tmp_path)
    # in the official order and spelling, which is not that of the alphabet
    assert dataset.classes == ("Ram C/V Cargo Van Minivan 2012", "smart fortwo Convertible 2012")
