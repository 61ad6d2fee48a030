"""The digits that come with scikit-learn."""

import numpy as np
import pytest

from camp.data.datasets import load_dataset


def test_digits():
    digits = load_dataset("digits")
    assert digits.classes == tuple("0123456789")
    assert len(digits) == 1797
    shares = [digits.is_test[digits.labels == label].mean() for label in range(10)]
    assert shares == pytest.approx([0.3] * 10, abs=0.01)
    data = digits.read("0000")
    assert len(data) == 64
    assert max(max(digits.read(key)) for key in digits.keys[:20]) == 255
    image = digits.decode(data)
    assert (image.mode, image.size) == ("RGB", (8, 8))
    assert np.asarray(image)[..., 0].tobytes() == data
    assert np.array_equal(load_dataset("digits").is_test, digits.is_test)
