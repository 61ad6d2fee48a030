"""Number of views that the trunk computes for all methods on one view bank, relative to one method."""

import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from camp.bench.executors.in_process import InProcessExecutor
from camp.bench.studies.comparison import comparison
from camp.bench.studies.runner import run_study
from camp.bench.studies.store import MethodStore
from camp.core.progress import Progress
from camp.methods.registry import methods_for
from camp.nn.backbones.engine import OnnxEngine, TorchEngine

OPTIONS = {
    "dataset": "digits",
    "tasks": 2,
    "images_per_class": 12,
    "test_per_class": 4,
    "epochs": 1,
    "batch_size": 32,
    "n_init": 3,
    "backbone": "efficientnet-lite0",
    "resolution": 32,
    "augmentations": 2,
}


@contextmanager
def counting() -> Iterator[list[int]]:
    """Collect the number of views of every trunk pass in the `with` block."""
    passes: list[int] = []
    lock = threading.Lock()
    engines = {engine: engine.__call__ for engine in (OnnxEngine, TorchEngine)}

    def counted(engine):  # type: ignore[no-untyped-def]
        def call(self, pixels):  # type: ignore[no-untyped-def]
            with lock:
                passes.append(len(pixels))
            return engines[engine](self, pixels)

        return call

    for engine in engines:
        engine.__call__ = counted(engine)  # type: ignore[method-assign]
    try:
        yield passes
    finally:
        for engine, call in engines.items():
            engine.__call__ = call  # type: ignore[method-assign]


def views_through_the_trunk(methods: list[str]) -> int:
    """Run `methods` one after another on an empty bank; return the number of views through the trunk."""
    with tempfile.TemporaryDirectory() as folder, counting() as passes:
        study = comparison(methods, {**OPTIONS, "bank": f"{folder}/banks"})
        quiet = Progress(quiet=True)
        outcome = run_study(study, MethodStore(Path(folder) / "runs"), InProcessExecutor(quiet), quiet)
        assert not outcome.failed, outcome.failed
        return sum(passes)


def measure() -> dict[str, float]:
    """Compare all methods with one."""
    one = views_through_the_trunk(["camp"])
    every = views_through_the_trunk(methods_for(labelled=False))
    assert one > 0
    return {
        "trunk_passes_all_methods": every / one,
        "trunk_views_one_method": one,
        "trunk_methods": len(methods_for(labelled=False)),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
