"""CUB-200-2011: 200 species of birds."""

from collections import defaultdict
from pathlib import Path

from camp.core.errors import CampError
from camp.data.datasets.base import Dataset, FileReader, Sample, dataset_from_samples, reference_split
from camp.data.datasets.folders import class_folders, has_train_folder, image_files
from camp.data.datasets.info import Archive, DatasetInfo

FOLDER = "CUB_200_2011"


def load(data: Path, split: str = "official") -> Dataset:
    """Load CUB-200-2011 from the official archive or from class folders.

    The `split` is "official" with 5,994 train and 5,794 test images, or "reference", the 90/10 split of
    the authors' code over all 11,788 images (with sorted file names; theirs depends on the disk).
    """
    if split not in ("official", "reference"):
        raise CampError(f"cub200 has the splits 'official' and 'reference', not {split!r}.")
    for root in (data, data / FOLDER):
        if (root / "images.txt").is_file():
            dataset = _archive(root)
            break
    else:
        if not has_train_folder(data):
            raise CampError(
                f"{data} does not hold CUB-200-2011: expected images/, images.txt, train_test_split.txt "
                "and classes.txt, or train/<class>/* and test/<class>/*."
            )
        dataset = class_folders("cub200", data)
    return dataset if split == "official" else _reference(dataset)


def _archive(root: Path) -> Dataset:
    """Load the layout of CUB_200_2011.tgz, with tables of `id value` lines."""
    tables = {name: _table(root / f"{name}.txt") for name in ("images", "train_test_split", "classes")}
    files = set(image_files(root, "images"))
    classes = [tables["classes"][number] for number in sorted(tables["classes"], key=int)]
    samples = []
    for number, name in tables["images"].items():
        key, class_name = f"images/{name}", name.split("/")[0]
        if key not in files or number not in tables["train_test_split"] or class_name not in classes:
            raise CampError(
                f"{root}/images.txt lists {name}, but its file, its split or its class is missing; "
                "unpack the archive again."
            )
        samples.append(Sample(key, class_name, tables["train_test_split"][number] == "0"))
    return dataset_from_samples("cub200", classes, samples, FileReader(root))


def _table(path: Path) -> dict[str, str]:
    """Read the lines `key value` of a file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        pairs = (line.split(maxsplit=1) for line in lines if line.strip())
        return {key: value.strip() for key, value in pairs}
    except (OSError, ValueError) as error:
        raise CampError(
            f"{path} cannot be read as lines of `id value` ({error}); unpack the archive again."
        ) from error


def _reference(dataset: Dataset) -> Dataset:
    """Return the same images with the split of the authors' code."""
    members = defaultdict(list)
    for key, label in zip(dataset.keys, dataset.labels):
        members[dataset.classes[label]].append(key)
    return dataset_from_samples("cub200", dataset.classes, reference_split(members), dataset.reader)


INFO = DatasetInfo(
    name="cub200",
    title="CUB-200-2011 birds",
    loader=load,
    n_classes=200,
    images="11,788 photographs",
    size="1.2 GB",
    licence="non-commercial research and education",
    how_to_get="Run `camp datasets get cub200`, or unpack CUB_200_2011.tgz from https://data.caltech.edu/records/65de6-vp158.",
    layouts="CUB_200_2011/, or train/<class>/* and test/<class>/*",
    markers=(f"{FOLDER}/images.txt", "images.txt", "train"),
    archives=(
        Archive(
            "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
            "md5:97eceeb196236b17998738112f37df78",
        ),
    ),
    tasks=5,
    order="paper",
    crop_scale=0.3,
)
