import numpy as np

from camp.bench.evaluation.upper_bound import nearest_mean, true_means


def test_means_and_nearest_by_loops() -> None:
    rng = np.random.default_rng(0)
    features, classes = rng.normal(size=(60, 4)).astype(np.float32), rng.choice([2, 5, 9], 60)
    present, means = true_means(features, classes)
    assert present.tolist() == [2, 5, 9]
    for number, mean in zip(present, means):
        np.testing.assert_allclose(mean, features[classes == number].mean(axis=0), rtol=1e-5, atol=1e-6)
    expected = [present[np.argmin([((x - mean) ** 2).sum() for mean in means])] for x in features]
    assert nearest_mean(features, means, present).tolist() == expected


def test_no_pictures() -> None:
    assert nearest_mean(np.empty((0, 2)), np.zeros((1, 2)), np.array([3])).shape == (0,)
