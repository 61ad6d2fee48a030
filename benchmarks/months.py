"""Measure the tool for one's own images on datasets of class folders that are divided into three months.

python benchmarks/months.py cut CUB MONTHS [4] [--seed 0] [--imbalance 1]
    Write january/ february/ march/ new/ and truth.csv to MONTHS, from the class folders in CUB/train/ and CUB/test/;
    with 4, four times as many classes.
python benchmarks/months.py score MONTHS BIRDS PREDICTIONS
    Print the accuracy of the predictions of new/, and a summary of the discovered categories.
python benchmarks/months.py review MONTHS BIRDS
    Name and merge discovered categories by their true majority class, as a reviewer would.
python benchmarks/months.py table CACHE cub=CUB cub4=CUB cifar=CIFAR tiny=TINY pacs=PACS [--seeds 0,1,2] [--imbalance 1,10]
    Learn the months of every cut, and print a table. Features and results are kept in CACHE; results of other versions
    of the library, which PYTHONPATH selects, get another --tag.
python benchmarks/months.py compare CACHE TAG TAG
    Print the tables of two tags with their differences.

**The months.** In each month some classes are new and labelled, some are new and unlabelled, and some return, with or
without labels. Of a labelled class 55 % of the images are in its folder, and all other images of a month are in
`unlabelled/` under neutral file names. A class has up to 26 images in its first month, up to 14 in the month in which it
returns, and 20 held out in `new/`. The seed draws the classes, their roles, and the images.

| cut | dataset | classes | new and labelled | new and unlabelled | returning with labels | returning without |
|---|---|---|---|---|---|---|
| cub | CUB-200 | 30 | 10, 5, 5 | 4, 3, 3 | 0, 2, 2 | 0, 4, 5 |
| cub4 | CUB-200 | 120 | 40, 20, 20 | 16, 12, 12 | 0, 8, 8 | 0, 16, 20 |
| cifar, tiny | CIFAR-100, Tiny-ImageNet | 30 | as cub | | | |
| pacs | PACS | 6 | 2, 1, 0 | 1, 1, 1 | 0, 1, 1 | 0, 2, 3 |

**PACS** has folders of domains instead of train/ and test/. All images of a month are of one domain, which differs from
month to month; a class that returns therefore looks different. The seed draws the three domains. In each of them 20 images
of every class are held out, and after a month those of the domains so far are predicted, also of classes that have not
been learned in that domain.

**Imbalance.** With `--imbalance 10` the numbers of images of a class are multiplied by a factor that falls exponentially
from 1 to 1/10 over a random order of the classes, and are at least 2. The held-out images stay the same.

**Unknown.** Images of all classes of the dataset that are in no month, up to 20 of a class and 2,000 in all, should be
called unknown. (`cut` writes only three of these classes to `new/`, or twelve of four times as many.)

**The table** shows means over the seeds. Features are those of `camp learn --epochs 0`, given to the learning of
`camp.CAMP(backbone="embeddings")` and kept in half precision like those of images; every process has one thread.

- accuracy: share of the held-out images of the classes so far that are predicted correctly, after each month, as `score`
  counts it: by the name of the category or else the class of more than half of its images; unknown is wrong
- mostly one class: share of the discovered categories more than half of whose images are of one class, after March
- estimated: number of categories discovered in each month; error: mean absolute difference from the true number
- wrong merges: number of new unlabelled classes more than half of whose images are, after their first month, in
  categories with the name of another class or, without a name, in which another class is the most frequent one
- false alarms, detected: share of the held-out images of the classes so far, and of the classes in no month, that are
  called unknown after March
- AUROC, detected at 5 %: the same two sets by the distance that decides on unknown, and with the threshold that 5 % of the
  former exceed
"""

import argparse
import csv
import dataclasses
import functools
import json
import math
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from camp.app.workspace.knowledge import Knowledge
    from camp.app.workspace.workspace import Workspace

HELD_OUT, FIRST, AGAIN = 20, 26, 14
"""Images of a class in `new/`, in its first month, and in the month in which it returns."""
MIN_IMAGES = 2
"""Least number of images of a class in a month, if the classes differ in size."""
LABELLED = 0.55
"""Share of the images of a labelled class that is in its folder."""
UNUSED, MAX_UNUSED_IMAGES = 3, 2000
"""Classes of no month that `cut` writes, and the number of images of all such classes in the table."""

