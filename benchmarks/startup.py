"""Time until a command that computes nothing is done: help, listings, a mistake, and the status of a workspace."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import camp

BIN = Path(sys.executable).parent
PROCESSES = 5
COMMANDS = {
    "help": "--help",
    "run_help": "run --help",
    "comparison_help": "run --method camp,gcd --help",
    "study_help": "study alpha --help",
    "report_help": "report --help",
    "learn_help": "learn --help",
    "methods": "methods",
    "datasets": "datasets",
    "studies": "study",
    "mistake": "run --out run --frobnicate 3",
    "status": "status WORKSPACE",
}
CATEGORIES, EACH, DIM = 12, 50, 64


def make_workspace(path: Path) -> None:
    """Learn synthetic vectors; two thirds of the categories have labels on some of them."""
    rng = np.random.default_rng(0)
    own = np.arange(CATEGORIES * EACH) % CATEGORIES
    vectors = 3 * rng.normal(size=(CATEGORIES, DIM))[own] + rng.normal(size=(len(own), DIM))
    labels = np.where((own < 2 * CATEGORIES // 3) & (rng.random(len(own)) < 0.3), own, -1)
    model = camp.CAMP(backbone="embeddings", epochs=1)
    model.partial_fit(list(vectors.astype(np.float32)), labels)
    model.save(path)


def median_seconds(command: list[str], folder: Path) -> float:
    """Return the median time of `PROCESSES` processes, after one that fills the caches."""
    seconds = []
    for _ in range(1 + PROCESSES):
        start = time.perf_counter()
        subprocess.run([str(BIN / "camp"), *command], cwd=folder, capture_output=True)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def measure() -> dict[str, float]:
    """Return the median time of each command."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_workspace(folder / "WORKSPACE")
        return {
            f"startup_{key}_seconds": median_seconds(words.split(), folder) for key, words in COMMANDS.items()
        }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
