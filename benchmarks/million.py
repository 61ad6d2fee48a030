"""Cost and quality of `camp learn`, `camp status` and `camp review` for up to a million vectors.

    python benchmarks/million.py FOLDER                           all sizes; prints the tables of docs/scaling.md
    python benchmarks/million.py FOLDER --sizes 10000             one size

Vectors of 128 dimensions are made up of Gaussian classes with a long tail, at most 2,000 of them. A tenth of the images of two
thirds of the classes have a label. The first batch has the given number of vectors, of four fifths of the classes; the second
one has a quarter as many, of all classes, so that a fifth of them are new. Everything is below FOLDER, which may be kept:
vectors that exist are not made again.

Each command is a process of its own. Its memory is read from /proc every 50 milliseconds: `anonymous` is memory that the system
cannot reclaim (RssAnon), `resident` includes pages of files (VmHWM).
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from http.cookiejar import CookieJar
from pathlib import Path

import numpy as np

SIZES = (10_000, 100_000, 1_000_000)
DIM, MAX_CLASSES, PER_CLASS = 128, 2_000, 50
"""Dimensions, greatest number of classes, and vectors per class from which on there are more of them."""
SPREAD = 0.8
"""Standard deviation of the means of classes; that of vectors around the mean of their class is 1."""
TAIL = 0.7
"""Exponent of the sizes of classes by rank."""
LABELLED, WITH_LABELS = 0.1, 2 / 3
"""Share of the vectors with a label, in the share of the classes that have labels."""
FIRST = 0.8
"""Share of the classes in the first batch."""
SECOND = 0.25
"""Size of the second batch relative to the first one."""
BLOCK = 50_000
SECONDS_BETWEEN = 0.05


@dataclass(frozen=True)
class Batch:
    """Files of a batch."""

    vectors: Path
    labels: Path
    truth: Path


@dataclass(frozen=True)
class Cost:
    """Cost of a process."""

    seconds: float
    processor: float
    """Seconds of all processors, which do not depend on what else the machine does."""
    anonymous: int
    """Greatest RssAnon in bytes."""
    resident: int
    """Greatest VmHWM in bytes."""


@dataclass(frozen=True)
class Quality:
    """How the categories of the unlabelled vectors of a batch agree with their classes."""

    known: float
    """Share of the vectors of classes with a name that are in the category of that name."""
    novel: float
    """Share of the other vectors that are in the category that holds most vectors of their class, if it has no name and their
    class is the most frequent one in it."""
    purity: float
    """Share of the vectors in unnamed categories that are of the most frequent class of their category."""
    found: int
    """Number of unnamed categories."""
    classes: int
    """Number of classes without a name."""


def make_batches(folder: Path, size: int, seed: int = 0) -> list[Batch]:
    """Write the two batches for a size, a block at a time."""
    n_classes = max(10, min(MAX_CLASSES, size // PER_CLASS))
    draw = np.random.default_rng([seed, size])
    means = SPREAD * draw.normal(size=(n_classes, DIM)).astype(np.float32)
    sizes = (np.arange(n_classes) + n_classes / 50) ** -TAIL
    sizes = draw.permutation(sizes)
    with_labels = draw.permutation(n_classes) < WITH_LABELS * n_classes
    in_first = draw.permutation(n_classes) < FIRST * n_classes
    batches = []
    for name, count, chosen in (
        ("first", size, in_first),
        ("second", int(SECOND * size), np.ones(n_classes, bool)),
    ):
        batch = Batch(*(folder / f"{name}{ending}.npy" for ending in ("", "-labels", "-truth")))
        batches.append(batch)
        p = np.where(chosen, sizes, 0.0)
        truth = draw.choice(n_classes, count, p=p / p.sum()).astype(np.int32)
        labelled = with_labels[truth] & (draw.random(count) < LABELLED)
        if not batch.truth.exists():
            folder.mkdir(parents=True, exist_ok=True)
            rows = np.lib.format.open_memmap(batch.vectors, "w+", np.float32, (count, DIM))
            for start in range(0, count, BLOCK):
                of = truth[start : start + BLOCK]
                draw_block = np.random.default_rng([seed, size, len(batches), start])
                noise = draw_block.standard_normal((len(of), DIM), np.float32)
                rows[start : start + BLOCK] = means[of] + noise
            rows.flush()
            np.save(batch.labels, np.where(labelled, truth, -1))
            np.save(batch.truth, truth)
    return batches


def camp(*words: str | Path) -> list[str]:
    """Return a command line of camp."""
    return [str(Path(sys.executable).parent / "camp"), *(str(word) for word in words)]


def measured(command: list[str]) -> Cost:
    """Run a command and measure it."""
    started, before = time.monotonic(), os.times()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    anonymous = resident = 0
    while process.poll() is None:
        now = memory(process.pid)
        anonymous, resident = max(anonymous, now[0]), max(resident, now[1])
        time.sleep(SECONDS_BETWEEN)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed.")
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(time.monotonic() - started, processor, anonymous, resident)


def memory(pid: int) -> tuple[int, int]:
    """Return RssAnon and VmHWM of a process in bytes."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0, 0
    found = {name: int(kb) << 10 for name, kb in re.findall(r"(RssAnon|VmHWM):\s+(\d+)", status)}
    return found.get("RssAnon", 0), found.get("VmHWM", 0)


