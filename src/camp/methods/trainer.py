"""Phase 1: training of the tip on one task, by an objective and a distiller.

L = (1 - alpha) * L_objective + alpha * L_KD      from the second task on,  L_objective in the first
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from camp.core import distributed
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.data.views import Batch, Views
from camp.methods.schedule import learning_rate
from camp.methods.settings import Training
from camp.nn.losses import distilled, projected_distillation

_TABLE_BYTES = 2**30
"""Old features of all views are kept in memory up to this size, and computed anew in each step beyond."""
_FORWARD_BATCH = 256


class Objective(nn.Module, ABC):
    """The part of the loss that is a method's own, with the method's heads."""

    lasting: bool = False
    """Whether the heads go on from task to task instead of being made anew."""
    rate: float = 1.0
    """Learning rate of the heads as a multiple of the tip's."""

    @torch.no_grad()
    def inherit(self, heads: dict[str, Tensor]) -> None:
        """Go on from the heads of the task before; rows that they did not have stay as they were made."""
        own = self.state_dict()
        for name, value in heads.items():
            own[name][tuple(slice(0, n) for n in value.shape)] = value

    @abstractmethod
    def forward(self, z: Tensor, own: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """Terms of the loss by name, `loss` among them.

        z (2, B, D) are features of two views: first `own` pictures of the task, taken as unlabelled, then
        B - own labelled ones with `labels` (B - own,). Where every picture has a label `own` is 0, and the B
        pictures are taken as both: see `unlabelled`.
        """


def unlabelled(x: Tensor, own: int) -> Tensor:
    """Of x (2, B, ...) the pictures of the task, taken as unlabelled: the first `own`, or all if none are apart."""
    return x[:, :own] if own else x


@dataclass(frozen=True)
class Distillation:
    """L_KD and its weight."""

    alpha: float
    kind: Literal["mse", "cosine"]
    data: Literal["all", "task"]
    """On which pictures of a step: all of them, or without the labelled batch."""
    views: Literal["mean", "sum"]
    """Mean over all views, or the sum of the two views' means (twice as strong)."""


class OldFeatures:
    """F^{t-1}(x) of augmented views. The old tip never changes, so with a bank they are computed once."""

    def __init__(self, tip: nn.Module, views: Views, dim: int, progress: Progress) -> None:
        self.tip = tip
        self.table: Tensor | None = None
        count = views.augmentations
        if count is None or len(views) * count * dim * 4 > _TABLE_BYTES:
            return
        with progress.track("Old features", len(views) * count // distributed.world_size()) as bar:

            def of(rows: Tensor) -> Tensor:
                table = torch.empty(len(rows), count, dim)
                for part in torch.arange(len(rows)).split(_FORWARD_BATCH):
                    for v in range(count):
                        batch = views.augmented(rows[part], torch.full((1, len(part)), v))
                        table[part, v] = self._through(batch).cpu()
                        bar.advance(len(part))
                return table

            self.table = distributed.map_sharded(len(views), of)

    def __call__(self, rows: Tensor, ids: Tensor, batch: Batch) -> Tensor:
        """(count, B, D) for the views `ids` (count, B) of `rows` (B,); `batch` is the trunk's output for this
        process's share of them."""
        if self.table is not None:
            return self.table[rows, ids]
        return gathered(self._through(batch), len(ids), len(rows))

    @torch.no_grad()
    def _through(self, batch: Batch) -> Tensor:
        return self.tip(batch)


class Phase1:
    """The networks, optimiser and data of one task's training."""

    dealt = True
    """Whether each of several processes runs the tip on its share of the pictures, or on all of them."""

    def __init__(
        self,
        *,
        tip: nn.Module,
        objective: Objective,
        distiller: nn.Module | None,
        distillation: Distillation,
        settings: Training,
        views: Views,
        labels: Tensor,
        own: int,
        old: OldFeatures | None,
        device: torch.device,
        draws: tuple[object, ...],
        penalty: Callable[[], Tensor] | None = None,
        clipping: Literal["norm", "value"] = "norm",
    ) -> None:
        """`views` and `labels` (n + m,) are the task's n = `own` pictures, then m exemplars of earlier tasks.

        `draws` names the randomness: (seed, task). `penalty`, on the tip's parameters, is added to the loss.
        `clipping` bounds the gradient's norm or each of its entries by `settings.clip`.
        """
        self.tip, self.objective, self.distiller = tip, objective.to(device), distiller
        self.distillation, self.settings = distillation, settings
        self.views, self.labels, self.own, self.old = views, labels, own, old
        self.device, self.draws, self.penalty, self.clipping = device, draws, penalty, clipping
        if distiller is not None:
            distiller.to(device).train()
        self.labelled = (labels >= 0).nonzero()[:, 0]
        rates = [
            (tip, 1.0),
            (objective, objective.rate),
            *([(distiller, 1.0)] if distiller is not None else []),
        ]
        groups: list[dict[str, object]] = [
            {"params": [p for p in module.parameters() if p.requires_grad], "rate": rate}
            for module, rate in rates
        ]
        self.parameters = [p for module, _ in rates for p in module.parameters() if p.requires_grad]
        self._of_tip = len(groups[0]["params"])  # type: ignore[arg-type]
        self.optimizer = torch.optim.AdamW(
            groups, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
        )
        self.mixed = _mixed(settings, device)
        # Where every picture has a label, one batch serves as the task's and as the labelled one.
        self.apart = len(self.labelled) < len(labels)
        self.steps = -(-(own if self.apart else len(labels)) // settings.batch_size)

    def epoch(self, epoch: int) -> dict[str, float]:
        """Train for one epoch; the mean of each term of the loss."""
        self.tip.train()
        sums: dict[str, Tensor] = {}
        for step, (rows, own, ids, batch) in enumerate(_one_ahead(self._batches(epoch))):
            for group in self.optimizer.param_groups:
                group["lr"] = group["rate"] * learning_rate(self.settings, epoch, step, self.steps)
            terms = self._step(rows, own, ids, batch, epoch)
            for name, value in terms.items():
                sums[name] = sums.get(name, torch.zeros(())) + value.detach().cpu()
        return {name: (value / self.steps).item() for name, value in sums.items()}

    def _step(self, rows: Tensor, own: int, ids: Tensor, batch: Batch, epoch: int) -> dict[str, Tensor]:
        z = gathered(self._run(self.tip, batch), 2, len(rows))
        terms = self.objective(z, own, self.labels[rows[own:]].to(self.device), epoch)
        loss = terms["loss"]
        if self.old is not None and self.distiller is not None:
            terms["kd"] = self._distil(z, self.old(rows, ids, batch).to(self.device), own)
            terms["loss"] = distilled(loss, terms["kd"], self.distillation.alpha)
        self._descend(self._penalised(terms))
        return terms

    def _run(self, tip: nn.Module, batch: Batch) -> Tensor:
        """(n, D) of views by a tip; losses get float32 whatever it ran in."""
        if not self.mixed:
            return tip(batch)
        with torch.autocast(self.device.type, torch.bfloat16):
            return tip(batch).float()

    def _penalised(self, terms: dict[str, Tensor]) -> Tensor:
        """Add the penalty to the terms; what is to be differentiated."""
        loss = terms["loss"]
        if self.penalty is None:
            return loss
        terms["penalty"] = self.penalty()
        terms["loss"] = loss + terms["penalty"]
        # The tip's gradients are summed over the processes, each of which has the same penalty.
        return loss + terms["penalty"] / distributed.world_size()

    def _descend(self, loss: Tensor) -> None:
        """One step of the optimiser down the clipped gradient."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        of_tip = self._of_tip if self.dealt else 0
        distributed.reduce_gradients(self.parameters[:of_tip], self.parameters[of_tip:])
        if self.clipping == "norm":
            torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.clip)
        else:
            torch.nn.utils.clip_grad_value_(self.parameters, self.settings.clip)
        self.optimizer.step()

    def _distil(self, z: Tensor, z_old: Tensor, own: int) -> Tensor:
        """L_KD of the step, for features z and z_old (2, B, D)."""
        assert self.distiller is not None
        if self.distillation.data == "task":
            z, z_old = unlabelled(z, own), unlabelled(z_old, own)
        predicted = self.distiller(z.flatten(0, 1))
        loss = projected_distillation(predicted, z_old.flatten(0, 1), kind=self.distillation.kind)
        return 2 * loss if self.distillation.views == "sum" else loss

    def _batches(self, epoch: int) -> Iterator[tuple[Tensor, int, Tensor, Batch]]:
        """(rows, own, ids, batch) of each step: pictures of the task, then as many labelled ones.

        rows (B,) and ids (2, B) are those of the whole step, `batch` this process's share.
        """
        draw = generator(0, *self.draws, "epoch", epoch)
        labelled = _cycle(self.labelled, self.settings.batch_size, draw)
        pictures = self.own if self.apart else len(self.labels)
        for own in torch.randperm(pictures, generator=draw).split(self.settings.batch_size):
            rows = torch.cat([own, next(labelled)]) if self.apart else own
            ids = self.views.draw(rows, 2, draw)
            mine = distributed.shard(len(rows))
            yield rows, len(own) if self.apart else 0, ids, self.views.augmented(rows[mine], ids[:, mine])

    def state(self) -> dict[str, Tensor]:
        """Parameters of the heads and moments of the optimiser; the tip is the method's to keep."""
        tensors = {f"objective.{k}": v for k, v in self.objective.state_dict().items()}
        if self.distiller is not None:
            tensors |= {f"distiller.{k}": v for k, v in self.distiller.state_dict().items()}
        for i, parameter in enumerate(self.parameters):
            for name, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer.{i}.{name}"] = value
        return tensors

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on from `state`."""

        def part(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

        self.objective.load_state_dict(part("objective."))
        if self.distiller is not None:
            self.distiller.load_state_dict(part("distiller."))
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in part("optimizer.").items():
            index, name = key.split(".")
            moments.setdefault(int(index), {})[name] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})


def _mixed(settings: Training, device: torch.device) -> bool:
    """Whether the tip runs in bfloat16, whose range is float32's, so that gradients need no scaling."""
    if settings.arithmetic == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return settings.arithmetic == "mixed"


def gathered(z: Tensor, copies: int, pictures: int) -> Tensor:
    """Features (copies, pictures, D) of a whole step, from this process's share (copies * m, D), copy-major."""
    apart = z.unflatten(0, (copies, len(z) // copies)).transpose(0, 1)
    return distributed.all_gather(apart, pictures).transpose(0, 1)


def frozen_copy(tip: nn.Module) -> nn.Module:
    """The tip as it is now, for ever."""
    return copy.deepcopy(tip).eval().requires_grad_(False)


def _cycle(rows: Tensor, size: int, draw: torch.Generator) -> Iterator[Tensor]:
    """Batches of `rows`, shuffled anew whenever all have been seen; empty ones if there are no rows."""
    while True:
        if not len(rows):
            yield rows
            continue
        yield from rows[torch.randperm(len(rows), generator=draw)].split(size)


def _one_ahead(items: Iterator) -> Iterator:
    """The same items, the next one being made in a thread while this one is used."""
    with ThreadPoolExecutor(1) as pool:
        take: Callable = lambda: next(items, None)  # noqa: E731
        coming = pool.submit(take)
        while (item := coming.result()) is not None:
            coming = pool.submit(take)
            yield item


@torch.no_grad()
def clean_features(tip: nn.Module, views: Views, progress: Progress, title: str = "Features") -> Tensor:
    """(n, D) features of the clean views, on the CPU."""
    tip.eval()
    with progress.track(title, len(views) // distributed.world_size()) as bar:

        def of(rows: Tensor) -> Tensor:
            parts = []
            for part in rows.split(_FORWARD_BATCH):
                parts.append(tip(views.clean(part)).cpu())
                bar.advance(len(part))
            return torch.cat(parts)

        return distributed.map_sharded(len(views), of)
