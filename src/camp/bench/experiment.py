"""The run loop: a stream of tasks through a method, in a folder that can always be continued."""

import contextlib
import csv
import dataclasses
import io
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from camp.bench.checkpoint import load_checkpoint, save_checkpoint, told_checkpoint
from camp.bench.evaluation.after_task import Evaluator
from camp.bench.records import category_records, described, predictions_csv, task_record
from camp.bench.results import CategoryResults, Results, TaskResults, read_results
from camp.bench.run_folder import alone_in, check_free, config_of, new_folder
from camp.bench.settings import RunSettings, from_dict, to_dict
from camp.bench.trained_tips import TrainedTips
from camp.core import distributed
from camp.core.errors import CampError
from camp.core.files import append_json_line, read_json, read_json_lines, write_json, write_text
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.core.version import __version__
from camp.data.bank.bank import REFERENCE_MEAN, REFERENCE_STD, Bank, BankSpec, BankViews
from camp.data.bank.fill import fill
from camp.data.datasets import dataset_info, load_dataset
from camp.data.datasets.base import Dataset
from camp.data.fresh_views import Lens, views_of
from camp.data.make_split import cut
from camp.data.split import Split
from camp.data.stream import make_task
from camp.data.tasks import Task, TaskTruth
from camp.methods.base import Method
from camp.methods.registry import method_info
from camp.methods.tip_method import TipMethod
from camp.nn.backbones import make_backbone
from camp.nn.backbones.base import Backbone

CHECKPOINT_SECONDS = 20.0
"""Least time between two checkpoints inside a task; what is lost to a kill is computed again to the same digit."""


def start(
    settings: RunSettings,
    out: Path,
    progress: Progress,
    command: str = "",
    tips: TrainedTips | None = None,
) -> Results:
    """Begin a run in the new folder `out` and see it through; returns its results.

    Tips that are among `tips` are not trained again, and others are added.
    """
    with distributed.process_group(), contextlib.ExitStack() as held:
        run = Run(settings, out, progress, command, tips)
        with distributed.synchronized_errors():
            check_free(out)
            run.prepare()
            if distributed.is_main_process():
                held.enter_context(new_folder(out))
                run.write_config()
        return run.through()


def resume(out: Path, progress: Progress, tips: TrainedTips | None = None) -> Results:
    """Go on with the run in `out` from wherever it was stopped; a finished run is left as it is."""
    with distributed.process_group(), contextlib.ExitStack() as held:
        config: dict[str, Any] = {}
        with distributed.synchronized_errors():
            if distributed.is_main_process():
                config = config_of(out)
                held.enter_context(alone_in(out))
        config = distributed.broadcast(config)
        run = Run(from_dict(config["settings"]), out, progress, config.get("command", ""), tips)
        finished = run.finished() if distributed.is_main_process() else None
        if distributed.broadcast(finished is not None):
            return _broadcast(finished)
        with distributed.synchronized_errors():
            run.prepare()
        return run.through()


def _broadcast(results: Results | None) -> Results:
    """The results of the main process in every process."""
    return Results.model_validate(distributed.broadcast(results.model_dump() if results else None))


def _load(settings: RunSettings) -> Dataset:
    data = settings.data
    path = Path(data.data) if data.data is not None else None
    return load_dataset(data.dataset, path, **data.loader_options())


def _split(settings: RunSettings, dataset: Dataset) -> Split:
    if settings.data.split is not None:
        split = Split.from_json(read_json(Path(settings.data.split)))
        split.check(dataset)
        scenario = dataclasses.replace(split.scenario, tell_k=settings.data.k == "known")
        return dataclasses.replace(split, scenario=scenario)
    return cut(settings.data.scenario(), dataset, settings.seed)


def _check_split(split: Split) -> None:
    """Refuse a stream that could not be run to its end."""
    for index, task in enumerate(split.tasks):
        if not split.scenario.tell_k and not task.labelled:
            raise CampError(
                f"The number of categories is estimated from labelled pictures, and task {index + 1} has none: "
                "use --k known."
            )
    if not split.tasks[0].test:
        raise CampError("The first task has no test pictures, so nothing could be measured; add some.")


