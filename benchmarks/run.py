"""Run the benchmarks, print one value per line and write them to results.json.

make bench                          all benchmarks
python benchmarks/run.py bank       only benchmarks/bank.py

Most values are ratios of two measurements of the same run.
"""

import importlib
import json
import platform
import sys
from pathlib import Path

import torch

PARTS = (
    "step",
    "learn",
    "kmeans",
    "bank",
    "memory",
    "methods",
    "predict",
    "processes",
    "unknown",
    "effort",
    "serve",
    "startup",
)
FOLDER = Path(__file__).parent


def main(parts: tuple[str, ...]) -> None:
    """Run the benchmarks named in `parts`."""
    path = FOLDER / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    results["machine"] = f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    for part in parts:
        print(f"# {part}", flush=True)
        for key, value in importlib.import_module(part).measure().items():
            results[key] = value
            print(f"{key} {value}", flush=True)
        path.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER))
    main(tuple(sys.argv[1:]) or PARTS)
