"""Decodes an image file to upright 8-bit RGB, in the same way for training, prediction and reports.

| stored as | decoded to |
|---|---|
| EXIF orientation | the upright image; width and height of a record are those after it |
| 16 bits a pixel | divided by 257, so that 65535 becomes 255; never clipped |
| 16 bits a colour | its higher 8 bits |
| 32-bit integers, floats | as they are within 0..255, times 255 within 0..1, else stretched from minimum to maximum |
| alpha, or a transparent colour | laid over white |
| a fourth band of a GeoTIFF with more values than 0 and 255 (infrared) | left out |
| palette, grey, CMYK, YCbCr, Lab | converted to RGB |
| animation | its first frame |

What cannot be decoded raises an `ImageError`. Only formats that Pillow decodes itself are opened, up to
`MAX_PIXELS` pixels, since a small file can declare any number of them. Pillow (`pip install pillow`) is imported
with the first image.
"""

from __future__ import annotations

import base64
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS = 178_956_970
"""Largest image that is decoded: half a gigabyte as RGB, Pillow's own limit for a decompression bomb."""

_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "JPEG2000", "AVIF", "TGA")
_ORIENTATION = 0x0112
_SWAPS_SIDES = range(5, 9)
_HEAD = 4096
_GEO_TAGS = frozenset((33550, 34264, 34735))
"""Tags of a GeoTIFF: the size of a pixel on the ground, a transformation, the keys of its coordinate system."""
FOURTH_BAND = "GeoTIFFs with a fourth band, transparency where it is 0 or 255 alone, else (infrared) left out"


ImageSource = str | os.PathLike[str] | bytes
"""Path of an image file, or its content."""


DEEP = "images of more than 8 bits, scaled to 8"
"""The note on images that lose values when they are decoded."""
LEAST_SPAN = 32
"""Number of grey levels of 256 below which a decoded image of more than 8 bits is reported."""


class ImageError(ValueError):
    """An image that cannot be decoded; the message states the reason without the file name."""


@dataclass(frozen=True)
class ImageFacts:
    """Properties of an image that its header states.

    Attributes:
        size: width and height in pixels, upright
        stored_size: width and height before the EXIF orientation is applied
        notes: what decoding changes: orientation, bit depth, transparency, further frames
        orientation: EXIF orientation, 1 for an image that is stored upright
        value_range: least and largest value of an image of more than 8 bits that was decoded
    """

    size: tuple[int, int]
    stored_size: tuple[int, int]
    notes: tuple[str, ...] = ()
    orientation: int = 1
    value_range: tuple[float, float] | None = None


def image_facts(source: ImageSource, *, max_pixels: int = MAX_PIXELS) -> ImageFacts:
    """Read the header of an image without decoding pixels.

    Args:
        source: path or content of the file
        max_pixels: larger images are refused

    Raises:
        ImageError: the file is no image that can be decoded.
    """
    plain = _plain_jpeg_size(source)
    if plain is not None and plain[0] * plain[1] <= max_pixels:
        return ImageFacts(plain, plain)
    with _opened(source, max_pixels) as stored:
        return _facts(stored)


def facts_and_image(
    content: bytes, *, at_most: tuple[int, int] | None = None, grey: bool = False
) -> tuple[ImageFacts, Image.Image]:
    """Return what `image_facts` and `decode_image` return of the content of a file, which is opened once.

    Where `grey` values are enough, to which a JPEG is decoded faster, the image may be of mode L.
    """
    from PIL import ImageOps

    plain = _plain_jpeg_size(content)
    with _opened(content, MAX_PIXELS) as stored:
        facts = _facts(stored) if plain is None else ImageFacts(plain, plain)
        is_georeferenced = _is_georeferenced(stored)
        _reduce(stored, at_most, facts.orientation, "L" if grey else "RGB")
        stored.load()  # here, where errors of decoders are told
        if stored.mode[:1] in "IF":
            values = np.nan_to_num(np.asarray(stored), posinf=0, neginf=0)
            facts = replace(facts, value_range=(float(values.min()), float(values.max())))
        elif DEEP in facts.notes:  # of which the higher byte is decoded
            bands = [band for band in stored.getextrema()[:3] if isinstance(band, tuple)]
            facts = replace(
                facts, value_range=(256.0 * min(b[0] for b in bands), 256.0 * max(b[1] for b in bands) + 255)
            )
        upright = stored if plain is not None else ImageOps.exif_transpose(stored)
        return facts, upright if grey and plain is not None and upright.mode == "L" else _to_rgb(
            upright, is_georeferenced
        )