@dataclass
class Clock:
    """Seconds by phase; they add up over resumptions."""

    seconds: dict[str, float]

    @contextlib.contextmanager
    def of(self, phase: str) -> Iterator[None]:
        """Count the time inside the `with` to `phase`."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.monotonic() - begun


class Run:
    """One experiment in its folder."""

    def __init__(
        self,
        settings: RunSettings,
        out: Path,
        progress: Progress,
        command: str,
        tips: TrainedTips | None = None,
    ) -> None:
        self.settings, self.out, self.command = settings, out, command
        self.tips = tips if distributed.world_size() == 1 else None
        self.progress = progress if distributed.is_main_process() else Progress(quiet=True)
        self.clock = Clock({})
        self.evaluator = Evaluator()
        self.records: list[TaskResults] = []
        self.categories: list[CategoryResults] = []
        self.results: Results | None = None

    def finished(self) -> Results | None:
        """The results, if there is nothing left to do; they need neither data nor backbone."""
        state, results = self.out / "checkpoint" / "state.json", self.out / "results.json"
        if not (state.exists() and results.exists()):
            return None
        measured = read_results(results)
        return measured if read_json(state)["task"] == measured.tasks_planned else None

    def write_config(self) -> None:
        """config.json, by which the folder is known as a run's."""
        settings = to_dict(self.settings)
        described = {"format": 1, "version": __version__, "command": self.command, "settings": settings}
        write_json(self.out / "config.json", described)

    def prepare(self) -> None:
        """Data, split, backbone and method; mistakes show here, before there is a folder."""
        self.dataset = _load(self.settings)
        path = self.out / "split.json"
        # Once a process has got past the bank, the split is that of its file. It is the first process's that counts.
        self.settled = path.exists()
        self.split = Split.from_json(read_json(path)) if self.settled else _split(self.settings, self.dataset)
        self.split.check(self.dataset)
        _check_split(self.split)
        self.backbone = make_backbone(self._backbone_settings(), generator(self.settings.seed, "backbone"))
        # What was left open is settled for the run, while config.json keeps what was asked for.
        self.chosen = self.settings.for_split(self.split)
        device = torch.device(distributed.local_device(self.settings.backbone.device))
        self.method: Method = method_info(self.settings.method).build(
            self.backbone, self.chosen.settings, self.settings.seed, device
        )

    def through(self) -> Results:
        """From the bank to the results, skipping what an earlier process did; `prepare` comes first."""
        method, device = self.method, torch.device(distributed.local_device(self.settings.backbone.device))
        with self.clock.of("bank"):
            views = self._open_views(self.backbone, device)
        stream = [make_task(self.split, self.dataset, t, views) for t in range(len(self.split.tasks))]
        first_task, first_epoch = self._restore(method, stream)
        for t in range(first_task, len(stream)):
            self._learn(method, stream[t][0], first_epoch if t == first_task else None)
            with self.clock.of("evaluate"):
                self._evaluate(method, stream[: t + 1])
            if distributed.is_main_process():
                self._write_results()  # again, now that the evaluation's time is known
                self._checkpoint(method, t + 1, None)
        return _broadcast(self.results)  # and nobody goes on before everything is written

    def _backbone_settings(self) -> Any:
        """The backbone asked for; vectors bring their length with them."""
        settings = self.settings.backbone
        if settings.backbone is None and settings.weights is None:
            preferred = dataset_info(self.settings.data.dataset).backbone
            settings = settings.with_name(preferred) if preferred else settings
        if settings.backbone == "embeddings":
            vector = self.dataset.decode(self.dataset.read(self.dataset.keys[0]))
            if not isinstance(vector, np.ndarray):
                raise CampError(
                    f"The backbone embeddings takes vectors, and {self.dataset.name} has pictures."
                )
            settings = settings.with_dim(len(vector))
        return dataclasses.replace(settings, device=distributed.local_device(settings.device))

    def bank(self) -> Bank:
        """The bank that the run reads; `prepare` comes first."""
        views = self.settings.views
        return Bank.at(views, BankSpec.of(self.backbone, views, self.settings.augmentation()))

    def pictures(self) -> tuple[list[str], set[str]]:
        """Keys of all pictures of the split, sorted, and those of them that are to be learned from."""
        train = {key for task in self.split.tasks for key in (*task.labelled, *task.unlabelled)}
        return sorted(train.union(*(task.test for task in self.split.tasks))), train

    def _open_views(self, backbone: Backbone, device: torch.device) -> Callable[[Sequence[str]], BankViews]:
        """Fill the bank with all pictures of the split, and settle the split without the unreadable ones."""
        views, augmentation = self.settings.views, self.settings.augmentation()
        bank, (keys, train) = self.bank(), self.pictures()
        with (
            distributed.synchronized_errors()
        ):  # of several processes one fills the bank of its machine, and the others wait for it
            filled = fill(bank, backbone, self.dataset, keys, train, self.progress)
            if distributed.is_main_process():
                self._settle(filled.bad, len(keys))
        self.split = Split.from_json(distributed.broadcast(self.split.to_json()))
        bank = Bank(bank.folder, bank.spec)
        reference = views.normalisation == "reference"
        lens = Lens(
            backbone,
            augmentation,
            REFERENCE_MEAN if reference else backbone.mean,
            REFERENCE_STD if reference else backbone.std,
        )

        return lambda keys: views_of(bank, [filled.digests[key] for key in keys], device, lens)

    def _settle(self, bad: dict[str, str], total: int) -> None:
        """Write the split that the run keeps to: without unreadable pictures, unless they are too many.

        Until then pictures may be mended or removed and the run resumed; afterwards what it was made of must
        stay, and what it went without does not matter.
        """
        if self.settled:
            if bad:
                first = min(bad)
                raise CampError(
                    f"{len(bad)} of the run's {total} pictures can no longer be read (first: {first}: {bad[first]}); "
                    "put them back, or begin again in another folder."
                )
            return
        self._report_bad(bad, total)
        self.split = self.split.without(set(bad))
        _check_split(self.split)
        write_json(self.out / "split.json", self.split.to_json())

    def _report_bad(self, bad: dict[str, str], total: int) -> None:
        """List unreadable pictures in the run folder; too many of them end the run."""
        if not bad:
            (self.out / "skipped.csv").unlink(missing_ok=True)  # of an earlier attempt
            return
        text = io.StringIO()
        csv.writer(text).writerows([("picture", "reason"), *sorted(bad.items())])
        write_text(self.out / "skipped.csv", text.getvalue())
        self.progress.note(
            f"{len(bad)} of {total} pictures could not be read; they are listed in {self.out}/skipped.csv."
        )
        share = self.settings.views.bad_share
        if len(bad) > share * total:
            first = min(bad)
            raise CampError(
                f"{len(bad)} of {total} pictures could not be read, more than the {share:.0%} that --bad-share allows "
                f"(first: {first}: {bad[first]}); all are listed in {self.out}/skipped.csv: mend or remove them and "
                f"use --resume {self.out}."
            )

    def _restore(self, method: Method, stream: list[tuple[Task, TaskTruth]]) -> tuple[int, int | None]:
        """Take up the last checkpoint: the task to go on with, and its next epoch if it was under way."""
        with distributed.synchronized_errors():
            saved = load_checkpoint(self.out / "checkpoint") if distributed.is_main_process() else None
        saved = told_checkpoint(saved)
        if saved is None:
            self._forget_metrics(0, 0)
            return 0, None
        state, values = saved
        task, epoch = values["task"], values["epoch"]
        under_way = stream[task][0] if epoch is not None else None
        with self.progress.track("Taking up the checkpoint", 1):
            method.load(state, under_way, stream[0][0].views)
        self.evaluator = Evaluator.model_validate(values["evaluator"])
        self.records = [TaskResults.model_validate(record) for record in values["records"]]
        self.categories = [CategoryResults.model_validate(record) for record in values["categories"]]
        for phase, seconds in values["seconds"].items():
            self.clock.seconds[phase] = self.clock.seconds.get(phase, 0.0) + seconds
        self._forget_metrics(task, epoch or 0)
        return task, epoch

    def _forget_metrics(self, task: int, epoch: int) -> None:
        """Drop lines of epochs that will be run again, and one that was torn by a kill."""
        path = self.out / "metrics.jsonl"
        if distributed.is_main_process() and path.exists():
            lines = [line for line in read_json_lines(path) if (line["task"], line["epoch"]) < (task, epoch)]
            write_text(path, "".join(json.dumps(line) + "\n" for line in lines))

    def _learn(self, method: Method, task: Task, next_epoch: int | None) -> None:
        """All of one task; `next_epoch` if the method was loaded inside it."""
        title = f"Task {task.index + 1} of {len(self.split.tasks)}"
        if next_epoch is None:
            with self.clock.of("train"):
                method.start_task(task, self.progress)
        known = self.tips.load(task.index) if self.tips is not None and next_epoch is None else None
        if known is not None and isinstance(method, TipMethod):
            tip, lines = known
            method.tip.load_state_dict(tip)
            for line in lines:
                append_json_line(self.out / "metrics.jsonl", line)
        else:
            self._train(method, task, next_epoch or 0, title)
            if self.tips is not None and isinstance(method, TipMethod):
                lines = [
                    line for line in read_json_lines(self.out / "metrics.jsonl") if line["task"] == task.index
                ]
                self.tips.save(task.index, method.tip.state_dict(), lines)
        with self.clock.of("discover"):
            method.finish_task(self.progress)

    def _train(self, method: Method, task: Task, first: int, title: str) -> None:
        """Phase 1 of one task from the epoch `first` on."""
        saved = time.monotonic()
        with self.progress.track(title, method.epochs) as bar:
            bar.skip(first)
            for epoch in range(first, method.epochs):
                begun = time.monotonic()
                with self.clock.of("train"):
                    terms = method.train_epoch(epoch)
                line = {"task": task.index, "epoch": epoch, **terms, "seconds": time.monotonic() - begun}
                if distributed.is_main_process():
                    append_json_line(self.out / "metrics.jsonl", line)
                bar.advance()
                bar.say(f"epoch {epoch + 1}, loss {terms['loss']:.3f}")
                if not np.isfinite(terms["loss"]):
                    raise CampError(
                        f"The loss became {terms['loss']} in epoch {epoch + 1} of task {task.index + 1}; "
                        "try a smaller --learning-rate."
                    )
                late = time.monotonic() - saved > CHECKPOINT_SECONDS
                if late and distributed.is_main_process() and epoch + 1 < method.epochs:
                    self._checkpoint(method, task.index, epoch + 1)
                    saved = time.monotonic()

    def _evaluate(self, method: Method, seen: list[tuple[Task, TaskTruth]]) -> None:
        """Measure, and write results.json, the predictions and a few pictures of what was discovered."""
        task, truth = seen[-1]
        truths = [truth for _, truth in seen]
        measured = self.evaluator.after_task(method, seen, self.progress)
        if not distributed.is_main_process():
            return
        class_of = self.evaluator.class_of_category
        self.records.append(task_record(method, self.split.tasks[task.index], truth, measured))
        self.categories += category_records(method, task, truth, class_of, self.dataset, self.out)
        self.results = Results(
            name=str(self.out),
            command=self.command,
            **described(self.chosen, self.backbone, method.epochs),
            notes=self._notes(),
            tasks_planned=len(self.split.tasks),
            tasks=list(self.records),
            summary=measured.summary,
            confusion=measured.confusion,
            map=measured.map,
            categories=list(self.categories),
            seconds={},
        )
        self._write_results()
        write_text(
            self.out / "predictions.csv", predictions_csv(method, truths, measured.predictions, class_of)
        )
        final = measured.summary["agnostic"].final
        shares = ", ".join(f"{name} {100 * v:.1f}" for name, v in final if v is not None)
        self.progress.note(
            f"After task {task.index + 1} of {len(self.split.tasks)}: {shares} (task-agnostic accuracy, %)"
        )

    def _notes(self) -> list[str]:
        """What a reader of the results has to know."""
        notes = [self.backbone.note] if self.backbone.note else []
        skipped = self.out / "skipped.csv"
        if skipped.exists():
            with skipped.open(encoding="utf-8", newline="") as file:
                count = len(list(csv.DictReader(file)))
            notes.append(f"{count} pictures could not be read and were left out.")
        return notes

    def _write_results(self) -> None:
        """results.json with the time spent so far."""
        seconds = self.clock.seconds
        assert self.results is not None
        spent = {"total": sum(seconds.values()), **seconds}
        self.results = self.results.model_copy(update={"seconds": spent})
        write_json(self.out / "results.json", self.results.model_dump())

    def _checkpoint(self, method: Method, task: int, epoch: int | None) -> None:
        """`task` and `epoch` are the next to be done; no epoch means between tasks."""
        values = {
            "task": task,
            "epoch": epoch,
            "evaluator": self.evaluator.model_dump(),
            "records": [record.model_dump() for record in self.records],
            "categories": [record.model_dump() for record in self.categories],
            "seconds": self.clock.seconds,
        }
        save_checkpoint(self.out / "checkpoint", method.state(), values)
