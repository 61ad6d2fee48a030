"""Side branches: parallel to 3 x 3 convolutions in training, merged into them afterwards."""

import copy

import pytest
import torch
from torch import Tensor, nn

from camp.core.errors import CampError
from camp.core.seeds import generator
from camp.nn.backbones.conv_tiny import ConvTiny
from camp.nn.backbones.resnet import ResNet18
from camp.nn.backbones.side_branches import BranchedConv, SideBranches

NETWORKS = {
    "resnet18": lambda: ResNet18(8, 8, generator(0, "network")),
    "conv-tiny": lambda: ConvTiny(generator(0, "network")),
}
CONVOLUTIONS = {"resnet18": 17, "conv-tiny": 3}
"""Of 3 x 3: two in each of eight blocks and the stem."""


def pixels(count: int = 5) -> dict[str, Tensor]:
    return {"pixels": torch.randn(count, 3, 8, 8, generator=generator(0, "pixels"))}


def used(name: str) -> nn.Module:
    """A network whose batch norms have seen images."""
    network = NETWORKS[name]().train()
    for _ in range(3):
        network(pixels())
    return network


def grown(name: str) -> tuple[nn.Module, SideBranches, dict[str, Tensor]]:
    """A network whose branches have learned something, with the branches by the name of their convolution."""
    network = used(name)
    branches = SideBranches(network)
    sides: dict[str, Tensor] = {
        part: m.side for part, m in network.named_modules() if isinstance(m, BranchedConv)
    }
    with torch.no_grad():
        for part, side in sides.items():
            side.normal_(std=0.1, generator=generator(0, part))
    return network, branches, sides


every_network = pytest.mark.parametrize("name", NETWORKS)


@every_network
def test_a_network_with_new_branches_gives_the_same(name: str) -> None:
    network = used(name).eval()
    before = network(pixels())
    SideBranches(network)
    assert torch.equal(network(pixels()), before)


@every_network
def test_folded_branches_give_the_same(name: str) -> None:
    network, branches, sides = grown(name)
    plain = used(name).eval()(pixels())
    with_branches = network(pixels()).detach()
    assert len(sides) == CONVOLUTIONS[name]
    assert not torch.allclose(with_branches, plain, rtol=0.1)
    branches.fold()
    network.eval()
    torch.testing.assert_close(network(pixels()).detach(), with_branches, rtol=1e-4, atol=1e-5)


@every_network
def test_a_branch_is_added_to_the_middle_of_its_kernel(name: str) -> None:
    before = used(name).state_dict()
    network, branches, sides = grown(name)
    branches.fold()
    after = network.state_dict()
    assert list(after) == list(before)
    for key, value in before.items():
        expected = value.clone()
        if (side := sides.get(key.removesuffix(".weight"))) is not None:
            expected[:, :, 1, 1] += side[:, :, 0, 0].detach()
        assert torch.equal(after[key], expected), key


@every_network
def test_only_branches_are_trained(name: str) -> None:
    network = used(name)
    SideBranches(network)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    trained = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1)
    network.train()
    network(pixels()).square().sum().backward()
    optimizer.step()
    changed = {key for key, value in network.state_dict().items() if not torch.equal(value, before[key])}
    assert changed == {key for key in before if key.endswith(".side")}
    assert len(trained) == len(changed) == CONVOLUTIONS[name]


def test_training_and_evaluation_are_the_same_with_branches() -> None:
    network, _, _ = grown("resnet18")
    network.train()
    in_training = network(pixels())
    network.eval()
    assert torch.equal(network(pixels()), in_training)


def test_a_folded_network_is_trained_like_any_other() -> None:
    network, branches, _ = grown("resnet18")
    branches.fold()
    assert all(parameter.requires_grad for parameter in network.parameters())
    mean = network.stem[1].running_mean.clone()  # type: ignore[index,union-attr]
    network.train()
    network(pixels())
    assert not torch.equal(network.stem[1].running_mean, mean)  # type: ignore[index,union-attr]


def test_what_was_frozen_stays_frozen() -> None:
    network = used("conv-tiny")
    network.out.requires_grad_(False)
    before = [parameter.requires_grad for parameter in network.parameters()]
    SideBranches(network).fold()
    assert [parameter.requires_grad for parameter in network.parameters()] == before


def test_a_copy_made_before_has_no_branches() -> None:
    network = used("resnet18")
    old = copy.deepcopy(network)
    SideBranches(network)
    assert not any(isinstance(module, BranchedConv) for module in old.modules())


@pytest.mark.parametrize(("stride", "groups"), [(1, 1), (2, 1), (2, 2)])
def test_a_branch_sees_what_its_convolution_sees(stride: int, groups: int) -> None:
    """y_o(i, j) = sum_c V_oc x_c(stride i, stride j) beside a convolution that gives 0."""
    main = nn.Conv2d(4, 6, 3, stride, 1, groups=groups)
    branched = BranchedConv(main)
    with torch.no_grad():
        main.weight.zero_()
        main.bias.zero_()  # type: ignore[union-attr]
        branched.side.normal_(generator=generator(0, "side"))
    x = torch.randn(2, 4, 6, 6, generator=generator(0, "x"))
    y = branched(x)
    per_group = 4 // groups
    for o in range(6):
        first = o // (6 // groups) * per_group
        expected = sum(
            branched.side[o, c, 0, 0] * x[:, first + c, ::stride, ::stride] for c in range(per_group)
        )
        torch.testing.assert_close(y[:, o], expected)


def test_a_network_without_such_convolutions_is_refused() -> None:
    with pytest.raises(CampError, match="3 x 3 convolutions, and this network has none"):
        SideBranches(nn.Sequential(nn.Conv2d(3, 4, 1), nn.Linear(4, 4)))
