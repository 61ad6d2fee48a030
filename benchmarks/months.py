"""The example of the guide: divide a dataset of class folders into three months and evaluate a workspace on it.

python benchmarks/months.py cut CUB MONTHS [4]
    Write january/ february/ march/ new/ and truth.csv to MONTHS, from the class folders in CUB/train/ and CUB/test/;
    with 4, four times as many classes.
python benchmarks/months.py score MONTHS BIRDS PREDICTIONS
    Print the accuracy of the predictions of new/, and a summary of the discovered categories.
python benchmarks/months.py review MONTHS BIRDS
    Name and merge discovered categories by their true majority class, as a reviewer would.

There are 30 classes. In each month some classes are new and labelled, some are new and unlabelled, and some return, with or
without labels. About a third of the images of a month are in class folders, the others in `unlabelled/` under neutral
file names.
"""

import csv
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from camp.app.workspace.knowledge import Knowledge

SEED, HELD_OUT, FIRST, AGAIN = 0, 20, 26, 14
"""Random seed, and images of a class in `new/`, in its first month, and in the month in which it returns."""
STRANGERS = 3
"""Classes that are only in `new/`: the correct prediction is unknown."""

# Classes of each month by number: (new and labelled, new and unlabelled, returning and labelled, returning and unlabelled).
MONTHS = {
    "january": (range(0, 10), range(10, 14), (), ()),
    "february": (range(14, 19), range(19, 22), (4, 10), (0, 1, 2, 11)),
    "march": (range(22, 27), range(27, 30), (5, 19), (3, 6, 14, 15, 12)),
}
LABELLED = 0.55
"""Share of the images of a labelled class that is in its folder."""


def cut(source: Path, out: Path, times: Path = Path("1")) -> None:
    """Write the folders of the months, with `times` as many classes as in the guide."""
    scale, draw = int(str(times)), np.random.default_rng(SEED)
    plan = {
        month: [[scale * n + i for n in numbers for i in range(scale)] for numbers in classes]
        for month, classes in MONTHS.items()
    }
    names = sorted(path.name for path in (source / "train").iterdir() if path.is_dir())
    chosen = [names[i] for i in draw.choice(len(names), scale * (30 + STRANGERS), replace=False)]
    images = {}
    for name in chosen:
        files = sorted([*(source / "train" / name).glob("*"), *(source / "test" / name).glob("*")])
        images[name] = [files[i] for i in draw.permutation(len(files))]
    truth: list[tuple[str, str]] = []

    def place(file: Path, month: str, folder: str, name: str) -> None:
        target = out / month / folder / f"picture-{len(truth):05d}{file.suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        truth.append((str(target.relative_to(out)), name))

    for name in chosen:
        for _ in range(HELD_OUT):
            place(images[name].pop(), "new", "", name)
    for month, (known, novel, back, back_unlabelled) in plan.items():
        for number in (*known, *novel, *back, *back_unlabelled):
            name = chosen[number]
            count = FIRST if number in (*known, *novel) else AGAIN
            files = [images[name].pop() for _ in range(min(count, len(images[name])))]
            labelled = round(LABELLED * len(files)) if number in (*known, *back) else 0
            for position, file in enumerate(files):
                place(file, month, _plain(name) if position < labelled else "unlabelled", name)
    with (out / "truth.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("file", "class"), *((path, _plain(name)) for path, name in truth)])
    for month in MONTHS:
        inside = [path for path, _ in truth if path.startswith(month)]
        labelled = sum("unlabelled" not in path for path in inside)
        print(f"{month}: {len(inside)} images, {labelled} labelled")


def _plain(name: str) -> str:
    """Return a readable class name: `Cardinal` for `017.Cardinal`."""
    return name.split(".", 1)[-1].replace("_", " ")


def score(months: Path, place: Path, predictions: Path) -> None:
    """Print the accuracy of `predictions` of `new/`, and a summary of the discovered categories."""
    truth, knowledge, majority = _truth(months), *_majorities(months, place)
    seen = {truth[file] for file in knowledge.images.files}
    given = {path.split("/")[1] for path in knowledge.images.files if "/unlabelled/" not in path}
    right: dict[str, list[bool]] = {"all": [], "labelled": [], "discovered": []}
    wrongly, rightly = [], []
    with predictions.open() as file:
        for row in csv.DictReader(file):
            name, unknown = truth[f"new/{row['file']}"], row["category"] == ""
            if name not in seen:
                rightly.append(unknown)
                continue
            wrongly.append(unknown)
            guess = None if unknown else _called(knowledge, majority, int(row["category"]))
            right["all"].append(guess == name)
            right["labelled" if name in given else "discovered"].append(guess == name)
    shares = ", ".join(f"{key} {100 * np.mean(values):.1f}" for key, values in right.items() if values)
    print(f"{len(seen)} classes seen, {len(right['all'])} new images of them; correct: {shares} %")
    print(
        f"called unknown: {100 * np.mean(wrongly):.1f} % of these, "
        f"{100 * np.mean(rightly):.1f} % of {len(rightly)} images of classes never seen"
    )
    discovered = [c for c in knowledge.live() if c.origin == "discovered"]
    same = sum(majority[c.id][1] > 0.5 for c in discovered)
    names = {majority[c.id][0] for c in discovered if majority[c.id][1] > 0.5}
    print(
        f"{len(discovered)} categories discovered; {same} consist mostly of one class and would be named after it, "
        f"{len(names)} different names; {len(seen - given)} classes never had a label"
    )


def review(months: Path, place: Path) -> None:
    """Name each category after its majority class, or merge it into the category that has this name."""
    from camp.app.workspace.events import Merged, Named
    from camp.app.workspace.workspace import Workspace

    workspace = Workspace.open(place)
    _, majority = _majorities(months, place)
    for category in workspace.knowledge().live():
        name, share, _ = majority[category.id]
        if category.name is not None or share <= 0.5:
            continue
        other = workspace.knowledge().named().get(name)
        if other is None:
            workspace.decide(Named(category=category.id, name=name))
        else:
            workspace.decide(Merged(category=category.id, into=other))
    print(f"{len(workspace.events())} events")


def _truth(months: Path) -> dict[str, str]:
    with (months / "truth.csv").open() as file:
        return {row["file"]: row["class"] for row in csv.DictReader(file)}


def _majorities(months: Path, place: Path) -> tuple["Knowledge", dict[int, tuple[str, float, int]]]:
    """Return the knowledge of a workspace and, of each category, its majority class, the share of it, and the number of images."""
    from camp.app.workspace.workspace import Workspace

    truth, knowledge = _truth(months), Workspace.open(place).knowledge()
    majority = {}
    for category in knowledge.live():
        rows = knowledge.rows_of(category.id)
        [(name, count)] = Counter(truth[knowledge.images.files[row]] for row in rows).most_common(1)
        majority[category.id] = (name, count / len(rows), len(rows))
    return knowledge, majority


def _called(knowledge: "Knowledge", majority: dict[int, tuple[str, float, int]], id: int) -> str | None:
    """Return the name of a category, or else the class of more than half of its images, if there is one."""
    category = knowledge.categories[id]
    name, share, _ = majority[id]
    return category.name or (name if share > 0.5 else None)


if __name__ == "__main__":
    command, *paths = sys.argv[1:]
    {"cut": cut, "score": score, "review": review}[command](*map(Path, paths))
