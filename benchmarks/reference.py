"""Record the results of many small runs, and compare those of another version with them to the last digit.

python benchmarks/reference.py record FOLDER [--cub CUB] [--only PATTERN]    before a restructuring
python benchmarks/reference.py compare FOLDER [--cub CUB] [--only PATTERN]   after each step of it

Every method runs on scikit-learn's digits, in generalized continual category discovery and in class-incremental
learning, and on a small data set of vectors. With `--cub`, a folder with `train/<class>/` and `test/<class>/`, CAMP,
GCD+FD and CAMP+ also run on a part of CUB-200, and the guide's three monthly batches are learned into a workspace.
`compare` prints every value that differs and exits with 1 if there is one. Results depend on the machine and on the
number of threads, which is one here, so both commands must run on the same machine.
"""

import argparse
import csv
import fnmatch
import io
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

GCCD = [
    "frozen",
    "gcd",
    "gcd-ewc",
    "gcd-fd",
    "gcd-er",
    "metagcd",
    "simgcd",
    "pa",
    "igcd",
    "gm",
    "camp",
    "camp-plus",
]
CIL = ["gcd", "camp", "fine-tune", "ewc", "lwf", "joint", "pass", "il2a", "ssre", "fetril"]
ON_PIXELS = ("pass", "il2a", "ssre")
DIGITS = ["--dataset", "digits", "--tasks", "2", "--images-per-class", "40", "--test-per-class", "20"]
SMALL = ["--projector-width", "64"]
VARIANTS = {
    "camp-estimated": "--method camp --k estimated",
    "camp-exemplars": "--method camp --exemplars 5",
    "camp-mlp-adapter": "--method camp --adapter mlp --distiller linear",
    "camp-trex": "--method camp --adapter trex --distiller trex",
    "camp-sdc": "--method camp --adapter sdc --distiller fd",
    "camp-cosine-fresh": "--method camp --distill-loss cosine --views fresh",
    "camp-plus-estimated": "--method camp-plus --k estimated",
    "camp-plus-trained": "--method camp-plus --train --exemplars 5",
    "simgcd-estimated": "--method simgcd --k estimated",
    "igcd-estimated": "--method igcd --k estimated",
}
WITHOUT_PROJECTOR = ("frozen", *(set(CIL) - {"gcd", "camp"}), "metagcd", "pa")
MEASURED = ("summary", "tasks", "confusion", "map", "categories")
RENAMED = {
    "pictures": "images",
    "recipe": "parameters",
    "tame": "power_transform",
    "directions": "n_components",
}
"""Keys of results that have another name since they were recorded: old -> new."""


def runs(cub: Path | None, vectors: Path) -> Iterator[tuple[str, list[str]]]:
    """Name and options of `camp run` of every case."""

    def sized(method: str) -> list[str]:
        epochs = [] if method == "frozen" else ["--epochs", "2"]
        return epochs if method in WITHOUT_PROJECTOR else [*epochs, *SMALL]

    for method in GCCD:
        yield f"digits-gccd-{method}", [*DIGITS, "--method", method, *sized(method)]
    for method in CIL:
        options = [*DIGITS, "--setting", "cil", "--method", method, *sized(method)]
        yield f"digits-cil-{method}", options
    for name, options in VARIANTS.items():
        yield f"digits-gccd-{name}", [*DIGITS, *options.split(), *sized("camp")]
    data = f"--dataset embeddings --data {vectors} --tasks 2".split()
    for method in GCCD:
        yield f"vectors-gccd-{method}", [*data, "--method", method, *sized(method)]
    for method in [name for name in CIL if name not in ON_PIXELS]:
        yield f"vectors-cil-{method}", [*data, "--setting", "cil", "--method", method, *sized(method)]
    if cub is not None:
        birds = f"--dataset cub200 --data {cub} --tasks 2 --classes 20 --images-per-class 15".split()
        for method in ("camp", "gcd-fd", "camp-plus"):
            yield f"cub200-{method}", [*birds, "--epochs", "3", "--method", method]


