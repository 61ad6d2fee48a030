"""Kill commands at random moments, carry on, and count what is lost or different.

make storm                                      200 kills
python benchmarks/storm.py --kills 20 --seed 1 --jobs learn,decisions

A job is a command on small data. It is first carried out undisturbed. Then it is started again and again in new folders,
killed by SIGKILL after a random part of the time that it takes, checked, and continued with the command that a user would
give, until it ends by itself; its results must then be those of the undisturbed command. The job `decisions` posts decisions
to the review page instead, and every decision that the page acknowledged must be in the log.

Prints a Markdown table, and ends with exit code 1 if anything was lost or differs. Commands run in children of a process
that has imported the library, because the imports take longer than the commands.
"""

import argparse
import hashlib
import http.client
import http.cookiejar
import itertools
import json
import os
import random
import re
import shutil
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from camp.cli import main as camp_main
from camp.core.progress import Progress

FORK = get_context("forkserver")
"""Its server has imported the library, so that kills meet the work and not the imports."""
FORK.set_forkserver_preload(
    [
        "camp.app.export.onnx",
        "camp.app.prediction.predict",
        "camp.app.review.app",
        "camp.app.workspace.pipeline",
        "camp.bench.run_loop",
        "camp.bench.studies.runner",
        "camp.cli",
        "onnxruntime",
        "sklearn.datasets",
        "torch._dynamo",  # the optimiser brings it when it is first made
        "uvicorn",
    ]
)
KINDS = ("heron", "robin", "wren", "crow", "owl")
SMALL = ("--backbone", "conv-tiny", "--thumbnails", "3")
"""Options of a workspace that learns in a second."""
RUN = (
    *("run", "--dataset", "digits", "--tasks", "2", "--epochs", "3", "--images-per-class", "40"),
    *("--test-per-class", "10", "--batch-size", "32", "--n-init", "10", "--projector-width", "64"),
    *(
        "--backbone",
        "vit-s16",
        "--weights",
        "random",
        "--depth",
        "2",
        "--resolution",
        "32",
        "--augmentations",
        "3",
    ),
)
"""A run with a trunk, and so with a view bank."""
STUDY = """
seeds = [0]
[base]
dataset = "digits"
tasks = 2
epochs = 2
images_per_class = 12
test_per_class = 4
batch_size = 32
n_init = 3
projector_width = 32
resolution = 8
[axes]
method = ["frozen", "gcd", "camp"]
"""
VARYING = ("seconds", "name", "command", "time", "commit", "settings")
"""Keys of results that differ between equal runs."""
LONGEST_REVIEW = 2.0
"""Seconds after which the review page is killed at the latest."""
MAX_KILLS = 4
"""Kills after which a command may end by itself."""
SHOWN = 10
"""Differences that are printed."""


@dataclass
class Outcome:
    """What became of a job."""

    kills: int = 0
    lost: int = 0
    """Decisions that were acknowledged and are not in the log."""
    acknowledged: int = 0
    different: list[str] = field(default_factory=list)
    """Results that differ from those of the undisturbed command, and commands that failed."""


class Child:
    """A command in a process of its own."""

    def __init__(self, words: Sequence[str], said: Path, banks: Path) -> None:
        said.unlink(missing_ok=True)
        self.process = FORK.Process(target=_command, args=(list(words), str(said), str(banks)))
        self.process.start()

    def kill(self) -> bool:
        """Kill it; return whether it still ran."""
        ran = self.process.is_alive()
        self.process.kill()
        self.process.join()
        return ran

    def wait(self) -> int:
        """Return its exit code."""
        self.process.join()
        assert self.process.exitcode is not None
        return self.process.exitcode


def _command(words: list[str], said: str, banks: str) -> None:
    os.environ["CAMP_BANKS"] = banks
    to = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for stream in (1, 2):
        os.dup2(to, stream)
    os._exit(camp_main(words))


class Job(ABC):
    """A command that is killed, and how it is continued and compared."""

    name: str

    def __init__(self, shared: Path) -> None:
        self.shared = shared

    @abstractmethod
    def prepare(self, folder: Path) -> None:
        """Fill a new folder with what the command needs."""

    @abstractmethod
    def words(self, folder: Path) -> list[str] | None:
        """Return the words of the command to start or to continue; None if it is done."""

    @abstractmethod
    def results(self, folder: Path) -> Mapping[str, str]:
        """Return fingerprints of everything that has to be the same after the command."""

    def faults(self, folder: Path, whole: Mapping[str, str]) -> list[str]:
        """Return what a kill has damaged; `whole` are the results of the undisturbed command."""
        return []