def _facts(stored: Image.Image) -> ImageFacts:
    """Return the properties of an image that has been opened and not been decoded."""
    from PIL.TiffImagePlugin import IMAGELENGTH, IMAGEWIDTH, TiffImageFile

    is_deep = stored.mode[:1] in "IF" or _is_deep_colour(stored)  # here, as Pillow decodes a PNG for its EXIF
    orientation = stored.getexif().get(_ORIENTATION, 1)
    notes = []
    orientation = orientation if orientation in range(1, 9) else 1
    if orientation != 1:
        notes.append("images rotated upright by their EXIF orientation")
    if stored.format != "MPO" and _frames(stored) > 1:
        notes.append("animated images or several pages in a file, of which the first is used")
    if is_deep:
        notes.append(DEEP)
    if stored.has_transparency_data:
        notes.append(FOURTH_BAND if _is_georeferenced(stored) else "images with transparency, laid over white")
    width, height = stored.size
    if isinstance(stored, TiffImageFile):  # recent Pillow versions apply the orientation to TIFF sizes
        width, height = stored.tag_v2[IMAGEWIDTH], stored.tag_v2[IMAGELENGTH]
    size = (height, width) if orientation in _SWAPS_SIDES else (width, height)
    return ImageFacts(size, (width, height), tuple(notes), orientation)


def _frames(stored: Image.Image) -> int:
    """Return the number of images in a file; 1 where a further one is none that Pillow knows, as a mask of GDAL."""
    try:
        return int(getattr(stored, "n_frames", 1))
    except SyntaxError:
        stored.seek(0)
        return 1


def _is_deep_colour(stored: Image.Image) -> bool:
    """Return whether an image has colours of 16 bits, before it is decoded."""
    return any(";16" in str(tile[3]) for tile in getattr(stored, "tile", ()))


def _is_georeferenced(stored: Image.Image) -> bool:
    return stored.mode == "RGBA" and not _GEO_TAGS.isdisjoint(getattr(stored, "tag_v2", ()))


def _reduce(stored: Image.Image, at_most: tuple[int, int] | None, orientation: int, mode: str = "RGB") -> None:
    """Let a JPEG be decoded at a reduced size of at least `at_most`, which is the size of the upright image."""
    if at_most is not None:
        stored.draft(mode, at_most[::-1] if orientation in _SWAPS_SIDES else at_most)


_SKIPPED = {0xDB, 0xC4, 0xDD, 0xFE, 0xE0}
"""JPEG segments that do not affect size or orientation: tables, restart interval, comment, JFIF."""


def _plain_jpeg_size(source: ImageSource) -> tuple[int, int] | None:
    """Return width and height of a grey or colour JPEG without EXIF or other unusual segments; else None.

    Most photographs of large data sets are such files. Pillow takes ten times as long, since it reads all tables.
    """
    if isinstance(source, bytes):
        head = source[:_HEAD]
    else:
        try:
            with open(source, "rb", buffering=0) as file:  # noqa: PTH123 - see `_opened`
                head = file.read(_HEAD)
        except (OSError, ValueError):
            return None
    if head[:3] != b"\xff\xd8\xff":
        return None
    position, size = 2, None
    while position + 10 <= len(head) and head[position] == 0xFF:
        marker, length = head[position + 1], int.from_bytes(head[position + 2 : position + 4], "big")
        if marker == 0xDA:
            return size if position + 2 + length <= len(head) else None
        if marker in (0xC0, 0xC1, 0xC2):
            height, width = (int.from_bytes(head[position + at : position + at + 2], "big") for at in (5, 7))
            if size or head[position + 4] != 8 or head[position + 9] not in (1, 3) or not (width and height):
                return None
            size = (width, height)
        elif marker not in _SKIPPED or length < 2:
            return None
        position += 2 + length
    return None