def main() -> int:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cub", type=Path)
    parser.add_argument("--only", default="*", help="a shell pattern of case names")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    differing = 0
    for name, values in measured(given.cub, given.folder, given.only):
        path = given.folder / f"{name}.json"
        if given.command == "record":
            path.write_text(json.dumps(values, sort_keys=True))
            print(f"{name}: recorded", flush=True)
            continue
        if not path.exists():
            print(f"{name}: not recorded", flush=True)
            continue
        found = renamed(json.loads(json.dumps(values)))
        differences = list(compared(renamed(json.loads(path.read_text())), found))
        differing += bool(differences)
        print(f"{name}: {'equal' if not differences else 'DIFFERS'}", flush=True)
        for line in differences[:5]:
            print(f"    {line}", flush=True)
        if len(differences) > 5:
            print(f"    and {len(differences) - 5} more", flush=True)
    return 1 if differing else 0


def measured(cub: Path | None, folder: Path, only: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run every case; its name and what it gave."""
    import torch

    from camp.cli import main as camp

    torch.set_num_threads(1)
    bank = folder / "banks"
    with tempfile.TemporaryDirectory() as temporary:
        vectors = Path(temporary) / "vectors.npz"
        write_vectors(vectors)
        for name, options in runs(cub, vectors):
            if not fnmatch.fnmatch(name, only):
                continue
            out = Path(temporary) / name
            command = ["run", *options, "--quiet", "--bank", str(bank), "--out", str(out)]
            yield name, run_results(camp, command, out)
    if cub is not None and fnmatch.fnmatch("workspace", only):
        yield "workspace", workspace(camp, cub, folder / "months")


def run_results(camp: Any, command: list[str], out: Path) -> dict[str, Any]:
    """The results and predictions of one `camp run`."""
    with redirect_stdout(io.StringIO()):
        code = camp(command)
    if code != 0:
        raise SystemExit(f"camp {' '.join(command)} ended with {code}.")
    results = json.loads((out / "results.json").read_text())
    with (out / "predictions.csv").open(newline="") as file:
        predictions = list(csv.reader(file))[1:]
    return {**{key: results[key] for key in MEASURED}, "predictions": predictions}


def workspace(camp: Any, cub: Path, months: Path) -> dict[str, Any]:
    """The guide's three batches: categories and predictions after each, without and with training."""
    if not (months / "truth.csv").exists():
        command = [sys.executable, Path(__file__).with_name("months.py"), "cut", cub, months]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    values: dict[str, Any] = {}
    for title, options in (("untrained", []), ("trained", ["--epochs", "2", "--views", "2"])):
        birds = months / f"BIRDS-{title}"
        shutil.rmtree(birds, ignore_errors=True)
        for month in ("january", "february", "march"):
            out = months / "predictions.csv"
            with redirect_stdout(io.StringIO()):
                assert camp(["learn", str(birds), str(months / month), *options, "--quiet"]) == 0
                assert camp(["predict", str(birds), str(months / "new"), "--out", str(out), "--quiet"]) == 0
            with out.open(newline="") as file:
                values[f"{title}-{month}"] = {"predictions": list(csv.reader(file))[1:]}
            step = sorted((birds / "steps").iterdir())[-1]
            report = json.loads((step / "report.json").read_text())
            values[f"{title}-{month}"]["categories"] = report["categories"]
            values[f"{title}-{month}"]["curve"] = report["curve"]
    return values


def write_vectors(path: Path) -> None:
    """Ten overlapping classes of 48 dimensions, 30 vectors each, and 10 for the test."""
    draw = np.random.default_rng(0)
    classes = np.repeat(np.arange(10), 40)
    vectors = 0.4 * draw.normal(size=(10, 48))[classes] + draw.normal(size=(len(classes), 48))
    test = np.tile(np.repeat([False, True], [30, 10]), 10)
    np.savez(path, vectors=vectors.astype(np.float32), labels=classes, test=test)


def renamed(value: Any) -> Any:
    """`value` with its keys as they are called now."""
    if isinstance(value, dict):
        return {RENAMED.get(key, key): renamed(inner) for key, inner in value.items()}
    return [renamed(inner) for inner in value] if isinstance(value, list) else value


def compared(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """A line for each leaf that is not equal; a missing key is the same as null."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from compared(before.get(key), after.get(key), f"{at}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for position, pair in enumerate(zip(before, after)):
            yield from compared(*pair, f"{at}/{position}")
    elif before != after and not (_is_nan(before) and _is_nan(after)):
        yield f"{at}: {str(before)[:200]} -> {str(after)[:200]}"


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


if __name__ == "__main__":
    sys.exit(main())
