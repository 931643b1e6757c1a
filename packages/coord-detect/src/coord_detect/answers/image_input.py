"""Opens an image that a caller hands over: a path, a PIL image or an array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from coord_codec import InputError
from coord_eval import ImageError, decode_image, to_rgb


def open_image(image: Any) -> Image.Image:
    """Return an image upright and in RGB; an `InputError` for what is no image or cannot be decoded."""
    check_image(image)
    if isinstance(image, str | Path):
        try:
            return decode_image(image)
        except ImageError as error:
            raise InputError(f"{image}: {error}") from None
    if isinstance(image, np.ndarray):
        return to_rgb(Image.fromarray(image[..., 0] if image.shape[2:] == (1,) else image))
    try:
        return to_rgb(ImageOps.exif_transpose(image))
    except (OSError, ValueError) as error:  # truncated, or closed
        raise InputError(f"image: it cannot be decoded: {error}") from None


def check_image(image: Any, named: str = "image") -> None:
    """Raise `InputError` if this is no path, PIL image or array of an image; nothing is opened."""
    if isinstance(image, str | Path):
        if "://" in str(image):
            raise InputError(f"{image}: a URL, and nothing is downloaded here; name a file, or open the image yourself")
    elif isinstance(image, np.ndarray):
        channels = image.shape[2:] or (1,)
        if image.dtype != np.uint8 or image.ndim not in (2, 3) or channels not in ((1,), (3,), (4,)) or not image.size:
            raise InputError(
                f"{named}: expected an array [height, width, 3] of uint8, found {image.dtype} {image.shape}"
            )
    elif not isinstance(image, Image.Image):
        raise InputError(f"{named}: expected a path, a PIL image or an array, found {type(image).__name__}")