def decode_image(
    source: ImageSource, *, max_pixels: int = MAX_PIXELS, at_most: tuple[int, int] | None = None
) -> Image.Image:
    """Return an image upright, as 8-bit RGB.

    Args:
        source: path or content of the file
        max_pixels: larger images are refused; with `at_most` the reduced size counts
        at_most: width and height; a JPEG may be decoded at a reduced size of at least these

    Raises:
        ImageError: the file is no image that can be decoded.
    """
    from PIL import ImageOps

    with _opened(source, max_pixels, at_most) as stored:
        is_georeferenced = _is_georeferenced(stored)
        return _to_rgb(ImageOps.exif_transpose(stored), is_georeferenced)


def data_url(image: Image.Image, quality: int = 80) -> str:
    """Return an image as a JPEG inside a data URL, for a page that requests nothing."""
    buffer = BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image to 8-bit RGB by the table at the top of this module.

    Example:
        >>> from PIL import Image
        >>> to_rgb(Image.new("RGBA", (1, 1), (0, 0, 0, 0))).getpixel((0, 0))
        (255, 255, 255)
    """
    return _to_rgb(image)


def _to_rgb(image: Image.Image, is_georeferenced: bool = False) -> Image.Image:
    from PIL import Image

    if is_georeferenced and any(image.getchannel("A").histogram()[1:255]):
        image = image.convert("RGB")
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


def _image_of(content: str | os.PathLike[str] | BytesIO) -> Image.Image:
    """Open an image; a TIFF of 16 bits a colour by plane, which Pillow scrambles itself, by libtiff."""
    from PIL import Image, TiffImagePlugin

    image = Image.open(content, formats=_formats())
    tags = getattr(image, "tag_v2", {})
    if tags.get(TiffImagePlugin.PLANAR_CONFIGURATION) != 2 or max(tags.get(TiffImagePlugin.BITSPERSAMPLE, (8,))) <= 8:
        return image
    content = BytesIO(content.getvalue()) if isinstance(content, BytesIO) else content
    image.close()
    before, TiffImagePlugin.READ_LIBTIFF = TiffImagePlugin.READ_LIBTIFF, True
    try:
        return Image.open(content, formats=_formats())
    finally:
        TiffImagePlugin.READ_LIBTIFF = before


@contextmanager
def _opened(source: ImageSource, max_pixels: int, at_most: tuple[int, int] | None = None) -> Iterator[Image.Image]:
    """Open an image of at most `max_pixels` pixels; errors of decoders become an `ImageError`."""
    from PIL import Image, UnidentifiedImageError

    # os.path instead of Path: a Path takes as long as opening the file, which matters for a million images.
    if not isinstance(source, bytes) and not os.path.isfile(source):  # noqa: PTH113
        raise ImageError("is no file" if os.path.exists(source) else "the file does not exist")  # noqa: PTH110
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the size is checked below
            content = BytesIO(source) if isinstance(source, bytes) else source
            with _image_of(content) as stored:
                _reduce(stored, at_most, 1 if at_most is None else stored.getexif().get(_ORIENTATION, 1))
                width, height = stored.size
                if width * height > max_pixels:
                    raise ImageError(f"{width} x {height} pixels are too many")
                yield stored
    except Image.DecompressionBombError:
        raise ImageError("too many pixels") from None
    except ImageError:
        raise
    except UnidentifiedImageError:
        if not (len(source) if isinstance(source, bytes) else os.path.getsize(source)):  # noqa: PTH202
            raise ImageError("the file is empty") from None
        raise ImageError(f"cannot be decoded (expected {', '.join(_formats())}; convert other kinds)") from None
    except (OSError, ValueError, SyntaxError, EOFError, MemoryError) as error:  # what decoders raise
        reason = getattr(error, "strerror", None) or str(error)
        reason = reason if isinstance(source, bytes) else reason.replace(str(source), "the file")
        raise ImageError(f"cannot be decoded ({reason[:80] or type(error).__name__})") from error
