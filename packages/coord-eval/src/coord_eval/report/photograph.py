"""Finds an image file inside the folder of the images, and decodes it.

File names come from annotations, which are untrusted: no file outside the folder is read, memory is bounded, and only
formats that Pillow decodes itself are opened.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote

from coord_codec.counts import counted
from coord_codec.files import InputError, read_json
from coord_codec.images import ImageError, decode_image, image_facts
from coord_eval.page_options import ImageRoot

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS = 40_000_000
"""Largest decoded image, 120 MB as RGB; JPEG files may be larger, since they are decoded at a reduced size."""
NOT_FOUND = "not found; name the folder of the images (--images, image_root)"
OUTSIDE = "outside the folder of the images, not shown; name the folder that holds it (--images, image_root)"
AMBIGUOUS = "found in several folders; name the folder of the images (--images, image_root)"
_SIZES = 200
"""Number of images whose size is compared."""
NO_PILLOW = "Pillow is not installed: pip install pillow"
_MAX_FOLDERS = 100


def photograph(root: ImageRoot | None, name: str, at_most: tuple[int, int] | None = None) -> Image.Image:
    """Return an image; a JPEG may be decoded at a reduced size of at least the width and height `at_most`.

    Raises:
        ImageError: it cannot be shown.
    """
    path = _file(root, name)
    if find_spec("PIL") is None:
        raise ImageError(NO_PILLOW)
    try:
        return decode_image(path, max_pixels=MAX_PIXELS, at_most=at_most)
    except ImageError as error:
        told = f"{error} to show" if "too many" in str(error) else "cannot identify or read the image"
        raise ImageError(told) from None


def size_notes(root: Path | None, names: Sequence[str], sizes: Iterable[Sequence[float]]) -> list[str]:
    """Return a note on image files of another size than the ground truth states, of up to 200 evenly spread ones."""
    if root is None:
        return []
    find, wrong, step = finder(root), [], -(-len(names) // _SIZES) or 1
    for name, (width, height) in list(zip(names, sizes, strict=True))[::step]:
        with suppress(OSError, ValueError):
            size = image_facts(_file(find, name)).size
            if size != (width, height):
                wrong.append(f"{name} is {size[0]} x {size[1]}, stated are {width:g} x {height:g}")
    note = f"{counted(len(wrong), 'image file has', 'image files have')} another size than the ground truth states"
    return [f"{note}: {wrong[0]}"] if wrong else []


def _file(root: ImageRoot | None, name: str) -> Path:
    """Return the file of an image: of a function wherever it lies, of a folder inside it.

    Raises:
        ImageError: if there is none that may be read, or there are several
    """
    if root is None:
        raise ImageError(NOT_FOUND)
    if not name:
        raise ImageError("no file name")
    try:
        path = finder(root)(name)
        is_file = path is not None and path.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # an invalid file name, or a cycle of symbolic links
        raise error if isinstance(error, ImageError) else ImageError(NOT_FOUND) from None
    if path is None or not is_file:
        raise ImageError(NOT_FOUND)
    return path


def finder(root: ImageRoot) -> Callable[[str], Path | None]:
    """Return the function that finds the file of an image, of a folder one that is quick for many images."""
    if callable(root):
        return root
    base = root.resolve()
    return partial(_find, base, cache(partial(_stated_folder, base)))


def _find(base: Path, stated_folder: Callable[[], Path | None], name: str) -> Path:
    """Return the file of an image; beside a folder `annotations`, as in COCO, the other folders are searched too."""
    parts = PurePosixPath(name.replace("\\", "/"))
    # A name that leaves its folder is found by its end, the longest first.
    ends = [base.joinpath(*parts.parts[n:]) for n in range(1, len(parts.parts)) if ".." not in parts.parts[n:]]
    candidates = [base / parts, base / "images" / parts, *ends]
    siblings: list[Path] = []
    if base.name == "annotations":
        base = base.parent
        siblings = [base, base / "images", *_subfolders(base), *_subfolders(base / "images")]
    files, outside = _inside(candidates, base)
    if not files and (stated := stated_folder()) is not None:
        files, _ = _inside(candidates, stated)
    if not files and siblings:
        files, outside_siblings = _inside([folder / parts for folder in siblings], base)
        outside |= outside_siblings
        if len(files) > 1:
            raise ImageError(AMBIGUOUS)
    if not files:
        raise ImageError(OUTSIDE if outside or parts.is_absolute() or ".." in parts.parts else NOT_FOUND)
    return files[0]


def _stated_folder(base: Path) -> Path | None:
    """Return the folder of the images that `coord-data prepare` wrote beside its records; None without one."""
    for file in sorted(base.glob("*.summary.json")):
        with suppress(InputError, OSError, TypeError, KeyError, ValueError):
            folder = Path(base, read_json(file)["images"]).resolve()
            if folder.is_dir() and folder != Path(folder.anchor):
                return folder
    return None


def _subfolders(folder: Path) -> list[Path]:
    """Return up to 100 subfolders that may contain images; `annotations` and `images` are left out."""
    if not folder.is_dir():
        return []
    folders = sorted(path for path in folder.iterdir() if path.is_dir() and path.name not in ("annotations", "images"))
    return folders[:_MAX_FOLDERS]


def _inside(candidates: list[Path], base: Path) -> tuple[list[Path], bool]:
    """Return the existing files among the candidates inside a folder, and whether a candidate leads outside it."""
    files = dict.fromkeys(candidate.resolve() for candidate in candidates if candidate.is_file())
    inside = [path for path in files if path.is_relative_to(base)]
    return inside, len(inside) < len(files)


def link_to(root: ImageRoot | None, name: str, folder: Path) -> str:
    """Return the address of an image file relative to the folder of a page; empty without a file that may be read.

    It is empty too if folder and file have nothing in common but the root of the file system: the address would state
    the whole path on this machine.
    """
    try:
        file, page = _file(root, name).resolve(), folder.resolve()
        if Path(os.path.commonpath([page, file])) == Path(page.anchor):
            return ""
        return quote(os.path.relpath(file, page).replace(os.sep, "/"), errors="surrogateescape")
    except (OSError, ValueError, RuntimeError):
        return ""
