"""DomainNet: 345 object classes in six domains."""

from collections import defaultdict
from pathlib import Path

from camp.core.errors import CampError
from camp.data.datasets.base import Dataset, FileReader, Sample, dataset_from_samples, reference_split
from camp.data.datasets.folders import class_samples, has_train_folder, image_files
from camp.data.datasets.info import Archive, DatasetInfo

DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
"""The six domains, in the order of the paper's tasks."""


def load(data: Path, classes_per_domain: int | None = 10, split: str = "auto") -> Dataset:
    """Load DomainNet; as in the paper, an object class is a class of its own in each domain.

    `classes_per_domain` are the first by name (None for all 345); the authors' code has 10, in the
    order of the disk, and for class-incremental learning see `incremental_classes`. The `split` is
    "official" (lists `<domain>_train.txt` and `<domain>_test.txt`), "reference" (90/10 by sorted file
    name), or "auto" ("official" if the lists exist).
    """
    if split not in ("auto", "official", "reference"):
        raise CampError(f"domainnet has the splits 'auto', 'official' and 'reference', not {split!r}.")
    if classes_per_domain is not None and classes_per_domain < 1:
        raise CampError(f"classes_per_domain must be at least 1, or None for all, not {classes_per_domain}.")
    if has_train_folder(data):
        samples = [p for p in class_samples(data, depth=2) if p.class_name.split("/")[0] in DOMAINS]
    elif all((data / domain).is_dir() for domain in DOMAINS):
        lists = _lists(data)
        if split == "official" and lists is None:
            raise CampError(
                f"{data} lacks the official lists, such as clipart_train.txt; add them or use 'reference'."
            )
        samples = _by_lists(data, lists) if lists is not None and split != "reference" else _reference(data)
    else:
        samples = []
    if not samples:
        raise CampError(
            f"{data} does not hold DomainNet: expected the folders {', '.join(DOMAINS)} with class folders, "
            "or train/<domain>/<class>/* and test/<domain>/<class>/*."
        )
    return _dataset(data, samples, classes_per_domain)


def incremental_classes(tasks: int) -> int:
    """Return the number of classes per domain for class-incremental learning with so many tasks.

    The paper does not state the number of classes per task. The benchmark of SEED by the same
    authors has 25 classes in each of 12 tasks, 10 in each of 24, and 50 otherwise, hence 50 or 40
    classes per domain.

    >>> [incremental_classes(tasks) for tasks in (6, 12, 24)]
    [50, 50, 40]
    """
    return 40 if tasks >= 24 else 50


def _dataset(root: Path, samples: list[Sample], classes_per_domain: int | None) -> Dataset:
    found = sorted({sample.class_name for sample in samples})
    chosen = []
    for domain in DOMAINS:
        chosen += [name for name in found if name.startswith(f"{domain}/")][:classes_per_domain]
    keep = set(chosen)
    return dataset_from_samples(
        "domainnet",
        chosen,
        [sample for sample in samples if sample.class_name in keep],
        FileReader(root),
        domains=[name.split("/")[0] for name in chosen],
    )


def _lists(root: Path) -> Path | None:
    """Return the folder with all twelve lists, if there is one."""
    for folder in (root, root / "txt", root / "splits"):
        names = [f"{domain}_{part}.txt" for domain in DOMAINS for part in ("train", "test")]
        if all((folder / name).is_file() for name in names):
            return folder
    return None


def _by_lists(root: Path, lists: Path) -> list[Sample]:
    """Read the lists, with lines `domain/class/file number`."""
    samples = []
    for domain in DOMAINS:
        files = set(image_files(root, domain))
        for part in ("train", "test"):
            path = lists / f"{domain}_{part}.txt"
            for line in path.read_text(encoding="utf-8").splitlines():
                if not line.strip():
                    continue
                key = line.strip().rsplit(" ", 1)[0]
                if key not in files:
                    raise CampError(f"{path} lists {key}, which is missing; unpack {domain}.zip again.")
                samples.append(Sample(key, "/".join(key.split("/")[:2]), part == "test"))
    return samples


