"""The learning rate against torch's own schedules."""

import numpy as np
import pytest
from slow_trainer import reference_rates

from camp.methods.schedules import learning_rate
from camp.methods.settings import Training


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
