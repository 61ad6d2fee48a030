"""The official layouts of the data sets, as tiny trees, and the common layout of class folders for all of them."""

import json
import shutil
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from camp.errors import CampError
from camp.experiments.settings import DataSettings
from camp.streams.datasets import DATASETS, load_dataset
from camp.streams.datasets.class_names import official_names
from camp.streams.datasets.folders import plain
from camp.streams.datasets.imagenet_subset import subset_1993


def paint(path: Path, shade: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 4), shade % 256).save(path, "PNG")


def parts(dataset, class_name):
    """Keys of a class: (train, test)."""
    of_class = dataset.labels == dataset.classes.index(class_name)
    keys = np.array(dataset.keys)
    return keys[of_class & ~dataset.is_test].tolist(), keys[of_class & dataset.is_test].tolist()


# Digits


def test_digits():
    digits = load_dataset("digits")
    assert digits.classes == tuple("0123456789")
    assert len(digits) == 1797
    shares = [digits.is_test[digits.labels == label].mean() for label in range(10)]
    assert shares == pytest.approx([0.3] * 10, abs=0.01)
    data = digits.read("0000")
    assert len(data) == 64
    assert max(max(digits.read(key)) for key in digits.keys[:20]) == 255
    image = digits.decode(data)
    assert (image.mode, image.size) == ("RGB", (8, 8))
    assert np.asarray(image)[..., 0].tobytes() == data
    assert np.array_equal(load_dataset("digits").is_test, digits.is_test)


# CIFAR


def cifar_file(path: Path, labels: list[int], label_bytes: int) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(len(labels)).integers(0, 256, (len(labels), 3, 32, 32), dtype=np.uint8)
    heads = np.zeros((len(labels), label_bytes), dtype=np.uint8)
    heads[:, -1] = labels
    path.write_bytes(np.hstack([heads, pixels.reshape(len(labels), -1)]).tobytes())
    return pixels


def cifar10_tree(root: Path) -> np.ndarray:
    first = cifar_file(root / "data_batch_1.bin", list(range(10)), 1)
    for number in range(2, 6):
        cifar_file(root / f"data_batch_{number}.bin", [number], 1)
    cifar_file(root / "test_batch.bin", [9, 0], 1)
    return first


def test_cifar10_binary(tmp_path):
    first = cifar10_tree(tmp_path / "cifar-10-batches-bin")
    dataset = load_dataset("cifar10", tmp_path)
    assert dataset.classes[0] == "airplane"
    assert dataset.classes[9] == "truck"
    assert dataset.keys[:3] == ("test/00000", "test/00001", "train/00000")
    assert parts(dataset, "bird") == (["train/00002", "train/00010"], [])
    assert parts(dataset, "truck") == (["train/00009"], ["test/00000"])
    got = np.asarray(dataset.decode(dataset.read("train/00003")))
    assert np.array_equal(got, first[3].transpose(1, 2, 0))


def test_cifar100_binary_uses_the_fine_labels(tmp_path):
    cifar_file(tmp_path / "cifar-100-binary" / "train.bin", list(range(100)), 2)
    cifar_file(tmp_path / "cifar-100-binary" / "test.bin", [99], 2)
    dataset = load_dataset("cifar100", tmp_path)
    assert dataset.classes == tuple(sorted(dataset.classes))
    assert parts(dataset, "worm") == (["train/00099"], ["test/00000"])


def test_cifar_refuses_what_it_cannot_read(tmp_path):
    (tmp_path / "cifar-100-python").mkdir()
    (tmp_path / "cifar-100-python" / "train").write_bytes(b"a pickle")
    for place in (tmp_path, tmp_path / "cifar-100-python"):
        with pytest.raises(CampError, match=r"pickle.*binary version"):
            load_dataset("cifar100", place)
    cifar10_tree(tmp_path / "ten")
    (tmp_path / "ten" / "data_batch_3.bin").write_bytes(b"short")
    with pytest.raises(CampError, match="whole number"):
        load_dataset("cifar10", tmp_path / "ten")
    (tmp_path / "ten" / "data_batch_3.bin").unlink()
    with pytest.raises(CampError, match="missing"):
        load_dataset("cifar10", tmp_path / "ten")
    cifar10_tree(tmp_path / "ten")
    cifar_file(tmp_path / "ten" / "data_batch_3.bin", [10], 1)
    with pytest.raises(CampError, match="label above 9"):
        load_dataset("cifar10", tmp_path / "ten")


