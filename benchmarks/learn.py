"""Rate of `camp learn` on JPEG files relative to the trunk alone, and its slowdown on a busy machine.

The images are those of the first CLASSES classes of CUB-200, up to PER_CLASS of each; half of the images of the first KNOWN
classes are labelled. The environment variable CAMP_CUB names the folder of CUB-200, with class folders in train/. The busy
machine runs one endless loop per core besides, which leaves half of each core; the other command of that comparison is an
epoch of CAMP with EfficientNet-Lite0.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from camp.core.machine import available_cores, let_waiting_threads_sleep
from camp.core.parallel import threaded_map
from camp.data.bank.pipeline import TRUNK_BATCH
from camp.nn.backbones import make_backbone
from camp.nn.backbones.settings import BackboneSettings

CLASSES, KNOWN, PER_CLASS = 70, 50, 30
ROUNDS = 3
EPOCH_IMAGES = 4000


def sort_images(cub: Path, folder: Path) -> int:
    """Copy a batch of images into `folder`, class folders and unlabelled/; return their number."""
    count = 0
    for number, kind in enumerate(
        sorted(path for path in (cub / "train").iterdir() if path.is_dir())[:CLASSES]
    ):
        for position, file in enumerate(sorted(kind.iterdir())[:PER_CLASS]):
            labelled = number < KNOWN and position % 2 == 0
            target = folder / (kind.name if labelled else "unlabelled") / f"{kind.name}-{file.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            count += 1
    return count


def trunk_rate(images: int) -> float:
    """Return the images/s of the default trunk on batches in memory, one thread per core."""
    trunk = make_backbone(BackboneSettings(), torch.Generator().manual_seed(0)).single_threaded_trunk()
    assert trunk is not None
    pixels = torch.randn(TRUNK_BATCH, 3, 224, 224)
    passes = -(-images // TRUNK_BATCH)
    list(threaded_map(trunk, [pixels] * available_cores()))
    begun = time.perf_counter()
    for _ in threaded_map(trunk, (pixels for _ in range(passes))):
        pass
    return passes * TRUNK_BATCH / (time.perf_counter() - begun)


def learn_seconds(images: Path) -> float:
    """Return the time of `camp learn --epochs 0` in a process of its own, from its start to its end."""
    camp = Path(sys.executable).with_name("camp")
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        subprocess.run(
            [camp, "learn", Path(folder) / "W", images, "--epochs", "0", "--quiet"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return time.perf_counter() - begun


def epoch_seconds() -> float:
    """Return the time of an epoch of CAMP in a process of its own, without its start."""
    process = subprocess.run([sys.executable, __file__, "epoch"], check=True, capture_output=True, text=True)
    return float(process.stdout)


def one_epoch() -> float:
    """Train CAMP on a bank of random vectors and return the seconds of the second epoch."""
    from step import bank_trainer

    with bank_trainer("efficientnet-lite0", EPOCH_IMAGES) as (_, trainer):
        trainer.epoch(0)
        begun = time.perf_counter()
        trainer.epoch(1)
        return time.perf_counter() - begun


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core busy with another process."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(available_cores())]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure() -> dict[str, float]:
    """Measure `camp learn` and an epoch of CAMP, alone and on the busy machine."""
    if not (cub := os.environ.get("CAMP_CUB")):
        print("CAMP_CUB names no folder of CUB-200: learn_share and busy_ratio are not measured.")
        return {}
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images"
        count = sort_images(Path(cub), images)
        learn_seconds(images)  # files into the page cache
        # The speed of the machine varies, so both are timed alternately and the median ratio is returned.
        rounds = sorted(
            (count / seconds / rate, seconds, rate)
            for rate, seconds in ((trunk_rate(count), learn_seconds(images)) for _ in range(ROUNDS))
        )
        share, alone, rate = rounds[ROUNDS // 2]
        epoch = epoch_seconds()
        with busy_cores():
            busy_learn, busy_epoch = learn_seconds(images), epoch_seconds()
    ratios = busy_learn / alone, busy_epoch / epoch
    return {
        "learn_share": round(share, 3),
        "learn_seconds": round(alone, 1),
        "learn_trunk_images_per_second": round(rate, 1),
        "busy_ratio": round(max(ratios), 2),
        "busy_ratio_learn": round(ratios[0], 2),
        "busy_ratio_epoch": round(ratios[1], 2),
    }


if __name__ == "__main__":
    if sys.argv[1:] == ["epoch"]:
        let_waiting_threads_sleep()
        print(one_epoch())
    else:
        print(measure())
