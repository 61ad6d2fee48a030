"""Decoding of all kinds of image files, and of damaged ones."""

import contextlib
import io
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from camp.data.images import UnreadableImageError, decode_image, resize_image


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pixel(data: bytes, x: int = 0, y: int = 0) -> tuple[int, ...]:
    image = decode_image(data)
    assert image.mode == "RGB"
    return image.getpixel((x, y))


def gradient(width: int = 16, height: int = 8) -> Image.Image:
    across = np.linspace(0, 255, width, dtype=np.uint8)
    rows = np.broadcast_to(across, (height, width))
    return Image.fromarray(np.stack([rows, rows // 2, 255 - rows], axis=-1))


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_lossless_images_keep_their_pixels(kind):
    assert np.array_equal(np.asarray(decode_image(encoded(gradient(), kind))), np.asarray(gradient()))


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_lossy_images_keep_about_their_pixels(kind):
    got = np.asarray(decode_image(encoded(gradient(), kind, quality=95))).astype(int)
    assert np.abs(got - np.asarray(gradient())).mean() < 6


@pytest.mark.parametrize("data", [b"", b"no image at all", b"\x00" * 500, b"%PDF-1.7\n" + b"x" * 100])
def test_what_is_no_image_is_refused(data):
    with pytest.raises(UnreadableImageError):
        decode_image(data)


def test_postscript_is_refused():
    with pytest.raises(UnreadableImageError, match="format"):
        decode_image(encoded(gradient(), "EPS"))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP"])
@pytest.mark.parametrize("share", [0.2, 0.6])
def test_truncated_files_are_refused(kind, share):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    data = encoded(noise, kind)
    with pytest.raises(UnreadableImageError):
        decode_image(data[: int(len(data) * share)])


@pytest.mark.filterwarnings("ignore")
def test_no_damage_escapes_as_another_exception():
    draws = np.random.default_rng(1)
    for kind in ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM"):
        data = encoded(gradient(), kind)
        for _ in range(60):
            broken = bytearray(data)
            for place in draws.integers(0, len(broken), 4):
                broken[place] = draws.integers(0, 256)
            with contextlib.suppress(UnreadableImageError):
                assert decode_image(bytes(broken), max_pixels=10**6).mode == "RGB"


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds next to nothing."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\x00" * 100)) + chunk(b"IEND", b"")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    ("size", "limit"),
    [((50_000, 50_000), 178_956_970), ((200_000, 1_000), 178_956_970), ((10_000, 10_000), 10**7)],
)
def test_a_decompression_bomb_is_refused_from_its_header(size, limit, monkeypatch):
    def allocate(*_: object) -> None:
        raise AssertionError("pixels were asked for")

    monkeypatch.setattr(Image.core, "new", allocate)
    monkeypatch.setattr(Image.core, "fill", allocate)
    with pytest.raises(UnreadableImageError, match=r"exceeds limit|are more than"):
        decode_image(png_header(*size), limit)


def test_the_limit_on_pixels_can_be_lower():
    data = encoded(gradient(16, 8), "PNG")
    assert decode_image(data, max_pixels=128).size == (16, 8)
    with pytest.raises(UnreadableImageError, match="16 x 8 pixels are more than the 127 allowed"):
        decode_image(data, max_pixels=127)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_images_are_turned_upright(kind, orientation):
    stored = Image.new("RGB", (32, 16), "black")
    stored.paste("white", (0, 0, 16, 8))  # the bright quarter is top left as stored
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = decode_image(encoded(stored, kind, exif=exif))
    # Where the top left of the stored image is once it is shown, by the EXIF standard.
    side, top = {
        1: ("left", "top"),
        2: ("right", "top"),
        3: ("right", "bottom"),
        4: ("left", "bottom"),
        5: ("left", "top"),
        6: ("right", "top"),
        7: ("right", "bottom"),
        8: ("left", "bottom"),
    }[orientation]
    assert image.size == ((32, 16) if orientation <= 4 else (16, 32))
    x = image.width // 4 if side == "left" else 3 * image.width // 4
    y = image.height // 4 if top == "top" else 3 * image.height // 4
    assert min(image.getpixel((x, y))) > 200
    assert max(image.getpixel((image.width - 1 - x, image.height - 1 - y))) < 50