# CUB


def cub_tree(root: Path, per_class: int = 12) -> None:
    names = ["001.Black_footed_Albatross", "002.Laysan_Albatross"]
    images, split, number = [], [], 0
    for shade, name in enumerate(names):
        for index in range(per_class):
            number += 1
            paint(root / "images" / name / f"{index:02d}.jpg", shade)
            images.append(f"{number} {name}/{index:02d}.jpg")
            split.append(f"{number} {int(index % 2 == 0)}")
    (root / "images.txt").write_text("\n".join(images) + "\n")
    (root / "train_test_split.txt").write_text("\n".join(split) + "\n")
    (root / "classes.txt").write_text("".join(f"{n + 1} {name}\n" for n, name in enumerate(names)))


@pytest.mark.parametrize("inside", [".", "CUB_200_2011"])
def test_cub_archive(tmp_path, inside):
    cub_tree(tmp_path / inside)
    dataset = load_dataset("cub200", tmp_path)
    train, test = parts(dataset, "002.Laysan_Albatross")
    assert train == [f"images/002.Laysan_Albatross/{index:02d}.jpg" for index in range(0, 12, 2)]
    assert test == [f"images/002.Laysan_Albatross/{index:02d}.jpg" for index in range(1, 12, 2)]


def test_cub_reference_split(tmp_path):
    cub_tree(tmp_path)
    dataset = load_dataset("cub200", tmp_path, split="reference")
    train, test = parts(dataset, "001.Black_footed_Albatross")
    # index j <= 0.1 * 12: two of twelve
    assert [key[-6:-4] for key in test] == ["00", "01"]
    assert len(train) == 10


def test_cub_reference_split_of_class_folders_is_that_of_the_archive(tmp_path):
    cub_tree(tmp_path / "archive")
    for index in range(12):
        part = "train" if index % 2 == 0 else "test"
        for name in ("001.Black_footed_Albatross", "002.Laysan_Albatross"):
            paint(tmp_path / "folders" / part / name / f"{index:02d}.jpg")
    test = [
        {key.rsplit("/", 2)[1:][0] + key[-6:] for key in np.array(dataset.keys)[dataset.is_test]}
        for dataset in (
            load_dataset("cub200", tmp_path / "archive", split="reference"),
            load_dataset("cub200", tmp_path / "folders", split="reference"),
        )
    ]
    assert test[0] == test[1]


def test_cub_incomplete(tmp_path):
    cub_tree(tmp_path)
    (tmp_path / "images" / "001.Black_footed_Albatross" / "03.jpg").unlink()
    with pytest.raises(CampError, match=r"03\.jpg.*missing"):
        load_dataset("cub200", tmp_path)
    with pytest.raises(CampError, match="'official' and 'reference'"):
        load_dataset("cub200", tmp_path, split="half")
    (tmp_path / "classes.txt").write_text("nonsense\n")
    with pytest.raises(CampError, match=r"classes\.txt"):
        load_dataset("cub200", tmp_path)


# Stanford Cars


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


# FGVC-Aircraft


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


# DomainNet

DOMAINS = ["clipart", "infograph", "painting", "quickdraw", "real", "sketch"]


def domainnet_tree(root: Path, classes: int = 12, per_class: int = 10) -> None:
    for domain in DOMAINS:
        for number in range(classes):
            for index in range(per_class):
                paint(root / domain / f"thing_{number:02d}" / f"{domain}_{index:02d}.png", number)


