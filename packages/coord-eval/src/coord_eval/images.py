"""The one image decoder: a file goes in, upright 8-bit RGB comes out, the same for training, prediction and reports.

| stored as | what comes out |
|---|---|
| EXIF orientation | the upright image; width and height of a record are those after it |
| 16 bits a pixel | divided by 257, so that 65535 becomes 255; never clipped |
| 32-bit integers, floats | as they are within 0..255, times 255 within 0..1, else stretched from minimum to maximum |
| alpha, or a transparent colour | laid over white |
| palette, grey, CMYK, YCbCr, Lab | converted to RGB |
| animation | its first frame |

Only formats that Pillow decodes itself are opened, up to `MAX_PIXELS` pixels: a file of some kilobytes can claim any
number of them. Pillow is imported with the first image (`pip install coord-eval[report]`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS = 178_956_970
"""Largest image that is decoded: half a gigabyte as RGB, where Pillow, too, calls it a bomb."""

_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "JPEG2000", "AVIF", "TGA")
_ORIENTATION = 0x0112
_TURNED = range(5, 9)


class ImageError(ValueError):
    """An image that cannot be decoded; the message says why and does not name the file."""


@dataclass(frozen=True)
class ImageFacts:
    """What the header of an image says.

    Attributes:
        size: width and height in pixels, upright.
        stored_size: width and height before the EXIF orientation is applied.
        notes: what decoding does to it that is worth counting.
    """

    size: tuple[int, int]
    stored_size: tuple[int, int]
    notes: tuple[str, ...] = ()


def image_facts(path: str | os.PathLike[str], *, max_pixels: int = MAX_PIXELS) -> ImageFacts:
    """Read the header of an image; no pixel is decoded.

    Args:
        path: the file.
        max_pixels: refuse larger images.

    Raises:
        ImageError: if there is no image that can be decoded.
    """
    plain = _plain_jpeg_size(path)
    if plain is not None and plain[0] * plain[1] <= max_pixels:
        return ImageFacts(plain, plain)
    with _opened(path, max_pixels) as stored:
        turned = stored.getexif().get(_ORIENTATION, 1)
        notes = []
        if turned in range(2, 9):
            notes.append("images turned upright as their EXIF orientation says")
        if stored.format != "MPO" and getattr(stored, "n_frames", 1) > 1:
            notes.append("animated images or several pages in a file, of which the first is used")
        if stored.mode[:1] in "IF":
            notes.append("images of more than 8 bits, scaled to 8")
        if stored.has_transparency_data:
            notes.append("images with transparency, laid over white")
        width, height = _stored_size(stored)
        size = (height, width) if turned in _TURNED else (width, height)
        return ImageFacts(size, (width, height), tuple(notes))


def _stored_size(image: Image.Image) -> tuple[int, int]:
    """Return width and height before the EXIF orientation is applied; recent Pillow turns those of a TIFF itself."""
    from PIL.TiffImagePlugin import IMAGELENGTH, IMAGEWIDTH, TiffImageFile

    if isinstance(image, TiffImageFile):
        return image.tag_v2[IMAGEWIDTH], image.tag_v2[IMAGELENGTH]
    return image.size


_SKIPPED = {0xDB, 0xC4, 0xDD, 0xFE, 0xE0}
"""Segments of a JPEG that say nothing about size or orientation: tables, restart interval, comment, JFIF."""


def _plain_jpeg_size(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """Return width and height of a grey or colour JPEG that has no EXIF nor anything else unusual; else None.

    Most photographs of large sets are such files. Pillow takes ten times as long for them, since it reads all tables.
    """
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - see `_opened`
            head = file.read(4096)
    except (OSError, ValueError):
        return None
    if head[:3] != b"\xff\xd8\xff":
        return None
    place, size = 2, None
    while place + 10 <= len(head) and head[place] == 0xFF:
        marker, length = head[place + 1], int.from_bytes(head[place + 2 : place + 4], "big")
        if marker == 0xDA:
            return size if place + 2 + length <= len(head) else None
        if marker in (0xC0, 0xC1, 0xC2):
            height, width = (int.from_bytes(head[place + at : place + at + 2], "big") for at in (5, 7))
            if size or head[place + 4] != 8 or head[place + 9] not in (1, 3) or not (width and height):
                return None
            size = (width, height)
        elif marker not in _SKIPPED or length < 2:
            return None
        place += 2 + length
    return None


def decode_image(
    path: str | os.PathLike[str], *, max_pixels: int = MAX_PIXELS, at_most: tuple[int, int] | None = None
) -> Image.Image:
    """Return an image upright, as 8-bit RGB.

    Args:
        path: the file.
        max_pixels: refuse larger images; with `at_most` the reduced size counts.
        at_most: a JPEG may be decoded at a reduced size that is not below this width and height.

    Raises:
        ImageError: if there is no image that can be decoded.
    """
    from PIL import ImageOps

    with _opened(path, max_pixels, at_most) as stored:
        return to_rgb(ImageOps.exif_transpose(stored))


def to_rgb(image: Image.Image) -> Image.Image:
    """Return an image as 8-bit RGB, by the table above.

    Example:
        >>> from PIL import Image
        >>> to_rgb(Image.new("RGBA", (1, 1), (0, 0, 0, 0))).getpixel((0, 0))
        (255, 255, 255)
    """
    from PIL import Image

    if image.mode[:1] in "IF":
        image = Image.fromarray(_to_8_bits(np.asarray(image), image.mode))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255, 255)), image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _to_8_bits(pixels: np.ndarray, mode: str) -> np.ndarray:
    values = np.nan_to_num(pixels.astype(np.float64), posinf=0.0, neginf=0.0)
    low, high = values.min(initial=0.0), values.max(initial=0.0)
    if mode.startswith("I;16") or (mode == "I" and 255 < high <= 65535 and low >= 0):
        values = values / 257
    elif low < 0 or high > 255:
        low = values.min()
        values = (values - low) * (255 / max(high - low, 1e-300))
    elif mode == "F" and high <= 1:
        values = values * 255
    return np.rint(values).astype(np.uint8)


@cache
def _formats() -> tuple[str, ...]:
    """Return the names of the formats that this Pillow can open."""
    from PIL import Image

    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


@contextmanager
def _opened(
    path: str | os.PathLike[str], max_pixels: int, at_most: tuple[int, int] | None = None
) -> Iterator[Image.Image]:
    """Open an image whose number of pixels is allowed; what decoders raise inside becomes an `ImageError`."""
    from PIL import Image, UnidentifiedImageError

    # Of os.path: large sets open a million files, and a Path costs as much as the file and raises for a long name.
    if not os.path.isfile(path):  # noqa: PTH113
        raise ImageError("is no file" if os.path.exists(path) else "the file does not exist")  # noqa: PTH110
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # looked at below
            with Image.open(path, formats=_formats()) as stored:
                if at_most is not None:
                    turned = stored.getexif().get(_ORIENTATION, 1) in _TURNED
                    stored.draft("RGB", at_most[::-1] if turned else at_most)
                width, height = stored.size
                if width * height > max_pixels:
                    raise ImageError(f"{width} x {height} pixels are too many")
                yield stored
    except Image.DecompressionBombError:
        raise ImageError("too many pixels") from None
    except ImageError:
        raise
    except UnidentifiedImageError:
        if not os.path.getsize(path):  # noqa: PTH202
            raise ImageError("the file is empty") from None
        raise ImageError(f"cannot be decoded (expected {', '.join(_formats())}; convert other kinds)") from None
    except (OSError, ValueError, SyntaxError, EOFError, MemoryError) as error:  # what decoders raise
        reason = (getattr(error, "strerror", None) or str(error)).replace(str(path), "the file")
        raise ImageError(f"cannot be decoded ({reason[:80] or type(error).__name__})") from error
