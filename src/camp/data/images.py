"""Decode image files to RGB pixels.

The format is recognised by the content of a file, not by its name. All functions are thread-safe.
"""

import contextlib
import hashlib
import io

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

IMAGE_SUFFIXES = frozenset(
    {".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm"}
    | {".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"}
)
"""Suffixes of image files, in lower case."""

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""Supported formats; those that run programs (EPS) or wrap others (PSD, ICNS) are left out."""

MAX_PIXELS = 178_956_970
"""Largest image that is decoded: twice Pillow's warning limit, above which Pillow raises an error as well."""

DIGEST_BYTES = 16


class UnreadableImageError(Exception):
    """A file that cannot be read as an image; the message is a short reason."""


def image_digest(data: bytes) -> bytes:
    """Return the digest that identifies an image by its bytes."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def decode_image(data: bytes, max_pixels: int = MAX_PIXELS, min_size: int | None = None) -> Image.Image:
    """Decode `data` to 8-bit RGB: upright, the first frame, transparent parts on white.

    Args:
        data: Content of an image file.
        max_pixels: Larger images are refused before memory is allocated for them.
        min_size: A JPEG may be decoded at a fraction of its size, which is much faster for large
            photographs, as long as neither side becomes shorter than this.

    >>> decode_image(b"")
    Traceback (most recent call last):
    camp.data.images.UnreadableImageError: the file is empty
    """
    if not data:
        raise UnreadableImageError("the file is empty")
    try:
        # `open` reads the header only: the size is known, and refused, before pixels are allocated.
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > max_pixels:
                raise UnreadableImageError(
                    f"{image.width} x {image.height} pixels are more than the {max_pixels:,} allowed"
                )
            if min_size is not None and image.format in ("JPEG", "MPO"):
                image.draft(image.mode, (min_size, min_size))
            image.load()
            return to_rgb(image)
    except UnidentifiedImageError:
        raise UnreadableImageError("not an image in a supported format") from None
    except Image.DecompressionBombError as error:
        raise UnreadableImageError(str(error)) from None
    except UnreadableImageError:
        raise
    except Exception as error:
        # Damaged files make the decoders raise nearly every exception.
        raise UnreadableImageError(f"damaged or truncated ({error or type(error).__name__})") from error


def number_of_pixels(data: bytes) -> int:
    """Return the size of an image without decoding it; 0 if it is not known."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            return image.width * image.height
    except Exception:  # `decode_image` says what is wrong
        return 0


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image of any mode to 8-bit RGB: upright, transparent parts on white."""
    # Metadata that cannot be read are ignored.
    with contextlib.suppress(Exception):
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):
        return Image.fromarray(_to_eight_bits(np.asarray(image))).convert("RGB")
    if image.has_transparency_data:
        background = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(background, image.convert("RGBA")).convert("RGB")
    # `convert` copies, so the result refers to neither the file nor its metadata.
    return image.convert("RGB")


def resize_image(image: Image.Image, resolution: int) -> np.ndarray:
    """Resize to pixels (R, R, 3) uint8 by bicubic interpolation, without keeping the aspect ratio."""
    if image.size != (resolution, resolution):
        image = image.resize((resolution, resolution), Image.Resampling.BICUBIC)
    return np.array(image, dtype=np.uint8)


def _to_eight_bits(values: np.ndarray) -> np.ndarray:
    """Scale grey levels (H, W) of more than 8 bits to 0..255.

    16-bit values are scaled by their full range. Wider integers and floats have no defined white,
    so the darkest value of the image becomes 0 and the brightest 255.
    """
    sixteen = values.dtype.kind in "iu" and values.min() >= 0 and values.max() <= 65_535
    grey = np.where(np.isfinite(values), values, 0).astype(np.float64)
    if sixteen:
        return np.rint(grey / 257).astype(np.uint8)
    low, high = grey.min(), grey.max()
    scaled: np.ndarray = np.rint((grey - low) * (255 / (high - low or 1.0))).astype(np.uint8)
    return scaled
