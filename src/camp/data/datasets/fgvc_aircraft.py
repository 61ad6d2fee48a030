"""FGVC-Aircraft: 100 variants of aeroplanes."""

from pathlib import Path

from camp.core.errors import CampError
from camp.data.datasets.base import Dataset, Sample, official_names
from camp.data.datasets.folders import class_folders, has_train_folder, image_files, official_classes
from camp.data.datasets.info import Archive, DatasetInfo

FOLDER = "fgvc-aircraft-2013b"
LISTS = (("images_variant_trainval.txt", False), ("images_variant_test.txt", True))


def load(data: Path) -> Dataset:
    """Load 100 variants, 6,667 trainval and 3,333 test images, from the official archive or class folders."""
    for root in (data, data / "data", data / FOLDER, data / FOLDER / "data"):
        if all((root / name).is_file() for name, _ in LISTS):
            return _archive(root)
    if has_train_folder(data):
        return class_folders("fgvc_aircraft", data, official_names("fgvc_aircraft"))
    raise CampError(
        f"{data} does not hold FGVC-Aircraft: expected data/images/, data/{LISTS[0][0]} and data/{LISTS[1][0]}, "
        "or train/<class>/* and test/<class>/*."
    )


def _archive(root: Path) -> Dataset:
    """Load the layout of fgvc-aircraft-2013b.tar.gz: lines `number variant`, with spaces inside a variant."""
    files = set(image_files(root, "images"))
    known = official_names("fgvc_aircraft")
    samples = []
    for name, is_test in LISTS:
        for line in (root / name).read_text(encoding="utf-8").splitlines():
            number, _, variant = line.strip().partition(" ")
            key = f"images/{number}.jpg"
            if key not in files:
                raise CampError(
                    f"{root / name} lists image {number}, but {key} is missing; unpack the archive again."
                )
            if variant not in known:
                raise CampError(f"{root / name} names {variant!r}, which is not a variant of FGVC-Aircraft.")
            samples.append(Sample(key, variant, is_test))
    return official_classes("fgvc_aircraft", root, known, samples)


INFO = DatasetInfo(
    name="fgvc_aircraft",
    title="FGVC-Aircraft",
    loader=load,
    n_classes=100,
    images="10,000 photographs",
    size="2.8 GB",
    licence="non-commercial research",
    how_to_get=(
        "Run `camp datasets get fgvc_aircraft`, or unpack fgvc-aircraft-2013b.tar.gz from "
        "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/."
    ),
    layouts="fgvc-aircraft-2013b/data/, or train/<variant>/* and test/<variant>/*",
    markers=(f"{FOLDER}/data/images", "data/images_variant_test.txt", "images_variant_test.txt", "train"),
    archives=(
        Archive(
            "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz",
            "md5:d4acdd33327262359767eeaa97a4f732",
        ),
    ),
    tasks=5,
    order="paper",
    crop_scale=0.3,
)
