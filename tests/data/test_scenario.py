"""Scenarios: the presets, and contradictions."""

import pytest

from camp.core.errors import CampError
from camp.data.datasets import DATASETS
from camp.data.scenario import SCENARIO_PRESETS, Scenario, make_scenario


def test_presets_are_scenarios_of_every_data_set():
    for dataset in DATASETS:
        for preset in SCENARIO_PRESETS:
            assert isinstance(make_scenario(dataset, preset), Scenario)
    with pytest.raises(
        CampError, match="no scenario 'cl'; known are gccd, cil, ssl-cl, semi-cl, gcd, igcd, cgcd"
    ):
        make_scenario("cub200", "cl")
    with pytest.raises(CampError, match="no setting 'task'"):
        make_scenario("cub200", task=2)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tasks": 0}, "at least one task"),
        ({"novel_fraction": 1.5}, "novel_fraction must lie in 0..1"),
        ({"labelled_fraction": -0.1}, "labelled_fraction must lie in 0..1"),
        ({"labelled_fraction": 0.0}, "Known classes need labels"),
        (
            {"labelled_fraction": 0.0, "novel_fraction": 1.0, "first_novel_fraction": 0.0},
            "Known classes need",
        ),
        ({"labelling": "half"}, "labelling must be one of bernoulli, exact"),
        ({"order": "random"}, "order must be one of paper, seed, given"),
        ({"images_per_class": 0}, "images_per_class must be at least 1"),
        ({"imbalance": 0.5}, "at least 1, not 0.5"),
        ({"imbalance": "much"}, 'a ratio or "random"'),
        ({"test_per_class": 0}, "test_per_class must be at least 1"),
        ({"first_fraction": 1.0}, "first_fraction must lie between 0 and 1"),
        ({"recurring_fraction": 1.0}, "below 1"),
        ({"tasks": 1, "reveal": True}, "reveal concerns later tasks"),
        ({"tasks": 1, "recurring_fraction": 0.2}, "recurring_fraction concerns later tasks"),
        ({"tasks": 1, "first_fraction": 0.2}, "first_fraction concerns later tasks"),
    ],
)
def test_contradictions_are_refused(settings, sentence):
    with pytest.raises(CampError, match=sentence):
        Scenario(**settings)