def test_damaged_metadata_are_ignored():
    data = encoded(gradient(), "JPEG", exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff")
    assert decode_image(data).size == (16, 8)


def test_the_first_frame_of_an_animation_is_used():
    red, blue = Image.new("RGB", (8, 8), "red"), Image.new("RGB", (8, 8), "blue")
    for kind in ("GIF", "PNG", "WEBP", "TIFF"):
        options = {"lossless": True} if kind == "WEBP" else {}
        data = encoded(red, kind, save_all=True, append_images=[blue], **options)
        assert pixel(data)[0] > 250
        assert pixel(data)[2] < 5


def test_transparent_parts_become_white():
    clear = Image.new("RGBA", (4, 4), (200, 0, 0, 0))
    half = Image.new("RGBA", (4, 4), (200, 0, 0, 128))
    assert pixel(encoded(clear, "PNG")) == (255, 255, 255)
    assert pixel(encoded(half, "PNG")) == pytest.approx((227, 127, 127), abs=1)
    grey = Image.new("LA", (4, 4), (0, 0))
    assert pixel(encoded(grey, "PNG")) == (255, 255, 255)


def test_a_palette_with_a_transparent_colour_becomes_white():
    image = Image.new("P", (4, 4), 1)
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((0, 0), 0)
    for kind in ("PNG", "GIF"):
        data = encoded(image, kind, transparency=0)
        assert pixel(data) == (255, 255, 255)
        assert pixel(data, 2, 2) == (40, 50, 60)
    data = encoded(image, "PNG", transparency=bytes([0, 128]))  # a degree for each colour
    assert pixel(data, 2, 2) == pytest.approx((147, 152, 157), abs=1)


def test_cmyk_becomes_rgb():
    image = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    for kind in ("JPEG", "TIFF"):
        red, green, blue = pixel(encoded(image, kind))
        assert (red > 230, green < 40, blue < 40) == (True, True, True)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_and_not_clipped(kind):
    values = np.array([[0, 257, 32_896, 65_535]], dtype=np.uint16)
    got = np.asarray(decode_image(encoded(Image.fromarray(values), kind)))[0]
    assert got.tolist() == [[0] * 3, [1] * 3, [128] * 3, [255] * 3]


def test_a_dark_sixteen_bit_image_stays_dark():
    got = decode_image(encoded(Image.fromarray(np.full((4, 4), 2_570, dtype=np.uint16)), "PNG"))
    assert got.getpixel((0, 0)) == (10, 10, 10)


def test_floats_are_scaled_to_their_range():
    values = np.array([[-2.0, 0.0, np.nan, 2.0]], dtype=np.float32)
    got = np.asarray(decode_image(encoded(Image.fromarray(values), "TIFF")))[0, :, 0]
    assert got.tolist() == [0, 128, 128, 255]


@pytest.mark.parametrize("mode", ["1", "L", "P", "YCbCr"])
def test_other_modes_become_rgb(mode):
    kind = "TIFF" if mode == "YCbCr" else "PNG"
    assert pixel(encoded(Image.new("RGB", (8, 8), "white").convert(mode), kind)) == (255, 255, 255)


@pytest.mark.parametrize("min_size", [64, 100, 250, 2_000])
def test_a_large_jpeg_is_decoded_smaller_but_not_below_the_minimum(min_size):
    data = encoded(gradient(1_600, 900), "JPEG", quality=90)
    image = decode_image(data, min_size=min_size)
    assert min(image.size) >= min(min_size, 900)
    if min_size <= 250:
        assert image.width < 1_600
    assert image.width / image.height == pytest.approx(16 / 9, rel=0.02)


def test_only_jpegs_come_smaller():
    assert decode_image(encoded(gradient(400, 300), "PNG"), min_size=50).size == (400, 300)


def test_resized_is_square_and_bicubic():
    image = gradient(40, 20)
    got = resize_image(image, 10)
    assert got.shape == (10, 10, 3)
    assert got.dtype == np.uint8
    assert np.array_equal(got, np.asarray(image.resize((10, 10), Image.Resampling.BICUBIC)))
    same = resize_image(image.resize((10, 10)), 10)
    same[:] = 0  # the pixels are the caller's own


def test_decoding_in_threads_gives_the_same():
    files = [encoded(gradient(20 + n, 30), kind) for n in range(6) for kind in ("PNG", "JPEG", "GIF", "WEBP")]
    alone = [np.asarray(decode_image(data)) for data in files]
    with ThreadPoolExecutor(8) as pool:
        together = [np.asarray(image) for image in pool.map(decode_image, files * 5)]
    for got, want in zip(together, alone * 5):
        assert np.array_equal(got, want)