def storm(job: Job, kills: int, rng: random.Random, advance: Callable[[], None]) -> Outcome:
    """Carry a job out in new folders until it was killed `kills` times."""
    outcome, numbers = Outcome(), itertools.count(1)
    whole, duration = _undisturbed(job)
    while outcome.kills < kills:
        number = next(numbers)
        folder = job.shared / f"{job.name}-{number}"
        job.prepare(folder)
        for attempt in itertools.count():
            words = job.words(folder)
            if words is None:
                break
            child = Child(words, folder.with_suffix(".txt"), folder / "banks")
            if attempt < MAX_KILLS and outcome.kills < kills:
                time.sleep(rng.uniform(0, duration))
                if child.kill():
                    outcome.kills += 1
                    advance()
                    outcome.different += [f"{folder.name}: {fault}" for fault in job.faults(folder, whole)]
                    continue
                break
            code = child.wait()
            if code:
                said = folder.with_suffix(".txt").read_text().strip().splitlines()[-1:]
                outcome.different.append(f"{folder.name}: exit code {code}: {' '.join(said)}")
            break
        found = job.results(folder)
        outcome.different += [
            f"{folder.name}: {name} differs"
            for name in sorted(whole.keys() | found.keys())
            if whole.get(name) != found.get(name)
        ]
        shutil.rmtree(folder)
    return outcome


def _undisturbed(job: Job) -> tuple[Mapping[str, str], float]:
    """Return the results of a job, and the seconds that it takes."""
    folder = job.shared / f"{job.name}-undisturbed"
    job.prepare(folder)
    words = job.words(folder)
    assert words is not None
    began = time.monotonic()
    said = folder.with_suffix(".txt")
    if code := Child(words, said, folder / "banks").wait():
        raise SystemExit(f"{job.name} ended with exit code {code}: {said.read_text()}")
    return job.results(folder), time.monotonic() - began


# The commands.


class Run(Job):
    """`camp run`, continued with `--resume`: view bank, epochs, clustering, results."""

    name = "run"

    def prepare(self, folder: Path) -> None:
        """Make the folder."""
        folder.mkdir()

    def words(self, folder: Path) -> list[str] | None:
        """Start the run, or resume it."""
        run = folder / "run"
        if (run / "config.json").exists():
            return ["run", "--resume", str(run), "--quiet"]
        return [*RUN, "--quiet", "--out", str(run)]

    def results(self, folder: Path) -> Mapping[str, str]:
        """Return the results without times, and the predictions."""
        return run_results(folder / "run")


class Learn(Job):
    """`camp learn` of a second batch: bank, training, discovery, the step and the log."""

    name = "learn"

    def prepare(self, folder: Path) -> None:
        """Copy a workspace that has learned one batch."""
        folder.mkdir()
        shutil.copytree(self.shared / "birds", folder / "birds")

    def words(self, folder: Path) -> list[str] | None:
        """Learn the batch, unless it was committed before the kill."""
        if len(events(folder / "birds")) == 2:
            return None
        return ["learn", str(folder / "birds"), str(self.shared / "february"), "--epochs", "2", "--quiet"]

    def results(self, folder: Path) -> Mapping[str, str]:
        """Return the step's files without its report, which has times, and the names of all files."""
        step = folder / "birds" / "steps" / "0002"
        names = (
            "categories.json",
            "features.npy",
            "files.json",
            "metric.safetensors",
            "pictures.safetensors",
        )
        found = {name: digest(step / name) for name in (*names, "tip.safetensors")}
        inside = (path.relative_to(folder / "birds") for path in (folder / "birds" / "thumbnails").rglob("*"))
        return {**found, "thumbnails": fingerprint(sorted(map(str, inside)))}

    def faults(self, folder: Path, whole: Mapping[str, str]) -> list[str]:
        """Check that the first batch can still be read, and the second if the log has it."""
        said = folder.with_suffix(".txt")
        code = Child(["status", str(folder / "birds")], said, folder / "banks").wait()
        return [f"camp status: {said.read_text().strip()}"] if code else []


class Predict(Job):
    """`camp predict --out`, continued: the file is there as a whole or not at all."""

    name = "predict"
    target = "predictions.csv"

    def prepare(self, folder: Path) -> None:
        """Make the folder."""
        folder.mkdir()

    def words(self, folder: Path) -> list[str] | None:
        """Predict a folder of images."""
        pictures = str(self.shared / "march")
        return [
            "predict",
            str(self.shared / "birds"),
            pictures,
            "--quiet",
            "--out",
            str(folder / self.target),
        ]

    def results(self, folder: Path) -> Mapping[str, str]:
        """Return the file that was written, and the names of all files beside it."""
        names = sorted(path.name for path in folder.iterdir() if path.name != "banks")
        return {self.target: digest(folder / self.target), "files": fingerprint(names)}

    def faults(self, folder: Path, whole: Mapping[str, str]) -> list[str]:
        """Check the file that is there after a kill."""
        path = folder / self.target
        return [f"half of {self.target}"] if path.exists() and digest(path) != whole[self.target] else []


