"""One step of methods in float64, alone or among several processes; prints losses and gradients."""

import json
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2] / "methods"))

import small_streams
from small_streams import CPU, QUIET, small_settings, stream

from camp.core import distributed
from camp.core.seeds import generator
from camp.data.tasks import Task, TaskTruth
from camp.data.views import Batch
from camp.methods.registry import method_info
from camp.methods.trainer import Trainer
from camp.nn.backbones import BackboneSettings, make_backbone

LABELLED = ({0: (9, 0), 1: (8, 0)}, {2: (9, 0), 3: (8, 0)})


class AnyType(nn.Module):
    """A tip that takes views as what its weights are, so that it can be made float64."""

    def __init__(self, tip: nn.Module) -> None:
        super().__init__()
        self.tip = tip

    def forward(self, batch: Batch) -> Tensor:
        """(n, D)."""
        dtype = next(self.tip.parameters()).dtype
        return self.tip({name: x.to(dtype) for name, x in batch.items()})


def first_step(method: str, tasks: list[tuple[Task, TaskTruth]]) -> list[object]:
    """The terms of the second task's first step, the norm of its gradient and some of its entries."""
    caught: list[Tensor] = []
    settings = BackboneSettings(backbone="resnet18-slim", resolution=8)
    backbone = make_backbone(settings, generator(0, "backbone"))
    backbone.tip = AnyType(backbone.tip)
    built = method_info(method).build(backbone, small_settings(method, epochs=1, batch_size=17), 0, CPU)
    built.start_task(tasks[0][0], QUIET)
    built.finish_task(QUIET)
    built.tip.double()  # from here on rounding cannot hide a mistake
    built.start_task(tasks[1][0], QUIET)
    trainer: Trainer = built._current_run().trainer
    for network in trainer.step.modules().values():
        network.double()

    def descend(loss: Tensor) -> None:
        loss.backward()
        of_tip = trainer._num_tip_parameters
        distributed.reduce_gradients(trainer.parameters[:of_tip], trainer.parameters[of_tip:])
        caught.append(torch.cat([p.grad.flatten() for p in trainer.parameters if p.grad is not None]))

    trainer._descend = descend  # type: ignore[method-assign]
    with torch.no_grad():  # an old network that differs, so that there is something to distil
        for p in trainer.tip.parameters():
            p.add_(0.01 * torch.randn(p.shape, generator=generator(0, "move")))
    terms = built.train_epoch(0)
    gradient = caught[0]
    return [terms, [gradient.norm().item(), *gradient[:: max(1, len(gradient) // 50)].tolist()]]


def main(methods: list[str]) -> None:
    """By method."""
    small_streams.SMALL.pop("learning_rate", None)
    with distributed.process_group(), tempfile.TemporaryDirectory() as folder:
        tasks = stream("images", Path(folder), LABELLED).tasks
        print(json.dumps({method: first_step(method, tasks) for method in methods}))


if __name__ == "__main__":
    main(sys.argv[1:])
