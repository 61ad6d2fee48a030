"""Training of the tip on one task (phase 1).

`Trainer` owns what is the same for every method: the optimiser and its schedule, gradient clipping, mixed
precision, several processes, prefetching of batches and the state of a checkpoint. A `TrainingStep` draws the
batches and computes the loss; `two_views.py` has the one of the paper.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from camp.core import distributed
from camp.core.devices import to_device
from camp.core.large_arrays import empty_array
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.data.views import Batch, Views
from camp.methods.schedules import make_schedule
from camp.methods.settings import Training

FORWARD_BATCH = 256
"""Number of views that go through a network at once where no gradient is needed."""

Penalty = Callable[[], Tensor]
"""A term of the loss that depends on the parameters of the tip alone."""
Plan = dict[str, Tensor]
"""Random draws for the images of a step besides their views; axis 0 of each tensor is the image."""

T = TypeVar("T")


class Objective(nn.Module):
    """The heads of a method and the loss they are trained with."""

    persistent: bool = False
    """Whether the heads continue from task to task instead of being initialised again."""
    rate: float = 1.0
    """Learning rate of the heads as a multiple of the tip's."""

    def heads(self) -> dict[str, Tensor]:
        """Return the parameters that the next task continues from."""
        return {name: value.cpu().clone() for name, value in self.state_dict().items()}

    @torch.no_grad()
    def inherit(self, heads: dict[str, Tensor]) -> None:
        """Continue from the heads of the task before; rows that they did not have keep their initial values."""
        current = self.state_dict()
        for name, value in heads.items():
            current[name][tuple(slice(0, n) for n in value.shape)] = value


