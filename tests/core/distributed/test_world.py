"""Several processes: what they exchange, and that they compute what one computes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from processes import TORCHRUN, free_port, started, together
from torch import nn

from camp.core import distributed
from camp.nn.backbones.batch_norm import BatchNorm

ALONE = "import json, torch\nfrom camp import world\nfrom camp.core.errors import CampError\n"


def test_alone_there_is_nothing_to_exchange() -> None:
    assert (distributed.rank(), distributed.world_size(), distributed.is_main_process()) == (0, 1, True)
    assert distributed.shard(7) == slice(0, 7)
    x = torch.arange(3.0, requires_grad=True)
    assert distributed.all_gather(x, 3) is x
    assert distributed.all_reduce_sum(x) is x
    assert distributed.broadcast({"a": 1}) == {"a": 1}
    assert distributed.map_sharded(3, lambda rows: rows * 2).tolist() == [0, 2, 4]


def test_exchanges_of_three_processes() -> None:
    script = ALONE + (
        "with distributed.process_group():\n"
        "    n = 7\n"
        "    mine = torch.arange(n)[distributed.shard(n)]\n"
        "    x = mine.float()[:, None].repeat(1, 2).requires_grad_()\n"
        "    whole = distributed.all_gather(x, n)\n"
        "    (whole[:, 0] * torch.arange(n)).sum().backward()\n"
        "    y = torch.tensor([float(distributed.rank())], requires_grad=True)\n"
        "    (distributed.all_reduce_sum(y) * (distributed.rank() + 1)).sum().backward()\n"
        "    tip, head = torch.zeros(2, requires_grad=True), torch.zeros(1, requires_grad=True)\n"
        "    if distributed.rank(): tip.grad = torch.full((2,), float(distributed.rank()))\n"
        "    head.grad = torch.full((1,), 10.0 + distributed.rank())\n"
        "    distributed.reduce_gradients([tip], [head])\n"
        "    few = distributed.map_sharded(2, lambda rows: rows * 3)\n"
        "    told = distributed.broadcast({'from': distributed.rank()}), distributed.broadcast_bytes(bytes([distributed.rank() + 65] * 3)).decode()\n"
        "    print(json.dumps([mine.tolist(), whole[:, 1].tolist(), x.grad[:, 0].tolist(), y.grad.item(),\n"
        "        tip.grad.tolist(), head.grad.item(), few.tolist(), told]))\n"
    )
    said = [json.loads(text) for text in together(script, 3)]
    assert [row for line in said for row in line[0]] == list(range(7))
    for mine, whole, gradient, summed, tip, head, few, told in said:
        assert whole == list(range(7))
        assert gradient == mine  # d/dx_i sum_i i x_i, of the own rows alone
        assert summed == 1 + 2 + 3  # every process goes on with the sum in its own way
        assert tip == [3.0, 3.0]  # 0 (no gradient at all) + 1 + 2
        assert head == 10.0  # the first process's
        assert few == [0, 3]
        assert told == [{"from": 0}, "AAA"]


def test_a_failure_of_one_is_the_failure_of_all() -> None:
    script = ALONE + (
        "with distributed.process_group():\n"
        "    try:\n"
        "        with distributed.synchronized_errors():\n"
        "            if distributed.rank() == 1: raise CampError('No pictures here.')\n"
        "    except CampError as error:\n"
        "        print(type(error).__name__, error)\n"
    )
    assert together(script) == ["ReportedError In process 1: No pictures here.\n"] * 2


def test_a_lost_process_is_told_in_a_sentence() -> None:
    script = ALONE + (
        "import os\n"
        "with distributed.process_group():\n"
        "    if distributed.rank() == 1: os._exit(9)\n"
        "    try:\n"
        "        distributed.broadcast({})\n"
        "        distributed.all_reduce_sum(torch.zeros(1))\n"
        "    except CampError as error:\n"
        "        print(type(error).__name__, error)\n"
    )
    port = free_port()
    running = [started(script, number, 2, port) for number in range(2)]
    said, errors = running[0].communicate(timeout=60)
    running[1].communicate(timeout=60)
    assert said.startswith("LostProcessError Another of the 2 processes that train together has ended"), (
        errors
    )
    assert "--resume" in said


BATCH_NORM = """
import json, torch
from camp.core import distributed
from camp.nn.backbones.batch_norm import BatchNorm
draw = torch.Generator().manual_seed(0)
x = torch.randn(5, 3, 4, 4, generator=draw, dtype=torch.float64) * 3 + 100
target = torch.randn(5, 3, 4, 4, generator=draw, dtype=torch.float64)
norm = BatchNorm(3).double().train()
with distributed.process_group():
    mine = x[distributed.shard(5)].clone().requires_grad_()
    y = distributed.all_gather(norm(mine), 5)
    (y.sin() * target).sum().backward()
    distributed.reduce_gradients(norm.parameters(), [])
    print(json.dumps([y.tolist(), mine.grad.tolist(), norm.weight.grad.tolist(), norm.bias.grad.tolist(),
        norm.running_mean.tolist(), norm.running_var.tolist(), int(norm.num_batches_tracked)]))