def quality(workspace: Path, batch: Batch) -> Quality:
    """Compare the categories of the unlabelled vectors of the last batch with their classes."""
    from camp.app.workspace.knowledge import CLUSTERED
    from camp.app.workspace.workspace import Workspace

    knowledge = Workspace.open(workspace).knowledge()
    images = knowledge.images
    truth = np.load(batch.truth)
    last = images.steps == knowledge.step
    unlabelled = images.source[last] == CLUSTERED
    category, classes = images.category[last][unlabelled], truth[unlabelled]
    class_of = {id: int(one.name) for id, one in knowledge.categories.items() if one.name is not None}
    ids = np.unique(category)
    named_class = np.full(int(ids.max()) + 1, -1)
    for id, one in class_of.items():
        if id <= ids.max():
            named_class[id] = one
    is_known = np.isin(classes, list(class_of.values()))
    right = named_class[category] == classes
    n_classes = int(truth.max()) + 1
    table = np.zeros((int(ids.max()) + 1, n_classes), np.int32)
    np.add.at(table, (category, classes), 1)
    best_class, best_category = table.argmax(axis=1), table.argmax(axis=0)
    pairs = (best_category[classes] == category) & (best_class[category] == classes)
    unnamed = named_class[category] < 0
    found = [id for id in ids.tolist() if named_class[id] < 0]
    return Quality(
        known=float(right[is_known].mean()),
        novel=float((pairs & unnamed)[~is_known].mean()),
        purity=float((best_class[category] == classes)[unnamed].mean()) if unnamed.any() else 0.0,
        found=len(found),
        classes=len(np.unique(classes[~is_known])),
    )


@dataclass(frozen=True)
class PageTimes:
    """Seconds until the review page answers, and the sizes of its answers."""

    start: float
    """From the command to the address that it prints."""
    first: float
    """From there to the cards of the first screen."""
    again: float
    """The cards, when the page is loaded again."""
    queue: float
    """The first question."""
    category: float
    decision: float
    """A decision (naming a category)."""
    move: float
    """A decision that moves pictures."""
    after: float
    """The cards after a decision."""
    next_question: float
    """The next question after a decision."""
    cards_mb: float
    map_mb: float
    anonymous: int


class Page:
    """A running `camp review` and the requests of its page."""

    def __init__(self, workspace: Path) -> None:
        started = time.monotonic()
        command = camp("review", workspace, "--no-browser")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        self.start = time.monotonic() - started
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        self.origin = self.address.partition("/?")[0]
        self.peak = 0

    def get(self, path: str) -> tuple[float, bytes]:
        """Return seconds and content of a request."""
        return self._timed(urllib.request.Request(self.origin + path))

    def post(self, path: str, value: dict[str, object]) -> tuple[float, bytes]:
        """Return seconds and content of a decision."""
        headers = {"Content-Type": "application/json", "Origin": self.origin}
        return self._timed(urllib.request.Request(self.origin + path, json.dumps(value).encode(), headers))

    def _timed(self, request: urllib.request.Request) -> tuple[float, bytes]:
        started = time.monotonic()
        with self.opener.open(request, timeout=600) as answer:
            content = answer.read()
        seconds = time.monotonic() - started
        self.peak = max(self.peak, memory(self.process.pid)[0])
        return seconds, content


