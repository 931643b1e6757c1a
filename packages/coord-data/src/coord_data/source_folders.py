"""Finds which of the sources of `prepare` are annotations, and which is the folder of their images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coord_codec import InputError
from coord_data.formats.registry import open_source
from coord_data.image_paths import image_files, is_hidden
from coord_data.source import Source


def images_of(sources: Sequence[Path | Source], images: Path | None) -> list[tuple[Path | Source, Path | None]]:
    """Return the annotations with their image folders; the last source may be the image folder of all others."""
    paths = [named_path(source) for source in sources]
    if missing := next((path for path in paths[1:] if not path.exists()), None):
        raise InputError(f"{missing}: expected annotations, or a folder of images, found nothing there; check the path")
    *others, last = paths
    if images is None and others and last.is_dir():
        contains_images = [path.is_dir() and last.resolve().is_relative_to(path.resolve()) for path in others]
        if others[0].is_dir() and any(contains_images):
            return [
                (source, last if contains else None)
                for source, contains in zip(sources[:-1], contains_images, strict=True)
            ]
        if not others[0].is_dir() or _is_of_images(last, others[0]):
            return [(source, last) for source in sources[:-1]]
    return [(source, images) for source in sources]


def named_path(source: Path | Source) -> Path:
    """Return the path that the user named."""
    return source.named if isinstance(source, Source) else source


def _is_of_images(folder: Path, annotations: Path) -> bool:
    """Return whether a folder has no annotations, or only images while the annotations' folder has none."""
    try:
        open_source(folder)
    except InputError:
        return True
    files = [path for path in folder.rglob("*") if path.is_file() and not is_hidden(path, folder)]
    return len(image_files(folder)) == len(files) and not image_files(annotations)
