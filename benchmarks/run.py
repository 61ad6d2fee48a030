"""Every figure of the benchmarks, one line each, as ratios measured in one run; written to results.json.

make bench                          all of them
python benchmarks/run.py bank       only those of benchmarks/bank.py
"""

import importlib
import json
import platform
import sys
from pathlib import Path

import torch

PARTS = ("step", "kmeans", "bank", "memory", "methods", "predict", "processes")
FOLDER = Path(__file__).parent


def main(parts: tuple[str, ...]) -> None:
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
