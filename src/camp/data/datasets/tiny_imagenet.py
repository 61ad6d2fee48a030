"""Tiny-ImageNet: 200 classes of ImageNet at 64 x 64 pixels."""

from pathlib import Path

from camp.core.errors import CampError
from camp.data.datasets.base import Dataset, FileReader, Sample, dataset_from_samples
from camp.data.datasets.folders import class_folders, has_train_folder, image_files
from camp.data.datasets.info import Archive, DatasetInfo

FOLDER = "tiny-imagenet-200"


def load(data: Path) -> Dataset:
    """Load the official archive, with its validation part as the test set, or class folders."""
    for root in (data, data / FOLDER):
        if (root / "val" / "val_annotations.txt").is_file():
            return _archive(root)
    if has_train_folder(data):
        return class_folders("tiny_imagenet", data)
    raise CampError(
        f"{data} does not hold Tiny-ImageNet: expected train/<wnid>/images/*, val/images/* and "
        "val/val_annotations.txt, or train/<class>/* and test/<class>/*."
    )


def _archive(root: Path) -> Dataset:
    """Load the official archive, with classes called `wnid word`, sorted by wnid."""
    rows = [(key, key.split("/")[1], False) for key in image_files(root, "train")]
    wnids = sorted({wnid for _, wnid, _ in rows})
    files = set(image_files(root, "val/images"))
    path = root / "val" / "val_annotations.txt"
    for line in path.read_text(encoding="utf-8").splitlines():
        name, _, rest = line.partition("\t")
        key, wnid = f"val/images/{name}", rest.split("\t")[0]
        if key not in files or wnid not in wnids:
            raise CampError(
                f"{path} lists {name} as {wnid}, but the file or the class is missing; unpack it again."
            )
        rows.append((key, wnid, True))
    words = _words(root / "words.txt")
    names = {wnid: f"{wnid} {words[wnid]}" if wnid in words else wnid for wnid in wnids}
    samples = [Sample(key, names[wnid], is_test) for key, wnid, is_test in rows]
    return dataset_from_samples("tiny_imagenet", [names[wnid] for wnid in wnids], samples, FileReader(root))


def _words(path: Path) -> dict[str, str]:
    """Return the first word of each wnid."""
    if not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {wnid: words.split(",")[0] for wnid, _, words in (line.partition("\t") for line in lines)}


INFO = DatasetInfo(
    name="tiny_imagenet",
    title="Tiny-ImageNet",
    loader=load,
    n_classes=200,
    images="110,000 of 64 x 64",
    size="248 MB",
    licence="non-commercial research (ImageNet's terms)",
    how_to_get="Run `camp datasets get tiny_imagenet`, or unpack http://cs231n.stanford.edu/tiny-imagenet-200.zip.",
    layouts="tiny-imagenet-200/, or train/<class>/* and test/<class>/*",
    markers=(f"{FOLDER}/val", "val/val_annotations.txt", "train"),
    archives=(
        Archive("http://cs231n.stanford.edu/tiny-imagenet-200.zip", "md5:90528d7ca1a48142e341f4ef8d21d0de"),
    ),
    tasks=10,
    crop_scale=0.08,
)
