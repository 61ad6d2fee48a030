import numpy as np
import pytest
from PIL import Image

from camp.app.inputs.arrays import ImageReader, read_labels, unique_digests
from camp.app.inputs.base import InputError
from camp.core.errors import CampError

RGB = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)


def decoded(image) -> np.ndarray:
    reader = ImageReader([image])
    return np.asarray(reader.decode(reader.read("0")))


def test_arrays_and_images_come_back_as_they_are(tmp_path):
    grey = np.repeat(RGB[:, :, :1], 3, axis=2)
    np.testing.assert_array_equal(decoded(RGB), RGB)
    np.testing.assert_array_equal(decoded(RGB[::-1, ::2]), RGB[::-1, ::2])
    np.testing.assert_array_equal(decoded(RGB[:, :, 0]), grey)
    np.testing.assert_array_equal(decoded(RGB[:, :, :1]), grey)
    np.testing.assert_array_equal(decoded(Image.fromarray(RGB)), RGB)
    np.testing.assert_array_equal(decoded(Image.fromarray(RGB[:, :, 0])), grey)
    Image.fromarray(RGB).save(tmp_path / "a.png")
    for path in (tmp_path / "a.png", str(tmp_path / "a.png")):
        np.testing.assert_array_equal(decoded(path), RGB)


def test_transparency_and_the_way_the_camera_was_held_are_seen_to(tmp_path):
    clear = Image.new("RGBA", (2, 2), (0, 0, 0, 0))
    assert (decoded(clear) == 255).all()
    turned = Image.fromarray(RGB)
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(tmp_path / "a.png", exif=exif)
    with Image.open(tmp_path / "a.png") as image:
        np.testing.assert_array_equal(decoded(image), decoded(tmp_path / "a.png"))
        assert decoded(image).shape == (5, 4, 3)


def test_names_of_pictures(tmp_path):
    reader = ImageReader([tmp_path / "a.png", RGB, "b\udcff.png"])
    assert [reader.file(key) for key in reader.keys] == [str(tmp_path / "a.png"), "image 1", "b�.png"]


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        ("heron.png", "A str is not a list"),
        (Image.fromarray(RGB), "A Image is not a list"),
        (7, "A int is not a list"),
        (RGB, r"is one image; give a list of images, \[image\]"),
        (RGB[:, :, 0], "is one image"),
        (np.zeros((1, 2, 3, 3, 3), np.uint8), "is not a sequence of images"),
        ([], "no images; give at least one"),
        ([RGB, 5], "Image 1 is of the type int"),
        ([RGB.astype(float)], "type float64"),
        (np.zeros((2, 4, 4, 4), np.uint8), r"shape \(4, 4, 4\)"),
        ([np.zeros((0, 4, 3), np.uint8)], "no pixels"),
    ],
)
def test_what_is_no_pictures_is_refused(images, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        ImageReader(images)
    assert isinstance(caught.value, CampError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("labels", "names", "numbers"),
    [
        (None, [None, None, None], False),
        ([-1, None, float("nan")], [None, None, None], False),
        (["a", float("nan"), -1], ["a", None, None], False),
        (np.array([2, -1, 0]), ["2", None, "0"], True),
        (np.array([2.0, np.nan, -1.0]), ["2", None, None], True),
        (np.array(["-1", "nan", "7"]), ["-1", "nan", "7"], False),
        ([True, np.int8(3), np.float32(4)], ["1", "3", "4"], True),
        (np.array([[1], [2], [3]])[:, 0], ["1", "2", "3"], True),
    ],
)
def test_labels(labels, names, numbers):
    assert read_labels(labels, 3) == (names, numbers)


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ([1, 2], "2 labels for 3 images"),
        (["a", 1, 2], "Some labels are names"),
        ([0.5, 1, 2], "Unknown label type: 0.5"),
        ([np.inf, 1, 2], "Unknown label type"),
        ([b"a", b"b", None], "Unknown label type"),
        ([-2, 1, 2], "-2 is negative"),
        ([" a", "b", "c"], "would be called 'a'"),
        (["a\u200b", "b", "c"], "would be called 'a'"),
        (["unknown", "b", "c"], "meaning of their own"),
        ([[1, 2], [1, 2], [1, 2]], "1d array"),
    ],
)
def test_what_is_no_labels_is_refused(labels, sentence):
    with pytest.raises((CampError, ValueError), match=sentence):
        read_labels(labels, 3)


def test_every_row_has_a_fingerprint_of_its_own():
    a, b = np.full(16, 1, np.uint8), np.full(16, 2, np.uint8)
    first = unique_digests(np.stack([a, b, a, a]), np.empty((0, 16), np.uint8), 0)
    assert np.array_equal(first[:2], [a, b])
    assert len(np.unique(first, axis=0)) == 4
    second = unique_digests(np.stack([a, b]), first, 1)
    assert len(np.unique(np.concatenate([first, second]), axis=0)) == 6