Roles = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]]
"""Classes of a month by number: new and labelled, new and unlabelled, returning and labelled, returning and unlabelled."""
MONTHS: dict[str, Roles] = {
    "january": (range(0, 10), range(10, 14), (), ()),
    "february": (range(14, 19), range(19, 22), (4, 10), (0, 1, 2, 11)),
    "march": (range(22, 27), range(27, 30), (5, 19), (3, 6, 14, 15, 12)),
}
MONTHS_OF_DOMAINS: dict[str, Roles] = {
    "january": ((0, 1), (2,), (), ()),
    "february": ((3,), (4,), (0,), (1, 2)),
    "march": ((), (5,), (3,), (0, 1, 4)),
}
NEW = "new"
TIMES = {"cub": 1, "cub4": 4, "cifar": 1, "tiny": 1, "pacs": 1}
"""The cuts of the table, and how many times as many classes they have."""


# Which image is in which month.


@dataclass(frozen=True)
class Placed:
    """An image and its place in a cut."""

    file: Path
    name: str
    """Its class."""
    month: str
    """A month, or `NEW` for an image that is held out."""
    domain: str
    labelled: bool = False
    unused: bool = False
    """Whether its class is in no month."""

    def target(self, number: int) -> str:
        """Return the path, relative to the folder of the cut, of the image with this number."""
        folder = self.domain if self.month == NEW else self.name if self.labelled else "unlabelled"
        return str(Path(self.month, folder, f"picture-{number:05d}{self.file.suffix}"))


