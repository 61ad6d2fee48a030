"""Pictures that are stored in every way that `camp learn` and `camp predict` read."""

import io
from collections.abc import Callable, Mapping
from pathlib import Path

import datasets
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import webdataset
from small_images import picture

Pictures = dict[str, tuple[bytes, str | None]]
"""Bytes and label by a name."""


def png(kind: str, number: int) -> bytes:
    file = io.BytesIO()
    picture(kind, number).save(file, format="PNG")
    return file.getvalue()


def write_folder(pictures: Pictures, folder: Path) -> str:
    for name, (data, label) in pictures.items():
        place = folder / (label or "unlabelled")
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{name}.png").write_bytes(data)
    return str(folder)


def write_url(pictures: Pictures, folder: Path) -> str:
    return f"file://{write_folder(pictures, folder)}"


def write_memory(pictures: Pictures, folder: Path) -> str:
    memory = fsspec.filesystem("memory")
    for name, (data, label) in pictures.items():
        memory.pipe(f"{folder}/{label or 'unlabelled'}/{name}.png", data)
    memory.pipe(f"{folder}/.hidden/x.png", b"?")
    memory.pipe(f"{folder}/readme.txt", b"?")
    return f"memory:/{folder}"


def write_tars(pictures: Pictures, folder: Path) -> str:
    """Two tar files, written by the library of that name."""
    folder.mkdir()
    names = list(pictures)
    for shard, part in enumerate((names[:6], names[6:])):
        with webdataset.TarWriter(str(folder / f"birds-{shard:03d}.tar")) as sink:
            for name in part:
                data, label = pictures[name]
                sample = {"__key__": name, "png": data, "seg.png": b"?", "json": {"width": 12}}
                sink.write(sample | ({"cls": label} if label else {}))
    return str(folder / "birds-{000..001}.tar")


def write_parquet(pictures: Pictures, folder: Path, struct: bool = True) -> str:
    """Two files with row groups of two rows."""
    folder.mkdir()
    names = list(pictures)
    for shard, part in enumerate((names[:6], names[6:])):
        cells = [pictures[name][0] for name in part]
        images = [{"bytes": cell, "path": None} for cell in cells] if struct else cells
        table = pa.table({"id": part, "image": images, "label": [pictures[name][1] for name in part]})
        pq.write_table(table, folder / f"birds-{shard}.parquet", row_group_size=2)
    return str(folder)


def write_parquet_of_paths(pictures: Pictures, folder: Path) -> str:
    write_folder(pictures, folder / "files")
    paths = [f"files/{label or 'unlabelled'}/{name}.png" for name, (_, label) in pictures.items()]
    table = pa.table({"file": paths, "label": [label for _, label in pictures.values()]})
    pq.write_table(table, folder / "birds.parquet")
    return str(folder / "birds.parquet")


def dataset_of(pictures: Pictures) -> "datasets.Dataset":
    kinds = ["heron", "robin"]
    features = datasets.Features({"photo": datasets.Image(), "label": datasets.ClassLabel(names=kinds)})
    rows = {
        "photo": [{"bytes": data, "path": None} for data, _ in pictures.values()],
        "label": [kinds.index(label) if label else -1 for _, label in pictures.values()],
    }
    return datasets.Dataset.from_dict(rows, features=features)


def write_saved_dataset(pictures: Pictures, folder: Path) -> str:
    dataset_of(pictures).save_to_disk(folder)
    return str(folder)


def write_named_dataset(pictures: Pictures, folder: Path) -> str:
    """A data set that is loaded by its name, which may be that of a folder with files of the library's own kind."""
    folder.mkdir()
    dataset_of(pictures).to_parquet(folder / "train.parquet")
    return f"hf:{folder}:train"


def write_parquet_of_library(pictures: Pictures, folder: Path) -> str:
    folder.mkdir()
    dataset_of(pictures).to_parquet(folder / "train.parquet")
    return f"file://{folder}/*.parquet"


KINDS: Mapping[str, Callable[[Pictures, Path], str]] = {
    "folder": write_folder,
    "URL": write_url,
    "memory": write_memory,
    "tars": write_tars,
    "Parquet": write_parquet,
    "Parquet of bytes": lambda pictures, folder: write_parquet(pictures, folder, struct=False),
    "Parquet of paths": write_parquet_of_paths,
    "Parquet of the library": write_parquet_of_library,
    "saved data set": write_saved_dataset,
    "named data set": write_named_dataset,
}