@dataclass(frozen=True)
class TrainingData:
    """The images of a task, followed by exemplars of earlier tasks."""

    views: Views
    labels: Tensor
    """(n + m,) int64 labels of all images, UNLABELLED where there is none."""
    num_task_images: int
    """n, the number of images of the task."""
    held_out: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    """Rows of images that are not trained on but measure the loss for a schedule that depends on it."""

    @property
    def trained_rows(self) -> Tensor:
        """Rows of the images that are trained on."""
        kept = torch.ones(len(self.labels), dtype=torch.bool)
        kept[self.held_out] = False
        return kept.nonzero()[:, 0]

    @property
    def labelled(self) -> Tensor:
        """Rows of the labelled images."""
        return (self.labels >= 0).nonzero()[:, 0]

    @property
    def all_labelled(self) -> bool:
        """Whether every image has a label."""
        return len(self.labelled) == len(self.labels)

    def steps(self, batch_size: int) -> int:
        """Number of steps of an epoch."""
        count = len(self.labels) - len(self.held_out) if self.all_labelled else self.num_task_images
        return -(-count // batch_size)


@dataclass(frozen=True)
class StepBatch:
    """The B images of a training step."""

    rows: Tensor
    """(B,) rows of the training data."""
    num_task_images: int
    """Number of images of the task, treated as unlabelled; they come first, and the others are labelled."""
    ids: Tensor
    """(count, B) augmented views of each image."""
    views: Batch
    """The views of this process's share of the images, view-major."""
    plan: Plan = field(default_factory=dict)


class TrainingStep(ABC):
    """How a batch is drawn, and how its loss is computed."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective

    def modules(self) -> dict[str, nn.Module]:
        """Return the networks that are trained besides the tip, by the prefix of their names in a checkpoint."""
        return {"objective": self.objective}

    @abstractmethod
    def batches(self, data: TrainingData, batch_size: int, draw: torch.Generator) -> Iterator[StepBatch]:
        """Draw the batches of an epoch."""

    @abstractmethod
    def terms(self, trainer: "Trainer", batch: StepBatch, epoch: int) -> dict[str, Tensor]:
        """Return the terms of the loss by name, with `loss` among them."""

    def held_out_loss(self, trainer: "Trainer") -> float | None:
        """Return the loss on the images that were held out; None if there are none."""
        return None


class Trainer:
    """Trains the tip and the heads of a task."""

    def __init__(
        self,
        *,
        tip: nn.Module,
        step: TrainingStep,
        data: TrainingData,
        settings: Training,
        device: torch.device,
        seeds: tuple[object, ...],
        penalties: Sequence[Penalty] = (),
        clipping: Literal["norm", "value"] = "norm",
    ) -> None:
        """Prepare the optimiser.

        `seeds` (seed, task) name the random draws. `clipping` says whether `settings.clip` bounds the norm of the
        gradient or each of its entries.
        """
        self.tip, self.step, self.data, self.settings = tip, step, data, settings
        self.device, self.seeds, self.penalties, self.clipping = device, seeds, penalties, clipping
        modules = {name: module.to(device) for name, module in step.modules().items()}
        rated = [
            (tip, 1.0),
            *((m, step.objective.rate if n == "objective" else 1.0) for n, m in modules.items()),
        ]
        trained = [[p for p in module.parameters() if p.requires_grad] for module, _ in rated]
        self.parameters = [p for parameters in trained for p in parameters]
        self._num_tip_parameters = len(trained[0])
        self.optimizer = make_optimizer(
            settings, [{"params": parameters, "rate": rate} for parameters, (_, rate) in zip(trained, rated)]
        )
        self.mixed = _mixed(settings, device)
        self.num_steps = data.steps(settings.batch_size)
        self.schedule = make_schedule(settings)

    def epoch(self, epoch: int) -> dict[str, float]:
        """Train for one epoch and return the mean of each term of the loss.

        Once the schedule has ended training nothing is trained, and the loss is the lowest one so far.
        """
        if self.schedule.stopped:
            return {"loss": self.schedule.best_loss}
        self.tip.train()
        draw = generator(0, *self.seeds, "epoch", epoch)
        batches = self.step.batches(self.data, self.settings.batch_size, draw)
        sums: dict[str, Tensor] = {}
        for index, batch in enumerate(_prefetched(batches)):
            for group in self.optimizer.param_groups:
                group["lr"] = group["rate"] * self.schedule.rate(epoch, index, self.num_steps)
            # Added up on the device, which is waited for at the end of the epoch alone.
            for name, value in self.train_step(batch, epoch).items():
                sums[name] = sums.get(name, torch.zeros((), device=value.device)) + value.detach()
        means = {name: (value / self.num_steps).item() for name, value in sums.items()}
        held_out = self.step.held_out_loss(self)
        if held_out is not None:
            means["held_out"] = held_out
        networks = {"tip": self.tip, **self.step.modules()}
        self.schedule.after_epoch(epoch, means.get("held_out", means["loss"]), networks)
        return means

    def train_step(self, batch: StepBatch, epoch: int) -> dict[str, Tensor]:
        """Take one step of the optimiser and return the terms of the loss."""
        terms = self.step.terms(self, batch, epoch)
        self._descend(self._penalised(terms))
        return terms

    def labels(self, rows: Tensor) -> Tensor:
        """Return the labels of images on the device of the networks."""
        return to_device(self.data.labels[rows], self.device)

    def features(self, tip: nn.Module, batch: StepBatch, copies: int) -> Tensor:
        """Return the features (copies, B, D) of all views of a step; float32 whatever the tip ran in."""
        return gathered(self.forward(tip, batch.views), copies, len(batch.rows))

    def forward(self, tip: nn.Module, views: Batch) -> Tensor:
        """Return the features (n, D) of views; float32 whatever the tip ran in."""
        if not self.mixed:
            z: Tensor = tip(views)
            return z
        with torch.autocast(self.device.type, torch.bfloat16):
            z = tip(views).float()
        return z

    def _penalised(self, terms: dict[str, Tensor]) -> Tensor:
        """Add the penalties to the terms, and return what is to be differentiated."""
        loss = terms["loss"]
        if not self.penalties:
            return loss
        terms["penalty"] = torch.stack([penalty() for penalty in self.penalties]).sum()
        terms["loss"] = loss + terms["penalty"]
        # The tip's gradients are summed over the processes, each of which has the same penalty.
        return loss + terms["penalty"] / distributed.world_size()

    def _descend(self, loss: Tensor) -> None:
        """Take one step of the optimiser along the clipped gradient."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        shared = self._num_tip_parameters
        distributed.reduce_gradients(self.parameters[:shared], self.parameters[shared:])
        if self.settings.clip is not None:
            clip = nn.utils.clip_grad_norm_ if self.clipping == "norm" else nn.utils.clip_grad_value_
            clip(self.parameters, self.settings.clip)
        self.optimizer.step()

    def state(self) -> dict[str, Tensor]:
        """Return the heads, the moments of the optimiser and the schedule; the tip belongs to the method."""
        tensors = {
            f"{prefix}.{name}": value
            for prefix, module in self.step.modules().items()
            for name, value in module.state_dict().items()
        }
        for i, parameter in enumerate(self.parameters):
            for name, value in self.optimizer.state.get(parameter, {}).items():
                if value is not None:  # SGD without momentum
                    tensors[f"optimizer.{i}.{name}"] = value
        return tensors | {f"schedule.{name}": value for name, value in self.schedule.state().items()}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Continue from `state`."""
        for prefix, module in self.step.modules().items():
            module.load_state_dict(with_prefix(tensors, f"{prefix}."))
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in with_prefix(tensors, "optimizer.").items():
            index, name = key.split(".")
            moments.setdefault(int(index), {})[name] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self.schedule.load_state(with_prefix(tensors, "schedule."))


def make_optimizer(settings: Training, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    """Make the optimiser of the settings for groups of parameters."""
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=rate, momentum=settings.momentum, weight_decay=decay, fused=True)
    adam = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
    return adam(groups, lr=rate, weight_decay=decay, fused=True)


def with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Select the tensors whose names begin with `prefix`, and remove it from the names."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _mixed(settings: Training, device: torch.device) -> bool:
    """Whether the tip runs in bfloat16, whose range is float32's, so that gradients need no scaling."""
    if settings.arithmetic == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return settings.arithmetic == "mixed"


def gathered(z: Tensor, copies: int, images: int) -> Tensor:
    """Gather features (copies, images, D) of a step from this process's share (copies * m, D), copy-major."""
    apart = z.unflatten(0, (copies, len(z) // copies)).transpose(0, 1)
    return distributed.all_gather(apart, images).transpose(0, 1)


def frozen_copy(tip: nn.Module) -> nn.Module:
    """Copy a network and freeze the copy."""
    return copy.deepcopy(tip).eval().requires_grad_(False)


def _prefetched(items: Iterator[T]) -> Iterator[T]:
    """Yield the same items, each made in a thread while the one before is used."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


@torch.no_grad()
def clean_features(tip: nn.Module, views: Views, progress: Progress, title: str = "Features") -> Tensor:
    """Compute the features (n, D) of the clean views, on the CPU."""
    tip.eval()
    with progress.track(title, len(views) // distributed.world_size()) as bar:

        def of(rows: Tensor) -> Tensor:
            done = 0
            found: Tensor | None = None
            for part in rows.split(FORWARD_BATCH):
                features = tip(views.clean(part)).cpu()
                if found is None:
                    shape = len(rows), *features.shape[1:]
                    found = torch.from_numpy(empty_array(shape, features.numpy().dtype))
                found[done : done + len(part)] = features
                done += len(part)
                bar.advance(len(part))
            return torch.cat([]) if found is None else found

        return distributed.map_sharded(len(views), of)
