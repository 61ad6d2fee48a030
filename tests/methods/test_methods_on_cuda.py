"""Every registered method on the fake CUDA device: no operation mixes devices, and the numbers are the CPU's."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from small_streams import CPU, KINDS, LABELLED, QUIET, USUAL, Stream, kinds_for, learn, stream, takes
from torch import Tensor

from camp.bench.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from camp.methods.base import Method
from camp.methods.registry import METHODS
from camp.methods.trainer import StepBatch, Trainer
from fake_cuda import CUDA, FakeCuda, fake_cuda

BACKWARD = "methods/trainer.py Trainer._descend"
WAITING = ("metagcd", "pa", "il2a")
"""Methods whose loss selects images by a mask, for which it waits for the GPU in each step (docs/gpu.md)."""
# fmt: off
STEADY = (
    "gcd", "gcd-ewc", "gcd-fd", "gcd-er", "simgcd", "igcd", "gm", "camp", "camp-plus",
    "fine-tune", "ewc", "lwf", "joint", "pass", "ssre", "fetril",
)
# fmt: on
"""Methods whose step never waits. A new method need not be in one of these lists."""


SHORT = {"episodes": 1, "sessions": 2}
"""Options that make the meta-training of MetaGCD short."""


@pytest.fixture
def cuda() -> Iterator[FakeCuda]:
    with fake_cuda() as device:
        yield device


@dataclass
class Outcome:
    """What a method has learned from a stream."""

    terms: list[dict[str, float]]
    """Of each epoch."""
    features: Tensor
    predictions: Tensor
    assigned: Tensor


def labels_for(name: str) -> list[str]:
    """Whether some images have labels or all, for a method."""
    info = METHODS[name]
    return ["labelled"] if info.supervised else ["mixed", "labelled"] if info.incremental else ["mixed"]


def small_stream(kind: str, labels: str, folder: Path, device: torch.device) -> Stream:
    plans = LABELLED if labels == "labelled" else USUAL
    return stream(kind, folder, plans, device=device)


def made(here: Stream, name: str) -> Method:
    return here.build(name, **{option: value for option, value in SHORT.items() if takes(name, option)})


def learned(here: Stream, method: Method) -> Outcome:
    """Learn all tasks of a stream."""
    terms = [epoch for task, _ in here.tasks for epoch in learn(method, task)]
    return outcome(here, method, terms)


def outcome(here: Stream, method: Method, terms: list[dict[str, float]]) -> Outcome:
    """Answer for all test images."""
    parts = [truth.test_views.clean(torch.arange(len(truth.test_views))) for _, truth in here.tasks]
    features = torch.cat([method.features(part) for part in parts])
    return Outcome(terms, features, method.predict(features), method.assigned())


def resumed(here: Stream, name: str, folder: Path) -> Outcome:
    """Learn all tasks, with a checkpoint after the first epoch of the second one, from which a new method continues."""
    (first, _), (second, _) = here.tasks
    method = made(here, name)
    terms = learn(method, first)
    method.start_task(second, QUIET)
    terms += [method.train_epoch(epoch) for epoch in range(method.epochs)[:1]]
    save_checkpoint(folder, Checkpoint(state=method.state(), task=1, epoch=1))
    saved, method = load_checkpoint(folder), made(here, name)
    assert saved is not None
    method.load_state(saved.state, second, second.views)
    terms += [method.train_epoch(epoch) for epoch in range(method.epochs)[1:]]
    method.finish_task(QUIET)
    return outcome(here, method, terms)


def check_alike(outcome: Outcome, expected: Outcome, kind: str) -> None:
    """Check that the outcome is that of the CPU; of large networks the losses of the first epoch.

    There, other orders in memory and another engine of the trunk round otherwise, and training enlarges the difference.
    """
    assert len(outcome.terms) == len(expected.terms)
    if kind not in KINDS:
        assert outcome.terms[0] == pytest.approx(expected.terms[0], rel=1e-2, abs=1e-3)
        assert len(outcome.predictions) == len(expected.predictions)
        assert len(outcome.assigned) == len(expected.assigned)
        return
    for terms, others in zip(outcome.terms, expected.terms):
        assert terms == pytest.approx(others, rel=1e-3, abs=1e-4)
    torch.testing.assert_close(outcome.features, expected.features, rtol=1e-2, atol=1e-2)
    for found, others in ((outcome.predictions, expected.predictions), (outcome.assigned, expected.assigned)):
        assert (found == others).float().mean() > 0.9  # an image between two categories may change sides


def whole_life(
    name: str, kind: str, labels: str, folder: Path, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learn two tasks on the GPU and on the CPU, and once more on the GPU from a checkpoint in the second task."""
    steps: list[list[str]] = []
    step = Trainer.train_step

    def watched(trainer: Trainer, batch: StepBatch, epoch: int) -> dict[str, Tensor]:
        before = len(cuda.waits)
        terms = step(trainer, batch, epoch)
        steps.append(cuda.waits[before:])
        return terms

    on_cpu = small_stream(kind, labels, folder, CPU)
    expected = learned(on_cpu, made(on_cpu, name))
    here = small_stream(kind, labels, folder, CUDA)
    method = made(here, name)
    monkeypatch.setattr(Trainer, "train_step", watched)
    check_alike(learned(here, method), expected, kind)
    assert {x.device for x in method.state().tensors.values()} <= {CUDA, CPU}
    assert next(iter(method.trained_state().values())).device == CUDA
    if method.trains:
        assert steps
        check_waits(name, {place for waits in steps for place in waits})

    check_alike(resumed(here, name, folder), expected, kind)