"""


def test_batch_norm_sees_the_pictures_of_all_processes() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(5, 3, 4, 4, generator=draw, dtype=torch.float64) * 3 + 100
    target = torch.randn(5, 3, 4, 4, generator=draw, dtype=torch.float64)
    x.requires_grad_()
    norm = nn.BatchNorm2d(3).double().train()
    y = norm(x)
    (y.sin() * target).sum().backward()
    said = [json.loads(text) for text in together(BATCH_NORM, 2)]
    near = {"rtol": 0, "atol": 1e-10}
    gradient = torch.cat([torch.tensor(line[1], dtype=torch.float64) for line in said])
    torch.testing.assert_close(gradient, x.grad, **near)
    for line in said:
        whole, _, *rest = line
        torch.testing.assert_close(torch.tensor(whole, dtype=torch.float64), y.detach(), **near)
        expected = [norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var]
        for ours, torchs in zip(rest, expected):
            torch.testing.assert_close(
                torch.tensor(ours, dtype=torch.float64), torchs, rtol=1e-10, atol=1e-10
            )
        assert rest[-1] == 1


def test_batch_norm_alone_is_torchs() -> None:
    x = torch.randn(4, 2, 3, 3)
    ours, torchs = BatchNorm(2), nn.BatchNorm2d(2)
    assert torch.equal(ours(x), torchs(x))
    assert torch.equal(ours.running_var, torchs.running_var)


def camp(*words: str) -> list[str]:
    return [str(Path(TORCHRUN).parent / "camp"), "run", *words]


SMALL = [
    "--dataset",
    "digits",
    "--setting",
    "cil",
    "--tasks",
    "2",
    "--images-per-class",
    "30",
    "--test-per-class",
    "30",
    "--epochs",
    "3",
    "--batch-size",
    "25",
    "--backbone",
    "conv-tiny",
    "--quiet",
]


def launch(words: list[str], count: int, folder: Path) -> subprocess.CompletedProcess[str]:
    """`camp run` alone, or under torchrun with `count` processes."""
    launcher = [
        str(TORCHRUN),
        "--nproc-per-node",
        str(count),
        "--master-port",
        str(free_port()),
        "--no-python",
    ]
    command = [*(launcher if count > 1 else []), *camp(*words)]
    env = os.environ | {"CAMP_BANKS": str(folder / "banks"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=300)


def accuracies(out: Path) -> list[float]:
    results = json.loads((out / "results.json").read_text())
    return [value for task in results["tasks"] for value in task["agnostic"]["all"]]


def test_two_processes_train_to_the_accuracy_of_one(tmp_path: Path) -> None:
    for count, out in ((1, "one"), (2, "two")):
        done = launch([*SMALL, "--method", "camp", "--projector-width", "64", "--out", out], count, tmp_path)
        assert done.returncode == 0, done.stderr
    one, two = (
        [json.loads(line)["loss"] for line in (tmp_path / out / "metrics.jsonl").read_text().splitlines()]
        for out in ("one", "two")
    )
    assert len(two) == 6  # each line written once
    assert two == pytest.approx(one, rel=0.01)
    assert accuracies(tmp_path / "two") == pytest.approx(accuracies(tmp_path / "one"), abs=0.05)
    assert min(accuracies(tmp_path / "two")[:1]) > 0.5
    assert len(list((tmp_path / "two" / "checkpoint").iterdir())) == 2
    # A finished run is left as it is, also by two processes.
    before = (tmp_path / "two" / "results.json").stat().st_mtime_ns
    assert launch(["--resume", "two", "--quiet"], 2, tmp_path).returncode == 0
    assert (tmp_path / "two" / "results.json").stat().st_mtime_ns == before


def test_a_run_whose_process_dies_says_so_and_goes_on(tmp_path: Path) -> None:
    """Process 1 is killed inside the second task; then two processes go on, to the numbers of an undisturbed run."""
    words = [*SMALL, "--method", "fine-tune", "--out"]
    assert launch([*words, "whole"], 2, tmp_path).returncode == 0
    env = os.environ | {"CAMP_BANKS": str(tmp_path / "banks"), "DIE_IN_EPOCH": "4"}
    command = [str(TORCHRUN), "--nproc-per-node", "2", "--master-port", str(free_port())]
    dying = [*command, str(Path(__file__).parent / "dying.py"), "run", *words, "broken"]
    died = subprocess.run(dying, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert died.returncode != 0
    said = [line for line in died.stderr.splitlines() if line.startswith("camp: ")]
    assert len(said) == 1, died.stderr
    assert said[0].startswith("camp: Another of the 2 processes that train together has ended")
    assert "--resume" in said[0]
    resumed = launch(["--resume", "broken", "--quiet"], 2, tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert accuracies(tmp_path / "broken") == accuracies(tmp_path / "whole")


def test_a_step_of_two_processes_is_that_of_one() -> None:
    """In float64, with batch norms: loss and gradients of the tip and the heads agree to rounding."""
    methods = ["lwf", "ewc", "camp", "pass", "il2a", "ssre"]
    script = str(Path(__file__).parent / "one_step.py")
    text = f"import sys, runpy; sys.argv = ['', *{methods}]; runpy.run_path('{script}', run_name='__main__')"
    env = {name: value for name, value in os.environ.items() if name != "RANK"} | {"OMP_NUM_THREADS": "1"}
    alone = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, timeout=300)
    assert alone.returncode == 0, alone.stderr
    expected = json.loads(alone.stdout)
    for said in together(text):
        for method, (terms, numbers) in json.loads(said).items():
            assert terms == pytest.approx(expected[method][0], rel=1e-6), method
            assert numbers == pytest.approx(expected[method][1], rel=1e-6, abs=1e-8), method
            assert max(map(abs, numbers)) > 1e-3


def test_a_mistake_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "config.json").write_text("{}")
    done = launch([*SMALL, "--method", "fine-tune", "--out", "taken"], 2, tmp_path)
    assert done.returncode != 0
    assert done.stderr.count("taken already holds a run") == 1
    assert (tmp_path / "taken" / "config.json").read_text() == "{}"