def review(workspace: Path) -> PageTimes:
    """Open the page and decide."""
    page = Page(workspace)
    try:
        page._timed(urllib.request.Request(page.address))
        first, cards = page.get("/api/overview")
        seen = json.loads(cards)
        again, _ = page.get("/api/overview")
        queue, _ = page.get("/api/queue?skip=0")
        unnamed = [card for card in seen["categories"] if card["name"] is None]
        one, other = unnamed[0], unnamed[1]
        category, content = page.get(f"/api/category/{one['id']}?order=doubtful&start=0")
        rows = [picture["row"] for picture in json.loads(content)["pictures"]][:10]
        positions, categories = page.get("/api/map/positions")[1], page.get("/api/map/categories")[1]
        name = {"kind": "named", "category": one["id"], "name": f"find {time.time_ns()}"}
        decision, said = page.post("/api/decide", {"events": seen["events"], "decision": name})
        after, _ = page.get("/api/overview")
        events = json.loads(said)["events"]
        moved = {"kind": "moved", "rows": rows, "into": other["id"]}
        move, _ = page.post("/api/decide", {"events": events, "decision": moved})
        after_move, _ = page.get("/api/overview")
        next_question, _ = page.get("/api/queue?skip=0")
    finally:
        page.process.terminate()
        page.process.wait()
    return PageTimes(
        start=page.start,
        first=first,
        again=again,
        queue=queue,
        category=category,
        decision=decision,
        move=move,
        after=max(after, after_move),
        next_question=next_question,
        cards_mb=len(cards) / 1e6,
        map_mb=(len(positions) + len(categories)) / 1e6,
        anonymous=page.peak,
    )


def main() -> None:
    """Measure all sizes and print the tables."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("folder", type=Path)
    options.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    options.add_argument("--keep", action="store_true", help="keep the workspaces, and review existing ones")
    given = options.parse_args()
    learned, looked = [], []
    for size in given.sizes:
        folder = given.folder / str(size)
        batches, workspace = make_batches(folder, size), folder / "workspace"
        if not given.keep:
            shutil.rmtree(workspace, ignore_errors=True)
        if not workspace.exists():
            for number, batch in enumerate(batches, 1):
                cost = measured(camp("learn", workspace, batch.vectors, "--labels", batch.labels, "--quiet"))
                learned.append((size, number, batch, cost, quality(workspace, batch)))
                print(size, number, cost, learned[-1][-1], file=sys.stderr, flush=True)
        status = measured(camp("status", workspace))
        looked.append((size, status, review(workspace)))
        print(size, *looked[-1][1:], file=sys.stderr, flush=True)
    print_tables(learned, looked)


def print_tables(
    learned: list[tuple[int, int, Batch, Cost, Quality]], looked: list[tuple[int, Cost, PageTimes]]
) -> None:
    """Print the tables of docs/scaling.md."""
    print(
        "| vectors | batch | `camp learn` | processor | per 1,000 | anonymous | resident | known | novel | purity | found | of |"
    )
    print("| ---: |" + 11 * " ---: |")
    for size, number, batch, cost, q in learned:
        n = len(np.load(batch.truth, mmap_mode="r"))
        print(
            f"| {size:,} | {number} ({n:,}) | {cost.seconds:.0f} s | {cost.processor:.0f} s | {1e3 * cost.processor / n:.2f} s "
            f"| {cost.anonymous / 1e6:,.0f} MB | {cost.resident / 1e6:,.0f} MB | {q.known:.1%} | {q.novel:.1%} "
            f"| {q.purity:.1%} | {q.found} | {q.classes} |"
        )
    print()
    print(
        "| vectors | `camp status` | start | first screen | again | question | category | decision | moving | after | "
        "next question | cards | map | anonymous |"
    )
    print("| ---: |" + 13 * " ---: |")
    for size, status, t in looked:
        print(
            f"| {size:,} | {status.seconds:.1f} s ({status.processor:.1f} s), {status.anonymous / 1e6:,.0f} MB | {t.start:.1f} s | {t.first:.2f} s "
            f"| {t.again:.2f} s | {t.queue:.2f} s | {t.category:.2f} s | {t.decision:.2f} s | {t.move:.2f} s "
            f"| {t.after:.2f} s | {t.next_question:.2f} s | {t.cards_mb:.1f} MB | {t.map_mb:.1f} MB "
            f"| {t.anonymous / 1e6:,.0f} MB |"
        )


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    main()
