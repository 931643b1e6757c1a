"""Finds the file of an image inside the folder of the images, and reads it at the size of a drawing.

Names come from a file of annotations, which may be anyone's: nothing outside the folder is read, no file can take much
memory, and only formats that Pillow decodes itself are opened.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path, PurePosixPath

from coord_eval.images import ImageError, decode_image

MAX_PIXELS = 40_000_000
"""Largest image that is decoded, 120 MB as RGB; JPEG files are decoded at a reduced size and may be larger."""
SHARPNESS = 1.5
"""Pixels of the embedded image per unit of the drawing."""
NOT_FOUND = "not found; name the folder of the images (--images, image_root)"
OUTSIDE = "outside the folder of the images, not shown; name the folder that holds it (--images, image_root)"
AMBIGUOUS = "found in several folders; name the folder of the images (--images, image_root)"
NO_PILLOW = "Pillow is not installed: pip install coord-eval[report]"
_MAX_FOLDERS = 100


def photograph(root: Path | None, name: str, size: tuple[int, int]) -> tuple[str | None, str | None]:
    """Return an image as a data URL, or why there is none.

    Args:
        root: folder of the images; of a folder `annotations`, as COCO has it, the folders beside it are searched too
        name: path of the image relative to the folder
        size: width and height of the drawing, in its own units
    """
    if root is None:
        return None, NOT_FOUND
    if not name:
        return None, "no file name"
    try:
        path, problem = _find(root, name)
    except (OSError, ValueError, RuntimeError):  # a name that no file can have, or links in a circle
        return None, NOT_FOUND
    return _read(path, size) if path else (None, problem)


def _find(root: Path, name: str) -> tuple[Path | None, str | None]:
    base = root.resolve()
    folders = [base, base / "images"]
    if base.name == "annotations":
        base = base.parent
        beside = [base / "images", *_subfolders(base), *_subfolders(base / "images")]
    else:
        beside = []
    parts = PurePosixPath(name.replace("\\", "/"))
    found, outside = _inside([*(folder / parts for folder in folders), folders[0] / parts.name], base)
    if not found and beside:
        found, there = _inside([base / parts, *(folder / parts for folder in beside)], base)
        outside |= there
        if len(found) > 1:
            return None, AMBIGUOUS
    return (found[0], None) if found else (None, OUTSIDE if outside or _leaves(parts) else NOT_FOUND)


def _leaves(parts: PurePosixPath) -> bool:
    return parts.is_absolute() or ".." in parts.parts


def _subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder that images may stand in: not `annotations`, and not too many."""
    if not folder.is_dir():
        return []
    found = sorted(path for path in folder.iterdir() if path.is_dir() and path.name not in ("annotations", "images"))
    return found[:_MAX_FOLDERS]


def _inside(candidates: list[Path], base: Path) -> tuple[list[Path], bool]:
    """Return the files that exist inside a folder, links followed, and whether one exists outside it."""
    found: dict[Path, None] = {}
    outside = False
    for candidate in candidates:
        path = candidate.resolve()
        inside = path.is_relative_to(base)
        if inside and path.is_file():
            found[path] = None
        outside |= not inside
    return list(found), outside


def _read(path: Path, size: tuple[int, int]) -> tuple[str | None, str | None]:
    try:
        from PIL import Image
    except ImportError:
        return None, NO_PILLOW
    pixels = (round(size[0] * SHARPNESS), round(size[1] * SHARPNESS))
    try:
        image = decode_image(path, max_pixels=MAX_PIXELS, at_most=pixels)
    except ImageError as error:
        return None, f"{error} to show" if "too many" in str(error) else "cannot identify or read the image"
    buffer = io.BytesIO()
    image.resize(pixels, Image.Resampling.BILINEAR).save(buffer, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii"), None