def _reference(root: Path) -> list[Sample]:
    """Return all images with the split of the authors' code."""
    members = defaultdict(list)
    for domain in DOMAINS:
        for key in image_files(root, domain):
            if key.count("/") >= 2:
                members["/".join(key.split("/")[:2])].append(key)
    return reference_split(members)


_HOST = "http://csr.bu.edu/ftp/visda/2019/multi-source"
_SHA256 = {
    "groundtruth/clipart.zip": "f8f248a3e8bbc9868c523ae24e6601b4c2ad102afc60c0efeb4f3255df22354d",
    "infograph.zip": "891e14f476317e97b6f06d6498c11d0a5b8d0c8b57210765ed9beb072da611fa",
    "groundtruth/painting.zip": "fa47e6d405503ea0286cabd767f176bd30e988b63ddd7b9db16cf030c9770015",
    "quickdraw.zip": "9f37df2a8c3733703dbb35ad9964202a65f675ca30137756457537536b485d84",
    "real.zip": "d7fe010b430c5b510f85d657d38c4a1924822695fabea4fef57bd00dba251d63",
    "sketch.zip": "23a7dbae7016b343e934399beaa8a68728fb5e570ebe2c71df9b75cf91c499fc",
    "domainnet/txt/clipart_train.txt": "affdadf5f95a7583e6b98030a3d35007e2613ee4dd942393c5a705ec2b429312",
    "domainnet/txt/clipart_test.txt": "62c8e36aaba1c41ad9e249099739707220a44c08f167b37ef420f34a31628a6b",
    "domainnet/txt/infograph_train.txt": "36b44cbd41a2915e0dc73b4f4be8862a6f3c220f93c8d63fb2439beeae3aefda",
    "domainnet/txt/infograph_test.txt": "413cfa54ac92e7e6b242f4f09fbd9c8ace85c4deaf3cb6c81ff6b68264460136",
    "domainnet/txt/painting_train.txt": "f1da38d50a702fddf1329f85bc607d7a2abcae7e6aec75e1fd49cc1bd340d47b",
    "domainnet/txt/painting_test.txt": "11472b13b5188e09f06918b12eebb660588c97a20e43e268d9b02e3e37eb8f97",
    "domainnet/txt/quickdraw_train.txt": "3a5edd3bc215772010eebc87f158707703dd7e48091d13b816af81326a9d1c0f",
    "domainnet/txt/quickdraw_test.txt": "2a00a60650a453c65c356da748fec54084a197272137c440e7d52d08947357bf",
    "domainnet/txt/real_train.txt": "19d483256d24aef19e581b65eda8333fd918aef3eb733fe499ff384120e3a289",
    "domainnet/txt/real_test.txt": "2b3f75bcde309aeb5931292084b2162e936b5f189e3bb1ad716f0f74c460864c",
    "domainnet/txt/sketch_train.txt": "72f4bc6afa5702a1ccba800d0053c1427de87439dfaf246dbc9a2e71abfec54f",
    "domainnet/txt/sketch_test.txt": "3fb48fca18c507c4321f007c3f62b308ec232ff6928cbfe2af64e76ec366e840",
}

INFO = DatasetInfo(
    name="domainnet",
    title="DomainNet",
    loader=load,
    n_classes=60,
    images="586,575 in six domains (60 classes are used unless you ask for all 2,070)",
    size="18 GB",
    licence="research; the images belong to their owners",
    how_to_get=(
        "Run `camp datasets get domainnet`, or unpack the six domains (cleaned version) and their lists from "
        "http://ai.bu.edu/M3SDA/."
    ),
    layouts="clipart/ to sketch/, <domain>_train.txt and <domain>_test.txt, or train/<domain>/<class>/*",
    markers=("clipart", "train/clipart"),
    archives=tuple(Archive(f"{_HOST}/{path}", f"sha256:{digest}") for path, digest in _SHA256.items()),
    tasks=6,
    order="paper",
    crop_scale=0.3,
    saturation=0.4,
)
