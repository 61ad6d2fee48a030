"""Training from scratch: speed-up by a second process, and the cost of computing views.

The slim ResNet-18 at 32 pixels is trained on scikit-learn's digits by `camp run`. The time of an epoch is taken from
`metrics.jsonl`, which excludes start-up and evaluation. The fastest epoch counts.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from camp.core.seeds import generator
from camp.nn.backbones import BackboneSettings, make_backbone

BATCH = 128
BIN = Path(sys.executable).parent
WORDS = (
    "--dataset digits --setting cil --method fine-tune --tasks 1 --images-per-class 128 --test-per-class 1 --epochs 4 "
    f"--batch-size {BATCH} --backbone resnet18-slim --resolution 32 --jitter 0.8 --grey 0.2 --quiet"
)
IMAGES = 1280


def epoch_seconds(processes: int, threads: int) -> float:
    """Return the time of the fastest epoch with a number of processes and of threads per process."""
    launcher = [str(BIN / "torchrun"), "--nproc-per-node", str(processes), "--no-python"]
    with tempfile.TemporaryDirectory() as folder:
        words = ["run", *WORDS.split(), "--bank", f"{folder}/banks", "--out", f"{folder}/run"]
        command = [*(launcher if processes > 1 else []), str(BIN / "camp"), *words]
        env = os.environ | {"OMP_NUM_THREADS": str(threads)}
        subprocess.run(command, env=env, check=True, capture_output=True)
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
        return min(json.loads(line)["seconds"] for line in lines)


def bare_views_per_second(repeats: int = 10) -> float:
    """Return the rate of forward and backward passes of one batch in memory, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    tip = make_backbone(BackboneSettings(backbone="resnet18-slim"), generator(0, "bench")).tip.train()
    batch, best = {"pixels": torch.randn(BATCH, 3, 32, 32)}, float("inf")
    for _ in range(repeats):
        begun = time.perf_counter()
        tip(batch).square().mean().backward()
        best = min(best, time.perf_counter() - begun)
    torch.set_num_threads(threads)
    return BATCH / best


def measure() -> dict[str, float]:
    """Compare one process, two processes and two threads."""
    one, two, threads = epoch_seconds(1, 1), epoch_seconds(2, 1), epoch_seconds(1, 2)
    return {
        "ddp_speedup": one / two,
        "ddp_speedup_over_two_threads": threads / two,
        "scratch_views_per_second": IMAGES / one,
        "scratch_share": IMAGES / one / bare_views_per_second(),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
