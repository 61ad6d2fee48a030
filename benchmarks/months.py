"""The guide's example: a data set of class folders cut into three monthly folders, and what became of it.

python benchmarks/months.py cut CUB MONTHS       january/ february/ march/ new/ and truth.csv, from train/ and test/ class folders
python benchmarks/months.py score MONTHS BIRDS PREDICTIONS...   accuracy after each month, and the discovered categories

30 classes. In each month some are new, and of these some come with labels and some do not; some come back, with or
without labels. About a third of a month's pictures lies in class folders, the rest in `unlabelled/` under names that say nothing.
"""

import csv
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np

SEED, HELD_OUT, FIRST, AGAIN = 0, 20, 26, 14
"""Pictures of a class in `new/`, in its first month, and in the month in which it comes back."""
STRANGERS = 3
"""Classes that are in `new/` alone: the right answer is unknown."""

# Classes by number: (new and labelled, new and not, back and labelled, back and not) in each month.
MONTHS = {
    "january": (range(0, 10), range(10, 14), (), ()),
    "february": (range(14, 19), range(19, 22), (4, 10), (0, 1, 2, 11)),
    "march": (range(22, 27), range(27, 30), (5, 19), (3, 6, 14, 15, 12)),
}
LABELLED = 0.55
"""Share of the pictures of a labelled class that lies in its folder."""


def cut(source: Path, out: Path) -> None:
    draw = np.random.default_rng(SEED)
    names = sorted(path.name for path in (source / "train").iterdir() if path.is_dir())
    chosen = [names[i] for i in draw.choice(len(names), 30 + STRANGERS, replace=False)]
    pictures = {}
    for name in chosen:
        files = sorted([*(source / "train" / name).glob("*"), *(source / "test" / name).glob("*")])
        pictures[name] = [files[i] for i in draw.permutation(len(files))]
    truth: list[tuple[str, str]] = []

    def place(file: Path, month: str, folder: str, name: str) -> None:
        target = out / month / folder / f"picture-{len(truth):05d}{file.suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        truth.append((str(target.relative_to(out)), name))

    for name in chosen:
        for _ in range(HELD_OUT):
            place(pictures[name].pop(), "new", "", name)
    for month, (known, novel, back, back_unlabelled) in MONTHS.items():
        for number in (*known, *novel, *back, *back_unlabelled):
            name = chosen[number]
            count = FIRST if number in (*known, *novel) else AGAIN
            files = [pictures[name].pop() for _ in range(min(count, len(pictures[name])))]
            labelled = round(LABELLED * len(files)) if number in (*known, *back) else 0
            for position, file in enumerate(files):
                place(file, month, _plain(name) if position < labelled else "unlabelled", name)
    with (out / "truth.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("file", "class"), *((path, _plain(name)) for path, name in truth)])
    for month in MONTHS:
        inside = [path for path, _ in truth if path.startswith(month)]
        labelled = sum("unlabelled" not in path for path in inside)
        print(f"{month}: {len(inside)} pictures, {labelled} with a label")


def _plain(name: str) -> str:
    """`017.Cardinal` as a person would write it."""
    return name.split(".", 1)[-1].replace("_", " ")


def score(months: Path, workspace: Path, predictions: list[Path]) -> None:
    from camp.workspace.folder import Workspace

    with (months / "truth.csv").open() as file:
        truth = {row["file"]: row["class"] for row in csv.DictReader(file)}
    seen = Workspace.open(workspace)
    knowledge = seen.knowledge()
    everyone = sorted(set(truth.values()))
    appeared = {
        month: {name for path, name in truth.items() if path.startswith(month)} for month in MONTHS
    }
    # What a person would call each category: the class of most of its pictures, if it is more than half of them.
    majority = {}
    for category in knowledge.live():
        rows = knowledge.rows_of(category.id)
        of = Counter(truth[f"{knowledge.pictures.files[row]}"] for row in rows)
        name, count = of.most_common(1)[0]
        majority[category.id] = (name, count / len(rows), len(rows))
    print(f"{'month':10} {'pictures':>8} {'right':>6} {'labelled classes':>17} {'discovered':>11}   unknown: wrongly, rightly")
    given = {path.split("/")[1] for path in truth if "unlabelled" not in path and not path.startswith("new")}
    so_far: set[str] = set()
    for month, path in zip(MONTHS, predictions):
        so_far |= appeared[month]
        with path.open() as file:
            rows = [row for row in csv.DictReader(file)]
        right: dict[str, list[bool]] = {"all": [], "given": [], "found": []}
        wrongly, rightly = [], []
        for row in rows:
            name = truth[f"new/{row['file']}"]
            unknown = row["category"] == ""
            if name not in so_far:
                rightly.append(unknown)
                continue
            wrongly.append(unknown)
            answer = None if unknown else int(row["category"])
            title = knowledge.categories[answer].name if answer is not None else None
            guess = title or (majority.get(answer, (None,))[0] if answer is not None else None)
            right["all"].append(guess == name)
            right["given" if name in given else "found"].append(guess == name)
        shares = {key: f"{100 * np.mean(values):.1f}" if values else "-" for key, values in right.items()}
        print(
            f"{month:10} {len(right['all']):8} {shares['all']:>6} {shares['given']:>17} {shares['found']:>11}"
            f"   {100 * np.mean(wrongly):.1f} %, {100 * np.mean(rightly):.1f} %"
        )
    print()
    discovered = [c for c in knowledge.categories.values() if c.origin == "discovered" and c.live]
    same = 0
    for category in discovered:
        name, share, count = majority[category.id]
        same += share > 0.5
        print(f"{category.title:24} {count:3} pictures, {100 * share:3.0f} % {name}")
    print(f"{same} of {len(discovered)} discovered categories are mostly one class; {len(everyone) - STRANGERS} classes in all")


if __name__ == "__main__":
    command, *paths = sys.argv[1:]
    if command == "cut":
        cut(Path(paths[0]), Path(paths[1]))
    else:
        score(Path(paths[0]), Path(paths[1]), [Path(path) for path in paths[2:]])
