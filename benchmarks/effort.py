"""Decisions that a person needs until 95 % of the images of a batch have the right name.

python benchmarks/effort.py --cub CUB --cifar CIFAR [--cache FOLDER]
    Print a table for CUB-200, CIFAR-100 and a long-tailed cut of CUB-200, from class folders in train/ and test/. Without
    data sets, for the digits of scikit-learn. Features are computed once and kept in FOLDER.
python benchmarks/effort.py --bound --cub CUB --cifar CIFAR [--cache FOLDER]
    Print the errors of classifiers that are given all true classes, in cross-validation. What the best of them has wrong
    beyond 5 % has to be picked out by hand, and each new class has to be named: fewer decisions are not possible by a page
    that shows what such a classifier says and counts every image that is picked out.
make bench
    The key `effort_ratio` is that of the digits, or of CUB-200 and CIFAR-100 if CAMP_CUB and CAMP_CIFAR name their folders.

A batch has 30 classes. A third of them have 15 labelled images each; the other images have no label. Features are those
of the default backbone, without training. A simulated person who knows the true classes uses the review page through its
HTTP requests: the person answers the first question of the queue, and sees only the images of this question.

Every request counts as a decision, and so does every image that is picked out by hand in a group: one press of a key if the
right category is among those offered for the image, and two if it has to be searched for. Two other counts are printed:

actions       Presses of keys and clicks: images side by side that go to the same category are picked by two actions, one for
              the image at one end, and a click with shift on the other end.
requests      Requests alone, each of which is one event in the log and one undo.

Alternatives, on the same features:

one by one    Images are named in random order; a nearest-centroid classifier, which starts with the labelled images and is
              fitted again after each, names the others.
k-means       As many clusters as there are classes get the name of most of their images; then wrong images are corrected
              one by one. Finding them costs nothing here.
"""

import argparse
import itertools
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fastapi.testclient import TestClient
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import normalize

from camp.app.inputs.vectors import VectorBatch
from camp.app.review.app import review_app
from camp.app.workspace.knowledge import DISCARDED
from camp.app.workspace.pipeline import LearnRequest, learn_batch
from camp.app.workspace.storage import WorkspaceSettings
from camp.app.workspace.workspace import Workspace
from camp.core.parallel import threaded_map
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.data.augmentations import normalise_, to_unit
from camp.data.bank.pipeline import decode_resized
from camp.data.datasets.base import FileReader
from camp.discovery.class_scatter import WithinClassScatter, class_sums
from camp.discovery.plda import Plda
from camp.nn.backbones import BackboneSettings, make_backbone

CLASSES, LABELLED_CLASSES, PER_CLASS, LABELLED = 30, 10, 55, 15
N_BATCHES, TAIL_RATIO, GOAL = 3, 10, 0.95
"""Batches of disjoint classes, size of the largest class over that of the smallest in the cut, and share of right names."""
MAX_REQUESTS = 2000
FOLDS, SHRINKAGE, FIT = 10, 0.5, 0.1
"""Parts of the cross-validation, shrinkage of LDA and PLDA, and C of logistic regression relative to the dimension."""


@dataclass(frozen=True)
class Batch:
    """Features and classes of a batch."""

    features: np.ndarray
    """(n, D)"""
    truth: np.ndarray
    """(n,) names of the classes"""
    labelled: np.ndarray
    """(n,) bool"""

    def right(self, names: Sequence[str | None] | np.ndarray) -> float:
        """Share of the unlabelled images that have the right one of `names` (n,)."""
        return float(np.mean(np.asarray(names, dtype=object)[~self.labelled] == self.truth[~self.labelled]))


@dataclass(frozen=True)
class Effort:
    """Decisions per 1,000 unlabelled images."""

    page: float
    actions: float
    requests: float
    one_by_one: float
    k_means: float


