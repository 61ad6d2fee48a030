"""A process whose children run `camp` and kill themselves at a named point, as a crash or a power cut would.

It reads lines `{"point": ..., "words": [...], "banks": ...}`, forks a child for each, and answers with the
signal that ended it (0 for none). Forked, because importing what a run needs takes longer than a small run.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import sklearn.datasets  # noqa: F401
import torch._dynamo  # noqa: F401  (the optimiser brings it when it is first made)

import camp.discovery.semi_supervised_kmeans as kmeans
from camp.bench import checkpoint, run_loop
from camp.bench.run_folder import RunFolder
from camp.cli import main
from camp.data.bank.store import Store
from camp.methods.tip_method import TipMethod
from camp.methods.two_views import TwoViewStep

run_loop.CHECKPOINT_SECONDS = 0.0
"""A checkpoint after every epoch."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before(owner: Any, name: str, when: Callable[..., bool], then: Callable[..., None]) -> None:
    """Have `owner.name` do `then` first in the calls that `when` chooses."""
    original = getattr(owner, name)

    def replaced(*arguments: Any, **options: Any) -> Any:
        if when(*arguments, **options):
            then(*arguments, **options)
        return original(*arguments, **options)

    setattr(owner, name, replaced)


def nth(number: int) -> Callable[..., bool]:
    """True in the call with this number, counted from 1."""
    calls = 0

    def count(*_: Any, **__: Any) -> bool:
        nonlocal calls
        calls += 1
        return calls == number

    return count


def bank() -> None:
    """With half of a record on the disk and nothing in the index."""

    def torn(store: Store, digests: list[bytes], values: Any) -> None:
        column = store.columns[0]
        block = values[column.name].astype(column.dtype).tobytes()
        with store.file(column).open("ab") as file:
            file.write(block[: len(block) // 2 + 1])
        die()

    before(Store, "append", nth(4), torn)


def epoch() -> None:
    """In the second step of the second epoch of the second task."""
    later = nth(2)
    before(
        TwoViewStep,
        "terms",
        lambda _step, trainer, _batch, epoch: trainer.seeds[1] == 1 and epoch == 1 and later(),
        lambda *_: die(),
    )


def clustering() -> None:
    """In the second iteration of the second task's k-means."""

    def arm(*_: Any) -> None:
        before(kmeans, "_assign", nth(2), lambda *_: die())

    before(TipMethod, "finish_task", lambda method, *_: len(method.categories) > 0, arm)


def between() -> None:
    """After the checkpoint of the first task, before the second."""
    before(run_loop._RunLoop, "_learn", lambda _loop, task, *_: task.index == 1, lambda *_: die())


def results() -> None:
    """With results.json of the second task written and predictions.csv not."""
    before(run_loop, "predictions_csv", lambda _method, truths, *_: len(truths) == 2, lambda *_: die())


def tensors() -> None:
    """With half of a checkpoint's tensors on the disk, in the second task."""
    save = checkpoint.save

    def half(values: Any) -> bytes:
        whole = save(values)
        if armed():
            os.fsync = lambda _: die()  # type: ignore[assignment, return-value]
            return whole[: len(whole) // 2]
        return whole

    armed = nth(5)
    checkpoint.save = half


def state() -> None:
    """With a checkpoint's tensors written and the JSON that names them not: at the end of the first task."""
    before(checkpoint, "write_json", nth(3), lambda *_: die())


def metrics() -> None:
    """In the middle of a line of metrics.jsonl, in the last epoch of the second task."""

    def torn(folder: RunFolder, line: Any) -> None:
        with folder.metrics.open("a") as file:
            file.write(json.dumps(line)[:40])
        die()

    before(RunFolder, "append_metrics", nth(6), torn)


def waiting() -> None:
    """It does not die but stays, in its second task, until it is killed."""

    def wait(loop: run_loop._RunLoop, *_: Any) -> None:
        (loop.folder.path / "waiting").write_text(str(os.getpid()))
        signal.pause()

    before(run_loop._RunLoop, "_learn", lambda _loop, task, *_: task.index == 1, wait)


POINTS = (bank, epoch, clustering, between, results, tensors, state, metrics, waiting)


def serve() -> None:
    """Answer requests until there are no more."""
    points = {point.__name__: point for point in POINTS}
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os.environ["CAMP_BANKS"] = request["banks"]
            points[request["point"]]()
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            os._exit(main(request["words"]))
        _, status = os.waitpid(child, 0)
        print(json.dumps(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0), flush=True)


if __name__ == "__main__":
    serve()