def check_waits(name: str, places: set[str]) -> None:
    """Check at which functions of CAMP a step waited for the GPU: at none, or at the loss of the method."""
    module = METHODS[name].module.removeprefix("camp.").replace(".", "/") + ".py"
    losses = {place for place in places if place.startswith((module, "nn/losses/"))}
    assert places - losses <= ({BACKWARD} if losses else set())
    if name in STEADY:
        assert not places
    if name in WAITING:
        assert losses


def first_kind(name: str) -> str:
    return kinds_for(name)[-1]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_learns_predicts_and_resumes_on_a_gpu(
    name: str, tmp_path: Path, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_life(name, first_kind(name), labels_for(name)[0], tmp_path, cuda, monkeypatch)


OTHER_NETWORKS = {
    "tokens": ("camp", "metagcd", "gcd-ewc", "pa", "lwf"),
    "maps": ("camp",),
    "pooled": ("camp",),
    "resnet": ("lwf", "pass", "il2a", "ssre"),
}
"""Networks of which a GPU has its own path or format, and methods that use them in different ways."""


def other_cases() -> list[tuple[str, str, str]]:
    """Every method with every other kind of input and of labels, and some with other networks."""
    cases = [
        (name, kind, labels) for name in METHODS for kind in kinds_for(name) for labels in labels_for(name)
    ]
    for name in METHODS:
        cases.remove((name, first_kind(name), labels_for(name)[0]))
    return cases + [(n, kind, labels_for(n)[0]) for kind, names in OTHER_NETWORKS.items() for n in names]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "labels"), other_cases())
def test_a_method_learns_predicts_and_resumes_on_a_gpu_with_other_networks(
    name: str, kind: str, labels: str, tmp_path: Path, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_life(name, kind, labels, tmp_path, cuda, monkeypatch)


def test_a_tensor_that_is_left_on_the_cpu_is_noticed(
    tmp_path: Path, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(h: Tensor, temperature: float = 1.0) -> Tensor:
        return (h.square().mean(dim=(1, 2)) * torch.arange(len(h))).sum()

    monkeypatch.setattr("camp.methods.gccd.gcd.simclr", careless)
    here = small_stream("vectors", "mixed", tmp_path, CUDA)
    method = here.build("gcd")
    method.start_task(here.tasks[0][0], QUIET)
    with pytest.raises(RuntimeError, match="same device"):
        method.train_epoch(0)


def test_losses_are_copied_back_once_in_an_epoch(tmp_path: Path, cuda: FakeCuda) -> None:
    here = small_stream("vectors", "mixed", tmp_path, CUDA)
    method = here.build("camp", batch_size=4)
    method.start_task(here.tasks[0][0], QUIET)
    cuda.forget()
    terms = method.train_epoch(0)
    assert cuda.waits == ["methods/trainer.py Trainer.epoch"] * len(terms)
    assert len(cuda.uploads) > 10
