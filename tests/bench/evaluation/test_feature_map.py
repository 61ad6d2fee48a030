import warnings

import numpy as np
import pytest

from camp.bench.evaluation.feature_map import fit_plane


def test_plane_is_spanned_by_the_largest_eigenvectors() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 5)) * [1, 6, 1, 3, 0.5] + 7
    plane = fit_plane(features)
    values, vectors = np.linalg.eigh(np.cov(features.T))
    for axis, vector in zip(plane.axes, vectors[:, np.argsort(-values)[:2]].T):
        assert abs(axis @ vector) == pytest.approx(1)
        assert axis[np.abs(axis).argmax()] > 0
    assert plane.project(features).var(axis=0, ddof=1) == pytest.approx(np.sort(values)[::-1][:2])
    assert plane.project(features.mean(axis=0, keepdims=True)) == pytest.approx(np.zeros((1, 2)))


def test_order_of_the_features_does_not_flip_the_map() -> None:
    features = np.random.default_rng(1).normal(size=(50, 8))
    np.testing.assert_allclose(fit_plane(features).axes, fit_plane(features[::-1]).axes, atol=1e-10)


@pytest.mark.parametrize("shape", [(1, 3), (4, 1), (2, 6), (9, 3)])
def test_few_or_flat_features_still_give_two_coordinates(shape: tuple[int, int]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for features in (np.ones(shape), np.random.default_rng(0).normal(size=shape)):
            assert np.isfinite(fit_plane(features).project(features)).all()
