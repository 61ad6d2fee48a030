"""What is special about GM: growing by pairs, and merging with the tip of the task before."""

from pathlib import Path

import pytest
import torch
from small_streams import KINDS, QUIET, Stream, small_settings, stream
from torch import Tensor

from camp.core.errors import CampError
from camp.methods.gccd.centroid_method import CentroidMethod
from camp.methods.gccd.gm import GmObjective
from camp.methods.gccd.settings import GmSettings
from camp.nn.losses import cross_entropy, mutual_neighbours, pairwise, simclr


@pytest.fixture(scope="module", params=KINDS)
def here(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return stream(request.param, tmp_path_factory.mktemp("stream"))


def tip_of(method: CentroidMethod) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in method.tip.state_dict().items()}


def branches(here: Stream, merge: float) -> tuple[CentroidMethod, dict[str, Tensor], dict[str, Tensor]]:
    """A method after two tasks, its static branch (after the first) and its dynamic one (before merging)."""
    method = here.build("gm", merge=merge, n_init=20)
    assert isinstance(method, CentroidMethod)
    found = []
    for task, _ in here.tasks:
        method.start_task(task, QUIET)
        for epoch in range(method.epochs):
            method.train_epoch(epoch)
        found.append(tip_of(method))
        method.finish_task(QUIET)
        if task.index == 0:  # there is nothing to merge with
            assert all(torch.equal(value, found[0][name]) for name, value in tip_of(method).items())
    return method, found[0], found[1]


@pytest.mark.parametrize("merge", [0.0, 0.3, 1.0])
def test_merging_is_the_average_of_both_branches(here: Stream, merge: float) -> None:
    method, static, dynamic = branches(here, merge)
    assert any(not torch.equal(static[name], dynamic[name]) for name in static)
    for name, value in tip_of(method).items():
        if not value.is_floating_point():
            assert torch.equal(value, dynamic[name])
            continue
        torch.testing.assert_close(value, merge * static[name] + (1 - merge) * dynamic[name])


def test_by_default_all_tasks_count_alike(tmp_path: Path) -> None:
    """After three tasks the tip is the mean of what each of them made of it."""
    here = stream(
        "vectors", tmp_path, [{0: (5, 4), 1: (0, 6)}, {2: (5, 4), 3: (0, 6)}, {4: (5, 4), 5: (0, 6)}]
    )
    method = here.build("gm")
    grown = []
    for task, _ in here.tasks:
        method.start_task(task, QUIET)
        method.train_epoch(0)
        grown.append(tip_of(method))
        method.finish_task(QUIET)
    for name, value in tip_of(method).items():
        torch.testing.assert_close(value, sum(tip[name] for tip in grown) / 3)


def test_categories_are_found_in_the_merged_space(here: Stream) -> None:
    """Centroids of the second task are means of what the merged tip makes of its images."""
    method, _, _ = branches(here, 0.5)
    task = here.tasks[1][0]
    z, assigned = method.features(task.views.clean(torch.arange(len(task)))), method.assigned()
    assert method.centroids is not None
    for position in assigned.unique().tolist():
        expected = z[assigned == position].mean(dim=0)
        torch.testing.assert_close(method.centroids[position], expected, rtol=1e-4, atol=1e-4)


def test_growing_is_its_equation() -> None:
    settings = GmSettings(projector_width=8, neighbours=2, beta=0.2)
    objective = GmObjective(settings, 6, 5, torch.Generator().manual_seed(0))
    z = torch.randn(2, 9, 6, generator=torch.Generator().manual_seed(1))
    own, labels = 6, torch.tensor([0, 2, 2])
    terms = objective(z, own, labels, 0)
    logits = objective.prototypes(z)
    l_simclr = simclr(objective.projector(z[:, :own]), 1.0)
    l_pairs = pairwise(logits[:, :own], mutual_neighbours(z[0, :own], 2))
    l_ce = cross_entropy(logits[:, own:], labels)
    torch.testing.assert_close(terms["loss"], 0.8 * (l_simclr + l_pairs) + 0.2 * l_ce)


def test_pairs_bring_neighbours_together() -> None:
    """Two knots of images, and the head alone learns to put each into a category of its own."""
    draw = torch.Generator().manual_seed(0)
    knots = torch.tensor([[4.0, 0.0, 0.0], [0.0, 4.0, 0.0]]).repeat_interleave(6, dim=0)
    z = knots + 0.1 * torch.randn(2, 12, 3, generator=draw)
    objective = GmObjective(GmSettings(projector_width=4), 3, 4, draw)
    optimizer = torch.optim.Adam(objective.prototypes.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        objective(z, 12, torch.empty(0, dtype=torch.long), 0)["pairs"].backward()
        optimizer.step()
    chosen = objective.prototypes(z[0]).argmax(dim=1)
    assert len(chosen[:6].unique()) == len(chosen[6:].unique()) == 1
    assert chosen[0] != chosen[6]


@pytest.mark.parametrize(
    "wrong",
    [{"merge": 1.5}, {"alpha": -0.1}, {"beta": 2.0}, {"neighbours": 0}, {"simclr_temperature": 0.0}, {"exemplars": -1}],
)  # fmt: skip
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(CampError):
        small_settings("gm", **wrong)
