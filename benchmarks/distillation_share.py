"""What alpha means for a backbone: the pull of distillation on the features relative to that of the other losses.

    python benchmarks/distillation_share.py [OPTIONS OF camp run]

Trains CAMP on the first two tasks of a stream and prints, for epochs of the second task, the ratio

    alpha |d L_KD / d z| / ((1 - alpha) |d L_new / d z|)          norms over the features z of one batch

together with the root mean square of the features. Equal ratios mean the same trade-off between keeping and learning.
"""

import sys

import torch

from camp.bench.experiment import Experiment
from camp.bench.settings import RunSettings
from camp.cli.run import parse
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.methods.gccd.centroid_method import CentroidMethod
from camp.methods.trainer import Trainer
from camp.methods.two_views import TwoViewStep


def share(trainer: Trainer, epoch: int) -> tuple[float, float]:
    """Return the ratio of the gradients on one batch, and the root mean square of its features."""
    step = trainer.step
    assert isinstance(step, TwoViewStep)
    assert step.distiller is not None
    batch = next(step.batches(trainer.data, trainer.settings.batch_size, generator(0, "share", epoch)))
    z = trainer.features(trainer.tip, batch, copies=2).detach().requires_grad_()
    labels = trainer.labels(batch.rows[batch.num_task_images :])
    new = step.objective(z, batch.num_task_images, labels, epoch)["loss"]
    norms = [torch.autograd.grad(loss, z)[0].norm().item() for loss in (step.distiller.loss(z, batch), new)]
    alpha = step.distiller.settings.alpha
    return alpha * norms[0] / ((1 - alpha) * norms[1]), z.square().mean().sqrt().item()


def main(settings: RunSettings) -> None:
    """Train on two tasks and print the ratios."""
    progress = Progress(quiet=True)
    experiment = Experiment.prepare(settings)
    stream = experiment.tasks(experiment.fill_bank(progress).digests)
    method = experiment.method
    assert isinstance(method, CentroidMethod)
    for task, _ in stream[:2]:
        method.start_task(task, progress)
        for epoch in range(method.epochs):
            method.train_epoch(epoch)
            trainer = method._current_run().trainer
            if task.index and trainer is not None and (epoch + 1) % max(1, method.epochs // 5) == 0:
                ratio, rms = share(trainer, epoch)
                print(
                    f"epoch {epoch + 1}: distillation {ratio:.3f} of the other losses, rms {rms:.2f}",
                    flush=True,
                )
        method.finish_task(progress)


if __name__ == "__main__":
    main(parse(["camp"], [*sys.argv[1:], "--out", "unused"]).settings)
