"""Quality of the features of finished class-incremental runs, independent of the method's classifier.

    python benchmarks/probe.py RUN...

Prints the accuracy after the last task on the test images of all tasks, in percent, of the method's own classifier, of the
nearest class means, and of a linear support vector machine. The latter two use the features of the training images of all
tasks, including images to which the method no longer has access.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.svm import LinearSVC

from camp.bench.checkpoint import load_checkpoint
from camp.bench.evaluation.upper_bound import nearest_mean, true_means
from camp.bench.experiment import Experiment
from camp.bench.run_folder import RunFolder
from camp.core.progress import Progress
from camp.methods.trainer import clean_features


def probe(folder: Path) -> tuple[float, float, float]:
    """Return the accuracy of the method's classifier, of nearest true means, and of a linear support vector machine."""
    progress = Progress(quiet=True)
    run = RunFolder(folder)
    experiment = Experiment.prepare(run.read_config().settings, run.read_split())
    stream = experiment.tasks(experiment.fill_bank(progress).digests)
    method = experiment.method
    saved = load_checkpoint(run.checkpoint)
    assert saved is not None, f"{folder} has no checkpoint"
    method.load_state(saved.state, None, stream[0][0].views)

    train = torch.cat([clean_features(method.tip, task.views, progress) for task, _ in stream])
    test = torch.cat([clean_features(method.tip, truth.test_views, progress) for _, truth in stream])
    of_train = np.concatenate([truth.train_classes for _, truth in stream])
    of_test = np.concatenate([truth.test_classes for _, truth in stream])
    label_of = stream[-1][1].class_of_label
    own = np.array([label_of[method.categories[i].label] for i in method.predict(test).tolist()])
    classes, means = true_means(train.numpy(), of_train)
    nearest = nearest_mean(test.numpy(), means, classes)
    svc = LinearSVC(tol=1e-3, dual=False).fit(F.normalize(train, dim=1).numpy(), of_train)
    answers = (own, nearest, svc.predict(F.normalize(test, dim=1).numpy()))
    return tuple(float((answer == of_test).mean()) for answer in answers)  # type: ignore[return-value]


if __name__ == "__main__":
    print(
        "| run | method's classifier | nearest true means | linear SVM on all features |\n|---|---:|---:|---:|"
    )
    for name in sys.argv[1:]:
        print(
            f"| {Path(name).name} | " + " | ".join(f"{100 * x:.1f}" for x in probe(Path(name))) + " |",
            flush=True,
        )
