"""Several processes: what they exchange, and that they compute what one process computes."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import TORCHRUN, free_port, process_env, run_together
from torch import nn

from camp.core import distributed
from camp.nn.backbones.batch_norm import BatchNorm

COLLECTIVES = """
import json, os, torch
from camp.core import distributed
from camp.core.errors import CampError
from camp.nn.backbones.batch_norm import BatchNorm

out = {}
draw = torch.Generator().manual_seed(0)
images = torch.randn(5, 3, 4, 4, generator=draw, dtype=torch.float64) * 3 + 100
target = torch.randn(5, 3, 4, 4, generator=draw, dtype=torch.float64)
with distributed.process_group():
    rank, n = distributed.rank(), 7
    out["rows"] = torch.arange(n)[distributed.shard(n)].tolist()
    x = torch.tensor(out["rows"]).float()[:, None].repeat(1, 2).requires_grad_()
    gathered = distributed.all_gather(x, n)
    (gathered[:, 0] * torch.arange(n)).sum().backward()
    out["gathered"], out["gradient"] = gathered[:, 1].tolist(), x.grad[:, 0].tolist()
    y = torch.tensor([float(rank)], requires_grad=True)
    (distributed.all_reduce_sum(y) * (rank + 1)).sum().backward()
    out["sum_gradient"] = y.grad.item()
    tip, head = torch.zeros(2, requires_grad=True), torch.zeros(1, requires_grad=True)
    if rank:
        tip.grad = torch.full((2,), float(rank))
    head.grad = torch.full((1,), 10.0 + rank)
    distributed.reduce_gradients([tip], [head])
    out["tip"], out["head"] = tip.grad.tolist(), head.grad.item()
    out["few"] = distributed.map_sharded(2, lambda rows: rows * 3).tolist()
    out["broadcast"] = distributed.broadcast({"from": rank})
    out["bytes"] = [distributed.broadcast_bytes(bytes([rank + 65] * k)).decode() for k in (3, 0)]

    norm = BatchNorm(3).double().train()
    mine = images[distributed.shard(5)].clone().requires_grad_()
    z = distributed.all_gather(norm(mine), 5)
    (z.sin() * target).sum().backward()
    distributed.reduce_gradients(norm.parameters(), [])
    out["norm"] = [t.tolist() for t in (norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var, z)]
    out["norm_gradient"], out["batches"] = mine.grad.tolist(), int(norm.num_batches_tracked)

    try:
        with distributed.synchronized_errors():
            if rank == 1:
                raise CampError("No images here.")
    except CampError as error:
        out["error"] = f"{type(error).__name__} {error}"
    print(json.dumps(out), flush=True)
    if rank == 2:
        os._exit(9)
    try:
        distributed.broadcast({})
        distributed.all_reduce_sum(torch.zeros(1))
    except CampError as error:
        print(type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def printed() -> list[list[str]]:
    """Lines that three processes print; the last process ends too early."""
    return [text.splitlines() for text in run_together(COLLECTIVES, 3, codes=(0, 0, 9))]


@pytest.fixture(scope="module")
def outputs(printed: list[list[str]]) -> list[dict[str, Any]]:
    return [json.loads(lines[0]) for lines in printed]


def test_a_single_process_exchanges_nothing() -> None:
    assert (distributed.rank(), distributed.world_size(), distributed.is_main_process()) == (0, 1, True)
    assert distributed.shard(7) == slice(0, 7)
    x = torch.arange(3.0, requires_grad=True)
    assert distributed.all_gather(x, 3) is x
    assert distributed.all_reduce_sum(x) is x
    assert distributed.broadcast({"a": 1}) == {"a": 1}
    assert distributed.map_sharded(3, lambda rows: rows * 2).tolist() == [0, 2, 4]


@pytest.mark.slow
def test_collective_operations(outputs: list[dict[str, Any]]) -> None:
    assert [row for out in outputs for row in out["rows"]] == list(range(7))
    for out in outputs:
        assert out["gathered"] == list(range(7))
        assert out["gradient"] == out["rows"]  # d/dx_i sum_i i x_i, of the own rows alone
        assert out["sum_gradient"] == 1 + 2 + 3  # every process continues differently with the sum
        assert out["tip"] == [3.0, 3.0]  # 0 (no gradient at all) + 1 + 2
        assert out["head"] == 10.0  # that of the main process
        assert out["few"] == [0, 3]
        assert out["broadcast"] == {"from": 0}
        assert out["bytes"] == ["AAA", ""]


@pytest.mark.slow
def test_batch_norm_has_the_statistics_of_all_processes(outputs: list[dict[str, Any]]) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(5, 3, 4, 4, generator=draw, dtype=torch.float64) * 3 + 100
    target = torch.randn(5, 3, 4, 4, generator=draw, dtype=torch.float64)
    x.requires_grad_()
    norm = nn.BatchNorm2d(3).double().train()
    y = norm(x)
    (y.sin() * target).sum().backward()
    expected = [norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var, y.detach()]
    gradients = [torch.tensor(out["norm_gradient"], dtype=torch.float64) for out in outputs]
    torch.testing.assert_close(torch.cat(gradients), x.grad, rtol=0, atol=1e-10)
    for out in outputs:
        for ours, torchs in zip(out["norm"], expected):
            ours = torch.tensor(ours, dtype=torch.float64)
            torch.testing.assert_close(ours, torchs, rtol=1e-10, atol=1e-10)
        assert out["batches"] == 1


def test_batch_norm_of_a_single_process_is_torchs() -> None:
    x = torch.randn(4, 2, 3, 3)
    ours, torchs = BatchNorm(2), nn.BatchNorm2d(2)
    assert torch.equal(ours(x), torchs(x))
    assert torch.equal(ours.running_var, torchs.running_var)


@pytest.mark.slow
def test_an_error_of_one_process_is_raised_in_all(outputs: list[dict[str, Any]]) -> None:
    assert [out["error"] for out in outputs] == ["ReportedError In process 1: No images here."] * 3


@pytest.mark.slow
def test_a_lost_process_is_reported_in_one_sentence(printed: list[list[str]]) -> None:
    for lines in printed[:2]:
        assert lines[1].startswith("LostProcessError Another of the 3 processes of this run has ended")
        assert "--resume" in lines[1]


SMALL = shlex.split(
    "--dataset digits --setting cil --tasks 2 --images-per-class 30 --test-per-class 30 --epochs 3 "
    "--batch-size 25 --backbone conv-tiny --method camp --projector-width 64 --quiet"
)
CAMP_RUN = "import sys; from camp.cli import main; sys.argv = ['camp', 'run', *{}]; sys.exit(main())"


def camp_run(words: list[str], count: int, folder: Path) -> list[subprocess.CompletedProcess[str]]:
    """`camp run` in each of `count` processes, without torchrun, which takes long to start."""
    port = free_port()
    running = [
        subprocess.Popen(
            [sys.executable, "-c", CAMP_RUN.format(words)],
            env=process_env(number, count, port) | {"CAMP_BANKS": str(folder / "banks")},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    done = [(process, process.communicate(timeout=300)) for process in running]
    return [subprocess.CompletedProcess(p.args, p.returncode, *texts) for p, texts in done]


def succeeded(words: list[str], count: int, folder: Path) -> None:
    for done in camp_run(words, count, folder):
        assert done.returncode == 0, done.stderr


def accuracies(out: Path) -> list[float]:
    results = json.loads((out / "results.json").read_text())
    return [value for task in results["tasks"] for value in task["agnostic"]["all"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run `two` of two processes."""
    made = tmp_path_factory.mktemp("distributed")
    succeeded([*SMALL, "--out", "two"], 2, made)
    return made


@pytest.mark.slow
def test_two_processes_train_to_the_accuracy_of_one(folder: Path) -> None:
    succeeded([*SMALL, "--out", "one"], 1, folder)
    one, two = (
        [json.loads(line)["loss"] for line in (folder / out / "metrics.jsonl").read_text().splitlines()]
        for out in ("one", "two")
    )
    assert len(two) == 6  # each line written once
    assert two == pytest.approx(one, rel=0.01)
    assert accuracies(folder / "two") == pytest.approx(accuracies(folder / "one"), abs=0.05)
    assert min(accuracies(folder / "two")[:1]) > 0.5
    assert len(list((folder / "two" / "checkpoint").iterdir())) == 2


@pytest.mark.slow
def test_two_processes_agree_on_a_schedule_that_depends_on_held_out_images(folder: Path) -> None:
    words = shlex.split(
        "--dataset digits --setting cil --tasks 1 --images-per-class 30 --test-per-class 30 --epochs 12 --batch-size 25 "
        "--learning-rate 0.01 --lr-patience 0 --backbone conv-tiny --method fine-tune --quiet"
    )
    lines = []
    for count, out in ((1, "plateau-one"), (2, "plateau-two")):
        succeeded([*words, "--out", out], count, folder)
        text = (folder / out / "metrics.jsonl").read_text()
        lines.append([json.loads(line)["held_out"] for line in text.splitlines()])
    assert lines[1] == pytest.approx(lines[0], rel=0.02)


@pytest.mark.slow
def test_two_processes_leave_a_finished_run_unchanged(folder: Path) -> None:
    before = (folder / "two" / "results.json").stat().st_mtime_ns
    succeeded(["--resume", "two", "--quiet"], 2, folder)
    assert (folder / "two" / "results.json").stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_run_that_loses_a_process_reports_it_and_is_resumed(folder: Path) -> None:
    """Process 1 is killed in the second task; two processes resume to the results of an uninterrupted run."""
    env = os.environ | {"CAMP_BANKS": str(folder / "banks"), "DIE_IN_EPOCH": "4"}
    command = [str(TORCHRUN), "--nproc-per-node", "2", "--master-port", str(free_port())]
    command += [str(Path(__file__).parent / "dying.py"), "run", *SMALL, "--out", "broken"]
    died = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=300)
    assert died.returncode != 0
    errors = [line for line in died.stderr.splitlines() if line.startswith("camp: ")]
    assert len(errors) == 1, died.stderr
    assert errors[0].startswith("camp: Another of the 2 processes of this run has ended")
    assert "--resume" in errors[0]
    succeeded(["--resume", "broken", "--quiet"], 2, folder)
    assert accuracies(folder / "broken") == accuracies(folder / "two")


@pytest.mark.slow
def test_a_user_error_is_printed_once(folder: Path) -> None:
    before = (folder / "two" / "config.json").read_text()
    done = camp_run([*SMALL, "--out", "two"], 2, folder)
    assert all(process.returncode for process in done)
    assert "".join(process.stderr for process in done).count("two already holds a run") == 1
    assert (folder / "two" / "config.json").read_text() == before


@pytest.mark.slow
def test_a_step_of_two_processes_is_that_of_one() -> None:
    """In float64, with batch norms: loss and gradients of the tip and the heads agree up to rounding."""
    methods = ["lwf", "ewc", "camp", "pass", "il2a", "ssre"]
    script = str(Path(__file__).parent / "one_step.py")
    text = f"import sys, runpy; sys.argv = ['', *{methods}]; runpy.run_path('{script}', run_name='__main__')"
    (alone,) = run_together(text, 1)
    expected = json.loads(alone)
    for output in run_together(text, 2):
        for method, (terms, numbers) in json.loads(output).items():
            assert terms == pytest.approx(expected[method][0], rel=1e-6), method
            assert numbers == pytest.approx(expected[method][1], rel=1e-6, abs=1e-8), method
            assert max(map(abs, numbers)) > 1e-3