def divide(
    source: Path, *, seed: int = 0, imbalance: float = 1, times: int = 1, all_unused: bool = False
) -> list[Placed]:
    """Divide a dataset into held-out images and months, in this order.

    Args:
        source: A folder with train/ and perhaps test/, or with one folder for each domain; in these, class folders.
        imbalance: Ratio of the largest to the smallest class.
        times: How many times as many classes as in `MONTHS`.
        all_unused: Whether to hold out images of all classes that are in no month, or only of some.
    """
    draw, files = np.random.default_rng(seed), class_files(source)
    domains, names = list(files), sorted(set.intersection(*(set(classes) for classes in files.values())))
    plan = _multiplied(MONTHS if len(domains) == 1 else MONTHS_OF_DOMAINS, times)
    used = 1 + max(number for roles in plan.values() for numbers in roles for number in numbers)
    chosen = [
        names[i] for i in draw.choice(len(names), min(used + times * UNUSED, len(names)), replace=False)
    ]
    if all_unused:
        chosen += [name for name in names if name not in chosen]
    if len(domains) > 1:
        domains = [domains[i] for i in draw.permutation(len(domains))[: len(plan)]]
    images = {}
    for name in chosen:
        for domain in domains:
            of_class = files[domain][name]
            images[name, domain] = [of_class[i] for i in draw.permutation(len(of_class))]

    def take(name: str, domain: str, count: int) -> list[Path]:
        left = images[name, domain]
        return [left.pop() for _ in range(min(count, len(left)))]

    placed = []
    of_unused = min(HELD_OUT, MAX_UNUSED_IMAGES // (len(domains) * max(1, len(chosen) - used)))
    for number, name in enumerate(chosen):
        for domain in domains:
            held_out = take(name, domain, HELD_OUT if number < used else of_unused)
            placed += [Placed(file, plain(name), NEW, domain, unused=number >= used) for file in held_out]
    shares = class_shares(used, imbalance, seed)
    for position, (month, (known, novel, back, back_unlabelled)) in enumerate(plan.items()):
        domain = domains[position % len(domains)]
        for number in (*known, *novel, *back, *back_unlabelled):
            most = FIRST if number in (*known, *novel) else AGAIN
            taken = take(chosen[number], domain, max(MIN_IMAGES, round(most * shares[number])))
            labelled = round(LABELLED * len(taken)) if number in (*known, *back) else 0
            placed += [
                Placed(file, plain(chosen[number]), month, domain, labelled=index < labelled)
                for index, file in enumerate(taken)
            ]
    return placed


@functools.cache
def class_files(source: Path) -> Mapping[str, Mapping[str, Sequence[Path]]]:
    """Return the sorted image files of each class, by domain; the domain is "" in a dataset with train/ and test/."""
    from camp.data.datasets.folders import image_files

    parts = {"": ["test", "train"]}
    if not (source / "train").is_dir():
        parts = {path.name: [path.name] for path in sorted(source.iterdir()) if path.is_dir()}
    if not parts:
        raise SystemExit(f"{source} has neither train/ nor folders of domains.")
    return {
        domain: {
            path.name: [
                source / key for folder in folders for key in image_files(source, f"{folder}/{path.name}")
            ]
            for path in sorted((source / folders[-1]).iterdir())
            if path.is_dir()
        }
        for domain, folders in parts.items()
    }


def class_shares(count: int, imbalance: float, seed: int) -> list[float]:
    """Return the sizes of `count` classes relative to the largest one, in a random order.

    >>> sorted(class_shares(3, 100, seed=0))
    [0.01, 0.1, 1.0]
    """
    ranks = np.random.default_rng([seed, 1]).permutation(count)
    return [float(imbalance ** (-rank / max(1, count - 1))) for rank in ranks]


def plain(name: str) -> str:
    """Return a readable class name.

    >>> plain("017.Cardinal"), plain("aquarium_fish")
    ('Cardinal', 'aquarium fish')
    """
    return name.split(".", 1)[-1].replace("_", " ")


def _multiplied(plan: Mapping[str, Roles], times: int) -> dict[str, list[list[int]]]:
    """Replace every class by `times` classes."""
    return {
        month: [[times * number + i for number in numbers for i in range(times)] for numbers in roles]
        for month, roles in plan.items()
    }


def cut(source: Path, out: Path, times: int, seed: int, imbalance: float) -> None:
    """Write the folders of the months and the true classes."""
    placed = divide(source, seed=seed, imbalance=imbalance, times=times)
    truth = [("file", "class")]
    for number, image in enumerate(placed):
        target = out / image.target(number)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(image.file, target)
        truth.append((image.target(number), image.name))
    with (out / "truth.csv").open("w", newline="") as file:
        csv.writer(file).writerows(truth)
    for month in MONTHS:
        inside = [image for image in placed if image.month == month]
        print(f"{month}: {len(inside)} images, {sum(image.labelled for image in inside)} labelled")


# Evaluation with the true classes.


@dataclass(frozen=True)
class Majority:
    """The most frequent class of a category."""

    name: str
    share: float

    @property
    def most(self) -> bool:
        """Whether more than half of the images are of this class."""
        return self.share > 0.5


def majorities(knowledge: "Knowledge", classes: Sequence[str]) -> dict[int, Majority]:
    """Return the majority of each live category with images; `classes` are the true ones of the learned images."""
    found = {}
    for category in knowledge.live():
        rows = knowledge.rows_of(category.id)
        if len(rows):
            [(name, count)] = Counter(classes[row] for row in rows).most_common(1)
            found[category.id] = Majority(name, count / len(rows))
    return found


def called(knowledge: "Knowledge", majority: Mapping[int, Majority], id: int) -> str | None:
    """Return the name of a category, or else the class of more than half of its images, if there is one."""
    return knowledge.categories[id].name or (majority[id].name if majority[id].most else None)


def correct(
    knowledge: "Knowledge",
    majority: Mapping[int, Majority],
    given: set[str],
    answers: Iterable[tuple[str, int | None]],
) -> dict[str, list[bool]]:
    """Return whether each prediction is correct: of all images, of classes with labels, and of discovered classes.

    Args:
        given: Classes that had labels.
        answers: True class and predicted category, None for unknown, of images of the classes so far.
    """
    right: dict[str, list[bool]] = {"all": [], "labelled": [], "discovered": []}
    for name, category in answers:
        is_right = category is not None and called(knowledge, majority, category) == name
        right["all"].append(is_right)
        right["labelled" if name in given else "discovered"].append(is_right)
    return right


def discovered(knowledge: "Knowledge", majority: Mapping[int, Majority]) -> list[Majority]:
    """Return the majorities of the categories that were discovered."""
    return [
        majority[category.id]
        for category in knowledge.live()
        if category.origin == "discovered" and category.id in majority
    ]


def wrong_merges(
    knowledge: "Knowledge", majority: Mapping[int, Majority], classes: Sequence[str], novel: Iterable[str]
) -> int:
    """Count the classes in `novel` that lie mostly in categories of other classes; of the last batch only."""
    last = np.flatnonzero(knowledge.images.steps == knowledge.step).tolist()
    wrong = 0
    for name in novel:
        categories = [int(knowledge.images.category[row]) for row in last if classes[row] == name]
        elsewhere = [
            id not in majority or (knowledge.categories[id].name or majority[id].name) != name
            for id in categories
        ]
        wrong += bool(np.mean(elsewhere) > 0.5)
    return wrong


def score(months: Path, place: Path, predictions: Path) -> None:
    """Print the accuracy of `predictions` of `new/`, and a summary of the discovered categories."""
    truth, knowledge, majority = _opened(months, place)
    seen = {truth[file] for file in knowledge.images.files}
    given = {path.split("/")[1] for path in knowledge.images.files if "/unlabelled/" not in path}
    answers: list[tuple[str, int | None]] = []
    rejected = []
    with predictions.open() as file:
        for row in csv.DictReader(file):
            name, category = truth[f"{NEW}/{row['file']}"], int(row["category"]) if row["category"] else None
            if name in seen:
                answers.append((name, category))
            else:
                rejected.append(category is None)
    right = correct(knowledge, majority, given, answers)
    shares = ", ".join(f"{key} {100 * np.mean(values):.1f}" for key, values in right.items() if values)
    print(f"{len(seen)} classes seen, {len(right['all'])} new images of them; correct: {shares} %")
    print(
        f"called unknown: {100 * np.mean([category is None for _, category in answers]):.1f} % of these, "
        f"{100 * np.mean(rejected):.1f} % of {len(rejected)} images of classes never seen"
    )
    found = discovered(knowledge, majority)
    names = [category.name for category in found if category.most]
    print(
        f"{len(found)} categories discovered; {len(names)} consist mostly of one class and would be named after it, "
        f"{len(set(names))} different names; {len(seen - given)} classes never had a label"
    )


def review(months: Path, place: Path) -> None:
    """Name each category after its majority class, or merge it into the category that has this name."""
    from camp.app.workspace.decisions import Merged, Named
    from camp.app.workspace.workspace import Workspace

    workspace = Workspace.open(place)
    _, knowledge, majority = _opened(months, place)
    for category in knowledge.live():
        if category.name is not None or category.id not in majority or not majority[category.id].most:
            continue
        name = majority[category.id].name
        other = workspace.knowledge().named().get(name)
        if other is None:
            workspace.decide(Named(category=category.id, name=name))
        else:
            workspace.decide(Merged(category=category.id, into=other))
    print(f"{len(workspace.events())} events")


def _opened(months: Path, place: Path) -> tuple[dict[str, str], "Knowledge", dict[int, Majority]]:
    """Return the true class of each file, and the knowledge of a workspace with its majorities."""
    from camp.app.workspace.workspace import Workspace

    with (months / "truth.csv").open() as file:
        truth = {row["file"]: row["class"] for row in csv.DictReader(file)}
    knowledge = Workspace.open(place).knowledge()
    return truth, knowledge, majorities(knowledge, [truth[file] for file in knowledge.images.files])


# The table.


@dataclass(frozen=True)
class MonthResult:
    """What was measured after a month; shares are between 0 and 1."""

    accuracy: float
    accuracy_labelled: float
    accuracy_discovered: float
    """Of classes that never had a label."""
    true: int
    """New unlabelled classes."""
    estimated: int
    """Categories that were discovered in this month."""
    wrong_merges: int
    discovered: int
    """All discovered categories so far,"""
    mostly_one_class: int
    """and those most of whose images are of one class."""
    false_alarms: float
    detected: float
    auroc: float
    detected_at_5: float
    seconds: float


@dataclass(frozen=True)
class Result:
    """The three months of a cut with one seed."""

    cut: str
    imbalance: float
    seed: int
    commit: str | None
    """Commit of the library that learned them."""
    months: list[MonthResult]

    @property
    def key(self) -> tuple[str, float, int]:
        """What was measured."""
        return self.cut, self.imbalance, self.seed


def features(files: Sequence[Path], bank: Path) -> np.ndarray:
    """Return the features (n, D) float32 that `camp learn --epochs 0` computes; `bank` keeps the output of the trunk."""
    import torch

    from camp.app.inputs.arrays import ArrayImages
    from camp.app.workspace.pipeline import fill_bank
    from camp.app.workspace.training_budget import TrainingBudget
    from camp.core.progress import Progress
    from camp.core.seeds import generator
    from camp.methods.trainer import clean_features
    from camp.nn.backbones import BackboneSettings, make_backbone

    progress = Progress()
    backbone = make_backbone(BackboneSettings(), generator(0, "backbone"))
    images = ArrayImages.of_images(files, None)
    filled, views = fill_bank(
        backbone, images.reader, images.keys, TrainingBudget(views=0, epochs=0), bank, progress
    )
    if filled.bad:
        key, reason = min(filled.bad.items())
        raise SystemExit(f"{files[int(key)]} cannot be read: {reason}.")
    with torch.no_grad():
        of_files = views([filled.digests[key] for key in images.keys])
        return clean_features(backbone.tip, of_files, progress).numpy()


def learn_months(placed: Sequence[Placed], x: np.ndarray, seed: int) -> list[MonthResult]:
    """Learn the months from the features x (n, D) of the images, and evaluate after each."""
    from camp.app.inputs.vectors import VectorBatch
    from camp.app.workspace.pipeline import VECTORS, LearnRequest, learn_batch
    from camp.app.workspace.storage import WorkspaceSettings
    from camp.app.workspace.workspace import Workspace
    from camp.core.progress import Progress
    from camp.nn.backbones import BackboneSettings

    # `camp learn` sorts the files of a folder.
    order = sorted(range(len(placed)), key=lambda row: placed[row].target(row))
    rows_of = {month: [row for row in order if placed[row].month == month] for month in (*MONTHS, NEW)}
    # Vectors are divided by their root mean square and multiplied by that of features of images, which changes nothing.
    settings = BackboneSettings(backbone=VECTORS).with_vectors(x[rows_of["january"]])
    workspace = Workspace.in_memory(WorkspaceSettings(settings, seed))
    learned: list[Placed] = []
    results = []
    for month in MONTHS:
        batch = [placed[row] for row in rows_of[month]]
        labels = [image.name if image.labelled else None for image in batch]
        request = LearnRequest(VectorBatch.of_array(x[rows_of[month]], labels), epochs=0)
        learn_batch(workspace, request, Progress(quiet=True))
        images = workspace.knowledge().images
        images.features = images.features.astype(
            np.float16
        )  # as `camp learn` keeps them, unlike those of vectors
        novel = {image.name for image in batch} - {image.name for image in learned} - set(labels)
        learned += batch
        domains = {image.domain for image in learned}
        new = [row for row in rows_of[NEW] if placed[row].domain in domains]
        results.append(evaluate(workspace, learned, novel, [placed[row] for row in new], x[new]))
    return results


def evaluate(
    workspace: "Workspace", learned: Sequence[Placed], novel: set[str], new: Sequence[Placed], x: np.ndarray
) -> MonthResult:
    """Evaluate a workspace of vectors after a month.

    Args:
        learned: All images so far, in the order in which they were learned.
        novel: The new unlabelled classes of the month.
        new: Held-out images.
        x: Their features (n, D).
    """
    import torch
    from sklearn.metrics import roc_auc_score

    from camp.app.prediction.model import Model

    knowledge, report = workspace.knowledge(), workspace.reports()[-1]
    model = Model.of(knowledge, workspace.backbone())
    answers = model.classifier.answer(model.points({"vector": torch.from_numpy(x)}))
    distance, rejected = answers.distance.numpy(), answers.unknown.numpy()
    classes = [image.name for image in learned]
    given = {image.name for image in learned if image.labelled}
    seen = np.array([image.name in set(classes) for image in new])
    unused = np.array([image.unused for image in new])
    majority = majorities(knowledge, classes)
    answered = [
        (new[row].name, None if rejected[row] else model.ids[int(answers.nearest[row])])
        for row in np.flatnonzero(seen).tolist()
    ]
    right = correct(knowledge, majority, given, answered)
    found = discovered(knowledge, majority)
    both = seen | unused
    return MonthResult(
        accuracy=float(np.mean(right["all"])),
        accuracy_labelled=float(np.mean(right["labelled"])),
        accuracy_discovered=float(np.mean(right["discovered"])),
        true=len(novel),
        estimated=report.n_new,
        wrong_merges=wrong_merges(knowledge, majority, classes, novel),
        discovered=len(found),
        mostly_one_class=sum(category.most for category in found),
        false_alarms=float(np.mean(rejected[seen])),
        detected=float(np.mean(rejected[unused])),
        auroc=float(roc_auc_score(unused[both], distance[both])),
        detected_at_5=float(np.mean(distance[unused] > np.quantile(distance[seen], 0.95))),
        seconds=round(report.seconds.total, 1),
    )


def measure(
    name: str, imbalance: float, seed: int, placed: Sequence[Placed], x: np.ndarray, path: Path
) -> None:
    """Measure one row, and append it to the file of results; runs in a process of its own."""
    from filelock import FileLock

    from camp.core.provenance import git_commit

    result = Result(name, imbalance, seed, git_commit(), learn_months(placed, x, seed))
    with FileLock(f"{path}.lock"), path.open("a") as file:
        file.write(json.dumps(dataclasses.asdict(result)) + "\n")


def read_results(path: Path) -> list[Result]:
    """Read a file of results; none if it does not exist."""
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [Result(**{**row, "months": [MonthResult(**month) for month in row["months"]]}) for row in rows]


def table(
    cache: Path,
    sources: Mapping[str, Path],
    seeds: Sequence[int],
    imbalances: Sequence[float],
    tag: str,
    jobs: int,
) -> bool:
    """Measure the rows that are not in CACHE yet, print the table, and return whether nothing failed."""
    from camp.core.progress import Progress

    path = results_path(cache, tag)
    path.parent.mkdir(parents=True, exist_ok=True)
    wanted = [(name, imbalance, seed) for seed in seeds for name in sources for imbalance in imbalances]
    done = {result.key for result in read_results(path)}
    missing = [key for key in wanted if key not in done]
    # The results depend on the number of threads, by rounding; processes read it when they start.
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    running = {}
    with (
        ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool,
        Progress().track("Months", len(missing)) as bar,
    ):
        for name, imbalance, seed in missing:
            placed = divide(sources[name], seed=seed, imbalance=imbalance, times=TIMES[name], all_unused=True)
            x = features([image.file for image in placed], cache / "bank")
            future = pool.submit(measure, name, imbalance, seed, placed, x, path)
            future.add_done_callback(lambda _: bar.advance())
            running[future] = f"{name}, imbalance {imbalance:g}, seed {seed}"
        failures = {running[future]: future.exception() for future in as_completed(running)}
    failed = {title: error for title, error in failures.items() if error is not None}
    for title, error in failed.items():
        print(f"{title} failed: {type(error).__name__}: {error}", file=sys.stderr)
    print_tables({tag: [result for result in read_results(path) if result.key in set(wanted)]})
    return not failed


def results_path(cache: Path, tag: str) -> Path:
    """Return the file of the results of a tag."""
    return cache / f"rows-{tag}.jsonl"


@dataclass(frozen=True)
class Column:
    """A column of the table: one number, or one for each month."""

    title: str
    values: Callable[[Result], Sequence[float]]
    digits: int = 1

    def means(self, results: Sequence[Result]) -> np.ndarray:
        """Return the means over the results, without those that have no value."""
        values = np.array([self.values(result) for result in results], dtype=float)
        counts = np.isfinite(values).sum(axis=0)
        return np.where(counts, np.nansum(values, axis=0) / np.maximum(counts, 1), math.nan)

    def cell(self, numbers: np.ndarray, sign: str = "") -> str:
        """Format numbers."""
        return ", ".join("-" if math.isnan(x) else f"{x:{sign}.{self.digits}f}" for x in numbers)


def _percent(part: float, whole: float = 1) -> float:
    return 100 * part / whole if whole else math.nan


COLUMNS = (
    Column("accuracy, %", lambda r: [_percent(month.accuracy) for month in r.months]),
    Column(
        "mostly one class, %",
        lambda r: [_percent(r.months[-1].mostly_one_class, r.months[-1].discovered)],
    ),
    Column("estimated", lambda r: [month.estimated for month in r.months]),
    Column("error", lambda r: [np.mean([abs(month.estimated - month.true) for month in r.months])]),
    Column("wrong merges", lambda r: [sum(month.wrong_merges for month in r.months)]),
    Column("false alarms, %", lambda r: [_percent(r.months[-1].false_alarms)]),
    Column("detected, %", lambda r: [_percent(r.months[-1].detected)]),
    Column("AUROC", lambda r: [r.months[-1].auroc], digits=3),
    Column("detected at 5 %, %", lambda r: [_percent(r.months[-1].detected_at_5)]),
)


def print_tables(tables: Mapping[str, Sequence[Result]]) -> None:
    """Print the mean over the seeds of every cut, for each tag; with two tags their differences too."""
    head = ["cut", "imbalance", "seeds", "true"] + [column.title for column in COLUMNS]
    if len(tables) > 1:
        head.insert(3, "tag")
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    order = list(TIMES)
    cuts = {(result.cut, result.imbalance) for results in tables.values() for result in results}
    for name, imbalance in sorted(cuts, key=lambda cut: (cut[1], order.index(cut[0]))):
        means = []
        for tag, results in tables.items():
            chosen = [result for result in results if (result.cut, result.imbalance) == (name, imbalance)]
            true = ", ".join(str(month.true) for month in chosen[0].months)
            start = [name, f"{imbalance:g}", str(len(chosen)), *([tag] if len(tables) > 1 else []), true]
            means.append([column.means(chosen) for column in COLUMNS])
            cells = [column.cell(numbers) for column, numbers in zip(COLUMNS, means[-1])]
            print(f"| {' | '.join([*start, *cells])} |")
        if len(tables) == 2:
            changes = [column.cell(b - a, "+") for column, a, b in zip(COLUMNS, *means)]
            print(f"| {' | '.join([name, f'{imbalance:g}', '', 'difference', '', *changes])} |")


def compare(cache: Path, tags: Sequence[str]) -> None:
    """Print the results of two tags, of the cuts and seeds that both have."""
    tables = {tag: read_results(results_path(cache, tag)) for tag in tags}
    shared = set.intersection(*({result.key for result in results} for results in tables.values()))
    if not shared:
        raise SystemExit(f"There is no cut and seed that both {' and '.join(tags)} have measured.")
    print_tables(
        {tag: [result for result in results if result.key in shared] for tag, results in tables.items()}
    )


def _source(text: str) -> tuple[str, Path]:
    """Read `NAME=PATH`."""
    name, _, path = text.partition("=")
    if name not in TIMES or not Path(path).is_dir():
        names = ", ".join(TIMES)
        raise argparse.ArgumentTypeError(f"expected NAME=FOLDER, where NAME is one of {names}, not {text!r}")
    return name, Path(path)


def _numbers(kind: Callable[[str], float]) -> Callable[[str], list[float]]:
    """Return a function that reads `1,10`."""

    def numbers(text: str) -> list[float]:
        return [kind(part) for part in text.split(",")]

    return numbers


def main() -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    of_cut = commands.add_parser("cut")
    of_cut.add_argument("source", type=Path)
    of_cut.add_argument("out", type=Path)
    of_cut.add_argument("times", type=int, nargs="?", default=1)
    of_cut.add_argument("--seed", type=int, default=0)
    of_cut.add_argument("--imbalance", type=float, default=1)
    for name in ("score", "review"):
        of_workspace = commands.add_parser(name)
        of_workspace.add_argument("months", type=Path)
        of_workspace.add_argument("place", metavar="workspace", type=Path)
        if name == "score":
            of_workspace.add_argument("predictions", type=Path)
    of_table = commands.add_parser("table")
    of_table.add_argument("cache", type=Path)
    of_table.add_argument("sources", metavar="NAME=FOLDER", type=_source, nargs="+")
    of_table.add_argument("--seeds", type=_numbers(int), default=[0, 1, 2])
    of_table.add_argument("--imbalance", dest="imbalances", type=_numbers(float), default=[1.0, 10.0])
    of_table.add_argument("--tag", default="default", help="name of the file of results")
    of_table.add_argument("--jobs", type=int, default=1, help="number of processes that learn")
    of_compare = commands.add_parser("compare")
    of_compare.add_argument("cache", type=Path)
    of_compare.add_argument("tags", metavar="TAG", nargs=2)
    options = vars(parser.parse_args())
    command = options.pop("command")
    if command == "table":
        sys.exit(not table(**{**options, "sources": dict(options["sources"])}))
    {"cut": cut, "score": score, "review": review, "compare": compare}[command](**options)


if __name__ == "__main__":
    main()