def test_domainnet_reference_split(tmp_path):
    domainnet_tree(tmp_path)
    dataset = load_dataset("domainnet", tmp_path)
    assert len(dataset.classes) == 60
    assert dataset.classes[:2] == ("clipart/thing_00", "clipart/thing_01")
    assert [dataset.domains[label] for label in range(0, 60, 10)] == DOMAINS
    train, test = parts(dataset, "real/thing_03")
    assert [key.split("_")[-1] for key in test] == ["00.png", "01.png"]
    assert len(train) == 8
    assert len(load_dataset("domainnet", tmp_path, classes_per_domain=None).classes) == 72
    with pytest.raises(CampError, match="official lists"):
        load_dataset("domainnet", tmp_path, split="official")
    with pytest.raises(CampError, match="at least 1"):
        load_dataset("domainnet", tmp_path, classes_per_domain=0)


@pytest.mark.parametrize("inside", [".", "txt"])
def test_domainnet_official_lists(tmp_path, inside):
    domainnet_tree(tmp_path, classes=2, per_class=4)
    (tmp_path / inside).mkdir(exist_ok=True)
    for domain in DOMAINS:
        for part, indices in (("train", (0, 2)), ("test", (1,))):
            lines = [
                f"{domain}/thing_{n:02d}/{domain}_{index:02d}.png {n}\n"
                for n in range(2)
                for index in indices
            ]
            (tmp_path / inside / f"{domain}_{part}.txt").write_text("".join(lines))
    dataset = load_dataset("domainnet", tmp_path)
    train, test = parts(dataset, "sketch/thing_01")
    assert train == ["sketch/thing_01/sketch_00.png", "sketch/thing_01/sketch_02.png"]
    assert test == ["sketch/thing_01/sketch_01.png"]
    assert len(load_dataset("domainnet", tmp_path, split="reference")) == 48


@pytest.mark.parametrize(("tasks", "classes"), [(6, 50), (12, 25), (24, 10)])
def test_domainnet_in_class_incremental_learning(tmp_path, tasks, classes):
    """Tasks of one domain each, which changes from task to task; each thing of each domain comes once."""
    domainnet_tree(tmp_path, classes=51, per_class=2)
    asked = DataSettings(dataset="domainnet", setting="cil", tasks=tasks)
    dataset = load_dataset("domainnet", tmp_path, **asked.loader_options())
    split = asked.scenario().cut(dataset, seed=0)
    names = [[split.classes[c] for c in task.known] for task in split.tasks]
    assert [len(task) for task in names] == [classes] * tasks
    assert [{name.split("/")[0] for name in task} for task in names] == [
        {DOMAINS[t % 6]} for t in range(tasks)
    ]
    assert len({name for task in names for name in task}) == classes * tasks
    assert all(not task.novel and not task.unlabelled for task in split.tasks)


def test_classes_of_a_domain_are_those_of_the_setting():
    def options(**settings):
        return DataSettings(dataset="domainnet", **settings).loader_options()

    assert options() == {}  # the loader's own ten
    assert options(setting="cil") == options(setting="cil", tasks=6) == {"classes_per_domain": 50}
    assert options(setting="cil", classes_per_domain=20) == options(classes_per_domain=20)
    assert DataSettings(dataset="cub200", official_split=False).loader_options() == {"split": "reference"}
    assert DataSettings(dataset="cifar100", setting="cil").loader_options() == {}
    with pytest.raises(CampError, match="classes_per_domain is for domainnet, not digits"):
        DataSettings(classes_per_domain=3)


def test_domainnet_in_class_folders(tmp_path):
    for domain in DOMAINS:
        for part in ("train", "test"):
            paint(tmp_path / part / domain / "bird" / f"{part}.png")
    dataset = load_dataset("domainnet", tmp_path)
    assert dataset.domains == tuple(DOMAINS)
    assert parts(dataset, "painting/bird") == (
        ["train/painting/bird/train.png"],
        ["test/painting/bird/test.png"],
    )


# ImageNet


def test_the_usual_hundred_of_imagenet_comes_from_the_seed_of_the_cifar_order():
    orders = json.loads(resources.files("camp.streams").joinpath("class_orders.json").read_text())
    hundred = subset_1993([str(number) for number in range(100)])
    assert hundred == [str(number) for number in orders["cifar100"]]


def imagenet_tree(root: Path, classes: int) -> list[str]:
    wnids = [f"n{number:08d}" for number in range(classes)]
    for wnid in wnids:
        for part in ("train", "val"):
            folder = root / part / wnid
            folder.mkdir(parents=True)
            (folder / f"{wnid}_1.JPEG").touch()
    return wnids


