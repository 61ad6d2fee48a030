"""From the bytes of a picture file to pixels, whatever the file holds.

The content decides, never the name. Everything here is safe to call from many threads at once.
"""

import io

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

IMAGE_SUFFIXES = frozenset(
    {
        ".bmp",
        ".gif",
        ".jfif",
        ".jpe",
        ".jpeg",
        ".jpg",
        ".pbm",
        ".pgm",
        ".png",
        ".pnm",
        ".ppm",
        ".tif",
        ".tiff",
        ".webp",
    }
)
"""File names that are taken for pictures, in lower case."""

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""What is decoded. Formats that run programs (EPS) or wrap others (PSD, ICNS) are left out on purpose."""

MAX_PIXELS = 178_956_970
"""Twice Pillow's own mark for a suspicious picture; above it Pillow refuses as well."""


class BadImage(Exception):
    """A file that cannot be read as a picture; the text is a short reason."""


def decode(data: bytes, max_pixels: int = MAX_PIXELS, at_least: int | None = None) -> Image.Image:
    """The picture in `data` as 8-bit RGB, upright, the first frame if there are several.

    Transparent parts show white paper. A JPEG may come smaller than it is stored, but with neither side
    shorter than `at_least`: its decoder skips the detail, so that a huge photograph costs little.

    >>> decode(b"")
    Traceback (most recent call last):
    camp.data.images.BadImage: the file is empty
    """
    if not data:
        raise BadImage("the file is empty")
    try:
        # `open` reads the header only: the size is known, and refused, before pixels are allocated.
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > max_pixels:
                raise BadImage(
                    f"{image.width} x {image.height} pixels are more than the {max_pixels:,} allowed"
                )
            if at_least is not None and image.format in ("JPEG", "MPO"):
                image.draft(image.mode, (at_least, at_least))
            image.load()
            return rgb(image)
    except UnidentifiedImageError:
        raise BadImage("not a picture in a format that is read here") from None
    except Image.DecompressionBombError as error:
        raise BadImage(str(error)) from None
    except BadImage:
        raise
    except Exception as error:
        # Damaged files reach every corner of the decoders, which answer with nearly every kind of exception.
        raise BadImage(f"damaged or truncated ({error or type(error).__name__})") from error


def rgb(image: Image.Image) -> Image.Image:
    """A picture in any mode as 8-bit RGB, upright; transparent parts show white paper."""
    return _rgb(_upright(image))


def resized(image: Image.Image, resolution: int) -> np.ndarray:
    """Pixels (R, R, 3) uint8 by bicubic interpolation; the aspect ratio is not kept, as in the reference."""
    if image.size != (resolution, resolution):
        image = image.resize((resolution, resolution), Image.Resampling.BICUBIC)
    return np.array(image, dtype=np.uint8)


def _upright(image: Image.Image) -> Image.Image:
    """Turned the way the camera was held; metadata that cannot be read are no reason to lose a picture."""
    try:
        return ImageOps.exif_transpose(image)
    except Exception:
        return image


def _rgb(image: Image.Image) -> Image.Image:
    """Any mode as 8-bit RGB."""
    if image.mode.startswith(("I", "F")):
        return Image.fromarray(_eight_bits(np.asarray(image))).convert("RGB")
    if image.has_transparency_data:
        paper = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(paper, image.convert("RGBA")).convert("RGB")
    # `convert` copies: what is returned holds on to neither the file nor its metadata.
    return image.convert("RGB")


def _eight_bits(values: np.ndarray) -> np.ndarray:
    """Greys (H, W) deeper than 8 bits on 0..255.

    16 bits are scaled by their full range. Wider integers and floats have no agreed white, so the darkest
    value of the picture becomes 0 and the brightest 255.
    """
    sixteen = values.dtype.kind in "iu" and values.min() >= 0 and values.max() <= 65_535
    grey = np.where(np.isfinite(values), values, 0).astype(np.float64)
    if sixteen:
        return np.rint(grey / 257).astype(np.uint8)
    low, high = grey.min(), grey.max()
    return np.rint((grey - low) * (255 / (high - low or 1.0))).astype(np.uint8)
