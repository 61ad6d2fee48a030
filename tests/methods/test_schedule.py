"""The learning rate against torch's own schedules, and FACIL's patience scheme."""

import numpy as np
import pytest
import torch
from slow_trainer import reference_rates
from torch import nn

from camp.core.errors import CampError
from camp.methods.schedules import PlateauSchedule, StepSchedule, learning_rate, make_schedule
from camp.methods.settings import IncrementalTraining, Training


@pytest.mark.parametrize("steps", [79, 17, 16, 11, 50, 100, 101])
def test_learning_rate_is_the_reference_schedule(steps: int) -> None:
    training = Training()
    expected = reference_rates(training, steps, warmup=100)
    actual = [[learning_rate(training, e, s, steps) for s in range(steps)] for e in range(training.epochs)]
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_learning_rates_are_those_logged_by_the_reference() -> None:
    """CIFAR-100 has 79 steps an epoch, CUB-200 has 17."""
    training = Training()
    assert learning_rate(training, 0, 0, 79) == pytest.approx(1e-11)
    assert learning_rate(training, 99, 0, 79) == pytest.approx(1.99e-6, rel=0.005)
    assert learning_rate(training, 99, 0, 17) == pytest.approx(9.8e-6, rel=0.01)
    assert learning_rate(training, 50, 0, 79) == pytest.approx(5.16e-4, rel=0.002)
    assert learning_rate(training, 50, 0, 17) == pytest.approx(5.79e-4, rel=0.002)


def test_a_short_run_warms_up_for_a_tenth() -> None:
    training = Training(epochs=5)
    expected = reference_rates(training, 4, warmup=2)
    actual = [[learning_rate(training, e, s, 4) for s in range(4)] for e in range(5)]
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize(("epochs", "interval"), [(101, 45), (100, 45), (20, 9), (1, 1)])
def test_steps_are_those_of_torch_and_scale_with_the_epochs(epochs: int, interval: int) -> None:
    schedule = make_schedule(IncrementalTraining(epochs=epochs, schedule="step"))
    assert isinstance(schedule, StepSchedule)
    optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(()))], lr=1e-3)
    torchs = torch.optim.lr_scheduler.StepLR(optimizer, step_size=interval, gamma=0.1)
    for epoch in range(epochs):
        assert schedule.rate(epoch, 3, 7) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        torchs.step()


def facil(losses: list[float], epochs: int, patience: int) -> tuple[list[float], list[float], float]:
    """FACIL's train_loop over a weight that is the number of the epoch: rates, weights before each epoch, the last."""
    rate, best, left = 0.1, float("inf"), patience
    weight = kept = -1.0
    rates, weights = [], []
    for epoch in range(epochs):
        rates.append(rate)
        weights.append(weight)
        weight = float(epoch)
        if losses[epoch] < best:
            best, kept, left = losses[epoch], weight, patience
        else:
            left -= 1
            if left <= 0:
                rate /= 3
                if rate < 1e-4:
                    break
                left, weight = patience, kept
    return rates, weights, kept


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("epochs", "patience"), [(200, 5), (40, 2), (400, 10)])
def test_a_plateau_is_that_of_facil_also_when_resumed(seed: int, epochs: int, patience: int) -> None:
    losses = np.random.default_rng(seed).normal(size=epochs).tolist()
    settings = IncrementalTraining(epochs=epochs, learning_rate=0.1, schedule="plateau", lr_factor=3.0)
    schedule, network = make_schedule(settings), nn.Linear(1, 1, bias=False)
    rates, weights = [], []
    nn.init.constant_(network.weight, -1.0)
    for epoch in range(epochs):
        if schedule.stopped:
            break
        rates.append(schedule.rate(epoch, 0, 1))
        weights.append(network.weight.item())
        nn.init.constant_(network.weight, float(epoch))
        schedule.after_epoch(epoch, losses[epoch], {"tip": network})
        state = {name: value.clone() for name, value in schedule.state().items()}
        schedule = make_schedule(settings)
        schedule.load_state(state)
    expected = facil(losses, epochs, patience)
    assert rates == pytest.approx(expected[0])
    assert weights == expected[1]
    assert network.weight.item() == expected[2]


def test_a_plateau_stops_below_its_smallest_learning_rate() -> None:
    settings = IncrementalTraining(epochs=40, learning_rate=0.1, schedule="plateau", lr_factor=3.0)
    schedule, network = PlateauSchedule(settings), nn.Linear(1, 1)
    epochs = 0
    while not schedule.stopped:
        schedule.after_epoch(epochs, 1.0, {"tip": network})
        epochs += 1
    assert epochs == 1 + 7 * 2  # 0.1 / 3^7 is below 1e-4, and the patience is 2 epochs


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [("lr_factor", 1.0, "above 1"), ("lr_step", 0.0, "above 0"), ("held_out", 1.5, "between 0 and 1")],
)
def test_impossible_schedules_are_refused(option: str, value: float, words: str) -> None:
    with pytest.raises(CampError, match=words):
        IncrementalTraining(**{option: value})