class Export(Predict):
    """`camp export`: as `Predict`."""

    name = "export"
    target = "birds.onnx"

    def words(self, folder: Path) -> list[str] | None:
        """Write the ONNX file."""
        return ["export", str(self.shared / "birds"), str(folder / self.target)]


class Study(Job):
    """`camp study` of three methods, continued with the same command."""

    name = "study"

    def prepare(self, folder: Path) -> None:
        """Write the study."""
        folder.mkdir()
        (folder / "three.toml").write_text(STUDY)

    def words(self, folder: Path) -> list[str] | None:
        """Carry out what is missing."""
        return [
            "study",
            str(folder / "three.toml"),
            "--out",
            str(folder / "studies"),
            "--cpus",
            "1",
            "--quiet",
        ]

    def results(self, folder: Path) -> Mapping[str, str]:
        """Return the results of all runs."""
        runs = sorted(
            path for path in (folder / "studies" / "runs").glob("*") if (path / "config.json").exists()
        )
        return {f"{run.name} {name}": value for run in runs for name, value in run_results(run).items()}


def run_results(run: Path) -> dict[str, str]:
    """Return fingerprints of the results of a run folder."""
    if not (run / "results.json").exists():
        return {}
    results = json.loads((run / "results.json").read_text())
    return {
        "results.json": fingerprint({name: value for name, value in results.items() if name not in VARYING}),
        "predictions.csv": digest(run / "predictions.csv"),
        "split.json": digest(run / "split.json"),
    }


# Decisions.


@dataclass(frozen=True)
class Acknowledged:
    """A decision that the page has answered."""

    number: int
    """Its place in the log."""
    entries: Mapping[str, Any]
    """Entries that its line has."""


def storm_of_decisions(shared: Path, kills: int, rng: random.Random, advance: Callable[[], None]) -> Outcome:
    """Post decisions to the review page until it is killed, and look for them in the log."""
    outcome, numbers = Outcome(), itertools.count(1)
    workspace = shared / "reviewed"
    shutil.copytree(shared / "birds", workspace)
    acknowledged: list[Acknowledged] = []
    while outcome.kills < kills:
        said = shared / "review.txt"
        child = Child(["review", str(workspace), "--no-browser"], said, shared / "banks")
        page = Page(_address(said, child))
        killer = threading.Timer(rng.uniform(0, LONGEST_REVIEW), child.kill)
        killer.start()
        before = len(acknowledged)
        while (decided := page.decide(rng, next(numbers))) is not None:
            acknowledged.append(decided)
        killer.join()
        outcome.kills += 1
        advance()
        log = events(workspace)
        outcome.lost += sum(not _in_log(log, one) for one in acknowledged[before:])
    log = events(workspace)  # those of all processes are still there
    outcome.acknowledged = len(acknowledged)
    missing = sum(not _in_log(log, one) for one in acknowledged)
    if missing != outcome.lost:
        outcome.different.append(
            f"reviewed: {missing} decisions are missing at the end, {outcome.lost} before"
        )
    code = Child(["status", str(workspace)], shared / "review.txt", shared / "banks").wait()
    if code:
        outcome.different.append(f"reviewed: camp status: {(shared / 'review.txt').read_text().strip()}")
    return outcome


def _in_log(log: Sequence[Mapping[str, Any]], decided: Acknowledged) -> bool:
    line = log[decided.number - 1] if decided.number <= len(log) else {}
    return all(line.get(name) == value for name, value in decided.entries.items())


def _address(said: Path, child: Child) -> str:
    """Return the address that the command prints."""
    for _ in range(600):
        found = re.search(r"http://\S+", said.read_text()) if said.exists() else None
        if found:
            return found[0]
        time.sleep(0.05)
    child.kill()
    raise SystemExit(f"camp review printed no address: {said.read_text()}")


