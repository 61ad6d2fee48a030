"""The run loop: train, discover and evaluate task by task, in a folder from which it can always continue."""

import contextlib
import csv
import dataclasses
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from camp.bench.checkpoint import (
    Checkpoint,
    broadcast_checkpoint,
    damaged_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from camp.bench.evaluation.after_task import Evaluator
from camp.bench.experiment import Experiment, check_split
from camp.bench.records import category_records, predictions_csv, run_description, task_record
from camp.bench.results import CategoryResults, Results, TaskResults
from camp.bench.run_folder import RunConfig, RunFolder
from camp.bench.settings import RunSettings
from camp.bench.trained_tips import TrainedTips
from camp.core import distributed
from camp.core.csv_output import csv_text
from camp.core.errors import CampError
from camp.core.files import write_json, write_text
from camp.core.progress import Progress
from camp.core.provenance import current_provenance
from camp.data.bank.fill import FillResult
from camp.data.split import Split
from camp.data.tasks import Task, TaskTruth
from camp.methods.base import Method

CHECKPOINT_SECONDS = 20.0
"""Minimum time between two checkpoints inside a task."""


def run_or_resume(
    settings: RunSettings | None,
    folder: Path,
    progress: Progress,
    command: str = "",
    tips: TrainedTips | None = None,
) -> None:
    """Start the run in `folder`, or continue the one it holds; a finished run is left as it is.

    Args:
        settings: None continues a run with its own settings. A run that the folder holds must agree with
            given ones in everything that changes its results.
        folder: The run folder; it is created once the settings are known to work.
        progress: Where progress is shown.
        command: The command that starts the run, for config.json.
        tips: Trained networks to use in place of training, and to which others are added.
    """
    place = RunFolder(folder)
    with distributed.process_group(), contextlib.ExitStack() as held:
        state = distributed.on_main_process(lambda: _present_state(place, settings, held))
        if state["finished"]:
            return
        if state["config"] is not None:
            config = RunConfig.from_json(state["config"])
            settings, command = settings or config.settings, config.command
        assert settings is not None
        with distributed.synchronized_errors():
            experiment = Experiment.prepare(settings, place.read_split())
            if distributed.is_main_process() and state["config"] is None:
                held.enter_context(place.locked())
                place.check_free()  # another process may have been faster
                made = current_provenance(settings.backbone.device)
                place.write_config(RunConfig(settings, command, made))
        _RunLoop(experiment, place, progress, command, tips).run()


def _present_state(
    place: RunFolder, settings: RunSettings | None, held: contextlib.ExitStack
) -> dict[str, Any]:
    """Return whether the run is finished and its config.json, if there is one; the folder is locked then."""
    if settings is not None and not place.is_started():
        return {"finished": False, "config": None}
    if settings is None and place.is_finished():  # of an earlier version too
        return {"finished": True, "config": None}
    config = place.read_config()
    if settings is not None and config.settings.result_values() != settings.result_values():
        raise CampError(f"{place.path} holds a run with other settings; choose another folder.")
    held.enter_context(place.locked())
    return {"finished": place.is_finished(), "config": config.to_json()}


class _RunLoop:
    """A run under way."""

    def __init__(
        self,
        experiment: Experiment,
        folder: RunFolder,
        progress: Progress,
        command: str,
        tips: TrainedTips | None,
    ) -> None:
        self.experiment, self.folder, self.command = experiment, folder, command
        self.tips = tips if distributed.world_size() == 1 else None
        self.progress = progress if distributed.is_main_process() else Progress(quiet=True)
        self.method: Method = experiment.method
        self.seconds: defaultdict[str, float] = defaultdict(float)  # of each phase, added up over resumptions
        self.evaluator = Evaluator()
        self.records: list[TaskResults] = []
        self.categories: list[CategoryResults] = []
        self.results: Results | None = None

    def run(self) -> None:
        """Run all tasks that are not done yet."""
        with self._measure("bank"):
            filled = self._fill_bank()
        stream = self.experiment.tasks(filled.digests)
        first_task, first_epoch = self._restore(stream)
        for t in range(first_task, len(stream)):
            self._learn(stream[t][0], first_epoch if t == first_task else None)
            with self._measure("evaluate"):
                self._evaluate(stream[: t + 1])
            if distributed.is_main_process():
                self._write_results()  # again, with the time of the evaluation
                self._save_checkpoint(t + 1, None)
        distributed.broadcast(None)  # no process continues before everything is written

    @contextlib.contextmanager
    def _measure(self, phase: str) -> Iterator[None]:
        """Add the time inside the `with` block to `phase`."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[phase] += time.monotonic() - started

    def _fill_bank(self) -> FillResult:
        """Fill the view bank and write the split without unreadable images."""
        with distributed.synchronized_errors():  # one process per machine fills the bank, the others wait
            filled = self.experiment.fill_bank(self.progress)
            split = self.experiment.split
            if distributed.is_main_process():
                split = self._readable_split(filled.bad)
        split = Split.from_json(distributed.broadcast(split.to_json()))
        self.experiment = dataclasses.replace(self.experiment, split=split)
        return filled

    def _readable_split(self, bad: dict[str, str]) -> Split:
        """Return the split without the unreadable images `bad`, and write it if it is not on disk yet.

        Before split.json is written, unreadable images may be repaired or removed and the run resumed.
        Afterwards every image of the split has to stay readable.
        """
        split, total = self.experiment.split, len(self.experiment.image_keys()[0])
        if self.folder.split.exists():
            if bad:
                raise CampError(
                    f"{len(bad)} of the run's {total} images can no longer be read (first: {_first(bad)}); "
                    "put them back, or begin again in another folder."
                )
            return split
        self._list_unreadable(bad, total)
        split = split.without(set(bad))
        check_split(split)
        write_json(self.folder.split, split.to_json())
        return split

    def _list_unreadable(self, bad: dict[str, str], total: int) -> None:
        """Write skipped.csv; too many unreadable images end the run."""
        path = self.folder.skipped
        if not bad:
            path.unlink(missing_ok=True)  # of an earlier attempt
            return
        write_text(path, csv_text([("image", "reason"), *sorted(bad.items())]))
        self.progress.note(f"{len(bad)} of {total} images could not be read; they are listed in {path}.")
        share = self.experiment.settings.views.bad_share
        if len(bad) > share * total:
            raise CampError(
                f"{len(bad)} of {total} images could not be read, more than the {share:.0%} that --bad-share "
                f"allows (first: {_first(bad)}); all are listed in {path}: repair or remove them and "
                f"use --resume {self.folder.path}."
            )

    def _restore(self, stream: list[tuple[Task, TaskTruth]]) -> tuple[int, int | None]:
        """Load the last checkpoint; returns the task to continue with, and its next epoch if it was under way."""
        with distributed.synchronized_errors():
            saved = load_checkpoint(self.folder.checkpoint) if distributed.is_main_process() else None
        saved = broadcast_checkpoint(saved)
        if saved is None:
            self._forget_metrics(0, 0)
            return 0, None
        if saved.task >= len(stream):
            raise CampError(
                f"{self.folder.results} is missing or damaged although all tasks are done; delete {self.folder.checkpoint} "
                f"and use --resume {self.folder.path} to run them again."
            )
        under_way = stream[saved.task][0] if saved.epoch is not None else None
        with self.progress.track("Loading the checkpoint", 1), damaged_checkpoint(self.folder.checkpoint):
            self.method.load_state(saved.state, under_way, stream[0][0].views)
        self.evaluator, self.records, self.categories = saved.evaluator, saved.records, saved.categories
        for phase, seconds in saved.seconds.items():
            self.seconds[phase] += seconds
        self._forget_metrics(saved.task, saved.epoch or 0)
        return saved.task, saved.epoch

    def _forget_metrics(self, task: int, epoch: int) -> None:
        if distributed.is_main_process():
            self.folder.forget_metrics(task, epoch)

    def _learn(self, task: Task, next_epoch: int | None) -> None:
        """Learn one task; `next_epoch` is given if the checkpoint was made inside it."""
        if next_epoch is None:
            with self._measure("train"):
                self.method.start_task(task, self.progress)
        trained = self.tips.load(task.index) if self.tips is not None and next_epoch is None else None
        if trained is not None:
            tensors, lines = trained
            self.method.load_trained_state(tensors)
            for line in lines:
                self.folder.append_metrics(line)
        else:
            self._train(task, next_epoch or 0)
            if self.tips is not None:
                lines = self.folder.metrics_of_task(task.index)
                self.tips.save(task.index, self.method.trained_state(), lines)
        with self._measure("discover"):
            self.method.finish_task(self.progress)

    def _train(self, task: Task, first: int) -> None:
        """Train from the epoch `first` on."""
        method, saved = self.method, time.monotonic()
        title = f"Task {task.index + 1} of {len(self.experiment.split.tasks)}"
        with self.progress.track(title, method.epochs) as bar:
            bar.skip(first)
            for epoch in range(first, method.epochs):
                started = time.monotonic()
                with self._measure("train"):
                    terms = method.train_epoch(epoch)
                line = {"task": task.index, "epoch": epoch, **terms, "seconds": time.monotonic() - started}
                if distributed.is_main_process():
                    self.folder.append_metrics(line)
                bar.advance()
                bar.say(f"epoch {epoch + 1}, loss {terms['loss']:.3f}")
                if not np.isfinite(terms["loss"]):
                    raise CampError(
                        f"The loss became {terms['loss']} in epoch {epoch + 1} of task {task.index + 1}; "
                        "try a smaller --learning-rate."
                    )
                late = time.monotonic() - saved > CHECKPOINT_SECONDS
                if late and distributed.is_main_process() and epoch + 1 < method.epochs:
                    self._save_checkpoint(task.index, epoch + 1)
                    saved = time.monotonic()

    def _evaluate(self, seen: list[tuple[Task, TaskTruth]]) -> None:
        """Evaluate on all tasks so far; write results.json, predictions.csv and images of new categories."""
        experiment, method = self.experiment, self.method
        task, truth = seen[-1]
        measured = self.evaluator.after_task(method, seen, self.progress)
        if not distributed.is_main_process():
            return
        class_of, planned = self.evaluator.class_of_category, experiment.split.tasks
        self.records.append(task_record(method, planned[task.index], truth, measured))
        self.categories += category_records(
            method, task, truth, class_of, experiment.dataset, self.folder.path
        )
        self.results = Results(
            name=str(self.folder.path),
            command=self.command,
            **run_description(experiment.settings, experiment.backbone, method.epochs),
            notes=self._notes(),
            tasks_planned=len(planned),
            tasks=list(self.records),
            summary=measured.summary,
            confusion=measured.confusion,
            map=measured.map,
            categories=list(self.categories),
            seconds={},
        )
        self._write_results()
        truths = [truth for _, truth in seen]
        write_text(self.folder.predictions, predictions_csv(method, truths, measured.predictions, class_of))
        final = measured.summary["agnostic"].final
        shares = ", ".join(f"{name} {100 * v:.1f}" for name, v in final if v is not None)
        self.progress.note(
            f"After task {task.index + 1} of {len(planned)}: {shares} (% accuracy, task-agnostic)"
        )

    def _notes(self) -> list[str]:
        """Return remarks for readers of the results."""
        notes = [self.experiment.backbone.note] if self.experiment.backbone.note else []
        if self.folder.skipped.exists():
            with self.folder.skipped.open(encoding="utf-8", newline="") as file:
                count = len(list(csv.DictReader(file)))
            notes.append(f"{count} images could not be read and were left out.")
        return notes

    def _write_results(self) -> None:
        """Write results.json with the time spent so far."""
        assert self.results is not None
        seconds = {"total": sum(self.seconds.values()), **self.seconds}
        self.results = self.results.model_copy(update={"seconds": seconds})
        write_json(self.folder.results, self.results.model_dump())

    def _save_checkpoint(self, task: int, epoch: int | None) -> None:
        """Write a checkpoint; `task` and `epoch` are the next to be done, without an epoch between tasks."""
        checkpoint = Checkpoint(
            state=self.method.state(),
            task=task,
            epoch=epoch,
            evaluator=self.evaluator,
            records=self.records,
            categories=self.categories,
            seconds=self.seconds,
            files=self.folder.marks(),
        )
        save_checkpoint(self.folder.checkpoint, checkpoint)


def _first(bad: dict[str, str]) -> str:
    """Return the first unreadable image and the reason."""
    key = min(bad)
    return f"{key}: {bad[key]}"
