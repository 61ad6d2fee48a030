"""Growth of the cost of a view bank, a run and discovery, with an extrapolation to a million and a billion images.

    python benchmarks/scaling.py CIFAR100      measure with real runs and write scaling.json beside this file
    python benchmarks/scaling.py               print the tables of docs/scaling.md from scaling.json
    python benchmarks/scaling.py collections   print the costs of very large collections, from results.json of `make bench`

The runs use CAMP with EfficientNet-Lite0 on CIFAR-100 at 224 pixels. Each is a separate `camp run` process, whose
peak memory is that reported by the operating system. One quantity is varied at a time. Discovery is also
measured alone, on synthetic classes, for larger sizes than the images allow.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from camp.discovery.semi_supervised_kmeans import semi_supervised_kmeans

FILE = Path(__file__).with_name("scaling.json")
BASE = {"classes": 80, "images-per-class": 25, "augmentations": 4, "tasks": 5}
ALWAYS = "--method camp --novel-fraction 0.25 --test-per-class 10 --epochs 3 --quiet"
CHANGES: dict[str, list[dict[str, int]]] = {
    "images": [{"images-per-class": n} for n in (12, 25, 50, 100)],
    "views": [{"augmentations": n} for n in (2, 4, 8)],
    "tasks": [{"tasks": n} for n in (2, 5, 10, 20)],
    "classes": [{"classes": n, "images-per-class": 2000 // n} for n in (20, 40, 80)],
}
EPOCHS = 3
DIM = 1280
POINTS = [(5_000, 50), (10_000, 50), (20_000, 50), (40_000, 50), (10_000, 25), (10_000, 100), (10_000, 200)]
"""(points, clusters) of the discovery benchmark."""
RESTARTS = 20

Measured = dict[str, Any]


def one_run(data: str, banks: str, changes: dict[str, int]) -> Measured:
    """Run CAMP with these settings; return numbers of images and views, seconds and bytes."""
    settings = BASE | changes
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        before = _bytes_below(Path(banks))
        camp = str(Path(sys.executable).parent / "camp")
        command = [
            camp,
            "run",
            "--dataset",
            "cifar100",
            "--data",
            data,
            "--bank",
            banks,
            *ALWAYS.split(),
            *words,
        ]
        process = subprocess.Popen([*command, "--out", str(out)], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0, f"{' '.join(command)} failed"
        results = json.loads((out / "results.json").read_text())
        train = sum(task["labelled"] + task["unlabelled"] for task in results["tasks"])
        test = sum(task["test"] for task in results["tasks"])
        return {
            **settings,
            "train_images": train,
            "test_images": test,
            "views": train * (1 + settings["augmentations"]) + test,
            "new_bytes": _bytes_below(Path(banks)) - before,
            "folder_bytes": _bytes_below(out),
            "peak_mb": round(usage.ru_maxrss / 1024),
            "seconds": {name: round(value, 2) for name, value in results["seconds"].items()},
        }


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def discovery(points: int, clusters: int) -> Measured:
    """Time semi-supervised k-means on synthetic classes, a fifth of them novel."""
    draw = torch.Generator().manual_seed(0)
    truth = torch.arange(points) % clusters
    x = torch.randn(clusters, DIM, generator=draw)[truth] + 3 * torch.randn(points, DIM, generator=draw)
    known = clusters - clusters // 5
    labels = torch.where((truth < known) & (torch.rand(points, generator=draw) < 0.5), truth, -1)
    begun = time.perf_counter()
    semi_supervised_kmeans(x, labels, clusters - known, n_init=RESTARTS, generator=draw)
    return {
        "points": points,
        "clusters": clusters,
        "restarts": RESTARTS,
        "seconds": round(time.perf_counter() - begun, 2),
    }


def measure(data: str) -> None:
    measured: Measured = {"threads": torch.get_num_threads(), "runs": {}, "discovery": []}
    with tempfile.TemporaryDirectory() as banks:
        for name, changes in CHANGES.items():
            measured["runs"][name] = []
            for change in changes:
                row = one_run(data, banks, change)
                print(name, row, flush=True)
                measured["runs"][name].append(row)
    for points, clusters in POINTS:
        measured["discovery"].append(discovery(points, clusters))
        print(measured["discovery"][-1], flush=True)
    FILE.write_text(json.dumps(measured, indent=1) + "\n")


def tables() -> str:
    """Return the tables of docs/scaling.md."""
    measured = json.loads(FILE.read_text())
    parts = [_bank(measured), *(_growth(name, rows) for name, rows in measured["runs"].items())]
    return "\n".join([*parts, _discovery(measured["discovery"]), _extrapolation(measured)])


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [columns, ("---:",) * len(columns), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _bank(measured: Measured) -> str:
    filled = [row for rows in measured["runs"].values() for row in rows if row["new_bytes"]]
    rows = []
    for row in filled:
        new = row["new_bytes"] / _view_bytes(measured)
        rows.append(
            (
                f"{row['train_images'] + row['test_images']:,}", str(row["augmentations"]), f"{row['views']:,}", f"{new:,.0f}",
                f"{row['new_bytes'] / 1e6:.1f} MB", f"{row['seconds']['bank']:.1f} s", f"{new / row['seconds']['bank']:.0f}",
            )
        )  # fmt: skip
    return _table(
        ("images", "views per image", "views", "new views", "bank grows by", "time", "views/s"), rows
    )


def _view_bytes(measured: Measured) -> float:
    """Return the size of a view in bytes, from the first bank, in which all views were new."""
    first = measured["runs"]["images"][0]
    return float(first["new_bytes"] / first["views"])


def _growth(name: str, rows: list[Measured]) -> str:
    columns = (
        "training images", "views per image", "tasks", "classes", "train", "discover", "evaluate", "peak memory", "run folder",
    )  # fmt: skip
    lines = [
        (
            f"{row['train_images']:,}", str(row["augmentations"]), str(row["tasks"]), str(row["classes"]),
            f"{row['seconds']['train']:.1f} s", f"{row['seconds']['discover']:.1f} s", f"{row['seconds']['evaluate']:.1f} s", f"{row['peak_mb']} MB",
            f"{row['folder_bytes'] / 1e6:.1f} MB",
        )
        for row in rows
    ]  # fmt: skip
    return _table(columns, lines)


def _discovery(rows: list[Measured]) -> str:
    lines = [
        (
            f"{row['points']:,}", str(row["clusters"]), f"{row['seconds']:.1f} s",
            f"{1e9 * row['seconds'] / (row['points'] * row['clusters'] * row['restarts']):.1f} ns",
        )
        for row in rows
    ]  # fmt: skip
    return _table(("images", "clusters", f"{RESTARTS} restarts", "per image, cluster and restart"), lines)


def _extrapolation(measured: Measured) -> str:
    """Extrapolate the measured rates to large datasets: 8 views, 5 tasks, 10 epochs, 100 restarts."""
    small, large = measured["runs"]["images"][0], measured["runs"]["images"][-1]
    more = large["train_images"] - small["train_images"]
    last = measured["runs"]["views"][-1]
    rate = last["new_bytes"] / _view_bytes(measured) / last["seconds"]["bank"]
    step = large["seconds"]["train"] / large["train_images"] / EPOCHS
    beside = (large["seconds"]["discover"] - small["seconds"]["discover"]) / more
    unit = max(
        row["seconds"] / (row["points"] * row["clusters"] * row["restarts"]) for row in measured["discovery"]
    )
    memory = 2**20 * (large["peak_mb"] - small["peak_mb"]) / more
    names = (large["folder_bytes"] - small["folder_bytes"]) / more
    lines = []
    for images, classes in ((1e4, 100), (1e6, 1_000), (1e9, 10_000)):
        views = 9 * images
        lines.append(
            (
                f"{images:,.0f}", f"{classes:,}", _size(views * _view_bytes(measured)), _hours(views / rate),
                _hours(10 * step * images), _hours(beside * images + 5 * 100 * unit * (images / 5) * (classes / 5)),
                _size(memory * images), _size(names * images),
            )
        )  # fmt: skip
    columns = (
        "training images", "classes", "bank", "trunk", "training of one run", "discovery in all tasks", "memory grows by",
        "run folder grows by",
    )  # fmt: skip
    return _table(columns, lines)


GPU_IMAGES_PER_SECOND = 9466
"""Published rate of EfficientNet-Lite0 at 224 pixels on an RTX 3090 (docs/scaling.md names the source)."""
GPU_MULTIPLICATIONS_PER_SECOND = 128e12 / 55
"""Published rate of FAISS k-means on one P100: a million points, 256 dimensions, 20,000 centroids, 25 iterations in 55 s."""
IMAGE_BYTES, FEATURE_BYTES, ROW_BYTES = 110e3, 2 * DIM, 100
"""Of an image file of CUB-200, of its features in half precision, and of a row of predictions."""
COMPONENTS, CATEGORIES, SAMPLE_PER_CATEGORY, ITERATIONS = 128, 20_000, 256, 25


def collections(measured: dict[str, float], images: tuple[float, ...] = (1e8, 1e9)) -> str:
    """Tabulate what collections cost, from measured rates on two cores and published ones on GPUs."""
    trunk, whole = measured["backbone_images_per_second"], measured["predict_images_per_second"]
    decoding = 2 * (1 / whole - 1 / trunk)  # core seconds per image
    products = 1e9 * measured["product_gflops"] / 2  # multiplications per second of two cores
    sample = CATEGORIES * SAMPLE_PER_CATEGORY * COMPONENTS * CATEGORIES * ITERATIONS
    rows: list[tuple[str, ...]] = [
        ("files read", *(_size(n * IMAGE_BYTES) for n in images)),
        ("features in half precision", *(_size(n * FEATURE_BYTES) for n in images)),
        ("rows of predictions", *(_size(n * ROW_BYTES) for n in images)),
        ("decoding, core hours", *(f"{n * decoding / 3600:,.0f}" for n in images)),
        ("trunk, core hours without a GPU", *(f"{n * 2 / trunk / 3600:,.0f}" for n in images)),
        ("trunk, hours of an RTX 3090", *(f"{n / GPU_IMAGES_PER_SECOND / 3600:,.1f}" for n in images)),
        ("cores that decode for one such GPU", *(f"{GPU_IMAGES_PER_SECOND * decoding:.0f}" for _ in images)),
        ("k-means of a sample, two cores", *(_hours(sample / products) for _ in images)),
        ("k-means of a sample, one P100", *(_hours(sample / GPU_MULTIPLICATIONS_PER_SECOND) for _ in images)),
        (
            "assignment of all, core hours",
            *(f"{n * COMPONENTS * CATEGORIES * 2 / products / 3600:,.0f}" for n in images),
        ),
        (
            "assignment of all, one P100",
            *(_hours(n * COMPONENTS * CATEGORIES / GPU_MULTIPLICATIONS_PER_SECOND) for n in images),
        ),
    ]
    return _table(("", *(f"{n:,.0f} images" for n in images)), rows).replace("| ---:", "| :---", 1)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PB"


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    if hours < 1:
        return f"{seconds / 60:.2g} min"
    return f"{hours:.3g} h" if hours < 100 else f"{hours / 24:,.0f} days"


if __name__ == "__main__":
    if sys.argv[1:] == ["collections"]:
        print(collections(json.loads(FILE.with_name("results.json").read_text())))
    else:
        if len(sys.argv) > 1:
            measure(sys.argv[1])
        print(tables())
