"""Where the files about an image lie: below their own folder, whatever its name is, and each image's apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath


def places_of(images: Iterable[str], folder: Path, suffix: str) -> dict[str, Path]:
    """Return the file of each image in a folder, with a suffix in place of the image's own.

    Names of images are those of annotations too, which may be absolute or lead upwards: an original must never be
    written over. Where two images would have the same file, or one the name of a folder, theirs keep the suffix.

    Example:
        >>> found = places_of(["a.jpg", "a.png", "../b.jpg", "/c/d.jpg"], Path("drawn"), ".txt")
        >>> [path.as_posix() for path in found.values()]
        ['drawn/a.jpg.txt', 'drawn/a.png.txt', 'drawn/__/b.txt', 'drawn/c/d.txt']
    """
    inside = {image: _inside(image) for image in images}
    short = {image: path.with_suffix(suffix) for image, path in inside.items()}
    times = Counter(str(path).casefold() for path in short.values())  # some file systems ignore case
    folders = {parent for path in inside.values() for parent in path.parents}
    found: dict[str, Path] = {}
    for image, path in inside.items():
        is_free = times[str(short[image]).casefold()] == 1 and short[image] not in folders
        found[image] = folder / (short[image] if is_free else path.with_name(path.name + suffix))
    return found


def _inside(image: str) -> PurePosixPath:
    path = PurePosixPath(image.replace("\\", "/"))
    return PurePosixPath(*("__" if part == ".." else part for part in path.parts if part != path.anchor))