def test_imagenet_subset(tmp_path):
    wnids = imagenet_tree(tmp_path, 1000)
    dataset = load_dataset("imagenet_subset", tmp_path)
    assert dataset.classes == tuple(sorted(subset_1993(wnids)))
    assert len(set(dataset.classes)) == 100
    assert len(dataset) == 200
    assert parts(dataset, dataset.classes[0])[1] == [f"val/{dataset.classes[0]}/{dataset.classes[0]}_1.JPEG"]
    shutil.rmtree(tmp_path / "val" / dataset.classes[5])
    with pytest.raises(CampError, match=dataset.classes[5]):
        load_dataset("imagenet_subset", tmp_path)


@pytest.mark.parametrize("classes", [100, 1000])
@pytest.mark.parametrize("tasks", [5, 10, 20])
def test_imagenet_subset_in_class_incremental_learning(tmp_path, classes, tasks):
    """The usual hundred, sorted, in the order that numpy's seed 1993 gives to a hundred things."""
    imagenet_tree(tmp_path, classes)
    dataset = load_dataset("imagenet_subset", tmp_path)
    split = (
        DataSettings(dataset="imagenet_subset", setting="cil", tasks=tasks).scenario().cut(dataset, seed=3)
    )
    assert [len(task.known) for task in split.tasks] == [100 // tasks] * tasks
    assert all(not task.novel and not task.unlabelled for task in split.tasks)
    order = np.random.RandomState(1993).permutation(100)
    assert split.classes == tuple(sorted(dataset.classes)[number] for number in order)
    if classes == 1000:  # mailbox, confectionery, screen: the first of the published list
        assert [name[-4:] for name in split.classes[:3]] == ["0637", "0509", "0782"]


def test_imagenet_subset_of_exactly_a_hundred(tmp_path):
    wnids = imagenet_tree(tmp_path, 100)
    assert load_dataset("imagenet_subset", tmp_path).classes == tuple(wnids)
    shutil.rmtree(tmp_path / "train" / wnids[0])
    with pytest.raises(CampError, match="99 class folders"):
        load_dataset("imagenet_subset", tmp_path)


@pytest.mark.parametrize("inside", [".", "tiny-imagenet-200"])
def test_tiny_imagenet(tmp_path, inside):
    root = tmp_path / inside
    for wnid in ("n02", "n01"):
        paint(root / "train" / wnid / "images" / f"{wnid}_0.JPEG")
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text("x\n")
    for number in (0, 1):
        paint(root / "val" / "images" / f"val_{number}.JPEG")
        paint(root / "test" / "images" / f"test_{number}.JPEG")
    (root / "val" / "val_annotations.txt").write_text(
        "val_0.JPEG\tn02\t0\t0\t9\t9\nval_1.JPEG\tn01\t0\t0\t9\t9\n"
    )
    (root / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\ttoad\n")
    dataset = load_dataset("tiny_imagenet", tmp_path)
    assert dataset.classes == ("n01 goldfish", "n02 toad")
    assert parts(dataset, "n02 toad") == (["train/n02/images/n02_0.JPEG"], ["val/images/val_0.JPEG"])
    (root / "val" / "val_annotations.txt").write_text("val_7.JPEG\tn02\t0\t0\t9\t9\n")
    with pytest.raises(CampError, match="val_7"):
        load_dataset("tiny_imagenet", tmp_path)


# Embeddings


def test_embeddings(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(30, 5))
    labels = np.array([10, 2, 30] * 10)
    np.savez(tmp_path / "v.npz", vectors=vectors, labels=labels)
    dataset = load_dataset("embeddings", tmp_path / "v.npz")
    assert dataset.classes == ("2", "10", "30")
    assert dataset.is_test.sum() == 6
    vector = dataset.decode(dataset.read("07"))
    assert vector.dtype == np.float32
    assert np.array_equal(vector, vectors[7].astype(np.float32))
    assert dataset.classes[dataset.labels[7]] == "2"


def test_embeddings_with_names_and_test_marks(tmp_path):
    test = np.array([False, False, True, True])
    np.savez(tmp_path / "v.npz", vectors=np.eye(4), labels=np.array(["b", "a", "b", "a"]), test=test)
    dataset = load_dataset("embeddings", tmp_path / "v.npz")
    assert dataset.classes == ("a", "b")
    assert dataset.is_test.tolist() == test.tolist()


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"vectors": np.eye(3)}, "lacks the array 'labels'"),
        ({"vectors": np.eye(3), "labels": np.arange(2)}, "expected 3 whole numbers"),
        ({"vectors": np.eye(3), "labels": np.array([1.5, 2, 3])}, "expected 3 whole numbers"),
        ({"vectors": np.arange(3), "labels": np.arange(3)}, r"not numbers \(N, D\)"),
        ({"vectors": np.full((3, 2), np.nan), "labels": np.arange(3)}, "not finite"),
        (
            {"vectors": np.eye(3), "labels": np.array(["a", None, "b"], dtype=object)},
            "objects are not opened",
        ),
        ({"vectors": np.eye(3), "labels": np.arange(3), "test": np.arange(3)}, "expected 3 bools"),
    ],
)
def test_embeddings_refuse_what_does_not_fit(tmp_path, arrays, sentence):
    np.savez(tmp_path / "v.npz", **arrays)
    with pytest.raises(CampError, match=sentence):
        load_dataset("embeddings", tmp_path / "v.npz")