def image_features(root: Path, cache: Path, progress: Progress) -> tuple[np.ndarray, np.ndarray]:
    """Return features (n, D) and classes (n,) of at most PER_CLASS images of the classes of N_BATCHES batches."""
    kept = cache / f"effort-{root.name}.npz"
    if kept.exists():
        with np.load(kept, allow_pickle=False) as arrays:
            return arrays["features"], arrays["classes"]
    backbone = make_backbone(BackboneSettings(), generator(0, "backbone"))
    trunk = backbone.single_threaded_trunk()
    assert trunk is not None
    names = sorted(path.name for path in (root / "train").iterdir() if path.is_dir())
    chosen = [names[i] for i in np.random.default_rng(0).permutation(len(names))[: N_BATCHES * CLASSES]]

    @torch.no_grad()
    def one(name: str) -> torch.Tensor:
        files = [file for part in ("train", "test") for file in sorted((root / part / name).glob("*"))][
            :PER_CLASS
        ]
        decode = FileReader(root).decode
        pixels = [decode_resized(decode, file.read_bytes(), backbone.resolution) for file in files]
        x = normalise_(to_unit(torch.from_numpy(np.stack(pixels))), backbone.mean, backbone.std)
        return backbone.tip(trunk(x))

    found = []
    with progress.track(f"Features of {root.name}", len(chosen)) as bar:
        for z in threaded_map(one, chosen, lookahead=2):
            found.append(z.numpy())
            bar.advance()
    features = np.concatenate(found)
    classes = np.repeat(np.arange(len(found)), [len(z) for z in found])
    cache.mkdir(parents=True, exist_ok=True)
    np.savez(kept, features=features, classes=classes)
    return features, classes


