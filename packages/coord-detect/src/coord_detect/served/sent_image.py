"""The sides that a model's own image processor gives an image, at which it is sent to a server.

Engines that resize as transformers does keep such an image as it is. Others have rules of their own: llama.cpp pads
where transformers stretches, rounds halves up, and takes no limits of pixels from an export.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from coord_codec.box_transforms import smart_resize
from coord_codec.files import read_json
from coord_detect.settings.sections import Asking

_BY_LIMITS = "Qwen2VLImageProcessor"
"""The image processor that resizes by `smart_resize`: that of all Qwen families in the table."""
_TO_ONE_SIZE = "Gemma3ImageProcessor"
"""The one that stretches every image to one size, unless it cuts long ones (`do_pan_and_scan`)."""
_FILES = (("processor_config.json", "image_processor"), ("preprocessor_config.json", None))
"""Files with the settings of an image processor, the first that has some counts; and the field that they stand in."""
_MOST_RATIO = 200
"""Ratio of sides above which these processors refuse an image."""


@dataclass(frozen=True)
class SentSides:
    """Settings of an image processor that decide the sides of an image.

    Attributes:
        factor: side in pixels of the square that becomes one token
        min_pixels: smaller images are enlarged
        max_pixels: larger images are reduced
        resample: number of the filter, as in Pillow
        one_size: width and height of every image, by which the other settings have no effect; None for none
    """

    factor: int
    min_pixels: int
    max_pixels: int
    resample: int = Image.Resampling.BICUBIC
    one_size: tuple[int, int] | None = None

    @classmethod
    def of_folder(cls, folder: Path, data: Asking) -> SentSides | None:
        """Return the settings in a model's folder with the limits of `data`; None for files or processors not known."""
        found = _settings(folder)
        kind = str(found.get("image_processor_type")).removesuffix("Fast")
        if kind not in (_BY_LIMITS, _TO_ONE_SIZE) or not found.get("do_resize", True) or found.get("do_pan_and_scan"):
            return None
        size = found.get("size") or {}
        resample = found.get("resample")
        if kind == _TO_ONE_SIZE:
            one_size: Any = size.get("width"), size.get("height")
            return cls(1, 1, 1, resample or Image.Resampling.BILINEAR, one_size) if _are_sides(*one_size) else None
        least: Any = data.min_pixels or size.get("shortest_edge") or found.get("min_pixels")
        most: Any = data.max_pixels or size.get("longest_edge") or found.get("max_pixels")
        patch: Any = found.get("patch_size")
        merge: Any = found.get("merge_size")
        if not _are_sides(least, most, patch, merge):
            return None
        return cls(patch * merge, least, most, resample or Image.Resampling.BICUBIC)

    def sides(self, width: int, height: int, pixels: float = 1.0) -> tuple[int, int]:
        """Return width and height as the processor makes them; `pixels` is a factor of the limits.

        Unchanged are sides that the processor refuses, and those that it would resize a second time.

        Example:
            >>> SentSides(32, 1024, 9216).sides(108, 84)
            (96, 96)
        """
        if self.one_size is not None:
            return self.one_size
        if max(width, height) > _MOST_RATIO * min(width, height):
            return width, height
        limits = {"min_pixels": int(self.min_pixels * pixels), "max_pixels": int(self.max_pixels * pixels)}
        made = smart_resize(width, height, factor=self.factor, **limits)
        return made if smart_resize(*made, factor=self.factor, **limits) == made else (width, height)

    def resized(self, image: Image.Image, pixels: float = 1.0) -> Image.Image:
        """Return the image at these sides, resized in width first, which Pillow 13 would not always do by itself."""
        width, height = self.sides(*image.size, pixels)
        for size in ((width, image.height), (width, height)):
            image = image if image.size == size else image.resize(size, Image.Resampling(self.resample))
        return image


def _are_sides(*values: Any) -> bool:
    return all(isinstance(value, int) and value > 0 for value in values)


def _settings(folder: Path) -> dict[str, Any]:
    """Return the settings of the image processor in a folder; empty without any."""
    for name, within in _FILES:
        if not (folder / name).is_file():
            continue
        content = read_json(folder / name)
        found = content.get(within) if within else content
        if isinstance(found, dict) and "image_processor_type" in found:
            return found
    return {}