def test_embeddings_must_be_an_npz_file(tmp_path):
    (tmp_path / "v.txt").write_text("1 2 3")
    with pytest.raises(CampError, match=r"numpy\.savez"):
        load_dataset("embeddings", tmp_path / "v.txt")
    (tmp_path / "v.npz").write_bytes(b"not a zip")
    with pytest.raises(CampError, match="cannot be read"):
        load_dataset("embeddings", tmp_path / "v.npz")


# All of them

COMMON = [
    ("cifar10", ["cat", "dog"]),
    ("cifar100", ["apple", "worm"]),
    ("cub200", ["001.Black_footed_Albatross", "200.Common_Yellowthroat"]),
    ("stanford_cars", ["Acura RL Sedan 2012", "Volvo 240 Sedan 1993"]),
    ("fgvc_aircraft", ["747-100", "Yak-42"]),
    ("tiny_imagenet", ["n01443537", "n01629819"]),
    ("folder", ["cup", "spoon"]),
]


@pytest.mark.parametrize(("name", "classes"), COMMON)
def test_every_image_data_set_reads_class_folders(tmp_path, name, classes):
    for class_name in classes:
        for index in range(3):
            paint(tmp_path / "train" / class_name / f"{index}.png")
        paint(tmp_path / "test" / class_name / "9.png")
    dataset = load_dataset(name, tmp_path)
    assert dataset.classes == tuple(classes)
    assert parts(dataset, classes[1]) == (
        [f"train/{classes[1]}/{index}.png" for index in range(3)],
        [f"test/{classes[1]}/9.png"],
    )
    assert dataset.decode(dataset.read(dataset.keys[0])).size == (4, 4)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "stanford_cars", "fgvc_aircraft"])
def test_foreign_classes_are_refused(tmp_path, name):
    for part in ("train", "test"):
        paint(tmp_path / part / "teapot" / "1.png")
    with pytest.raises(CampError, match=f"'teapot', which is no class of {name}"):
        load_dataset(name, tmp_path)


@pytest.mark.parametrize("name", [name for name, info in DATASETS.items() if not info.embedded])
def test_wrong_places_are_refused_in_a_sentence(tmp_path, name):
    with pytest.raises(CampError, match="does not exist"):
        load_dataset(name, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CampError, match="is empty; expected"):
        load_dataset(name, tmp_path / "empty")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    with pytest.raises(CampError, match=r"expected|numpy"):
        load_dataset(name, tmp_path / "other")


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "stanford_cars", "fgvc_aircraft"])
def test_official_names_differ_without_case_and_signs(name):
    names = official_names(name)
    assert len(names) == DATASETS[name].n_classes
    assert len({plain(class_name) for class_name in names}) == len(names)