def make_batch(features: np.ndarray, classes: np.ndarray, chosen: np.ndarray, tail: bool, seed: int) -> Batch:
    """Draw a batch of the classes `chosen`, a third of them with labels."""
    draw = np.random.default_rng(seed)
    shares = (
        TAIL_RATIO ** -(np.arange(len(chosen)) / max(1, len(chosen) - 1)) if tail else np.ones(len(chosen))
    )
    draw.shuffle(shares)
    rows, labelled = [], []
    for number, (name, share) in enumerate(zip(chosen, shares)):
        mine = draw.permutation(np.flatnonzero(classes == name))
        mine = mine[: max(2, round(share * min(PER_CLASS, len(mine))))]
        n_labelled = min(LABELLED, len(mine) // 2) if number < round(len(chosen) / 3) else 0
        rows += mine.tolist()
        labelled += [place < n_labelled for place in range(len(mine))]
    order = draw.permutation(len(rows))
    picked = np.array(rows)[order]
    truth = np.array([f"class {name}" for name in classes[picked]], dtype=object)
    return Batch(features[picked].astype(np.float32), truth, np.array(labelled)[order])


# The simulated person.


class Reviewer:
    """A person who knows the class of each image and answers the questions of the page."""

    def __init__(self, page: TestClient, batch: Batch) -> None:
        self.page, self.truth = page, batch.truth
        self.requests = self.picked = self.actions = 0

    def answer(self) -> bool:
        """Answer the first question; return whether there was one."""
        queue = self.page.get("/api/queue").json()
        question, events = queue["question"], queue["events"]
        if question is None:
            return False
        titles = {one["id"]: one["name"] for one in self.page.get("/api/overview").json()["categories"]}
        path, body = getattr(self, f"_{question['kind']}")(question, titles)
        answered = self.page.post(path, json={**body, "events": events})
        assert answered.status_code == 200, answered.text
        self.requests += 1
        return True

    def _majority(self, rows: Sequence[int]) -> str:
        return str(Counter(self.truth[list(rows)]).most_common(1)[0][0])

    def _name(self, question: dict[str, Any], titles: dict[int, str | None]) -> tuple[str, dict[str, Any]]:
        rows = [picture["row"] for picture in question["pictures"]]
        body = {"rows": rows, "name": self._majority(rows)}
        return "/api/name-group", {**body, "category": question["category"], "main": question["main"]}

    def _same(self, question: dict[str, Any], titles: dict[int, str | None]) -> tuple[str, dict[str, Any]]:
        def kind(id: int) -> str:
            shown = self.page.get(f"/api/category/{id}").json()["pictures"][:4]
            return titles[id] or self._majority([picture["row"] for picture in shown])

        into = question["category"]
        same = [id for id in question["others"] if kind(id) == kind(into)]
        different = [id for id in question["others"] if id not in same]
        self.picked += min(len(same), len(different))
        self.actions += min(len(same), len(different))
        decision = {"kind": "merged-several", "into": into, "categories": same, "different": different}
        return "/api/decide", {"decision": decision}

    def _check(self, question: dict[str, Any], titles: dict[int, str | None]) -> tuple[str, dict[str, Any]]:
        named = {name: id for id, name in titles.items() if name is not None}
        pictures = {picture["row"]: picture["choices"] for picture in question["pictures"]}
        missing = Counter(self.truth[row] for row in pictures if self.truth[row] not in named)
        if missing:  # a class without a category: it is made of the images in sight
            name = missing.most_common(1)[0][0]
            self._pick([name if self.truth[row] == name else None for row in pictures], [1] * len(pictures))
            self.picked += 1  # where the name is typed
            self.actions += 1
            rows = [row for row in pictures if self.truth[row] == name]
            return "/api/make", {"rows": rows, "name": name}
        into = {row: named[self.truth[row]] for row in pictures}
        proposed = {picture["row"]: picture["proposed"] for picture in question["pictures"]}
        goes = [id if id != proposed[row] else None for row, id in into.items()]
        self._pick(goes, [1 if into[row] in choices else 2 for row, choices in pictures.items()])
        parts = []
        for id in dict.fromkeys(proposed.values()):
            places: dict[int, list[int]] = {id: []}
            for row in pictures:
                if proposed[row] == id:
                    places.setdefault(into[row], []).append(row)
            parts.append({"category": id, "rows": places.pop(id), "moved": _parts(places)})
        return "/api/decide", {"decision": {"kind": "checked", "parts": parts}}

    def _pick(self, goes: Sequence[int | str | None], costs: Sequence[int]) -> None:
        """Count the images that are picked out, in the order of the page, and the actions that this takes.

        Images in a row that go to the same place take two actions: one is picked, and a click with shift on the other end
        does the same to all up to there.
        """
        for place, run in itertools.groupby(zip(goes, costs), key=lambda one: one[0]):
            if place is not None:
                prices = [cost for _, cost in run]
                self.picked += sum(prices)
                self.actions += min(sum(prices), min(prices[0], prices[-1]) + 1)


def _parts(places: dict[int, list[int]]) -> list[dict[str, Any]]:
    return [{"into": into, "rows": rows} for into, rows in places.items()]


def on_the_page(batch: Batch) -> tuple[int, int, int]:
    """Return the decisions on the review page, counted strictly, by actions, and by requests."""
    settings = WorkspaceSettings(BackboneSettings(backbone="embeddings").with_vectors(batch.features))
    workspace = Workspace.in_memory(settings)
    labels = np.where(batch.labelled, batch.truth, None)
    images = VectorBatch.of_array(batch.features, labels)
    learn_batch(workspace, LearnRequest(images), Progress(quiet=True))
    with TestClient(review_app(workspace)) as page:
        reviewer = Reviewer(page, batch)
        while reviewer.requests < MAX_REQUESTS:
            known = workspace.knowledge()
            names = {id: category.name for id, category in known.categories.items()} | {DISCARDED: None}
            if batch.right([names[id] for id in known.images.category.tolist()]) >= GOAL:
                break
            if not reviewer.answer():
                raise SystemExit("The page has no question left, and too few images have the right name.")
    return reviewer.requests + reviewer.picked, reviewer.requests + reviewer.actions, reviewer.requests


# The alternatives.


def one_by_one(batch: Batch) -> int:
    """Return the images to label in random order until a nearest-centroid classifier has the rest right."""
    names, truth = np.unique(batch.truth.astype(str), return_inverse=True)
    x, done = batch.features.astype(np.float64), batch.labelled.copy()
    sums, counts = np.zeros((len(names), x.shape[1])), np.zeros(len(names))
    np.add.at(sums, truth[done], x[done])
    np.add.at(counts, truth[done], 1)
    distances = np.full((len(x), len(names)), np.inf)

    def refit(name: int) -> None:
        distances[:, name] = ((x - sums[name] / counts[name]) ** 2).sum(axis=1)

    for name in np.flatnonzero(counts):
        refit(name)
    order = np.random.default_rng(0).permutation(np.flatnonzero(~done))
    for number, row in enumerate(order, start=1):
        sums[truth[row]] += x[row]
        counts[truth[row]] += 1
        done[row] = True
        refit(truth[row])
        if batch.right(names[np.where(done, truth, distances.argmin(axis=1))]) >= GOAL:
            return number
    return len(order)


def k_means(batch: Batch) -> int:
    """Return the clusters to name and the images to correct one by one."""
    rows = np.flatnonzero(~batch.labelled)
    n_clusters = len(set(batch.truth))
    labels = KMeans(n_clusters, n_init=10, random_state=0).fit(batch.features[rows]).labels_
    right = sum(Counter(batch.truth[rows[labels == k]]).most_common(1)[0][1] for k in range(n_clusters))
    return n_clusters + max(0, int(np.ceil(GOAL * len(rows))) - right)


# What the features allow.


def scores(x: np.ndarray, y: np.ndarray, new: np.ndarray, n_classes: int) -> dict[str, np.ndarray]:
    """Return scores (m, K) of images `new` (m, D) by classifiers of images x (n, D) of the classes y (n,)."""
    one_hot = np.eye(n_classes)[y]
    means = (one_hot.T @ x) / one_hot.sum(axis=0)[:, None]
    biased, biased_new = (np.c_[part, np.ones(len(part))] for part in (x, new))
    gram = biased.T @ biased
    gram += 0.3 * np.trace(gram) / len(gram) * np.eye(len(gram))
    similar = new @ x.T
    similar[similar < np.sort(similar, axis=1)[:, -10, None]] = -np.inf
    index, points = torch.from_numpy(y), torch.from_numpy(x).float()
    scatter = WithinClassScatter.empty(x.shape[1]).add(points, index)
    whitening = scatter.whitening(SHRINKAGE).numpy()
    u, v, centroids = x @ whitening, new @ whitening, means @ whitening
    axes = np.linalg.svd(centroids - centroids.mean(axis=0), full_matrices=False)[2][: n_classes - 1].T
    p, q = torch.from_numpy(u @ axes), torch.from_numpy(v @ axes)
    plda = Plda.fit(p, index, n_classes)
    posterior = plda.posterior(torch.bincount(index, minlength=n_classes), class_sums(p, index, n_classes))
    return {
        "ridge": biased_new @ np.linalg.solve(gram, biased.T @ one_hot),
        "LDA": v @ centroids.T - 0.5 * (centroids**2).sum(axis=1),
        "PLDA": plda.log_predictive(q, posterior).numpy(),
        "10 neighbours": np.exp(10 * similar) @ one_hot,
        "logistic regression": LogisticRegression(C=FIT * x.shape[1], max_iter=200, tol=1e-3)
        .fit(x, y)
        .decision_function(new),
    }


def errors(batch: Batch) -> dict[str, float]:
    """Return the errors of classifiers on the unlabelled images, in cross-validation with all true classes."""
    names, y = np.unique(batch.truth.astype(str), return_inverse=True)
    x = batch.features.astype(np.float64)
    x = normalize(x - x.mean(axis=0))
    found: dict[str, np.ndarray] = {}
    for train, test in StratifiedKFold(min(FOLDS, np.bincount(y).min()), shuffle=True, random_state=0).split(
        x, y
    ):
        for title, values in scores(x[train], y[train], x[test], len(names)).items():
            found.setdefault(title, np.zeros(len(y), dtype=np.int64))[test] = values.argmax(axis=1)
    return {title: 1 - batch.right(names[guess]) for title, guess in found.items()}


def print_bounds(batches: dict[str, list[Batch]]) -> None:
    """Print what a page needs at least: names of new classes, and the images that the best classifier has wrong."""
    for title, some in batches.items():
        table = [errors(batch) for batch in some]
        means = {name: float(np.mean([row[name] for row in table])) for name in table[0]}
        unnamed = [
            len(set(batch.truth) - set(batch.truth[batch.labelled])) / (~batch.labelled).sum()
            for batch in some
        ]
        least = 1000 * (float(np.mean(unnamed)) + max(0.0, min(means.values()) - (1 - GOAL)))
        print(
            f"{title}: {', '.join(f'{name} {100 * value:.1f} %' for name, value in means.items())} wrong;",
            end=" ",
        )
        print(f"at least {least:.0f} decisions per 1,000 images", flush=True)


def effort(title: str, batches: Sequence[Batch], progress: Progress) -> Effort:
    """Measure all ways of naming on some batches."""
    table = []
    with progress.track(f"Naming {title}", len(batches)) as bar:
        for batch in batches:
            counts = np.array([*on_the_page(batch), one_by_one(batch), k_means(batch)])
            table.append(1000 * counts / (~batch.labelled).sum())
            bar.advance()
    return Effort(*np.mean(table, axis=0).tolist())


def digits() -> list[Batch]:
    """Return a batch of scikit-learn's digits, three of ten with labels."""
    data = load_digits()
    return [make_batch(data.data, data.target, np.random.default_rng(0).permutation(10), False, 0)]


def batches_of(root: Path, cache: Path, tail: bool, progress: Progress) -> list[Batch]:
    """Return batches of disjoint classes of a data set."""
    features, classes = image_features(root, cache, progress)
    parts = np.arange(N_BATCHES * CLASSES).reshape(N_BATCHES, CLASSES)
    return [make_batch(features, classes, part, tail, seed) for seed, part in enumerate(parts)]


def all_batches(
    cub: Path | None, cifar: Path | None, cache: Path, progress: Progress
) -> dict[str, list[Batch]]:
    """Return the batches of the data sets that are given, or else of the digits."""
    sets = [("CUB-200", cub, False), ("CIFAR-100", cifar, False), ("CUB-200, long-tailed", cub, True)]
    found = {title: batches_of(root, cache, tail, progress) for title, root, tail in sets if root is not None}
    return found or {"digits": digits()}


def measure() -> dict[str, float]:
    """Measure for `make bench`."""
    cub, cifar = (
        Path(value) if (value := os.environ.get(key)) else None for key in ("CAMP_CUB", "CAMP_CIFAR")
    )
    progress = Progress(quiet=True)
    with tempfile.TemporaryDirectory() as cache:
        sets = all_batches(cub, cifar, Path(cache), progress)
    found = [effort(title, batches, progress) for title, batches in sets.items()]

    def ratio(kind: str) -> float:
        return round(float(np.mean([one.one_by_one / getattr(one, kind) for one in found])), 2)

    return {
        "effort_ratio": ratio("page"),
        "effort_ratio_actions": ratio("actions"),
        "effort_ratio_requests": ratio("requests"),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cub", type=Path, help="folder of CUB-200 with train/ and test/")
    parser.add_argument("--cifar", type=Path, help="folder of CIFAR-100 with train/ and test/")
    parser.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()), help="folder that keeps the features"
    )
    parser.add_argument("--bound", action="store_true", help="print the least number of decisions instead")
    options = parser.parse_args()
    sets = all_batches(options.cub, options.cifar, options.cache, Progress())
    if options.bound:
        return print_bounds(sets)
    columns = "review page", "actions", "requests", "one by one", "k-means", "one by one / page"
    print(f"| decisions per 1,000 images | {' | '.join(columns)} |\n|{'---|' * 7}")
    for title, batches in sets.items():
        one = effort(title, batches, Progress())
        counts = " | ".join(f"{value:.0f}" for value in vars(one).values())
        print(f"| {title} | {counts} | {one.one_by_one / one.page:.2f} |", flush=True)
    return None


if __name__ == "__main__":
    main()
