"""The ramp-up against its equation."""

import math

import pytest

from camp.nn.losses import rampup


@pytest.mark.parametrize("length", [1, 5, 7.5])
def test_rampup_is_its_equation(length: float) -> None:
    for epoch in range(12):
        expected = math.exp(-5 * (1 - min(epoch, length) / length) ** 2)
        assert rampup(epoch, length) == pytest.approx(expected, rel=1e-12)


def test_no_ramp_is_the_full_weight_at_once() -> None:
    assert rampup(0, 0) == 1


def test_negative_epochs_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        rampup(-1, 5)
    with pytest.raises(ValueError, match="negative"):
        rampup(0, -5)