class Page:
    """A browser with the review page open."""

    def __init__(self, address: str) -> None:
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self.opener = urllib.request.build_opener(cookies)
        self.address = "/".join(address.split("/")[:3])
        self._ask(address.removeprefix(self.address))

    def decide(self, rng: random.Random, number: int) -> Acknowledged | None:
        """Take a random decision; None if the page has not answered."""
        overview = self._ask("/api/overview")
        if overview is None:
            return None
        seen = json.loads(overview)
        category, other = rng.sample([one["id"] for one in seen["categories"]], 2)
        wish = rng.choice(("name", "move", "undo"))
        if wish == "undo" and seen["decisions"]:
            return self._decided("/api/undo", {}, seen, {"kind": "undone"})
        if wish == "move":
            shown = self._ask(f"/api/category/{category}")
            rows = sorted(picture["row"] for picture in json.loads(shown)["pictures"][:2]) if shown else []
            if rows:
                decision = {"kind": "moved", "rows": rows, "into": other}
                return self._decided("/api/decide", {"decision": decision}, seen, decision)
        decision = {"kind": "named", "category": category, "name": f"kind {number}"}
        return self._decided("/api/decide", {"decision": decision}, seen, decision)

    def _decided(
        self, path: str, body: dict[str, Any], seen: Mapping[str, Any], entries: Mapping[str, Any]
    ) -> Acknowledged | None:
        answer = self._ask(path, {**body, "events": seen["events"]})
        return Acknowledged(json.loads(answer)["events"], entries) if answer is not None else None

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> bytes | None:
        """Return the answer; None if the server was killed before."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        try:
            with self.opener.open(request, timeout=30) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{path}: {error.code} {error.read().decode()}") from error
        except (OSError, http.client.HTTPException):
            return None


# Small data.


def make_pictures(shared: Path) -> None:
    """Write three batches of small images of some kinds."""
    batches = {
        "january": ({"heron": 10, "robin": 10}, {"wren": 10, "heron": 4}),
        "february": ({"crow": 10}, {"owl": 10, "robin": 4, "wren": 4}),
        "march": ({}, dict.fromkeys(KINDS, 40)),
    }
    for number, (name, (labelled, unlabelled)) in enumerate(batches.items()):
        for folder, kinds in (("", labelled), ("unlabelled", unlabelled)):
            for kind, count in kinds.items():
                place = shared / name / (folder or kind)
                place.mkdir(parents=True, exist_ok=True)
                for index in range(count):
                    picture(kind, 1000 * number + index).save(place / f"{kind}-{folder}{index:03d}.png")


def picture(kind: str, number: int) -> Image.Image:
    """12 x 12 pixels: the coloured squares of the kind, and noise."""
    squares = np.random.default_rng(KINDS.index(kind)).integers(0, 256, (3, 3, 3)).repeat(4, 0).repeat(4, 1)
    noise = np.random.default_rng((KINDS.index(kind), number)).normal(0, 12, squares.shape)
    return Image.fromarray((squares + noise).clip(0, 255).astype(np.uint8))


def events(workspace: Path) -> list[dict[str, Any]]:
    """Return the complete lines of the log of a workspace."""
    return [json.loads(line) for line in (workspace / "events.jsonl").read_bytes().split(b"\n")[:-1]]


def digest(path: Path) -> str:
    """Return a fingerprint of a file."""
    return hashlib.blake2b(path.read_bytes()).hexdigest() if path.exists() else "missing"


def fingerprint(value: Any) -> str:
    """Return a fingerprint of a JSON value."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode()).hexdigest()


JOBS: dict[str, type[Job]] = {job.name: job for job in (Run, Learn, Predict, Export, Study)}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200, help="number of kills of all jobs together")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the moments")
    names = [*JOBS, "decisions"]
    parser.add_argument("--jobs", default=",".join(names), help="jobs, separated by commas")
    options = parser.parse_args()
    chosen = options.jobs.split(",")
    if unknown := set(chosen) - set(names):
        raise SystemExit(f"There is no job {', '.join(sorted(unknown))}; the jobs are {', '.join(names)}.")
    rng = random.Random(options.seed)
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as temporary:
        shared = Path(temporary)
        make_pictures(shared)
        first = ["learn", str(shared / "birds"), str(shared / "january"), *SMALL, "--epochs", "0", "--quiet"]
        if Child(first, shared / "first.txt", shared / "banks").wait():
            raise SystemExit((shared / "first.txt").read_text())
        with Progress().track("Kills", options.kills) as bar:
            for place, name in enumerate(chosen):
                kills = (options.kills - sum(one.kills for one in outcomes.values())) // (len(chosen) - place)
                advance = bar.advance
                if name in JOBS:
                    outcomes[name] = storm(JOBS[name](shared), kills, rng, advance)
                else:
                    outcomes[name] = storm_of_decisions(shared, kills, rng, advance)
    sys.exit(report(outcomes))


def report(outcomes: Mapping[str, Outcome]) -> int:
    """Print the table and the first differences; return the exit code."""
    print("| command | kills | acknowledged decisions | lost | different results |\n|---|---|---|---|---|")
    for name, one in outcomes.items():
        acknowledged = str(one.acknowledged) if name == "decisions" else "–"
        print(f"| {name} | {one.kills} | {acknowledged} | {one.lost} | {len(one.different)} |")
    kills, lost = (sum(getattr(one, key) for one in outcomes.values()) for key in ("kills", "lost"))
    different = [line for one in outcomes.values() for line in one.different]
    print(
        f"| all | {kills} | {sum(one.acknowledged for one in outcomes.values())} | {lost} | {len(different)} |"
    )
    for line in different[:SHOWN]:
        print(line, file=sys.stderr)
    return int(bool(lost or different))


if __name__ == "__main__":
    main()
